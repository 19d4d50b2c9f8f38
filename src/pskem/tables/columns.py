"""Which columns of a table are what: numbers, categories, classes, and what is left out."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.tables.reading import TableError

__all__ = ["Columns", "align", "all_numeric", "labels_of", "sort_columns"]

#: A text column with more different values than this, and one for every second row or more, holds
#: names or identifiers, not categories.
IDENTIFIER_VALUES = 50
#: A class column of numbers with fractions and more values than this is no class column.
MAX_NUMBER_CLASSES = 50
#: What readers of text files take for truth values, as one spelling: all of a column may be read as
#: truth values, or as text because of what else it holds.
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}


class Columns(NamedTuple):
    """How the columns of a table are used.

    numeric, categorical : names of the columns that enter the model
    dropped : names of the columns that do not, each with the reason
    """

    numeric: list[str]
    categorical: list[str]
    dropped: dict[str, str]

    @property
    def used(self) -> list[str]:
        return [*self.numeric, *self.categorical]


def sort_columns(
    frame: Any, target: str, drop: Collection[str] = (), categorical: Collection[str] = ()
) -> Columns:
    """Decide how each column of a table but the target is used."""
    known = list(map(str, frame.columns))
    repeated = sorted({name for name in known if known.count(name) > 1})
    if repeated:
        raise TableError(f"The table has several columns called {repeated[0]!r}.")
    for name in (*drop, *categorical):
        if name not in known:
            raise TableError(f"There is no column {name!r}. {_listing(known)}")
    numbers: list[str] = []
    categories: list[str] = []
    dropped: dict[str, str] = {}
    for name in known:
        if name == target:
            continue
        reason = "as asked" if name in drop else _unusable(frame[name], name in categorical)
        if reason is not None:
            dropped[name] = reason
        elif name in categorical or not _holds_numbers(frame[name]):
            categories.append(name)
        else:
            numbers.append(name)
    if not numbers and not categories:
        raise TableError(f"No column is left to learn from besides {target!r}.")
    return Columns(numbers, categories, dropped)


def all_numeric(frame: Any, target: str) -> Columns:
    """Every column but the target as a number, also those without variance: pixels."""
    return Columns([str(name) for name in frame.columns if str(name) != target], [], {})


def _unusable(column: Any, as_category: bool) -> str | None:
    """Why a column cannot be learnt from, or None."""
    from pandas.api import types

    values = column.dropna()
    if values.empty:
        return "it is empty"
    if values.nunique() == 1:
        return "it has one value only"
    if as_category:
        return None
    if types.is_datetime64_any_dtype(column):
        return "it holds dates"
    n = int(values.nunique())
    if not _holds_numbers(column) and n > IDENTIFIER_VALUES and n >= len(values) / 2:
        return f"it holds {n:,} different texts in {len(values):,} rows"
    return None


def _holds_numbers(column: Any) -> bool:
    from pandas.api import types

    return bool(types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def labels_of(frame: Any, target: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The class column as labels of the rows that have one, and which rows these are."""
    known = list(map(str, frame.columns))
    if target not in known:
        raise TableError(
            f"There is no column {target!r} to take the classes from. {_listing(known)}"
        )
    column = frame[target]
    present = column.notna().to_numpy()
    values = column[present]
    if not _holds_numbers(values):
        return _texts(values).to_numpy(dtype=object).astype(str), present
    numbers = values.to_numpy()
    whole = bool(np.all(numbers == np.floor(numbers)))
    if not whole and len(np.unique(numbers)) > MAX_NUMBER_CLASSES:
        raise TableError(
            f"The column {target!r} holds {len(np.unique(numbers)):,} different numbers:"
            " measurements, it seems, not classes. Name a column of classes as the target."
        )
    return numbers.astype(np.int64) if whole else numbers.astype(np.float64), present


def align(frame: Any, columns: Columns) -> Any:
    """The columns that a model was trained on, as the types that it knows."""
    import pandas as pd

    missing = [name for name in columns.used if name not in frame.columns]
    if missing:
        raise TableError(
            f"The table lacks {len(missing)} column(s) that the model was trained on:"
            f" {_some(missing)}. {_listing(list(map(str, frame.columns)))}"
        )
    parts = {}
    for name in columns.numeric:
        try:
            numbers = pd.to_numeric(frame[name]).astype(np.float64)
        except (TypeError, ValueError) as error:
            raise TableError(
                f"The column {name!r} held numbers when the model was trained, but now:"
                f" {' '.join(str(error).split())}."
            ) from None
        # What a table calls infinite is as good as missing to a model of measurements.
        parts[name] = numbers.where(np.isfinite(numbers))
    for name in columns.categorical:
        parts[name] = _texts(frame[name]).where(frame[name].notna(), np.nan)
    return pd.DataFrame(parts, index=frame.index)


def _texts(column: Any) -> Any:
    return column.astype(str).astype(object).replace(TRUTH)


def _some(names: list[str]) -> str:
    return ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")


def _listing(names: list[str]) -> str:
    return f"It has {len(names)} column(s): {_some(names)}."
