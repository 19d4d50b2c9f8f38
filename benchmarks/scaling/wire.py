"""What a fold on Dask costs besides its work: tasks, merges, graphs, and what goes over the wire.

``python -m benchmarks.scaling.wire`` answers in a process of its own.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from benchmarks.child import serve
from benchmarks.scaling.cases import Case

#: Rows and partitions of fits that are made for their folds, not for their time.
N, PARTITIONS = 24_000, 3
MERGES = 30


class Numbers:
    """A function whose results are so many numbers, and take no time."""

    def __init__(self, n: int) -> None:
        self.values = np.ones(n)

    def __call__(self, piece: Any) -> Any:
        from pskem.engine import Total

        return Total((self.values,))


def _one(value: Any) -> list[Any]:
    return [value]


def _folds(workers: int, partitions: int, numbers: int, rounds: int) -> dict[str, Any]:
    """Seconds of folds that do nothing, and processor seconds of the client and the scheduler.

    Also the bytes of the graph that the client sends for each, the function included.
    """
    import dask
    from distributed import Client, LocalCluster, wait

    from pskem.clusters import DaskPieces
    from pskem.engine import serial_map

    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": "127.0.0.1:0"}
    function, found = Numbers(numbers), []
    with LocalCluster(n_workers=workers, **options) as cluster, Client(cluster):
        parts = list(dask.persist(*(dask.delayed(int)(i) for i in range(partitions))))
        wait(parts)
        pieces = DaskPieces(parts, _one)
        for _ in range(rounds + 1):
            wall, processor = time.perf_counter(), time.process_time()
            pieces.fold(function, serial_map)
            ends = time.perf_counter(), time.process_time()
            found.append({"wall": ends[0] - wall, "processor": ends[1] - processor})
        graph = _graph_bytes(pieces._tree(function))
    return {"folds": found[1:], "graph": graph}  # the first warms up


def _graph_bytes(value: Any) -> int:
    """Bytes of the graph of something delayed; a client sends it pickled."""
    return len(pickle.dumps(value.dask, protocol=5))


@contextmanager
def _watched(seen: Callable[[Any, Any, float], None]) -> Iterator[None]:
    """Show every fold over pieces of Dask's: its function, its result, and its seconds."""
    from pskem.clusters import DaskPieces

    plain = DaskPieces.fold

    def fold(self: Any, function: Any, parallel_map: Any) -> Any:
        start = time.perf_counter()
        found = plain(self, function, parallel_map)
        seen(function, found, time.perf_counter() - start)
        return found

    DaskPieces.fold = fold  # type: ignore[method-assign]
    try:
        yield
    finally:
        DaskPieces.fold = plain  # type: ignore[method-assign]


def _fit(case: Case, settings: dict[str, Any]) -> Any:
    """A fit on an array of Dask's, one task after the other in this process."""
    import dask
    import dask.array as da

    from pskem import SharedKernelClassifier

    rng = np.random.default_rng(0)
    y = rng.integers(case.L, size=case.N)
    X = rng.standard_normal((case.L, case.M))[y] + rng.standard_normal((case.N, case.M))
    rows = -(-case.N // PARTITIONS)
    with dask.config.set(scheduler="synchronous"):
        return SharedKernelClassifier(random_state=0, n_jobs=1, **settings).fit(
            da.from_array(X, chunks=(rows, case.M)), da.from_array(y, chunks=rows)
        )


def _shape(case: Case) -> dict[str, Any]:
    return {"n_components": case.K, "n_blocks": case.R, "partition": "sequential"}


def _sizes(case: list[Any]) -> dict[str, Any]:
    """Bytes of what a pass sends out and gets back, and seconds of a merge."""
    from pskem import EM_ALONE
    from pskem.clusters import task_name

    sizes: dict[str, Any] = {}

    def look(function: Any, found: Any, seconds: float) -> None:
        if task_name(function) != "pass-ownclass":
            return
        packed = pickle.dumps(found, protocol=5)
        sizes["out"], sizes["back"] = len(pickle.dumps(function, protocol=5)), len(packed)
        one, other = pickle.loads(packed), pickle.loads(packed)
        merges = []
        for _ in range(MERGES):
            start = time.perf_counter()
            one.merge(other)
            merges.append(time.perf_counter() - start)
        sizes["merge"] = min(merges)

    wanted = Case(*case)._replace(N=N)
    with _watched(look):
        _fit(wanted, {**EM_ALONE, **_shape(wanted), "max_iter": 1, "tol": 0.0})
    return sizes


def _counts(case: list[Any]) -> dict[str, Any]:
    """Folds of a whole fit by their names, and their seconds on these few rows.

    Kernels are shared by all classes, as in the passes that are measured; what follows EM is as by
    default: rows are held out, discriminative passes are made, and the model is calibrated.
    """
    from pskem.clusters import task_name

    folds: dict[str, list[float]] = {}

    def look(function: Any, found: Any, seconds: float) -> None:
        folds.setdefault(task_name(function), []).append(seconds)

    start = time.perf_counter()
    with _watched(look):
        _fit(Case(*case), {**_shape(Case(*case)), "init": "kmeans"})
    return {
        "seconds": time.perf_counter() - start,
        "folds": {name: {"n": len(found), "seconds": sum(found)} for name, found in folds.items()},
    }


def answer(do: str, **arguments: Any) -> dict[str, Any]:
    actions: dict[str, Callable[..., dict[str, Any]]] = {
        "folds": _folds,
        "sizes": _sizes,
        "counts": _counts,
    }
    return actions[do](**arguments)


if __name__ == "__main__":
    serve(answer)
