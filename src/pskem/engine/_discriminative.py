"""Discriminative passes: raise the posterior probability of the true classes, not the likelihood.

Extended Baum-Welch (Gopalakrishnan et al., 1991; Normandin, 1991), as for maximum mutual
information in speech recognition (Povey & Woodland, 2002). The criterion is

    F = sum_n log p(c_n|x_n),  p(c|x) = softmax over c of log p(c) + sum_r beta_r log q_rc(x_r).

A pass takes the engine's additive statistics under the true class minus the same under the
posterior of the classes, and adds D_k samples that each kernel would have drawn itself. Then the
ordinary M-step applies: mu_k = (x_num - x_den + D_k mu_k) / (n_num - n_den + D_k), and likewise
for second moments. The result stays a proper shared kernel model. The class posteriors couple the
blocks, so a pass goes over all blocks of a chunk of samples at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import log_softmax

from pskem.engine._kernels import (
    Kernels,
    Prepared,
    Product,
    Scratch,
    Terms,
    exp_in_place,
    features_about_mean,
    log_terms,
    make_product,
    prepare,
)
from pskem.engine._parallel import Mapper
from pskem.engine._sources import Samples
from pskem.structures import FloatArray, Gaussians, Structure, Totals

__all__ = ["Criterion", "Step", "contrast", "discriminative_passes", "update"]

#: D_k in units of the kernel's mass under the posterior, at first.
FIRST_STEP = 2.0
#: How often a step is halved (D doubled) before the passes end, and how often for positive
#: definite covariances.
MOST_HALVINGS = 10
MOST_DOUBLINGS = 40
#: No pass leaves a covariance below this share of what it was.
LEAST_SHARE = 0.1
#: Numbers of a chunk's largest arrays that should stay in cache, samples of a task.
CHUNK_NUMBERS = 2**21
TASK = 8192


class Criterion(NamedTuple):
    """What decides class posteriors besides the kernels: log priors (L,), block weights (R,).

    A log prior may be minus infinity.
    """

    log_prior: FloatArray
    block_weights: FloatArray

    def log_posterior(self, log_q: Sequence[FloatArray]) -> FloatArray:
        """log p(c|x), (L, n), from the log likelihoods (L, n) of the blocks."""
        joint = self.log_prior[:, None] + sum(
            beta * part for beta, part in zip(self.block_weights, log_q, strict=True)
        )
        return log_softmax(joint, axis=0)


class Contrast(NamedTuple):
    """Statistics of one block under the true classes minus those under the posterior.

    sums : (K, d), the difference of the sums of phi
    gained, lost : (L, K), the masses of each class, under the true classes and the posterior
    """

    sums: FloatArray
    gained: FloatArray
    lost: FloatArray

    def merge(self, other: Contrast) -> Contrast:
        return Contrast(*(a + b for a, b in zip(self, other, strict=True)))


class Contrasts(NamedTuple):
    """The statistics of all blocks, and F, for some samples; additive."""

    blocks: list[Contrast]
    criterion: float

    def merge(self, other: Contrasts) -> Contrasts:
        blocks = [a.merge(b) for a, b in zip(self.blocks, other.blocks, strict=True)]
        return Contrasts(blocks, self.criterion + other.criterion)


class Step(NamedTuple):
    """Kernels of all blocks after a pass, and F under them."""

    kernels: list[Kernels]
    criterion: float


class _Ready(NamedTuple):
    """A block's kernels, ready for chunks of samples of all classes.

    Pairs of a class and a kernel that it may use are listed class by class.

    rows : (P,), the kernel of each pair
    log_weights : (P, 1)
    starts, sizes : (L,), where the pairs of each class begin, and their number
    gather : (K, P), adds up what pairs of one kernel have
    """

    prepared: Prepared
    product: Product
    rows: NDArray[np.intp]
    log_weights: FloatArray
    starts: NDArray[np.intp]
    sizes: NDArray[np.intp]
    gather: csr_array

    def spread(self, values: FloatArray) -> FloatArray:
        """One row per pair, (P, n), from one row per class, (L, n)."""
        return np.repeat(values, self.sizes, axis=0)


class _Evaluated(NamedTuple):
    """A block on a chunk of n samples.

    shares : (P, n), responsibilities of the kernels of each class, given the class
    log_q : (L, n), without what all classes have in common
    """

    terms: Terms
    shares: FloatArray
    log_q: FloatArray


def _make_ready(prepared: Prepared) -> _Ready:
    weights = prepared.kernels.weights
    L, K = weights.shape
    product = make_product(prepared, np.zeros((1, K)))
    classes, rows = np.nonzero(weights > 0.0)
    log_weights = prepared.log_weights[classes, rows, None].astype(prepared.dtype)
    sizes = np.bincount(classes, minlength=L)
    pairs = np.arange(len(rows))
    ones = np.ones(len(rows), dtype=prepared.dtype)
    gather = csr_array((ones, (rows, pairs)), shape=(K, len(rows)))
    return _Ready(prepared, product, rows, log_weights, np.cumsum(sizes) - sizes, sizes, gather)


def _evaluate(structure: Structure, ready: _Ready, X: FloatArray, scratch: Scratch) -> _Evaluated:
    X = X.astype(ready.prepared.dtype, copy=False)
    run = np.array([0, X.shape[1]])
    terms = log_terms(structure, ready.prepared, ready.product, X, run, scratch)
    shares = terms.values[ready.rows]
    shares += ready.log_weights
    # Relative to the best kernel of the class, not of all: however far a class is behind in one
    # block, others may make up for it.
    peak = np.maximum.reduceat(shares, ready.starts, axis=0)
    shares -= ready.spread(peak)
    exp_in_place(shares)
    totals = np.add.reduceat(shares, ready.starts, axis=0)
    shares /= ready.spread(totals)
    return _Evaluated(terms, shares, np.add(peak, np.log(totals), dtype=np.float64))


def contrast(
    structure: Structure,
    prepared: Sequence[Prepared],
    blocks: Sequence[Samples],
    labels: NDArray[np.intp],
    criterion: Criterion,
    chunks: Sequence[slice],
) -> Contrasts:
    """Statistics of some chunks of samples, for all blocks."""
    all_ready = [_make_ready(kernels) for kernels in prepared]
    scratches = [Scratch() for _ in prepared]
    totals: list[Contrast] | None = None
    F = 0.0
    for rows in chunks:
        parts = [samples.X[:, rows] for samples in blocks]
        evaluated = [
            _evaluate(structure, ready, X, scratch)
            for ready, X, scratch in zip(all_ready, parts, scratches, strict=True)
        ]
        log_posterior = criterion.log_posterior([part.log_q for part in evaluated])
        # Samples of a class that has no prior are wrong whatever is done, and teach nothing.
        possible = np.isfinite(criterion.log_prior)[labels[rows]]
        truth = np.zeros_like(log_posterior)
        truth[labels[rows], np.arange(len(possible))] = possible
        F += float(log_posterior[truth > 0.0].sum())
        posterior = np.exp(log_posterior) * possible
        found = [
            _contrast(structure, ready, X, part, truth, posterior)
            for ready, X, part in zip(all_ready, parts, evaluated, strict=True)
        ]
        totals = (
            found if totals is None else [a.merge(b) for a, b in zip(totals, found, strict=True)]
        )
    assert totals is not None  # tasks are not empty
    return Contrasts(totals, F)


def _contrast(
    structure: Structure,
    ready: _Ready,
    X: FloatArray,
    part: _Evaluated,
    truth: FloatArray,
    posterior: FloatArray,
) -> Contrast:
    """Statistics of one block on one chunk. Overwrites the shares."""
    d, K = structure.n_rows(len(X)), len(ready.prepared.kernels.means)
    shares = part.shares
    masses = [
        np.einsum("pn,pn->p", shares, ready.spread(p).astype(shares.dtype), dtype=np.float64)
        for p in (truth, posterior)
    ]
    classes = np.repeat(np.arange(len(posterior)), ready.sizes)
    gained, lost = np.zeros((len(posterior), K)), np.zeros((len(posterior), K))
    gained[classes, ready.rows], lost[classes, ready.rows] = masses
    shares *= ready.spread(truth - posterior).astype(shares.dtype)
    # w_nk under the true class minus w_nk under the posterior.
    alone = np.array_equal(ready.rows, np.arange(K))  # one pair for every kernel, in order
    W = shares if alone else ready.gather @ shares  # (K, n)
    sums = part.terms.sums(W)[:, :d].astype(np.float64)
    for row, k in ready.product.centred:
        sums[k] = features_about_mean(structure, ready.prepared, X, k) @ W[row]
    return Contrast(sums, gained, lost)


def update(
    structure: Structure,
    prepared: Prepared,
    contrast: Contrast,
    step: float,
    floor: float,
    anchor: Kernels,
    smoothing: float,
) -> Kernels:
    """One step of extended Baum-Welch for a block.

    D_k begins at ``step`` times the mass under the posterior and is doubled until no variance
    falls below a tenth of what it was; weights go a part of the way that is smaller in the same
    measure. ``smoothing`` samples of the kernels ``anchor`` are added (I-smoothing). ``floor`` is
    the smallest eigenvalue of a covariance; shrinkage is for EM.
    """
    before = prepared.kernels
    gained, lost = contrast.gained.sum(axis=0), contrast.lost.sum(axis=0)
    least = 1e-12 * max(1.0, float(gained.sum()))
    D = step * lost + least
    now = Gaussians(before.means - prepared.origins, before.covariances)
    then = Gaussians(anchor.means - prepared.origins, anchor.covariances)
    extra = structure.expect(prepared.natural, then, np.full(len(D), smoothing))
    means, covariances = before.means, before.covariances
    for _ in range(MOST_DOUBLINGS):
        own = structure.expect(prepared.natural, now, D)
        masses = np.maximum(gained - lost + D + smoothing, least)
        totals = Totals(
            float(masses.sum()),
            masses,
            contrast.sums + own.sums + extra.sums,
            own.scatter + extra.scatter,
            prepared.origins,
        )
        means, covariances = structure.estimate(prepared.natural, totals)
        bad = _vanishing(structure, covariances, LEAST_SHARE * before.covariances)
        if not bad.any():
            break
        D = np.where(bad, 2.0 * D + least, D)
    else:
        means, covariances = before.means, before.covariances
    covariances, _ = structure.floor(covariances, floor)
    weights = _reweigh(before.weights, contrast.gained, contrast.lost)
    part = min(1.0, FIRST_STEP / step)
    return Kernels(before.weights + part * (weights - before.weights), means, covariances)


def _vanishing(structure: Structure, covariances: FloatArray, least: FloatArray) -> FloatArray:
    """Whether covariances are below others in some direction: (K,), or (1,) for a common one."""
    excess = covariances - least
    lifted = structure.floor(excess, 1e-12).covariances
    shape = (len(lifted), -1) if structure.keeps_apart else (1, -1)
    return (lifted != excess).reshape(shape).any(axis=1)


def _reweigh(weights: FloatArray, gained: FloatArray, lost: FloatArray) -> FloatArray:
    """Weights that raise F: maximise sum_k gained log pi - lost pi / pi_before for each class.

    By the iteration of Povey and Woodland (2002), in which no weight becomes negative.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(weights > 0.0, lost / weights, 0.0)
    spare = slope.max(axis=1, keepdims=True) - slope
    pi = weights
    for _ in range(100):
        raised = gained + spare * pi
        totals = raised.sum(axis=1, keepdims=True)
        pi = np.where(totals > 0.0, raised / np.where(totals > 0.0, totals, 1.0), pi)
    return np.where(weights > 0.0, pi, 0.0)


def discriminative_passes(
    structure: Structure,
    blocks: Sequence[Samples],
    kernels: Sequence[Kernels],
    floors: Sequence[float],
    criterion: Criterion,
    smoothing: float,
    parallel_map: Mapper,
) -> Iterator[Step]:
    """Yield kernels under which F is higher than before, until none are found.

    The first step is the start. If F falls, the step is taken back and D doubled. Blocks without
    weight stay as they are.
    """
    anchors = list(kernels)
    labels = blocks[0].labels
    tasks = _cut(structure, blocks, kernels)

    def measure(current: Sequence[Kernels]) -> tuple[list[Prepared], Contrasts]:
        pairs = zip(current, blocks, strict=True)
        prepared = parallel_map(lambda pair: prepare(structure, pair[0], pair[1].X.dtype), pairs)
        parts = parallel_map(
            lambda chunks: contrast(structure, prepared, blocks, labels, criterion, chunks), tasks
        )
        return prepared, reduce(Contrasts.merge, parts)

    current = list(kernels)
    prepared, found = measure(current)
    yield Step(current, found.criterion)
    step = FIRST_STEP
    halvings = 0
    while halvings < MOST_HALVINGS and found.criterion < 0.0:
        move = partial(_move, structure, step, smoothing)
        rows = zip(prepared, found.blocks, floors, anchors, strict=True)
        moved = zip(criterion.block_weights, parallel_map(move, rows), current, strict=True)
        proposal = [new if beta > 0.0 else old for beta, new, old in moved]
        prepared_next, found_next = measure(proposal)
        if found_next.criterion > found.criterion:
            current, prepared, found = proposal, prepared_next, found_next
            halvings = 0
            yield Step(current, found.criterion)
        else:
            step *= 2.0
            halvings += 1


def _move(
    structure: Structure,
    step: float,
    smoothing: float,
    block: tuple[Prepared, Contrast, float, Kernels],
) -> Kernels:
    prepared, found, floor, anchor = block
    return update(structure, prepared, found, step, floor, anchor, smoothing)


def _cut(
    structure: Structure, blocks: Sequence[Samples], kernels: Sequence[Kernels]
) -> list[list[slice]]:
    """Tasks of chunks; the data and the model alone decide."""
    N = blocks[0].n_samples
    numbers = sum(
        structure.n_rows(len(samples.X)) + len(theta.means) + np.count_nonzero(theta.weights)
        for samples, theta in zip(blocks, kernels, strict=True)
    )
    size = int(np.clip(CHUNK_NUMBERS // numbers, 32, 2048))
    chunks = [slice(low, min(low + size, N)) for low in range(0, N, size)]
    per_task = max(1, min(TASK // size, len(chunks) // 32))
    return [chunks[i : i + per_task] for i in range(0, len(chunks), per_task)]
