"""What ``fit`` takes besides arrays and data frames in memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from pskem.clusters import is_dask
from pskem.estimators._dask import dask_table
from pskem.estimators._stored import ArrayTable, StoredTable
from pskem.training import MANY

__all__ = ["checked_table", "table_of"]


def table_of(
    estimator: Any, X: Any, y: Any, sample_weight: Any, classes: bool = True
) -> StoredTable | None:
    """What ``fit`` is given as a table that is read piece by piece, if it is one.

    classes : whether it must have some
    """
    arrays = is_dask(X) or isinstance(X, np.memmap)
    if classes and arrays and y is None:
        raise ValueError("y is missing: give a class for each row of X, None for unknown ones.")
    if is_dask(X):
        return dask_table(estimator, X, y, sample_weight)
    if isinstance(X, str | os.PathLike):
        raise ValueError(
            f"X is the path {os.fspath(X)!r}. Give the table that it leads to:"
            " fit(pskem.open_table(path, target=...))."
        )
    if isinstance(X, StoredTable):
        return checked_table(X, y, sample_weight, classes)
    if not (isinstance(X, np.memmap) and X.ndim == 2 and X.dtype.kind in "fiub" and len(X) >= MANY):
        return None
    given = [None if part is None else np.asanyarray(part) for part in (y, sample_weight)]
    for name, part in zip(("y", "sample_weight"), given, strict=True):
        if part is not None and len(part) != len(X):
            raise ValueError(f"X has {len(X)} samples and {name} has {len(part)}; they must agree.")
    labels, weights = given
    if labels is not None and labels.ndim == 2 and labels.shape[1] == 1:
        labels = column_or_1d(labels, warn=True)
    return ArrayTable(X, labels, weights)


def checked_table(
    table: StoredTable, y: Any, sample_weight: Any, classes: bool = True
) -> StoredTable:
    """A table, unless something is given beside it, or it lacks the classes that it must have."""
    if y is not None or sample_weight is not None:
        raise ValueError(
            "A table that is read piece by piece has its classes and weights in columns: name"
            " them when you open it, and leave y and sample_weight out."
        )
    if classes and not table.has_classes:
        raise ValueError(
            "The table has no classes: name their column when you open it,"
            " pskem.open_table(path, target=...)."
        )
    return table
