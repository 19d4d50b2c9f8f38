"""The files that a name stands for: wildcards, folders, addresses; and their rows in parts."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from pskem.tables.base import NoRowsError, TableError, check_unique, spoken
from pskem.tables.batches import BATCHES, Footer, open_parquet, readable, system_of
from pskem.tables.reading import (
    PARQUET,
    ROWS,
    from_arrow,
    is_named,
    is_pattern,
    is_remote,
    no_subsets,
    read_parts,
    several,
    suffix_of,
    without_options,
)

__all__ = ["files_of", "includes", "kinds_of", "read_files", "rows_of"]


def files_of(source: Any) -> list[str]:
    """The files that are meant by a path or a list of paths, in the order of their names."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    found: list[str] = []
    for item in [str(os.fspath(path)) for path in given]:
        if is_remote(item):
            found += _remote(item)
        elif os.path.isdir(item):
            inside = in_order(str(path) for path in Path(item).iterdir())
            inside = [path for path in inside if suffix_of(path) in PARQUET]
            if not inside:
                raise TableError(
                    f"The folder {item} has no Parquet files. Other files of a folder are named"
                    f" with wildcards, such as {os.path.join(item, '*.csv')!r}."
                )
            found += inside
        elif is_pattern(item):
            matching = in_order(glob.glob(item))
            if not matching:
                raise TableError(f"No file is called {item}.")
            found += matching
        elif item == "-" or Path(item).is_fifo():
            raise TableError(f"{spoken(item)} can be read once only; give a file.")
        elif is_named(item):
            raise TableError(f"{item} is the name of a data set; give a file.")
        else:
            found.append(item)
    if not found:
        raise TableError("There is no file to read: the list of files is empty.")
    return found


def includes(source: str, path: str) -> bool:
    """Whether a source stands for the file of this path, or would if there were one."""
    if source.startswith("file://"):
        source = unquote(urlsplit(source).path)
    if is_remote(source):
        return False
    if os.path.exists(path):
        inside = files_of(source) if several(source) else [source]
        return any(os.path.exists(one) and os.path.samefile(one, path) for one in inside)
    folder, name = os.path.split(os.path.realpath(path))  # what is written, wherever links lead to
    if os.path.isdir(source):
        return folder == os.path.realpath(source) and suffix_of(name) in PARQUET
    if not is_pattern(source):
        return False
    folders, pattern = os.path.split(source)
    found = glob.glob(folders) if folders else ["."]
    return folder in map(os.path.realpath, found) and fnmatch(name, pattern)


def kinds_of(source: str, names: Iterable[str]) -> dict[str, Any]:
    """Arrow's types of columns, with room for those of all files of a source.

    Those that the files do not tell are left out.
    """
    import pyarrow as pa

    if not names or is_named(source) or source == "-":
        return {}
    paths = files_of(source) if several(source) else [source]
    if not all(suffix_of(path) in BATCHES for path in paths):
        return {}
    schemas = {path: Footer.of(path).schema for path in paths}
    found = {}
    for name in names:
        fields = [schema.field(name) for schema in schemas.values() if name in schema.names]
        try:
            one = pa.unify_schemas([pa.schema([f]) for f in fields], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError):
            kinds = ", ".join(sorted({str(field.type) for field in fields}))
            raise TableError(
                f"The files of {source} hold {kinds} in the column {name!r}, which cannot be one"
                " column of a Parquet file. Write a CSV file instead, or do not keep the column."
            ) from None
        if fields:
            found[name] = one.field(name).type
    return found


def in_order(names: Iterable[str]) -> list[str]:
    """Sorted, with numbers by their value: part-2 comes before part-10."""
    return sorted(names, key=lambda name: [_rank(part) for part in re.split(r"(\d+)", name)])


def _rank(part: str) -> tuple[int, str]:
    return (int(part), part) if part.isdecimal() else (-1, part)


def _remote(address: str) -> list[str]:
    """The addresses that one with wildcards, or that of a folder, stands for."""
    from pyarrow import fs

    place, options = without_options(address)
    folder, _, name = place.rpartition("/")
    with readable(address):
        if not glob.has_magic(name):
            system, inner = system_of(address)
            if system.get_file_info(inner).is_file:
                return [address]
            folder, name = place.rstrip("/"), "*"
        system, inner = system_of(folder + options)
        infos = system.get_file_info(fs.FileSelector(inner, allow_not_found=True))
    names = in_order(info.base_name for info in infos if info.is_file)
    names = [one for one in names if fnmatch(one, unquote(name)) and suffix_of(one) in PARQUET]
    if not names:
        raise TableError(f"No Parquet file is called {address}.")
    return [f"{folder}/{quote(one)}{options}" for one in names]


def read_files(
    source: str,
    *,
    subset: str | None = None,
    data_home: Any = None,
    text: Collection[str] = (),
    verbatim: Collection[str] = (),
    rows: int = ROWS,
) -> Iterator[tuple[str, Any]]:
    """Rows of all files that a source stands for, in parts, each with the name of its file.

    The parameters are those of :func:`read_parts`. A file without rows may be among several.
    """
    if not several(source):
        for part in read_parts(source, subset, data_home, text, verbatim, rows):
            yield source, part
        return
    if subset is not None:
        raise no_subsets(source)
    empty = True
    for path in files_of(source):
        with suppress(NoRowsError):
            for part in rows_of(path, text, verbatim, rows):
                empty = False
                yield path, part
    if empty:
        raise NoRowsError(f"{source} has no rows.")


def rows_of(
    path: str, text: Collection[str] = (), verbatim: Collection[str] = (), rows: int = ROWS
) -> Iterator[Any]:
    """Rows of one file in parts, wherever it lies."""
    if not is_remote(path):
        yield from read_parts(path, text=text, verbatim=verbatim, rows=rows)
        return
    if suffix_of(path) not in PARQUET:
        raise TableError(f"{path} is not a Parquet file; of those that lie elsewhere, only these.")
    empty = True
    with readable(path), open_parquet(path) as file:
        check_unique(path, file.schema_arrow.names)
        for batch in file.iter_batches(batch_size=rows):
            if batch.num_rows:
                empty = False
                yield from_arrow(batch, verbatim)
    if empty:
        raise NoRowsError(f"{path} has no rows.")
