"""Types and helpers that the table readers share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, NamedTuple

__all__ = [
    "NoRowsError",
    "ReadOptions",
    "Reader",
    "TableError",
    "check_unique",
    "repeated",
    "spoken",
]


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


def check_unique(source: str, names: list[str]) -> None:
    """Refuse duplicate column names."""
    twice = repeated(names)
    if twice is not None:
        raise TableError(f"{spoken(source)} has several columns called {twice!r}.")


def repeated(names: Iterable[str]) -> str | None:
    """The first name, by the alphabet, that is there more than once; None if there is none."""
    return min((name for name, n in Counter(names).items() if n > 1), default=None)
