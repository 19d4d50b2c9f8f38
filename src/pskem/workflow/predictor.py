"""A saved model, put to use on tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from pskem.persistence import load, read_header
from pskem.tables import TARGET, Columns, TableError, align, is_named, labels_of, read_parts

__all__ = ["Predictor"]


class Predictor(NamedTuple):
    """A classifier and the columns that it takes; None if it was saved without a table."""

    model: Any
    columns: Columns | None
    target: str | None

    @classmethod
    def load(cls, path: Any) -> Self:
        """From a model file; one that :func:`pskem.save` wrote of a bare model will do as well."""
        metadata = read_header(path).metadata
        model = load(path)
        if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
            raise TableError(
                f"{path} holds a {type(model).__name__}, which is no fitted classifier."
            )
        columns = None
        if "numeric" in metadata:
            columns = Columns(metadata["numeric"], metadata["categorical"], metadata["dropped"])
        return cls(model, columns, metadata.get("target"))

    @property
    def classes(self) -> NDArray[Any]:
        classes: NDArray[Any] = self.model.classes_
        return classes

    def target_for(self, source: str) -> str:
        """The class column of a table: that of the training table, or of a named data set."""
        if is_named(source):
            return TARGET
        if self.target is None:
            raise TableError(
                "The model file does not say which column holds the classes. Name it with --target."
            )
        return self.target

    def predictions(
        self,
        source: str,
        proba: bool = False,
        keep: Sequence[str] = (),
        subset: str | None = None,
        data_home: Any = None,
    ) -> Iterator[Any]:
        """Data frames of kept columns, the prediction and, if asked for, all probabilities."""
        import pandas as pd

        for frame, X in self._parts(source, subset, data_home):
            missing = [name for name in keep if name not in frame.columns]
            if missing:
                raise TableError(f"There is no column {missing[0]!r} to keep.")
            p = self.model.predict_proba(X)
            columns = {name: frame[name].to_numpy() for name in keep}
            columns["prediction"] = self.classes[p.argmax(axis=1)]
            if proba:
                columns |= {f"p({c})": p[:, j] for j, c in enumerate(self.classes)}
            yield pd.DataFrame(columns)

    def judged(
        self, source: str, target: str, subset: str | None = None, data_home: Any = None
    ) -> tuple[NDArray[np.intp], NDArray[np.floating], int]:
        """Labels, as positions in the classes, and probabilities of all rows with a class.

        The third value counts the rows without one.
        """
        labels, probabilities, n_without = [], [], 0
        known = {str(name): j for j, name in enumerate(self.classes)}
        for frame, X in self._parts(source, subset, data_home):
            y, present = labels_of(frame, target)
            n_without += int((~present).sum())
            if not len(y):
                continue
            unknown = sorted({str(value) for value in y} - set(known))
            if unknown:
                raise TableError(
                    f"The column {target!r} holds class(es) {', '.join(unknown[:5])} that the model"
                    f" was not trained on. It knows {', '.join(list(known)[:20])}."
                )
            labels.append(np.array([known[str(value)] for value in y], dtype=np.intp))
            probabilities.append(self.model.predict_proba(X[present]))
        if not labels:
            raise TableError(f"The column {target!r} holds no class in any row.")
        return np.concatenate(labels), np.concatenate(probabilities), n_without

    def _parts(self, source: str, subset: str | None, data_home: Any) -> Iterator[tuple[Any, Any]]:
        """A table in parts, each as it is and as the model wants it."""
        categorical = self.columns.categorical if self.columns is not None else []
        types = dict.fromkeys(categorical, str)
        for frame in read_parts(source, subset, data_home, types=types):
            yield frame, self._features(frame)

    def _features(self, frame: Any) -> Any:
        if self.columns is not None:
            return align(frame, self.columns)
        names = getattr(self.model, "feature_names_in_", None)
        if names is not None:
            return align(frame, Columns(list(names), [], {}))
        numbers = frame.select_dtypes("number")
        n = self.model.n_features_in_
        if numbers.shape[1] != n:
            raise TableError(
                f"The model takes {n} columns of numbers without names; the table has"
                f" {numbers.shape[1]}."
            )
        return numbers.to_numpy(dtype=np.float64)
