"""Structures with covariance matrices: one per kernel, or one for all."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from pskem.structures._base import (
    COLLAPSED,
    LOG_2PI,
    Expected,
    FloatArray,
    Floored,
    Gaussians,
    Natural,
    OneByOne,
    Separate,
    Totals,
)

__all__ = ["Full", "Tied"]


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


class QuadraticForms:
    """theta . phi(x) as x'Ax + b'x, with the matrices A of the kernels taken out of theta.

    phi has m^2 / 2 rows, which must be written and read for every sample; two products of m x m
    matrices with the samples are faster, as long as there are few kernels to share phi.
    """

    def evaluate(self, theta: FloatArray, X: FloatArray, out: FloatArray) -> None:
        m = len(X)
        a, b = _upper_triangle(m)
        A = np.zeros((m, m), dtype=theta.dtype)
        for row, values in zip(theta, out, strict=True):
            A[a, b] = row[:-m]
            product = A @ X
            product += row[-m:, None]
            np.einsum("an,an->n", product, X, out=values)

    def collect(self, W: FloatArray, X: FloatArray) -> FloatArray:
        m = len(X)
        a, b = _upper_triangle(m)
        result = np.empty((len(W), len(a) + m), dtype=X.dtype)
        for w, row in zip(W, result, strict=True):
            weighted = w * X
            row[:-m] = (weighted @ X.T)[a, b]
            row[-m:] = weighted.sum(axis=1)
        return result


#: Features from which on, and kernels up to which, forms are evaluated one by one.
MANY_FEATURES = 48
FEW_KERNELS = 8
_FORMS = QuadraticForms()


class Full(Separate):
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

    def one_by_one(self, K: int, m: int) -> OneByOne | None:
        return _FORMS if m >= MANY_FEATURES and K <= FEW_KERNELS else None

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

    def expect(self, natural: Natural, kernels: Gaussians, counts: FloatArray) -> Expected:
        means, covariances = kernels
        a, b = _upper_triangle(means.shape[1])
        second = covariances[:, a, b] + means[:, a] * means[:, b]
        return Expected(counts[:, None] * np.hstack([second, means]), np.zeros(()))

    def pool(self, covariances: FloatArray, masses: FloatArray, diagonal: bool) -> FloatArray:
        pooled = super().pool(covariances, masses, diagonal)
        return pooled * np.eye(pooled.shape[1]) if diagonal else pooled

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
    keeps_apart = False

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

    def one_by_one(self, K: int, m: int) -> OneByOne | None:
        return None

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

    def expect(self, natural: Natural, kernels: Gaussians, counts: FloatArray) -> Expected:
        z = kernels.means @ natural.whitener.T
        spread = natural.whitener @ kernels.covariances @ natural.whitener.T
        return Expected(counts[:, None] * z, counts.sum() * spread + (counts * z.T) @ z)

    def pool(self, covariances: FloatArray, masses: FloatArray, diagonal: bool) -> FloatArray:
        return np.diag(np.diag(covariances)) if diagonal else covariances

    def shrink(
        self, covariances: FloatArray, masses: FloatArray, target: FloatArray, pseudo: float
    ) -> FloatArray:
        return (masses.sum() * covariances + pseudo * target) / (masses.sum() + pseudo)

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        covariance, n_collapsed = _floor_matrices(covariances[None], floor)
        return Floored(covariance[0], n_collapsed)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[:, None] * scale

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return np.broadcast_to(covariances, (K, m, m))

    def compact(self, covariances: FloatArray) -> FloatArray:
        return covariances.mean(axis=0)
