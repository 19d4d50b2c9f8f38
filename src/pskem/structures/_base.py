"""Families of kernels: the one seam between the engine and the shape of a covariance.

A Gaussian is an exponential family, so its log density is linear in a feature map phi(x):

    log N(x; mu, P) = theta . phi(x) + constant + common(x)

where ``common`` is the same for every kernel and so cancels in the responsibilities. phi(x) ends in
x itself; before it stand the products of features that the structure's second moments are sums of.
A structure says which products these are, how (mu, P) become theta, and how second moments become
P. A storage says how the covariances are kept. The engine has no branch on the covariance type.

Everything here works in standardised coordinates, features first: X is (m, n), phi(X) is (d, n).
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLLAPSED",
    "LOG_2PI",
    "Conditional",
    "Continuous",
    "FloatArray",
    "Floored",
    "Gaussians",
    "Natural",
    "SecondMoments",
    "Separable",
    "Storage",
    "Structure",
    "WithoutPhi",
    "conditional",
    "marginal",
    "pool",
    "replace_kernels",
    "shrink",
]

FloatArray = NDArray[np.floating[Any]]

LOG_2PI = float(np.log(2.0 * np.pi))

#: A kernel whose variance in some direction falls below this, relative to the data's, or below a
#: floor that is smaller still, has collapsed onto fewer dimensions than it has.
COLLAPSED = 1e-6


class Gaussians(NamedTuple):
    """Means (K, m) and covariances in the structure's shape."""

    means: FloatArray
    covariances: FloatArray


class Natural(NamedTuple):
    """Kernels in the form that the E-step multiplies with.

    theta : (K, d), the coefficients of phi
    constant : (K,), the rest of the log density, without the weights
    whitener : (m, m), lower triangular, if phi is of features that the common covariance whitens,
        else None
    cancellation : (K,), the size of the terms that cancel near the kernel's mean because it lies
        off the origin. Times the machine epsilon this is an absolute error of the product form.
    conditioning : (K,), the same because features are correlated; no choice of origin helps.
    """

    theta: FloatArray
    constant: FloatArray
    whitener: FloatArray | None
    cancellation: FloatArray
    conditioning: FloatArray


class SecondMoments(NamedTuple):
    """Sums of products of features: of each kernel, (K, d - m), and common to all kernels.

    A structure has one of the two; the other is a single zero, or has no columns.
    """

    own: FloatArray
    common: FloatArray


class Conditional(NamedTuple):
    """The q missing features given the p observed ones, for every kernel.

    They are Gaussian with mean ``slope @ x_observed + offset``: slope (K, q, p), offset (K, q),
    covariances (K, q, q).
    """

    slope: FloatArray
    offset: FloatArray
    covariances: FloatArray


class Floored(NamedTuple):
    """Covariances after the floor, and in how many directions each kernel (K,) had collapsed."""

    covariances: FloatArray
    n_collapsed: NDArray[np.intp]


class WithoutPhi(Protocol):
    """Products with phi, without phi: kernel by kernel, for few kernels in many features."""

    def evaluate(self, theta: FloatArray, X: FloatArray, out: FloatArray) -> None:
        """Write theta @ phi(X), (K, n), for theta (K, d) and X (m, n)."""
        ...

    def collect(self, W: FloatArray, X: FloatArray) -> FloatArray:
        """W @ phi(X)', (K, d), for W (K, n) and X (m, n)."""
        ...


class Separable(Protocol):
    """Covariances of features that are uncorrelated within a kernel, as variances."""

    def variances(self, covariances: FloatArray, m: int) -> FloatArray:
        """The variances of m features, (K, m)."""
        ...

    def from_variances(self, variances: FloatArray) -> FloatArray:
        """The covariances closest to those with these variances, (K, m)."""
        ...


class Storage(Protocol):
    """How the covariances of K kernels in m features are kept in an array."""

    #: Whether every kernel has a covariance of its own, first in the shape.
    per_kernel: bool

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        """Shape of the array."""
        ...

    def n_parameters(self, K: int, m: int) -> int:
        """Free parameters in it."""
        ...

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        """The covariances as (K, m, m)."""
        ...

    def compact(self, covariances: FloatArray) -> FloatArray:
        """The covariances of this kind closest to (K, m, m) matrices."""
        ...

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        """Covariances of x * scale, for scale (m,)."""
        ...

    def select(self, covariances: FloatArray, features: NDArray[Any]) -> FloatArray:
        """Covariances of some of the features."""
        ...


class Continuous:
    """What families of Gaussian kernels have in common."""

    storage: ClassVar[Any]
    standardised: ClassVar[bool] = True
    gap: ClassVar[float] = np.nan
    most_kernels: ClassVar[float] = np.inf

    def absent(self, X: FloatArray) -> NDArray[np.bool_]:
        return np.isnan(X)

    def draw(
        self, gaussians: Gaussians, kernels: NDArray[np.intp], rng: np.random.Generator
    ) -> FloatArray:
        means, covariances = gaussians
        factors = np.linalg.cholesky(self.storage.dense(covariances, *means.shape))
        noise = rng.standard_normal((len(kernels), means.shape[1]))
        drawn: FloatArray = means[kernels] + np.einsum("nab,nb->na", factors[kernels], noise)
        return drawn


class Structure(Protocol):
    """The algebra of a family of kernels.

    m is the number of features of a block, K the number of kernels, d the number of rows of phi.
    """

    @property
    def name(self) -> str:
        """What ``covariance_type`` calls it."""
        ...

    @property
    def common_scale(self) -> bool:
        """Whether all features of a block must be divided by one and the same scale."""
        ...

    @property
    def standardised(self) -> bool:
        """Whether features are shifted and scaled first."""
        ...

    @property
    def storage(self) -> Storage:
        """How its covariances are kept."""
        ...

    @property
    def without_phi(self) -> WithoutPhi | None:
        """Products without phi, where the structure has them."""
        ...

    @property
    def separable(self) -> Separable | None:
        """Covariances as variances, where features are uncorrelated within a kernel."""
        ...

    @property
    def most_kernels(self) -> float:
        """Kernels of a class beyond which more of them make no other densities possible."""
        ...

    @property
    def gap(self) -> float:
        """What stands for a feature that is missing."""
        ...

    def absent(self, X: FloatArray) -> NDArray[np.bool_]:
        """Where features of samples (n, m) are missing."""
        ...

    def draw(
        self, gaussians: Gaussians, kernels: NDArray[np.intp], rng: np.random.Generator
    ) -> FloatArray:
        """A sample of each of these kernels, (n, m)."""
        ...

    def restrict(self, observed: NDArray[np.bool_]) -> Structure:
        """The family of kernels of some features, (m,)."""
        ...

    def n_rows(self, m: int) -> int:
        """d: the rows of phi."""
        ...

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        """Natural parameters of kernels with these means (K, m) and covariances."""
        ...

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        """Write phi(X), (d, n), for X (m, n)."""
        ...

    def products(self, counts: FloatArray, a: FloatArray, b: FloatArray) -> SecondMoments:
        """Sums of the products of vectors a and b, (K, m) each, each pair so many times, (K,)."""
        ...

    def spread(self, counts: FloatArray, covariances: FloatArray, m: int) -> SecondMoments:
        """Sums that so many samples (K,) about the means of kernels would have on average."""
        ...

    def gather(self, counts: FloatArray, moments: SecondMoments, m: int) -> FloatArray:
        """The covariances that would have this spread."""
        ...

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        """The nearest covariances, in likelihood, with no eigenvalue below the floor."""
        ...

    def settle(self, means: FloatArray, masses: FloatArray, pseudo: float) -> FloatArray:
        """Means (K, m) that kernels may have, from those of samples that count so much, (K,).

        ``pseudo`` is how many samples of a kernel are like those of all.
        """
        ...


def marginal(
    structure: Structure, kernels: Gaussians, observed: NDArray[np.bool_]
) -> tuple[Structure, Gaussians]:
    """The kernels of the observed features (m,) alone, and their structure."""
    covariances = structure.storage.select(kernels.covariances, observed)
    return structure.restrict(observed), Gaussians(kernels.means[:, observed], covariances)


def conditional(
    structure: Structure, kernels: Gaussians, observed: NDArray[np.bool_]
) -> Conditional:
    """What the observed features (m,) say of the others."""
    means = kernels.means
    matrices = structure.storage.dense(kernels.covariances, *means.shape)
    seen, missing = np.flatnonzero(observed), np.flatnonzero(~observed)
    cross = matrices[:, missing[:, None], seen]  # P_QO, (K, q, p)
    slope = np.linalg.solve(matrices[:, seen[:, None], seen], cross.swapaxes(1, 2)).swapaxes(1, 2)
    offset = means[:, missing] - np.einsum("kqp,kp->kq", slope, means[:, seen])
    left = matrices[:, missing[:, None], missing] - slope @ cross.swapaxes(1, 2)
    return Conditional(slope, offset, 0.5 * (left + left.swapaxes(1, 2)))


def _along(values: NDArray[Any], array: NDArray[Any]) -> NDArray[Any]:
    """One value per kernel, (K,), in a shape that broadcasts against (K, ...)."""
    return values.reshape(-1, *[1] * (array.ndim - 1))


def pool(
    structure: Structure, covariances: FloatArray, masses: FloatArray, diagonal: bool
) -> FloatArray:
    """The covariance within all kernels together, or its diagonal, as covariances of each."""
    mean = covariances
    if structure.storage.per_kernel:
        mean = (_along(masses, covariances) * covariances).sum(axis=0) / masses.sum()
    if diagonal and mean.ndim == 2:  # a matrix; variances have no correlations
        mean = mean * np.eye(len(mean))
    return np.broadcast_to(mean, covariances.shape)


def shrink(
    structure: Structure,
    covariances: FloatArray,
    masses: FloatArray,
    target: FloatArray,
    pseudo: float,
) -> FloatArray:
    """Covariances averaged with the target, which counts as so many samples of a kernel."""
    if not structure.storage.per_kernel:
        masses = masses.sum()
    share = _along(masses / (masses + pseudo), covariances)
    return share * covariances + (1.0 - share) * target


def replace_kernels(
    structure: Structure, which: NDArray[np.bool_], by: Gaussians, kernels: Gaussians
) -> Gaussians:
    """Kernels, some of which (K,) are those of another set; a common covariance stays."""
    means = np.where(which[:, None], by.means, kernels.means)
    covariances = kernels.covariances
    if structure.storage.per_kernel:
        covariances = np.where(_along(which, covariances), by.covariances, covariances)
    return Gaussians(means, covariances)
