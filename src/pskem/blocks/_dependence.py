"""Which features depend on each other within the classes, and blocks that keep these together.

The model multiplies its blocks given the class, so what it cannot express is the dependence between
features of different blocks within a class. Dependence between features that comes from the
classes alone costs nothing.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

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


def within_class_dependence(X: FloatArray, labels: NDArray[np.intp]) -> FloatArray:
    """Mean mutual information of each pair of features given the class, in nats: (M, M).

    That of Gaussians with the correlations found in the class, -1/2 log(1 - rho^2). Classes count
    by their sizes; those of fewer than 30 samples have the correlations pooled over all classes.

    Parameters
    ----------
    X : ndarray of shape (N, M)
    labels : ndarray of int of shape (N,)
        Classes, counted from 0.

    Returns
    -------
    dependence : ndarray of shape (M, M)
        Symmetric, non-negative, with zeros on the diagonal and for features that are constant
        within the classes.
    """
    M = X.shape[1]
    order = np.argsort(labels, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(labels))])
    largest = np.maximum(np.abs(X.max(axis=0)), np.abs(X.min(axis=0))).astype(np.float64)
    unit = np.where(largest > 0.0, largest, 1.0)  # keeps squares of huge values finite
    rounding = 10.0 * float(np.finfo(X.dtype).eps)  # of a feature whose largest value is 1

    total = np.zeros((M, M))
    pooled = np.zeros((M, M))
    n_small = 0
    for low, high in pairwise(bounds):
        scatter = _scatter(X, order[low:high], unit)
        pooled += scatter
        if high - low < SMALLEST_CLASS:
            n_small += int(high - low)
        else:
            total += (high - low) * _mutual_information(scatter, (high - low) * rounding**2)
    if n_small:
        total += n_small * _mutual_information(pooled, len(X) * rounding**2)
    return total / len(X)


def _scatter(X: FloatArray, rows: NDArray[np.intp], unit: FloatArray) -> FloatArray:
    """Sum of (x - mean)(x - mean)' over some rows of X / unit: (M, M)."""
    mean = np.zeros(X.shape[1])
    scatter = np.zeros((X.shape[1], X.shape[1]))
    chunks = [rows[low : low + CHUNK] for low in range(0, len(rows), CHUNK)]
    for chunk in chunks:
        mean += (X[chunk] / unit).sum(axis=0) / len(rows)
    for chunk in chunks:
        deviations = X[chunk] / unit - mean
        scatter += deviations.T @ deviations
    return scatter


def _mutual_information(scatter: FloatArray, smallest: float) -> FloatArray:
    """-1/2 log(1 - rho^2) of all pairs, (M, M); none for features that vary no more than that."""
    varies = np.diag(scatter) > smallest
    inverse = np.where(varies, 1.0 / np.sqrt(np.where(varies, np.diag(scatter), 1.0)), 0.0)
    rho = np.outer(inverse, inverse) * scatter
    np.fill_diagonal(rho, 0.0)
    remainder = np.maximum(1.0 - np.square(rho), SMALLEST_REMAINDER)
    return np.abs(0.5 * np.log(remainder))  # the sign, also of zero


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
