"""Weights of blocks and a temperature, fitted to held-out data.

Blocks are not independent given the class, so their sum counts the same evidence several times and
is overconfident. One weight beta_r on the log likelihood of each block, and a temperature T for
all, repair that:

    p(c=j|x) = softmax over j of (log p(c=j) + sum_r beta_r log q_rj(x_r)) / T

The mean cross-entropy is convex in (beta_1 / T, ..., beta_R / T, 1 / T).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from pskem.structures import FloatArray

__all__ = [
    "Weighting",
    "cross_entropy",
    "fit_weighting",
    "heard_samples",
    "least_loss",
    "platt_targets",
]

#: Strength of the pull toward T = 1, in cross-entropy: it decides where the data do not, because
#: the classes are about equally frequent.
PULL_TEMPERATURE = 0.01
#: The smallest 1 / T.
SMALLEST_INVERSE = 1e-3
#: Stands for the log prior of a class without prior.
IMPOSSIBLE = -1e30
#: How far a class may be behind the best one in a block, in units of what is usual between the
#: best and the worst, before it does not matter how much farther.
FARTHEST_BEHIND = 4.0


class Weighting(NamedTuple):
    """beta (R,) and T."""

    weights: FloatArray
    temperature: float


def cross_entropy(
    coefficients: FloatArray,
    terms: FloatArray,
    targets: FloatArray,
    weights: FloatArray | None = None,
) -> tuple[float, FloatArray]:
    """Mean of -log softmax(sum_i a_i terms_i) under the targets, and its gradient in a.

    coefficients : (P,), terms : (P, n, L), targets : (n, L), rows sum to one; weights : (n,)
    """
    scores = np.tensordot(coefficients, terms, axes=1)  # (n, L)
    log_p = log_softmax(scores, axis=1)
    counted = np.ones((len(targets), 1)) if weights is None else weights[:, None]
    n = counted.sum()
    loss = -float(np.sum(counted * targets * log_p, where=targets > 0.0)) / n
    return loss, np.tensordot(terms, counted * (np.exp(log_p) - targets), axes=2) / n


def least_loss(
    loss_of: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    bounds: list[tuple[float, float | None]],
) -> FloatArray:
    """Parameters, of which 1 / T is the last, that minimise a loss and the pull toward T = 1.

    loss_of : gives the loss and its gradient; bounds : of all parameters but the last
    """

    def objective(a: FloatArray) -> tuple[float, FloatArray]:
        loss, slope = loss_of(a)
        off = a[-1] - 1.0
        slope[-1] += PULL_TEMPERATURE * off
        return loss + 0.5 * PULL_TEMPERATURE * off * off, slope

    limits = [*bounds, (SMALLEST_INVERSE, None)]
    found: FloatArray = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits).x
    return found


def heard_samples(
    log_q: FloatArray,
    labels: NDArray[np.intp],
    log_prior: FloatArray,
    weights: FloatArray | None,
) -> tuple[FloatArray, NDArray[np.intp], FloatArray, FloatArray]:
    """log q, labels, weights of samples that have a say, and finite log priors.

    Samples of a class without prior are wrong whatever else is chosen.
    """
    possible = np.isfinite(log_prior)
    counted = np.ones(len(labels)) if weights is None else weights
    heard = possible[labels]
    return log_q[heard], labels[heard], counted[heard], np.where(possible, log_prior, IMPOSSIBLE)


def platt_targets(
    labels: NDArray[np.intp], log_prior: FloatArray, counted: FloatArray
) -> FloatArray:
    """Probabilities of the classes (n, L) that samples with these labels ask for.

    All is as the labels say but for one sample in n + 2, of which nobody knows what it is: samples
    that are all right would call for weights without bound.

    References
    ----------
    J. Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    """
    possible = log_prior > IMPOSSIBLE
    doubt = 1.0 / (counted.sum() + 2.0)
    targets: FloatArray = np.tile(doubt * possible / possible.sum(), (len(labels), 1))
    targets[np.arange(len(labels)), labels] += 1.0 - doubt
    return targets


def fit_weighting(
    log_q: FloatArray,
    labels: NDArray[np.intp],
    log_prior: FloatArray,
    weights: FloatArray | None = None,
) -> Weighting:
    """Weights and temperature that minimise the cross-entropy of held-out samples.

    Parameters
    ----------
    log_q : (n, R, L), log likelihoods of the classes under the blocks
    labels : (n,)
    log_prior : (L,)
    weights : (n,), how much each sample counts; None if all count alike
    """
    log_q, labels, counted, log_prior = heard_samples(log_q, labels, log_prior, weights)
    n, R, L = log_q.shape
    as_they_are = Weighting(np.ones(R), 1.0)
    if n == 0:
        return as_they_are
    relative = log_q - log_q.max(axis=2, keepdims=True)
    # A sample far from all kernels of its own class may be thousands behind, and one such sample
    # would decide the weights alone.
    typical = np.median(-relative.min(axis=2), axis=0)  # (R,)
    relative = np.maximum(relative, -FARTHEST_BEHIND * np.maximum(typical, 1.0)[:, None])
    terms = np.concatenate([relative.transpose(1, 0, 2), np.broadcast_to(log_prior, (1, n, L))])

    targets = platt_targets(labels, log_prior, counted)

    found = least_loss(
        lambda a: cross_entropy(a, terms, targets, counted), np.ones(R + 1), [(0.0, None)] * R
    )
    if not found[:-1].any():  # nothing would be left to decide by
        return as_they_are
    return Weighting(found[:-1] / found[-1], float(1.0 / found[-1]))
