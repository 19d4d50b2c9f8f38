"""Accuracy on rows that need not be in memory together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from pskem.engine import workers
from pskem.estimators._dask import alone, delayed_rows
from pskem.estimators._stored import Frame, Labels, StoredTable
from pskem.structures import FloatArray

__all__ = ["share_right", "share_right_of_table"]


class Tally(NamedTuple):
    """What the rows count that are decided rightly, and all that have a class."""

    right: float
    total: float

    def merge(self, other: Tally) -> Tally:
        return Tally(self.right + other.right, self.total + other.total)

    @property
    def share(self) -> float:
        if not self.total:
            raise ValueError(
                "There is no sample that has a class and counts, so there is no score."
            )
        return float(self.right / self.total)


@dataclass(frozen=True, eq=False)
class Judge:
    """Compares what an estimator says of rows with their classes.

    marker : stands for no class, as None and NaN do
    names : of the columns, where pieces are arrays without them
    """

    estimator: Any
    marker: Any
    names: Sequence[str] | None = None

    def __call__(self, frame: Frame | tuple[Any, Labels, FloatArray | None]) -> Tally:
        X, labels, weights = frame
        values, codes = labels.without(self.marker)
        known = np.flatnonzero(codes >= 0)
        if not len(known):
            return Tally(0.0, 0.0)
        X = X.iloc[known] if hasattr(X, "iloc") else self._named(X[known])
        right = self.estimator.predict(X) == values[codes[known]]
        if weights is None:
            return Tally(float(right.sum()), float(len(known)))
        counted = np.asarray(weights)[known]
        return Tally(float(counted @ right), float(counted.sum()))

    def _named(self, X: FloatArray) -> Any:
        if self.names is None:
            return X
        import pandas as pd  # which has read the table

        return pd.DataFrame(X, columns=list(self.names))


def share_right(estimator: Any, X: Any, y: Any, sample_weight: Any, marker: Any) -> float:
    """The share of answers about a collection of Dask's that are right, by weight.

    marker : stands for no class in y, as None and NaN do
    """
    import dask

    check_is_fitted(estimator)
    ask = dask.delayed(Judge(alone(estimator), marker), traverse=False)
    found = dask.compute(*(ask(row) for row in delayed_rows(X, y, sample_weight)))
    return reduce(Tally.merge, found).share


def share_right_of_table(estimator: Any, table: StoredTable, marker: Any) -> float:
    """The same for a table that is read piece by piece."""
    check_is_fitted(estimator)
    judge = Judge(alone(estimator), marker, table.names)
    with workers(getattr(estimator, "n_jobs", None)) as parallel_map:
        return table.pieces.fold(judge, parallel_map).share
