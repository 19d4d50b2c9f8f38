"""Rows on a Dask cluster: pieces that stay on the workers, and a tree of fixed shape over them.

Of every pass, the function that is folded goes out once, and what the pieces add up to comes back
through a tree whose shape follows from the number of pieces alone. So results have the same bits
for every number of workers, and nothing on the client grows with the number of rows. Where Dask
itself would not use a :class:`distributed.Client`, its local scheduler does the same.
"""

from __future__ import annotations

import pickle
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import cycle
from typing import Any, TypeVar
from uuid import uuid4

from pskem.engine import Additive, Mapper, consume, kept_memory, steps_of, workers

__all__ = [
    "ClusterError",
    "DaskPieces",
    "count_workers",
    "current_client",
    "is_dask",
    "needed_client",
    "persisted",
]

#: Results that are merged at a time.
ARITY = 8
#: Seconds after which it is looked whether the scheduler is still there, for which it may be
#: silent, and for which a client whose connection broke may try to come back. A minute at most.
MOMENT, PATIENCE, RETURN = 5.0, 40.0, 10.0
#: Seconds for which a scheduler is asked for its workers, only to spread a few tasks.
GLANCE = 1.0
#: Tasks for each thread of a cluster from which on Dask hands them out in turn.
MANY = 2
#: A warning says that a cluster has had no worker for so many moments.
DESERTED = 3
#: A model may be large. Dask would advise to put data on the workers, where they are.
MODELS = {"distributed.admin.large-graph-warning-threshold": "1GB"}
#: What the message of every cluster that fails ends with.
SAVED = "What was saved before is as it was"

T = TypeVar("T", bound=Additive)


class ClusterError(RuntimeError):
    """The cluster is gone, or has given up."""


def is_dask(value: Any) -> bool:
    """Whether a value is a collection of Dask's. Imports nothing."""
    if isinstance(value, type) or not hasattr(value, "__dask_graph__"):
        return False
    if type(value).__module__.partition(".")[0] == "dask":  # whose graphs take time to make
        return True
    return value.__dask_graph__() is not None  # xarray has objects with and without one


def current_client() -> Any:
    """The client that Dask itself would compute with here and now; None if it would use none."""
    if "distributed" not in sys.modules:  # whoever has a client has imported it
        return None
    from dask.base import get_scheduler
    from distributed import Client

    owner = getattr(get_scheduler(), "__self__", None)
    return owner if isinstance(owner, Client) else None


def needed_client() -> Any:
    """The same for work that is meant for a cluster; None only if Dask is told to work here."""
    import dask

    client, cause = None, None
    try:
        client = current_client()
    except RuntimeError as error:  # Dask is told to use a client, and has none
        cause = error
    if client is None and (cause or dask.config.get("scheduler", None) is None):
        raise ClusterError(
            "There is no Dask client: none was made, or it was closed because its scheduler is"
            f" gone. {SAVED}; make a distributed.Client. A training goes on from its checkpoint if"
            " it has one."
        ) from cause
    return client


@dataclass(frozen=True, eq=False)
class DaskPieces:
    """Pieces on a cluster.

    partitions : values of Dask (delayed, or futures), each of which stands for one or more pieces
    split : from such a value to its pieces
    client : what computes; None for Dask's local scheduler. It stays the same from fold to fold: if
        it is closed, nothing is computed elsewhere. It does not go to other processes.
    """

    partitions: Sequence[Any]
    split: Callable[[Any], Iterable[Any]]
    client: Any = field(default_factory=current_client, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return DaskPieces, (self.partitions, self.split)

    def fold(self, function: Callable[[Any], T], parallel_map: Mapper) -> T:
        found: T | None = _computed(self._tree(function), self.client)
        if found is None:
            raise ValueError("There are no rows.")
        return found

    def _tree(self, function: Callable[[Any], Any]) -> Any:
        """What the pieces add up to, as something delayed.

        The graph is written down as it is. Put together from a ``delayed`` for each task it would
        be the same, and a third of the time that a fold takes on the client and the scheduler.
        """
        import dask
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph

        mark = uuid4().hex[:8]
        sent, name = f"pskem-model-{mark}", f"pskem-{task_name(function)}-{mark}"
        tasks: dict[str, Any] = {sent: _Sent(function)}
        keys: list[str] = []
        for i, part in enumerate(self.partitions):
            keys.append(f"{name}-{i}")
            tasks[keys[-1]] = _fold_partition, sent, self.split, _reference(part)
        placed = _spread(keys, self.client) if self.may_lie_anywhere else {}
        level = 0
        while len(keys) > 1:
            level += 1
            groups = [keys[i : i + ARITY] for i in range(0, len(keys), ARITY)]
            keys = [f"pskem-merge-{mark}-{level}-{i}" for i in range(len(groups))]
            tasks |= {key: (_merge, group) for key, group in zip(keys, groups, strict=True)}
        needed = [part for part in self.partitions if is_dask(part)]
        # A worker that is gone meanwhile is no matter.
        with (
            dask.annotate(workers=placed.get, allow_other_workers=True) if placed else nullcontext()
        ):
            graph = HighLevelGraph.from_collections(name, tasks, dependencies=needed)
        return Delayed(keys[0], graph, layer=name)

    @property
    def may_lie_anywhere(self) -> bool:
        """Whether no worker has the partitions more at hand than others: they are in files."""
        return not any(is_dask(part) or hasattr(part, "key") for part in self.partitions)


def _spread(keys: Sequence[str], client: Any) -> dict[str, str]:
    """A worker for each of a few tasks that need no rows of workers; nothing if they are many.

    Dask itself hands out many tasks in turn. Few would all go to the worker that has the model, and
    others may take some from it, or not.
    """
    if client is None or client.status != "running":
        return {}
    try:
        threads = client.sync(client.scheduler.ncores, workers=None, callback_timeout=GLANCE)
    except Exception:  # whatever it is, the fold will tell
        return {}
    places = sorted((i, address) for address, n in threads.items() for i in range(n))
    if len(keys) > MANY * len(places):
        return {}
    return dict(zip(keys, cycle(address for _, address in places), strict=False))


def persisted(values: list[Any], client: Any) -> list[Any]:
    """Delayed values that stay in the memory of a cluster; as they are if there is none."""
    if client is None:
        return values
    place = _place(client)
    try:
        return list(client.persist(values))
    except Exception as error:
        if _is_back(client):
            raise
        raise _gone(place) from error


def _reference(partition: Any) -> Any:
    """What stands for a partition in a graph: the key of a delayed one, or what it is."""
    return partition.key if is_dask(partition) else partition


@dataclass(frozen=True, eq=False)
class _Sent:
    """What is folded, as a task of its own that workers hand on to each other.

    Dask looks into tuples, lists and dictionaries of a graph; it does not look into this.
    """

    function: Callable[[Any], Any]


def _fold_partition(sent: _Sent, split: Callable[[Any], Iterable[Any]], partition: Any) -> Any:
    """What the pieces of a partition add up to; None if there are none."""
    with kept_memory, workers(1):  # BLAS rounds by the number of its threads
        boxes = map(_boxed, split(partition))
        found = _merge(map(partial(consume, sent.function), boxes))
    # Arrays have the layout that they would have after a journey, whether they go on one or not:
    # sums are rounded by it.
    return pickle.loads(pickle.dumps(found, protocol=5))


def _boxed(piece: Any) -> list[Any]:
    return [piece]


def _merge(parts: Iterable[Any]) -> Any:
    """The sum of parts that are not None, from left to right, no more than two at a time."""
    return reduce(_add, parts, None)


def _add(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return one if other is None else other
    return one.merge(other)


def _computed(value: Any, client: Any) -> Any:
    """The value of something delayed, by a client if there is one."""
    if client is None:
        return value.compute()
    from concurrent.futures import CancelledError

    import dask
    from distributed import KilledWorker
    from distributed.comm import CommClosedError

    future, place = None, _place(client)  # of which a closed client knows nothing
    try:
        if client.status not in ("running", "connecting"):
            raise _gone(place)
        with dask.config.set(MODELS):
            future = client.compute(value, optimize_graph=False)
        with _aside():
            return _awaited(future, client, place)
    except ClusterError:
        raise
    except KilledWorker as error:
        raise ClusterError(
            f"Workers of the Dask cluster{place} were killed again and again over one part of the"
            " data, most likely because it does not fit into their memory. Give them more memory,"
            f" or cut the data into smaller partitions or row groups. {SAVED}."
        ) from error
    except Exception as error:
        if future is not None and future.status == "error":  # the task's own error
            raise
        if not _is_back(client):
            raise _gone(place) from error
        if isinstance(error, CommClosedError | CancelledError):
            raise _lost(place, error) from error
        raise
    finally:
        if future is not None:
            with suppress(Exception):  # a client that is being closed refuses
                future.release()


def _awaited(future: Any, client: Any, place: str) -> Any:
    """The result of a future, while its scheduler answers."""
    from distributed import TimeoutError as TooLong

    silent, deserted = 0.0, 0
    while silent < PATIENCE:
        try:
            return future.result(timeout=MOMENT)
        except TooLong:
            if future.status == "error":
                raise
            n_workers = _ask_workers(client)
            silent = silent + 2.0 * MOMENT if n_workers is None else 0.0
            if n_workers is not None:
                deserted = deserted + 1 if n_workers == 0 else 0
            if deserted == DESERTED:
                warnings.warn(
                    f"The Dask cluster{place} has no workers; its work waits until one comes.",
                    UserWarning,
                    stacklevel=2,
                )
    raise _gone(place)


@contextmanager
def _aside() -> Iterator[None]:
    """Let other tasks have the place of this one, if this is one: it waits for them."""
    from distributed import rejoin, secede

    try:
        secede()
    except Exception:  # no task, or one that has stepped aside
        yield
        return
    try:
        yield
    finally:
        rejoin()


def _gone(place: str) -> ClusterError:
    return ClusterError(
        f"The Dask scheduler{place} is gone or does not answer, or its client was closed."
        f" {SAVED}; start the cluster again. A training goes on from its checkpoint if it has one."
    )


def _lost(place: str, error: BaseException) -> ClusterError:
    reason = getattr(error, "reason", None) or type(error).__name__
    return ClusterError(
        f"The Dask cluster{place} has lost rows or work that were needed ({reason}): they were"
        " cancelled, the cluster was restarted, or a worker has left with the only copy of"
        f" scattered data. {SAVED}; give the data again, best as a collection that Dask can make"
        " anew. A training goes on from its checkpoint if it has one."
    )


def count_workers(client: Any) -> int:
    """How many workers the cluster of a client has; an error if its scheduler does not answer."""
    deadline = time.monotonic() + PATIENCE
    while (found := _ask_workers(client)) is None:
        if time.monotonic() > deadline or client.status == "closed":
            raise _gone(_place(client))
        time.sleep(0.1)
    return found


def _place(client: Any) -> str:
    address = getattr(client.scheduler, "address", None)
    return f" at {address}" if address else ""


def _is_back(client: Any) -> bool:
    """Whether the scheduler of a client answers, perhaps after a break."""
    deadline = time.monotonic() + RETURN
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.1)
    return _ask_workers(client) is not None


def _ask_workers(client: Any) -> int | None:
    """How many workers the scheduler of a client has; None if it does not answer."""
    if client.status != "running":
        return None
    try:
        about = client.sync(client.scheduler.identity, callback_timeout=MOMENT)
    except Exception:  # whatever it is, there is no answer
        return None
    return len(about["workers"])


def task_name(function: Any) -> str:
    """What a function does, as the dashboard shows it."""
    return "-".join(map(_shown, _name(function).split("-")))


def _shown(word: str) -> str:
    """A word that Dask shows: eight small letters from a to f on are a number to it."""
    return word.capitalize() if len(word) == 8 and word[0] in "abcdef" else word


def _name(function: Any) -> str:
    function = steps_of(function)[-1]
    while isinstance(function, partial):
        named = getattr(function.args[-1], "task_name", None) if function.args else None
        inner = [part for part in function.args if callable(part)]
        if isinstance(named, str):
            return named
        if not inner:
            function = function.func
            break
        function = inner[-1]
    named = getattr(function, "task_name", None)
    if isinstance(named, str):
        return named
    name = getattr(function, "__name__", type(function).__name__)
    return name.strip("_").replace("_", "-").lower()
