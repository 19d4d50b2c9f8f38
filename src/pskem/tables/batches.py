"""Files of Arrow columns: what is known of them when they are opened, and their rows in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from pskem.clusters import DaskPieces, needed_client
from pskem.engine import Additive, Mapper, fold_stream, rows_at_a_time
from pskem.tables.base import TableError, unreadable
from pskem.tables.reading import ARROW, IN_PARTS, PARQUET, is_remote, suffix_of

__all__ = [
    "BATCHES",
    "Batches",
    "FilePart",
    "Footer",
    "Stored",
    "check_names",
    "input_of",
    "open_parquet",
    "readable",
    "system_of",
]

#: Bytes of a record batch that is read whole; a larger one is mapped to memory.
LARGEST_BATCH = 2**27
#: How a Parquet file is opened that lies elsewhere.
ELSEWHERE: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**22}
#: Rows of a part of a file that a worker reads, at least, if there are as many row groups.
ROWS_OF_PART = 2**17
T = TypeVar("T", bound=Additive)


class Footer(NamedTuple):
    """What a file says of itself.

    schema : Arrow's
    sizes : rows of each row group of a Parquet file, or of each batch of an Arrow file
    """

    schema: Any
    sizes: tuple[int, ...]

    @classmethod
    def of(cls, path: str) -> Footer:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with readable(path):
            if suffix_of(path) in PARQUET:
                with pq.ParquetFile(input_of(path)) as file:
                    about = file.metadata
                    groups = range(about.num_row_groups)
                    return cls(
                        file.schema_arrow, tuple(about.row_group(i).num_rows for i in groups)
                    )
            one = pa.ipc.IpcReadOptions(included_fields=[0])  # of which the rows are counted
            with pa.memory_map(path) as file:
                schema = pa.ipc.open_file(file).schema
                reader = pa.ipc.open_file(file, options=one)
                batches = range(reader.num_record_batches)
                return cls(schema, tuple(reader.get_batch(i).num_rows for i in batches))


@dataclass(frozen=True)
class Stored:
    """A file of Arrow columns, and what it was like when it was opened.

    path : from wherever somebody looks
    named : what the file is called in messages
    """

    path: str
    named: str
    size: int
    changed: int
    footer: Footer

    @classmethod
    def at(cls, path: str, footer: Footer) -> Stored:
        return cls(path if is_remote(path) else os.path.abspath(path), path, *_state(path), footer)

    def check(self) -> None:
        """Refuse a file that is another one by now; addresses are asked where they are read."""
        if not is_remote(self.path):
            _check(self.named, self.path, (self.size, self.changed))

    @property
    def whole(self) -> FilePart:
        """All of it."""
        state = (self.size, self.changed) if is_remote(self.path) else None
        return FilePart(self.path, self.named, state=state)

    def cut(self) -> Iterator[FilePart]:
        """Parts that workers, who may be in other folders, read: some row groups each."""
        sizes = self.footer.sizes
        rows = 0
        groups: list[int] = []
        for i, size in enumerate(sizes):
            rows, groups = rows + size, [*groups, i]
            if rows >= ROWS_OF_PART or i + 1 == len(sizes):
                yield replace(self.whole, groups=tuple(groups))
                rows, groups = 0, []


def _state(path: str) -> tuple[int, int]:
    """Size of a file, and when it was changed."""
    if is_remote(path):
        with readable(path):
            system, inner = system_of(path)
            info = system.get_file_info(inner)
            if not info.is_file:
                raise FileNotFoundError("there is no such file")
            return int(info.size), int(info.mtime_ns or 0)
    try:
        found = os.stat(path)
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror}.") from None
    return found.st_size, found.st_mtime_ns


def _check(named: str, path: str, state: tuple[int, int]) -> None:
    if _state(path) != state:
        raise TableError(f"{named} has changed while it was being read. Start again.")


@dataclass(frozen=True)
class FilePart:
    """Some row groups of a Parquet file, or batches of an Arrow file; all if they are None.

    named : what the file is called in messages
    state : its size, and when it was changed, if that is to be compared where it is read
    """

    path: str
    named: str
    groups: tuple[int, ...] | None = None
    state: tuple[int, int] | None = None


@dataclass(frozen=True, eq=False)
class Batches:
    """Columns of files as batches of Arrow's, read here, or by a cluster if there are parts."""

    files: tuple[Stored, ...]
    parts: tuple[FilePart, ...]
    names: list[str]

    def fold(self, function: Callable[[Any], T], parallel_map: Mapper) -> T:
        self._check()
        read = partial(_batches_of, self.names)
        if self.parts:
            pieces = DaskPieces(self.parts, read, needed_client())
            found = pieces.fold(function, parallel_map)
        else:
            batches = chain.from_iterable(read(file.whole) for file in self.files)
            found = fold_stream(function, batches, parallel_map)
        self._check()  # one that was replaced meanwhile may have been read in part
        return found

    def _check(self) -> None:
        for file in self.files:
            file.check()


def _batches_of(names: Sequence[str], part: FilePart) -> Iterator[Any]:
    with readable(part.named):
        if part.state is not None:
            _check(part.named, part.path, part.state)
        yield from BATCHES[suffix_of(part.path)](part, names, rows_at_a_time(len(names)))


class readable:
    """Errors of a file in words, with its name."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        import pyarrow as pa

        if isinstance(error, TableError):
            return
        if isinstance(error, OSError | pa.ArrowException):
            raise unreadable(self.path, error) from None


def _parquet_batches(part: FilePart, names: Sequence[str], rows: int) -> Iterator[Any]:
    groups = None if part.groups is None else list(part.groups)
    with open_parquet(part.path) as file:
        check_names(part.named, names, file.schema_arrow.names)
        yield from file.iter_batches(rows, groups, list(names), use_threads=False)


def _arrow_batches(part: FilePart, names: Sequence[str], rows: int) -> Iterator[Any]:
    import pyarrow as pa

    path = part.path
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        present, n = reader.schema.names, max(1, reader.num_record_batches)
    check_names(part.named, names, present)
    # Nothing is read of other columns.
    places = {name: place for place, name in enumerate(present)}
    options = pa.ipc.IpcReadOptions(included_fields=[places[name] for name in names])
    opener = pa.OSFile if os.path.getsize(path) / n <= LARGEST_BATCH else pa.memory_map
    with opener(path) as file:
        reader = pa.ipc.open_file(file, options=options)
        for i in range(reader.num_record_batches) if part.groups is None else part.groups:
            batch = reader.get_batch(i).select(list(names))
            for low in range(0, batch.num_rows, rows):
                yield batch.slice(low, rows)


BATCHES: dict[str, Callable[[FilePart, Sequence[str], int], Iterator[Any]]] = {
    **dict.fromkeys(PARQUET, _parquet_batches),
    **dict.fromkeys(ARROW, _arrow_batches),
}


def input_of(path: str) -> Any:
    """What pyarrow reads a file from."""
    if not is_remote(path):
        return path
    system, inner = system_of(path)
    return system.open_input_file(inner)


def open_parquet(path: str) -> Any:
    """A Parquet file that is read in parts.

    Each reading from an address takes a while: of those files, the columns of a row group come in
    few large pieces.
    """
    import pyarrow.parquet as pq

    return pq.ParquetFile(input_of(path), **(ELSEWHERE if is_remote(path) else IN_PARTS))


def system_of(path: str) -> tuple[Any, str]:
    """The file system of an address, and the path there."""
    from pyarrow import fs

    system, inner = fs.FileSystem.from_uri(path)
    return system, str(inner)


def check_names(path: str, names: Sequence[str], present: Sequence[str]) -> None:
    missing = sorted(set(names) - set(present))
    if missing:
        raise TableError(f"{path} has no column {missing[0]!r}, which the table has elsewhere.")
