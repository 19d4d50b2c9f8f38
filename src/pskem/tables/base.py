"""Types and helpers that the table readers share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

__all__ = ["ReadOptions", "Reader", "TableError", "check_unique", "spoken"]


class TableError(ValueError):
    """A table cannot be read or used."""


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
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"{spoken(source)} has several columns called {twice[0]!r}.")
