"""Which features depend on each other within the classes, and blocks that keep these together.

The model multiplies its blocks given the class, so what it cannot express is the dependence between
features of different blocks within a class. Dependence between features that comes from the
classes alone costs nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["group_by_dependence", "within_class_dependence"]

FloatArray = NDArray[np.floating[Any]]

#: Classes with fewer samples have correlations that are mostly chance.
SMALLEST_CLASS = 30
#: Rows that are centred and multiplied at a time.
CHUNK = 4096
#: 1 - rho^2 is at least this: features that determine each other have about 14 nats in common.
SMALLEST_REMAINDER = 1e-12
#: A swap has to gain this much, relative to the largest dependence, so that rounding decides none.
SMALLEST_GAIN = 1e-9


def within_class_dependence(
    X: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None = None
) -> FloatArray:
    """Mean mutual information of each pair of features given the class, in nats: (M, M).

    That of Gaussians with the correlations found in the class, -1/2 log(1 - rho^2). Classes count
    by their sizes; those of fewer than 30 samples have the correlations pooled over all classes.

    Parameters
    ----------
    X : ndarray of shape (N, M)
        May have gaps (NaN): a pair of features is judged by the samples that have both.
    labels : ndarray of int of shape (N,)
        Classes, counted from 0.
    weights : ndarray of shape (N,), default=None
        How much each sample counts; None if all count alike.

    Returns
    -------
    dependence : ndarray of shape (M, M)
        Symmetric, non-negative, with zeros on the diagonal and for features that are constant
        within the classes.
    """
    order = np.argsort(labels, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(labels))])
    largest = np.fmax.reduce(np.abs(X), axis=0, initial=0.0).astype(np.float64)
    unit = np.where(largest > 0.0, largest, 1.0)  # keeps squares of huge values finite
    rounding = 10.0 * float(np.finfo(X.dtype).eps)  # of a feature whose largest value is 1
    counted = np.ones(len(X)) if weights is None else weights

    M = X.shape[1]
    total, few = np.zeros((M, M)), 0.0
    pooled = _Scatter(np.zeros((M, M)), np.zeros((M, M)))
    for low, high in pairwise(bounds):
        rows = order[low:high]
        size = float(counted[rows].sum())
        scatter = _scatter(X, rows, unit, counted)
        pooled = _Scatter(pooled.cross + scatter.cross, pooled.squares + scatter.squares)
        if high - low < SMALLEST_CLASS:
            few += size
        else:
            total += size * scatter.mutual_information(size * rounding**2)
    if few:
        total += few * pooled.mutual_information(counted.sum() * rounding**2)
    return total / counted.sum()


class _Scatter(NamedTuple):
    """Sums over samples that have both features of a pair, about the means, (M, M) each.

    cross : products of the two
    squares : squares of the first
    """

    cross: FloatArray
    squares: FloatArray

    def mutual_information(self, smallest: float) -> FloatArray:
        """-1/2 log(1 - rho^2) of all pairs; none for features that vary no more than that."""
        varies = np.diag(self.cross) > smallest
        both = varies[:, None] & varies & (self.squares > 0.0) & (self.squares.T > 0.0)
        lengths = np.sqrt(self.squares) * np.sqrt(self.squares.T)
        rho = np.where(both, self.cross / np.where(both, lengths, 1.0), 0.0)
        np.fill_diagonal(rho, 0.0)
        remainder = np.maximum(1.0 - np.square(rho), SMALLEST_REMAINDER)
        return np.abs(0.5 * np.log(remainder))  # the sign, also of zero


def _scatter(
    X: FloatArray, rows: NDArray[np.intp], unit: FloatArray, counted: FloatArray
) -> _Scatter:
    """The scatter of some rows of X / unit."""
    M = X.shape[1]
    mean, seen = np.zeros(M), np.zeros(M)
    chunks = [rows[low : low + CHUNK] for low in range(0, len(rows), CHUNK)]
    for chunk in chunks:
        weights = counted[chunk, None] * ~np.isnan(X[chunk])
        seen += weights.sum(axis=0)
        mean += np.nansum(weights * (X[chunk] / unit), axis=0)
    mean /= np.where(seen > 0.0, seen, 1.0)
    cross, squares = np.zeros((M, M)), np.zeros((M, M))
    for chunk in chunks:
        deviations = X[chunk] / unit - mean
        gaps = np.isnan(deviations)
        deviations[gaps] = 0.0
        weighted = counted[chunk, None] * deviations
        cross += deviations.T @ weighted
        if gaps.any():
            squares += (deviations * weighted).T @ ~gaps
        else:
            squares += (deviations * weighted).sum(axis=0)[:, None]
    return _Scatter(cross, squares)


def group_by_dependence(dependence: FloatArray, n_blocks: int) -> list[NDArray[np.intp]]:
    """Blocks of nearly equal sizes that keep as much dependence as possible inside.

    Blocks are grown one after the other from the strongest pair that is left. Then features of
    different blocks are swapped as long as that helps. The same is done from sequential and from
    interleaved blocks, and the best outcome is kept. It is a local optimum: no single swap, and
    no move between blocks of different sizes, makes it better.

    Parameters
    ----------
    dependence : ndarray of shape (M, M)
        Symmetric and non-negative; the diagonal is not used.
    n_blocks : int
        R, from 1 to M.

    Returns
    -------
    blocks : list of ndarray of int
        R sorted arrays, in the order of their first features. Their sizes differ by at most one.
    """
    M = len(dependence)
    size = -(-M // n_blocks)
    # Blocks that are one feature short are filled up with blanks. Swapping a blank for a feature
    # moves that feature; the penalty keeps blanks apart, one to a block.
    M_full = size * n_blocks
    D = np.zeros((M_full, M_full))
    D[:M, :M] = dependence
    np.fill_diagonal(D, 0.0)
    D[M:, M:] = -(D.sum() + 1.0)
    np.fill_diagonal(D, 0.0)
    blanks = np.arange(n_blocks - (M_full - M), n_blocks)  # one in each of the last blocks
    sizes = np.full(n_blocks, size)
    sizes[blanks] -= 1
    grown = _grow(D[:M, :M], sizes)
    sequential = np.repeat(np.arange(n_blocks), sizes)
    interleaved = np.arange(M) % n_blocks

    smallest = SMALLEST_GAIN * float(D.max())
    best, most = grown, -np.inf
    for start in (grown, sequential, interleaved):
        member = _improve(D, np.concatenate([start, blanks]), n_blocks, smallest)
        inside = float(D[member[:, None] == member].sum())
        if inside > most + smallest:
            best, most = member, inside
    blocks = [np.flatnonzero(best[:M] == r) for r in range(n_blocks)]
    return sorted(blocks, key=lambda block: int(block[0]))


def _grow(D: FloatArray, sizes: NDArray[np.intp]) -> NDArray[np.intp]:
    """The block of each feature, (M,), made greedily, one block after the other."""
    member = np.empty(len(D), dtype=np.intp)
    free = np.ones(len(D), dtype=bool)
    for r, size in enumerate(sizes):
        # First one of the strongest pair that is left, then what is closest to the block so far.
        affinity = np.where(free, D, 0.0).max(axis=1)
        for a in range(size):
            i = int(np.where(free, affinity, -1.0).argmax())
            member[i], free[i] = r, False
            affinity = D[i] if a == 0 else affinity + D[i]
    return member


def _improve(
    D: FloatArray, start: NDArray[np.intp], n_blocks: int, smallest: float
) -> NDArray[np.intp]:
    """Swap features between blocks, the best partner for each in turn, until none gains."""
    member = start.copy()
    G = D @ np.eye(n_blocks)[member]  # G[i, r]: dependence of feature i with all of block r, (M, R)
    everyone = np.arange(len(D))
    since = 0  # features in a row for which no swap helped
    i = 0
    while since < len(D):
        own = G[everyone, member]
        # What both find in the other's block less what both leave; they do not find each other.
        # Within a block this is -2 D and never a gain.
        gain = G[i, member] - G[i, member[i]] + G[:, member[i]] - own - 2.0 * D[i]
        j = int(gain.argmax())
        if gain[j] > smallest:
            a, b = member[i], member[j]
            member[i], member[j] = b, a
            moved = D[j] - D[i]
            G[:, a] += moved
            G[:, b] -= moved
            since = 0
        else:
            since += 1
            i = (i + 1) % len(D)
    return member
