"""One pass over samples: what they sum up to under the kernels and a target over the classes.

A target t gives every sample a weight for each class. Block r's responsibilities are then

    w_nk = sum_c t_nc pi_kc N_k(x_n) / q_rc(x_n)

and everything that training needs are the sums of phi(x_n) under them. Where features are missing,
the sums are those of the observed ones, lifted to the expected sums of all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.engine._evaluators import Scratch
from pskem.engine._kernels import Prepared
from pskem.engine._moments import Moments, lift
from pskem.engine._sources import Batch, Divisible, Tile
from pskem.structures import FloatArray, SecondMoments

__all__ = ["Accumulator", "Statistics", "Summarise", "Summary", "Target", "TileTarget"]


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
        before_x = self.sums.shape[1] - prepared.kernels.means.shape[1]
        masses = self.gained.sum(axis=0)
        if self.lost.ndim:
            masses = masses - self.lost.sum(axis=0)
        second = SecondMoments(self.sums[:, :before_x], self.scatter)
        return Moments(masses, self.sums[:, before_x:], second, prepared.frame)

    def lift(self, marginal: Prepared, whole: Prepared, observed: NDArray[np.bool_]) -> Statistics:
        """The statistics of all features, (m,), from those of the observed ones."""
        gaussians, frame = whole.kernels.gaussians, whole.frame
        lifted = lift(whole.structure, self.moments(marginal), gaussians, observed, frame)
        sums = np.hstack([lifted.second.own, lifted.first])
        return Statistics(self.gained, self.lost, sums, lifted.second.common)


class Summary(NamedTuple):
    """Statistics of every block, and what the target is worth: of each block, or of all at once."""

    blocks: tuple[Statistics, ...]
    value: FloatArray

    def merge(self, other: Summary) -> Summary:
        blocks = (a.merge(b) for a, b in zip(self.blocks, other.blocks, strict=True))
        return Summary(tuple(blocks), self.value + other.value)


class TileTarget(NamedTuple):
    """A target on a tile: its positive and its negative part, and their balance.

    For one's own class plus is (n,), or None for all ones; else plus and minus are (L, n). There
    may be no negative part.
    """

    plus: FloatArray | None
    minus: FloatArray | None
    balance: FloatArray | float


class Accumulator(Protocol):
    """A block as a target sees it, and what has been summed up so far."""

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> FloatArray:
        """Look at a tile (m, n); the log likelihoods of the classes that the target asks for."""
        ...

    def absorb(self, weights: TileTarget) -> None:
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

    def accumulator(self, block: Prepared, classes: tuple[int, ...]) -> Accumulator:
        """What evaluates a block for samples of these classes."""
        ...

    def weigh(
        self, tile: Tile, log_q: Sequence[FloatArray], weights: FloatArray | None
    ) -> tuple[TileTarget, float]:
        """The target on a tile, and what it is worth; samples may have weights (n,)."""
        ...


@dataclass(frozen=True, eq=False, repr=False)
class Summarise(Divisible):
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
        if len(self.blocks) > 1 and not self.target.couples:
            return self.join([part(batch) for part in self.divide()])
        here = slice(self.first, self.first + len(self.blocks))
        if batch.observed is None:
            return _sum_up(self.blocks, self.target, batch, batch.X[here])
        observed = batch.observed[here]
        marginals = [b.marginal(seen) for b, seen in zip(self.blocks, observed, strict=True)]
        found = _sum_up(marginals, self.target, batch, batch.X[here])
        lifted = map(Statistics.lift, found.blocks, marginals, self.blocks, observed)
        return found._replace(blocks=tuple(lifted))


def _sum_up(
    blocks: Sequence[Prepared], target: Target, batch: Batch, parts: Sequence[FloatArray]
) -> Summary:
    """The statistics of blocks on a batch, of which each has a part (m, n)."""
    scratches = [Scratch() for _ in blocks]
    found: list[list[Statistics]] = []
    value = 0.0
    for classes, tiles in groupby(target.tiles(batch.bounds, blocks), lambda tile: tile.classes):
        sums = [target.accumulator(block, classes) for block in blocks]
        for tile in tiles:
            log_q = [
                block.evaluate(X[:, tile.rows], tile.bounds, scratch)
                for block, X, scratch in zip(sums, parts, scratches, strict=True)
            ]
            weights = None if batch.weights is None else batch.weights[tile.rows]
            weighed, worth = target.weigh(tile, log_q, weights)
            value += worth
            for block in sums:
                block.absorb(weighed)
        found.append([block.statistics for block in sums])
    if not found:  # a batch without samples
        found = [[target.accumulator(block, ()).statistics for block in blocks]]
    totals = (reduce(Statistics.merge, column) for column in zip(*found, strict=True))
    return Summary(tuple(totals), np.array([value]))
