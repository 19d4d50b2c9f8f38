"""Tables from text: commas, tabs or semicolons, compressed or not, from a file or stdin."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from pskem.tables.seam import Reader, TableError, Wishes, check_unique, spoken

__all__ = ["COMPRESSED", "MISSING", "SEPARATORS", "text_reader"]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What stands for a missing value in a text file, as pandas has it by default.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
#: Lines that tell how a file is written.
LINES_TO_GUESS = 100


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


def _first_lines(source: str) -> list[str]:
    if source == "-":
        lines = list(islice(sys.stdin, LINES_TO_GUESS))
        return [line.removeprefix("\ufeff") for line in lines[:1]] + lines[1:]
    opener: Any = COMPRESSED.get(Path(source).suffix.lower(), open)
    with opener(source, "rt", encoding="utf-8-sig", newline="") as stream:
        return list(islice(stream, LINES_TO_GUESS))


def text_reader(separator: str) -> Reader:
    """A reader of text files in which this separates columns, or semicolons if it is a comma."""

    def read(source: str, wishes: Wishes) -> Iterator[Any]:
        import pandas as pd

        lines = _first_lines(source)
        if not lines:
            raise TableError(f"{spoken(source)} is empty.")
        dialect = _dialect(lines, separator)
        header = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(dialect.header)]
        check_unique(source, header)
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
                f"{spoken(source)} has rows with more fields than its first line, which is read as"
                f" the names of {len(header)} column(s): {', '.join(header)[:60]!r}."
            ) from None
