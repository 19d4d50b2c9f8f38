"""A fold on a cluster as a simulation of discrete events: partitions, a tree of merges, deaths.

The rules are those of Dask as far as they matter for the time of a fold:

- Partitions lie scattered over the workers (:func:`benchmarks.scaling.cluster.scatter`), and a
  worker does those that come first in the tree first.
- The scheduler hands out tasks one after the other, in the order of the tree: a merge comes before
  the leaves that lie behind it.
- A merge goes to the least busy of the workers that hold its parts. The others are sent to it. It
  waits for them, although Dask would do something else meanwhile.
- A worker without tasks may take the last leaf of the worker that has most of them waiting, once
  the scheduler has no more to hand out, and if that worker would still be busy for longer.
- A worker that dies loses its results and its partitions. Others load its partitions again at once,
  before anything else, whether this fold still needs them or not, and do again what is still
  needed. The fold is over when the result and all partitions are there.
- The parts of a merge are dropped once it is done, so whoever loses a merge does all of it again.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from enum import Enum
from statistics import fmean
from typing import NamedTuple

import numpy as np

from benchmarks.scaling.cluster import Cluster, scatter, tree

__all__ = ["Outcome", "simulate"]


class Outcome(NamedTuple):
    """What a simulated fold has taken.

    seconds : until the root of the tree is there, and every partition
    worked : of all workers in tasks, also in those that were lost
    deaths : of workers
    repeated : leaves that were done more than once
    reloaded : partitions that were loaded again
    fetched : results that went from one worker to another
    """

    seconds: float
    worked: float
    deaths: int
    repeated: int
    reloaded: int
    fetched: int


def simulate(
    cluster: Cluster, work: Sequence[float], seed: int = 0, homes: Sequence[int] | None = None
) -> Outcome:
    """A fold over partitions of which each takes so many seconds.

    homes : the workers that have them; drawn if they are not given
    """
    rng = np.random.default_rng(seed)
    if homes is None:
        homes = scatter(rng, len(work), cluster.n_workers)
    return _Fold(cluster, [float(each) for each in work], list(homes), rng).run()


class _Is(Enum):
    """What a node of the tree is doing."""

    WAITING = 0  # for its parts
    HANDED = 1  # with the scheduler, or in the queue of a worker
    RUNNING = 2
    DONE = 3  # a worker holds its result
    GONE = 4  # nobody holds its result: it is not needed any more, or lost


class _Fold:
    """The events of one fold, in a heap: (time, number, what, worker, which life of it).

    Of P partitions, nodes 0 to P - 1 are the partitions, the next P are the leaves, each of which
    has its partition as its only part, and merges follow.
    """

    def __init__(
        self, cluster: Cluster, work: list[float], homes: list[int], rng: np.random.Generator
    ) -> None:
        self.cluster, self.work, self.rng = cluster, work, rng
        P, W = len(work), cluster.n_workers
        self.P, self.typical = P, fmean(work)
        merges = [[P + part for part in parts] for parts in tree(P, cluster.arity)]
        self.parts: list[list[int]] = [[] for _ in work] + [[i] for i in range(P)] + merges
        self.above = {part: node for node, parts in enumerate(self.parts) for part in parts}
        # A node is done after the last leaf below it, and a merge after its own last part.
        # Partitions are loaded before anything else: Dask was asked for them earlier.
        self.order = [(-1, i) for i in range(P)] + [(i, 0) for i in range(P)]
        for i, parts in enumerate(merges):
            self.order.append((self.order[parts[-1]][0], i + 1))
        self.root = len(self.parts) - 1
        self.state = [_Is.DONE] * P + [_Is.WAITING] * (len(self.parts) - P)
        self.holder = dict(enumerate(homes))  # who has the result of a node
        self.loading = 0  # partitions that are not there
        self.over = False  # whether the root has been done
        self.queues: list[list[tuple[tuple[int, int], int]]] = [[] for _ in range(W)]
        self.running: list[tuple[int, float] | None] = [None] * W  # a node, and since when
        self.alive, self.life = [True] * W, [0] * W
        self.handing: list[tuple[tuple[int, int], int]] = []  # what the scheduler has before it
        self.scheduling = False
        self.spare: list[int] = []  # nodes that no worker is there for
        self.events: list[tuple[float, int, str, int, int]] = []
        self.number = self.deaths = self.fetched = self.reloaded = 0
        self.now = self.worked = 0.0
        self.done = [0] * P

    def run(self) -> Outcome:
        for worker in range(self.cluster.n_workers):
            self._expect_death(worker)
        for leaf in range(self.P, 2 * self.P):
            self._hand(leaf)
        while not self.over or self.loading:
            self.now, _, what, subject, life = heapq.heappop(self.events)
            if what == "scheduled":
                self._scheduled()
            elif life == self.life[subject]:  # else it is about a worker that is no more
                {"finished": self._finished, "dies": self._dies, "returns": self._returns}[what](
                    subject
                )
        repeated = sum(times > 1 for times in self.done)
        return Outcome(self.now, self.worked, self.deaths, repeated, self.reloaded, self.fetched)

    def _at(self, delay: float, what: str, subject: int, life: int = 0) -> None:
        self.number += 1
        heapq.heappush(self.events, (self.now + delay, self.number, what, subject, life))

    def _expect_death(self, worker: int) -> None:
        if self.cluster.hazard > 0.0:
            delay = float(self.rng.exponential(1.0 / self.cluster.hazard))
            self._at(delay, "dies", worker, self.life[worker])

    def _is_leaf(self, node: int) -> bool:
        return self.P <= node < 2 * self.P

    # What the scheduler does.

    def _want(self, node: int) -> None:
        """Have a node done, and before it whatever it needs that nobody holds."""
        if self.state[node] in (_Is.HANDED, _Is.RUNNING, _Is.DONE):
            return
        self.state[node] = _Is.WAITING
        for part in self.parts[node]:
            if self.state[part] is _Is.GONE:
                self._want(part)
        self._hand_if_ready(node)

    def _hand_if_ready(self, node: int) -> None:
        ready = all(self.state[part] is _Is.DONE for part in self.parts[node])
        if ready and self.state[node] is _Is.WAITING:
            self._hand(node)

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
        """The least busy worker that holds a part, or of all; then the one that holds most."""
        holders = [self.holder[part] for part in self.parts[node]]
        able = set(holders) or {w for w, alive in enumerate(self.alive) if alive}
        return min(able, key=lambda w: (self._tasks(w), -holders.count(w), w))

    def _tasks(self, worker: int) -> int:
        """How many tasks a worker has before it."""
        return len(self.queues[worker]) + (self.running[worker] is not None)

    # What workers do.

    def _start(self, worker: int) -> None:
        """Begin with the next task, if there is one and nothing else is being done."""
        if not self.alive[worker] or self.running[worker] is not None:
            return
        node = self._next(worker)
        if node is None:
            return
        self.state[node] = _Is.RUNNING
        self.running[worker] = node, self.now
        self._at(self._duration(node, worker), "finished", worker, self.life[worker])

    def _next(self, worker: int) -> int | None:
        """The next task: its own, or a leaf of another worker."""
        if self.queues[worker]:
            return heapq.heappop(self.queues[worker])[1]
        if self.cluster.move is None or self.handing:
            return None
        leaves = {
            w: [entry for entry in queue if self._is_leaf(entry[1])]
            for w, queue in enumerate(self.queues)
            if queue
        }
        victim = max(leaves, key=lambda w: len(leaves[w]), default=None)
        if victim is None or not leaves[victim]:
            return None
        # Merges take next to no time. Dask takes half a task off, so that none goes to and fro.
        ahead = len(leaves[victim]) + self._works_on_leaf(victim)
        if self.cluster.move > (ahead - 1.5) * self.typical:
            return None
        last = max(leaves[victim])
        self.queues[victim].remove(last)
        heapq.heapify(self.queues[victim])
        return last[1]

    def _works_on_leaf(self, worker: int) -> bool:
        current = self.running[worker]
        return current is not None and self._is_leaf(current[0])

    def _duration(self, node: int, worker: int) -> float:
        if node < self.P:
            return self.cluster.reload
        away = sum(self.holder[part] != worker for part in self.parts[node])
        if self._is_leaf(node):
            return self.work[node - self.P] + away * (self.cluster.move or 0.0)
        self.fetched += away
        merges = len(self.parts[node]) - 1
        return merges * self.cluster.merge + away * self.cluster.fetch

    def _finished(self, worker: int) -> None:
        node = self._stop(worker)
        self.state[node] = _Is.DONE
        self.holder[node] = worker
        if node < self.P:
            self.loading -= 1
            self.reloaded += 1
        elif self._is_leaf(node):
            self.done[node - self.P] += 1
        else:
            for part in self.parts[node]:
                self.state[part] = _Is.GONE
                self.holder.pop(part, None)
        if node == self.root:  # the client has it
            self.over = True
            del self.holder[node]
        else:
            self._hand_if_ready(self.above[node])
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
        dropped = [node for _, node in self.queues[worker]]
        self.queues[worker] = []
        if self.running[worker] is not None:
            dropped.append(self._stop(worker))
        gone = [node for node, holder in self.holder.items() if holder == worker]
        self.loading += sum(node < self.P for node in gone)
        for node in gone:
            del self.holder[node]
        for node in [*gone, *dropped]:
            self.state[node] = _Is.GONE
        # What runs elsewhere has its parts already; what only waits for its turn has not.
        above = [self.above[node] for node in gone]
        late = {node for node in above if self.state[node] is _Is.HANDED}
        self._take_back(late)
        waiting = [node for node in above if self.state[node] is _Is.WAITING]
        lost = [node for node in gone if node < self.P]
        for node in [*lost, *dropped, *waiting]:
            self._want(node)

    def _take_back(self, nodes: set[int]) -> None:
        """Let nodes wait again, because parts of them have been lost."""
        self.spare = [node for node in self.spare if node not in nodes]
        for node in nodes:
            self.state[node] = _Is.WAITING
        for queue in [self.handing, *self.queues]:
            kept = [entry for entry in queue if entry[1] not in nodes]
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
