"""Columns of numbers and columns of categories, and the features that a model makes of them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_array

from pskem.structures import FloatArray

__all__ = [
    "ColumnCode",
    "about_infinity",
    "about_text",
    "check_frame",
    "check_number",
    "find_categorical",
    "is_missing",
    "take_columns",
    "values_of",
]

#: Values of a categorical column at most: each has a probability in every kernel.
MOST_VALUES = 1000
FROM_DTYPE = "from_dtype"
#: What the values of a categorical column may be.
SIMPLE = (str, int, float, np.integer, np.floating, np.bool_)
#: Different values from which on texts that are mostly numbers seem to be meant as numbers.
MANY_VALUES = 10
#: A column with more distinct texts than this, one for every second row at least, looks like an
#: identifier; the command line drops such columns by the same rule.
IDENTIFIER_VALUES = 50


@dataclass(frozen=True, eq=False)
class ColumnCode:
    """How columns become features: numbers first, then an indicator for every value.

    numeric, categorical : places of the columns
    values : for each categorical column its values, as objects, sorted
    """

    numeric: NDArray[np.intp]
    categorical: NDArray[np.intp]
    values: tuple[NDArray[Any], ...]

    @classmethod
    def learn(cls, X: Any, categorical: NDArray[np.intp]) -> ColumnCode:
        """From the columns of X, some of which are categories."""
        return cls.of(_width(X), categorical, [values_of(X, place) for place in categorical])

    @classmethod
    def of(
        cls, n_columns: int, categorical: NDArray[np.intp], values: Sequence[Collection[Any]]
    ) -> ColumnCode:
        """From the different values of each categorical column."""
        numeric = np.setdiff1d(np.arange(n_columns), categorical)
        if not len(numeric) and not any(map(len, values)):
            raise ValueError("X has no values at all: all its columns are empty categories.")
        seen = [i for i, known in enumerate(values) if len(known)]
        return cls(numeric, categorical[seen], tuple(_sorted(set(values[i])) for i in seen))

    @property
    def levels(self) -> tuple[int, ...]:
        """How many values each categorical column has."""
        return tuple(map(len, self.values))

    def encode(self, X: Any) -> FloatArray:
        """Features (n, M + D): numbers, and indicators; none for what is missing or unknown."""
        parts = [self._numbers(X)]
        for place, known in zip(self.categorical, self.values, strict=True):
            parts.append(np.eye(len(known) + 1)[self.codes(X, place, known)][:, :-1])
        features: FloatArray = np.hstack(parts)
        return features

    def codes(self, X: Any, place: int, known: NDArray[Any]) -> NDArray[np.intp]:
        """Places of a column's values among those that are known; -1 for others."""
        places = {value: code for code, value in enumerate(known.tolist())}
        coded = _coded(X, place)
        if coded is not None:
            values, codes = coded
            found = np.array([places.get(value, -1) for value in values] + [-1], dtype=np.intp)
            return found[codes]
        column = _objects(X, place)
        return np.array(
            [-1 if is_missing(value) else places.get(value, -1) for value in column], dtype=np.intp
        )

    def features(self, columns: NDArray[np.intp]) -> NDArray[np.intp]:
        """Places of the features that some columns become, (n,), in their own order."""
        of_column = np.append(self.numeric, np.repeat(self.categorical, self.levels))
        return np.flatnonzero(np.isin(of_column, columns))

    def ordinal(self, X: Any) -> FloatArray:
        """The same columns in the same places, with a number for each value; NaN for others."""
        table = np.full((len(X), _width(X)), np.nan)
        table[:, self.numeric] = self._numbers(X)
        for place, known in zip(self.categorical, self.values, strict=True):
            codes = self.codes(X, place, known)
            table[:, place] = np.where(codes < 0, np.nan, codes)
        return table

    def unknown(self, X: Any) -> dict[str, list[Any]]:
        """Values that are not known, by the names of their columns."""
        found = {}
        for place, known in zip(self.categorical, self.values, strict=True):
            seen = {value for value in _objects(X, place) if not is_missing(value)}
            new = seen - set(known.tolist())
            if new:
                found[str(_name(X, place))] = _sorted(new).tolist()
        return found

    def names(self, columns: Sequence[str]) -> list[str]:
        """Names of the features, from those of the columns."""
        numbers = [columns[place] for place in self.numeric]
        pairs = zip(self.categorical, self.values, strict=True)
        return [
            *numbers,
            *(f"{columns[place]}={value}" for place, known in pairs for value in known),
        ]

    def decode(self, features: FloatArray, n_columns: int) -> NDArray[Any]:
        """Columns (n, n_columns) from features, as objects; None where no value stands out."""
        table = np.full((len(features), n_columns), None, dtype=object)
        table[:, self.numeric] = features[:, : len(self.numeric)]
        first = len(self.numeric)
        for place, known in zip(self.categorical, self.values, strict=True):
            part = features[:, first : first + len(known)]
            chosen = known[part.argmax(axis=1)]
            table[:, place] = np.where(part.max(axis=1) > 0.0, chosen, None)
            first += len(known)
        return table

    def _numbers(self, X: Any) -> FloatArray:
        if not len(self.numeric):
            return np.empty((len(X), 0))
        if hasattr(X, "iloc"):
            part = X.iloc[:, self.numeric]
            part = part.where(part.notna(), np.nan)
        elif hasattr(X, "columns"):
            part = X[[X.columns[place] for place in self.numeric]].to_numpy()
        else:
            part = np.asarray(X)[:, self.numeric]
        checked: FloatArray = check_array(
            part, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=0
        )
        return checked


def values_of(X: Any, place: int) -> set[Any]:
    """The different values of a categorical column."""
    coded = _coded(X, place)
    if coded is not None:
        values, codes = coded
        found = {values[code] for code in np.unique(codes[codes >= 0])}
    else:
        found = {value for value in _objects(X, place) if not is_missing(value)}
    check_number(found, _name(X, place))
    strange = {type(v).__name__ for v in found if not isinstance(v, SIMPLE)}
    if strange:
        raise ValueError(
            f"Column {_name(X, place)!r} has categories of the kind {min(strange)}; texts,"
            " numbers and booleans are accepted. Make texts of them: astype(str)."
        )
    return found


def check_number(values: Collection[Any], name: Any) -> None:
    """Refuse too many different values of a categorical column."""
    if len(values) > MOST_VALUES:
        raise ValueError(
            f"Column {name!r} has {len(values):,} different values; a categorical column has"
            f" {MOST_VALUES:,} at most. Leave it out, group its values, or make numbers of it."
        )


def find_categorical(X: Any, given: Any, names: Sequence[str] | None) -> NDArray[np.intp]:
    """Places of the categorical columns of X, by the parameter ``categorical_features``."""
    M = _width(X)
    accepted = (
        "Accepted: 'from_dtype' (columns of texts and categories of a data frame), None, or a list"
        " of column names or places, or a mask."
    )
    if given is None:
        return np.empty(0, dtype=np.intp)
    if isinstance(given, str):
        if given != FROM_DTYPE:
            raise ValueError(f"categorical_features={given!r} is not known. {accepted}")
        places = _text_places(X)
        _doubt(X, places)
        return places
    listed = np.asarray(given)
    if listed.dtype == bool and listed.shape == (M,):
        return np.flatnonzero(listed)
    if listed.dtype.kind in "iu" and listed.ndim == 1:
        out = listed[(listed < 0) | (listed >= M)]
        if out.size:
            raise ValueError(
                f"categorical_features holds {out[0]}, but X has {M} column(s). {accepted}"
            )
        return np.unique(listed).astype(np.intp)
    if listed.ndim == 1 and listed.size and all(isinstance(name, str) for name in listed.tolist()):
        known = {} if names is None else {name: place for place, name in enumerate(names)}
        unknown = [name for name in listed.tolist() if name not in known]
        if unknown:
            raise ValueError(
                f"categorical_features names the column {unknown[0]!r}, which X does not have."
                f" {accepted}"
            )
        return np.sort([known[name] for name in listed.tolist()]).astype(np.intp)
    if listed.size == 0:
        return np.empty(0, dtype=np.intp)
    raise ValueError(f"categorical_features={given!r} is not accepted. {accepted}")


def _width(X: Any) -> int:
    shape = X.shape if hasattr(X, "shape") else np.asarray(X, dtype=object).shape
    return int(shape[1]) if len(shape) == 2 else 0


def _text_places(X: Any) -> NDArray[np.intp]:
    """Places of the columns of a data frame that hold texts or categories."""
    kinds = _kinds(X) if hasattr(X, "columns") and hasattr(X, "dtypes") else []
    return np.flatnonzero([_is_text(X, place, kind) for place, kind in enumerate(kinds)])


def _is_text(X: Any, place: int, kind: str) -> bool:
    if hasattr(X, "iloc"):  # pandas
        if kind.startswith(("category", "str", "large_string", "dictionary")):  # also of Arrow
            return True
        return kind == "object" and any(isinstance(value, str) for value in X.iloc[:, place])
    return kind in ("String", "Utf8", "Categorical", "Enum")  # polars


def _kinds(X: Any) -> list[str]:
    """Types of the columns of a data frame, in the words of its library."""
    kinds = [str(kind) for kind in X.dtypes]
    return kinds if hasattr(X, "iloc") else [kind.split("(")[0] for kind in kinds]


def check_frame(X: Any) -> None:
    """Refuse data frames with columns that are neither numbers nor categories, by name."""
    if hasattr(X, "collect") and hasattr(X, "lazy"):
        raise ValueError("X is a LazyFrame, which holds no rows yet: give X.collect().")
    if not hasattr(X, "columns") or not hasattr(X, "dtypes"):
        return
    begins = ("datetime", "timedelta", "period", "timestamp", "date")  # of pandas
    for place, kind in enumerate(_kinds(X)):
        if kind.startswith(begins) or kind in ("Date", "Datetime", "Duration", "Time"):
            raise ValueError(
                f"Column {_name(X, place)!r} holds dates or times ({kind}). Make numbers of it,"
                " such as days since a day of your choice, or leave it out."
            )


def _doubt(X: Any, places: NDArray[np.intp]) -> None:
    """Warn of columns of texts that seem to be numbers or identifiers."""
    kinds = _kinds(X) if len(places) else []
    for place in places:
        if kinds[place] in ("category", "Categorical", "Enum"):
            continue
        values = [value for value in _objects(X, place) if not is_missing(value)]
        found = set(values)
        others = sorted(str(value) for value in found if not _is_number(value))
        if len(found) > MANY_VALUES and len(others) < len(found) / 2:
            such = f", but for {', '.join(map(repr, others[:3]))}" if others else ""
            warnings.warn(
                f"Column {_name(X, place)!r} holds texts that are numbers{such}; they are taken for"
                " categories. Make numbers of it, for example with pandas.to_numeric(column,"
                " errors='coerce'), or name it as a category (dtype, categorical_features).",
                UserWarning,
                stacklevel=2,
            )
        elif IDENTIFIER_VALUES < len(found) <= MOST_VALUES and len(found) >= len(values) / 2:
            warnings.warn(
                f"Column {_name(X, place)!r} looks like an identifier: it has {len(found):,}"
                f" distinct texts in {len(values):,} rows. They are taken for categories, most"
                " of which new rows will not have. Leave the column out, or name it as a category"
                " (dtype, categorical_features).",
                UserWarning,
                stacklevel=2,
            )


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def about_text(X: Any, code: ColumnCode | None) -> str:
    """Where X holds a text in place of a number, and what to do about it; empty if nowhere."""
    for place in range(_width(X)) if code is None else code.numeric:
        for value in _objects(X, place):
            if isinstance(value, str) and not _is_number(value):
                return (
                    f"Column {_name(X, place)!r} of X holds {value!r}, which is no number. A"
                    " classifier takes columns of texts as categories: those of a data frame with"
                    " categorical_features='from_dtype', or those that it names."
                )
    return ""


def about_infinity(X: Any, code: ColumnCode | None) -> str:
    """Where X holds a number that is infinite, and what to do about it; empty if nowhere."""
    for place in range(_width(X)) if code is None else code.numeric:
        values = _numbers(X, place)
        rows = np.flatnonzero(np.isinf(values))
        if len(rows):
            return (
                f"Input X contains infinity: column {_name(X, place)!r} holds {values[rows[0]]} in"
                f" row {rows[0]}, counted from 0. Use NaN where a number is not known."
            )
    return ""


def _numbers(X: Any, place: int) -> FloatArray:
    """The values of a column, 0 where one is no number."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        return X[:, place]
    values = [value if isinstance(value, Real) else 0.0 for value in _objects(X, place)]
    return np.array(values, dtype=np.float64)


def _objects(X: Any, place: int) -> list[Any]:
    """The values of a column."""
    if hasattr(X, "iloc"):
        return list(X.iloc[:, place].tolist())
    if hasattr(X, "column_names"):  # Arrow
        return list(X.column(int(place)).to_pylist())
    if hasattr(X, "columns"):
        return list(X[X.columns[place]].to_list())
    if isinstance(X, np.ndarray):  # a column of it, before it is objects
        return list(X[:, place].tolist())
    return [row[place] for row in X]


def _coded(X: Any, place: int) -> tuple[list[Any], NDArray[np.intp]] | None:
    """Values of a pandas column of categories, and which each row has; None for other columns."""
    column: Any = X.iloc[:, place] if hasattr(X, "iloc") else None
    if not hasattr(column, "cat"):
        return None
    return column.cat.categories.tolist(), column.cat.codes.to_numpy().astype(np.intp)


def take_columns(X: Any, places: NDArray[np.intp]) -> Any:
    """Some columns of an array, a list of rows or a data frame."""
    if hasattr(X, "iloc"):
        return X.iloc[:, places]
    if hasattr(X, "columns"):
        return X[[X.columns[place] for place in places]]
    return (X if hasattr(X, "shape") else np.asarray(X, dtype=object))[:, places]


def _name(X: Any, place: int) -> Any:
    names = getattr(X, "column_names", None) or getattr(X, "columns", None)
    return int(place) if names is None else names[place]


def is_missing(value: Any) -> bool:
    """Whether a value is None, NaN or pandas's NA."""
    if value is None:
        return True
    same = value == value
    return not (isinstance(same, bool | np.bool_) and bool(same))


def _sorted(values: set[Any]) -> NDArray[Any]:
    """Values in an order that does not depend on how they came."""
    try:
        ordered = sorted(values)
    except TypeError:  # of several kinds
        ordered = sorted(values, key=lambda value: (type(value).__name__, str(value)))
    found = np.empty(len(ordered), dtype=object)
    found[:] = ordered
    return found
