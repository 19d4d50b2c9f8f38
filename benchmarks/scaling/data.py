"""Planted rows in files, made part by part: ``python -m benchmarks.scaling.data``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.child import serve

__all__ = ["forget", "parquet_files", "place", "rows_of"]

#: Rows that are made at a time; the same whatever is written.
STEP = 2**17
#: Rows of a Parquet file.
ROWS_OF_FILE = 2**19
TARGET = "y"


def place(folder: Path, N: int, M: int, L: int) -> Path:
    """Where the files of a data set lie."""
    return folder / f"{N}-{M}-{L}"


def parquet_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet"))


def rows_of(folder: Path, low: int, high: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Some rows, read now."""
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", TARGET))
    return np.array(X[low:high]), np.array(y[low:high])


def forget(folder: Path) -> bool:
    """Let the system drop the files from its memory; False where it cannot be asked to."""
    if not hasattr(os, "posix_fadvise"):
        return False
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return True


def _parts(N: int, M: int, L: int) -> Iterator[tuple[int, NDArray[Any], NDArray[Any]]]:
    """Rows about a centre for each class, which overlap: where they begin, X and y."""
    centres = np.random.default_rng(0).standard_normal((L, M))
    for low in range(0, N, STEP):
        rng = np.random.default_rng([1, low])
        n = min(STEP, N - low)
        y = rng.integers(L, size=n)
        yield low, centres[y] + rng.standard_normal((n, M)), y


def _write_npy(folder: Path, N: int, M: int, L: int) -> None:
    create = np.lib.format.open_memmap
    X = create(folder / "X.npy", "w+", np.float64, (N, M))
    labels = create(folder / f"{TARGET}.npy", "w+", np.int64, (N,))
    for low, rows, y in _parts(N, M, L):
        X[low : low + len(y)], labels[low : low + len(y)] = rows, y
    X.flush()
    labels.flush()


def _columns(rows: NDArray[Any], y: NDArray[Any]) -> Any:
    import pyarrow as pa

    return pa.table({**{f"x{i}": column for i, column in enumerate(rows.T)}, TARGET: y})


def _write_parquet(folder: Path, N: int, M: int, L: int) -> None:
    """As pyarrow writes a table if nothing is said: one row group to a file of so many rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    waiting = []
    for low, rows, y in _parts(N, M, L):
        waiting.append(_columns(rows, y))
        end = low + len(y)
        if end % ROWS_OF_FILE == 0 or end == N:
            name = f"part-{low // ROWS_OF_FILE:04}.parquet"
            pq.write_table(pa.concat_tables(waiting), folder / name)
            waiting = []


def _write_arrow(folder: Path, N: int, M: int, L: int) -> None:
    import pyarrow as pa

    writer = None
    with pa.OSFile(str(folder / "rows.arrow"), "wb") as file:
        for _, rows, y in _parts(N, M, L):
            table = _columns(rows, y)
            if writer is None:
                writer = pa.ipc.new_file(file, table.schema)
            writer.write_table(table, max_chunksize=2**16)
        assert writer is not None
        writer.close()


WRITERS = {"npy": _write_npy, "parquet": _write_parquet, "arrow": _write_arrow}


def _answer(folder: str, kind: str, N: int, M: int, L: int) -> dict[str, Any]:
    """Write a data set as files of a kind; how many bytes they have."""
    target = place(Path(folder), N, M, L)
    target.mkdir(exist_ok=True)
    before = set(target.iterdir())
    WRITERS[kind](target, N, M, L)
    made = set(target.iterdir()) - before
    for path in made:  # what has not reached the disk cannot be dropped from memory
        with path.open("rb") as file:
            os.fsync(file.fileno())
    return {"bytes": sum(path.stat().st_size for path in made)}


if __name__ == "__main__":
    serve(_answer)
