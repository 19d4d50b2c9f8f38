"""Reference computations that share no code with the library, and EM alone."""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp

from pskem import EM_ALONE, SharedKernelClassifier

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")


def plain(**parameters):
    """A classifier that is trained by EM alone, unless the parameters ask for more."""
    return SharedKernelClassifier(**{"n_components": 20, **EM_ALONE, **parameters})


def reference_log_densities(X, means, covariances):
    """log N(x_n; mu_k, P_k), (N, K), by a Cholesky factor and a triangular solve per kernel."""
    columns = []
    for mean, covariance in zip(means, covariances, strict=True):
        factor = cholesky(covariance, lower=True)
        z = solve_triangular(factor, (X - mean).T, lower=True)
        log_det = 2.0 * np.log(np.diagonal(factor)).sum()
        columns.append(-0.5 * ((z * z).sum(axis=0) + log_det + len(mean) * np.log(2.0 * np.pi)))
    return np.array(columns).T


def reference_log_likelihood(X, weights, means, covariances):
    """log sum_k pi_kj N(x_n; mu_k, P_k), (N, L)."""
    log_densities = reference_log_densities(X, means, covariances)
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights)
    return logsumexp(log_densities[:, None, :] + log_weights, axis=2)


def random_covariances(rng, K, m, low=0.3, high=2.0):
    """K random positive definite matrices with eigenvalues between low and high."""
    matrices = []
    for _ in range(K):
        basis, _ = np.linalg.qr(rng.standard_normal((m, m)))
        matrices.append((basis * rng.uniform(low, high, m)) @ basis.T)
    return np.array(matrices)


def of_type(covariances, covariance_type):
    """(K, m, m) covariances in the shape of a type, by its plain definition."""
    m = covariances.shape[1]
    return {
        "full": covariances,
        "tied": covariances.mean(axis=0),
        "diag": np.array([np.diag(P) for P in covariances]),
        "spherical": np.array([np.trace(P) / m for P in covariances]),
    }[covariance_type]


def distance(one, other):
    """The largest difference between weights, means and covariances of two fitted estimators.

    It is infinite if there is a NaN among them.
    """
    parts = zip(one.blocks_, other.blocks_, strict=True)
    names = ("weights", "means", "covariances")
    gaps = (getattr(a, name) - getattr(b, name) for a, b in parts for name in names)
    farthest = np.max([np.abs(gap).max(initial=0.0) for gap in gaps])
    return np.inf if np.isnan(farthest) else float(farthest)
