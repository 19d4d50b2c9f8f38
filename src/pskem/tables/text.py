"""Read CSV and TSV text, compressed or not, from a file or stdin."""

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
from typing import Any

import pandas as pd

from pskem.tables.base import Reader, ReadOptions, TableError, check_unique, spoken

__all__ = ["COMPRESSED", "MISSING", "SEPARATORS", "text_reader"]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: Texts that mean a missing value, as in pandas and in ARFF files.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)
#: Lines from which the format of a file is guessed.
LINES_TO_GUESS = 100


def _dialect(lines: list[str], separator: str) -> tuple[str, str, list[str]]:
    """Separator, decimal mark and header: with semicolons for commas, decimals may have commas."""
    header = next(csv.reader(lines, delimiter=separator), [])
    if separator != ",":
        return separator, ".", header
    other = next(csv.reader(lines, delimiter=";"), [])
    if len(other) <= len(header):
        return ",", ".", header
    number = re.compile(r"(^|;)\s*-?\d+,\d+\s*(;|$)")
    return ";", "," if any(map(number.search, lines[1:])) else ".", other


class _Replay(io.TextIOBase):
    """A stream from its beginning, although some lines have been read already."""

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
    """Reader of text files with this separator; for commas, also with semicolons."""

    def read(source: str, wanted: ReadOptions) -> Iterator[Any]:
        lines = _first_lines(source)
        if not lines:
            raise TableError(f"{spoken(source)} is empty.")
        used, decimal, names = _dialect(lines, separator)
        header = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
        check_unique(source, header)
        options: dict[str, Any] = {
            "sep": used,
            "decimal": decimal,
            "skipinitialspace": True,
            "index_col": False,
            "header": 0,
            "names": header,
            "dtype": dict.fromkeys([*wanted.text, *wanted.verbatim], str),
            "keep_default_na": False,
            "na_values": {name: list(MISSING) for name in header if name not in wanted.verbatim},
        }
        stream: Any = _Replay(lines, sys.stdin) if source == "-" else source
        if wanted.rows is None:  # the types of columns are then guessed from all rows
            with _whole_rows(source, header):
                frame = pd.read_csv(stream, low_memory=False, **options)
            yield frame
            return
        with pd.read_csv(stream, chunksize=wanted.rows, **options) as parts:
            while True:
                with _whole_rows(source, header):
                    part = next(parts, None)
                if part is None:
                    return
                yield part

    return read


@contextmanager
def _whole_rows(source: str, header: list[str]) -> Iterator[None]:
    """Refuse rows with more fields than the header, which pandas would truncate."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            yield
        except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
            line = re.search(r"in line (\d+), saw (\d+)", str(error))
            if line is None and not isinstance(error, pd.errors.ParserWarning):
                raise
            more = f"{line[2]} fields in line {line[1]}, more" if line else "rows with more fields"
            raise TableError(
                f"{spoken(source)} has {more} than its first line, which is read as the names of"
                f" {len(header)} column(s): {', '.join(header)[:60]!r}. Put values that hold the"
                " separator into quotes."
            ) from None
