"""Covariance structures: the one seam between the engine and the shape of a kernel.

A Gaussian is an exponential family, so its log density is linear in a feature map phi(x):

    log N(x; mu, P) = theta . phi(x) + constant + common(x)

where ``common`` is the same for every kernel and so cancels in the responsibilities. A structure
says what phi is, how (mu, P) become theta, and how the sums of phi under the responsibilities
become (mu, P) again. The engine asks for nothing else and has no branch on the covariance type.

Everything here works in standardised coordinates, features first: X is (m, n), phi(X) is (d, n).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["STRUCTURES", "FloatArray", "Natural", "Structure", "Totals"]

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


class Floored(NamedTuple):
    """Covariances after the floor, and in how many directions each kernel (K,) had collapsed."""

    covariances: FloatArray
    n_collapsed: NDArray[np.intp]


class Structure(Protocol):
    """What the engine needs to know about a family of covariance matrices.

    m is the number of features of a block, K the number of kernels, d the number of rows of phi.
    """

    name: str
    #: Whether all features of a block must be divided by one and the same scale.
    common_scale: bool

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


def _clip_eigenvalues(covariance: FloatArray, floor: float) -> tuple[FloatArray, int]:
    """argmax over P >= floor of -log|P| - tr(P^-1 S), for one S (m, m): S with clipped eigenvalues.

    Because it maximises the expected log likelihood under the constraint, EM with this floor
    still never lowers the likelihood; adding a ridge would.
    """
    values, vectors = np.linalg.eigh(covariance)
    low = values < floor
    if not low.any():
        return covariance, 0
    lifted = covariance + (vectors[:, low] * (floor - values[low])) @ vectors[:, low].T
    return 0.5 * (lifted + lifted.T), int((values < min(floor, COLLAPSED)).sum())


def _floor_matrices(covariances: FloatArray, floor: float) -> Floored:
    """Clip the eigenvalues of a stack (K, m, m); factorise only, where no eigenvalue is low."""
    K, m, _ = covariances.shape
    n_collapsed = np.zeros(K, dtype=np.intp)
    try:
        np.linalg.cholesky(covariances - floor * np.eye(m))
    except np.linalg.LinAlgError:
        covariances = covariances.copy()
        for k in range(K):
            covariances[k], n_collapsed[k] = _clip_eigenvalues(covariances[k], floor)
    return Floored(covariances, n_collapsed)


def _factor(covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverse Cholesky factors (..., m, m) and log determinants (...,)."""
    cholesky = np.linalg.cholesky(covariances)
    log_det = 2.0 * np.log(np.diagonal(cholesky, axis1=-2, axis2=-1)).sum(axis=-1)
    return np.linalg.inv(cholesky), log_det


@cache
def _upper_triangle(m: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Row and column indices of the pairs a <= b, in the order of the rows of phi; read-only."""
    rows, columns = np.triu_indices(m)
    rows.flags.writeable = columns.flags.writeable = False
    return rows, columns


class _Separate:
    """Shared by the structures in which every kernel has a covariance of its own."""

    def common(self, phi: FloatArray) -> float:
        return 0.0

    def scatter(self, phi: FloatArray) -> FloatArray:
        return np.zeros(())

    def keep(self, which: NDArray[np.bool_], old: FloatArray, new: FloatArray) -> FloatArray:
        return np.where(which.reshape(-1, *[1] * (new.ndim - 1)), old, new)


class Full(_Separate):
    """Every kernel has its own covariance matrix (SKEM). phi = [x_a x_b for a <= b, x]."""

    name = "full"
    common_scale = False

    def n_rows(self, m: int) -> int:
        return m * (m + 1) // 2 + m

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K, m, m)

    def n_parameters(self, K: int, m: int) -> int:
        return K * m * (m + 1) // 2

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        m = means.shape[1]
        root, log_det = _factor(covariances)  # root: (K, m, m) with root' root = P^-1
        precision = root.swapaxes(1, 2) @ root
        linear = np.matmul(precision, means[:, :, None])[:, :, 0]
        a, b = _upper_triangle(m)
        # -1/2 x' P^-1 x: each off-diagonal pair stands once in phi and twice in the form.
        quadratic = precision[:, a, b] * np.where(a == b, -0.5, -1.0)
        constant = -0.5 * ((means * linear).sum(axis=1) + log_det + m * LOG_2PI)
        # The two terms' sizes at once: |mu|' |P^-1| |mu| and sd' |P^-1| sd, with sd^2 = diag(P).
        spread = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        sizes = np.stack([np.abs(means), spread], axis=2)  # (K, m, 2)
        lost = (sizes * (np.abs(precision) @ sizes)).sum(axis=1)  # (K, 2)
        theta = np.hstack([quadratic, linear])
        return Natural(theta, constant, np.empty((0, 0)), lost[:, 0], lost[:, 1])

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        m = len(X)
        row = 0
        for a in range(m):
            np.multiply(X[a:], X[a], out=out[row : row + m - a])
            row += m - a
        out[row : row + m] = X

    def estimate(self, natural: Natural, totals: Totals) -> tuple[FloatArray, FloatArray]:
        K, m = totals.origins.shape
        moments = totals.sums / totals.masses[:, None]
        shift = moments[:, -m:]
        a, b = _upper_triangle(m)
        packed = moments[:, :-m] - shift[:, a] * shift[:, b]
        covariances = np.empty((K, m, m))
        covariances[:, a, b] = packed
        covariances[:, b, a] = packed
        return totals.origins + shift, covariances  # Pulford (2022), eqs. (skemmu) and (skemP)

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        return _floor_matrices(covariances, floor)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[:, None] * scale

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances

    def compact(self, covariances: FloatArray) -> FloatArray:
        return covariances


class Tied:
    """One covariance matrix for all kernels (MDA). phi = z = L^-1 x with P = L L'.

    x' P^-1 x is the same for every kernel, so only the linear part tells them apart and a pass
    costs O(N K m). Whitening by the current P costs m^2 a sample and removes what collinear
    features would otherwise cancel away.
    """

    name = "tied"
    common_scale = False

    def n_rows(self, m: int) -> int:
        return m

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (m, m)

    def n_parameters(self, K: int, m: int) -> int:
        return m * (m + 1) // 2

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        K, m = means.shape
        root, log_det = _factor(covariances)
        theta = means @ root.T
        constant = -0.5 * ((theta * theta).sum(axis=1) + log_det + m * LOG_2PI)
        # z is as large as the clusters are far apart, and its squares cancel; float32 feels that
        # first. No origin of a kernel's own helps, because the scatter is common to all.
        return Natural(theta, constant, root, np.zeros(K), (theta * theta).sum(axis=1))

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        np.matmul(natural.whitener.astype(X.dtype, copy=False), X, out=out)

    def common(self, phi: FloatArray) -> FloatArray:
        return -0.5 * np.einsum("an,an->n", phi, phi)

    def scatter(self, phi: FloatArray) -> FloatArray:
        return phi @ phi.T

    def keep(self, which: NDArray[np.bool_], old: FloatArray, new: FloatArray) -> FloatArray:
        return new

    def estimate(self, natural: Natural, totals: Totals) -> tuple[FloatArray, FloatArray]:
        z = totals.sums / totals.masses[:, None]
        within = totals.scatter - totals.sums.T @ z
        colour = np.linalg.inv(natural.whitener)  # L
        covariance = colour @ (within / totals.total) @ colour.T
        return z @ colour.T, 0.5 * (covariance + covariance.T)  # Pulford (2022), eq. (mdacov)

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        covariance, n_collapsed = _floor_matrices(covariances[None], floor)
        return Floored(covariance[0], n_collapsed)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[:, None] * scale

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return np.broadcast_to(covariances, (K, m, m))

    def compact(self, covariances: FloatArray) -> FloatArray:
        return covariances.mean(axis=0)


class Diagonal(_Separate):
    """Every kernel has its own variances, no correlations (DGMM). phi = [x_a^2, x]."""

    name = "diag"
    common_scale = False

    def n_rows(self, m: int) -> int:
        return 2 * m

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K, m)

    def n_parameters(self, K: int, m: int) -> int:
        return K * m

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        m = means.shape[1]
        precision = 1.0 / covariances
        linear = precision * means
        cancellation = (means * linear).sum(axis=1)
        log_det = np.log(covariances).sum(axis=1)
        constant = -0.5 * (cancellation + log_det + m * LOG_2PI)
        theta = np.hstack([-0.5 * precision, linear])
        uncorrelated = np.zeros(len(means))
        return Natural(theta, constant, np.empty((0, 0)), cancellation, uncorrelated)

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        m = len(X)
        np.multiply(X, X, out=out[:m])
        out[m:] = X

    def estimate(self, natural: Natural, totals: Totals) -> tuple[FloatArray, FloatArray]:
        m = totals.origins.shape[1]
        moments = totals.sums / totals.masses[:, None]
        shift = moments[:, m:]
        return totals.origins + shift, moments[:, :m] - shift * shift

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        collapsed = covariances < min(floor, COLLAPSED)
        return Floored(np.maximum(covariances, floor), collapsed.sum(axis=1))

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale**2

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances[:, :, None] * np.eye(m)

    def compact(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=1, axis2=2).copy()


class Spherical(_Separate):
    """Every kernel has one variance (the PRBF of Titsias and Likas). phi = [x'x, x]."""

    name = "spherical"
    common_scale = True

    def n_rows(self, m: int) -> int:
        return m + 1

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K,)

    def n_parameters(self, K: int, m: int) -> int:
        return K

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        m = means.shape[1]
        precision = 1.0 / covariances[:, None]
        linear = precision * means
        cancellation = (means * linear).sum(axis=1)
        constant = -0.5 * (cancellation + m * (np.log(covariances) + LOG_2PI))
        theta = np.hstack([-0.5 * precision, linear])
        uncorrelated = np.zeros(len(means))
        return Natural(theta, constant, np.empty((0, 0)), cancellation, uncorrelated)

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        np.einsum("an,an->n", X, X, out=out[0])
        out[1:] = X

    def estimate(self, natural: Natural, totals: Totals) -> tuple[FloatArray, FloatArray]:
        m = totals.origins.shape[1]
        moments = totals.sums / totals.masses[:, None]
        shift = moments[:, 1:]
        return totals.origins + shift, (moments[:, 0] - (shift * shift).sum(axis=1)) / m

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        collapsed = covariances < min(floor, COLLAPSED)
        return Floored(np.maximum(covariances, floor), collapsed.astype(np.intp))

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[0] ** 2

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances[:, None, None] * np.eye(m)

    def compact(self, covariances: FloatArray) -> FloatArray:
        m = covariances.shape[1]
        return np.trace(covariances, axis1=1, axis2=2) / m


STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Tied(), Diagonal(), Spherical())}
