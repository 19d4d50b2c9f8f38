"""A fold on a cluster as a simulation of discrete events: partitions, a tree of merges, deaths.

The rules are those of Dask as far as they matter for the time of a fold:

- Partitions lie on the workers in contiguous ranges, and the first of a range is done first.
- The scheduler hands out tasks one after the other, in the order of the tree: a merge comes before
  the leaves that lie behind it.
- A merge goes to the worker that holds most of its parts. The others are sent to it.
- A worker without tasks may take the last leaf of the worker that has most of them waiting, once
  the scheduler has no more to hand out.
- A worker that dies loses its results and its partitions. Others do again what is still needed.
  The parts of a merge are dropped once it is done, so whoever loses a merge does all of it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cluster", "Outcome", "simulate", "stragglers", "tree"]


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


class Outcome(NamedTuple):
    """What a simulated fold has taken.

    seconds : until the root of the tree is there
    worked : of all workers in tasks, also in those that were lost
    deaths : of workers
    repeated : leaves that were done more than once
    fetched : results that went from one worker to another
    """

    seconds: float
    worked: float
    deaths: int
    repeated: int
    fetched: int


def tree(n_leaves: int, arity: int) -> list[list[int]]:
    """The nodes that each merge takes; merges are nodes after the leaves, the last is the root."""
    merges: list[list[int]] = []
    level = list(range(n_leaves))
    while len(level) > 1:
        first = n_leaves + len(merges)
        merges += [level[i : i + arity] for i in range(0, len(level), arity)]
        level = list(range(first, n_leaves + len(merges)))
    return merges


def stragglers(
    rng: np.random.Generator, seconds: NDArray[np.float64], share: float, tail: float
) -> NDArray[np.float64]:
    """Times of tasks, of which a share takes longer by a factor with P(factor > x) = x^-tail."""
    slow = rng.random(len(seconds)) < share
    factors = 1.0 + rng.pareto(tail, len(seconds))
    return np.where(slow, seconds * factors, seconds)


def simulate(cluster: Cluster, work: Sequence[float], seed: int = 0) -> Outcome:
    """A fold over partitions of which each takes so many seconds."""
    return _Fold(cluster, [float(each) for each in work], seed).run()


class _Is(Enum):
    """What a node of the tree is doing."""

    WAITING = 0  # for its parts
    HANDED = 1  # with the scheduler, or in the queue of a worker
    RUNNING = 2
    DONE = 3  # a worker holds its result
    DROPPED = 4  # the merge above it is done


class _Fold:
    """The events of one fold, in a heap: (time, number, what, worker or node, which life)."""

    def __init__(self, cluster: Cluster, work: list[float], seed: int) -> None:
        self.cluster, self.work = cluster, work
        self.rng = np.random.default_rng(seed)
        P, W = len(work), cluster.n_workers
        merges = tree(P, cluster.arity)
        self.parts: list[list[int]] = [[] for _ in work] + merges
        self.above = {part: P + i for i, parts in enumerate(merges) for part in parts}
        # A node is done after the last leaf below it, and a merge after its own last part.
        self.order = [(i, 0) for i in range(P)]
        for i, parts in enumerate(merges):
            self.order.append((self.order[parts[-1]][0], i + 1))
        self.root = len(self.parts) - 1
        self.state = [_Is.WAITING] * len(self.parts)
        self.missing = [len(parts) for parts in self.parts]
        self.home = [i * W // P for i in range(P)]  # where each partition lies
        self.lost = [False] * P  # whether it has to be read again
        self.holder: dict[int, int] = {}  # who has the result of a node
        self.queues: list[list[tuple[tuple[int, int], int]]] = [[] for _ in range(W)]
        self.running: list[tuple[int, float] | None] = [None] * W  # a node, and since when
        self.alive, self.life = [True] * W, [0] * W
        self.handing: list[tuple[tuple[int, int], int]] = []  # what the scheduler has before it
        self.scheduling = False
        self.spare: list[int] = []  # nodes that no worker is there for
        self.events: list[tuple[float, int, str, int, int]] = []
        self.number = self.deaths = self.fetched = 0
        self.now = self.worked = 0.0
        self.done = [0] * P

    def run(self) -> Outcome:
        for worker in range(self.cluster.n_workers):
            self._expect_death(worker)
        for leaf in range(len(self.work)):
            self._hand(leaf)
        while self.state[self.root] is not _Is.DONE:
            self.now, _, what, subject, life = heapq.heappop(self.events)
            if what == "scheduled":
                self._scheduled()
            elif life == self.life[subject]:  # else it is about a worker that is no more
                {"finished": self._finished, "dies": self._dies, "returns": self._returns}[what](
                    subject
                )
        repeated = sum(times > 1 for times in self.done)
        return Outcome(self.now, self.worked, self.deaths, repeated, self.fetched)

    def _at(self, delay: float, what: str, subject: int, life: int = 0) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + delay, self.number, what, subject, life))

    def _expect_death(self, worker: int) -> None:
        if self.cluster.hazard > 0.0:
            delay = float(self.rng.exponential(1.0 / self.cluster.hazard))
            self._at(delay, "dies", worker, self.life[worker])

    # What the scheduler does.

    def _hand(self, node: int) -> None:
        """Let the scheduler find a worker for a node whose parts are there."""
        self.state[node] = _Is.HANDED
        heapq.heappush(self.handing, (self.order[node], node))
        self._schedule()

    def _schedule(self) -> None:
        if self.handing and not self.scheduling:
            self.scheduling = True
            self._at(self.cluster.dispatch, "scheduled", 0)

    def _scheduled(self) -> None:
        self.scheduling = False
        if not self.handing:  # what it was busy with has been taken back
            return
        _, node = heapq.heappop(self.handing)
        self._schedule()
        if self.state[node] is _Is.HANDED:  # a part of it may have been lost since
            self._assign(node)

    def _assign(self, node: int) -> None:
        if not any(self.alive):
            self.spare.append(node)
            return
        worker = self._place(node)
        heapq.heappush(self.queues[worker], (self.order[node], node))
        for each in [worker, *range(self.cluster.n_workers)]:
            self._start(each)

    def _place(self, node: int) -> int:
        """The worker that does a node: where its partition or most of its parts are."""
        if not self.parts[node]:
            wanted = self.home[node]
            if self.alive[wanted]:
                return wanted
            living = [w for w, alive in enumerate(self.alive) if alive]
            return min(living, key=lambda w: (len(self.queues[w]), self.running[w] is not None, w))
        holders = [self.holder[part] for part in self.parts[node]]
        return max(holders, key=lambda w: (holders.count(w), -w))

    # What workers do.

    def _start(self, worker: int) -> None:
        """Begin with the next task, if there is one and nothing else is being done."""
        if not self.alive[worker] or self.running[worker] is not None:
            return
        node, delay = self._next(worker)
        if node is None:
            return
        delay += self._duration(node, worker)
        self.state[node] = _Is.RUNNING
        self.running[worker] = node, self.now
        self._at(delay, "finished", worker, self.life[worker])

    def _next(self, worker: int) -> tuple[int | None, float]:
        """The next task, and how long it takes to get its partition from another worker."""
        if self.queues[worker]:
            return heapq.heappop(self.queues[worker])[1], 0.0
        if self.cluster.move is None or self.handing:
            return None, 0.0
        longest = max(self.queues, key=len)
        leaves = [entry for entry in longest if not self.parts[entry[1]]]
        if not leaves:
            return None, 0.0
        last = max(leaves)
        longest.remove(last)
        heapq.heapify(longest)
        return last[1], 0.0 if self.lost[last[1]] else self.cluster.move

    def _duration(self, node: int, worker: int) -> float:
        parts = self.parts[node]
        if parts:
            away = sum(self.holder[part] != worker for part in parts)
            self.fetched += away
            return (len(parts) - 1) * self.cluster.merge + away * self.cluster.fetch
        again = self.cluster.reload if self.lost[node] else 0.0
        return self.work[node] + again

    def _finished(self, worker: int) -> None:
        node = self._stop(worker)
        self.state[node] = _Is.DONE
        self.holder[node] = worker
        if not self.parts[node]:
            self.home[node], self.lost[node] = worker, False
            self.done[node] += 1
        for part in self.parts[node]:
            self.state[part] = _Is.DROPPED
            self.holder.pop(part, None)
        if node != self.root:
            above = self.above[node]
            self.missing[above] -= 1
            if not self.missing[above]:
                self._hand(above)
        self._start(worker)

    def _stop(self, worker: int) -> int:
        current = self.running[worker]
        assert current is not None
        node, since = current
        self.running[worker] = None
        self.worked += self.now - since
        return node

    # Deaths.

    def _dies(self, worker: int) -> None:
        self.deaths += 1
        self.alive[worker] = False
        self.life[worker] += 1
        self._at(self.cluster.restart, "returns", worker, self.life[worker])
        for leaf, home in enumerate(self.home):
            self.lost[leaf] = self.lost[leaf] or home == worker
        orphans = [node for _, node in self.queues[worker]]
        self.queues[worker] = []
        if self.running[worker] is not None:
            orphans.append(self._stop(worker))
        for node in orphans:
            self.state[node] = _Is.HANDED
        # Parts that were lost while a merge had them already, which is lost itself now.
        missed = [
            part
            for node in orphans
            for part in self.parts[node]
            if self.state[part] is _Is.DONE and part not in self.holder
        ]
        gone = [node for node, holder in self.holder.items() if holder == worker]
        for node in gone:
            del self.holder[node]
        for node in gone:
            # A merge that is under way elsewhere has its parts already.
            if self.state[self.above[node]] is not _Is.RUNNING:
                self._again(node)
        for node in missed:
            self._again(node)
        for node in orphans:
            if self.state[node] is _Is.HANDED:
                self._hand(node)

    def _again(self, node: int) -> None:
        """Have a result made again that is lost, and whatever it needs that has been dropped."""
        if node != self.root:
            above = self.above[node]
            self.missing[above] += 1
            if self.state[above] is _Is.HANDED:
                self._take_back(above)
        if not self.parts[node]:
            self._hand(node)
            return
        self.state[node] = _Is.WAITING
        self.missing[node] = 0
        for part in self.parts[node]:
            self._again(part)

    def _take_back(self, node: int) -> None:
        """A merge waits again, because a part of it has been lost."""
        self.state[node] = _Is.WAITING
        self.spare = [other for other in self.spare if other != node]
        for queue in [self.handing, *self.queues]:
            kept = [entry for entry in queue if entry[1] != node]
            if len(kept) < len(queue):
                queue[:] = kept
                heapq.heapify(queue)

    def _returns(self, worker: int) -> None:
        self.alive[worker] = True
        self._expect_death(worker)
        spare, self.spare = self.spare, []
        for node in spare:
            self._assign(node)
        self._start(worker)
