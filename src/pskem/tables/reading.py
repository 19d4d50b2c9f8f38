"""Tables from files: CSV, TSV, Parquet and ARFF, whole or in parts, or a data set by name."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import sys
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pskem.datasets import CATALOGUE, LOADERS
from pskem.datasets.readers import FormatError, read_arff

__all__ = [
    "EMBEDDED",
    "MISSING",
    "PARQUET",
    "SEPARATORS",
    "TARGET",
    "TableError",
    "is_named",
    "is_text",
    "read_parts",
    "read_table",
    "suffix_of",
]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
PARQUET = (".parquet", ".pq")
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: Small data sets that come with scikit-learn.
EMBEDDED = ("digits", "iris", "wine", "breast_cancer")
NAMED = (*EMBEDDED, *CATALOGUE)
#: The class column of a named data set.
TARGET = "class"
#: What stands for a missing value in a text file, as pandas has it by default.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
#: Rows that are read at a time, and lines that tell how a file is written.
ROWS = 20_000
LINES_TO_GUESS = 100
#: Types of whole numbers, by the names that pandas has for them.
WHOLE = [f"{sign}Int{bits}" for sign in ("", "U") for bits in (8, 16, 32, 64)]


class TableError(ValueError):
    """A table that cannot be read or used, with what is wrong with it."""


class Wishes(NamedTuple):
    """How a file is to be read.

    rows : rows of a part, or None for all at once
    text : columns to take for text whatever they hold, for text files, whose parts would be
        guessed one by one
    verbatim : columns to take as they are written, in which a text like NA stands for itself
    """

    rows: int | None
    text: Collection[str]
    verbatim: Collection[str]


Reader = Callable[[str, Wishes], Iterator[Any]]


def is_named(source: str) -> bool:
    """Whether a source is the name of a data set; a file of that name goes first."""
    return source in NAMED and not Path(source).is_file()


def is_text(source: str) -> bool:
    """Whether a source is a text file or stdin, in which everything is written as text."""
    return source == "-" or (not is_named(source) and suffix_of(source) in SEPARATORS)


def suffix_of(path: str) -> str:
    """The suffix that tells the format, without that of a compression."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def read_table(
    source: str,
    subset: str | None = None,
    data_home: Any = None,
    text: Collection[str] = (),
    verbatim: Collection[str] = (),
) -> Any:
    """A whole table as a pandas DataFrame.

    ``source`` is a file, ``-`` for CSV on stdin, or the name of a data set, whose class column is
    called ``class``; ``subset`` and ``data_home`` are for those.
    """
    (frame,) = read_parts(source, subset, data_home, text, verbatim, rows=None)
    return frame


def read_parts(
    source: str,
    subset: str | None = None,
    data_home: Any = None,
    text: Collection[str] = (),
    verbatim: Collection[str] = (),
    rows: int | None = ROWS,
) -> Iterator[Any]:
    """The same in parts of so many rows, so that a file need not fit into memory."""
    if is_named(source):
        frame = _named(source, subset, data_home)
        for low in range(0, len(frame), rows or len(frame)):
            yield frame[low : low + (rows or len(frame))]
        return
    if subset is not None:
        raise TableError(f"{source} has no subsets, only the named image sets do.")
    name = _spoken(source)
    reader = _reader(source)
    n_rows = 0
    try:
        for part in reader(source, Wishes(rows, text, verbatim)):
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
        reason = " ".join(str(error).split()) or type(error).__name__
        raise TableError(f"{name} cannot be read: {reason}") from error
    if n_rows == 0:
        raise TableError(f"{name} has no rows.")


def _spoken(source: str) -> str:
    return "What came on stdin" if source == "-" else source


def _reader(source: str) -> Reader:
    suffix = ".csv" if source == "-" else suffix_of(source)
    if source != "-" and not Path(source).exists():
        known = "" if suffix else f", and no data set of that name: {', '.join(NAMED)}"
        raise TableError(f"There is no file {source}{known}.")
    if Path(source).is_dir():
        raise TableError(f"{source} is a folder; name a file.")
    compressed = source.lower().endswith(tuple(COMPRESSED))
    if suffix not in READERS or (compressed and suffix not in SEPARATORS):
        raise TableError(
            f"{source} is not of a known kind. Accepted: {', '.join(READERS)} (text also"
            f" compressed: {', '.join(COMPRESSED)}), - for CSV on stdin, or a data set:"
            f" {', '.join(NAMED)}."
        )
    return READERS[suffix]


class _Dialect(NamedTuple):
    """How a text file is written."""

    separator: str
    decimal: str
    header: list[str]


def _dialect(lines: list[str], separator: str) -> _Dialect:
    """From the first lines: semicolons instead of commas, and then perhaps decimal commas."""
    header = next(csv.reader(lines, delimiter=separator), [])
    if separator != ",":
        return _Dialect(separator, ".", header)
    other = next(csv.reader(lines, delimiter=";"), [])
    if len(other) <= len(header):
        return _Dialect(",", ".", header)
    number = re.compile(r"(^|;)\s*-?\d+,\d+\s*(;|$)")
    return _Dialect(";", "," if any(map(number.search, lines[1:])) else ".", other)


class _Replay(io.TextIOBase):
    """A stream of which some lines have been read, from its beginning."""

    def __init__(self, lines: list[str], stream: Any) -> None:
        self._head = io.StringIO("".join(lines), newline="")
        self._stream = stream

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> str:
        if size is None or size < 0:
            return self._head.read() + str(self._stream.read())
        return self._head.read(size) or str(self._stream.read(size))

    def readline(self, size: int = -1) -> str:  # type: ignore[override]
        return self._head.readline(size) or str(self._stream.readline(size))


def _first_lines(source: str) -> list[str]:
    if source == "-":
        lines = list(islice(sys.stdin, LINES_TO_GUESS))
        return [line.removeprefix("\ufeff") for line in lines[:1]] + lines[1:]
    opener: Any = COMPRESSED.get(Path(source).suffix.lower(), open)
    with opener(source, "rt", encoding="utf-8-sig", newline="") as stream:
        return list(islice(stream, LINES_TO_GUESS))


def _text(separator: str) -> Reader:
    def read(source: str, wishes: Wishes) -> Iterator[Any]:
        import pandas as pd

        lines = _first_lines(source)
        if not lines:
            raise TableError(f"{_spoken(source)} is empty.")
        dialect = _dialect(lines, separator)
        header = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(dialect.header)]
        _check_unique(source, header)
        options: dict[str, Any] = {
            "sep": dialect.separator,
            "decimal": dialect.decimal,
            "skipinitialspace": True,
            "index_col": False,
            "header": 0,
            "names": header,
            "dtype": dict.fromkeys([*wishes.text, *wishes.verbatim], str),
            "keep_default_na": False,
            "na_values": {name: list(MISSING) for name in header if name not in wishes.verbatim},
        }
        stream: Any = _Replay(lines, sys.stdin) if source == "-" else source
        if wishes.rows is None:  # the types of columns are then guessed from all rows
            with _whole_rows(source, header):
                frame = pd.read_csv(stream, low_memory=False, **options)
            yield frame
            return
        with pd.read_csv(stream, chunksize=wishes.rows, **options) as parts:
            while True:
                with _whole_rows(source, header):
                    part = next(parts, None)
                if part is None:
                    return
                yield part

    return read


def _check_unique(source: str, names: list[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"{_spoken(source)} has several columns called {twice[0]!r}.")


@contextmanager
def _whole_rows(source: str, header: list[str]) -> Iterator[None]:
    """Refuse rows that have more fields than the header, of which pandas would drop some."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            yield
        except pd.errors.ParserWarning:
            raise TableError(
                f"{_spoken(source)} has rows with more fields than its first line, which is read as"
                f" the names of {len(header)} column(s): {', '.join(header)[:60]!r}."
            ) from None


def _parquet(source: str, wishes: Wishes) -> Iterator[Any]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source) as file:
        _check_unique(source, file.schema_arrow.names)
        if wishes.rows is None:
            yield _from_arrow(file.read(), wishes)
            return
        for batch in file.iter_batches(batch_size=wishes.rows):
            yield _from_arrow(batch, wishes)


def _from_arrow(table: Any, wishes: Wishes) -> Any:
    """A data frame in which whole numbers stay whole beside missing ones, and an index a column."""
    import pandas as pd
    import pyarrow as pa

    whole = {getattr(pa, name.lower())(): getattr(pd, f"{name}Dtype")() for name in WHOLE}
    frame = table.to_pandas(ignore_metadata=True, types_mapper=whole.get)
    for name in wishes.verbatim:
        if name in frame.columns:  # with its own type, whatever a part of its rows holds
            frame[name] = table.column(name).to_pandas(types_mapper=pd.ArrowDtype)
    unnamed = [name for name in frame.columns if re.fullmatch(r"__index_level_\d+__", name)]
    return frame.drop(columns=unnamed)


def _arff(source: str, wishes: Wishes) -> Iterator[Any]:
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
    frame = bunch.data.copy(deep=False)
    frame[TARGET] = bunch.target_names[bunch.target.to_numpy()].astype(str)
    return frame
