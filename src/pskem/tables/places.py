"""The files that a name stands for: wildcards, folders, addresses; and their rows in parts."""

from __future__ import annotations

import glob
import os
from collections.abc import Collection, Iterator
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from pskem.tables.base import NoRowsError, TableError
from pskem.tables.batches import give_back, is_remote, open_parquet, readable, system_of
from pskem.tables.reading import (
    PARQUET,
    ROWS,
    from_arrow,
    is_named,
    read_parts,
    suffix_of,
    without_options,
)

__all__ = ["files_of", "read_files", "several"]


def several(source: str) -> bool:
    """Whether a source may stand for several files: a folder, a name with wildcards, an address."""
    return is_remote(source) or os.path.isdir(source) or _is_pattern(source)


def _is_pattern(source: str) -> bool:
    return glob.has_magic(source) and not os.path.exists(source)


def files_of(source: Any) -> list[str]:
    """The files that are meant by a path or a list of paths, in the order of their names."""
    given = [source] if isinstance(source, str | os.PathLike) else list(source)
    found: list[str] = []
    for item in [str(os.fspath(path)) for path in given]:
        if is_remote(item):
            found += _remote(item)
        elif os.path.isdir(item):
            inside = sorted(str(path) for path in Path(item).iterdir())
            inside = [path for path in inside if suffix_of(path) in PARQUET]
            if not inside:
                raise TableError(f"The folder {item} has no Parquet files.")
            found += inside
        elif _is_pattern(item):
            matching = sorted(glob.glob(item))
            if not matching:
                raise TableError(f"No file is called {item}.")
            found += matching
        elif item == "-":
            raise TableError("Standard input can be read once only; give a file.")
        elif is_named(item):
            raise TableError(f"{item} is the name of a data set; give a file.")
        else:
            found.append(item)
    if not found:
        raise TableError("There is no file to read: the list of files is empty.")
    return found


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
    names = sorted(info.base_name for info in infos if info.is_file)
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
    options = {"subset": subset, "data_home": data_home, "text": text, "verbatim": verbatim}
    if not several(source):
        for part in read_parts(source, **options, rows=rows):
            yield source, part
        return
    empty = True
    for path in files_of(source):
        with suppress(NoRowsError):
            here = not is_remote(path)
            parts = read_parts(path, **options, rows=rows) if here else _elsewhere(path, verbatim)
            for part in parts:
                empty = False
                yield path, part
    if empty:
        raise NoRowsError(f"{source} has no rows.")


def _elsewhere(path: str, verbatim: Collection[str]) -> Iterator[Any]:
    """Rows of a Parquet file that lies elsewhere, in parts."""
    if suffix_of(path) not in PARQUET:
        raise TableError(f"{path} is not a Parquet file; of those that lie elsewhere, only these.")
    with readable(path), open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=ROWS):
            if batch.num_rows:
                yield from_arrow(batch, verbatim)
    give_back()
