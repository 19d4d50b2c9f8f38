"""What estimators accept as samples, and the checks of it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, check_X_y, column_or_1d, validate_data

from pskem import checks
from pskem.clusters import is_dask
from pskem.estimators._columns import (
    ColumnCode,
    about_infinity,
    about_text,
    check_frame,
    find_categorical,
    is_missing,
)
from pskem.structures import FloatArray

__all__ = [
    "TakesGaps",
    "accept",
    "accept_labelled",
    "all_or_nothing",
    "check_in_memory",
    "checked_weights",
    "counted_rows",
    "labels_of",
    "validated",
]


def check_in_memory(X: Any) -> None:
    """Refuse a path, and a table that is read piece by piece."""
    if isinstance(X, str | PathLike):
        raise ValueError(
            f"X is the path {fspath(X)!r}. Give the rows themselves, as an array or a data frame;"
            " `pskem predict` answers about files of any size."
        )
    if hasattr(type(X), "pieces") or is_dask(X):
        kind = "collection of Dask's" if is_dask(X) else type(X).__name__
        raise ValueError(
            f"A {kind} is read piece by piece, and all rows are needed in memory here: give an"
            " array or a data frame. SharedKernelClassifier and SharedKernelDensity are fitted to"
            f" a {kind}, and `pskem predict` answers about files of any size."
        )


def accept(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    """X, and y if it is given, as arrays: features, with NaN where numbers are missing.

    With ``reset`` the estimator learns the number and the names of the columns, and which of them
    are categories; without, they must be as it knows them.
    """
    check_in_memory(X)
    check_frame(X)
    try:
        return _accept(estimator, X, *y, reset=reset)
    except ValueError as error:
        code, reason = getattr(estimator, "columns_", None), ""
        if "could not convert string" in str(error):
            reason = about_text(X, code)
        elif "infinity" in str(error):
            reason = about_infinity(X, code)
        if not reason:
            raise
        raise ValueError(reason) from None


def _accept(estimator: Any, X: Any, *y: Any, reset: bool) -> Any:
    code = _column_code(estimator, X, reset)
    if code is not None:
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if not len(X):
            raise ValueError(f"X has no rows: its shape is {tuple(X.shape)}.")
        features = code.encode(X)
        return (features, check_X_y(np.zeros((len(features), 1)), *y)[1]) if y else features
    if hasattr(X, "dtypes") and hasattr(X, "notna"):  # pandas, whose NA is no number
        objects = any(getattr(column, "kind", "") == "O" for column in X.dtypes)
        X = X.where(X.notna(), np.nan) if objects else X
    return validate_data(
        estimator,
        X,
        *y,
        dtype=[np.float64, np.float32],
        ensure_all_finite="allow-nan",
        reset=reset,
        order="C",
    )


def _column_code(estimator: Any, X: Any, reset: bool) -> ColumnCode | None:
    """How the columns of X become features, where some of them are categories."""
    if not reset:
        return getattr(estimator, "columns_", None)
    if hasattr(estimator, "columns_"):
        del estimator.columns_
    given = getattr(estimator, "categorical_features", None)
    if hasattr(estimator, "estimator"):  # of which None is one with default settings
        given = getattr(estimator.estimator, "categorical_features", "from_dtype")
    names = [str(name) for name in X.columns] if hasattr(X, "columns") else None
    places = find_categorical(X, given, names)
    if not len(places):
        return None
    estimator.columns_ = ColumnCode.learn(X, places)
    found: ColumnCode = estimator.columns_
    return found


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Put back what validation stores of the input, if the fit fails or is interrupted.

    Otherwise an estimator that had been fitted would answer for columns that it does not know.
    """
    names = ("n_features_in_", "feature_names_in_", "columns_")
    before = {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}
    try:
        yield
    except BaseException:
        for name in names:
            if name in before:
                setattr(estimator, name, before[name])
            elif hasattr(estimator, name):
                delattr(estimator, name)
        raise


def _label_objects(y: Any) -> NDArray[np.object_] | None:
    """Labels as objects, (n,), where some may be missing; None for what is no such array."""
    if hasattr(y, "to_list") and hasattr(y, "is_null"):  # polars
        y = y.to_list()
    elif hasattr(y, "isna") and not hasattr(y, "columns"):  # pandas
        y = y.astype(object)
    values = np.asarray(y, dtype=object)
    values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
    return values if values.ndim == 1 else None


def _unlabelled(values: NDArray[np.object_], marker: Any) -> NDArray[np.bool_]:
    """Where labels are None, NaN or the marker."""
    gaps = np.array([is_missing(value) for value in values], dtype=bool)
    if marker is not None:
        known = np.flatnonzero(~gaps)
        gaps[known] = [bool(value == marker) for value in values[known]]
    return gaps


def labels_of(y: Any, marker: Any) -> tuple[Any, NDArray[np.bool_] | None]:
    """Labels that are known, and which those are; y as it is and None if all are."""
    complete = isinstance(y, np.ndarray) and y.dtype.kind in "iubU"
    if y is None or (marker is None and complete):
        return y, None
    values = _label_objects(y)
    gaps = None if values is None else _unlabelled(values, marker)
    if values is None or gaps is None:
        return y, None
    if not gaps.any():
        # Numbers among objects, as where other parts of a stream have gaps.
        numbers = all(isinstance(value, Integral) for value in values)
        return (np.array(values.tolist()) if numbers and len(values) else y), None
    if gaps.all():
        raise ValueError("y has no class at all; a classifier needs samples of known classes.")
    known = values[~gaps].tolist()
    if len({isinstance(value, str) for value in known}) > 1:
        raise ValueError(
            f"y holds texts and other values, such as {known[0]!r}; classes must be of one kind."
        )
    return column_or_1d(np.array(known)), ~gaps


def accept_labelled(
    estimator: Any, X: Any, y: Any, marker: Any, reset: bool
) -> tuple[FloatArray, NDArray[Any], NDArray[np.bool_] | None]:
    """X, y of the samples that have a class, and which those are; None if all have one."""
    y, known = labels_of(y, marker)
    if known is None:
        if reset and marker is not None:
            warnings.warn(
                f"unlabelled={marker!r} stands for no label in y; all samples have a class.",
                UserWarning,
                stacklevel=2,
            )
        return *accept(estimator, X, y, reset=reset), None
    X = accept(estimator, X, reset=reset)
    if len(known) != len(X):
        raise ValueError(f"X has {len(X)} samples and y has {len(known)}; they must agree.")
    return X, y, known


def validated(estimator: Any, X: Any) -> FloatArray:
    """X for a fitted estimator, checked against what it was fitted to."""
    check_is_fitted(estimator)
    checked: FloatArray = accept(estimator, X, reset=False)
    return checked


def checked_weights(sample_weight: Any, n: int, name: str = "sample_weight") -> FloatArray:
    """Weights of n samples, (n,)."""
    if np.asarray(sample_weight).ndim == 0:
        raise ValueError(f"{name}={sample_weight!r} must be an array with one weight per sample.")
    weights = checks.numbers(name, column_or_1d(sample_weight))
    if len(weights) != n:
        raise ValueError(f"{name} has {len(weights)} entries for {n} samples; give one each.")
    if (weights < 0.0).any():
        row = int(weights.argmin())
        raise ValueError(f"{name}[{row}] is {weights[row]:g}; weights must not be negative.")
    return weights


def counted_rows(
    X: FloatArray, y: NDArray[Any], sample_weight: Any, name: str = "sample_weight"
) -> tuple[FloatArray, NDArray[Any], FloatArray | None]:
    """Validated samples with their weights, without those that have none."""
    if sample_weight is None:
        return X, y, None
    weights = checked_weights(sample_weight, len(X), name)
    kept = weights > 0.0
    if not kept.any():
        raise ValueError(f"{name} is zero for all samples; at least one must count.")
    return (X, y, weights) if kept.all() else (X[kept], y[kept], weights[kept])


class TakesGaps:
    """An estimator whose X may have gaps (NaN)."""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]  # that of scikit-learn's base
        tags.input_tags.allow_nan = True
        return tags
