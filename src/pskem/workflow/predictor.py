"""A saved model, put to use on tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from pskem.estimators import OUTLIER, UNCERTAIN, NoReferenceError, estimate_priors
from pskem.files import check_kind, check_place
from pskem.persistence import load_with_header
from pskem.structures import FloatArray
from pskem.tables import (
    MISSING,
    TARGET,
    Columns,
    SlipTeller,
    TableError,
    align,
    check_output,
    encode,
    is_named,
    is_text,
    labels_of,
    read_files,
    read_parts,
    told_once,
    unknown_allowed,
    unknown_categories,
)
from pskem.workflow.task import TABLE

__all__ = ["Caution", "Predictor", "check_predictions_place"]

#: The column of the predicted classes; a column that says why there is none, and columns of
#: probabilities, p(class), may follow it.
PREDICTION = "prediction"
REJECTED = "rejected"


def check_predictions_place(path: str, overwrite: bool = False) -> None:
    """Refuse a path where no predictions can be written, or where other data would be lost."""
    check_output(path)
    check_place(path)
    if not overwrite:
        check_kind(path, "a table of predictions", _holds_predictions)


def _holds_predictions(file: Path) -> bool:
    try:
        names = [str(name) for name in next(read_parts(str(file), rows=1)).columns]
    except TableError:
        return False
    if PREDICTION not in names:
        return False
    after = names[names.index(PREDICTION) + 1 :]
    return all(name == REJECTED or name.startswith("p(") for name in after)


def _own_columns(model: Any) -> Columns | None:
    """The columns of a bare model with categories, if it knows their names."""
    code, names = getattr(model, "columns_", None), getattr(model, "feature_names_in_", None)
    if code is None or names is None:
        return None
    return Columns(list(names[code.numeric]), list(names[code.categorical]), {})


def _as_known(column: Any, known: list[Any]) -> list[Any]:
    """Texts of a file as the values that a model knows: by their text or, if numbers, by value."""
    by_text = {str(value): value for value in known}
    by_value = {_value(text): value for text, value in by_text.items()}
    by_value = {} if None in by_value else by_value
    texts = column.astype(object)
    return [by_text.get(str(t), by_value.get(_value(str(t)), t)) for t in texts]


def _value(text: str) -> float | None:
    """The number that a text is, or None."""
    try:
        return float(text)
    except ValueError:
        return None


@contextmanager
def _naming(path: str, source: str) -> Iterator[None]:
    """Say of which file of a source a message is, if there are several."""
    try:
        yield
    except TableError as error:
        if path == source:
            raise
        raise type(error)(f"{path}: {error}") from error


class Caution(NamedTuple):
    """When to name no class.

    min_proba : the probability that a class must have to be named
    outlier_share : rows are no outliers if they are more probable than this share of the rows that
        were held out in the training; None does not look
    """

    min_proba: float = 0.0
    outlier_share: float | None = None


class Predictor(NamedTuple):
    """A classifier and the columns that it takes; None if it was saved without a table.

    trained : the classifier as it was trained, where it has other priors since
    """

    model: Any
    columns: Columns | None
    target: str | None
    trained: Any = None

    @classmethod
    def load(cls, path: Any) -> Self:
        """From a model file; one that :func:`pskem.save` wrote of a bare model will do as well."""
        model, header = load_with_header(path)
        if not (hasattr(model, "predict_proba") and hasattr(model, "classes_")):
            raise TableError(
                f"{path} holds a {type(model).__name__}, which is no fitted classifier."
            )
        table = header.metadata.get(TABLE)
        if table is None:
            return cls(model, _own_columns(model), None)
        try:
            columns = Columns(table["numeric"], table["categorical"], table["dropped"])
            return cls(model, columns, str(table["target"]))
        except (KeyError, TypeError):
            raise TableError(f"{path} has a damaged description of its table.") from None

    @property
    def classes(self) -> NDArray[Any]:
        return self.model.classes_

    def target_for(self, source: str) -> str:
        """The class column of a table: that of the training table, or of a named data set."""
        if is_named(source):
            return TARGET
        if self.target is None:
            raise TableError(
                "The model file does not say which column holds the classes. Name it with --target."
            )
        return self.target

    def with_priors(self, priors: Any) -> Self:
        """The same where classes are as frequent as given: "uniform", or a number by class."""
        final = self._final
        if isinstance(priors, Mapping):
            known = {str(name): j for j, name in enumerate(self.classes)}
            unknown = [name for name in priors if name not in known]
            missing = [name for name in known if name not in priors]
            if unknown or missing:
                wrong = f"names {unknown[0]!r}" if unknown else f"lacks {missing[0]!r}"
                raise TableError(
                    f"The table of priors {wrong}. It needs one row for each class of the model:"
                    f" {', '.join(list(known)[:20])}."
                )
            priors = [priors[name] for name in known]
        try:
            changed = final.with_priors(priors)
        except ValueError as error:
            raise TableError(str(error)) from None
        trained = self.trained or final
        if final is not self.model:
            changed = Pipeline([*self.model.steps[:-1], ("classifier", changed)])
        return self._replace(model=changed, trained=trained)

    def estimate_priors(self, source: str, **reading: Any) -> FloatArray:
        """Class priors of a table, from its rows alone.

        The probabilities of all rows are held in memory.
        """
        proba = [self._proba(X) for _, _, X in self._parts(source, (), None, **reading)]
        with np.errstate(divide="ignore"):
            return estimate_priors(np.log(np.concatenate(proba)), self._final.class_prior_)

    @property
    def _final(self) -> Any:
        final = self.model[-1] if isinstance(self.model, Pipeline) else self.model
        if not hasattr(final, "with_priors"):
            raise TableError(
                f"The model file holds a {type(final).__name__}, whose priors and densities are"
                " not known. --priors and --outliers are for pskem's classifiers."
            )
        return final

    def _reasons(self, X: Any, proba: NDArray[np.floating], caution: Caution) -> NDArray[np.str_]:
        """Why each row gets no class; empty if it does."""
        reasons = np.where(proba.max(axis=1) < caution.min_proba, UNCERTAIN, "")
        if caution.outlier_share is None:
            return reasons
        before = self.model[:-1] if isinstance(self.model, Pipeline) else []
        inner = encode(before, X) if len(before) else X
        try:
            # Rows are as usual as they were in the training, whatever the priors are now.
            outliers = (self.trained or self._final).is_outlier(inner, caution.outlier_share)
        except NoReferenceError:
            raise TableError(
                "There are no rows to tell outliers by: the training held out none. Train with"
                " pskem fit and a --validation-fraction above 0."
            ) from None
        return np.where(outliers, OUTLIER, reasons)

    def predictions(
        self,
        source: str,
        proba: bool = False,
        keep: Sequence[str] = (),
        caution: Caution | None = None,
        **reading: Any,
    ) -> Iterator[Any]:
        """Data frames of kept columns, the prediction and, if asked for, all probabilities.

        With ``caution`` some rows get no class, and a column says why. ``reading`` holds subset,
        data_home and rows (of a part), as for :func:`pskem.tables.read_files`.
        """
        made = [PREDICTION, *(f"p({name})" for name in self.classes if proba)]
        if caution is not None:
            made.insert(1, REJECTED)
        taken = [name for name in keep if name in made]
        if taken:
            raise TableError(f"The column {taken[0]!r} cannot be kept: the output has its own.")
        for path, frame, X in self._parts(source, keep, None, **reading):
            missing = [name for name in keep if name not in frame.columns]
            with _naming(path, source):
                if missing:
                    raise TableError(f"There is no column {missing[0]!r} to keep.")
            p = self._proba(X)
            labels = self.classes[p.argmax(axis=1)]
            columns = [labels, *(p.T if proba else ())]
            if caution is not None:
                # Columns of one type, whatever a part of the rows holds.
                reasons = self._reasons(X, p, caution)
                named = pd.array(labels, dtype=pd.array(self.classes).dtype)
                why = pd.array(reasons, dtype="string")
                named[reasons != ""], why[reasons == ""] = pd.NA, pd.NA
                columns = [named, why, *columns[1:]]
            kept = frame[list(keep)].reset_index(drop=True)
            yield kept.assign(**dict(zip(made, columns, strict=True)))

    def judged(
        self, source: str, target: str, **reading: Any
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.floating], int]]:
        """Labels, as positions in the classes, and probabilities of the rows with a class.

        Part by part; the third value counts the rows without one. ``reading`` is as for
        :meth:`predictions`.
        """
        n_rows = 0
        for path, frame, X in self._parts(source, [target], target, **reading):
            with _naming(path, source):
                y, present = labels_of(frame, target)
                positions = self._positions(y, target)
            n_rows += len(y)
            proba = self._proba(X[present]) if len(y) else np.empty((0, len(self.classes)))
            yield positions, proba, int((~present).sum())
        if not n_rows:
            raise TableError(f"The column {target!r} holds no class in any row.")

    def _positions(self, y: NDArray[Any], target: str) -> NDArray[np.intp]:
        """Labels as positions in the classes: by their text or, where all are numbers, by value."""
        by_text = {str(name): j for j, name in enumerate(self.classes)}
        by_value = {_value(text): j for text, j in by_text.items()}
        by_value = {} if None in by_value else by_value
        texts = map(str, np.unique(y))
        found = {text: by_text.get(text, by_value.get(_value(text))) for text in texts}
        unknown = [text for text, position in found.items() if position is None]
        if unknown:
            raise TableError(
                f"The column {target!r} holds class(es) {', '.join(unknown[:5])} that the model"
                f" was not trained on. It knows {', '.join(list(by_text)[:20])}."
            )
        return np.array([found[str(value)] for value in y], dtype=np.intp)

    def _parts(
        self, source: str, verbatim: Sequence[str], target: str | None, **reading: Any
    ) -> Iterator[tuple[str, Any, Any]]:
        """A table in parts, each with its file, as it is, and as the model wants it."""
        target = TARGET if is_named(source) else target
        categorical = self.columns.categorical if self.columns is not None else []
        told: set[tuple[str, str]] = set()
        files = read_files(source, text=categorical, verbatim=verbatim, **reading)
        with told_once() as tell:
            for path, frame in files:
                # In features a text like NA still stands for a gap.
                kept = [name for name in verbatim if name in frame.columns and is_text(path)]
                gaps = {name: frame[name].mask(frame[name].isin(MISSING)) for name in kept}
                with _naming(path, source):
                    X = self._features(frame.assign(**gaps), target, tell)
                self._tell_unknown(X, told)
                yield path, frame, X

    def _proba(self, X: Any) -> NDArray[np.floating]:
        with unknown_allowed():
            return np.asarray(self.model.predict_proba(X))

    def _tell_unknown(self, X: Any, told: set[tuple[str, str]]) -> None:
        """Warn of categories that the training did not see, once each."""
        if self.columns is None or not self.columns.categorical:
            return
        for name, values in unknown_categories(self.model, X).items():
            new = [value for value in values if (name, value) not in told]
            told.update((name, value) for value in new)
            if new:
                warnings.warn(
                    f"The column {name!r} holds {', '.join(map(repr, new[:5]))}, which the training"
                    " did not see; it counts as missing.",
                    UserWarning,
                    stacklevel=2,
                )

    def _features(self, frame: Any, target: str | None, tell: SlipTeller) -> Any:
        names = getattr(self.model, "feature_names_in_", None)
        code = getattr(self.model, "columns_", None)
        if self.columns is not None and code is not None and names is not None:
            X = align(frame, self.columns, tell)
            for place, known in zip(code.categorical, code.values, strict=True):
                X[names[place]] = _as_known(X[names[place]], known.tolist())
            return X[list(names)]
        if self.columns is not None:
            return align(frame, self.columns, tell)
        if names is not None:
            return align(frame, Columns(list(names), [], {}), tell)
        numbers = frame.drop(columns=target or [], errors="ignore").select_dtypes("number")
        n = self.model.n_features_in_
        if numbers.shape[1] != n:
            raise TableError(
                f"The model takes {n} columns of numbers without names; the table has"
                f" {numbers.shape[1]}: {', '.join(map(str, numbers.columns[:20]))}."
            )
        return numbers.to_numpy(dtype=np.float64)
