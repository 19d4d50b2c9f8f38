"""Structures without correlations: variances of each kernel, or one variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from pskem.structures._base import (
    COLLAPSED,
    LOG_2PI,
    Continuous,
    FloatArray,
    Floored,
    Natural,
    SecondMoments,
    Separable,
)
from pskem.structures._storage import Variance, Variances

__all__ = ["Diagonal", "Spherical"]

_NOTHING = np.zeros(())


def _uncorrelated(means: FloatArray, variances: FloatArray) -> Natural:
    """Natural parameters from means (K, m) and variances (K, m), or one of each kernel (K, 1)."""
    m = means.shape[1]
    alike = m // max(1, variances.shape[1])  # features of each variance
    precision = 1.0 / variances
    linear = precision * means
    cancellation = (means * linear).sum(axis=1)
    log_det = alike * np.log(variances).sum(axis=1)
    constant = -0.5 * (cancellation + log_det + m * LOG_2PI)
    theta = np.hstack([-0.5 * precision, linear])
    return Natural(theta, constant, None, cancellation, np.zeros(len(means)))


@dataclass(frozen=True)
class Diagonal(Continuous):
    """Every kernel has its own variances, no correlations (DGMM). phi = [x_a^2, x]."""

    name: ClassVar[str] = "diag"
    common_scale: ClassVar[bool] = False
    storage: ClassVar[Variances] = Variances()
    without_phi: ClassVar[None] = None
    separable: ClassVar[Separable] = storage

    def restrict(self, observed: NDArray[np.bool_]) -> Diagonal:
        return self

    def n_rows(self, m: int) -> int:
        return 2 * m

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        return _uncorrelated(means, covariances)

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        m = len(X)
        np.multiply(X, X, out=out[:m])
        out[m:] = X

    def products(self, counts: FloatArray, a: FloatArray, b: FloatArray) -> SecondMoments:
        return SecondMoments(counts[:, None] * a * b, _NOTHING)

    def spread(self, counts: FloatArray, covariances: FloatArray, m: int) -> SecondMoments:
        return SecondMoments(counts[:, None] * covariances, _NOTHING)

    def gather(self, counts: FloatArray, moments: SecondMoments, m: int) -> FloatArray:
        return moments.own / counts[:, None]

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        collapsed = covariances < min(floor, COLLAPSED)
        return Floored(np.maximum(covariances, floor), collapsed.sum(axis=1))

    def settle(self, means: FloatArray, masses: FloatArray, pseudo: float) -> FloatArray:
        return means


@dataclass(frozen=True)
class Spherical(Continuous):
    """Every kernel has one variance (the PRBF of Titsias and Likas). phi = [x'x, x]."""

    name: ClassVar[str] = "spherical"
    common_scale: ClassVar[bool] = True
    storage: ClassVar[Variance] = Variance()
    without_phi: ClassVar[None] = None
    separable: ClassVar[Separable] = storage

    def restrict(self, observed: NDArray[np.bool_]) -> Spherical:
        return self

    def n_rows(self, m: int) -> int:
        return m + 1

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        return _uncorrelated(means, covariances[:, None])

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        np.einsum("an,an->n", X, X, out=out[0])
        out[1:] = X

    def products(self, counts: FloatArray, a: FloatArray, b: FloatArray) -> SecondMoments:
        return SecondMoments((counts * (a * b).sum(axis=1))[:, None], _NOTHING)

    def spread(self, counts: FloatArray, covariances: FloatArray, m: int) -> SecondMoments:
        return SecondMoments((m * counts * covariances)[:, None], _NOTHING)

    def gather(self, counts: FloatArray, moments: SecondMoments, m: int) -> FloatArray:
        return moments.own[:, 0] / (max(1, m) * counts)

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        collapsed = covariances < min(floor, COLLAPSED)
        return Floored(np.maximum(covariances, floor), collapsed.astype(np.intp))

    def settle(self, means: FloatArray, masses: FloatArray, pseudo: float) -> FloatArray:
        return means
