"""Targets over the classes: what a pass raises.

EM's target is the sample's own class or, for samples whose class nobody knows, the posterior of the
classes. Discriminative passes have the own class minus the posterior. The posterior couples the
blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import logsumexp

from pskem.engine._evaluators import Pending, Scratch, Terms
from pskem.engine._exponentials import exp_in_place, softmax_in_place
from pskem.engine._kernels import Prepared
from pskem.engine._sources import Tile, cut, tile_size
from pskem.engine._statistics import Accumulator, Statistics, TileTarget, merge_pending
from pskem.structures import FloatArray

__all__ = ["Contrast", "DecisionRule", "OwnClass", "Posterior"]

#: Classes that use a kernel, on average, from which on all classes go through matrix products.
MANY_SHARED = 2
#: The likelihood of a class, relative to the best kernel of all, below which its terms may be lost.
FAR_BEHIND = {np.dtype(np.float64): 1e-200, np.dtype(np.float32): 1e-25}
#: Numbers of a tile's largest arrays that should stay in cache, when all blocks are evaluated.
TILE_NUMBERS = 2**21


class OwnClass(NamedTuple):
    """The sample's own class: EM. Its value is log p(x|c), for each block."""

    couples: bool = False

    def tiles(self, bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
        return cut(bounds, max(tile_size(block.kernels.means.shape[1]) for block in blocks))

    def accumulator(self, block: Prepared, classes: tuple[int, ...]) -> Accumulator:
        return _OwnClassSums(block, classes)

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[TileTarget, float]:
        (values,) = log_q
        counted = values if weights is None else weights * values
        balance: FloatArray | float = 1.0 if weights is None else weights
        return TileTarget(weights, None, balance), float(np.sum(counted, dtype=np.float64))


class _OwnClassSums:
    """Kernels with weight in the classes of a tile, each sample under its own class."""

    def __init__(self, block: Prepared, classes: tuple[int, ...]) -> None:
        self.block, self.classes = block, classes
        self.evaluator = block.evaluator(block.log_weights[list(classes)])
        self.sums = np.zeros((len(self.evaluator.active), block.n_rows + len(classes)))
        self.scatter: FloatArray = np.zeros(())
        self.pending: Pending | None = None
        self.terms: Terms

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> FloatArray:
        X = X.astype(self.block.dtype, copy=False)
        self.terms = self.evaluator.evaluate(X, bounds, scratch)
        log_q = softmax_in_place(self.terms.values)  # Pulford (2022), eq. (skemw)
        return log_q + self.terms.common

    def absorb(self, weights: TileTarget) -> None:
        W = self.terms.values
        if weights.plus is not None:
            W *= weights.plus.astype(W.dtype, copy=False)
        found = self.evaluator.collect(self.terms, W, weights.balance)
        self.sums += found.phi
        self.scatter = self.scatter + found.scatter
        self.pending = merge_pending(self.pending, found.pending)

    @property
    def statistics(self) -> Statistics:
        (L, K), d = self.block.kernels.weights.shape, self.block.n_rows
        active = self.evaluator.active
        if len(active) == K and len(self.classes) == L:
            parts = self.sums[:, d:].T, np.zeros(()), self.sums[:, :d], self.scatter
            return Statistics(*parts, self.pending)
        gained = np.zeros((L, K))
        gained[np.ix_(np.array(self.classes, dtype=np.intp), active)] = self.sums[:, d:].T
        sums = np.zeros((K, d))
        sums[active] = self.sums[:, :d]
        return Statistics(gained, np.zeros(()), sums, self.scatter, self.pending)


class DecisionRule(NamedTuple):
    """What decides class posteriors besides the kernels: log priors (L,), block weights (R,).

    A log prior may be minus infinity.
    """

    log_prior: FloatArray
    block_weights: FloatArray

    def joint(self, log_q: Sequence[FloatArray]) -> FloatArray:
        """log p(c) + sum_r beta_r log q_rc, (L, n), from the blocks' log likelihoods (L, n)."""
        return self.log_prior[:, None] + sum(
            beta * part for beta, part in zip(self.block_weights, log_q, strict=True)
        )

    def log_posterior(self, log_q: Sequence[FloatArray]) -> FloatArray:
        """log p(c|x), (L, n), from the same."""
        relative = self.joint(log_q)
        relative -= relative.max(axis=0)
        relative -= np.log(np.exp(relative).sum(axis=0))
        return relative


def _all_classes(bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
    """Tiles for targets that look at every class, whatever a sample's own."""
    numbers = sum(
        block.n_rows + len(block.kernels.means) + np.count_nonzero(block.kernels.weights)
        for block in blocks
    )
    size = int(np.clip(TILE_NUMBERS // numbers, 32, 2048))
    classes = tuple(range(len(bounds) - 1))
    for low in range(0, int(bounds[-1]), size):
        high = min(low + size, int(bounds[-1]))
        yield Tile(low, high, classes, np.clip(bounds, low, high) - low)


class Posterior(NamedTuple):
    """The posterior of the classes, for samples whose class is not known. Its value is log p(x)."""

    rule: DecisionRule
    couples: bool = True

    def tiles(self, bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
        return _all_classes(bounds, blocks)

    def accumulator(self, block: Prepared, classes: tuple[int, ...]) -> Accumulator:
        return _every_class(block)

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[TileTarget, float]:
        joint = self.rule.joint(log_q)
        log_p = logsumexp(joint, axis=0)
        counted = np.ones(len(log_p)) if weights is None else weights
        return TileTarget(np.exp(joint - log_p) * counted, None, counted), float(counted @ log_p)


class Contrast(NamedTuple):
    """One's own class minus the posterior of the classes. Its value is log p(c|x)."""

    rule: DecisionRule
    couples: bool = True

    def tiles(self, bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
        return _all_classes(bounds, blocks)

    def accumulator(self, block: Prepared, classes: tuple[int, ...]) -> Accumulator:
        return _every_class(block)

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[TileTarget, float]:
        log_posterior = self.rule.log_posterior(log_q)
        labels = np.repeat(np.arange(len(log_posterior)), np.diff(tile.bounds))
        # Samples of a class that has no prior are wrong whatever is done, and teach nothing.
        counted = np.isfinite(self.rule.log_prior)[labels].astype(np.float64)
        own = (labels, np.arange(len(labels)))
        if weights is not None:
            counted *= weights
        truth = np.zeros_like(log_posterior)
        truth[own] = counted
        value = float((counted * np.where(counted > 0.0, log_posterior[own], 0.0)).sum())
        return TileTarget(truth, np.exp(log_posterior) * counted, 0.0), value


def _every_class(block: Prepared) -> Accumulator:
    """What evaluates all classes on all samples, by how much of the kernels is shared."""
    weights = block.kernels.weights
    shared = np.count_nonzero(weights) > MANY_SHARED * weights.shape[1]
    return _SharedSums(block) if shared else _EveryClassSums(block)


class _EveryClassSums:
    """Every class with the kernels that it may use, on samples of all classes.

    Pairs of a class and a kernel of it are listed class by class.

    rows : (P,), the kernel of each pair
    starts, sizes : (L,), where the pairs of each class begin, and their number
    """

    def __init__(self, block: Prepared) -> None:
        self.block = block
        (L, K), dtype = block.kernels.weights.shape, block.dtype
        self.evaluator = block.evaluator(np.zeros((1, K)))
        self.classes, self.rows = np.nonzero(block.kernels.weights > 0.0)
        self.log_weights = block.log_weights[self.classes, self.rows, None].astype(dtype)
        self.sizes = np.bincount(self.classes, minlength=L)
        self.starts = np.cumsum(self.sizes) - self.sizes
        self.sums = np.zeros((K, block.n_rows))
        self.masses = np.zeros((2, len(self.rows)))
        self.scatter: FloatArray = np.zeros(())
        self.pending: Pending | None = None
        self.alone = np.array_equal(self.rows, np.arange(K))  # one pair for every kernel, in order
        if not self.alone:
            pairs, ones = np.arange(len(self.rows)), np.ones(len(self.rows), dtype=dtype)
            self.gather = csr_array((ones, (self.rows, pairs)), shape=(K, len(self.rows)))
        self.terms: Terms
        self.shares: FloatArray  # (P, n), responsibilities of the kernels given the class

    def _spread(self, values: FloatArray) -> FloatArray:
        """One row per pair, (P, n), from one row per class, (L, n)."""
        return np.repeat(values, self.sizes, axis=0)

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> FloatArray:
        X = X.astype(self.block.dtype, copy=False)
        self.terms = self.evaluator.evaluate(X, np.array([0, X.shape[1]]), scratch)
        shares = self.terms.values[self.rows]
        shares += self.log_weights
        # Relative to the best kernel of the class, not of all: however far a class is behind in
        # one block, others may make up for it.
        peak = np.maximum.reduceat(shares, self.starts, axis=0)
        shares -= self._spread(peak)
        exp_in_place(shares)
        totals = np.add.reduceat(shares, self.starts, axis=0)
        shares /= self._spread(totals)
        self.shares = shares
        return np.add(peak + self.terms.common, np.log(totals), dtype=np.float64)

    def absorb(self, weights: TileTarget) -> None:
        shares, dtype = self.shares, self.shares.dtype
        assert weights.plus is not None
        target = weights.plus
        for masses, part in zip(self.masses, (weights.plus, weights.minus), strict=True):
            if part is not None:
                spread = self._spread(part).astype(dtype)
                masses += np.einsum("pn,pn->p", shares, spread, dtype=np.float64)
        if weights.minus is not None:
            target = target - weights.minus
        shares *= self._spread(target).astype(dtype)
        W = shares if self.alone else self.gather @ shares  # (K, n)
        found = self.evaluator.collect(self.terms, W, weights.balance)
        self.sums += found.phi[:, : self.block.n_rows]
        self.scatter = self.scatter + found.scatter
        self.pending = merge_pending(self.pending, found.pending)

    @property
    def statistics(self) -> Statistics:
        gained, lost = (np.zeros(self.block.kernels.weights.shape) for _ in range(2))
        gained[self.classes, self.rows], lost[self.classes, self.rows] = self.masses
        return Statistics(gained, lost, self.sums, self.scatter, self.pending)


class _SharedSums:
    """Every class with all kernels, by matrix products: one exponential serves all classes.

    With e_kn = N_k(x_n) and q_cn = sum_k pi_kc e_kn, responsibilities summed over the classes are
    e_kn sum_c pi_kc t_cn / q_cn. Where a class is so far behind that its terms underflow, they are
    formed on their own.
    """

    def __init__(self, block: Prepared) -> None:
        self.block, dtype = block, block.dtype
        L, K = block.kernels.weights.shape
        self.evaluator = block.evaluator(np.zeros((1, K)))
        self.weights = block.kernels.weights.astype(dtype)
        self.sums = np.zeros((K, block.n_rows))
        self.masses = np.zeros((2, L, K))
        self.scatter: FloatArray = np.zeros(())
        self.pending: Pending | None = None
        self.terms: Terms
        self.terms_of: FloatArray  # e, (K, n)
        self.inverse: FloatArray  # 1 / q, (L, n); zero where terms are lost
        self.lost: list[tuple[int, NDArray[np.intp], FloatArray]]

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> FloatArray:
        X = X.astype(self.block.dtype, copy=False)
        self.terms = self.evaluator.evaluate(X, np.array([0, X.shape[1]]), scratch)
        values = self.terms.values
        peak = values.max(axis=0)
        e = values - peak
        exp_in_place(e)
        q = self.weights @ e
        far = q < FAR_BEHIND[q.dtype]
        with np.errstate(divide="ignore"):
            log_q = np.add(peak, np.log(q), dtype=np.float64)
            self.inverse = np.divide(1.0, q, out=np.zeros_like(q), where=~far)
        self.terms_of, self.lost = e, []
        for c in np.flatnonzero(far.any(axis=1)).tolist():
            n = np.flatnonzero(far[c])
            own = np.ascontiguousarray(values[:, n], dtype=np.float64)
            own += self.block.log_weights[c][:, None]
            log_q[c, n] = softmax_in_place(own)
            self.lost.append((c, n, own))
        return log_q + self.terms.common

    def absorb(self, weights: TileTarget) -> None:
        assert weights.plus is not None
        e, pi, target = self.terms_of, self.block.kernels.weights, weights.plus
        for masses, part in zip(self.masses, (weights.plus, weights.minus), strict=True):
            if part is None:
                continue
            masses += pi * ((part * self.inverse).astype(e.dtype) @ e.T)
            for c, n, own in self.lost:
                masses[c] += own @ part[c, n]
        if weights.minus is not None:
            target = target - weights.minus
        W = e * (self.weights.T @ (target * self.inverse).astype(e.dtype))  # (K, n)
        for c, n, own in self.lost:
            W[:, n] += (own * target[c, n]).astype(e.dtype)
        found = self.evaluator.collect(self.terms, W, weights.balance)
        self.sums += found.phi[:, : self.block.n_rows]
        self.scatter = self.scatter + found.scatter
        self.pending = merge_pending(self.pending, found.pending)

    @property
    def statistics(self) -> Statistics:
        gained, lost = self.masses
        return Statistics(gained, lost, self.sums, self.scatter, self.pending)
