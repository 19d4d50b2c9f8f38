"""Read tables from CSV, TSV, Parquet and ARFF files, or data sets by name, whole or in parts."""

from __future__ import annotations

import csv
import glob
import lzma
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from pskem.datasets import CATALOGUE, LOADERS
from pskem.datasets.readers import FormatError, read_arff
from pskem.tables.base import (
    NoRowsError,
    Reader,
    ReadOptions,
    TableError,
    check_unique,
    spoken,
    unreadable,
)
from pskem.tables.text import COMPRESSED, SEPARATORS, text_reader

__all__ = [
    "ARROW",
    "EMBEDDED",
    "IN_PARTS",
    "PARQUET",
    "ROWS",
    "TARGET",
    "find_reader",
    "from_arrow",
    "is_named",
    "is_pattern",
    "is_remote",
    "is_text",
    "is_unnamed",
    "no_subsets",
    "read_parts",
    "read_table",
    "several",
    "suffix_of",
    "without_options",
]

PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather")
#: Small data sets that come with scikit-learn.
EMBEDDED = ("digits", "iris", "wine", "breast_cancer")
NAMED = (*EMBEDDED, *CATALOGUE)
#: The class column of a named data set.
TARGET = "class"
#: Rows that are read at a time, unless the caller says otherwise.
ROWS = 20_000
#: How a Parquet file of this machine is opened that is read in parts: a buffer for each column that
#: is read, of so many bytes, and not all columns of a row group at once. Its pages are read whole.
IN_PARTS: dict[str, Any] = {"pre_buffer": False, "buffer_size": 2**14}
#: Types of whole numbers, by the names that pandas has for them.
WHOLE = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]


def is_named(source: str) -> bool:
    """Whether a source is the name of a data set; a file of that name takes precedence."""
    return source in NAMED and not Path(source).is_file()


def is_remote(source: str) -> bool:
    """Whether a source is an address such as s3://bucket/part.parquet."""
    return "://" in source


def is_pattern(source: str) -> bool:
    """Whether a source is a name with wildcards."""
    return glob.has_magic(source) and not Path(source).exists()


def several(source: str) -> bool:
    """Whether a source may stand for several files: a folder, a name with wildcards, an address."""
    if is_named(source):
        return False
    return is_remote(source) or Path(source).is_dir() or is_pattern(source)


def is_text(source: str) -> bool:
    """Whether a source is a text file or stdin."""
    return source == "-" or (not is_named(source) and suffix_of(source) in SEPARATORS)


def without_options(address: str) -> tuple[str, str]:
    """An address, and its options: s3://bucket/part.parquet, and ?region=eu-west-1.

    A question mark may also stand for any character of a name.
    """
    place, mark, options = address.rpartition("?")
    return (place, mark + options) if "=" in options and mark else (address, "")


def suffix_of(path: str) -> str:
    """Suffix of the format, without the suffix of a compression and the options of an address."""
    name = without_options(path)[0] if is_remote(path) else path
    suffixes = [suffix.lower() for suffix in Path(name).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_table(source: str, subset: Any = None, data_home: Any = None, **more: Any) -> Any:
    """Read a whole table as a pandas DataFrame, with the parameters of :func:`read_parts`."""
    (frame,) = read_parts(source, subset, data_home, **more, rows=None)
    return frame


def read_parts(
    source: str,
    subset: str | None = None,
    data_home: Any = None,
    text: Collection[str] = (),
    verbatim: Collection[str] = (),
    rows: int | None = ROWS,
) -> Iterator[Any]:
    """Read a table in parts of ``rows`` rows, so that it need not fit into memory.

    ``source`` is a file, ``-`` for CSV on stdin, or the name of a data set, whose class column is
    ``class`` and for which ``subset`` and ``data_home`` are. Of a text file, the columns ``text``
    are read as text, whatever types a part suggests, and in the columns ``verbatim`` a text such
    as NA does not mean missing.
    """
    if is_named(source):
        frame = _named(source, subset, data_home)
        for low in range(0, len(frame), rows or len(frame)):
            yield frame[low : low + (rows or len(frame))]
        return
    if subset is not None:
        raise no_subsets(source)
    name = spoken(source)
    reader = find_reader(source)
    n_rows = 0
    try:
        for part in reader(source, ReadOptions(rows, text, verbatim)):
            n_rows += len(part)
            if len(part):
                yield part.set_axis(part.columns.map(str), axis=1)
    except TableError:
        raise
    except FormatError as error:
        raise TableError(str(error)) from error
    except UnicodeDecodeError as error:
        raise TableError(
            f"{name} is not text in UTF-8 ({error.reason} at byte {error.start:,}). Save it as"
            " UTF-8, for example with: iconv -f latin1 -t utf-8."
        ) from error
    except (OSError, ValueError, EOFError, csv.Error, lzma.LZMAError) as error:
        raise unreadable(source, error) from error
    if n_rows == 0:
        raise NoRowsError(f"{name} has no rows.")


def no_subsets(source: str) -> TableError:
    return TableError(f"{source} has no subsets, only the named image sets do.")


def find_reader(source: str) -> Reader:
    """What reads a file, or stdin; an error if there is no such file, or none of a known kind."""
    suffix = ".csv" if source == "-" else suffix_of(source)
    if is_remote(source):
        raise TableError(f"{source} is an address, and a file of this machine is needed here.")
    if is_pattern(source):
        raise TableError(f"{source} stands for several files, and one is needed here; name it.")
    if source != "-" and not Path(source).exists():
        known = "" if suffix else f", and no data set of that name: {', '.join(NAMED)}"
        raise TableError(f"There is no file {source}{known}.")
    if Path(source).is_dir():
        raise TableError(f"{source} is a folder; name a file.")
    whole = Path(source).is_file() or (Path(source).is_fifo() and suffix in SEPARATORS)
    if source != "-" and not whole:  # a device may never end
        raise TableError(f"{source} is a device or a pipe; name a file, or - for CSV on stdin.")
    compressed = source.lower().endswith(tuple(COMPRESSED))
    if suffix not in READERS or (compressed and suffix not in SEPARATORS):
        raise TableError(
            f"{source} is not of a known kind. Accepted: {', '.join(READERS)} (text also"
            f" compressed: {', '.join(COMPRESSED)}), - for CSV on stdin, or a data set:"
            f" {', '.join(NAMED)}."
        )
    return READERS[suffix]


def _parquet(source: str, wanted: ReadOptions) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source, **({} if wanted.rows is None else IN_PARTS)) as file:
        check_unique(source, file.schema_arrow.names)
        if wanted.rows is None:
            yield from_arrow(file.read(), wanted.verbatim)
            return
        for batch in file.iter_batches(batch_size=wanted.rows):
            yield from_arrow(batch, wanted.verbatim)


def _arrow(source: str, wanted: ReadOptions) -> Iterator[Any]:
    import pyarrow as pa

    with pa.memory_map(source) as file:
        reader = pa.ipc.open_file(file)
        check_unique(source, reader.schema.names)
        if wanted.rows is None:
            yield from_arrow(reader.read_all(), wanted.verbatim)
            return
        for i in range(reader.num_record_batches):
            batch = reader.get_batch(i)
            for low in range(0, batch.num_rows, wanted.rows):
                yield from_arrow(batch.slice(low, wanted.rows), wanted.verbatim)


def from_arrow(table: Any, verbatim: Collection[str] = ()) -> Any:
    """Convert to a data frame; integers stay integers beside missing values."""
    import pyarrow as pa

    whole = {getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")() for name in WHOLE}
    frame = table.to_pandas(ignore_metadata=True, types_mapper=whole.get)
    for name in verbatim:
        if name in frame.columns:  # with its own type, whatever a part of its rows holds
            frame[name] = table.column(name).to_pandas(types_mapper=pd.ArrowDtype)
    return frame.drop(columns=list(filter(is_unnamed, frame.columns)))


def is_unnamed(column: str) -> bool:
    """Whether a column holds an index of pandas without a name, which is no column of a table."""
    return re.fullmatch(r"__index_level_\d+__", column) is not None


def _arff(source: str, wanted: ReadOptions) -> Iterator[Any]:
    file = read_arff(Path(source))
    frame = pd.DataFrame(file.values)
    for name in file.nominal:
        frame[name] = frame[name].where(frame[name] != "?")
    yield frame


READERS: dict[str, Reader] = {
    **{suffix: text_reader(separator) for suffix, separator in SEPARATORS.items()},
    **dict.fromkeys(PARQUET, _parquet),
    **dict.fromkeys(ARROW, _arrow),
    ".arff": _arff,
}


def _named(name: str, subset: str | None, data_home: Any) -> Any:
    """Load a data set as a table with the class names in the column ``class``."""
    options: dict[str, Any] = {"as_frame": True}
    if name in EMBEDDED:
        import sklearn.datasets

        loader = getattr(sklearn.datasets, f"load_{name}")
    else:
        loader = LOADERS[name]
        options["data_home"] = data_home
    if subset is not None:
        if "subset" not in (loader.__kwdefaults__ or {}):
            raise TableError(f"{name} has no subsets; leave --subset out.")
        options["subset"] = subset
    bunch = loader(**options)
    frame = bunch.data.copy(deep=False)
    frame[TARGET] = bunch.target_names[bunch.target.to_numpy()].astype(str)
    return frame
