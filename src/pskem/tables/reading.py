"""Tables from files: CSV, TSV, Parquet and ARFF, whole or in parts, or a data set by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pskem.datasets import CATALOGUE, LOADERS
from pskem.datasets.readers import FormatError, read_arff

__all__ = [
    "EMBEDDED",
    "PARQUET",
    "SEPARATORS",
    "TARGET",
    "TableError",
    "is_named",
    "read_parts",
    "read_table",
    "suffix_of",
]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
#: Small data sets that come with scikit-learn.
EMBEDDED = ("digits", "iris", "wine", "breast_cancer")
NAMED = (*EMBEDDED, *CATALOGUE)
#: The class column of a named data set.
TARGET = "class"
#: Rows that are read at a time.
ROWS = 20_000

#: Column types for text files, whose parts would be guessed one by one.
Types = Mapping[str, Any]
#: A source, the rows of a part or None for all at once, types -> parts.
Reader = Callable[[str, int | None, Types], Iterator[Any]]


class TableError(ValueError):
    """A table that cannot be read or used, with what is wrong with it."""


def is_named(source: str) -> bool:
    """Whether a source is the name of a data set; a file of that name goes first."""
    return source in NAMED and not Path(source).exists()


def suffix_of(path: str) -> str:
    """The suffix that tells the format, without that of a compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_table(
    source: str, subset: str | None = None, data_home: Any = None, types: Types | None = None
) -> Any:
    """A whole table as a pandas DataFrame.

    ``source`` is a file, ``-`` for CSV on stdin, or the name of a data set, whose class column is
    called ``class``; ``subset`` and ``data_home`` are for those.
    """
    (frame,) = read_parts(source, subset, data_home, rows=None, types=types)
    return frame


def read_parts(
    source: str,
    subset: str | None = None,
    data_home: Any = None,
    rows: int | None = ROWS,
    types: Types | None = None,
) -> Iterator[Any]:
    """The same in parts of so many rows, so that a file need not fit into memory."""
    if is_named(source):
        yield _named(source, subset, data_home)
        return
    if subset is not None:
        raise TableError(f"{source} has no subsets, only the named image sets do.")
    reader = _reader(source)
    n_rows = 0
    try:
        for part in reader(source, rows, types or {}):
            n_rows += len(part)
            yield part
    except TableError:
        raise
    except FormatError as error:
        raise TableError(str(error)) from error
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TableError(f"{source} cannot be read: {reason}") from error
    if n_rows == 0:
        raise TableError(f"{source} has no rows.")


def _reader(source: str) -> Reader:
    suffix = ".csv" if source == "-" else suffix_of(source)
    if source != "-" and not Path(source).exists():
        known = "" if suffix else f", and no data set of that name: {', '.join(NAMED)}"
        raise TableError(f"There is no file {source}{known}.")
    if Path(source).is_dir():
        raise TableError(f"{source} is a folder; name a file.")
    if suffix not in READERS:
        raise TableError(
            f"{source} is not of a known kind. Accepted: {', '.join(READERS)} (text also"
            f" compressed: {', '.join(COMPRESSED)}), - for CSV on stdin, or a data set:"
            f" {', '.join(NAMED)}."
        )
    return READERS[suffix]


def _text(separator: str) -> Reader:
    def read(source: str, rows: int | None, types: Types) -> Iterator[Any]:
        import pandas as pd

        stream: Any = sys.stdin if source == "-" else source
        if rows is None:  # the types of columns are then guessed from all rows
            yield pd.read_csv(stream, sep=separator, dtype=dict(types), low_memory=False)
            return
        with pd.read_csv(stream, sep=separator, dtype=dict(types), chunksize=rows) as parts:
            yield from parts

    return read


def _parquet(source: str, rows: int | None, types: Types) -> Iterator[Any]:
    import pyarrow.parquet as pq

    if rows is None:
        yield pq.read_table(source).to_pandas()
        return
    with pq.ParquetFile(source) as file:
        for batch in file.iter_batches(batch_size=rows):
            yield batch.to_pandas()


def _arff(source: str, rows: int | None, types: Types) -> Iterator[Any]:
    import pandas as pd

    file = read_arff(Path(source))
    frame = pd.DataFrame(file.values)
    for name in file.nominal:
        frame[name] = frame[name].where(frame[name] != "?")
    yield frame


READERS: dict[str, Reader] = {
    **{suffix: _text(separator) for suffix, separator in SEPARATORS.items()},
    **dict.fromkeys(PARQUET, _parquet),
    ".arff": _arff,
}


def _named(name: str, subset: str | None, data_home: Any) -> Any:
    """A data set as a table with a column ``class`` of names."""
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
    names = bunch.target_names[bunch.target.to_numpy()]
    frame = bunch.data.copy(deep=False)
    frame[TARGET] = names
    return frame
