"""What every trainer is given: planted data, one start, and an independent likelihood."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.special import logsumexp

__all__ = ["SIZES", "Mixture", "Problem", "Size", "mean_log_likelihood", "plant"]

FloatArray = NDArray[np.floating]

#: Typical distance between the means of two planted kernels, in standard deviations of a kernel:
#: neighbours overlap and no responsibility is exactly 0 or 1.
SEPARATION = 4.0
SEED = 20220


class Size(NamedTuple):
    """N samples of m features, K kernels."""

    N: int
    m: int
    K: int

    @property
    def D(self) -> int:
        """Sufficient statistics of a full Gaussian: products, features and one constant."""
        return self.m * (self.m + 1) // 2 + self.m + 1

    @property
    def flops(self) -> int:
        """Floating-point operations of the two matrix products of a pass."""
        return 2 * (2 * self.N * self.K * self.D)


#: The sizes, and how many times faster than GaussianMixture a float64 pass is to be.
SIZES = {
    Size(30_000, 13, 60): 15.0,
    Size(60_000, 15, 100): 18.0,
    Size(50_000, 24, 80): 9.0,
    Size(3_430, 7, 14): 6.0,
    Size(30_000, 36, 40): 5.0,
}


class Mixture(NamedTuple):
    """Weights (K,), means (K, m) and full covariances (K, m, m)."""

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    def astype(self, dtype: str) -> Mixture:
        return Mixture(*(part.astype(dtype) for part in self))


class Problem(NamedTuple):
    """Samples X (N, m) in float64 and the mixture from which all trainers start."""

    X: FloatArray
    start: Mixture


def plant(size: Size, seed: int = SEED) -> Problem:
    """Samples of a random mixture of overlapping Gaussians, and a start for EM.

    The start has K of the samples as means, the covariance of all samples for every kernel, and
    equal weights.
    """
    N, m, K = size
    rng = np.random.default_rng([seed, *size])
    weights = rng.dirichlet(np.full(K, 5.0))
    means = rng.standard_normal((K, m)) * SEPARATION / np.sqrt(2.0 * m)
    axes, _ = np.linalg.qr(rng.standard_normal((K, m, m)))
    roots = axes * np.sqrt(rng.uniform(0.5, 1.5, (K, 1, m)))  # (K, m, m), root root' = P
    labels = rng.choice(K, N, p=weights)
    X = rng.standard_normal((N, m))
    for k in range(K):
        rows = labels == k
        X[rows] = means[k] + X[rows] @ roots[k].T
    start = Mixture(
        np.full(K, 1.0 / K),
        X[rng.choice(N, K, replace=False)],
        np.repeat(np.cov(X.T, bias=True)[None], K, axis=0),
    )
    return Problem(X, start)


def mean_log_likelihood(X: FloatArray, mixture: Mixture) -> float:
    """Mean of log p(x) over the rows of X (N, m): kernel by kernel, through Cholesky factors."""
    m = X.shape[1]
    terms = np.empty((len(mixture.means), len(X)))  # (K, N)
    for row, weight, mean, covariance in zip(terms, *mixture.astype("float64"), strict=True):
        factor = np.linalg.cholesky(covariance)
        z = solve_triangular(factor, (X - mean).T, lower=True)  # (m, N)
        log_det = 2.0 * np.log(np.diagonal(factor)).sum()
        row[:] = np.log(weight) - 0.5 * ((z * z).sum(axis=0) + log_det + m * np.log(2.0 * np.pi))
    return float(logsumexp(terms, axis=0).mean())
