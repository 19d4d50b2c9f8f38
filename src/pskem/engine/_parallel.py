"""Threads over chunks, with BLAS held to one thread inside.

Work is cut into tasks by the data alone, never by the number of threads, and results come back in
the order of the tasks. Sums over tasks therefore have the same bits for every ``n_jobs``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import joblib
from threadpoolctl import ThreadpoolController

__all__ = ["Mapper", "n_threads", "serial_map", "workers"]

T = TypeVar("T")

#: map(function, *iterables), in order, perhaps in parallel.
Mapper = Callable[..., list[Any]]


def n_threads(n_jobs: int | None) -> int:
    """How many threads ``n_jobs`` stands for on this machine, here and now.

    ``None`` is all available cores, within what an enclosing joblib worker was given
    (``OMP_NUM_THREADS``), as for scikit-learn's own threaded estimators. Other values mean what
    they mean in joblib.
    """
    if n_jobs is not None:
        return int(joblib.effective_n_jobs(n_jobs))
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

            def parallel_map(function: Callable[..., T], *iterables: Iterable[Any]) -> list[T]:
                tasks = list(zip(*iterables, strict=True))
                if len(tasks) == 1:  # handing over one task costs more than it can gain
                    return [function(*tasks[0])]
                return list(pool.map(function, *zip(*tasks, strict=True)))

            yield parallel_map


def serial_map(function: Callable[..., T], *iterables: Iterable[Any]) -> list[T]:
    """One task after the other."""
    return [function(*task) for task in zip(*iterables, strict=True)]


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


class _BlasLimit:
    """Holds BLAS to one thread while anyone is inside; the last to leave lifts the limit.

    Most builds of BLAS have one limit for the whole process. If two fits in two threads each
    restored what they had found, the later one would restore the other's limit, and BLAS would
    stay at one thread for good.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """As if nobody were inside: for a forked child, where nobody will leave."""
        self._lock = Lock()
        self._inside = 0
        self._limit: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._limit = _controller().limit(limits=1)
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._limit.restore_original_limits()


_one_blas_thread = _BlasLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_one_blas_thread.reset)
