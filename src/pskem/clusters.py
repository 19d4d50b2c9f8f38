"""Rows on a Dask cluster: pieces that stay on the workers, and a tree of fixed shape over them.

Of every pass, the function that is folded goes out once, and what the pieces add up to comes back
through a tree whose shape follows from the number of pieces alone. So results have the same bits
for every number of workers, and nothing on the client grows with the number of rows. Where there is
no :class:`distributed.Client`, Dask's local scheduler does the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, TypeVar
from uuid import uuid4

from pskem.engine import Additive, Mapper, kept_memory, workers

__all__ = ["ClusterError", "DaskPieces", "current_client", "is_dask"]

#: Results that are merged at a time.
ARITY = 8
#: Seconds after which it is looked whether the scheduler is still there, and for which it may be
#: silent.
MOMENT, PATIENCE = 5.0, 40.0

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
    """The client that Dask would use here and now; None if there is none."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class DaskPieces:
    """Pieces on a cluster.

    partitions : values of Dask (delayed, or futures), each of which stands for one or more pieces
    split : from such a value to its pieces
    """

    partitions: Sequence[Any]
    split: Callable[[Any], Iterable[Any]]

    def fold(self, function: Callable[[Any], T], parallel_map: Mapper) -> T:
        found: T | None = _computed(self._tree(function))
        if found is None:
            raise ValueError("There are no rows.")
        return found

    def _tree(self, function: Callable[[Any], Any]) -> Any:
        """What the pieces add up to, as something delayed.

        The graph is written down as it is. Put together from a ``delayed`` for each task it would
        be the same, and a third of the time that a fold takes on the client and the scheduler.
        """
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph

        mark = uuid4().hex[:8]
        sent, name = f"pskem-model-{mark}", f"pskem-{task_name(function)}-{mark}"
        tasks: dict[str, Any] = {sent: _Sent(function)}
        keys: list[str] = []
        for i, part in enumerate(self.partitions):
            keys.append(f"{name}-{i}")
            tasks[keys[-1]] = _fold_partition, sent, self.split, _reference(part)
        level = 0
        while len(keys) > 1:
            level += 1
            groups = [keys[i : i + ARITY] for i in range(0, len(keys), ARITY)]
            keys = [f"pskem-merge-{mark}-{level}-{i}" for i in range(len(groups))]
            tasks |= {key: (_merge, group) for key, group in zip(keys, groups, strict=True)}
        needed = [part for part in self.partitions if is_dask(part)]
        graph = HighLevelGraph.from_collections(name, tasks, dependencies=needed)
        return Delayed(keys[0], graph, layer=name)


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
        found = [sent.function(piece) for piece in split(partition)]
    # Arrays have the layout that they would have after a journey, whether they go on one or not:
    # sums are rounded by it.
    return pickle.loads(pickle.dumps(_merge(found), protocol=5))


def _merge(parts: Sequence[Any]) -> Any:
    found = [part for part in parts if part is not None]
    return reduce(lambda one, other: one.merge(other), found) if found else None


def _computed(value: Any) -> Any:
    """The value of something delayed, by the client if there is one."""
    client = current_client()
    if client is None:
        return value.compute()
    from concurrent.futures import CancelledError

    from distributed import KilledWorker
    from distributed import TimeoutError as TooLong
    from distributed.comm import CommClosedError

    address = getattr(client.scheduler, "address", "(unknown)")
    future = client.compute(value, optimize_graph=False)
    silent, cause = 0.0, None
    try:
        while silent < PATIENCE:
            try:
                return future.result(timeout=MOMENT)
            except TooLong:
                if future.status == "error":  # the task's own error
                    raise
                silent = 0.0 if _is_there(client) else silent + 2.0 * MOMENT
    except KilledWorker as error:
        raise ClusterError(
            f"Workers of the Dask cluster at {address} were killed again and again over one part of"
            " the data, most likely because it does not fit into their memory. Give them more"
            " memory, or cut the data into smaller partitions or row groups. What was saved before"
            " is as it was."
        ) from error
    except (CommClosedError, CancelledError) as error:
        if future.status == "error":
            raise
        cause = error
    finally:
        future.release()
    raise ClusterError(
        f"The Dask scheduler at {address} is gone, so the training cannot go on. What was saved"
        " before is as it was; start the cluster again, and the training from its checkpoint."
    ) from cause


def _is_there(client: Any) -> bool:
    """Whether the scheduler of a client answers."""
    if client.status != "running":
        return False
    try:
        client.sync(client.scheduler.identity, callback_timeout=MOMENT)
    except Exception:  # whatever it is, there is no answer
        return False
    return True


def task_name(function: Any) -> str:
    """What a function does, as the dashboard shows it."""
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
