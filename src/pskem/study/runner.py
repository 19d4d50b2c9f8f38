"""Perform the runs of a study in several processes, each run once, despite interrupts."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any, NamedTuple

from pskem.study.configuration import RunSpec, StudyError, digest
from pskem.study.execution import Result, perform
from pskem.study.materials import Place, is_ready, load, prepare
from pskem.study.splits import make_parts
from pskem.study.store import Store

__all__ = ["Outcome", "WorkProgress", "pool", "work"]

#: Seconds between looks at the clock and the file.
BEAT = 2.0
DEAD = "A worker process ended all of a sudden"
ADVICE = (
    f"{DEAD}; the machine may be short of memory. Runs that were done are kept: go on with the same"
    " command, perhaps with fewer --jobs."
)


class WorkProgress(NamedTuple):
    """WorkProgress of the work.

    done : number of recorded runs, of ``total``
    now : current activity
    left : estimated seconds to the end; None if there is no estimate yet
    """

    done: int
    total: int
    failed: int
    now: str
    left: float | None

    @property
    def text(self) -> str:
        """All of it in words."""
        parts = [
            f"{self.done} of {self.total} runs",
            *([f"{self.failed} failed"] if self.failed else []),
            *([f"{in_words(self.left)} left"] if self.left is not None else []),
            self.now,
        ]
        return ", ".join(parts)


def in_words(seconds: float) -> str:
    """A duration in words."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


class Outcome(NamedTuple):
    """Result of the work: runs performed here, runs found done or done by others, failures."""

    performed: int
    found: int
    failures: list[tuple[RunSpec, str]]

    def reasons(self) -> Iterator[str]:
        """Why runs failed, each reason once, with the first run that failed for it."""
        groups: dict[str, list[RunSpec]] = {}
        for run, message in self.failures:
            groups.setdefault(message, []).append(run)
        for message, group in groups.items():
            point = group[0].point
            settings = ", ".join(f"{key}={value}" for key, value in point.settings.items())
            first = f"{point.method}{f' with {settings}' if settings else ''}, seed {group[0].seed}"
            yield (
                f"{len(group)} run(s) on {point.data['source']} failed: {message} (The first:"
                f" {first}.)"
            )


@contextmanager
def pool(jobs: int) -> Iterator[Executor]:
    """Pool of worker processes that ignore interrupts and end with their parent."""
    executor = ProcessPoolExecutor(
        jobs, get_context("spawn"), initializer=_begin, initargs=(os.getpid(),)
    )
    try:
        yield executor
    except BaseException:
        for process in list((executor._processes or {}).values()):
            process.terminate()
        executor.shutdown(cancel_futures=True)
        raise
    executor.shutdown()


def _begin(parent: int) -> None:
    """In a new worker."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)  # the parent was killed: nobody waits for the result

    threading.Thread(target=watch, daemon=True).start()


def work(
    runs: Sequence[RunSpec],
    store: Store,
    place: Place,
    executor: Executor,
    jobs: int = 1,
    threads: int = 1,
    observe: Callable[[WorkProgress], None] = lambda progress: None,
) -> Outcome:
    """Perform the runs that are not recorded yet, ``jobs`` at a time.

    Other processes may work on the same file. Runs that they have claimed are left to them and
    awaited at the end.
    """
    store.release()  # what an earlier attempt may have left
    # What failed before, and perhaps took a worker with it, comes last.
    before = store.failures()
    pending = {run.key: run for run in sorted(runs, key=lambda run: run.key in before)}
    total = len(pending)
    for key in store.done(pending):
        del pending[key]
    found = total - len(pending)
    failures: list[tuple[RunSpec, str]] = []

    def tell(now: str, left: float | None) -> None:
        observe(WorkProgress(found + performed, total, len(failures), now, left))

    performed = 0
    for key, message in _make_ready(pending, place, executor, tell).items():
        run = pending.pop(key)
        failures.append((run, message))
        store.fail(run, message)
    active: dict[Future[Result], tuple[str, RunSpec]] = {}
    clock = _Clock(store, jobs, pending.values())
    while pending or active:
        while pending and len(active) < jobs:
            claim = store.claim(list(pending))
            found += len(claim.done)
            for key in claim.done:
                del pending[key]
            if claim.key is None:
                break
            run = pending.pop(claim.key)
            try:
                future = _submit(executor, perform, run, place, threads)
            except BrokenProcessPool:
                raise StudyError(ADVICE) from None
            active[future] = claim.key, run
        doing = sorted({_spoken(run) for _, run in active.values()})
        now = ", ".join(doing) or ("others at work" if pending else "done")
        left = clock.left([*pending, *(key for key, _ in active.values())])
        tell(now, left)
        if not active:
            if pending:
                time.sleep(BEAT)
            continue
        finished, _ = wait(active, timeout=BEAT, return_when=FIRST_COMPLETED)
        for future in finished:
            key, run = active.pop(future)
            problem = _problem(future)
            if problem is None:
                store.add(run, future.result(), threads)
                clock.tell(key, future.result())
                performed += 1
            else:
                failures.append((run, problem))
                store.fail(run, problem)
        store.renew()
        if any(message == DEAD for _, message in failures):
            raise StudyError(ADVICE)
    tell("done", 0.0)
    return Outcome(performed, found, failures)


def _problem(future: Future[Result]) -> str | None:
    """Error message of a run, or None if it succeeded."""
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        return DEAD
    if error is not None:
        text = " ".join(str(error).split())
        if isinstance(error, OSError | ValueError) and text:
            return text
        return f"{type(error).__name__}: {text}"
    numbers = [x for part in future.result().parts for x in (*part.test, *part.log_likelihoods)]
    numbers += [part.log_loss for part in future.result().parts if part.log_loss is not None]
    return None if all(map(math.isfinite, numbers)) else "The result is not finite"


def _make_ready(
    runs: Mapping[str, RunSpec],
    place: Place,
    executor: Executor,
    tell: Callable[[str, float | None], None],
) -> dict[str, str]:
    """Get the data of the runs, make the features that runs share, and try the splits.

    Returns the error messages of runs for which this fails, by key.
    """
    users: dict[str, list[str]] = {}
    for key, run in runs.items():
        users.setdefault(digest([dict(table) for table in run.point[:4]]), []).append(key)
    failed: dict[str, str] = {}
    for keys in users.values():
        run = runs[keys[0]]
        tell(f"data of {run.point.data['source']}", None)
        try:
            if not is_ready(run.point, run.path, place):
                _submit(executor, prepare, run.point, place).result()
            material = load(run.point, run.path, place)
            split, validation = run.point.split, run.point.validation
            make_parts(material.y, material.n_train, split, validation, run.seed)
        except BrokenProcessPool:
            raise StudyError(ADVICE) from None
        except Exception as error:
            failed |= dict.fromkeys(keys, " ".join(str(error).split()))
    return failed


def _submit(executor: Executor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Submit a task, which may start a process."""
    with _undisturbed():
        return executor.submit(function, *arguments)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Delay interrupts until the end of the block.

    A process started inside inherits the blocked signals, so only its parent handles interrupts.
    And an interrupt cannot leave a process half started.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    late: list[int] = []
    handlers = {
        number: signal.signal(number, lambda caught, frame: late.append(caught))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    # The mask is for the child: in the parent another thread may still take the signal.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for caught in late:
            signal.raise_signal(caught)


class _Clock:
    """Estimates the remaining time from the time of earlier runs."""

    def __init__(self, store: Store, jobs: int, runs: Iterable[RunSpec]) -> None:
        self._seconds = store.seconds()
        self._jobs = jobs
        self._points = {run.key: run.point.key for run in runs}

    def tell(self, key: str, result: Result) -> None:
        self._seconds.setdefault(self._points[key], result.seconds)

    def left(self, keys: Collection[str]) -> float | None:
        known = [self._seconds[p] for p in map(self._points.get, keys) if p in self._seconds]
        if 2 * len(known) < len(keys):
            return None  # too many are of a kind that has not been seen
        return sum(known) * len(keys) / max(1, len(known)) / self._jobs


def _spoken(run: RunSpec) -> str:
    return f"{run.point.data['source']} {run.point.method}"
