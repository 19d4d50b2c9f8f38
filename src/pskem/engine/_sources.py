"""Where samples come from: batches that are whole in themselves, and one verb, ``fold``.

A source applies a function to every batch and merges what it returns, in an order that the data
alone decide. Whatever the engine computes from samples is such a fold: it never holds all features
of all samples. Arrays in memory are one source; others are made of pieces that are read anew in
every pass (``_pieces``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise, product
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pskem.engine._coordinates import Coordinates, standardise
from pskem.engine._gaps import distinct_patterns
from pskem.engine._parallel import Mapper
from pskem.structures import FloatArray

__all__ = [
    "Additive",
    "ArraySource",
    "Batch",
    "Divisible",
    "Gathered",
    "Source",
    "Tile",
    "Total",
    "cut",
    "features_first",
    "repeats",
    "take",
    "tile_size",
]

#: Samples per tile, for blocks of at most so many features, and for larger ones.
TILE_SIZES = ((16, 4096), (48, 2048), (112, 512))
SMALLEST_TILE = 256
#: Samples of a batch, at most, and how many batches there should be at least, so that threads
#: finish together.
BATCH = 8192
MIN_BATCHES = 32
#: Samples that are put features first at a time: they should stay in cache.
TURNED = 512
#: Batches whose results are kept until they are merged.
AT_A_TIME = 128
#: Weights are whole numbers if they are so closely.
WHOLE = 1e-6


class Batch(NamedTuple):
    """Some samples, sorted by class.

    X : one array (m, n) per block, features first, NaN where there are gaps
    bounds : (L + 1,), where each class begins
    first : place of the first sample in the source, if that is in memory; elsewhere samples have
        no places
    weights : (n,), how much each sample counts; None if all count alike
    """

    X: tuple[FloatArray, ...]
    bounds: NDArray[np.intp]
    first: int = 0
    weights: FloatArray | None = None

    @property
    def n_samples(self) -> int:
        return int(self.bounds[-1])

    @property
    def labels(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))

    @property
    def known_weights(self) -> FloatArray:
        """The weights, (n,), also if all are one."""
        return np.ones(self.n_samples) if self.weights is None else self.weights


class Additive(Protocol):
    """What can be summed over batches."""

    def merge(self, other: Self, /) -> Self:
        """The same for the samples of both, in this order."""
        ...


T = TypeVar("T", bound=Additive)


class Source(Protocol):
    """Samples in batches."""

    @property
    def counts(self) -> NDArray[np.intp]:
        """Samples of each class, (L,)."""
        ...

    @property
    def masses(self) -> FloatArray:
        """What the samples of each class count, (L,)."""
        ...

    @property
    def dtype(self) -> np.dtype[np.floating]:
        """Precision of the samples."""
        ...

    @property
    def patterns(self) -> Sequence[NDArray[np.bool_] | None]:
        """The patterns of gaps in each block, (V, m); None for a block without gaps."""
        ...

    def fold(self, function: Callable[[Batch], T]) -> T:
        """Apply the function to every batch and merge the results in a fixed order."""
        ...


class Divisible:
    """A function whose work on a batch can be done in parts, at the same time."""

    def divide(self) -> Sequence[Callable[[Batch], Any]]:
        """Functions that do the parts."""
        raise NotImplementedError

    def join(self, totals: Sequence[Any]) -> Any:
        """The whole, from what the parts have summed up to."""
        raise NotImplementedError


def _apply(function: Callable[[Batch], T], batch: Batch) -> T:
    return function(batch)


class Total(NamedTuple):
    """Arrays that add up."""

    arrays: tuple[FloatArray, ...]

    def merge(self, other: Total) -> Total:
        return Total(tuple(a + b for a, b in zip(self.arrays, other.arrays, strict=True)))


class Gathered(NamedTuple):
    """Arrays of some samples, samples last, one tuple of arrays per batch."""

    parts: tuple[tuple[NDArray[Any], ...], ...]

    def merge(self, other: Gathered) -> Gathered:
        return Gathered(self.parts + other.parts)

    @property
    def arrays(self) -> list[NDArray[Any]]:
        """The arrays of all samples."""
        return [np.concatenate(column, axis=-1) for column in zip(*self.parts, strict=True)]


def repeats(weights: FloatArray) -> NDArray[np.intp]:
    """How often each of several different rows stands there, from its weight, (n,).

    Whole numbers without a common divisor, perhaps in other units, are repeats of the rows. Other
    weights say how much a row counts, not how often it is there: then each stands there once.
    """
    for unit in (1.0, weights.min(initial=np.inf)):
        whole = np.round(weights / unit)
        if np.all(np.abs(weights / unit - whole) <= WHOLE * whole):
            counts = whole.astype(np.intp)
            return counts // max(1, int(np.gcd.reduce(counts)))
    return np.ones(len(weights), dtype=np.intp)


def take(places: Sequence[tuple[int, NDArray[np.intp]]], batch: Batch) -> Gathered:
    """Samples (m, n), classes (n,) and weights (n,) of some blocks, by places in the source.

    places : blocks, and the places wanted of each, sorted
    """
    labels, weights = batch.labels, batch.known_weights
    found: list[NDArray[Any]] = []
    for block, wanted in places:
        low, high = np.searchsorted(wanted, (batch.first, batch.first + batch.n_samples))
        here = wanted[low:high] - batch.first
        found += [batch.X[block][:, here], labels[here], weights[here]]
    return Gathered((tuple(found),))


class Tile(NamedTuple):
    """A range of the samples of a batch that is worked on in one go.

    classes : (c,), the classes in it
    bounds : (c + 1,), where each of them begins, counted from ``start``
    """

    start: int
    stop: int
    classes: tuple[int, ...]
    bounds: NDArray[np.intp]

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)


def tile_size(m: int) -> int:
    """Samples of a tile: phi has about m^2 / 2 rows and should stay in cache."""
    return next((size for most, size in TILE_SIZES if m <= most), SMALLEST_TILE)


def cut(bounds: NDArray[np.intp], size: int) -> list[Tile]:
    """Tiles of at most so many samples, from where each class begins, (L + 1,).

    A class that fills more than half of a tile has its own; smaller ones share.
    """
    ends = bounds.tolist()
    tiles: list[Tile] = []
    pending: list[int] = []

    def flush() -> None:
        if pending:
            low, high = ends[pending[0]], ends[pending[-1] + 1]
            edges = bounds[[*pending, pending[-1] + 1]] - low
            tiles.append(Tile(low, high, tuple(pending), edges))
            pending.clear()

    for j, (low, high) in enumerate(pairwise(ends)):
        n = high - low
        if 2 * n > size or (pending and high - ends[pending[0]] > size):
            flush()
        if 2 * n > size:
            pieces = -(-n // size)
            edges = [low + i * n // pieces for i in range(pieces + 1)]
            tiles += [Tile(a, b, (j,), np.array([0, b - a])) for a, b in pairwise(edges)]
        elif n > 0:
            pending.append(j)
    flush()
    return tiles


def features_first(
    X: FloatArray, order: NDArray[np.intp], blocks: Iterable[NDArray[np.intp]]
) -> list[FloatArray]:
    """Rows of X (N, M) in the given order, as one array (m, N) per block."""
    blocks = list(blocks)
    features = np.concatenate(blocks)
    data = np.empty((len(features), len(order)), dtype=X.dtype)
    if X.flags.c_contiguous:
        as_they_are = np.array_equal(features, np.arange(X.shape[1]))
        for low in range(0, len(order), TURNED):
            rows = X.take(order[low : low + TURNED], axis=0)
            data[:, low : low + TURNED] = rows.T if as_they_are else rows[:, features].T
    else:  # column by column
        for row, feature in zip(data, features, strict=True):
            np.take(X[:, feature], order, out=row, mode="clip")  # which needs no buffer
    ends = np.cumsum([len(block) for block in blocks])
    return np.split(data, ends[:-1])


class ArraySource:
    """Samples in memory, sorted by class, worked on by threads.

    The data alone decide where batches begin and end, so results have the same bits for every
    number of threads.

    Parameters
    ----------
    X : one array (m, N) per block
    bounds : (L + 1,), where each class begins
    parallel_map : what applies a function to several items
    weights : (N,) or None
    """

    def __init__(
        self,
        X: Sequence[FloatArray],
        bounds: NDArray[np.intp],
        parallel_map: Mapper,
        weights: FloatArray | None = None,
    ) -> None:
        self.X = tuple(X)
        self.bounds = bounds
        self.counts = np.diff(bounds)
        self.weights = weights
        self.masses = self.counts.astype(np.float64)
        if weights is not None:
            sums = np.append(0.0, np.cumsum(weights))
            self.masses = np.diff(sums[bounds])
        self.patterns = [distinct_patterns(part) for part in self.X]
        self._map = parallel_map
        size = tile_size(max(len(part) for part in self.X))
        tiles = cut(bounds, size)
        together = max(1, min(BATCH // size, len(tiles) // MIN_BATCHES))
        groups = [tiles[i : i + together] for i in range(0, len(tiles), together)]
        self._batches = [self._batch(group[0].start, group[-1].stop) for group in groups]

    @classmethod
    def arrange(
        cls,
        X: FloatArray,
        labels: NDArray[np.intp],
        order: NDArray[np.intp],
        blocks: Iterable[NDArray[np.intp]],
        n_classes: int,
        parallel_map: Mapper,
        weights: FloatArray | None = None,
    ) -> Self:
        """Rows of X (N, M) in the given order, sorted by class, with weights in that order.

        This is the one copy of the data that a fit makes.
        """
        bounds = np.searchsorted(labels[order], np.arange(n_classes + 1)).astype(np.intp)
        return cls(features_first(X, order, blocks), bounds, parallel_map, weights)

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self.X[0].dtype

    def fold(self, function: Callable[[Batch], T]) -> T:
        whole = function if isinstance(function, Divisible) else None
        parts = [function] if whole is None else whole.divide()
        totals: list[Any] = [None] * len(parts)
        tasks = list(product(enumerate(parts), self._batches))
        # Some at a time: what all batches return may take more memory than the batches in work.
        for low in range(0, len(tasks), AT_A_TIME):
            places, batches = zip(*tasks[low : low + AT_A_TIME], strict=True)
            found = self._map(_apply, [part for _, part in places], batches)
            for (i, _), result in zip(places, found, strict=True):
                totals[i] = result if totals[i] is None else totals[i].merge(result)
        return totals[0] if whole is None else whole.join(totals)

    def divide(self) -> tuple[Self, Self]:
        """The samples of all classes but the last, and those of the last, as views.

        The last class is of samples whose class nobody knows; they come with as many classes, all
        of them in the first.
        """
        n, L = int(self.bounds[-2]), len(self.bounds) - 2
        parts = [part[:, :n] for part in self.X], [part[:, n:] for part in self.X]
        weights = (None, None) if self.weights is None else (self.weights[:n], self.weights[n:])
        unknown = np.minimum(np.arange(L + 1), 1) * (int(self.bounds[-1]) - n)
        bounds = self.bounds[:-1], unknown
        one, two = (
            type(self)(X, edges, self._map, some)
            for X, edges, some in zip(parts, bounds, weights, strict=True)
        )
        return one, two

    def standardise(self, coordinates: Sequence[Coordinates]) -> Self:
        """The same samples in these coordinates. Overwrites the arrays."""
        standardise(self.X, coordinates)
        return self

    def _batch(self, start: int, stop: int) -> Batch:
        bounds = np.clip(self.bounds, start, stop) - start
        weights = None if self.weights is None else self.weights[start:stop]
        if weights is not None and (weights == 1.0).all():
            weights = None
        return Batch(tuple(part[:, start:stop] for part in self.X), bounds, start, weights)
