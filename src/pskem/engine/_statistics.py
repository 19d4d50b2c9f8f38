"""One pass over samples: what they sum up to under the kernels and a target over the classes.

A target t gives every sample a weight for each class. Block r's responsibilities are then

    w_nk = sum_c t_nc pi_kc N_k(x_n) / q_rc(x_n)

and everything that training needs are the sums of phi(x_n) under them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import groupby
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.engine._evaluators import Pending, Scratch, Sums
from pskem.engine._gaps import fill
from pskem.engine._kernels import Prepared
from pskem.engine._moments import Moments
from pskem.engine._parallel import Mapper
from pskem.engine._sources import Batch, Divisible, Source, Tile
from pskem.structures import FloatArray, SecondMoments

__all__ = [
    "Accumulator",
    "Statistics",
    "Summarise",
    "Summary",
    "Target",
    "TileTarget",
    "merge_pending",
    "summarise",
]


class Statistics(NamedTuple):
    """What some samples sum up to in one block; additive.

    gained, lost : (L, K), masses of the kernels in each class under the positive and the negative
        part of the target; a single zero where there is no such part
    sums : (K, d), phi
    scatter : (m, m), z z' where the covariance is common to all kernels, else a single zero
    pending : sums of samples with gaps, for each pattern, that are not among the sums yet
    """

    gained: FloatArray
    lost: FloatArray
    sums: FloatArray
    scatter: FloatArray
    pending: Pending | None = None

    def merge(self, other: Statistics) -> Statistics:
        return Statistics(
            self.gained + other.gained,
            self.lost + other.lost,
            self.sums + other.sums,
            self.scatter + other.scatter,
            merge_pending(self.pending, other.pending),
        )

    def moments(self, prepared: Prepared) -> Moments:
        """The moments that the kernels of the pass have taken."""
        before_x = self.sums.shape[1] - prepared.kernels.means.shape[1]
        masses = self.gained.sum(axis=0)
        if self.lost.ndim:
            masses = masses - self.lost.sum(axis=0)
        second = SecondMoments(self.sums[:, :before_x], self.scatter)
        return Moments(masses, self.sums[:, before_x:], second, prepared.frame)


def merge_pending(one: Pending | None, other: Pending | None) -> Pending | None:
    """Sums for each pattern, of the samples of both."""
    if one is None or other is None:
        return other if one is None else one
    found = dict(one)
    for key, sums in other.items():
        found[key] = found[key] + sums if key in found else sums
    return found


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

    @property
    def task_name(self) -> str:
        """What it is, to those who watch a cluster."""
        return f"pass-{type(self.target).__name__.lower()}"

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
        return _sum_up(self.blocks, self.target, batch, batch.X[here])


def summarise(
    source: Source, blocks: tuple[Prepared, ...], target: Target, parallel_map: Mapper
) -> Summary:
    """The statistics of all samples of a source."""
    found = source.fold(Summarise(blocks, target))
    if all(statistics.pending is None for statistics in found.blocks):
        return found
    return found._replace(blocks=_completed(found.blocks, blocks, parallel_map))


def _completed(
    found: Sequence[Statistics], blocks: Sequence[Prepared], parallel_map: Mapper
) -> tuple[Statistics, ...]:
    """The statistics with nothing pending: what samples with gaps add, some kernels at a time."""
    tasks: dict[tuple[int, bytes], dict[bytes, FloatArray]] = {}
    for r, statistics in enumerate(found):
        for (pattern, kernels), part in (statistics.pending or {}).items():
            tasks.setdefault((r, kernels), {})[pattern] = part

    def make(task: tuple[int, bytes]) -> Sums:
        block, kernels = blocks[task[0]], np.frombuffer(task[1], dtype=np.intp)
        assert block.gaps is not None
        return fill(block.structure, block.gaps, block.frame.whitener, tasks[task], kernels)

    sums = [statistics.sums.copy() for statistics in found]
    scatters = [statistics.scatter for statistics in found]
    for (r, kernels), whole in zip(tasks, parallel_map(make, list(tasks)), strict=True):
        sums[r][np.frombuffer(kernels, dtype=np.intp)] += whole.phi
        scatters[r] = scatters[r] + whole.scatter
    return tuple(
        statistics._replace(sums=whole, scatter=scatter, pending=None)
        for statistics, whole, scatter in zip(found, sums, scatters, strict=True)
    )


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
