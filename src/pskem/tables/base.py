"""Types and helpers that the table readers share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from textwrap import shorten
from typing import Any, NamedTuple

__all__ = [
    "NoRowsError",
    "ReadOptions",
    "Reader",
    "TableError",
    "check_unique",
    "repeated",
    "spoken",
    "unreadable",
]

#: Characters of another library's reason that a message repeats, and what those of files that end
#: too early have in common.
LONGEST_REASON = 300
TRUNCATED = re.compile(
    "magic|footer|not an arrow file|too small|file size is|only read|end of|eof|thrift", re.I
)


class TableError(ValueError):
    """A table cannot be read or used."""


class NoRowsError(TableError):
    """A table has columns and no rows."""


class ReadOptions(NamedTuple):
    """Options of a reader, as for ``read_parts``; without ``rows`` there is one part."""

    rows: int | None
    text: Collection[str]
    verbatim: Collection[str]


Reader = Callable[[str, ReadOptions], Iterator[Any]]


def spoken(source: str) -> str:
    """Name of a source in messages."""
    return "Standard input" if source == "-" else source


def unreadable(source: str, error: Exception) -> TableError:
    """The error that a table cannot be read, for another library's reason."""
    reason = shorten(str(error).rstrip(". "), LONGEST_REASON, placeholder=" ..")
    hint = " Was it written to its end?" if TRUNCATED.search(reason) else ""
    if "not an arrow file" in reason.lower():
        hint += " A stream of Arrow's is none: write a file, as pyarrow.ipc.new_file does."
    return TableError(f"{spoken(source)} cannot be read: {reason or type(error).__name__}.{hint}")


def check_unique(source: str, names: list[str]) -> None:
    """Refuse duplicate column names."""
    twice = repeated(names)
    if twice is not None:
        raise TableError(f"{spoken(source)} has several columns called {twice!r}.")


def repeated(names: Iterable[str]) -> str | None:
    """The first name, by the alphabet, that is there more than once; None if there is none."""
    return min((name for name, n in Counter(names).items() if n > 1), default=None)
