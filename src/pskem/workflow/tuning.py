"""Choose K, blocks and covariance type by cross-validation, within a time budget."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from pskem.classifier import SharedKernelClassifier
from pskem.structures import STRUCTURES
from pskem.tables import TableError, category_features, unknown_allowed
from pskem.workflow.task import Task
from pskem.workflow.training import complete, hold_out, suggest_n_components

__all__ = ["Candidate", "Search", "Trial", "candidates", "make_folds", "tune"]

FloatArray = NDArray[np.floating]

KERNELS = (1, 2, 4, 8, 16, 32, 64, 128)
#: Features per block that are tried, besides one block for all.
BLOCK_SIZES = (16, 8)
#: Training samples per kernel, at least.
SAMPLES_PER_KERNEL = 10
SMALLEST_PROBABILITY = 1e-15
#: Rows that a search uses at most, and the share of its time that may go into encoding folds.
MOST_ROWS = 20_000
FOLDS_SHARE = 0.3


class Fold(NamedTuple):
    """A training part, its fitted encoder and a test part."""

    encoder: Pipeline
    X: FloatArray
    y: NDArray[Any]
    X_test: FloatArray
    y_test: NDArray[Any]


class Candidate(NamedTuple):
    """Settings to try."""

    n_components: int
    n_blocks: int
    covariance_type: str

    def cost(self, n_samples: int, n_features: int) -> float:
        """Multiplications of an EM pass, about."""
        m = n_features / self.n_blocks
        rows = m * (m + 3) / 2 if self.covariance_type == "full" else 2 * m
        return n_samples * self.n_blocks * self.n_components * (rows + 10)


class Trial(NamedTuple):
    """A candidate with the accuracy and the log loss of each fold."""

    candidate: Candidate
    accuracies: FloatArray
    log_losses: FloatArray
    seconds: float

    @property
    def merit(self) -> tuple[float, float]:
        """Accuracy first; of equals, the better probabilities."""
        return float(self.accuracies.mean()), -float(self.log_losses.mean())


def candidates(n_samples: int, n_features: int, n_classes: int) -> list[Candidate]:
    """A grid of settings that suit the data.

    Those with about as many kernels as would be suggested come first, the cheapest of them before
    others: time may end the search early.
    """
    if n_features == 0:  # categories alone have a kernel for each value
        return [Candidate(1, 1, kind) for kind in STRUCTURES]
    blocks = sorted({1, *(-(-n_features // size) for size in BLOCK_SIZES)})
    fewest = max(1, n_classes // 2)
    most = max(fewest, n_samples // SAMPLES_PER_KERNEL)
    kernels = [K for K in KERNELS if fewest <= K <= most] or [fewest]
    grid = (Candidate(*settings) for settings in product(kernels, blocks, STRUCTURES))
    suggested = suggest_n_components(n_samples, n_features, n_classes, "auto")

    def rank(candidate: Candidate) -> tuple[float, float, Candidate]:
        distance = abs(np.log2(candidate.n_components / suggested))
        return round(distance), candidate.cost(n_samples, n_features), candidate

    return sorted(grid, key=rank)


def make_folds(task: Task, n_folds: int, seed: int, seconds: float = np.inf) -> list[Fold]:
    """Encoded folds, each class in each of them as far as it goes.

    The encoder is fitted on the training part of each fold alone. After the first two, folds are
    made only while there is time.
    """
    from sklearn.model_selection import StratifiedKFold

    start = time.monotonic()
    _, counts = np.unique(task.y, return_counts=True)
    splitter = StratifiedKFold(min(n_folds, int(counts.min())), shuffle=True, random_state=seed)
    folds: list[Fold] = []
    for train, test in splitter.split(np.zeros(len(task.y)), task.y):
        if len(folds) >= 2 and time.monotonic() - start > seconds:
            break
        if not (task.columns.numeric or (task.X.iloc[train].nunique(dropna=False) > 1).any()):
            raise TableError("No column varies within a fold; use fewer folds, or more rows.")
        encoder = clone(task.encoder)
        X = encoder.fit_transform(task.X.iloc[train])
        with unknown_allowed():
            X_test = encoder.transform(task.X.iloc[test])
        folds.append(Fold(encoder, X, task.y[train], X_test, task.y[test]))
    return folds


class Search(NamedTuple):
    """What a search found.

    trials : the best first
    n_candidates : settings that there were to try
    n_rows, n_folds : rows and folds of the cross-validation
    """

    trials: list[Trial]
    n_candidates: int
    n_rows: int
    n_folds: int


def tune(
    task: Task,
    classifier: SharedKernelClassifier,
    n_folds: int,
    budget: float,
    observe: Callable[[Trial, int, int], None] = lambda trial, done, left: None,
) -> Search:
    """Cross-validate candidates until the budget, in seconds, is used up.

    Large tables are searched by a part of their rows. The first candidate is always tried; one that
    by its cost would go over the budget is left out. ``observe`` sees each trial, how many
    candidates have been seen to and how many are left.
    """
    start = time.monotonic()
    if len(task.y) > MOST_ROWS:
        _, rows = hold_out(task.y, MOST_ROWS / len(task.y), classifier.random_state)
        task = task._replace(X=task.X.iloc[rows], y=task.y[rows])
    folds = make_folds(task, n_folds, classifier.random_state, FOLDS_SHARE * budget)
    n_samples, n_features = folds[0].X.shape
    n_numbers = n_features - sum(map(len, category_features(folds[0].encoder)))
    grid = candidates(n_samples, n_numbers, len(np.unique(task.y)))
    trials: list[Trial] = []
    rate = 0.0  # seconds per unit of cost; for small costs this is mostly overhead
    for i, candidate in enumerate(grid):
        cost = candidate.cost(n_samples, n_numbers)
        if trials and time.monotonic() - start + rate * cost > budget:
            continue
        trial = _try(clone(classifier).set_params(reg_covar=None), candidate, task, folds)
        rate = trial.seconds / cost
        trials.append(trial)
        observe(trial, i + 1, len(grid) - i - 1)
    trials.sort(key=lambda trial: trial.merit, reverse=True)
    return Search(trials, len(grid), len(task.y), len(folds))


def _try(
    classifier: SharedKernelClassifier, candidate: Candidate, task: Task, folds: Sequence[Fold]
) -> Trial:
    accuracies, losses = [], []
    start = time.monotonic()
    classifier.set_params(**candidate._asdict())
    for fold in folds:
        model = complete(classifier, fold.encoder, task, *fold.X.shape)
        with warnings.catch_warnings():
            # Many candidates are too large for the data; the table shows that they lose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(fold.X, fold.y)
        proba = model.predict_proba(fold.X_test)
        own = proba[np.arange(len(fold.y_test)), np.searchsorted(model.classes_, fold.y_test)]
        accuracies.append(np.mean(model.classes_[proba.argmax(axis=1)] == fold.y_test))
        losses.append(-np.log(np.maximum(own, SMALLEST_PROBABILITY)).mean())
    seconds = time.monotonic() - start
    return Trial(candidate, np.array(accuracies), np.array(losses), seconds)
