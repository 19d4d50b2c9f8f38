"""Probabilities that can be believed: block weights, a temperature and shares, fitted together.

A kernel model is overconfident far from its kernels: the log odds between classes grow with the
squared distance. A share e_r of the kernels of all classes, which every class is given in block r,

    q'_rj(x) = (1 - e_r) q_rj(x) + e_r p_r(x),    p_r(x) = sum_c p(c) q_rc(x),

bounds what the block can say against a class by log 1/e_r, and the result is a shared kernel model
like any other: its weights are pi'_kj = (1 - e_r) pi_kj + e_r sum_c p(c) pi_kc. With one block and
T = 1 the posterior is exactly (1 - e) p(c|x) + e p(c).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._weighting import (
    IMPOSSIBLE,
    heard_samples,
    least_loss,
    platt_targets,
)

__all__ = ["Calibration", "calibrate", "calibrated", "cross_entropy_of_shares"]

#: Where the search for shares begins, and their range, as log odds.
FIRST_SHARE = -4.0
SHARES = (-14.0, 0.0)
#: A likelihood that is not zero.
TINY = float(np.finfo(np.float64).tiny)
#: No block counts for less: where none tells anything, decisions still follow from them.
SMALLEST_SLOPE = 1e-4


class Calibration(NamedTuple):
    """Block weights (R,), temperature, and shares of the pooled kernels (R,)."""

    weights: FloatArray
    temperature: float
    shares: FloatArray


def cross_entropy_of_shares(
    parameters: FloatArray,
    q: FloatArray,
    pool: FloatArray,
    log_prior: FloatArray,
    targets: FloatArray,
    counted: FloatArray,
) -> tuple[float, FloatArray]:
    """Mean of -log p(c|x) under the targets, and its gradient.

    Parameters
    ----------
    parameters : (2R + 1,): beta_r / T, the log odds of e_r, and 1 / T
    q : (R, n, L), likelihoods, relative to the largest; pool : (R, n, 1), of all classes together
    log_prior : (L,)
    targets : (n, L), rows sum to one; counted : (n,), how much each sample counts
    """
    R = len(q)
    slopes, odds, inverse = parameters[:R], parameters[R:-1], parameters[-1]
    share = expit(odds)[:, None, None]
    mixture = np.maximum(q + share * (pool - q), TINY)
    mixed = np.log(mixture)
    log_p = np.tensordot(slopes, mixed, axes=1) + inverse * log_prior
    log_p -= log_p.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    n = counted.sum()
    loss = -float(np.sum(counted[:, None] * targets * log_p, where=targets > 0.0)) / n
    excess = counted[:, None] * (np.exp(log_p) - targets) / n  # d loss / d scores
    by_share = np.einsum("rnj,nj->r", (pool - q) / mixture, excess)  # d mixed / d e
    by_odds = expit(odds) * expit(-odds) * by_share * slopes
    by_inverse = np.sum(excess * log_prior)
    gradient = np.concatenate([np.tensordot(mixed, excess, axes=2), by_odds, [by_inverse]])
    return loss, gradient


def calibrate(
    log_q: FloatArray,
    labels: NDArray[np.intp],
    log_prior: FloatArray,
    weights: FloatArray | None = None,
) -> Calibration:
    """What makes the probabilities of samples that were not trained on most probable.

    Parameters
    ----------
    log_q : (n, R, L), log likelihoods of the classes under the blocks
    labels : (n,)
    log_prior : (L,)
    weights : (n,), how much each sample counts; None if all count alike
    """
    R = log_q.shape[1]
    log_q, labels, counted, log_prior = heard_samples(log_q, labels, log_prior, weights)
    if not len(labels):
        return Calibration(np.ones(R), 1.0, np.zeros(R))
    best = log_q.max(axis=2, keepdims=True, where=log_prior > IMPOSSIBLE, initial=-np.inf)
    q = np.exp(np.minimum(log_q - best, 0.0)).transpose(1, 0, 2)
    pool = (q * np.exp(log_prior)).sum(axis=2, keepdims=True)
    targets = platt_targets(labels, log_prior, counted)

    start = np.concatenate([np.ones(R), np.full(R, FIRST_SHARE), [1.0]])
    bounds: list[tuple[float, float | None]] = [(SMALLEST_SLOPE, None)] * R
    found = least_loss(
        lambda a: cross_entropy_of_shares(a, q, pool, log_prior, targets, counted),
        start,
        [*bounds, *[SHARES] * R],
    )
    inverse = float(found[-1])
    return Calibration(found[:R] / inverse, 1.0 / inverse, expit(found[R:-1]))


def calibrated(model: Model, found: Calibration) -> Model:
    """The model with other weights of blocks, another temperature, and shares."""
    return model.weighed(*found)
