"""Samples that do not lie in memory: from pieces of a table to samples that stand for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from pskem.checks import numbers
from pskem.engine import ArrayPieces, Mapped, Piece, Pieces, sum_of_squares, workers
from pskem.estimators._columns import (
    ColumnCode,
    about_text,
    check_number,
    find_categorical,
    is_missing,
    values_of,
)
from pskem.estimators._gathering import Known, know, validate_on
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training import Samples, Settings, represent, whole_again

__all__ = [
    "ArrayTable",
    "Census",
    "Frame",
    "Labels",
    "StoredTable",
    "counted_frame",
    "gather_table",
    "measure_table",
    "plain_numbers",
    "take_census",
]


#: Different classes at most: they are counted in memory.
MOST_CLASSES = 100_000


class Labels(NamedTuple):
    """Classes of rows: the different ones, and which each row has, (n,); -1 for none."""

    values: NDArray[Any]
    codes: NDArray[np.intp]

    @classmethod
    def of(cls, y: Any) -> Labels:
        """From one label for each row; None and NaN stand for none."""
        column = np.asarray(y)
        if column.ndim != 1:
            raise ValueError(f"y has the shape {column.shape}; give one class for each row.")
        if column.dtype == object:
            places: dict[Any, int] = {}
            known = [-1 if is_missing(v) else places.setdefault(v, len(places)) for v in column]
            values = np.empty(len(places), dtype=object)
            values[:] = list(places)
            return cls(values, np.array(known, dtype=np.intp))
        values, codes = np.unique(column, return_inverse=True)
        return cls(values, codes.astype(np.intp))

    @classmethod
    def all_alike(cls, n: int) -> Labels:
        """Of n rows of a table without classes."""
        return cls(np.zeros(1, dtype=np.intp), np.zeros(n, dtype=np.intp))

    def each(self) -> NDArray[np.object_]:
        """The class of each row, (n,), None for none."""
        known = np.full(len(self.values) + 1, None, dtype=object)
        known[:-1] = self.values
        return known[self.codes]

    def without(self, marker: Any) -> Labels:
        """The same, with none where the marker or NaN stands."""
        gone = [is_missing(v) or (marker is not None and v == marker) for v in self.values.tolist()]
        if not any(gone):
            return self
        return self._replace(codes=np.where(np.append(gone, True)[self.codes], -1, self.codes))


class Frame(NamedTuple):
    """A piece of a table: its columns (n, M) as an array or a data frame, and what rows count."""

    X: Any
    labels: Labels
    weights: FloatArray | None = None


@runtime_checkable
class StoredTable(Protocol):
    """A table that is read piece by piece, as often as it is needed.

    names : of the columns, without those of the classes and the weights; None if they have none
    has_classes : whether it has a column of them
    categorical : places of the columns that hold categories; None where a parameter says it
    pieces : of frames
    """

    @property
    def names(self) -> Sequence[str] | None: ...
    @property
    def n_columns(self) -> int: ...
    @property
    def has_classes(self) -> bool: ...
    @property
    def categorical(self) -> NDArray[np.intp] | None: ...
    @property
    def pieces(self) -> Pieces: ...


def _framed(arrays: tuple[Any, ...]) -> Frame:
    X, y, weights = arrays
    return Frame(X, Labels.all_alike(len(X)) if y is None else Labels.of(y), weights)


@dataclass(frozen=True, eq=False)
class ArrayTable:
    """Arrays that need not fit into memory: X is a numpy.memmap, and y and weights may be."""

    X: NDArray[Any]
    y: NDArray[Any] | None
    weights: NDArray[Any] | None = None
    names = None
    categorical = None

    @property
    def n_columns(self) -> int:
        return int(self.X.shape[1])

    @property
    def has_classes(self) -> bool:
        return self.y is not None

    @property
    def pieces(self) -> Pieces:
        return Mapped(ArrayPieces((self.X, self.y, self.weights)), _framed)


class Census(NamedTuple):
    """What is counted before rows can be read as samples.

    classes : what the rows of each class count, and how many there are
    unlabelled : the same of rows without a class
    values : of each categorical column
    uncounted : rows whose weight is zero
    """

    classes: Mapping[Any, tuple[float, int]]
    unlabelled: tuple[float, int]
    values: tuple[frozenset[Any], ...]
    uncounted: int = 0

    def merge(self, other: Census) -> Census:
        classes = dict(self.classes)
        for label, (mass, n) in other.classes.items():
            known = classes.get(label, (0.0, 0))
            classes[label] = known[0] + mass, known[1] + n
        if len(classes) > MOST_CLASSES:
            raise ValueError(
                f"y holds more than {MOST_CLASSES:,} different classes, such as"
                f" {next(iter(classes))!r}. Is it a number or a name of each row?"
            )
        (mass, n), (more_mass, more) = self.unlabelled, other.unlabelled
        values = (a | b for a, b in zip(self.values, other.values, strict=True))
        uncounted = self.uncounted + other.uncounted
        return Census(classes, (mass + more_mass, n + more), tuple(values), uncounted)


def take_census(categorical: NDArray[np.intp], marker: Any, frame: Frame) -> Census:
    """Count the rows of a piece.

    categorical : places of the columns whose values are counted
    marker : stands for no class, as None and NaN do
    """
    n_rows, frame = len(frame.labels.codes), counted_frame(frame)
    values, codes = frame.labels.without(marker)
    weights = np.ones(len(codes)) if frame.weights is None else frame.weights
    masses = np.bincount(codes + 1, weights, minlength=len(values) + 1)
    counts = np.bincount(codes + 1, minlength=len(values) + 1)
    found = zip(values.tolist(), masses[1:].tolist(), counts[1:].tolist(), strict=True)
    classes = {label: (mass, n) for label, mass, n in found if n}
    fractions = [v for v in classes if isinstance(v, float) and not v.is_integer()]
    if fractions:  # said at once: there may be as many as rows
        check_classification_targets(np.array(fractions))
    return Census(
        classes,
        (float(masses[0]), int(counts[0])),
        tuple(frozenset(values_of(frame.X, place)) for place in categorical),
        n_rows - len(codes),
    )


def counted_frame(frame: Frame) -> Frame:
    """The rows that count, with weights that have been looked at."""
    if frame.weights is None:
        return frame
    weights = numbers("sample_weight", column_or_1d(frame.weights))
    if (weights < 0.0).any():  # which row it is in, a piece does not know
        raise ValueError(f"sample_weight holds {weights.min():g}; weights must not be negative.")
    kept = np.flatnonzero(weights > 0.0)
    if len(kept) == len(weights):
        return frame._replace(weights=weights)
    X = frame.X.iloc[kept] if hasattr(frame.X, "iloc") else frame.X[kept]
    labels = frame.labels._replace(codes=frame.labels.codes[kept])
    return Frame(X, labels, weights[kept])


@dataclass(frozen=True, eq=False)
class Reader:
    """From frames to samples.

    places : of the classes
    factors : (L + 1,), by which weights are multiplied, the last for rows without a class; None if
        all count alike
    """

    code: ColumnCode | None
    names: Sequence[str] | None
    places: Mapping[Any, int]
    marker: Any
    factors: FloatArray | None

    def __call__(self, frame: Frame) -> Piece:
        frame = counted_frame(frame)
        values, codes = frame.labels.without(self.marker)
        places = np.array([self.places.get(v, -1) for v in values.tolist()] + [-1], dtype=np.intp)
        labels = places[codes]
        weights = frame.weights
        if self.factors is not None:
            weights = self.factors[labels] * (1.0 if weights is None else weights)
            weights = whole_again(weights)
        return Piece(self._features(frame.X), labels, weights)

    def _features(self, X: Any) -> FloatArray:
        features = plain_numbers(X) if self.code is None else self.code.encode(X)
        if not np.isfinite(sum_of_squares(features)) and np.isinf(features).any():
            row, column = (int(place[0]) for place in np.nonzero(np.isinf(features)))
            name = column if self.names is None else repr(str(self.names[column]))
            raise ValueError(
                f"X contains infinity: column {name} holds {features[row, column]}. Use NaN where a"
                " number is not known."
            )
        return features


def plain_numbers(X: Any) -> FloatArray:
    """Floating-point numbers (n, M), from an array or a data frame of numbers of any kind."""
    frame = hasattr(X, "iloc")
    kinds = {getattr(kind, "kind", "") for kind in (X.dtypes if frame else [X.dtype])}
    for kind, name in (("c", "complex numbers"), ("mM", "dates or times"), ("SV", "bytes")):
        if kinds.intersection(kind):
            raise ValueError(f"X holds {name}, and real numbers are needed.")
    if not frame and X.dtype in (np.float32, np.float64):
        return X
    try:
        values: FloatArray = (
            X.to_numpy(dtype=np.float64, na_value=np.nan) if frame else X.astype(np.float64)
        )
    except (TypeError, ValueError) as error:
        raise ValueError(about_text(X, None) or str(error)) from None
    return values


def gather_table(
    estimator: Any,
    table: StoredTable,
    validation: tuple[Any, Any, Any],
    settings: Settings,
    before: Model | None,
    seed: int,
) -> Samples:
    """Samples that stand for those of a table, or all of them if they are few."""
    places = table.categorical
    if places is None:
        given = getattr(estimator, "categorical_features", None)
        places = find_categorical(np.empty((1, table.n_columns)), given, table.names)
    with workers(settings.n_jobs) as parallel_map:
        found = table.pieces.fold(partial(take_census, places, settings.unlabelled), parallel_map)
        code = _learn(estimator, table, places, found, before)
        known, factors = _known(settings, found)
        by_label = {label: place for place, label in enumerate(known.classes.tolist())}
        names = table.names if code is None or table.names is None else code.names(table.names)
        reader = Reader(code, names, by_label, settings.unlabelled, factors)
        held_out = validate_on(estimator, *validation, known.classes, settings.unlabelled)
        bare = known.samples(estimator, np.empty((0, 0)), np.empty(0, dtype=np.intp), held_out)
        pieces = Mapped(table.pieces, reader)
        return represent(settings, bare, pieces, seed, parallel_map)


def _learn(
    estimator: Any,
    table: StoredTable,
    places: NDArray[np.intp],
    found: Census,
    before: Model | None,
) -> ColumnCode | None:
    """What the estimator knows of its columns from now on."""
    names = None if table.names is None else np.array(table.names, dtype=object)
    if before is not None:
        known = getattr(estimator, "feature_names_in_", None)
        same = names is None or known is None or names.tolist() == known.tolist()
        if table.n_columns != estimator.n_features_in_ or not same:
            raise ValueError(
                f"The table has {table.n_columns} column(s), which are not those of the last fit,"
                " from which warm_start=True goes on."
            )
        return getattr(estimator, "columns_", None)
    estimator.n_features_in_ = table.n_columns
    for name in ("feature_names_in_", "columns_"):
        if hasattr(estimator, name):
            delattr(estimator, name)
    if names is not None:
        estimator.feature_names_in_ = names
    if not len(places):
        return None
    for place, values in zip(places, found.values, strict=True):
        check_number(values, int(place) if names is None else names[place])
    estimator.columns_ = ColumnCode.of(table.n_columns, places, found.values)
    learnt: ColumnCode = estimator.columns_
    return learnt


def _known(settings: Settings, found: Census) -> tuple[Known, FloatArray | None]:
    """What is known of the classes, and factors of weights."""
    if not found.classes and found.uncounted:
        raise ValueError(
            "All samples whose class is known have the weight zero; at least one must count."
        )
    if not found.classes:
        raise ValueError("y has no class at all; a classifier needs samples of known classes.")
    labels = list(found.classes)
    if len({isinstance(value, str) for value in labels}) > 1:
        raise ValueError(
            f"y holds texts and other values, such as {labels[0]!r}; classes must be of one kind."
        )
    classes = np.unique(np.array(labels))
    check_classification_targets(classes)
    ordered = [found.classes[label] for label in classes.tolist()]
    masses, counts = (np.array(column, dtype=np.float64) for column in zip(*ordered, strict=True))
    known = know(settings, classes, masses, float(counts.sum()))
    by_class = np.ones(len(classes)) if known.class_weights is None else known.class_weights
    total = float(masses @ by_class) + found.unlabelled[0]
    mean = total / (counts.sum() + found.unlabelled[1])
    if known.class_weights is None and mean >= 1.0:
        return known, None
    return known, np.append(by_class, 1.0) / min(1.0, mean)


class Measured(NamedTuple):
    """How a classifier does on samples.

    n : rows with a class
    sums : what they count, what those count that are decided rightly, and log p(x|c)
    """

    n: int
    sums: FloatArray

    def merge(self, other: Measured) -> Measured:
        return Measured(self.n + other.n, self.sums + other.sums)

    @property
    def accuracy(self) -> float | None:
        """None if there are no rows."""
        return float(self.sums[1] / self.sums[0]) if self.n else None

    @property
    def log_likelihood(self) -> float:
        """Per row."""
        return float(self.sums[2] / self.sums[0]) if self.n else float("nan")


def _measure(model: Model, reader: Reader, frame: Frame) -> Measured:
    piece = reader(frame)
    piece = piece.at(np.flatnonzero(piece.labels >= 0))
    if not len(piece.labels):
        return Measured(0, np.zeros(3))
    log_q = model.log_likelihood(piece.X)
    right = model.joint(log_q).argmax(axis=1) == piece.labels
    views = np.array([0] * len(model.blocks) if model.views is None else model.views)
    density = log_q[:, views == 0].sum(axis=1)[np.arange(len(right)), piece.labels]
    counted = piece.counted
    return Measured(len(right), np.array([counted.sum(), counted[right].sum(), counted @ density]))


def measure_table(estimator: Any, table: StoredTable) -> Measured:
    """How a fitted classifier does on the rows of a table that have one of its classes."""
    places = {label: place for place, label in enumerate(estimator.classes_.tolist())}
    code = getattr(estimator, "columns_", None)
    reader = Reader(code, None, places, estimator.unlabelled, None)
    with workers(estimator.n_jobs) as parallel_map:
        return table.pieces.fold(partial(_measure, estimator.model_, reader), parallel_map)
