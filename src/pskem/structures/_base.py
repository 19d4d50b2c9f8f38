"""Covariance structures: the one seam between the engine and the shape of a kernel.

A Gaussian is an exponential family, so its log density is linear in a feature map phi(x):

    log N(x; mu, P) = theta . phi(x) + constant + common(x)

where ``common`` is the same for every kernel and so cancels in the responsibilities. A structure
says what phi is, how (mu, P) become theta, and how the sums of phi under the responsibilities
become (mu, P) again. The engine asks for nothing else and has no branch on the covariance type.

Everything here works in standardised coordinates, features first: X is (m, n), phi(X) is (d, n).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLLAPSED",
    "LOG_2PI",
    "Expected",
    "FloatArray",
    "Floored",
    "Gaussians",
    "Natural",
    "OneByOne",
    "Separate",
    "Structure",
    "Totals",
]

FloatArray = NDArray[np.floating[Any]]

LOG_2PI = float(np.log(2.0 * np.pi))

#: A kernel whose variance in some direction falls below this, relative to the data's, or below a
#: floor that is smaller still, has collapsed onto fewer dimensions than it has.
COLLAPSED = 1e-6


class Natural(NamedTuple):
    """Kernels in the form that the E-step multiplies with.

    theta : (K, d), the coefficients of phi
    constant : (K,), the rest of the log density, without the weights
    whitener : (m, m) for the tied structure (phi is whitened by the common covariance); else empty
    cancellation : (K,), the size of the terms that cancel near the kernel's mean because it lies
        off the origin. Times the machine epsilon this is an absolute error of the product form.
    conditioning : (K,), the same because features are correlated; no choice of origin helps.
    """

    theta: FloatArray
    constant: FloatArray
    whitener: FloatArray
    cancellation: FloatArray
    conditioning: FloatArray


class Totals(NamedTuple):
    """What the M-step reads means and covariances from.

    total : responsibilities summed over all kernels, the number of samples
    masses : (K,), responsibilities summed; positive, 1 stands in for kernels that are empty
    sums : (K, d), phi(x - origin) weighted by the responsibilities; 0 for kernels that are empty
    scatter : the sum of :meth:`Structure.scatter`
    origins : (K, m)
    """

    total: float
    masses: FloatArray
    sums: FloatArray
    scatter: FloatArray
    origins: FloatArray


class Gaussians(NamedTuple):
    """Means (K, m) about the origins, and covariances in the structure's shape."""

    means: FloatArray
    covariances: FloatArray


class Expected(NamedTuple):
    """Sums of phi (K, d) and the structure's scatter, as in :class:`Totals`."""

    sums: FloatArray
    scatter: FloatArray


class Floored(NamedTuple):
    """Covariances after the floor, and in how many directions each kernel (K,) had collapsed."""

    covariances: FloatArray
    n_collapsed: NDArray[np.intp]


class OneByOne(Protocol):
    """Products with phi, without phi: kernel by kernel, for few kernels in many features."""

    def evaluate(self, theta: FloatArray, X: FloatArray, out: FloatArray) -> None:
        """Write theta @ phi(X), (K, n), for theta (K, d) and X (m, n)."""
        ...

    def collect(self, W: FloatArray, X: FloatArray) -> FloatArray:
        """W @ phi(X)', (K, d), for W (K, n) and X (m, n)."""
        ...


class Structure(Protocol):
    """What the engine needs to know about a family of covariance matrices.

    m is the number of features of a block, K the number of kernels, d the number of rows of phi.
    """

    name: str
    #: Whether all features of a block must be divided by one and the same scale.
    common_scale: bool
    #: Whether every kernel has a covariance of its own, first in the shape of the covariances.
    keeps_apart: bool

    def n_rows(self, m: int) -> int:
        """D - 1: the rows of phi, without the constant one."""
        ...

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        """Shape of the covariances."""
        ...

    def n_parameters(self, K: int, m: int) -> int:
        """Free parameters in the covariances."""
        ...

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        """Natural parameters of kernels with these means (K, m) and covariances."""
        ...

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        """Write phi(X), (d, n), for X (m, n)."""
        ...

    def one_by_one(self, K: int, m: int) -> OneByOne | None:
        """How to do without phi, where that is faster for K kernels; None where it is not.

        Only structures whose common part and scatter are empty do without.
        """
        ...

    def common(self, phi: FloatArray) -> FloatArray | float:
        """The part of the log density, (n,), that all kernels share; 0.0 where there is none."""
        ...

    def scatter(self, phi: FloatArray) -> FloatArray:
        """A second sum over samples that does not depend on the responsibilities; may be empty."""
        ...

    def estimate(self, natural: Natural, totals: Totals) -> tuple[FloatArray, FloatArray]:
        """Means (K, m) and covariances from the sums over all samples."""
        ...

    def keep(self, which: NDArray[np.bool_], old: FloatArray, new: FloatArray) -> FloatArray:
        """New covariances, but the old ones for some kernels (K,), where they are kept apart."""
        ...

    def expect(self, natural: Natural, kernels: Gaussians, counts: FloatArray) -> Expected:
        """The sums that so many samples (K,) of each kernel would have on average.

        Estimating from them gives the kernels back.
        """
        ...

    def pool(self, covariances: FloatArray, masses: FloatArray, diagonal: bool) -> FloatArray:
        """The covariance within all kernels together, or its diagonal, as covariances of each."""
        ...

    def shrink(
        self, covariances: FloatArray, masses: FloatArray, target: FloatArray, pseudo: float
    ) -> FloatArray:
        """Covariances averaged with the target, which counts as so many samples of a kernel."""
        ...

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        """The nearest covariances, in likelihood, with no eigenvalue below the floor."""
        ...

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Covariances of x * scale, for scale (m,)."""
        ...

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        """The covariances as (K, m, m)."""
        ...

    def compact(self, covariances: FloatArray) -> FloatArray:
        """The covariances of this structure closest to (K, m, m) matrices."""
        ...


class Separate:
    """Shared by the structures in which every kernel has a covariance of its own."""

    keeps_apart = True

    def one_by_one(self, K: int, m: int) -> OneByOne | None:
        return None

    def common(self, phi: FloatArray) -> float:
        return 0.0

    def scatter(self, phi: FloatArray) -> FloatArray:
        return np.zeros(())

    def keep(self, which: NDArray[np.bool_], old: FloatArray, new: FloatArray) -> FloatArray:
        return np.where(along(which, new), old, new)

    def pool(self, covariances: FloatArray, masses: FloatArray, diagonal: bool) -> FloatArray:
        pooled = (along(masses, covariances) * covariances).sum(axis=0) / masses.sum()
        return np.broadcast_to(pooled, covariances.shape)

    def shrink(
        self, covariances: FloatArray, masses: FloatArray, target: FloatArray, pseudo: float
    ) -> FloatArray:
        share = along(masses / (masses + pseudo), covariances)
        return share * covariances + (1.0 - share) * target


def along(values: NDArray[Any], array: NDArray[Any]) -> NDArray[Any]:
    """One value per kernel, (K,), in a shape that broadcasts against (K, ...)."""
    return values.reshape(-1, *[1] * (array.ndim - 1))
