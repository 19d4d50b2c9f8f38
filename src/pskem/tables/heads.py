"""The first rows of a table of files, which tell what its columns hold."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pandas as pd

from pskem.tables.base import NoRowsError
from pskem.tables.batches import Footer, check_names
from pskem.tables.columns import Columns
from pskem.tables.places import rows_of
from pskem.tables.reading import ROWS, is_unnamed
from pskem.tables.spooling import aligned

__all__ = ["check_kinds", "first_rows", "joined", "names_of"]


def first_rows(
    paths: Sequence[str],
    name: str,
    target: str | None,
    weights: str | None,
    categorical: Collection[str],
) -> list[tuple[str, Any]]:
    """The first rows, in data frames with the same columns, each with the name of its file.

    Files may be small, and so may the parts of one.
    """
    verbatim = [] if target is None else [target]
    parts: list[tuple[str, Any]] = []
    n_rows = 0
    for path, part in _parts(paths, categorical, verbatim):
        if parts:
            present = parts[0][1].columns
            check_names(path, present.intersection([target, weights]), part.columns)
            part = part.reindex(columns=present)
        parts.append((path, part))
        n_rows += len(part)
        if n_rows >= ROWS:
            break
    if not parts:
        raise NoRowsError(f"{name} has no rows.")
    return parts


def _parts(
    paths: Sequence[str], categorical: Collection[str], verbatim: Collection[str]
) -> Iterator[tuple[str, Any]]:
    for path in paths:
        with suppress(NoRowsError):
            for part in rows_of(path, categorical, verbatim):
                yield path, part


def joined(parts: Sequence[tuple[str, Any]]) -> Any:
    """The first rows as one data frame."""
    if len(parts) == 1:
        return parts[0][1]
    with warnings.catch_warnings():  # of columns that are empty in some parts, and keep their type
        warnings.simplefilter("ignore", FutureWarning)
        return pd.concat([part for _, part in parts], ignore_index=True)[:ROWS]


def names_of(path: str, footer: Footer | None) -> list[str]:
    """Names of the columns of a file; none of a text without rows.

    footer : what the file says of itself, if it is none of text
    """
    if footer is not None:
        return [name for name in footer.schema.names if not is_unnamed(name)]
    with suppress(NoRowsError):
        for part in rows_of(path, (), (), 1):
            return list(part.columns)
    return []


def check_kinds(parts: Sequence[tuple[str, Any]], settled: Collection[Any]) -> None:
    """Refuse a file that has texts in a column where the first has numbers.

    settled : columns that may be of any kind, or are known to hold numbers
    """
    (_, first), *others = parts
    columns = first.drop(columns=first.columns.intersection(settled)).dropna(axis=1, how="all")
    numbers = Columns(columns.select_dtypes("number").columns.tolist(), [], {})
    for path, part in others:
        aligned(path, part, numbers, lambda slip: None)  # a column may hold numbers and texts
