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
from pathlib import Path
from typing import Any

import pandas as pd

from pskem.tables.base import Reader, ReadOptions, TableError, check_unique, spoken
from pskem.tables.short import ShortRows

__all__ = ["COMPRESSED", "MISSING", "SEPARATORS", "text_reader"]

SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}
COMPRESSED = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: Texts that mean a missing value, as in pandas and in ARFF files.
MISSING = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)
#: Lines from which the format of a file is guessed, and characters of them, about.
LINES_TO_GUESS = 100
TEXT_TO_GUESS = 2**24
#: Characters of a line at most: a million columns have fewer.
LONGEST_LINE = 2**25
#: Characters that are read at a time.
PIECE = 2**18


def _dialect(lines: list[str], separator: str) -> tuple[str, str, list[str]]:
    """Separator, decimal mark and header: with semicolons for commas, decimals may have commas."""
    header = _fields(lines, separator)
    if separator != ",":
        return separator, ".", header
    other = _fields(lines, ";")
    if len(other) <= len(header):
        return ",", ".", header
    number = re.compile(r"(^|;)\s*-?\d+,\d+\s*(;|$)")
    return ";", "," if any(map(number.search, lines[1:])) else ".", other


def _fields(lines: list[str], separator: str) -> list[str]:
    """Fields of the first row; none if one is so long that the separator must be another."""
    try:
        return next(csv.reader(lines, delimiter=separator), [])
    except csv.Error:
        return []


class _Stream(io.TextIOBase):
    """The text of a table from its beginning, although some lines of it have been read already.

    It refuses what no table holds before it fills the memory: a small compressed file can be a very
    long text.
    """

    def __init__(self, source: str, stream: Any) -> None:
        self._name, self._stream, self._length = spoken(source), stream, 0
        self.short: ShortRows | None = None
        self.lines = self._first_lines()
        self._head = io.StringIO("".join(self.lines), newline="")

    def _first_lines(self) -> list[str]:
        lines: list[str] = []
        while len(lines) < LINES_TO_GUESS and sum(map(len, lines)) < TEXT_TO_GUESS:
            parts = [self._checked(self._stream.readline(PIECE))]
            while parts[-1] and parts[-1][-1] not in "\r\n":
                parts.append(self._checked(self._stream.readline(PIECE)))
            line = "".join(parts)
            if not line:
                break
            lines.append(line if lines else line.removeprefix("\ufeff"))
        return lines

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> str:
        if size is None or size < 0:
            text = self._head.read() + self._checked(self._stream.read())
        else:
            text = self._head.read(size) or self._checked(self._stream.read(size))
        if self.short is not None:
            self.short.feed(text)
        return text

    def warn(self, header: list[str]) -> None:
        """Tell of rows that were short."""
        if self.short is not None and self.short.count:
            warnings.warn(
                f"{self._name} has {self.short.count:,} row(s) with fewer fields than the"
                f" {len(header):,} of its first line, the first of them in line"
                f" {self.short.first:,}. What they lack counts as missing.",
                UserWarning,
                stacklevel=2,
            )

    def _checked(self, text: str) -> str:
        if "\0" in text:
            raise TableError(
                f"{self._name} is not text in UTF-8: it holds NUL characters. Save it as UTF-8, for"
                " example with: iconv -f utf-16 -t utf-8."
            )
        end = max(text.rfind("\n"), text.rfind("\r"))
        self._length = len(text) - end - 1 + (self._length if end < 0 else 0)
        if self._length > LONGEST_LINE:
            raise TableError(
                f"{self._name} has a line of more than {LONGEST_LINE:,} characters. Put every row"
                " on a line of its own, or save the table as Parquet."
            )
        return text


@contextmanager
def _opened(source: str) -> Iterator[_Stream]:
    if source == "-":
        if sys.stdin is None:
            raise TableError("Standard input is closed.")
        yield _Stream(source, sys.stdin)
        return
    opener: Any = COMPRESSED.get(Path(source).suffix.lower(), open)
    with opener(source, "rt", encoding="utf-8", newline="") as stream:
        yield _Stream(source, stream)


def text_reader(separator: str) -> Reader:
    """Reader of text files with this separator; for commas, also with semicolons."""

    def read(source: str, wanted: ReadOptions) -> Iterator[Any]:
        with _opened(source) as stream:
            yield from _frames(source, stream, separator, wanted)

    return read


def _frames(source: str, stream: _Stream, separator: str, wanted: ReadOptions) -> Iterator[Any]:
    if not stream.lines:
        raise TableError(f"{spoken(source)} is empty.")
    used, decimal, names = _dialect(stream.lines, separator)
    if not names:
        raise TableError(f"{spoken(source)} has no names of columns in its first line.")
    header = [name.strip() or f"Unnamed: {i}" for i, name in enumerate(names)]
    check_unique(source, header)
    stream.short = ShortRows(used, len(header))
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
    if wanted.rows is None:  # the types of columns are then guessed from all rows
        with _whole_rows(source, header):
            frame = pd.read_csv(stream, low_memory=False, **options)
        stream.warn(header)
        yield frame
        return
    with pd.read_csv(stream, chunksize=wanted.rows, **options) as parts:
        while True:
            with _whole_rows(source, header):
                part = next(parts, None)
            if part is None:
                break
            yield part
    stream.warn(header)


@contextmanager
def _whole_rows(source: str, header: list[str]) -> Iterator[None]:
    """Refuse rows with more fields than the header, which pandas would truncate."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        try:
            yield
        except (pd.errors.ParserWarning, pd.errors.ParserError) as error:
            if "Calling read(nbytes)" in str(error):  # an interrupt while it was called
                raise KeyboardInterrupt from None
            line = re.search(r"in line (\d+), saw (\d+)", str(error))
            if line is None and not isinstance(error, pd.errors.ParserWarning):
                raise
            more = f"{line[2]} fields in line {line[1]}, more" if line else "rows with more fields"
            raise TableError(
                f"{spoken(source)} has {more} than its first line, which is read as the names of"
                f" {len(header)} column(s): {', '.join(header)[:60]!r}. Put values that hold the"
                " separator into quotes."
            ) from None
