"""What is simulated: a cluster, a tree of merges, where partitions lie, and slow tasks."""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cluster", "scatter", "stragglers", "tree"]

#: The longest time to load a partition over the shortest.
SPREAD = 2.0


class Cluster(NamedTuple):
    """What a fold costs on a cluster, in seconds.

    arity : results that are merged at a time
    merge : of one more result
    fetch : until the result of another worker has arrived
    dispatch : that the scheduler takes for each task
    move : that a worker takes to get a partition of another; None if partitions stay where they are
    hazard : deaths of a worker in a second
    restart : until a worker that has died is replaced
    reload : that a partition takes to be read again
    """

    n_workers: int
    arity: int = 8
    merge: float = 0.0
    fetch: float = 0.0
    dispatch: float = 0.0
    move: float | None = None
    hazard: float = 0.0
    restart: float = 0.0
    reload: float = 0.0


def tree(n_leaves: int, arity: int) -> list[list[int]]:
    """The nodes that each merge takes; merges are nodes after the leaves, the last is the root."""
    merges: list[list[int]] = []
    level = list(range(n_leaves))
    while len(level) > 1:
        first = n_leaves + len(merges)
        merges += [level[i : i + arity] for i in range(0, len(level), arity)]
        level = list(range(first, n_leaves + len(merges)))
    return merges


def scatter(rng: np.random.Generator, n_partitions: int, n_workers: int) -> list[int]:
    """Workers on which partitions come to lie when they are loaded.

    Dask keeps tasks that load in a queue, and a worker gets the next one when it has done one. So
    neighbours lie on different workers, and who loads faster has more partitions than others.
    """
    free = [(0.0, lot, worker) for worker, lot in enumerate(rng.permutation(n_workers).tolist())]
    heapq.heapify(free)
    homes = []
    for seconds in rng.uniform(1.0, SPREAD, n_partitions).tolist():
        since, lot, worker = heapq.heappop(free)
        homes.append(worker)
        heapq.heappush(free, (since + seconds, lot, worker))
    return homes


def stragglers(
    rng: np.random.Generator, seconds: NDArray[np.float64], share: float, tail: float
) -> NDArray[np.float64]:
    """Times of tasks, of which a share takes longer by a factor with P(factor > x) = x^-tail."""
    slow = rng.random(len(seconds)) < share
    factors = 1.0 + rng.pareto(tail, len(seconds))
    return np.where(slow, seconds * factors, seconds)
