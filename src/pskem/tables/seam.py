"""What readers of tables have in common."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any, NamedTuple

__all__ = ["Reader", "TableError", "Wishes", "check_unique", "spoken"]


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


def spoken(source: str) -> str:
    """How to call a source in a message."""
    return "What came on stdin" if source == "-" else source


def check_unique(source: str, names: list[str]) -> None:
    """Refuse columns of the same name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise TableError(f"{spoken(source)} has several columns called {twice[0]!r}.")
