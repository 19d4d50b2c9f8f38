"""Accuracy on rows that need not be in memory together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pskem.clusters import DaskPieces
from pskem.engine import Pieces, workers
from pskem.estimators._dask import alone, delayed_rows
from pskem.estimators._stored import Frame, StoredTable, counted_frame

__all__ = ["share_right", "share_right_of_table"]


class Share(NamedTuple):
    """What the rows count that are decided rightly, and all that have a class."""

    right: float
    total: float

    def merge(self, other: Share) -> Share:
        return Share(self.right + other.right, self.total + other.total)


@dataclass(frozen=True, eq=False)
class Judge:
    """Compares what an estimator says of rows with their classes.

    marker : stands for no class, as None and NaN do
    names : of the columns of a table
    """

    estimator: Any
    marker: Any
    names: Sequence[str] | None = None

    def __call__(self, frame: Frame) -> Share:
        X, labels, weights = counted_frame(frame)
        values, codes = labels.without(self.marker)
        known = np.flatnonzero(codes >= 0)
        if not len(known):
            return Share(0.0, 0.0)
        self._check_kind(values[codes[known[:1]]].tolist()[0])
        X = X.iloc[known] if hasattr(X, "iloc") else X[known]
        right = self.estimator.predict(self._arranged(X)) == values[codes[known]]
        counted = np.ones(len(known)) if weights is None else weights[known]
        return Share(float(counted @ right), float(counted.sum()))

    def _check_kind(self, label: Any) -> None:
        known = self.estimator.classes_.tolist()[0]
        if isinstance(label, str) != isinstance(known, str):
            raise ValueError(
                f"y holds classes such as {label!r}, and those of the model are such as {known!r}:"
                " texts and other values are never equal."
            )

    def _arranged(self, X: Any) -> Any:
        """The columns that the estimator knows by their names, in its order."""
        wanted = getattr(self.estimator, "feature_names_in_", None)
        if self.names is None or wanted is None:
            return X
        import pandas as pd  # which has read the table

        missing = [name for name in wanted if name not in self.names]
        if missing:
            raise ValueError(
                f"The table has no column {missing[0]!r}, which the model was trained on."
                " open_table leaves out a column that is constant, or looks like an identifier, in"
                " the first rows."
            )
        frame = X if hasattr(X, "iloc") else pd.DataFrame(X, columns=list(self.names))
        return frame[list(wanted)]


def share_right(estimator: Any, X: Any, y: Any, sample_weight: Any, marker: Any) -> float:
    """The share of answers about a collection of Dask's that are right, by weight.

    marker : stands for no class in y, as None and NaN do
    """
    check_is_fitted(estimator)
    pieces = DaskPieces(delayed_rows(X, y, sample_weight), _whole)
    return _share(pieces, Judge(alone(estimator), marker), 1)


def _whole(partition: Any) -> list[Frame]:
    return [Frame(*partition)]


def share_right_of_table(estimator: Any, table: StoredTable, marker: Any) -> float:
    """The same for a table that is read piece by piece."""
    check_is_fitted(estimator)
    judge = Judge(alone(estimator), marker, table.names)
    return _share(table.pieces, judge, getattr(estimator, "n_jobs", None))


def _share(pieces: Pieces, judge: Judge, n_jobs: int | None) -> float:
    with workers(n_jobs) as parallel_map:
        right, total = pieces.fold(judge, parallel_map)
    if not total:
        raise ValueError("There is no sample that has a class and counts, so there is no score.")
    return right / total
