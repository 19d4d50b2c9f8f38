"""Exponentials of log terms, always relative to the largest of them."""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from pskem.structures import FloatArray

__all__ = ["exp_in_place", "mix", "softmax_in_place"]

#: exp of anything below is zero or denormal, and very slow.
LOWEST_EXPONENT = {np.dtype(np.float64): -708.0, np.dtype(np.float32): -87.0}


def exp_in_place(values: FloatArray) -> None:
    """exp, with what would be denormal set to zero (and not computed: it is 5 times slower).

    The array must be contiguous.
    """
    flat = values.view()
    flat.shape = (-1,)  # fails where reshape would copy
    low = flat < LOWEST_EXPONENT[values.dtype]
    n_low = np.count_nonzero(low)
    if n_low == 0:
        np.exp(flat, out=flat)
    elif 2 * n_low < flat.size:
        dead = np.flatnonzero(low)
        flat[dead] = 0.0
        np.exp(flat, out=flat)
        flat[dead] = 0.0
    else:
        high = np.flatnonzero(~low)
        powers = np.exp(flat[high])
        flat.fill(0.0)
        flat[high] = powers


def softmax_in_place(values: FloatArray) -> FloatArray:
    """Turn log terms (K, n) into responsibilities; return the log-sum-exps (n,)."""
    peak = values.max(axis=0)
    values -= peak
    exp_in_place(values)
    total = values.sum(axis=0)
    values *= 1.0 / total
    return peak + np.log(total)


def mix(log_densities: FloatArray, weights: FloatArray) -> FloatArray:
    """log sum_k weights[j, k] exp(log_densities[k, n]): (K, n), (L, K) -> (L, n).

    One exponential per kernel and sample serves all classes. Where the kernels of a class are so
    far behind the best kernel that its sum underflows, it is formed again on its own.
    """
    peak = log_densities.max(axis=0)
    terms = log_densities - peak
    np.maximum(terms, LOWEST_EXPONENT[np.dtype(np.float64)], out=terms)
    np.exp(terms, out=terms)
    sums = weights @ terms
    # Below this, terms that matter for a class may have been lost (all are at most 1 here).
    lost = sums < 1e-200
    with np.errstate(divide="ignore"):
        result = np.log(sums) + peak
        for j in np.flatnonzero(lost.any(axis=1) & weights.any(axis=1)):
            n, own = np.flatnonzero(lost[j]), np.flatnonzero(weights[j])
            log_weights = np.log(weights[j, own])[:, None]
            result[j, n] = logsumexp(log_densities[np.ix_(own, n)] + log_weights, axis=0)
    return result
