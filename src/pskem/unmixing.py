"""Linear components of the features that are as independent as possible: scikit-learn's FastICA."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.engine._sources import CHUNK, measure
from pskem.structures import FloatArray

__all__ = ["Unmixing", "fit_unmixing", "representative"]

#: Samples that are enough to learn how features hang together.
ENOUGH = 20_000
#: Deviations from the mean, in standard deviations, are cut off here, so that sums stay finite.
FARTHEST = 1e100


@dataclass(frozen=True, eq=False, repr=False)
class Unmixing:
    """A linear map from features to components of unit variance, and back. Immutable.

    Attributes
    ----------
    mean : ndarray of shape (M,)
        The features at which all components are zero.
    unmixing : ndarray of shape (C, M)
        Components are ``unmixing @ (x - mean)``. C is the rank of the data.
    mixing : ndarray of shape (M, C)
        Features are ``mixing @ components + mean``; the inverse, or the pseudo-inverse where C < M.
    log_det : float
        log |det unmixing|: add it to a log density of the components and get that of the features.
        It is 0 where C < M, because the features then have no density.
    """

    mean: FloatArray
    unmixing: FloatArray
    mixing: FloatArray
    log_det: float

    def __post_init__(self) -> None:
        for name in ("mean", "unmixing", "mixing"):
            array = np.array(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[type[Unmixing], tuple[Any, ...]]:
        # Through the constructor, so that copies are read-only too.
        return Unmixing, tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        C, M = self.unmixing.shape
        return f"Unmixing(n_features={M}, n_components={C})"

    @property
    def n_components(self) -> int:
        return len(self.unmixing)

    def components(self, X: FloatArray) -> FloatArray:
        """The components of the rows of X (n, M): (n, C), in the precision of X."""
        # Components have unit variance, so these are no less than standard deviations of features.
        limit = FARTHEST * np.abs(self.mixing).sum(axis=1)
        result = np.empty((len(X), self.n_components), dtype=X.dtype)
        for low in range(0, len(X), CHUNK):
            with np.errstate(over="ignore"):
                deviations = np.subtract(X[low : low + CHUNK], self.mean, dtype=np.float64)
                np.clip(deviations, -limit, limit, out=deviations)
                result[low : low + CHUNK] = deviations @ self.unmixing.T
        return result

    def features(self, components: FloatArray) -> FloatArray:
        """The features of given components (n, C): (n, M)."""
        return components @ self.mixing.T + self.mean


def representative(n_samples: int) -> NDArray[np.intp]:
    """Places of at most 20,000 samples, evenly spread over an order such as the canonical one.

    That order is by class and within a class by a hash, so all classes have their shares.
    """
    if n_samples <= ENOUGH:
        return np.arange(n_samples)
    return np.linspace(0, n_samples - 1, ENOUGH).astype(np.intp)


def fit_unmixing(X: FloatArray, seed: int) -> Unmixing:
    """Unmix X (n, M) into as many components as it has dimensions.

    Features are standardised first, so that the rank does not depend on their units. Passes on
    scikit-learn's ConvergenceWarning.
    """
    from sklearn.decomposition import FastICA

    n, M = X.shape
    shift, scale = (part.astype(np.float64) for part in measure(X.T))
    Z = np.subtract(X, shift, dtype=np.float64) / scale
    offset = Z.mean(axis=0)  # what rounding left of the mean
    Z -= offset
    # Features that are constant, but for rounding, are not scaled.
    varies = np.abs(Z.std(axis=0) - 1.0) < 0.01
    Z *= varies
    _, spectrum, axes = np.linalg.svd(np.linalg.qr(Z, mode="r"), full_matrices=False)
    spread = spectrum / np.sqrt(n)
    rank = int((spread > 10.0 * M * float(np.finfo(X.dtype).eps)).sum())
    if rank == 0:
        raise ValueError(
            f"partition='ica' needs features that vary, but X has the same {M} value(s) in all of"
            f" its {n} sample(s). Use another partition."
        )
    spread, axes = spread[:rank], axes[:rank]  # (C,), (C, M)
    # FastICA's own whitening divides by all singular values, also by zeros, and by the signs of
    # the first feature's loadings, which are zero if it is constant.
    whitening = axes / spread[:, None]
    ica = FastICA(whiten=False, max_iter=1000, tol=1e-3, random_state=seed).fit(Z @ whitening.T)
    rotation = ica.components_  # (C, C), orthogonal
    unmixing = rotation @ whitening * varies / scale
    return Unmixing(
        shift + scale * offset,
        unmixing,
        (scale * varies)[:, None] * (axes.T * spread) @ rotation.T,
        float(np.linalg.slogdet(unmixing)[1]) if rank == M else 0.0,
    )
