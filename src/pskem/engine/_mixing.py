"""From kernel log densities to class log likelihoods and posteriors, always in logs."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from pskem.engine._kernels import Prepared, kernel_log_densities
from pskem.structures import FloatArray, Structure

__all__ = ["block_log_likelihood", "log_posterior", "mix"]


def mix(log_densities: FloatArray, weights: FloatArray) -> FloatArray:
    """log sum_k weights[j, k] exp(log_densities[k, n]): (K, n), (L, K) -> (L, n).

    One exponential per kernel and sample serves all classes. Where the kernels of a class are so
    far behind the best kernel that its sum underflows, it is formed again on its own.
    """
    peak = log_densities.max(axis=0)
    terms = log_densities - peak
    np.maximum(terms, -708.0, out=terms)  # below, exp is slow and denormal
    np.exp(terms, out=terms)
    sums = weights @ terms
    # Below this, terms that matter for a class may have been lost (all are at most 1 here).
    lost = sums < 1e-200
    with np.errstate(divide="ignore"):
        result = np.log(sums) + peak
        for j in np.flatnonzero(lost.any(axis=1)):
            n = np.flatnonzero(lost[j])
            log_weights = np.log(weights[j])[:, None]
            result[j, n] = logsumexp(log_densities[:, n] + log_weights, axis=0)
    return result


def block_log_likelihood(structure: Structure, prepared: Prepared, X: FloatArray) -> FloatArray:
    """log q_rj(x) of one block, (L, n), for X (m, n) in the coordinates of the kernels."""
    log_densities = kernel_log_densities(structure, prepared, X)
    return mix(log_densities, prepared.kernels.weights)


def log_posterior(joint: FloatArray) -> FloatArray:
    """log p(c|x), (N, L), from log p(c, x), (N, L)."""
    # Far from all kernels the joint is huge; the differences between classes are not.
    relative = joint - joint.max(axis=1, keepdims=True)
    return relative - logsumexp(relative, axis=1, keepdims=True)
