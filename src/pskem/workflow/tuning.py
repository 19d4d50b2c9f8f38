"""Choose settings for a table by cross-validation, each fold with its own encoder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone

from pskem.estimators import (
    AUTO,
    Candidate,
    Fold,
    SharedKernelClassifier,
    Trial,
    by_folds,
    configured,
    in_time,
    make_candidates,
    search,
    tries_several,
    unlabelled_weight,
)
from pskem.structures import STRUCTURES
from pskem.tables import TableError, encode, fit_encoder, keeps_columns
from pskem.training import NO_PAGE, Chapter, Journal, Page, described, draw_seeds
from pskem.workflow.task import Task, is_labelled
from pskem.workflow.training import hold_out, known_labels, suited

__all__ = ["Search", "last_fit", "tune"]

#: Rows that a search uses at most, and the share of its time that may go into encoding folds.
MOST_ROWS = 20_000
FOLDS_SHARE = 0.3


def _make_folds(task: Task, n_folds: int, seed: Any, seconds: float) -> list[Fold]:
    """Encoded folds, each class in each of them as far as it goes.

    The encoder is fitted on the training part of each fold alone. After the first two, folds are
    made only while there is time.
    """
    from sklearn.model_selection import StratifiedKFold

    start = time.monotonic()
    places, others = np.flatnonzero(task.labelled), np.flatnonzero(~task.labelled)
    y = known_labels(task.y[places])
    classes, counts = np.unique(y, return_counts=True)
    if counts.min() < 2:
        raise TableError(
            f"The class {str(classes[counts.argmin()])!r} has a single row; cross-validation needs"
            " two of every class at least."
        )
    splitter = StratifiedKFold(min(n_folds, int(counts.min())), shuffle=True, random_state=seed)
    folds: list[Fold] = []
    for kept, judged in splitter.split(np.zeros(len(y)), y):
        # Rows without a class can be learnt from, not judged by.
        train, test = np.concatenate([places[kept], others]), places[judged]
        if len(folds) >= 2 and time.monotonic() - start > seconds:
            break
        if not (task.columns.numeric or (task.X.iloc[train].nunique(dropna=False) > 1).any()):
            raise TableError("No column varies within a fold; use fewer folds, or more rows.")
        ours, theirs = task.at(train), task.at(test)
        encoder, X = fit_encoder(task.encoder, ours.X)
        X_test, labels = encode(encoder, theirs.X), known_labels(theirs.y)
        folds.append(Fold(X, ours.y, X_test, labels, ours.weights, theirs.weights))
    return folds


class Search(NamedTuple):
    """What a search found.

    trials : the best first
    n_candidates : settings that there were to try
    n_rows, n_folds : rows and folds of the cross-validation, as far as there was time
    """

    trials: list[Trial]
    n_candidates: int
    n_rows: int
    n_folds: int


def _mark(task: Task) -> str:
    """A mark of the rows of a task, in whatever order, and of its columns."""
    keys = pd.util.hash_pandas_object(task.X, index=False).to_numpy()
    beside = [task.y.astype(str), *([] if task.weights is None else [task.weights])]
    keys = pd.util.hash_pandas_object(
        pd.DataFrame({0: keys, **dict(enumerate(beside, 1))}), index=False
    )
    columns = [list(task.X.columns), task.columns.numeric, task.columns.categorical]
    names = sha256(repr(columns).encode()).hexdigest()[:16]
    return f"{len(task.y)} samples, {int(keys.to_numpy().sum()):016x}, {names}"


def _described(task: Task, classifier: SharedKernelClassifier, n_folds: int) -> dict[str, str]:
    """What decides, beside the rows, what the folds of a search find."""
    steps = [(name, step.get_params(deep=False)) for name, step in task.encoder.steps[1:]]
    search = {"command": "tune", "folds": str(n_folds), "features": repr(steps)}
    return {**search, **described(classifier)}


def tune(
    task: Task,
    classifier: SharedKernelClassifier,
    n_folds: int,
    budget: float,
    observe: Callable[[Trial, int, int], None] = lambda trial, done, left: None,
    journal: Journal | None = None,
) -> Search:
    """Cross-validate candidates until the budget, in seconds, is used up.

    The first candidate is the classifier's own defaults, if these multiply models of several forms;
    the others are single models. The first is always tried; one that by its cost would go over the
    budget is left out. Large tables are searched by a part of their rows. ``observe`` sees each
    trial, how many candidates have been seen to and how many are left. What the journal has is not
    done again.
    """
    deadline = time.monotonic() + budget
    page = NO_PAGE
    if journal is not None:
        (seed,) = draw_seeds(classifier.random_state)
        seed = journal.begin(_described(task, classifier, n_folds), seed)
        if not isinstance(classifier.random_state, Integral):  # folds are those of kept trials
            classifier = clone(classifier).set_params(random_state=seed)
        journal.agree(lambda: _mark(task))
        page = Page(journal, "")
    several = tries_several(classifier, task.labelled, task.weights)
    if len(task.y) > MOST_ROWS:
        kinds = task.y if task.labelled.all() else task.y.astype(str)
        _, rows = hold_out(kinds, MOST_ROWS / len(task.y), classifier.random_state)
        task = task.at(rows)
    folds = _make_folds(task, n_folds, classifier.random_state, FOLDS_SHARE * budget)
    first = folds[0]
    n_samples, n_numbers = first.X.shape
    if keeps_columns(task.encoder):
        n_numbers = len(task.columns.numeric)
    known = is_labelled(first.y)
    _, counts = np.unique(known_labels(first.y[known]), return_counts=True)
    base, ratio = suited(classifier, task), 0.0
    if not known.all():  # how much other rows count is not searched for each time
        weight = unlabelled_weight(base, first.X, first.y, first.weights)
        base.set_params(unlabelled_weight=weight)
        counted = np.ones(len(known)) if first.weights is None else first.weights
        ratio = (weight or 0.0) * counted[~known].sum() / counted[known].sum()
    grid = [Candidate(len(counts), 1, "full", 1.0)]  # categories alone have nothing to try
    if n_numbers:
        grid = make_candidates(
            counts, n_numbers, covariance_type=list(STRUCTURES), unlabelled=ratio
        )

    if several and not ratio:
        grid.insert(0, AUTO)

    def make(candidate: Candidate) -> Iterator[tuple[SharedKernelClassifier, Fold]]:
        for fold in in_time(candidate, folds, deadline):
            yield configured(base, candidate), fold

    trials = search(
        grid,
        lambda candidate: candidate.cost(n_samples, max(1, n_numbers)),
        by_folds(make),
        deadline,
        observe,
        page,
    )
    n_folds = max(len(trial.accuracies) for trial in trials)
    return Search(trials, len(grid), len(task.y), n_folds)


def last_fit(journal: Journal | None, candidate: Candidate) -> Chapter | None:
    """Where the training of the best candidate is kept; a longer search may find a better one."""
    if journal is None:
        return None
    return Chapter(Page(journal, f"last fit, {' '.join(map(str, candidate))}: "))
