"""An order of samples that their values alone decide, on every machine; equal ones become one."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import CHUNK, pattern_keys
from pskem.structures import FloatArray

__all__ = [
    "ENOUGH_FOR_DEPENDENCE",
    "Rows",
    "canonical_order",
    "distinct",
    "representative",
    "together",
    "whole_again",
]

#: Samples that are enough to learn how features hang together.
ENOUGH_FOR_DEPENDENCE = 20_000

#: Of the 52 bits of a mantissa, those that the order of samples goes without, so that 10 are left;
#: and what is nothing beside the largest value of a row. Rounding reaches about 2^-48. A value lies
#: so close to the border between two rounded ones with a chance of about 2^-37.
DROPPED_BITS = 42
NEGLIGIBLE = 2.0**-40
#: Values are the same if they differ by less, relative to themselves or to the largest of the row.
SAME = 2.0**-44
SAME_AS_ZERO = 2.0**-49


class Rows(NamedTuple):
    """Rows of X, no two of them alike, and how much each counts; None if each counts as one."""

    places: NDArray[np.intp]
    weights: FloatArray | None

    @property
    def size(self) -> int:
        return len(self.places)

    @property
    def total(self) -> float:
        """What all rows count."""
        return float(self.size if self.weights is None else self.weights.sum())

    @property
    def counted(self) -> FloatArray:
        """The weights, also if each row counts as one."""
        return np.ones(self.size) if self.weights is None else self.weights

    def followed_by(self, others: Rows) -> Rows:
        """These and others."""
        if not others.size:
            return self
        alike = self.weights is None and others.weights is None
        places = np.concatenate([self.places, others.places])
        return Rows(places, None if alike else np.concatenate([self.counted, others.counted]))

    def times(self, factor: float | None) -> Rows:
        """The same rows, each of which counts so many times as much."""
        return self if factor in (None, 1.0) else Rows(self.places, self.counted * factor)

    def at(self, chosen: NDArray[np.intp] | slice) -> Rows:
        """Some of them."""
        weights = None if self.weights is None else self.weights[chosen]
        return Rows(self.places[chosen], weights)


def whole_again(values: FloatArray) -> FloatArray:
    """Values that would be whole numbers but for rounding, as these."""
    whole = np.round(values)
    return np.where(np.abs(values - whole) <= SAME * whole, whole, values)


def distinct(X: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None = None) -> Rows:
    """The different samples in canonical order, each with the sum of its weights, (N,).

    So a row that stands there three times, and one with a weight of 3, are the same from here on,
    whatever is drawn by lot later. Weights that are below one on average are scaled up to one: what
    they count in is then a matter of units, as where they sum to one.
    """
    order, twins = _sorted(X, labels)
    if not twins.any() and weights is None:
        return Rows(order, None)
    group = np.append(0, np.cumsum(~twins))
    counts = np.ones(len(order)) if weights is None else weights[order]
    counts = counts[np.lexsort((counts, group))]  # sums do not depend on the order of rows
    first = np.flatnonzero(np.append(True, ~twins))
    sums = np.add.reduceat(counts, first)
    sums = whole_again(sums / min(1.0, float(counts.mean())))
    return Rows(order[first], None if (sums == 1.0).all() else sums)


def together(rows: Rows, X: FloatArray, labels: NDArray[np.intp]) -> Rows:
    """The same rows, in each class those with the same gaps next to each other."""
    X = X[rows.places]
    if not np.isnan(X).any():
        return rows
    return rows.at(np.lexsort((*pattern_keys(X.T), labels[rows.places])))


def canonical_order(X: FloatArray, labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """An order of the samples, by class and then by a hash of the row, that the rows alone decide.

    Everything random in a fit draws on this order, so a permutation of the rows of X, (N, M),
    does not change the fit. It is also the sorting by class that the engine needs. Rows are
    compared by 3 digits, and by all only where these are the same: a matrix product that made X has
    other last bits on another processor. In single precision too few digits are left for that.
    """
    return _sorted(X, labels)[0]


def _sorted(X: FloatArray, labels: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The canonical order, and whether each row but the last in it is the same as the next.

    Up to rounding: otherwise it would decide how many different rows there are to draw from.
    """
    coarse = np.zeros(len(X), dtype=np.uint64)
    for low in range(0, len(X), CHUNK):
        columns = X[low : low + CHUNK].T.astype(np.float64, order="C")
        # What should be zero, but for rounding, is zero.
        sizes = np.abs(columns)
        columns *= sizes >= NEGLIGIBLE * np.fmax.reduce(sizes, axis=0, initial=0.0)
        _hash_columns(columns, coarse[low : low + CHUNK], DROPPED_BITS)
    order = np.lexsort((coarse, labels))
    same = (np.diff(coarse[order]) == 0) & (np.diff(labels[order]) == 0)
    if not same.any():
        return order, same
    exact = np.zeros(len(X), dtype=np.uint64)
    alike = order[np.append(same, False) | np.insert(same, 0, False)]
    for low in range(0, len(alike), CHUNK):
        part = alike[low : low + CHUNK]
        key = np.zeros(len(part), dtype=np.uint64)
        _hash_columns(X[part].T.astype(np.float64, order="C"), key)
        exact[part] = key
    order = np.lexsort((exact, coarse, labels))
    close = np.flatnonzero(same)
    for low in range(0, len(close), CHUNK):
        places = close[low : low + CHUNK]
        same[places] = _alike(X[order[places]], X[order[places + 1]])
    return order, same


def _alike(one: FloatArray, two: FloatArray) -> NDArray[np.bool_]:
    """Whether rows of two arrays (n, M) are the same but for what a processor's rounding may do."""
    sizes = np.maximum(np.abs(one), np.abs(two), dtype=np.float64)
    longest = np.fmax.reduce(sizes, axis=1, keepdims=True, initial=0.0)
    tolerance = np.fmax(SAME * sizes, SAME_AS_ZERO * longest)
    close: NDArray[np.bool_] = np.abs(one - two) <= tolerance
    close |= np.isnan(one) & np.isnan(two)
    return np.logical_and.reduce(close, axis=1)


def representative(order: NDArray[np.intp], most: int) -> NDArray[np.intp]:
    """So many rows at most, evenly spread over their canonical order.

    Within a class that order is by a hash, so all classes have their shares.
    """
    if len(order) <= most:
        return order
    return order[np.linspace(0, len(order) - 1, most).astype(np.intp)]


def _hash_columns(columns: FloatArray, key: NDArray[np.uint64], dropped: int = 0) -> None:
    """Mix values (M, n), which are overwritten, rounded by so many bits, into keys (n,)."""
    columns += 0.0  # -0.0 becomes 0.0
    np.copyto(columns, np.nan, where=np.isnan(columns))  # of which there are many
    bits = columns.view(np.uint64)
    if dropped:
        bits += np.uint64(1 << (dropped - 1))
        bits >>= np.uint64(dropped)
    for column in bits:
        # The mixing steps of splitmix64 (Steele, Lea & Flood, 2014): every bit of the value
        # reaches every bit of the key, which a plain weighted sum does not give for floats
        # with short mantissas.
        key ^= column
        key += np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(30)
        key *= np.uint64(0xBF58476D1CE4E5B9)
        key ^= key >> np.uint64(27)
        key *= np.uint64(0x94D049BB133111EB)
        key ^= key >> np.uint64(31)
