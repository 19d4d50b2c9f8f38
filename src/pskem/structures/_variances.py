"""Structures without correlations: variances of each kernel, or one variance."""

from __future__ import annotations

import numpy as np

from pskem.structures._base import (
    COLLAPSED,
    LOG_2PI,
    Expected,
    FloatArray,
    Floored,
    Gaussians,
    Natural,
    Separate,
    Totals,
)

__all__ = ["Diagonal", "Spherical"]


class Diagonal(Separate):
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

    def expect(self, natural: Natural, kernels: Gaussians, counts: FloatArray) -> Expected:
        means, variances = kernels
        return Expected(
            counts[:, None] * np.hstack([variances + means * means, means]), np.zeros(())
        )

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        collapsed = covariances < min(floor, COLLAPSED)
        return Floored(np.maximum(covariances, floor), collapsed.sum(axis=1))

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances * scale**2

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return covariances[:, :, None] * np.eye(m)

    def compact(self, covariances: FloatArray) -> FloatArray:
        return np.diagonal(covariances, axis1=1, axis2=2).copy()


class Spherical(Separate):
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

    def expect(self, natural: Natural, kernels: Gaussians, counts: FloatArray) -> Expected:
        means, variances = kernels
        squares = means.shape[1] * variances + (means * means).sum(axis=1)
        return Expected(counts[:, None] * np.column_stack([squares, means]), np.zeros(()))

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
