"""The shared kernel model of one block of features."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Coordinates, Kernels, Prepared, locate, prepare
from pskem.structures import FloatArray, Gaussians, Structure, marginal

__all__ = ["Block", "Reading"]


def frozen(array: Any) -> NDArray[Any]:
    """A copy that nobody can write to; one that is such a copy already is left alone."""
    if type(array) is np.ndarray and array.base is None and not array.flags.writeable:
        return array
    copy = np.array(array)
    copy.flags.writeable = False
    return copy


class Reading(Protocol):
    """How a block reads its columns of X: :class:`~pskem.margins.Margins`, or other numbers."""

    @property
    def sources(self) -> NDArray[np.intp]:
        """For each feature that is made, the column of the block that it is made of."""
        ...

    @property
    def may_lack(self) -> bool:
        """Whether there may be gaps where X has no NaN."""
        ...

    def forward(self, X: FloatArray) -> FloatArray:
        """Rows of X (n, m) as the kernels see them."""
        ...

    def inverse(self, Z: FloatArray) -> FloatArray:
        """Rows that the kernels see in the units of X, if that can be told."""
        ...

    def log_slopes(self, X: FloatArray) -> FloatArray:
        """Sum of the log slopes of rows of X, (n,)."""
        ...

    def at(self, features: NDArray[np.intp]) -> Reading | None:
        """Of some of the columns, by their places."""
        ...

    def carry(self, features: NDArray[np.intp]) -> FloatArray | None:
        """What takes turned features to those of some columns; None if none are turned."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """The shared kernel model of one block of features. Immutable.

    Weights, means and covariances are in the units of X; what is kept are the kernels in
    standardised coordinates, in which they are evaluated.

    Attributes
    ----------
    features : ndarray of shape (m,)
        Columns of X that the block uses.
    weights : ndarray of shape (n_classes, n_components)
        pi_kj of the paper; rows sum to one.
    means : ndarray of shape (n_components, m)
    covariances : ndarray
        (n_components, m, m) for ``"full"``, (m, m) for ``"tied"``, (n_components, m) for
        ``"diag"``, (n_components,) for ``"spherical"``.
    covariance_type : str
    shift, scale : ndarray of shape (m,)
        The standardised coordinates, (x - shift) / scale.
    allowed : ndarray of bool of shape (n_classes, n_components)
        Which weights were free to be other than zero in the training; all of them unless the start
        said otherwise, or kernels belong to classes.
    reading : Margins, Recoding or None
        Monotone maps of the features, after which the kernels are what they are, or other numbers
        that are made of them. Means and covariances are in the units after that; densities and
        draws are in those of X.
    """

    features: NDArray[np.intp]
    kernels: Kernels
    coordinates: Coordinates
    structure: Structure
    allowed: NDArray[np.bool_]
    reading: Reading | None = None

    def __post_init__(self) -> None:
        shift, scale = (frozen(np.asarray(part, np.float64)) for part in self.coordinates)
        parts = {
            "features": frozen(self.features),
            "kernels": Kernels(*map(frozen, self.kernels)),
            "coordinates": Coordinates(shift, scale),
            "allowed": frozen(self.allowed),
        }
        for name, value in parts.items():
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[type[Block], tuple[Any, ...]]:
        # Through the constructor, so that copies are read-only too.
        return Block, tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        return (
            f"Block(n_features={len(self.features)}, n_components={len(self.means)},"
            f" n_classes={len(self.weights)}, covariance_type={self.covariance_type!r})"
        )

    def with_kernels(self, kernels: Kernels) -> Block:
        """The same block with other kernels, in standardised coordinates."""
        other = object.__new__(Block)  # what is frozen already is not copied again
        vars(other).update(vars(self), kernels=Kernels(*map(frozen, kernels)))
        return other

    def shared(self, share: float, priors: FloatArray) -> Block:
        """The block whose classes have a share of the kernels of all, by priors (L,).

        pi'_kj = (1 - e) pi_kj + e sum_c p(c) pi_kc, and so with the likelihoods of the classes. The
        density of all classes together stays as it is.
        """
        own, means, covariances = self.kernels
        weights = (1.0 - share) * own + share * (priors @ own)
        return self.with_kernels(Kernels(weights, means, covariances))

    @property
    def weights(self) -> FloatArray:
        return self.kernels.weights

    @property
    def means(self) -> FloatArray:
        return frozen(self.kernels.means * self.scale + self.shift)

    @property
    def covariances(self) -> FloatArray:
        return frozen(self.structure.storage.rescale(self.kernels.covariances, self.scale))

    @property
    def covariance_type(self) -> str:
        return self.structure.name

    @property
    def shift(self) -> FloatArray:
        return self.coordinates.shift

    @property
    def scale(self) -> FloatArray:
        return self.coordinates.scale

    @property
    def dense_covariances(self) -> FloatArray:
        """The covariances as (n_components, m, m), whatever their type."""
        return self.structure.storage.dense(self.covariances, *self.kernels.means.shape)

    @property
    def n_parameters(self) -> int:
        """Free parameters: weights that are not fixed at zero, means, covariances."""
        K, m = len(self.kernels.means), int((~np.isnan(self.shift)).sum())
        free_weights = np.count_nonzero(self.allowed) - len(self.allowed)
        return int(free_weights) + K * m + self.structure.storage.n_parameters(K, m)

    def prepared(
        self, dtype: np.dtype[np.floating], patterns: NDArray[np.bool_] | None = None
    ) -> Prepared:
        """The kernels made ready for evaluation in a given precision, perhaps with gaps."""
        return prepare(self.structure, self.kernels, dtype, patterns)

    def log_densities(self, prepared: Prepared, X: FloatArray) -> FloatArray:
        """log N(x_n; mu_k, P_k), (K, n), for rows of X (n, M)."""
        local = self.local(X)
        return prepared.log_densities(local) - self.coordinates.log_volumes(local)

    def local(self, X: FloatArray) -> FloatArray:
        """Rows of X (n, M) in the standardised coordinates of the kernels, (m, n)."""
        part = X[:, self.features]
        return locate(
            part if self.reading is None else self.reading.forward(part), self.coordinates
        )

    def log_slopes(self, X: FloatArray) -> FloatArray:
        """What the maps add to the log densities of rows of X (n, M), (n,)."""
        if self.reading is None:
            return np.zeros(len(X))
        return self.reading.log_slopes(X[:, self.features])

    def unmapped(self, Z: FloatArray) -> FloatArray:
        """Rows in the units of means, (n, m), in those of X."""
        return Z if self.reading is None else self.reading.inverse(Z)

    @property
    def may_lack(self) -> bool:
        """Whether rows may have gaps although X has no NaN."""
        told = self.reading is not None and self.reading.may_lack
        return told or bool(np.isnan(self.shift).any())

    def gaps(self, X: FloatArray) -> NDArray[np.bool_]:
        """Where rows of X (n, M) lack features of the block, (n, m)."""
        return self.structure.absent(X[:, self.features] - self.shift)

    def draw(self, kernels: NDArray[np.intp], rng: np.random.Generator) -> FloatArray:
        """A sample of each of these kernels, (n, m), in the units of X."""
        drawn = self.structure.draw(Gaussians(self.means, self.covariances), kernels, rng)
        return self.unmapped(drawn)

    def marginal(self, observed: NDArray[np.bool_]) -> Block:
        """The block of some of its features, (m,)."""
        reading, places = self.reading, np.flatnonzero(observed)
        kept = None if reading is None else reading.at(places)
        carry = None if reading is None else reading.carry(places)
        if carry is not None:  # spherical kernels stay so
            coordinates = Coordinates(self.shift @ carry, self.scale[: carry.shape[1]])
            means = (self.means @ carry - coordinates.shift) / coordinates.scale
            structure, kernels = self.structure, self.kernels._replace(means=means)
        else:
            made = observed if reading is None else observed[reading.sources]
            coordinates = Coordinates(self.shift[made], self.scale[made])
            structure, gaussians = marginal(self.structure, self.kernels.gaussians, made)
            kernels = Kernels(self.weights, *gaussians)
        return replace(
            self,
            features=self.features[observed],
            kernels=kernels,
            coordinates=coordinates,
            structure=structure,
            reading=kept,
        )
