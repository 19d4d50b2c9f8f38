"""Structures with covariance matrices: one per kernel, or one for all."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri

from pskem.structures._base import (
    COLLAPSED,
    LOG_2PI,
    Continuous,
    FloatArray,
    Floored,
    Natural,
    SecondMoments,
    WithoutPhi,
)
from pskem.structures._storage import CommonMatrix, Matrices

__all__ = ["Full", "Tied", "invert_lower", "upper_triangle"]

#: Features below which many matrices are inverted in one call.
FEW_FEATURES = 16

_NOTHING = np.zeros(())


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


def invert_lower(factors: FloatArray) -> FloatArray:
    """Inverses of lower triangular matrices (..., m, m).

    Four times as fast as for any matrix, but for many small ones, which go in one call.
    """
    m = factors.shape[-1]
    if factors.ndim > 2 and m < FEW_FEATURES:
        return np.linalg.inv(factors)
    inverses = np.empty_like(factors, dtype=np.float64)
    for factor, inverse in zip(factors.reshape(-1, m, m), inverses.reshape(-1, m, m), strict=True):
        inverse[:] = dtrtri(factor.T, lower=0)[0].T  # whose rows LAPACK takes for columns
    return inverses


def _factor(covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Inverse Cholesky factors (..., m, m) and log determinants (...,)."""
    cholesky = np.linalg.cholesky(covariances)
    log_det = 2.0 * np.log(np.diagonal(cholesky, axis1=-2, axis2=-1)).sum(axis=-1)
    return invert_lower(cholesky), log_det


@cache
def upper_triangle(m: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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
        a, b = upper_triangle(m)
        A = np.zeros((m, m), dtype=theta.dtype)
        for row, values in zip(theta, out, strict=True):
            A[a, b] = row[:-m]
            product = A @ X
            product += row[-m:, None]
            np.einsum("an,an->n", product, X, out=values)

    def collect(self, W: FloatArray, X: FloatArray) -> FloatArray:
        m = len(X)
        a, b = upper_triangle(m)
        result = np.empty((len(W), len(a) + m), dtype=X.dtype)
        for w, row in zip(W, result, strict=True):
            weighted = w * X
            row[:-m] = (weighted @ X.T)[a, b]
            row[-m:] = weighted.sum(axis=1)
        return result


@dataclass(frozen=True)
class Full(Continuous):
    """Every kernel has its own covariance matrix (SKEM). phi = [x_a x_b for a <= b, x]."""

    name: ClassVar[str] = "full"
    common_scale: ClassVar[bool] = False
    storage: ClassVar[Matrices] = Matrices()
    without_phi: ClassVar[WithoutPhi] = QuadraticForms()
    separable: ClassVar[None] = None

    def restrict(self, observed: NDArray[np.bool_]) -> Full:
        return self

    def n_rows(self, m: int) -> int:
        return m * (m + 1) // 2 + m

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        m = means.shape[1]
        root, log_det = _factor(covariances)  # root: (K, m, m) with root' root = P^-1
        precision = root.swapaxes(1, 2) @ root
        linear = np.matmul(precision, means[:, :, None])[:, :, 0]
        a, b = upper_triangle(m)
        # -1/2 x' P^-1 x: each off-diagonal pair stands once in phi and twice in the form.
        quadratic = precision[:, a, b] * np.where(a == b, -0.5, -1.0)
        constant = -0.5 * ((means * linear).sum(axis=1) + log_det + m * LOG_2PI)
        # The two terms' sizes at once: |mu|' |P^-1| |mu| and sd' |P^-1| sd, with sd^2 = diag(P).
        spread = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        sizes = np.stack([np.abs(means), spread], axis=2)  # (K, m, 2)
        lost = (sizes * (np.abs(precision) @ sizes)).sum(axis=1)  # (K, 2)
        theta = np.hstack([quadratic, linear])
        return Natural(theta, constant, None, lost[:, 0], lost[:, 1])

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        m = len(X)
        row = 0
        for a in range(m):
            np.multiply(X[a:], X[a], out=out[row : row + m - a])
            row += m - a
        out[row : row + m] = X

    def products(self, counts: FloatArray, a: FloatArray, b: FloatArray) -> SecondMoments:
        i, j = upper_triangle(a.shape[1])
        own = a[:, i] * b[:, j]
        if a is not b:
            own = 0.5 * (own + a[:, j] * b[:, i])
        return SecondMoments(counts[:, None] * own, _NOTHING)

    def spread(self, counts: FloatArray, covariances: FloatArray, m: int) -> SecondMoments:
        a, b = upper_triangle(m)
        return SecondMoments(counts[:, None] * covariances[:, a, b], _NOTHING)

    def gather(self, counts: FloatArray, moments: SecondMoments, m: int) -> FloatArray:
        packed = moments.own / counts[:, None]
        a, b = upper_triangle(m)
        covariances = np.empty((len(packed), m, m))
        covariances[:, a, b] = packed
        covariances[:, b, a] = packed
        return covariances

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        return _floor_matrices(covariances, floor)

    def settle(self, means: FloatArray, masses: FloatArray, pseudo: float) -> FloatArray:
        return means


@dataclass(frozen=True)
class Tied(Continuous):
    """One covariance matrix for all kernels (MDA). phi = z = L^-1 x with P = L L'.

    x' P^-1 x is the same for every kernel, so only the linear part tells them apart and a pass
    costs O(N K m). Whitening by the current P costs m^2 a sample and removes what collinear
    features would otherwise cancel away.
    """

    name: ClassVar[str] = "tied"
    common_scale: ClassVar[bool] = False
    storage: ClassVar[CommonMatrix] = CommonMatrix()
    without_phi: ClassVar[None] = None
    separable: ClassVar[None] = None

    def restrict(self, observed: NDArray[np.bool_]) -> Tied:
        return self

    def n_rows(self, m: int) -> int:
        return m

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        K, m = means.shape
        root, log_det = _factor(covariances)
        theta = means @ root.T
        constant = -0.5 * ((theta * theta).sum(axis=1) + log_det + m * LOG_2PI)
        # z is as large as the clusters are far apart, and its squares cancel; float32 feels that
        # first. No origin of a kernel's own helps, because the scatter is common to all.
        return Natural(theta, constant, root, np.zeros(K), (theta * theta).sum(axis=1))

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        assert natural.whitener is not None
        np.matmul(natural.whitener.astype(X.dtype, copy=False), X, out=out)

    def products(self, counts: FloatArray, a: FloatArray, b: FloatArray) -> SecondMoments:
        common = (counts * a.T) @ b
        return SecondMoments(np.empty((len(a), 0)), 0.5 * (common + common.T))

    def spread(self, counts: FloatArray, covariances: FloatArray, m: int) -> SecondMoments:
        return SecondMoments(np.empty((len(counts), 0)), counts.sum() * covariances)

    def gather(self, counts: FloatArray, moments: SecondMoments, m: int) -> FloatArray:
        return moments.common / counts.sum()

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        covariance, n_collapsed = _floor_matrices(covariances[None], floor)
        return Floored(covariance[0], n_collapsed)

    def settle(self, means: FloatArray, masses: FloatArray, pseudo: float) -> FloatArray:
        return means
