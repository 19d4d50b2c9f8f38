"""Measure what docs/choices.md reports, and record it in docs/choices.

python -m docs.choosing FOLDER            # what has no record yet; then write the page
python -m docs.choosing FOLDER again      # all of it

FOLDER holds the tables as NAME.csv.gz, with the classes in the column "class". Test rows are those
of the study `tables`, and no choice sees them. Each table has its record as soon as it is done.
"""

from __future__ import annotations

import csv
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from docs.answers import SMALLEST, answers_of
from docs.choices import ALL, BEST, ENSEMBLES, FITS, FORMS, METHODS, SHIPPED, TAKEN, in_words
from docs.watching import watch
from numpy.typing import NDArray

from docs import choices
from pskem import PartitionEnsemble, SharedKernelClassifier
from pskem.evaluation import calibration_error
from pskem.structures import FloatArray
from pskem.study.folders import FoundTable, tables_in
from pskem.study.splits import make_parts
from pskem.tables import labels_of, read_table

FOLDS, FOLDS_OF_MANY, MANY_ROWS = 5, 2, 3000
#: Tables for ensembles: rows at most, and columns of numbers; and folds, since fits are many.
MOST_ROWS, NUMBERS, FOLDS_OF_ENSEMBLES = 2000, (6, 100), 3
#: How far what is put together here may be from what the fitted model says.
ROUNDING = 1e-6
SCORES = ["rows", "accuracy", "log loss", "ece", "difference", "error"]

Records = dict[tuple[str, ...], list[str]]


class Data(NamedTuple):
    """A table: its columns, and its classes as places among all of them, (N,)."""

    name: str
    X: Any
    y: NDArray[np.intp]
    n_classes: int

    def folds(self) -> Iterator[tuple[int, NDArray[np.intp], NDArray[np.intp]]]:
        """Number, training rows and test rows of each fold."""
        for fold in range(FOLDS if len(self.y) <= MANY_ROWS else FOLDS_OF_MANY):
            (part,) = make_parts(self.y, None, {"folds": FOLDS, "single": True}, {}, fold)
            yield fold, part.train, part.test

    def widened(self, log_p: FloatArray, classes: NDArray[np.intp]) -> FloatArray:
        """Log probabilities of all classes; those that were not trained on have none."""
        wide = np.full((len(log_p), self.n_classes), -np.inf)
        wide[:, classes] = log_p
        return wide


def load(found: FoundTable) -> Data:
    frame = read_table(str(found.path), verbatim=[found.target])
    y, present = labels_of(frame, found.target)
    classes, places = np.unique(y, return_inverse=True)
    return Data(found.name, frame[present].drop(columns=[found.target]), places, len(classes))


def score(truth: NDArray[np.intp], log_p: FloatArray, reference: FloatArray) -> list[str]:
    """Scores of answers to all test rows of a table, and their mean loss over a reference's."""

    def losses(answer: FloatArray) -> FloatArray:
        return -np.maximum(answer[np.arange(len(truth)), truth], np.log(SMALLEST))

    own = losses(log_p)
    more = own - losses(reference)
    figures = [
        np.mean(log_p.argmax(axis=1) == truth),
        own.mean(),
        calibration_error(truth, np.exp(log_p)),
        more.mean(),
        more.std(ddof=1) / np.sqrt(len(truth)),
    ]
    return [str(len(truth)), *(f"{figure:.6f}" for figure in figures)]


def measure_fits(data: Data) -> tuple[Records, Records]:
    """Records of the fits of a table, and of their forms."""
    found: dict[tuple[str, str], list[FloatArray]] = {}
    truth: list[NDArray[np.intp]] = []
    forms: dict[str, list[float]] = {}
    for fold, train, test in data.folds():
        X, y, X_test = data.X.iloc[train], data.y[train], data.X.iloc[test]
        model = SharedKernelClassifier(random_state=fold, n_jobs=1)
        watched = watch(model, X, y, X_test)
        answers = answers_of(watched)
        real = model.predict_proba(X_test)
        if not np.allclose(np.exp(answers[SHIPPED]), real, rtol=0.0, atol=ROUNDING):
            raise RuntimeError(f"{data.name}: what was put together is not what the model says.")
        plain = SharedKernelClassifier(covariance_type="full", random_state=fold, n_jobs=1)
        answers["plain", ALL] = plain.fit(X, y).predict_log_proba(X_test)
        for name, log_p in answers.items():
            found.setdefault(name, []).append(data.widened(log_p, model.classes_))
        truth.append(data.y[test])
        add_forms(forms, model.trials_)
    whole = {name: np.concatenate(parts) for name, parts in found.items()}
    scores: Records = {}
    for (kind, calibration), log_p in whole.items():
        reference = whole[BEST] if kind == BEST[0] else whole[SHIPPED]
        key = (data.name, kind, calibration)
        scores[key] = [*key, *score(np.concatenate(truth), log_p, reference)]
    counts: Records = {
        (data.name, form): [data.name, form, *(f"{figure:.6g}" for figure in figures)]
        for form, figures in forms.items()
    }
    return scores, counts


def add_forms(forms: dict[str, list[float]], trials: Sequence[dict[str, Any]]) -> None:
    """Count a fit: forms that were tried, the best, those that were kept and their exponents."""
    least = min(trial["log_loss"] for trial in trials)
    for trial in trials:
        figures = forms.setdefault(in_words(trial), [0.0] * 4)
        figures[0] += 1.0
        figures[1] += trial["log_loss"] == least
        figures[2] += trial["exponent"] > 0.0
        figures[3] += trial["exponent"]


TWO_BLOCKS: dict[str, Any] = {"n_blocks": 2, "n_jobs": 1}


def ensemble(**settings: Any) -> Callable[[int], Any]:
    """A maker of ensembles whose members have two blocks, which random partitions fill."""
    return lambda n_classes: PartitionEnsemble(SharedKernelClassifier(**TWO_BLOCKS), **settings)


#: By the names of the records: what is made for a number of classes.
MAKERS: dict[str, Callable[[int], Any]] = {
    "default": lambda _: SharedKernelClassifier(n_jobs=1),
    "plain": lambda _: SharedKernelClassifier(covariance_type="full", n_jobs=1),
    "two blocks": lambda _: SharedKernelClassifier(**TWO_BLOCKS),
    "one block each": lambda _: PartitionEnsemble(n_jobs=1),
    "partitions": ensemble(),
    "bootstrap": ensemble(bootstrap=True),
    "bootstrap, fitted": ensemble(bootstrap=True, weights="fit"),
    "columns": ensemble(max_features=0.7),
    "kernels": lambda L: ensemble(n_components=[L, 2 * L, 3 * L])(L),
    "three defaults": lambda _: PartitionEnsemble(
        None, 3, partition=None, bootstrap=True, weights="fit", n_jobs=1
    ),
}


def suits_ensembles(data: Data) -> bool:
    n_numbers = len(data.X.select_dtypes("number").columns)
    return len(data.y) <= MOST_ROWS and NUMBERS[0] <= n_numbers <= NUMBERS[1]


def measure_ensembles(data: Data) -> Records:
    whole: dict[str, FloatArray] = {}
    seconds: dict[str, float] = {}
    folds = list(islice(data.folds(), FOLDS_OF_ENSEMBLES))
    truth = np.concatenate([data.y[test] for _, _, test in folds])
    for name in METHODS:
        parts, start = [], time.perf_counter()
        for fold, train, test in folds:
            model = MAKERS[name](data.n_classes).set_params(random_state=fold)
            model.fit(data.X.iloc[train], data.y[train])
            parts.append(data.widened(model.predict_log_proba(data.X.iloc[test]), model.classes_))
        whole[name] = np.concatenate(parts)
        seconds[name] = (time.perf_counter() - start) / len(folds)
    return {
        (data.name, name): [
            *(data.name, name, *score(truth, log_p, whole["default"])),
            f"{seconds[name]:.3f}",
        ]
        for name, log_p in whole.items()
    }


def records(path: Path, key: int) -> Records:
    """The rows of a file by their first columns."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as lines:
        return {tuple(row[:key]): row for row in list(csv.reader(lines))[1:]}


def write(path: Path, header: list[str], rows: Records) -> None:
    TAKEN.mkdir(exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows[key] for key in sorted(rows))


def measure(folder: Path) -> None:
    """Measure every table that has no record yet."""
    tables = [load(found) for found in tables_in(folder)]
    fits, forms, ensembles = records(FITS, 3), records(FORMS, 2), records(ENSEMBLES, 2)
    for data in unrecorded(tables, fits):
        scores, counts = measure_fits(data)
        fits |= scores
        forms |= counts
        write(FORMS, ["table", "form", "tried", "best", "kept", "exponents"], forms)
        write(FITS, ["table", "model", "calibration", *SCORES], fits)
    for data in unrecorded(filter(suits_ensembles, tables), ensembles):
        ensembles |= measure_ensembles(data)
        write(ENSEMBLES, ["table", "method", *SCORES, "seconds"], ensembles)


def unrecorded(tables: Iterable[Data], rows: Records) -> Iterator[Data]:
    """Tables without a record; what each took is printed."""
    done = {key[0] for key in rows}
    for data in tables:
        if data.name not in done:
            start = time.perf_counter()
            yield data
            print(f"{data.name}: {time.perf_counter() - start:.0f} s", flush=True)


def main() -> None:
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["again"]):
        raise SystemExit(__doc__)
    if sys.argv[2:]:
        for path in (FITS, FORMS, ENSEMBLES):
            path.unlink(missing_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        measure(Path(sys.argv[1]))
    choices.main()


if __name__ == "__main__":
    main()
