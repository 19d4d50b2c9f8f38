"""The process in which one fit takes its turns: ``python -m benchmarks.scaling.session``."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import numpy as np

from benchmarks.child import serve
from benchmarks.scaling.cases import Case
from benchmarks.scaling.data import TARGET, forget, parquet_files, place, rows_of
from benchmarks.scaling.usage import difference, peaks, used

#: A fit that is given what it calls after every pass.
Fit = Callable[[Callable[[Any], bool]], Any]


#: Passes of each kind, of a whole fit that is made for its memory.
SHORT = 2


class Turns:
    """A fit that waits after every pass until it is told to go on."""

    def __init__(self, fit: Fit) -> None:
        self._go: Queue[bool] = Queue()
        self._made: Queue[BaseException | None] = Queue()  # after a pass None, at the end an error
        self._thread = Thread(target=self._run, args=(fit,), daemon=True)
        self._thread.start()
        self._wait()

    def _run(self, fit: Fit) -> None:
        try:
            fit(self._watch)
            self._made.put(RuntimeError("The fit ended by itself; no more passes can be made."))
        except BaseException as error:
            self._made.put(error)

    def _watch(self, model: Any) -> bool:
        self._made.put(None)
        return self._go.get()

    def _wait(self) -> None:
        error = self._made.get()
        if error is not None:
            raise error

    def advance(self) -> None:
        """Make one more pass.

        Raises
        ------
        RuntimeError
            If the fit has come to its end instead.
        """
        self._go.put(False)
        self._wait()

    def end(self) -> None:
        self._go.put(True)
        self._thread.join()


class Session:
    """What the process holds between requests: a cluster if there is one, and the fit."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._client: Any = None
        self._turns: Turns | None = None

    def answer(self, do: str, **arguments: Any) -> Any:
        actions: dict[str, Callable[..., Any]] = {
            "begin": self._begin,
            "advance": self._advance,
            "end": self._end,
            "short": self._short,
            "checkpoint": self._checkpoint,
        }
        return actions[do](**arguments)

    def _begin(self, case: list[Any], folder: str, share: int) -> dict[str, Any]:
        """Open the rows and fit until the first pass is made.

        Returns the seconds that this takes, and the peaks of memory before the fit.
        """
        from pskem import EM_ALONE, SharedKernelClassifier

        wanted = Case(*case)
        self._files = place(Path(folder), wanted.N, wanted.M, wanted.L)
        if wanted.clustered:
            self._client = self._cluster(wanted.workers)
        given = self._rows(wanted, share)
        model = SharedKernelClassifier(**_shape(wanted), max_iter=10**6, tol=0.0, **EM_ALONE)
        before, start = peaks(self._client), time.perf_counter()
        self._turns = Turns(lambda watch: model.fit(*given, watch=watch))
        return {"seconds": time.perf_counter() - start, "before": before}

    def _cluster(self, n_workers: int) -> Any:
        from distributed import Client, LocalCluster

        cluster = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
        )
        return self._open.enter_context(Client(self._open.enter_context(cluster)))

    def _rows(self, case: Case, share: int) -> tuple[Any, ...]:
        """What fit is given; processes that are apart have a share of the rows each."""
        from pskem import open_table

        if case.source == "dask":
            return _dask_rows(self._files, case)
        if case.source == "arrow":
            return (open_table(self._files / "rows.arrow", target=TARGET),)
        if case.source in ("parquet", "files"):
            table = open_table(parquet_files(self._files), target=TARGET)
            return (table.on_cluster() if case.source == "files" else table,)
        if case.source == "memmap":
            return tuple(np.load(self._files / f"{n}.npy", mmap_mode="r") for n in ("X", TARGET))
        n = case.N // max(1, case.workers)
        return rows_of(self._files, share * n, (share + 1) * n)

    def _advance(self, cold: bool = False) -> dict[str, Any]:
        """One pass: its seconds, and what was used; perhaps with files that come from the disk."""
        assert self._turns is not None
        if cold and not forget(self._files):
            return {}
        before, start = used(self._client), time.perf_counter()
        self._turns.advance()
        seconds = time.perf_counter() - start
        return {"wall": seconds, "used": difference(before, used(self._client))}

    def _short(self, case: list[Any], folder: str) -> dict[str, Any]:
        """A short fit with all that a default one does: passes of both kinds, and calibration."""
        few = {"max_iter": SHORT, "discriminative_iter": SHORT, "tol": 0.0}
        return {"seconds": self._fit(case, folder, few), "passes": SHORT, "peak": peaks()}

    def _checkpoint(self, case: list[Any], folder: str) -> dict[str, Any]:
        """A fit of the default length that keeps a checkpoint, and what that has cost."""
        from benchmarks.scaling.clocked import Clocked

        kept = Clocked(Path(folder) / "run.checkpoint")
        seconds = self._fit(case, folder, {}, kept)
        size = kept.path.stat().st_size
        kept.remove()
        return {"seconds": seconds, "bytes": size, "spent": kept.spent}

    def _fit(
        self, case: list[Any], folder: str, options: dict[str, Any], checkpoint: Any = None
    ) -> float:
        """Seconds of a whole fit."""
        from pskem import SharedKernelClassifier

        wanted = Case(*case)
        self._files = place(Path(folder), wanted.N, wanted.M, wanted.L)
        start = time.perf_counter()
        model = SharedKernelClassifier(**_shape(wanted), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it may not converge in so few passes
            model.fit(*self._rows(wanted, 0), checkpoint=checkpoint)
        return time.perf_counter() - start

    def _end(self) -> dict[str, Any]:
        """End the fit; the most memory that it had."""
        assert self._turns is not None
        found = {"peak": peaks(self._client)}
        self._turns.end()
        self._open.close()
        return found


def _shape(case: Case) -> dict[str, Any]:
    return {
        "n_components": case.K,
        "n_blocks": case.R,
        "partition": "sequential",
        "n_jobs": case.threads,
        "random_state": 0,
    }


def _dask_rows(folder: Path, case: Case) -> tuple[Any, Any]:
    """An array of Dask's and its labels, whose partitions the workers read from the files."""
    import dask
    import dask.array as da

    edges = np.linspace(0, case.N, case.partitions + 1).astype(int).tolist()
    X, y = [], []
    for low, high in pairwise(edges):
        rows = dask.delayed(rows_of)(folder, low, high)
        X.append(da.from_delayed(rows[0], (high - low, case.M), dtype=np.float64))
        y.append(da.from_delayed(rows[1], (high - low,), dtype=np.int64))
    return da.concatenate(X), da.concatenate(y)


if __name__ == "__main__":
    serve(Session().answer)
