"""Choose K, blocks, covariances and shrinkage by validation or BIC, within a time budget."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from pskem.blocks import partition_features
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.structures import STRUCTURES, FloatArray
from pskem.training import (
    NO_PAGE,
    Page,
    Settings,
    Shrinkage,
    suggest_n_components,
    tries_forms,
    usual_blocks,
)

__all__ = [
    "AUTO",
    "Candidate",
    "Fold",
    "Maker",
    "Trial",
    "by_bic",
    "by_folds",
    "configured",
    "in_time",
    "make_candidates",
    "results_of",
    "search",
    "tries_several",
]

#: Kernels of every class, features of a block and multiples of the automatic shrinkage to try.
PER_CLASS = (1, 2, 4, 8, 16)
BLOCK_SIZES = (100, 32, 16)
SHRINKAGE_FACTORS = (1.0, 5.0, 0.2)
#: Training samples per kernel, at least.
SAMPLES_PER_KERNEL = 10
SMALLEST_PROBABILITY = 1e-15
#: Folds that are tried whatever the time, at least.
FEWEST_FOLDS = 2


class Candidate(NamedTuple):
    """Settings to try: those of one model, or :data:`AUTO`."""

    n_components: int | Literal["auto"]
    n_blocks: int | Literal["auto"]
    covariance_type: str
    shrinkage: float | Literal["auto"]

    def cost(self, n_samples: int, n_features: int) -> float:
        """Multiplications of an EM pass, about; 0 if it is not known how many models there are."""
        if isinstance(self.n_components, str) or isinstance(self.n_blocks, str):
            return 0.0
        m = n_features / self.n_blocks
        rows = m * (m + 3) / 2 if self.covariance_type == "full" else 2 * m
        return n_samples * self.n_blocks * self.n_components * (rows + 10)


#: The classifier's own defaults, which try models of several forms and multiply the best.
AUTO = Candidate("auto", "auto", "auto", "auto")


def tries_several(
    classifier: SharedKernelClassifier, known: NDArray[np.bool_], weights: FloatArray | None
) -> bool:
    """Whether the classifier tries models of several forms on samples of which some have a class.

    known, weights : (n,), which samples have a class, and what each counts, if not one
    """
    counted = np.ones(int(known.sum())) if weights is None else np.asarray(weights)[known]
    total = max(float(counted.sum()), float(np.count_nonzero(counted)))
    return tries_forms(Settings.parse(classifier.get_params(deep=False)), total)


def configured(base: SharedKernelClassifier, candidate: Candidate) -> SharedKernelClassifier:
    """A copy of the classifier with the candidate's settings."""
    settings: dict[str, Any] = candidate._asdict()
    if candidate != AUTO:
        settings["n_views"] = "auto"  # which is one model, if its form is given
    if isinstance(base.shrinkage, Shrinkage):
        settings["shrinkage"] = replace(base.shrinkage, samples=candidate.shrinkage)
    model: SharedKernelClassifier = clone(base).set_params(**settings)
    return model


def make_candidates(
    counts: NDArray[np.intp],
    n_features: int,
    n_components: Sequence[int] | None = None,
    n_blocks: Sequence[int] | None = None,
    covariance_type: Sequence[str] | None = None,
    shrinkage: Sequence[float | str] | None = None,
    factors: Sequence[float] = SHRINKAGE_FACTORS,
    unlabelled: float = 0.0,
) -> list[Candidate]:
    """A grid of settings that suit the data, those closest to the classifier's own choice first.

    Time may end a search early. Where several are as close, the cheapest comes first.

    Parameters
    ----------
    counts : (L,), training samples of each class
    n_features : M
    n_components, n_blocks, covariance_type, shrinkage : values to try; None takes such as suit
    factors : multiples of the automatic shrinkage to try, where no values are given
    unlabelled : what samples without a class count, for each with one
    """
    N, L = int(counts.sum()), len(counts)
    others = unlabelled * N
    first = usual_blocks(counts, n_features, others > 0.0)
    sizes = {-(-n_features // size) for size in BLOCK_SIZES} - {first}
    blocks = [first, *sorted(sizes)] if n_blocks is None else list(n_blocks)
    kinds = list(STRUCTURES) if covariance_type is None else list(covariance_type)
    ranked: dict[Candidate, tuple[int, float]] = {}
    for R, kind in product(blocks, kinds):
        m = max(map(len, partition_features(n_features, R)))
        usual = suggest_n_components(counts, m, unlabelled=others)
        numbers = n_components
        if numbers is None:
            most = max(L, int(N + others) // SAMPLES_PER_KERNEL)
            numbers = sorted({usual, *(k * L for k in PER_CLASS if k * L <= most)})
        usual_shrinkage = Shrinkage().amount(STRUCTURES[kind], m, others > 0.0)
        amounts = [factor * usual_shrinkage for factor in factors]
        if shrinkage is not None:
            amounts = [usual_shrinkage if nu == "auto" else float(nu) for nu in shrinkage]
        # How many settings differ from the first choice, and by how much K does.
        for K, (s, amount) in product(numbers, enumerate(amounts)):
            distance = abs(round(float(np.log2(K / usual))))
            away = distance + blocks.index(R) + (kind != kinds[0]) + (s > 0)
            candidate = Candidate(int(K), int(R), kind, float(amount))
            ranked.setdefault(candidate, (away, candidate.cost(N, n_features)))
    return sorted(ranked, key=lambda candidate: (ranked[candidate], candidate))


class Trial(NamedTuple):
    """A candidate and how it did.

    accuracies, log_losses : of each fold; of the training samples where there are no folds
    bic : the Bayesian information criterion; NaN where folds decide
    """

    candidate: Candidate
    accuracies: FloatArray
    log_losses: FloatArray
    bic: float
    seconds: float

    @property
    def merit(self) -> tuple[float, float]:
        """BIC where there is one, else accuracy first and, of equals, the better probabilities."""
        if np.isfinite(self.bic):
            return -self.bic, 0.0
        return float(self.accuracies.mean()), -float(self.log_losses.mean())


class Fold(NamedTuple):
    """Samples to train on, some without a class perhaps, and samples to judge by.

    Both with their weights, if they have any.
    """

    X: FloatArray
    y: NDArray[Any]
    X_test: FloatArray
    y_test: NDArray[Any]
    weights: FloatArray | None = None
    weights_test: FloatArray | None = None

    def joined_by(self, X: FloatArray, weights: FloatArray | None) -> Fold:
        """With more samples to train on, whose classes nobody knows."""
        if not len(X):
            return self
        y = np.concatenate([self.y.astype(object), np.full(len(X), None)])
        both = None
        if self.weights is not None or weights is not None:
            own = np.ones(len(self.X)) if self.weights is None else self.weights
            both = np.concatenate([own, np.ones(len(X)) if weights is None else weights])
        return self._replace(X=np.vstack([self.X, X]), y=y, weights=both)


def _judge(model: SharedKernelClassifier, fold: Fold) -> tuple[float, float]:
    """Fit; accuracy and log loss."""
    with warnings.catch_warnings():
        # Many candidates are too large for the data; the results show that they lose.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(fold.X, fold.y, sample_weight=fold.weights)
    proba = model.predict_proba(fold.X_test)
    # A class that the training part lacks has no probability.
    known = np.isin(fold.y_test, model.classes_)
    own = np.zeros(len(known))
    own[known] = proba[known, np.searchsorted(model.classes_, fold.y_test[known])]
    right = model.classes_[proba.argmax(axis=1)] == fold.y_test
    losses = -np.log(np.maximum(own, SMALLEST_PROBABILITY))
    counted = fold.weights_test
    return float(np.average(right, weights=counted)), float(np.average(losses, weights=counted))


def in_time(candidate: Candidate, folds: Sequence[Fold], deadline: float) -> Iterator[Fold]:
    """The folds to try a candidate on.

    :data:`AUTO` comes first and may take long: it is tried on two folds at least, and on others
    until the deadline. If it does not get to all of them, there is no time for other candidates,
    and nothing that would have to be compared on the same folds.
    """
    for i, fold in enumerate(folds):
        if candidate == AUTO and i >= FEWEST_FOLDS and time.monotonic() > deadline:
            return
        yield fold


#: Settings and where to try them: the models to fit, one per fold.
Maker = Callable[[Candidate], Iterable[tuple[SharedKernelClassifier, Fold]]]


def by_folds(make: Maker) -> Callable[[Candidate], Trial]:
    """A trial that fits a model to the training part of each fold and judges it by the rest."""

    def attempt(candidate: Candidate) -> Trial:
        start = time.monotonic()
        judged = np.array([_judge(model, fold) for model, fold in make(candidate)])
        return Trial(candidate, judged[:, 0], judged[:, 1], np.nan, time.monotonic() - start)

    return attempt


def by_bic(make: Maker) -> Callable[[Candidate], Trial]:
    """A trial that fits a model to all samples by EM alone, and penalises its likelihood."""

    def attempt(candidate: Candidate) -> Trial:
        start = time.monotonic()
        ((model, fold),) = make(candidate)
        model.set_params(discriminative_iter=0, block_weights=None, early_stopping=False)
        judged = np.array([_judge(model, fold)])
        bic = model.bic(fold.X_test, fold.y_test, fold.weights_test)
        return Trial(candidate, judged[:, 0], judged[:, 1], bic, time.monotonic() - start)

    return attempt


def search(
    candidates: Sequence[Candidate],
    cost: Callable[[Candidate], float],
    attempt: Callable[[Candidate], Trial],
    deadline: float,
    observe: Callable[[Trial, int, int], None] = lambda trial, done, left: None,
    page: Page = NO_PAGE,
) -> list[Trial]:
    """Trials of candidates until the time is used up, the best first.

    The first candidate is always tried; one that by its cost would take too long is left out. A
    cost of 0 is one that is not known. The deadline is one of ``time.monotonic``. ``observe`` sees
    each trial, how many candidates have been seen to and how many are left. Trials that the page
    has are not made again, and their time is used up.
    """
    trials: list[Trial] = []
    rate = 0.0  # seconds per unit of cost; for small costs this is mostly overhead
    for i, candidate in enumerate(candidates):
        price = cost(candidate)
        trial = page.get(f"trial {i}")
        if trial is not None:
            deadline -= trial.seconds
        elif trials and time.monotonic() + rate * price > deadline:
            continue
        else:
            trial = attempt(candidate)
            page.put(f"trial {i}", trial)
        rate = trial.seconds / price if price else rate
        trials.append(trial)
        observe(trial, i + 1, len(candidates) - i - 1)
    return sorted(trials, key=lambda trial: trial.merit, reverse=True)


def results_of(trials: Sequence[Trial]) -> dict[str, Any]:
    """What scikit-learn's searches call ``cv_results_``."""
    scores = np.array([trial.accuracies for trial in trials])
    by_bic = np.isfinite([trial.bic for trial in trials]).all()
    results: dict[str, Any] = {
        "params": np.array([trial.candidate._asdict() for trial in trials], dtype=object)
    }
    kind = object if any(trial.candidate == AUTO for trial in trials) else None
    for name in Candidate._fields:
        values = [getattr(trial.candidate, name) for trial in trials]
        results[f"param_{name}"] = np.array(values, dtype=kind)
    if not by_bic:
        for i, column in enumerate(scores.T):
            results[f"split{i}_test_score"] = column
    return results | {
        "mean_test_score": np.array([trial.merit[0] for trial in trials]),
        "std_test_score": np.zeros(len(trials)) if by_bic else scores.std(axis=1),
        "rank_test_score": _ranks([trial.merit for trial in trials]),
        "mean_log_loss": np.array([trial.log_losses.mean() for trial in trials]),
        "bic": np.array([trial.bic for trial in trials]),
        "seconds": np.array([trial.seconds for trial in trials]),
    }


def _ranks(merits: Sequence[tuple[float, float]]) -> NDArray[np.int32]:
    """Ranks of merits that are sorted, the best first; equals share the better rank."""
    return np.array([1 + merits.index(merit) for merit in merits], dtype=np.int32)
