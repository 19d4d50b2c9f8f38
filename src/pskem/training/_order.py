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
    "exact_keys",
    "joined",
    "other_lots",
    "representative",
    "row_keys",
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
#: Bits of each value that lots are drawn by, and of all values of a row together, at least. Of a
#: billion rows, few share a lot that differ. Where features lie far from zero, more are needed.
BITS_OF_LOTS, BITS_OF_ROW, BITS_OF_FINE_LOTS = 16, 30, 40
#: Rows whose lots are made at a time.
CHUNK_OF_LOTS = 1024
#: The step of splitmix64: 2^64 divided by the golden ratio.
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


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
    rows = joined(X, labels, weights)
    if rows.weights is None:
        return rows
    sums = whole_again(rows.weights / min(1.0, float(rows.weights.sum()) / len(X)))
    return Rows(rows.places, None if (sums == 1.0).all() else sums)


def joined(X: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None = None) -> Rows:
    """The different samples in canonical order, each with the sum of its weights as they are."""
    order, twins = _sorted(X, labels)
    if not twins.any() and weights is None:
        return Rows(order, None)
    group = np.append(0, np.cumsum(~twins))
    counts = np.ones(len(order)) if weights is None else weights[order]
    counts = counts[np.lexsort((counts, group))]  # sums do not depend on the order of rows
    first = np.flatnonzero(np.append(True, ~twins))
    return Rows(order[first], np.add.reduceat(counts, first))


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
        _hash_columns(_clean(X[low : low + CHUNK]), coarse[low : low + CHUNK], DROPPED_BITS)
    order = np.lexsort((coarse, labels))
    same = (np.diff(coarse[order]) == 0) & (np.diff(labels[order]) == 0)
    if not same.any():
        return order, same
    exact = np.zeros(len(X), dtype=np.uint64)
    alike = order[np.append(same, False) | np.insert(same, 0, False)]
    for low in range(0, len(alike), CHUNK):
        part = alike[low : low + CHUNK]
        exact[part] = exact_keys(X[part])
    order = np.lexsort((exact, coarse, labels))
    close = np.flatnonzero(same)
    for low in range(0, len(close), CHUNK):
        places = close[low : low + CHUNK]
        same[places] = _alike(X[order[places]], X[order[places + 1]])
    return order, same


def _clean(X: FloatArray) -> FloatArray:
    """Rows of X (n, M) with features first, (M, n); what is zero but for rounding is zero."""
    columns = X.T.astype(np.float64, order="C")
    sizes = np.abs(columns)
    columns *= sizes >= NEGLIGIBLE * np.fmax.reduce(sizes, axis=0, initial=0.0)
    return columns


def exact_keys(X: FloatArray) -> NDArray[np.uint64]:
    """Keys (n,) of rows (n, M) that are the same for rows that are the same to the last bit."""
    keys = np.zeros(len(X), dtype=np.uint64)
    for low in range(0, len(X), CHUNK):
        rows = X[low : low + CHUNK].T.astype(np.float64, order="C")
        _hash_columns(rows, keys[low : low + CHUNK])
    return keys


def row_keys(X: FloatArray, seed: int, fine: bool = False) -> NDArray[np.uint64]:
    """Lots of rows, (N,), uniform over 64 bits, that a row's values and a seed alone decide.

    Rows that agree to 5 digits share their lot; one feature alone counts by more digits, and fine
    lots go by 12. Values are added up with random odd factors (Dietzfelbinger et al., 1997), which
    takes a third of the time that it takes to mix each of them.
    """
    N, M = X.shape
    most = BITS_OF_FINE_LOTS if fine else BITS_OF_LOTS
    dropped = np.uint64(52 - max(most, -(-BITS_OF_ROW // max(1, M))))
    factors = _mixed(np.arange(1, M + 1, dtype=np.uint64) * GOLDEN) | np.uint64(1)
    keys = np.empty(N, dtype=np.uint64)
    for low in range(0, N, CHUNK_OF_LOTS):
        values = _clean(X[low : low + CHUNK_OF_LOTS])
        values += 0.0  # -0.0 becomes 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = bool(np.isnan(values.sum()))  # or huge values
        if gaps:
            np.copyto(values, np.nan, where=np.isnan(values))  # of which there are many
        bits = values.view(np.uint64)
        bits += np.uint64(1) << (dropped - np.uint64(1))
        bits >>= dropped
        bits *= factors[:, None]
        bits.sum(axis=0, out=keys[low : low + CHUNK_OF_LOTS])
    keys ^= np.uint64((seed * int(GOLDEN) + 0xD1B54A32D192ED03) % 2**64)
    return _mixed(keys)


def other_lots(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Lots (N,) that have nothing to do with those that they are made of."""
    return _mixed(keys + GOLDEN)


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
        key ^= column
        key += GOLDEN
        _mixed(key)


def _mixed(key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Keys (n,), which are overwritten, with every bit mixed into every other.

    The steps of splitmix64 (Steele, Lea & Flood, 2014). A plain weighted sum does not do for floats
    with short mantissas.
    """
    key ^= key >> np.uint64(30)
    key *= np.uint64(0xBF58476D1CE4E5B9)
    key ^= key >> np.uint64(27)
    key *= np.uint64(0x94D049BB133111EB)
    key ^= key >> np.uint64(31)
    return key
