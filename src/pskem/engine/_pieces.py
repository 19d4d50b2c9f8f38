"""Rows in pieces: what lies in memory, in files or on a cluster, read as often as it is asked for.

A :class:`~pskem.engine.Source` gives batches that the engine computes with. Below it lie pieces of
rows, as they are read and before anything is known of classes, blocks or coordinates. Both have one
verb, ``fold``.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pskem.engine._allocation import given_back, kept_memory
from pskem.engine._parallel import Chain, Mapper, steps_of
from pskem.engine._sources import Additive
from pskem.structures import FloatArray

__all__ = [
    "ArrayPieces",
    "Mapped",
    "Piece",
    "Pieces",
    "fold_stream",
    "rows_at_a_time",
    "sum_of_squares",
]

#: Numbers of a piece, and the fewest and the most rows that it has.
NUMBERS = 3 * 2**17
FEWEST_ROWS, MOST_ROWS = 1024, 2**14

T = TypeVar("T", bound=Additive)


class Piece(NamedTuple):
    """Some samples as they were read.

    X : (n, M), NaN where there are gaps
    labels : (n,), places of the classes; -1 where nobody knows
    weights : (n,); None if all count alike
    """

    X: FloatArray
    labels: NDArray[np.intp]
    weights: FloatArray | None = None

    @property
    def counted(self) -> FloatArray:
        """The weights, also if all count alike."""
        return np.ones(len(self.labels)) if self.weights is None else self.weights

    def at(self, rows: NDArray[Any]) -> Piece:
        """Some of the samples."""
        weights = None if self.weights is None else self.weights[rows]
        return Piece(self.X[rows], self.labels[rows], weights)


class Pieces(Protocol):
    """Rows in pieces, whatever a piece is before it has become a :class:`Piece`."""

    def fold(self, function: Callable[[Any], T], parallel_map: Mapper) -> T:
        """Apply the function to every piece and merge the results in a fixed order."""
        ...


def rows_at_a_time(n_columns: int) -> int:
    """Rows of a piece of so many columns."""
    return int(np.clip(NUMBERS // max(1, n_columns), FEWEST_ROWS, MOST_ROWS))


def sum_of_squares(X: FloatArray) -> float:
    """Of all numbers of an array: a quick look at what is in it.

    It is NaN exactly if one is, and finite only if all are. Infinity may also mean huge numbers.
    """
    flat = X.ravel(order="K")
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.dot(flat, flat))


def fold_stream(function: Callable[[Any], T], items: Iterable[Any], parallel_map: Mapper) -> T:
    """Fold over items that are read one after the other."""
    total: T | None = None
    with given_back(), kept_memory:
        for found in parallel_map.stream(function, items):
            total = found if total is None else total.merge(found)
    if total is None:
        raise ValueError("There are no rows.")
    return total


@dataclass(frozen=True, eq=False)
class Mapped:
    """Pieces that a function makes of others."""

    pieces: Pieces
    function: Callable[[Any], Any]

    def fold(self, function: Callable[[Any], T], parallel_map: Mapper) -> T:
        return self.pieces.fold(Chain((self.function, *steps_of(function))), parallel_map)


@dataclass(frozen=True, eq=False)
class ArrayPieces:
    """Rows of arrays, in memory or in files that are mapped to it (numpy.memmap).

    A piece is a tuple of the same rows of all arrays; None stays None.
    """

    arrays: tuple[NDArray[Any] | None, ...]

    def fold(self, function: Callable[[Any], T], parallel_map: Mapper) -> T:
        return fold_stream(function, self._pieces(), parallel_map)

    def _pieces(self) -> Iterator[tuple[NDArray[Any] | None, ...]]:
        n = next(len(array) for array in self.arrays if array is not None)
        widths = [array[:1].size for array in self.arrays if array is not None]
        step = rows_at_a_time(max(widths))
        for low in range(0, max(n, 1), step):
            yield tuple(_read(array, low, low + step) for array in self.arrays)


def _read(array: NDArray[Any] | None, low: int, high: int) -> NDArray[Any] | None:
    """Some rows; those of a file are read now, and its memory is given back."""
    if not isinstance(array, np.memmap):
        return None if array is None else array[low:high]
    rows = np.array(array[low:high])
    mapped = getattr(array, "_mmap", None)
    # A copy on write ("c") would lose what was written.
    if array.mode == "r" and isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
        mapped.madvise(mmap.MADV_DONTNEED)
    return rows
