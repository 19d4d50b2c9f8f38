"""One pass over samples: what they sum up to under the kernels and a target over the classes.

A target t gives every sample a weight for each class. Block r's responsibilities are then

    w_nk = sum_c t_nc pi_kc N_k(x_n) / q_rc(x_n)

and everything that training needs are the sums of phi(x_n) under them. EM's target is the sample's
own class (:class:`OwnClass`). Discriminative passes have the own class minus the posterior of the
classes (:class:`Contrast`), which couples the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import log_softmax

from pskem.engine._evaluators import Scratch, Terms
from pskem.engine._exponentials import exp_in_place, softmax_in_place
from pskem.engine._kernels import Prepared
from pskem.engine._moments import Moments
from pskem.engine._sources import Batch, Tile, cut, tile_size
from pskem.structures import FloatArray, SecondMoments

__all__ = ["Contrast", "Criterion", "OwnClass", "Statistics", "Summarise", "Summary", "Target"]

#: Numbers of a tile's largest arrays that should stay in cache, when all blocks are evaluated.
TILE_NUMBERS = 2**21


class Statistics(NamedTuple):
    """What some samples sum up to in one block; additive.

    gained, lost : (L, K), masses of the kernels in each class under the positive and the negative
        part of the target; a single zero where there is no such part
    sums : (K, d), phi
    scatter : (m, m), z z' where the covariance is common to all kernels, else a single zero
    """

    gained: FloatArray
    lost: FloatArray
    sums: FloatArray
    scatter: FloatArray

    def merge(self, other: Statistics) -> Statistics:
        return Statistics(*(a + b for a, b in zip(self, other, strict=True)))

    def moments(self, prepared: Prepared) -> Moments:
        """The moments that the kernels of the pass have taken."""
        m = prepared.kernels.means.shape[1]
        masses = self.gained.sum(axis=0)
        if self.lost.ndim:
            masses = masses - self.lost.sum(axis=0)
        second = SecondMoments(self.sums[:, :-m], self.scatter)
        return Moments(masses, self.sums[:, -m:], second, prepared.frame)


class Summary(NamedTuple):
    """Statistics of every block, and what the target is worth: of each block, or of all at once."""

    blocks: tuple[Statistics, ...]
    value: FloatArray

    def merge(self, other: Summary) -> Summary:
        blocks = (a.merge(b) for a, b in zip(self.blocks, other.blocks, strict=True))
        return Summary(tuple(blocks), self.value + other.value)


class Weights(NamedTuple):
    """A target on a tile: its positive and its negative part, and their balance.

    For one's own class plus is (n,), or None for all ones; else plus and minus are (L, n). There
    may be no negative part.
    """

    plus: FloatArray | None
    minus: FloatArray | None
    balance: FloatArray | float


class View(Protocol):
    """A block as a target sees it, and what has been summed up so far."""

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> FloatArray:
        """Look at a tile (m, n); the log likelihoods of the classes that the target asks for."""
        ...

    def absorb(self, weights: Weights) -> None:
        """Add up the tile that was looked at last."""
        ...

    @property
    def statistics(self) -> Statistics: ...


class Target(Protocol):
    """A distribution over the classes for every sample, perhaps with negative parts."""

    @property
    def couples(self) -> bool:
        """Whether it depends on all blocks at once."""
        ...

    def tiles(self, bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
        """How a batch is cut."""
        ...

    def view(self, block: Prepared, classes: tuple[int, ...]) -> View:
        """What evaluates a block for samples of these classes."""
        ...

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[Weights, float]:
        """The target on a tile, and what it is worth; samples may have weights (n,)."""
        ...


@dataclass(frozen=True)
class Summarise:
    """The statistics of a batch: what is folded over a source in a pass.

    Blocks that no target couples can be summed up at the same time; ``first`` is the place of the
    first of these blocks in a batch.
    """

    blocks: tuple[Prepared, ...]
    target: Target
    first: int = 0

    def divide(self) -> list[Summarise]:
        if self.target.couples:
            return [self]
        places = enumerate(self.blocks, self.first)
        return [Summarise((block,), self.target, r) for r, block in places]

    def join(self, totals: Sequence[Summary]) -> Summary:
        blocks = tuple(statistics for total in totals for statistics in total.blocks)
        return Summary(blocks, np.concatenate([total.value for total in totals]))

    def __call__(self, batch: Batch) -> Summary:
        parts = batch.X[self.first : self.first + len(self.blocks)]
        pairs = list(zip(self.blocks, parts, strict=True))
        groups = [pairs] if self.target.couples else [[pair] for pair in pairs]
        found = [_sum_up(group, batch, self.target) for group in groups]
        blocks = [statistics for group, _ in found for statistics in group]
        return Summary(tuple(blocks), np.array([value for _, value in found]))


def _sum_up(
    blocks: Sequence[tuple[Prepared, FloatArray]], batch: Batch, target: Target
) -> tuple[list[Statistics], float]:
    """Statistics of blocks, and the target's value, on a batch."""
    prepared = [block for block, _ in blocks]
    scratches = [Scratch() for _ in blocks]
    totals: list[list[Statistics]] = [[] for _ in blocks]
    value = 0.0
    for classes, tiles in groupby(target.tiles(batch.bounds, prepared), lambda tile: tile.classes):
        views = [target.view(block, classes) for block in prepared]
        for tile in tiles:
            log_q = [
                view.evaluate(X[:, tile.rows].astype(block.dtype, copy=False), tile.bounds, scratch)
                for view, (block, X), scratch in zip(views, blocks, scratches, strict=True)
            ]
            sample_weights = None if batch.weights is None else batch.weights[tile.rows]
            weights, worth = target.weigh(tile, log_q, sample_weights)
            value += worth
            for view in views:
                view.absorb(weights)
        for total, view in zip(totals, views, strict=True):
            total.append(view.statistics)
    if not totals[0]:  # a batch without samples
        totals = [[target.view(block, ()).statistics] for block in prepared]
    return [reduce(Statistics.merge, total) for total in totals], value


class OwnClass(NamedTuple):
    """The sample's own class: EM. Its value is log p(x|c), for each block."""

    couples: bool = False

    def tiles(self, bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
        return cut(bounds, max(tile_size(block.kernels.means.shape[1]) for block in blocks))

    def view(self, block: Prepared, classes: tuple[int, ...]) -> View:
        return _OwnClassView(block, classes)

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[Weights, float]:
        (values,) = log_q
        counted = values if weights is None else weights * values
        balance: FloatArray | float = 1.0 if weights is None else weights
        return Weights(weights, None, balance), float(np.sum(counted, dtype=np.float64))


class _OwnClassView:
    """Kernels with weight in the classes of a tile, each sample under its own class."""

    def __init__(self, block: Prepared, classes: tuple[int, ...]) -> None:
        self.block, self.classes = block, classes
        self.evaluator = block.evaluator(block.log_weights[list(classes)])
        self.sums = np.zeros((len(self.evaluator.active), block.n_rows + len(classes)))
        self.scatter: FloatArray = np.zeros(())
        self.terms: Terms

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> FloatArray:
        self.terms = self.evaluator.evaluate(X, bounds, scratch)
        return softmax_in_place(self.terms.values) + self.terms.common  # eq. (skemw)

    def absorb(self, weights: Weights) -> None:
        W = self.terms.values
        if weights.plus is not None:
            W *= weights.plus.astype(W.dtype, copy=False)
        self.sums += self.evaluator.collect(self.terms, W)
        self.scatter = self.scatter + _scatter(self.block, self.terms, weights.balance)

    @property
    def statistics(self) -> Statistics:
        (L, K), d = self.block.kernels.weights.shape, self.block.n_rows
        active = self.evaluator.active
        if len(active) == K and len(self.classes) == L:
            return Statistics(self.sums[:, d:].T, np.zeros(()), self.sums[:, :d], self.scatter)
        sums, gained = np.zeros((K, d)), np.zeros((L, K))
        sums[active] = self.sums[:, :d]
        gained[np.ix_(np.array(self.classes, dtype=np.intp), active)] = self.sums[:, d:].T
        return Statistics(gained, np.zeros(()), sums, self.scatter)


def _scatter(block: Prepared, terms: Terms, balance: FloatArray | float) -> FloatArray:
    """z z' summed over a tile, where the covariance is common to all kernels."""
    if block.natural.whitener is None or (np.isscalar(balance) and balance == 0.0):
        return np.zeros(())
    z = terms.phi[: block.n_rows]
    return ((z if np.isscalar(balance) else z * balance) @ z.T).astype(np.float64)


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
    """One's own class minus the posterior of the classes. Its value is log p(c|x)."""

    criterion: Criterion
    couples: bool = True

    def tiles(self, bounds: NDArray[np.intp], blocks: Sequence[Prepared]) -> Iterable[Tile]:
        numbers = sum(
            block.n_rows + len(block.kernels.means) + np.count_nonzero(block.kernels.weights)
            for block in blocks
        )
        size = int(np.clip(TILE_NUMBERS // numbers, 32, 2048))
        classes = tuple(range(len(bounds) - 1))
        for low in range(0, int(bounds[-1]), size):
            high = min(low + size, int(bounds[-1]))
            yield Tile(low, high, classes, np.clip(bounds, low, high) - low)

    def view(self, block: Prepared, classes: tuple[int, ...]) -> View:
        return _EveryClassView(block)

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[Weights, float]:
        log_posterior = self.criterion.log_posterior(log_q)
        labels = np.repeat(np.arange(len(log_posterior)), np.diff(tile.bounds))
        # Samples of a class that has no prior are wrong whatever is done, and teach nothing.
        counted = np.isfinite(self.criterion.log_prior)[labels].astype(np.float64)
        own = (labels, np.arange(len(labels)))
        if weights is not None:
            counted *= weights
        truth = np.zeros_like(log_posterior)
        truth[own] = counted
        value = float((counted * np.where(counted > 0.0, log_posterior[own], 0.0)).sum())
        return Weights(truth, np.exp(log_posterior) * counted, 0.0), value


class _EveryClassView:
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
        return np.add(peak, np.log(totals), dtype=np.float64)

    def absorb(self, weights: Weights) -> None:
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
        self.sums += self.evaluator.collect(self.terms, W)[:, : self.block.n_rows]
        self.scatter = self.scatter + _scatter(self.block, self.terms, weights.balance)

    @property
    def statistics(self) -> Statistics:
        gained, lost = (np.zeros(self.block.kernels.weights.shape) for _ in range(2))
        gained[self.classes, self.rows], lost[self.classes, self.rows] = self.masses
        return Statistics(gained, lost, self.sums, self.scatter)
