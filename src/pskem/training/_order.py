"""An order of samples that their values alone decide, on every machine."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pskem.engine import CHUNK
from pskem.structures import FloatArray

__all__ = ["ENOUGH_FOR_DEPENDENCE", "canonical_order", "representative"]

#: Samples that are enough to learn how features hang together.
ENOUGH_FOR_DEPENDENCE = 20_000

#: Of the 52 bits of a mantissa, those that the order of samples goes without, so that 10 are left;
#: and what is nothing beside the largest value of a row. Rounding reaches about 2^-48. A value lies
#: so close to the border between two rounded ones with a chance of about 2^-37.
DROPPED_BITS = 42
NEGLIGIBLE = 2.0**-40


def canonical_order(X: FloatArray, labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """An order of the samples, by class and then by a hash of the row, that the rows alone decide.

    Everything random in a fit draws on this order, so a permutation of the rows of X, (N, M),
    does not change the fit. It is also the sorting by class that the engine needs. Rows are
    compared by 3 digits, and by all only where these are the same: a matrix product that made X has
    other last bits on another processor. In single precision too few digits are left for that.
    """
    coarse = np.zeros(len(X), dtype=np.uint64)
    for low in range(0, len(X), CHUNK):
        columns = X[low : low + CHUNK].T.astype(np.float64, order="C")
        # What should be zero, but for rounding, is zero.
        sizes = np.abs(columns)
        columns *= sizes >= NEGLIGIBLE * sizes.max(axis=0)
        _hash_columns(columns, coarse[low : low + CHUNK], DROPPED_BITS)
    order = np.lexsort((coarse, labels))
    same = (np.diff(coarse[order]) == 0) & (np.diff(labels[order]) == 0)
    if not same.any():
        return order
    exact = np.zeros(len(X), dtype=np.uint64)
    alike = order[np.append(same, False) | np.insert(same, 0, False)]
    for low in range(0, len(alike), CHUNK):
        part = alike[low : low + CHUNK]
        key = np.zeros(len(part), dtype=np.uint64)
        _hash_columns(X[part].T.astype(np.float64, order="C"), key)
        exact[part] = key
    return np.lexsort((exact, coarse, labels))


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
