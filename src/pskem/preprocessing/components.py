"""Linear components of the features that are as independent as possible: scikit-learn's FastICA."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import (
    check_array,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from pskem import checks
from pskem.engine import ArraySource, measure, serial_map, workers
from pskem.structures import FloatArray
from pskem.training import (
    ENOUGH_FOR_DEPENDENCE,
    canonical_order,
    draw_seeds,
    representative,
)

__all__ = ["IndependentComponents", "least_spread"]

#: Rows of a product.
ROWS = 256
#: Deviations from the mean, in standard deviations, are cut off here, so that sums stay finite.
FARTHEST = 1e100
#: What features may vary by: of others, the components or their limits are not finite.
SMALLEST_SCALE, LARGEST_SCALE = 1e-200, 1e200


def least_spread(X: FloatArray, scale: FloatArray) -> float:
    """Standard deviation of X / scale along any direction that cannot be rounding alone.

    Far from zero, values are rounded by more than one would think of their spread. X (n, M); scale
    (M,), infinite for features that do not vary.
    """
    rounding = np.linalg.norm(np.abs(X).max(axis=0) / scale)
    return float(np.finfo(X.dtype).eps * (10.0 * X.shape[1] + 2.0 * rounding))


class IndependentComponents(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Unmix features into components of unit variance that are as independent as possible.

    A partitioned classifier multiplies its blocks, so it gains from blocks that are independent.
    FastICA is asked for as many components as the features have dimensions; it learns from at most
    20,000 samples. Unlike scikit-learn's own, constant and linearly dependent features do no harm.

    Parameters
    ----------
    max_iter : int, default=1000
        Iterations of FastICA at most.
    tol : float, default=1e-3
        Where they stop.
    random_state : int, RandomState instance or None, default=None

    Attributes
    ----------
    mean_ : ndarray of shape (n_features,)
        The features at which all components are zero.
    components_ : ndarray of shape (n_components, n_features)
        Components are ``components_ @ (x - mean_)``. Their number is the rank of the data.
    mixing_ : ndarray of shape (n_features, n_components)
        Features are ``mixing_ @ components + mean_``; the inverse, or the pseudo-inverse where
        there are fewer components than features.
    log_det_ : float
        log |det components_|: add it to a log density of the components and get that of the
        features. NaN where the features are linearly dependent, and have no density.
    n_iter_ : int
        Iterations that FastICA made.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    pskem.SharedKernelClassifier : ``partition="dependence"`` deals out what dependence is left.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from pskem import SharedKernelClassifier
    >>> from pskem.preprocessing import IndependentComponents
    >>> X, y = load_wine(return_X_y=True)
    >>> classifier = SharedKernelClassifier(n_blocks=3, partition="dependence", random_state=0)
    >>> model = make_pipeline(IndependentComponents(random_state=0), classifier).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        *,
        max_iter: int = 1000,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the components. Passes on FastICA's ConvergenceWarning.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,) or None, default=None
            Classes have their shares in the samples that are looked at, if there are very many.
        """
        from sklearn.decomposition import FastICA

        checks.check_integer("max_iter", self.max_iter, 1)
        checks.check_real("tol", self.tol, 0.0, strict=True)
        X = validate_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        (seed,) = draw_seeds(self.random_state)
        labels = np.zeros(len(X), dtype=np.intp)
        if y is not None:
            check_consistent_length(X, y)
            _, labels = np.unique(column_or_1d(y), return_inverse=True)
        with workers(1):  # BLAS rounds by the number of its threads
            X = X[representative(canonical_order(X, labels), ENOUGH_FOR_DEPENDENCE)]
            n, M = X.shape
            source = ArraySource([X.T], np.array([0, n]), serial_map)
            ((shift, scale),) = measure(source)
            extreme = (scale < SMALLEST_SCALE) | (scale > LARGEST_SCALE)
            if extreme.any():
                raise ValueError(
                    f"Feature(s) {', '.join(map(str, np.flatnonzero(extreme)[:10]))} of X vary by"
                    f" {scale[extreme][0]:.3g}; between {SMALLEST_SCALE:g} and {LARGEST_SCALE:g} is"
                    " accepted. Rescale the features."
                )
            Z = np.subtract(X, shift, dtype=np.float64) / scale
            offset = Z.mean(axis=0)  # what rounding left of the mean
            Z -= offset
            # Features that are constant, but for rounding, are not scaled.
            varies = np.abs(Z.std(axis=0) - 1.0) < 0.01
            Z *= varies
            _, spectrum, axes = np.linalg.svd(np.linalg.qr(Z, mode="r"), full_matrices=False)
            spread = spectrum / np.sqrt(n)
            rank = int((spread > least_spread(X, np.where(varies, scale, np.inf))).sum())
            if rank == 0:
                raise ValueError(
                    f"IndependentComponents needs features that vary, but X has the same {M}"
                    f" value(s) in all of its {n} sample(s)."
                )
            spread, axes = spread[:rank], axes[:rank]  # (C,), (C, M)
            # FastICA's own whitening divides by all singular values, also by zeros, and by the
            # signs of the first feature's loadings, which are zero if it is constant.
            whitening = axes / spread[:, None]
            ica = FastICA(whiten=False, max_iter=self.max_iter, tol=self.tol, random_state=seed)
            rotation = ica.fit(Z @ whitening.T).components_  # (C, C), orthogonal
        self.n_iter_ = int(ica.n_iter_)
        self.mean_ = shift + scale * offset
        self.components_ = rotation @ whitening * varies / scale
        self.mixing_ = (scale * varies)[:, None] * (axes.T * spread) @ rotation.T
        full = rank == M
        self.log_det_ = float(np.linalg.slogdet(self.components_)[1]) if full else np.nan
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> FloatArray:
        """Components (n_samples, n_components) of samples X, in the precision of X."""
        check_is_fitted(self, "components_")
        X = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        # Components have unit variance, so these are no less than standard deviations of features.
        limit = FARTHEST * np.abs(self.mixing_).sum(axis=1)
        result = np.empty((len(X), len(self.components_)), dtype=X.dtype)
        largest = float(np.finfo(X.dtype).max)
        # BLAS rounds by the number of rows: in products of one size a row has the same bits.
        rows = np.zeros((ROWS, X.shape[1]))
        with workers(1), np.errstate(over="ignore"):
            for low in range(0, len(X), ROWS):
                deviations = np.subtract(X[low : low + ROWS], self.mean_, dtype=np.float64)
                np.clip(deviations, -limit, limit, out=deviations)
                n = len(deviations)
                rows[:n], rows[n:] = deviations, 0.0
                components = (rows @ self.components_.T)[:n]
                result[low : low + n] = np.clip(components, -largest, largest)
        return result

    def inverse_transform(self, X: Any) -> FloatArray:
        """Features (n_samples, n_features) of components X (n_samples, n_components)."""
        check_is_fitted(self, "components_")
        return check_array(X) @ self.mixing_.T + self.mean_
