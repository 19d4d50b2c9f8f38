"""Reference computations that share no code with the library, and the paper's plain training."""

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import logsumexp

from pskem import SharedKernelClassifier

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")

#: EM alone, as in the paper: nothing is held out, shrunk, put elsewhere, weighed or refined.
PLAIN = {
    "n_components": 20,
    "init": "k-means++",
    "own_mass": 0.9,
    "shrinkage": 0.0,
    "reseed": False,
    "block_weights": None,
    "discriminative_iter": 0,
    "early_stopping": False,
}


def plain(**parameters):
    """A classifier that is trained by EM alone, unless the parameters ask for more."""
    return SharedKernelClassifier(**{**PLAIN, **parameters})


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
