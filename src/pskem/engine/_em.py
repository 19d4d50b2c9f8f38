"""Supervised EM for shared kernel models: two matrix products a pass, on additive statistics.

For the samples of a block, sorted by class:

    E-step   A = Theta @ phi(X)      log pi_kj + log N(x_n; mu_k, P_k), (K, n)
             W = softmax of A over k; the log-sum-exps add up to the log likelihood
    M-step   S = W @ phi(X)'         sums of phi under W; the indicator rows of phi give the
                                     masses of each class, so the weights come for free

S is additive over batches, threads and machines; the M-step needs nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._evaluators import Scratch
from pskem.engine._exponentials import softmax_in_place
from pskem.engine._kernels import Kernels, Prepared, prepare, prepare_all
from pskem.engine._moments import Moments, estimate
from pskem.engine._parallel import Mapper
from pskem.engine._sources import Batch, Source, Total, cut, tile_size
from pskem.engine._statistics import Statistics, summarise
from pskem.engine._targets import DecisionRule, OwnClass, Posterior
from pskem.structures import (
    FloatArray,
    Gaussians,
    SecondMoments,
    Structure,
    pool,
    replace_kernels,
    shrink,
)

__all__ = [
    "Expectation",
    "Health",
    "Pass",
    "Regulariser",
    "Unlabelled",
    "auxiliary",
    "em_pass",
    "expectation",
    "maximisation",
    "maximise",
]

#: A kernel with less than this share of all responsibility is empty.
EMPTY = 10.0 * float(np.finfo(np.float64).eps)

#: A covariance that changes by less than this, relative to its largest entry, changes by rounding.
SETTLED = 32.0 * float(np.finfo(np.float64).eps)


class Health(NamedTuple):
    """What became of the kernels in an M-step.

    empty : (K,) bool. No sample is left to the kernel; its mean and covariance stay as they were.
    collapsed : (K,) or (1,) int. Directions in which the covariance had all but vanished, before
        it was lifted to the floor.
    """

    empty: NDArray[np.bool_]
    collapsed: NDArray[np.intp]


class Regulariser(NamedTuple):
    """What holds the M-step of a block back.

    floor : smallest eigenvalue of a covariance
    shrinkage : pseudo-samples of each kernel that have the common covariance
    diagonal : whether they have only the diagonal of the common covariance
    """

    floor: float
    shrinkage: float = 0.0
    diagonal: bool = False


class Unlabelled(NamedTuple):
    """Samples whose classes nobody knows, and the log priors of the classes, (L,)."""

    source: Source
    log_prior: FloatArray


class Pass(NamedTuple):
    """The outcome of one EM pass over all blocks.

    log_likelihoods : (R,), of the parameters with which the pass began
    kernels, health : one per block, after the pass
    unlabelled : sum of log p(x) over the samples without a class, with the same parameters
    posterior_masses : (L,), what these samples count in each class
    """

    log_likelihoods: FloatArray
    kernels: list[Kernels]
    health: list[Health]
    unlabelled: float
    posterior_masses: FloatArray


def em_pass(
    structures: Sequence[Structure],
    source: Source,
    kernels: Sequence[Kernels],
    regularisers: Sequence[Regulariser],
    parallel_map: Mapper,
    others: Unlabelled | None = None,
) -> Pass:
    """One EM pass over all blocks, with samples of known and perhaps of unknown classes.

    The latter count in every class by its posterior probability, and so teach all blocks what each
    has learnt (Miller & Uyar, 1997). The joint likelihood of all samples never falls.
    """
    prepared = prepare_all(structures, kernels, source, parallel_map)
    summary = summarise(source, prepared, OwnClass(), parallel_map)
    blocks, unlabelled = summary.blocks, 0.0
    masses = np.zeros(len(kernels[0].weights))
    if others is not None:
        target = Posterior(DecisionRule(others.log_prior, np.ones(len(kernels))))
        ready = prepare_all(structures, kernels, others.source, parallel_map)
        found = summarise(others.source, ready, target, parallel_map)
        unlabelled, masses = float(found.value[0]), found.blocks[0].gained.sum(axis=1)
        blocks = tuple(a.merge(b) for a, b in zip(blocks, found.blocks, strict=True))
    outcomes = parallel_map(maximisation, prepared, blocks, regularisers)
    updated, health = zip(*outcomes, strict=True)
    return Pass(summary.value, list(updated), list(health), unlabelled, masses)


def maximisation(
    prepared: Prepared, statistics: Statistics, regulariser: Regulariser
) -> tuple[Kernels, Health]:
    """The kernels that maximise Q given the statistics of all samples, and their health.

    With shrinkage they maximise Q plus the logarithm of a prior instead,
    -nu/2 sum_k (log|P_k| + tr(P_k^-1 Psi)), where Psi is the common covariance of these
    statistics. For a fixed Psi that is maximum a posteriori, and never lowers the penalised
    likelihood; Psi moves with the statistics, so here it may.
    """
    moments = statistics.moments(prepared)
    return maximise(prepared.structure, prepared.kernels, statistics.gained, moments, regulariser)


def maximise(
    structure: Structure,
    before: Kernels,
    gained: FloatArray,
    moments: Moments,
    regulariser: Regulariser,
) -> tuple[Kernels, Health]:
    """The same from masses of the kernels in each class, (L, K), and moments, of any passes.

    A class that no sample was of has the weights of all classes together.
    """
    totals = gained.sum(axis=1, keepdims=True)
    if not (totals > 0.0).all():
        gained = np.where(totals > 0.0, gained, gained.sum(axis=0))
        totals = gained.sum(axis=1, keepdims=True)
    weights = gained / totals  # Pulford (2022), eq. (skempi)
    empty = moments.masses <= EMPTY * moments.masses.sum()
    vanished = bool(empty.any())
    if vanished:
        own, common = moments.second
        moments = moments._replace(
            masses=np.where(empty, 0.0, moments.masses),
            first=np.where(empty[:, None], 0.0, moments.first),
            second=SecondMoments(np.where(empty[:, None], 0.0, own), common),
        )
    means, covariances = estimate(structure, moments)
    means = structure.settle(means, moments.masses, regulariser.shrinkage)
    if regulariser.shrinkage > 0.0:
        masses, pseudo = moments.masses, regulariser.shrinkage
        target = pool(structure, covariances, masses, regulariser.diagonal)
        covariances = shrink(structure, covariances, masses, target, pseudo)
    if vanished:
        found = Gaussians(means, covariances)
        means, covariances = replace_kernels(structure, empty, before.gaussians, found)
    covariances, collapsed = structure.floor(covariances, regulariser.floor)
    if collapsed.any():
        covariances = _settled(structure, before.covariances, covariances)
    return Kernels(weights, means, covariances), Health(empty, collapsed)


def _settled(structure: Structure, before: FloatArray, after: FloatArray) -> FloatArray:
    """Covariances after an update, or those before it where only rounding makes a difference.

    A matrix with entries of 1 holds an eigenvalue of 1e-10 to six digits. The others change with
    every pass, and with them the likelihood, by more than it gains.
    """
    axes = tuple(range(int(structure.storage.per_kernel), after.ndim))
    change = np.abs(after - before).max(axis=axes, keepdims=True)
    return np.where(change <= SETTLED * np.abs(before).max(axis=axes, keepdims=True), before, after)


class Expectation(NamedTuple):
    """Responsibilities w_nk (K, n) of samples under their own class, and log p(x|c) (n,)."""

    responsibilities: FloatArray
    log_likelihoods: FloatArray


def expectation(prepared: Prepared, X: FloatArray, bounds: NDArray[np.intp]) -> Expectation:
    """The E-step for some samples X (m, n), sorted by class."""
    W = np.zeros((len(prepared.kernels.means), X.shape[1]))
    log_q = np.empty(X.shape[1])
    scratch = Scratch()
    for tile in cut(bounds, tile_size(len(X))):
        evaluator = prepared.evaluator(prepared.log_weights[list(tile.classes)])
        part = X[:, tile.rows].astype(prepared.dtype, copy=False)
        terms = evaluator.evaluate(part, tile.bounds, scratch)
        log_q[tile.rows] = softmax_in_place(terms.values) + terms.common
        W[evaluator.active, tile.rows] = terms.values
    return Expectation(W, log_q)


def _auxiliary(before: Prepared, after: Prepared, block: int, batch: Batch) -> Total:
    X = batch.X[block]
    W = expectation(before, X, batch.bounds).responsibilities
    with np.errstate(divide="ignore"):
        log_weights = np.log(after.kernels.weights)[batch.labels].T  # (K, n)
    log_joint = after.log_densities(X) + log_weights
    W = W * batch.known_weights
    return Total((np.array(np.sum(W * log_joint, where=W > 0.0)),))


def auxiliary(
    structure: Structure,
    source: Source,
    kernels: Kernels,
    kernels_before: Kernels,
    block: int = 0,
) -> float:
    """Baum's auxiliary function Q(Theta, Theta_0) of one block, in standardised coordinates.

    The expectation of the complete-data log likelihood log p(X, Z | C, Theta) over all K^N
    association sequences Z, given X, C and Theta_0, in closed form: Pulford (2022), eq. (baums).
    Each M-step maximises it over Theta; Q(Theta, Theta_0) > Q(Theta_0, Theta_0) implies a higher
    likelihood.

    Parameters
    ----------
    structure : Structure
        The covariance structure that both sets of kernels have.
    source : Source
        The samples, standardised.
    kernels, kernels_before : Kernels
        Theta and Theta_0.
    block : int
        The block that they are of.

    Returns
    -------
    Q : float
        -inf where Theta gives no weight to an association that Theta_0 holds possible.
    """
    double, patterns = np.dtype(np.float64), source.patterns[block]
    before, after = (prepare(structure, k, double, patterns) for k in (kernels_before, kernels))
    (total,) = source.fold(partial(_auxiliary, before, after, block)).arrays
    return float(total)
