"""Ranks of methods over tables, and how far apart they have to be (Demšar, 2006)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import stats

from pskem.structures import FloatArray

__all__ = ["Ranking", "critical_difference", "groups", "rank"]

#: The level of the tests.
LEVEL = 0.05


class Ranking(NamedTuple):
    """Mean ranks of k methods over N tables; 1 is the best.

    mean : (k,)
    p_value : of Friedman's test that all methods are alike; None for fewer than three methods or
        two tables
    difference : Nemenyi's critical difference of two mean ranks
    """

    mean: FloatArray
    n_tables: int
    p_value: float | None
    difference: float


def rank(costs: FloatArray) -> Ranking:
    """Rank methods by their costs (N, k), smaller is better. Equals share their ranks.

    An infinite cost is that of a method without a result.
    """
    N, k = costs.shape
    ranks = stats.rankdata(costs, axis=1)  # (N, k)
    p_value = None
    # If all costs are the same on every table, there is nothing to test.
    if k > 2 and N > 1 and np.ptp(ranks, axis=1).any():
        p_value = float(stats.friedmanchisquare(*ranks.T).pvalue)
    return Ranking(ranks.mean(axis=0), N, p_value, critical_difference(k, N))


def critical_difference(k: int, N: int) -> float:
    """Mean ranks of two of k methods over N tables differ at the level 0.05 from here on.

    Nemenyi's test, which allows for all pairs being compared.
    """
    if k < 2:
        return 0.0
    # Demšar (2006), section 3.2.2: the Studentised range divided by the root of two.
    q = float(stats.studentized_range.ppf(1.0 - LEVEL, k, np.inf)) / np.sqrt(2.0)
    return float(q * np.sqrt(k * (k + 1) / (6.0 * N)))


def groups(mean: FloatArray, difference: float) -> list[tuple[int, int]]:
    """The longest stretches of sorted ranks within a critical difference, as first and last place.

    ``mean`` (k,) is sorted. Stretches of one method, and those inside another, are left out.
    """
    found: list[tuple[int, int]] = []
    for first in range(len(mean)):
        last = int(np.searchsorted(mean, mean[first] + difference, side="left")) - 1
        if last > first and (not found or last > found[-1][1]):
            found.append((first, last))
    return found
