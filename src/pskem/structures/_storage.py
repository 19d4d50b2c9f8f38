"""How covariances are kept: a matrix or variances for each kernel, or one matrix for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.structures._base import FloatArray

__all__ = ["CommonMatrix", "Matrices", "Variance", "Variances"]


class Matrices:
    """A matrix for each kernel: (K, m, m)."""

    per_kernel = True

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K, m, m)

    def n_parameters(self, K: int, m: int) -> int:
        return K * m * (m + 1) // 2

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances

    def compact(self, covariances: FloatArray) -> FloatArray:
        return covariances

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[:, None] * scale

    def select(self, covariances: FloatArray, features: NDArray[Any]) -> FloatArray:
        return covariances[:, features][:, :, features]


class CommonMatrix:
    """One matrix for all kernels: (m, m)."""

    per_kernel = False

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (m, m)

    def n_parameters(self, K: int, m: int) -> int:
        return m * (m + 1) // 2

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return np.broadcast_to(covariances, (K, m, m))

    def compact(self, covariances: FloatArray) -> FloatArray:
        return covariances.mean(axis=0)

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[:, None] * scale

    def select(self, covariances: FloatArray, features: NDArray[Any]) -> FloatArray:
        return covariances[features][:, features]


class Variances:
    """The variances of each kernel: (K, m)."""

    per_kernel = True

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K, m)

    def n_parameters(self, K: int, m: int) -> int:
        return K * m

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances[:, :, None] * np.eye(m)

    def compact(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=1, axis2=2).copy()

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale**2

    def select(self, covariances: FloatArray, features: NDArray[Any]) -> FloatArray:
        return covariances[:, features]

    def variances(self, covariances: FloatArray, m: int) -> FloatArray:
        return covariances

    def from_variances(self, variances: FloatArray) -> FloatArray:
        return variances


class Variance:
    """One variance for each kernel: (K,)."""

    per_kernel = True

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K,)

    def n_parameters(self, K: int, m: int) -> int:
        return K

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances[:, None, None] * np.eye(m)

    def compact(self, covariances: FloatArray) -> FloatArray:
        return np.trace(covariances, axis1=1, axis2=2) / covariances.shape[1]

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale[0] ** 2

    def select(self, covariances: FloatArray, features: NDArray[Any]) -> FloatArray:
        return covariances

    def variances(self, covariances: FloatArray, m: int) -> FloatArray:
        return np.broadcast_to(covariances[:, None], (len(covariances), m))

    def from_variances(self, variances: FloatArray) -> FloatArray:
        return variances.mean(axis=1)
