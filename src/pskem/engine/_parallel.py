"""Threads over chunks, with BLAS held to one thread inside.

Work is cut into tasks by the data alone, never by the number of threads, and results come back in
the order of the tasks. Sums over tasks therefore have the same bits for every ``n_jobs``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import islice
from multiprocessing import current_process
from threading import Lock, Timer
from typing import Any, Protocol, TypeVar

import joblib
from threadpoolctl import ThreadpoolController

__all__ = ["Chain", "Mapper", "consume", "n_threads", "serial_map", "steps_of", "workers"]

T = TypeVar("T")

#: Items that are read before they are asked for, where items are streamed.
AHEAD = 1


class Mapper(Protocol):
    """Applies a function to items, in order, perhaps in parallel."""

    def __call__(self, function: Callable[..., T], *iterables: Iterable[Any]) -> list[T]:
        """The results of all items."""
        ...

    def stream(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        """The results one after the other, while the next items are being read.

        Few items and results are in memory at a time.
        """
        ...


@dataclass(frozen=True, eq=False)
class Chain:
    """Functions that are applied one after the other.

    A stream lets go of what one function has made as soon as the next has made something of it.
    """

    steps: tuple[Callable[[Any], Any], ...]

    def __call__(self, item: Any) -> Any:
        for step in self.steps:
            item = step(item)
        return item


def steps_of(function: Callable[[Any], Any]) -> tuple[Callable[[Any], Any], ...]:
    """The functions of a chain, or the one that is none."""
    return function.steps if isinstance(function, Chain) else (function,)


def consume(function: Callable[[Any], T], box: list[Any]) -> T:
    """What a function makes of the item in a box.

    Who calls a function holds its arguments until it returns. A box can be emptied before that.
    """
    item = box.pop()
    for step in steps_of(function):
        item = step(item)
    return item


def n_threads(n_jobs: int | None) -> int:
    """How many threads ``n_jobs`` stands for on this machine, here and now.

    ``None`` is all available cores, within what an enclosing joblib worker was given
    (``OMP_NUM_THREADS``), as for scikit-learn's own threaded estimators; in a worker of a pool of
    processes it is one. Other values mean what they mean in joblib.
    """
    if n_jobs is not None:
        return int(joblib.effective_n_jobs(n_jobs))
    if current_process().daemon:  # one of many on this machine, such as a worker of Dask's
        return 1
    available = int(joblib.effective_n_jobs(-1))
    granted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return min(available, int(granted)) if granted.isdigit() and int(granted) > 0 else available


@contextmanager
def workers(n_jobs: int | None) -> Iterator[Mapper]:
    """Yield an ordered parallel map for the length of a computation."""
    count = n_threads(n_jobs)
    with _per_thread_blas().limit(limits=1), _one_blas_thread:
        if count == 1:
            yield serial_map
            return
        with ThreadPoolExecutor(count, "pskem", initializer=_limit_own_blas) as pool:
            yield _Threads(pool, count)


class _Serial:
    """One task after the other; only reading goes on meanwhile."""

    def __call__(self, function: Callable[..., T], *iterables: Iterable[Any]) -> list[T]:
        return [function(*task) for task in zip(*iterables, strict=True)]

    def stream(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        for box in _ahead(items):
            yield consume(function, box)


class _Threads:
    """Tasks for a pool of threads."""

    def __init__(self, pool: ThreadPoolExecutor, count: int) -> None:
        self._pool, self._count = pool, count

    def __call__(self, function: Callable[..., T], *iterables: Iterable[Any]) -> list[T]:
        tasks = list(zip(*iterables, strict=True))
        if len(tasks) == 1:  # handing over one task costs more than it can gain
            return [function(*tasks[0])]
        return list(self._pool.map(function, *zip(*tasks, strict=True)))

    def stream(self, function: Callable[[Any], T], items: Iterable[Any]) -> Iterator[T]:
        waiting: deque[Future[T]] = deque()
        try:
            for box in _ahead(items):
                waiting.append(self._pool.submit(consume, function, box))
                if len(waiting) > self._count:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for task in waiting:
                task.cancel()


#: The mapper that has no threads.
serial_map: Mapper = _Serial()


def _ahead(items: Iterable[T]) -> Iterator[list[T]]:
    """The same items, each in a box; a thread of its own reads some before they are asked for."""
    source = iter(items)
    with ThreadPoolExecutor(1, "pskem-reader") as reader:
        waiting = deque(reader.submit(_next_of, source) for _ in range(AHEAD))
        try:
            while box := waiting.popleft().result():
                waiting.append(reader.submit(_next_of, source))
                yield box
        finally:
            for task in waiting:
                task.cancel()


def _next_of(source: Iterator[T]) -> list[T]:
    """The next item in a box, which is empty if there is none."""
    return list(islice(source, 1))


def _limit_own_blas() -> None:
    """Hold BLAS to one thread in a worker, where the limit is one per calling thread."""
    _per_thread_blas().limit(limits=1)


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


@cache
def _per_thread_blas() -> ThreadpoolController:
    """BLAS libraries that run on OpenMP, which keeps its limit for each calling thread."""
    return _controller().select(threading_layer="openmp")


class Shared:
    """Something about the process that changes while anyone is inside; the last to leave undoes it.

    If two threads each restored what they had found, the later one would restore the other's
    change, and it would stay for good.

    Parameters
    ----------
    change : makes the change and returns what undoes it; None if there is nothing to undo
    linger : seconds after which it is undone, if nobody has come in by then
    """

    def __init__(self, change: Callable[[], Callable[[], Any] | None], linger: float = 0.0) -> None:
        self._change, self._linger = change, linger
        self.reset()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.reset)

    def reset(self) -> None:
        """As if nobody were inside: for a forked child, where nobody will leave."""
        self._lock = Lock()
        self._inside = 0
        self._undo: Callable[[], Any] | None = None
        self._later: Timer | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._later is not None:
                self._later.cancel()
                self._later = None
            if self._undo is None:
                self._undo = self._change()
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0 and self._linger and self._undo is not None:
                self._later = Timer(self._linger, self._end)
                self._later.daemon, self._later.name = True, "pskem-undo"
                self._later.start()
        if not self._linger:
            self._end()

    def _end(self) -> None:
        """Undo the change, unless somebody is inside."""
        with self._lock:
            if self._inside == 0 and self._undo is not None:
                undo, self._undo = self._undo, None
                undo()


def _hold_blas() -> Callable[[], Any]:
    return _controller().limit(limits=1).restore_original_limits


#: Most builds of BLAS have one limit for the whole process.
_one_blas_thread = Shared(_hold_blas)
