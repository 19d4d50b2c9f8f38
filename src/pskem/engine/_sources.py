"""Training data as the engine wants it: ordered, standardised, features first, in chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

__all__ = [
    "Chunk",
    "Coordinates",
    "Samples",
    "arrange",
    "canonical_order",
    "cut",
    "locate",
    "measure",
    "standardise",
]

#: Samples that are worked on at a time, in prediction and preparation.
CHUNK = 2048
#: Samples per chunk in training, for blocks of at most so many features, and for larger ones.
CHUNK_SIZES = ((16, 4096), (48, 2048), (112, 512))
SMALLEST_CHUNK = 256
#: Samples that one thread trains on in one go, at most, and how many such tasks a block should
#: have at least, so that threads finish together. The data alone decide, so that the order of all
#: sums does not depend on the threads.
TASK = 8192
MIN_TASKS = 32


def chunk_size(m: int) -> int:
    """Samples per chunk in training: phi has about m^2 / 2 rows and should stay in cache."""
    return next((size for most, size in CHUNK_SIZES if m <= most), SMALLEST_CHUNK)


class Coordinates(NamedTuple):
    """Standardised coordinates of a block, (x - shift) / scale, with shift and scale (m,)."""

    shift: FloatArray
    scale: FloatArray

    @property
    def log_volume(self) -> float:
        """log |dx / dx_standardised|: subtract it from a log density of standardised x."""
        return float(np.log(self.scale).sum())


class Chunk(NamedTuple):
    """A range of samples, sorted by class.

    start, stop : the range
    classes : (c,), the classes in it
    bounds : (c + 1,), where each of them begins, counted from ``start``
    """

    start: int
    stop: int
    classes: NDArray[np.intp]
    bounds: NDArray[np.intp]


class Samples(NamedTuple):
    """All samples of one block, standardised and sorted by class.

    X : (m, N)
    bounds : (L + 1,), where each class begins
    tasks : the chunks, in groups that one thread works off in one go
    """

    X: FloatArray
    bounds: NDArray[np.intp]
    tasks: Sequence[Sequence[Chunk]]

    @property
    def n_samples(self) -> int:
        return self.X.shape[1]

    @property
    def chunks(self) -> Iterator[Chunk]:
        """The chunks, in order."""
        return chain.from_iterable(self.tasks)

    @property
    def labels(self) -> NDArray[np.intp]:
        return np.repeat(np.arange(len(self.bounds) - 1), np.diff(self.bounds))


def cut(bounds: NDArray[np.intp], size: int) -> list[list[Chunk]]:
    """Tasks of chunks of at most so many samples.

    A class that fills a chunk has its own; smaller ones share.
    """
    chunks: list[Chunk] = []
    pending: list[int] = []

    def flush() -> None:
        if pending:
            edges = bounds[[*pending, pending[-1] + 1]]
            chunks.append(Chunk(int(edges[0]), int(edges[-1]), np.array(pending), edges - edges[0]))
            pending.clear()

    for j, n in enumerate(np.diff(bounds)):
        if n > size or (pending and bounds[j + 1] - bounds[pending[0]] > size):
            flush()
        if n > size:
            edges = np.linspace(bounds[j], bounds[j + 1], -(-n // size) + 1).astype(int)
            chunks += [
                Chunk(int(low), int(high), np.array([j]), np.array([0, high - low]))
                for low, high in pairwise(edges)
            ]
        elif n > 0:
            pending.append(j)
    flush()
    per_task = max(1, min(TASK // size, len(chunks) // MIN_TASKS))
    return [chunks[i : i + per_task] for i in range(0, len(chunks), per_task)]


def canonical_order(X: FloatArray, labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """An order of the samples, by class and then by a hash of the row, that the rows alone decide.

    Everything random in a fit draws on this order, so a permutation of the rows of X, (N, M),
    does not change the fit. It is also the sorting by class that the engine needs.
    """
    key = np.zeros(len(X), dtype=np.uint64)
    for low in range(0, len(X), CHUNK):
        rows = np.add(X[low : low + CHUNK], 0.0, dtype=np.float64)  # -0.0 becomes 0.0
        bits = np.ascontiguousarray(rows.T).view(np.uint64)
        part = key[low : low + CHUNK]
        for column in bits:
            # The mixing steps of splitmix64 (Steele, Lea & Flood, 2014): every bit of the value
            # reaches every bit of the key, which a plain weighted sum does not give for floats
            # with short mantissas.
            part ^= column
            part += np.uint64(0x9E3779B97F4A7C15)
            part ^= part >> np.uint64(30)
            part *= np.uint64(0xBF58476D1CE4E5B9)
            part ^= part >> np.uint64(27)
            part *= np.uint64(0x94D049BB133111EB)
            part ^= part >> np.uint64(31)
    return np.lexsort((key, labels))


def arrange(
    X: FloatArray,
    labels: NDArray[np.intp],
    order: NDArray[np.intp],
    blocks: Sequence[NDArray[np.intp]],
    n_classes: int,
) -> list[Samples]:
    """The samples of each block, in the given order, which must be sorted by class.

    This is the one copy of the data, (N, M), that a fit makes; it is not standardised yet.
    """
    features = np.concatenate(blocks)
    data = np.empty((len(features), len(order)), dtype=X.dtype)
    for low in range(0, len(order), CHUNK):
        data[:, low : low + CHUNK] = X[order[low : low + CHUNK]][:, features].T
    bounds = np.searchsorted(labels[order], np.arange(n_classes + 1)).astype(np.intp)
    ends = np.cumsum([len(block) for block in blocks])
    parts = np.split(data, ends[:-1])
    return [Samples(part, bounds, cut(bounds, chunk_size(len(part)))) for part in parts]


def measure(X: FloatArray, common_scale: bool = False) -> Coordinates:
    """Mean and standard deviation of each feature of X (m, N), or one common scale for all.

    A constant feature has scale 1.
    """
    shift = np.empty(len(X), dtype=X.dtype)
    spread = np.empty(len(X))
    for a, row in enumerate(X):
        largest = float(np.abs(row).max())
        # Dividing by the largest value first keeps sums and squares of huge values finite.
        unit = largest or 1.0
        mean = float(np.mean(row / unit, dtype=np.float64)) * unit
        shift[a] = np.clip(mean, row.min(), row.max())
        deviation = row / unit - shift[a] / unit
        spread[a] = np.sqrt(np.mean(np.square(deviation, dtype=np.float64))) * unit
        if spread[a] <= 10 * np.finfo(X.dtype).eps * largest:
            spread[a] = 0.0
    if common_scale:
        unit = float(spread.max()) or 1.0
        spread[:] = np.sqrt(np.mean((spread / unit) ** 2)) * unit
    return Coordinates(shift, np.where(spread > 0.0, spread, 1.0))


def standardise(samples: Samples, coordinates: Coordinates) -> Samples:
    """The samples in these coordinates. Overwrites ``samples.X``."""
    for row, shift, scale in zip(samples.X, *coordinates, strict=True):
        row -= shift
        row /= scale
    return samples


#: Standardised values at prediction are cut off here, where squares are still finite. Beyond it
#: every sample is equally, and hopelessly, far from all kernels.
FARTHEST = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e12}


def locate(X: FloatArray, features: NDArray[np.intp], coordinates: Coordinates) -> FloatArray:
    """Rows of X (n, M) in the coordinates of a block: (m, n)."""
    with np.errstate(over="ignore"):
        part = X[:, features] - coordinates.shift.astype(X.dtype, copy=False)
        part /= coordinates.scale.astype(X.dtype, copy=False)
    far = FARTHEST[X.dtype]
    return np.ascontiguousarray(np.clip(part, -far, far).T)
