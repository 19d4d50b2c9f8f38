"""Supervised EM for shared kernel models: two matrix products a pass, on additive statistics.

For the samples of a block, sorted by class:

    E-step   A = Theta @ phi(X)      log pi_kj + log N(x_n; mu_k, P_k), (K, n)
             W = softmax of A over k; the log-sum-exps add up to the log likelihood
    M-step   S = W @ phi(X)'         sums of phi under W; the indicator rows of phi give the
                                     masses of each class, so the weights come for free

Within a pass S is additive over chunks, threads and machines; the M-step needs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._kernels import (
    Kernels,
    Prepared,
    Scratch,
    features_about_mean,
    kernel_log_densities,
    log_terms,
    make_product,
    prepare,
    softmax_in_place,
)
from pskem.engine._parallel import Mapper
from pskem.engine._sources import Chunk, Samples
from pskem.structures import FloatArray, Structure, Totals

__all__ = [
    "Health",
    "Mender",
    "Pass",
    "Regulariser",
    "Statistics",
    "auxiliary",
    "em_passes",
    "expectation",
    "maximisation",
    "summarise",
]


class Statistics(NamedTuple):
    """What a pass over some samples sums up; addition merges two disjoint sets of samples.

    masses : (L, K), responsibilities summed per class
    sums : (K, d), phi weighted by the responsibilities
    scatter : the structure's own second sum
    log_likelihood : log p(X | C, Theta)
    """

    masses: FloatArray
    sums: FloatArray
    scatter: FloatArray
    log_likelihood: float

    def merge(self, other: Statistics) -> Statistics:
        return Statistics(
            self.masses + other.masses,
            self.sums + other.sums,
            self.scatter + other.scatter,
            self.log_likelihood + other.log_likelihood,
        )


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
    diagonal : whether of that covariance only the diagonal
    smoothing : pseudo-samples of each class, spread evenly over the kernels that it may use
    """

    floor: float
    shrinkage: float = 0.0
    diagonal: bool = False
    smoothing: float = 0.0


#: May change the kernels of a block, by its place, after a pass and in view of their health.
Mender = Callable[[int, Kernels, Health], tuple[Kernels, Health]]


class Pass(NamedTuple):
    """The outcome of one EM pass over all blocks.

    log_likelihoods : (R,), of the parameters with which the pass began
    kernels, health : one per block, after the pass
    """

    log_likelihoods: FloatArray
    kernels: list[Kernels]
    health: list[Health]


def expectation(
    structure: Structure, prepared: Prepared, samples: Samples, chunk: Chunk
) -> tuple[FloatArray, FloatArray]:
    """Responsibilities w_nk (K, n) of samples under their own class, and log p(x|c) (n,)."""
    X = samples.X[:, chunk.start : chunk.stop].astype(prepared.dtype, copy=False)
    product = make_product(prepared, prepared.log_weights[chunk.classes])
    terms = log_terms(structure, prepared, product, X, chunk.bounds, Scratch())
    log_sums = softmax_in_place(terms.values)
    W = np.zeros((len(prepared.kernels.means), X.shape[1]))
    W[product.active] = terms.values
    return W, log_sums + terms.common


def summarise(
    structure: Structure, prepared: Prepared, samples: Samples, chunks: Iterable[Chunk]
) -> Statistics:
    """Statistics of some chunks: one E-step, and the sums from which the M-step follows."""
    (L, K), m = prepared.kernels.weights.shape, len(samples.X)
    d = structure.n_rows(m)
    masses, sums = np.zeros((L, K)), np.zeros((K, d))
    scatter: FloatArray = np.zeros(())
    log_likelihood = 0.0
    scratch = Scratch()
    for classes, group in groupby(chunks, key=lambda chunk: tuple(chunk.classes)):
        product = make_product(prepared, prepared.log_weights[list(classes)])
        S = np.zeros(product.theta.shape)
        for chunk in group:
            X = samples.X[:, chunk.start : chunk.stop].astype(prepared.dtype, copy=False)
            terms = log_terms(structure, prepared, product, X, chunk.bounds, scratch)
            W = terms.values
            log_sums = softmax_in_place(W)  # Pulford (2022), eq. (skemw)
            part = terms.sums(W)
            for row, k in product.centred:
                part[row, :d] = features_about_mean(structure, prepared, X, k) @ W[row]
            S += part
            scatter = scatter + structure.scatter(terms.phi[:d])
            log_likelihood += float(np.sum(log_sums + terms.common, dtype=np.float64))
        sums[product.active] += S[:, :d]
        masses[np.ix_(classes, product.active)] += S[:, d:].T
    return Statistics(masses, sums, scatter, log_likelihood)


def maximisation(
    structure: Structure, prepared: Prepared, statistics: Statistics, regulariser: Regulariser
) -> tuple[Kernels, Health]:
    """The kernels that maximise Q given the statistics of all samples, and their health.

    With shrinkage and smoothing they maximise Q plus the logarithm of a prior instead,
    -nu/2 sum_k (log|P_k| + tr(P_k^-1 Psi)) + alpha/K sum_jk log pi_kj, where Psi is the common
    covariance of these statistics. For a fixed Psi that is maximum a posteriori, and never lowers
    the penalised likelihood; Psi moves with the statistics, so here it may.
    """
    before = prepared.kernels
    masses = statistics.masses.sum(axis=0)
    weights = statistics.masses
    if regulariser.smoothing > 0.0:
        open_ = before.weights > 0.0
        weights = weights + regulariser.smoothing * open_ / open_.sum(axis=1, keepdims=True)
    weights = weights / weights.sum(axis=1, keepdims=True)  # eq. (skempi)
    empty = masses <= 10.0 * np.finfo(np.float64).eps * masses.sum()
    totals = Totals(
        float(masses.sum()),
        np.where(empty, 1.0, masses),
        np.where(empty[:, None], 0.0, statistics.sums),
        statistics.scatter,
        prepared.origins,
    )
    means, covariances = structure.estimate(prepared.natural, totals)
    means = np.where(empty[:, None], before.means, means)
    if regulariser.shrinkage > 0.0:
        present = np.where(empty, 0.0, masses)
        target = structure.pool(covariances, present, regulariser.diagonal)
        covariances = structure.shrink(covariances, present, target, regulariser.shrinkage)
    covariances = structure.keep(empty, before.covariances, covariances)
    covariances, collapsed = structure.floor(covariances, regulariser.floor)
    return Kernels(weights, means, covariances), Health(empty, collapsed)


def em_passes(
    structure: Structure,
    blocks: Sequence[Samples],
    kernels: Sequence[Kernels],
    regularisers: Sequence[Regulariser],
    parallel_map: Mapper,
    mend: Mender | None = None,
) -> Iterator[Pass]:
    """Train all blocks in lock-step: yield after every pass, without end.

    The caller decides when to stop. With a floor of zero a kernel that collapses would end in an
    error. ``parallel_map`` works off tasks that the data
    alone define, and their statistics are merged in order, so the result does not depend on the
    threads. ``mend`` sees every block after each pass.
    """
    current = list(kernels)
    tasks = [(r, task) for r, samples in enumerate(blocks) for task in samples.tasks]
    while True:
        pairs = zip(current, blocks, strict=True)
        prepared = parallel_map(lambda pair: prepare(structure, pair[0], pair[1].X.dtype), pairs)
        run = partial(_run_task, structure, prepared, blocks)
        parts = zip(tasks, parallel_map(run, tasks), strict=True)
        totals = [
            reduce(Statistics.merge, (part for _, part in group))
            for _, group in groupby(parts, key=lambda pair: pair[0][0])
        ]
        updates = zip(prepared, totals, regularisers, strict=True)
        outcomes = parallel_map(lambda update: maximisation(structure, *update), updates)
        if mend is not None:
            outcomes = [mend(r, *outcome) for r, outcome in enumerate(outcomes)]
        current = [theta for theta, _ in outcomes]
        log_likelihoods = np.array([total.log_likelihood for total in totals])
        yield Pass(log_likelihoods, current, [health for _, health in outcomes])


def _run_task(
    structure: Structure,
    prepared: Sequence[Prepared],
    blocks: Sequence[Samples],
    task: tuple[int, Sequence[Chunk]],
) -> Statistics:
    r, chunks = task
    return summarise(structure, prepared[r], blocks[r], chunks)


def auxiliary(
    structure: Structure, samples: Samples, kernels: Kernels, kernels_before: Kernels
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
    samples : Samples
        The block's samples (standardised, sorted by class).
    kernels, kernels_before : Kernels
        Theta and Theta_0.

    Returns
    -------
    Q : float
        -inf where Theta gives no weight to an association that Theta_0 holds possible.
    """
    after = prepare(structure, kernels, np.dtype(np.float64))
    before = prepare(structure, kernels_before, np.dtype(np.float64))
    total = 0.0
    for chunk in samples.chunks:
        W, _ = expectation(structure, before, samples, chunk)  # (K, n)
        X = samples.X[:, chunk.start : chunk.stop]
        log_densities = kernel_log_densities(structure, after, X)
        lengths = np.diff(chunk.bounds)
        with np.errstate(divide="ignore"):
            log_weights = np.log(kernels.weights[chunk.classes])  # (c, K)
        log_joint = log_densities + np.repeat(log_weights, lengths, axis=0).T
        total += float(np.sum(W * log_joint, where=W > 0.0))
    return total
