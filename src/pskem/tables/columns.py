"""Decide which columns of a table are numbers, categories or classes, and which are dropped."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api import types

from pskem.structures import FloatArray
from pskem.tables.base import TableError, check_unique, repeated
from pskem.tables.slips import NO_NUMBERS, Slip, SlipTeller, warn_of
from pskem.tables.text import MISSING

__all__ = [
    "LARGEST",
    "NUMBER_SHARE",
    "Columns",
    "align",
    "category_texts",
    "check_size",
    "check_weights",
    "given_weights",
    "infer_columns",
    "labels_of",
    "odd_texts",
    "priors_of",
    "weights_of",
]

#: A text column with more distinct values than this, and at least half as many as rows, is an
#: identifier.
IDENTIFIER_VALUES = 50
#: A text column with at least this share of numbers is a numeric column with typing errors.
NUMBER_SHARE = 0.9
#: Different numbers from which on a column of numbers and texts seems to be one of numbers.
MANY_NUMBERS = 10
#: A column with more distinct fractional numbers than this does not hold classes.
MAX_NUMBER_CLASSES = 50
#: Characters of the name of a class, at most.
LONGEST_LABEL = 256
#: Names of columns that a message shows.
SHOWN = 10
#: Larger values cannot be squared and summed.
LARGEST = 1e100
DATE = r"\s*(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})([ T].*)?"
#: One spelling of truth values: whether a reader takes them for truth values or for text depends on
#: the rest of the column.
TRUTH = {"true": "True", "TRUE": "True", "false": "False", "FALSE": "False"}
#: How names of Arrow's types begin that hold several values.
NESTED = ("list", "large_list", "fixed_size_list", "struct", "map")


class Columns(NamedTuple):
    """How the columns of a table are used.

    numeric, categorical : names of the columns that the model uses
    dropped : names of the other columns, each with the reason
    """

    numeric: list[str]
    categorical: list[str]
    dropped: dict[str, str]

    @property
    def used(self) -> list[str]:
        return [*self.numeric, *self.categorical]


def infer_columns(
    frame: Any,
    target: str | None,
    drop: Collection[str] = (),
    categorical: Collection[str] = (),
) -> Columns:
    """Decide how each column except the target is used."""
    known = list(map(str, frame.columns))
    check_unique("The table", known)
    for name in (*drop, *categorical):
        if name not in known:
            raise _no_column(name, "", known)
        if name == target:
            raise TableError(f"The column {name!r} holds the classes; it is no feature.")
    numbers: list[str] = []
    categories: list[str] = []
    dropped: dict[str, str] = {}
    plain = _plainly_numbers(frame)
    for name in known:
        if name == target:
            continue
        if name in plain and name not in drop:  # most columns, looked at together
            (categories if name in categorical else numbers).append(name)
            continue
        reason = "as asked" if name in drop else _unusable(frame[name], name in categorical)
        if reason is not None:
            dropped[name] = reason
        elif name in categorical or not _means_numbers(frame[name]):
            categories.append(name)
        else:
            numbers.append(name)
    if not numbers and not categories:
        beside = "" if target is None else f" besides {target!r}"
        raise TableError(f"No column is left to learn from{beside}.")
    return Columns(numbers, categories, dropped)


def _plain_values(frame: Any) -> tuple[list[str], FloatArray]:
    """Names of the columns of ordinary numbers, and their values (n, M): most tables have many.

    Together they are looked at in a hundredth of the time that each would take.
    """
    kinds = zip(frame.columns, frame.dtypes, strict=True)
    names = [name for name, kind in kinds if isinstance(kind, np.dtype) and kind.kind in "fiu"]
    return names, frame[names].to_numpy(dtype=np.float64)


def _plainly_numbers(frame: Any) -> set[str]:
    """Names of columns of numbers that vary, and that cannot number the rows."""
    names, values = _plain_values(frame)
    if not values.size:
        return set()
    low, high = np.fmin.reduce(values), np.fmax.reduce(values)
    exact = np.maximum(-low, high) < 2.0**53
    good = (low < high) & exact & (np.diff(values, axis=0) != 1.0).any(axis=0)
    found = {name for name, is_good in zip(names, good, strict=True) if is_good}
    return {name for name in found if not name.startswith("Unnamed: ")}


def _unusable(column: Any, as_category: bool) -> str | None:
    """Reason to drop a column, or None."""
    values = column.dropna()
    if values.empty:
        return "it is empty"
    try:
        n = int(values.nunique())
    except TypeError:
        return "it holds lists or the like"
    if n == 1:
        return "it has one value only"
    if as_category:
        return None
    if types.is_integer_dtype(values) and len(values) > 2:
        if (np.diff(values) == 1).all():
            return "it numbers the rows"
        if n == len(column) and str(column.name).startswith("Unnamed: "):
            return "it has no name and a different number in every row"
    if _means_numbers(column):
        return None
    if types.is_datetime64_any_dtype(column) or values.astype(str).str.fullmatch(DATE).all():
        return "it holds dates"
    if n > IDENTIFIER_VALUES and n >= len(values) / 2:
        slips = odd_texts(column)
        if slips:
            return f"it holds numbers and texts, such as {slips[0]!r}, in more than a tenth of it"
        return f"it looks like an identifier ({n:,} distinct texts in {len(values):,} rows)"
    return None


def odd_texts(column: Any) -> list[str]:
    """Texts among the values of a column of which most are numbers; none if most are not."""
    values = column.dropna().astype(str).str.strip()
    numbers = pd.to_numeric(values, errors="coerce").notna()
    if values[numbers].nunique() <= MANY_NUMBERS or not 0.5 < numbers.mean() < 1.0:
        return []
    return [str(text) for text in values[~numbers].unique()]


def _holds_numbers(column: Any) -> bool:
    return bool(types.is_numeric_dtype(column) and not types.is_bool_dtype(column))


def _means_numbers(column: Any) -> bool:
    """Whether a column holds numbers, or texts that are numbers apart from a few errors."""
    if _holds_numbers(column):
        return True
    if types.is_bool_dtype(column) or types.is_datetime64_any_dtype(column):
        return False
    values = column.dropna().astype(str).str.strip()
    values = values[values != ""]
    return bool(pd.to_numeric(values, errors="coerce").notna().mean() >= NUMBER_SHARE)


def labels_of(frame: Any, target: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels of the rows that have a class, and a mask of these rows."""
    known = list(map(str, frame.columns))
    if target not in known:
        raise _no_column(target, " to take the classes from", known)
    column = frame[target]
    if str(column.dtype).startswith(NESTED):
        raise TableError(
            f"The column {target!r} holds {column.dtype}, not one class in each row. Name another"
            " column as the target."
        )
    present = (column.notna() & (column.astype(object) != "")).to_numpy()
    values = column[present]
    fractions = _fractions(values)
    if len(fractions) > MAX_NUMBER_CLASSES:
        raise TableError(
            f"The column {target!r} holds {len(fractions):,} different numbers with fractions:"
            " measurements, it seems, not classes. Name a column of classes as the target."
        )
    if _holds_numbers(values) and not len(fractions):
        return values.to_numpy(dtype=np.int64), present
    texts = _texts(values)
    longest = int(texts.str.len().max()) if len(texts) else 0
    if longest > LONGEST_LABEL:  # an array has room for the longest in every row
        raise TableError(
            f"The column {target!r} holds a text of {longest:,} characters; the name of a class has"
            f" {LONGEST_LABEL} at most. Name a column of classes as the target, or shorten texts."
        )
    return texts.to_numpy(dtype=object).astype(str), present


def weights_of(frame: Any, name: str) -> NDArray[np.floating[Any]]:
    """What each row counts, from a column of weights."""
    weights = given_weights(frame, name)
    if not weights.any():
        raise TableError(f"All weights in the column {name!r} are 0; at least one row must count.")
    return weights


def given_weights(frame: Any, name: str) -> NDArray[np.floating[Any]]:
    """What each of some rows counts, perhaps none of them."""
    known = list(map(str, frame.columns))
    if name not in known:
        raise _no_column(name, " to take weights from", known)
    weights = _numbers(frame[name]).to_numpy()
    check_weights(name, weights)
    return weights


def check_weights(name: str, weights: NDArray[np.floating[Any]]) -> None:
    """Refuse weights that are missing or negative."""
    bad = int((~(weights >= 0.0)).sum())
    if bad:
        raise TableError(
            f"The column {name!r} has {bad:,} row(s) without a weight, or with a negative one. A"
            " weight is a number of at least 0: how often the row counts."
        )


def priors_of(frame: Any) -> dict[str, float]:
    """Priors by class, from a table with the columns class and prior: numbers, in proportion."""
    missing = [name for name in ("class", "prior") if name not in frame.columns]
    if missing:
        raise TableError(
            f"A table of priors has the columns class and prior; there is no {missing[0]!r}."
            f" {_listing(list(map(str, frame.columns)))}"
        )
    names = _texts(frame["class"]).tolist()
    twice = repeated(names)
    if twice is not None:
        raise TableError(f"The table of priors has several rows for the class {twice!r}.")
    priors = _numbers(frame["prior"])
    if not (np.isfinite(priors).all() and (priors >= 0.0).all() and priors.any()):
        raise TableError(
            "The column 'prior' of the table of priors must hold numbers that are not negative, and"
            f" not all zero; it holds {', '.join(map('{:g}'.format, priors[:10]))}."
        )
    return dict(zip(names, (priors / priors.sum()).tolist(), strict=True))


def _fractions(values: Any) -> Any:
    """Distinct fractional numbers of a column, if it holds only numbers."""
    if types.is_integer_dtype(values) or types.is_bool_dtype(values):
        return np.empty(0)
    texts = values.astype(str) if not _holds_numbers(values) else values
    numbers = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        return np.empty(0)
    return np.unique(numbers[~np.isfinite(numbers) | (numbers != np.floor(numbers))])


def align(frame: Any, columns: Columns, tell: SlipTeller = warn_of, strictly: bool = True) -> Any:
    """Select the columns that a model was trained on and convert them to its types.

    Texts and infinite values in numeric columns count as missing.

    tell : is told of them
    strictly : whether a column of texts alone is refused
    """
    missing = [name for name in columns.used if name not in frame.columns]
    if missing:
        raise TableError(
            f"The table lacks {len(missing)} column(s) that the model was trained on:"
            f" {_some(missing)}. {_listing(list(map(str, frame.columns)))}"
        )
    plain, values = _plain_values(frame[columns.numeric])
    usual = np.fmax.reduce(np.abs(values), initial=0.0) <= LARGEST  # (M,)
    names = [name for name, is_usual in zip(plain, usual, strict=True) if is_usual]
    numbers = pd.DataFrame(values[:, usual], columns=names, index=frame.index)
    odd = [name for name in columns.numeric if name not in numbers.columns]
    parts = {name: _numbers(frame[name], tell, strictly) for name in odd}
    for name in columns.categorical:
        parts[name] = category_texts(frame[name])
    others = pd.DataFrame(parts, index=frame.index)
    return pd.concat([numbers, others], axis=1)[columns.used] if parts else numbers


def _numbers(column: Any, tell: SlipTeller = warn_of, strictly: bool = True) -> Any:
    """Convert a column to numbers, with NaN for missing values."""
    numbers = column
    if types.is_bool_dtype(column):
        return column.astype(np.float64)
    if not _holds_numbers(column):
        texts = column.astype(str).str.strip()
        numbers = pd.to_numeric(texts.where(column.notna()), errors="coerce")
        slips = column[numbers.isna() & column.notna() & ~texts.isin(MISSING)]
        if strictly and len(slips) and numbers.isna().all():
            raise TableError(
                f"The column {column.name!r} holds texts, such as {slips.iloc[0]!r}, where numbers"
                " are expected."
            )
        if len(slips):
            example = repr(slips.iloc[0])
            tell(Slip(str(column.name), len(slips), NO_NUMBERS, example))
    numbers = numbers.astype(np.float64)
    # To a model of measurements, an infinite value is as good as missing.
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        tell(Slip(str(column.name), infinite, "are infinite"))
        numbers = numbers.where(~np.isinf(numbers))
    check_size(str(column.name), numbers.abs().max())
    return numbers


def check_size(name: str, largest: float) -> None:
    """Refuse a column of larger numbers than can be squared and summed."""
    if largest > LARGEST:
        raise TableError(
            f"The column {name!r} holds {largest:g}; values beyond {LARGEST:g} cannot be computed"
            " with. Scale the column, or leave it out."
        )


def _texts(column: Any) -> Any:
    """Convert a column to texts; equal values have one spelling."""
    if types.is_float_dtype(column):  # as whole numbers may be, next to missing ones
        return column.map(_number_text, na_action="ignore").astype(object)
    return column.astype(str).astype(object).replace(TRUTH)


def _number_text(value: float) -> str:
    return f"{value:.0f}" if value == np.round(value) else str(value)


def category_texts(column: Any) -> Any:
    """Values of a categorical column as texts, NaN for missing ones."""
    return _texts(column).where(column.notna(), np.nan)


def _some(names: list[str]) -> str:
    left = len(names) - SHOWN
    return ", ".join(map(repr, names[:SHOWN])) + (f" and {left:,} more" if left > 0 else "")


def _listing(names: list[str]) -> str:
    return f"The table has {len(names):,} column(s): {_some(names)}."


def _no_column(name: str, purpose: str, known: list[str]) -> TableError:
    """The error that a column is not there, with one that is called much like it."""
    spelt = {other.casefold(): other for other in known}
    meant = [spelt[found] for found in get_close_matches(name.casefold(), spelt, n=1)]
    hint = f" Did you mean {meant[0]!r}?" if meant else ""
    return TableError(f"There is no column {name!r}{purpose}.{hint} {_listing(known)}")
