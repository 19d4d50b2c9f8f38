"""The classifiers of a study: how each is made, trained and watched."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import FitFailedWarning
from sklearn.pipeline import Pipeline, make_pipeline

from pskem import checks
from pskem.blocks import ARRANGEMENTS
from pskem.engine import workers
from pskem.estimators import EM_ALONE, PartitionEnsemble, SharedKernelClassifier
from pskem.model import Model
from pskem.preprocessing import IndependentComponents
from pskem.training import Settings
from pskem.workflow import FLAT_SETTINGS, classifier_settings, hold_out

__all__ = [
    "OURS",
    "RESERVED",
    "Conventional",
    "Ensemble",
    "OutOfTheBox",
    "Sample",
    "SemiSupervised",
    "SharedKernels",
    "StudyClassifier",
    "Trace",
    "Tuned",
]

OURS = "shared-kernels"
#: Settings that are the runner's, whatever the classifier.
RUNNERS = frozenset({"n_jobs", "random_state", "verbose", "warm_start"})
#: Settings that a study of passes does not take: it makes all EM passes from one start and chooses
#: among them.
RESERVED = RUNNERS | {
    "block_weights",
    "discriminative_iter",
    "early_stopping",
    "n_init",
    "n_iter_no_change",
    "tol",
    "validation_fraction",
}
#: What a study of passes is unless it says otherwise: EM alone, with kernels that are shared.
PLAIN: Mapping[str, Any] = {
    **EM_ALONE,
    "n_components": 20,
    "own_mass": 0.9,
    "shrinkage_target": "pooled",
    "reseed": EM_ALONE["init"].reseed,
}
#: Training rows by which the settings of a tuned classifier are chosen, at most, and the folds.
TUNING_ROWS = 6000
TUNING_FOLDS = 3


class Sample(NamedTuple):
    """Features (n, M) and labels (n,) of some rows, and features of rows without a label."""

    X: NDArray[Any]
    y: NDArray[Any]
    unlabelled: NDArray[Any] | None = None

    def together(self, marker: Any = None) -> Sample:
        """All rows, with a marker for a label where there is none."""
        if self.unlabelled is None or not len(self.unlabelled):
            return Sample(self.X, self.y)
        nothing = np.full(len(self.unlabelled), marker, dtype=object)
        y = np.concatenate([self.y.astype(object), nothing])
        numbers = marker is not None and self.y.dtype.kind == "i"
        X = np.vstack([self.X, self.unlabelled])
        return Sample(X, y.astype(self.y.dtype) if numbers else y)


class Trace(NamedTuple):
    """Record of a training: one entry per pass, or a single entry without passes.

    accuracies : for each watched sample, the accuracy after each pass
    log_likelihoods : of the training rows, summed over the blocks, before the update of each pass
    shared : shared proportion after each pass
    seconds : training time, without the time to watch
    log_loss, calibration_error : of the probabilities on the first sample; None if not measured
    """

    accuracies: list[list[float]]
    log_likelihoods: list[float]
    shared: list[float]
    seconds: float
    log_loss: float | None = None
    calibration_error: float | None = None


class StudyClassifier(Protocol):
    """A classifier that a study can train and watch."""

    @property
    def has_passes(self) -> bool:
        """Whether it learns in passes, of which one has to be chosen."""
        ...

    def parameters(self) -> set[str]:
        """Names of the accepted settings."""
        ...

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings completed with the defaults of a study."""
        ...

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that are wrong for any data."""
        ...

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        """Make the unfitted classifier."""
        ...

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        """Fit the classifier and record the accuracy on the watched samples."""
        ...


class SharedKernels(NamedTuple):
    """Our EM, recorded pass by pass."""

    has_passes: bool = True

    def parameters(self) -> set[str]:
        return {*SharedKernelClassifier().get_params(), *FLAT_SETTINGS} - RESERVED

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        # One block is the same however it is dealt.
        if settings.get("n_blocks") == 1 and isinstance(settings.get("partition", ""), str):
            return {key: value for key, value in settings.items() if key != "partition"}
        return dict(settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        Settings.parse(self.make(settings, 0, 1).get_params(deep=False))
        if not isinstance(settings.get("partition", []), list):
            checks.check_choice("partition", settings["partition"], ARRANGEMENTS)
        if not isinstance(settings.get("priors", []), list):
            checks.check_choice("priors", settings["priors"], ["uniform"])

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        given = classifier_settings({**PLAIN, **settings})
        return SharedKernelClassifier(**given, tol=0.0, random_state=seed, n_jobs=threads)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        accuracies: list[list[float]] = [[] for _ in watched]
        shared: list[float] = []
        away = 0.0

        def watch(now: Model) -> None:
            nonlocal away
            start = time.perf_counter()
            shared.append(now.shared_proportion())
            with workers(model.n_jobs) as parallel_map:
                for scores, (X, y, _) in zip(accuracies, watched, strict=True):
                    code = getattr(model, "columns_", None)
                    features = np.asarray(X) if code is None else code.encode(X)
                    joint = now.joint(now.log_likelihood(features, parallel_map))
                    scores.append(float(np.mean(now.classes[joint.argmax(1)] == y)))
            away += time.perf_counter() - start

        start = time.perf_counter()
        model.fit(sample.X, sample.y, watch=watch)
        seconds = time.perf_counter() - start - away
        return Trace(accuracies, model.log_likelihoods_.sum(axis=1).tolist(), shared, seconds)


class Conventional(NamedTuple):
    """A classifier that is trained once and then evaluated.

    path : import path of the class, which is imported when it is needed
    fixed : settings that its name implies
    usual : defaults that a study may change
    machine : settings that change the speed only
    parallel : whether it has the parameter ``n_jobs``
    needs : the library that it comes from, if a study can go without
    """

    path: str
    fixed: Mapping[str, Any] = {}
    usual: Mapping[str, Any] = {}
    machine: Mapping[str, Any] = {}
    parallel: bool = False
    needs: str | None = None
    has_passes: bool = False

    @property
    def kind(self) -> Any:
        """The class."""
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)

    def parameters(self) -> set[str]:
        known = set(inspect.signature(self.kind).parameters)
        return known - {*RUNNERS, *self.fixed, *self.machine}

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**self.usual, **settings}

    def check(self, settings: Mapping[str, Any]) -> None:
        model = self.make(settings, 0, 1)
        if hasattr(model, "_check_parameters"):
            model._check_parameters()
        elif hasattr(model, "_parameter_constraints"):  # not so outside scikit-learn
            model._validate_params()

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        mine: dict[str, Any] = {"n_jobs": threads} if self.parallel else {}
        if "random_state" in inspect.signature(self.kind).parameters:
            mine["random_state"] = seed
        return self.kind(**settings, **self.fixed, **self.machine, **mine)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        return train_once(model, sample, watched)


def train_once(model: Any, sample: Sample, watched: list[Sample]) -> Trace:
    """Fit and evaluate a classifier without passes."""
    start = time.perf_counter()
    model.fit(sample.X, sample.y)
    seconds = time.perf_counter() - start
    return Trace([[float(model.score(X, y))] for X, y, _ in watched], [], [], seconds)


class OutOfTheBox(NamedTuple):
    """Ours with all that follows EM; ``partition="ica"`` puts independent components before it.

    labelled_only : whether it goes without rows that have no label
    """

    labelled_only: bool = False
    has_passes: bool = False

    def parameters(self) -> set[str]:
        return {*SharedKernelClassifier().get_params(), *FLAT_SETTINGS} - RUNNERS

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return dict(settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        model = self.make(settings, 0, 1)
        classifier = model[-1] if isinstance(model, Pipeline) else model
        Settings.parse(classifier.get_params(deep=False))

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        given = classifier_settings(settings)
        unmix = given.get("partition") == "ica"
        if unmix:
            given["partition"] = "dependence"
        model = SharedKernelClassifier(**given, random_state=seed, n_jobs=threads)
        return make_pipeline(IndependentComponents(random_state=seed), model) if unmix else model

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        seen = sample if self.labelled_only else sample.together()
        return train_once(model, seen, watched)


class Ensemble(NamedTuple):
    """Our ensemble over partitions; settings are those of its members, and their number."""

    has_passes: bool = False

    def parameters(self) -> set[str]:
        return {"n_estimators", *SharedKernelClassifier().get_params(), *FLAT_SETTINGS} - RUNNERS

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"partition": "random", **settings}

    def check(self, settings: Mapping[str, Any]) -> None:
        model = self.make(settings, 0, 1)
        checks.check_integer("n_estimators", model.n_estimators, 1)
        Settings.parse(model.estimator.get_params(deep=False))

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        members = {key: value for key, value in settings.items() if key != "n_estimators"}
        number = {key: value for key, value in settings.items() if key == "n_estimators"}
        member = SharedKernelClassifier(**classifier_settings(members), n_jobs=threads)
        return PartitionEnsemble(member, **number, partition=None, random_state=seed)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        return train_once(model, sample.together(), watched)


class SemiSupervised(NamedTuple):
    """A classifier of scikit-learn that learns from rows without a label as well: they have -1."""

    base: Conventional
    has_passes: bool = False

    def parameters(self) -> set[str]:
        return self.base.parameters()

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self.base.complete(settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        self.base.check(settings)

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        return self.base.make(settings, seed, threads)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        if sample.y.dtype.kind == "U":  # texts would be taken for labels, whatever they say
            sample = sample._replace(y=sample.y.astype(object))
            watched = [part._replace(y=part.y.astype(object)) for part in watched]
        return train_once(model, sample.together(-1), watched)


class Tuned(NamedTuple):
    """A conventional classifier tuned by cross-validation on training rows."""

    base: Conventional
    grid: Mapping[str, Sequence[Any]]
    has_passes: bool = False

    def parameters(self) -> set[str]:
        return self.base.parameters() - set(self.grid)

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return self.base.complete(settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        self.base.check(settings)

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        from sklearn.model_selection import GridSearchCV, StratifiedKFold

        folds = StratifiedKFold(TUNING_FOLDS, shuffle=True, random_state=seed)
        model = self.base.make(settings, seed, threads)
        return GridSearchCV(model, self.grid, cv=folds, refit=False)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        start = time.perf_counter()
        rows = np.arange(len(sample.y))
        if len(rows) > TUNING_ROWS:
            _, rows = hold_out(sample.y, TUNING_ROWS / len(rows), model.cv.random_state)
        with warnings.catch_warnings():
            # Settings that a classifier refuses are not chosen; no warning is needed.
            warnings.filterwarnings("ignore", category=FitFailedWarning)
            warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
            model.fit(sample.X[rows], sample.y[rows])
        best = clone(model.estimator).set_params(**model.best_params_)
        seconds = time.perf_counter() - start
        trace = train_once(best, sample, watched)
        return trace._replace(seconds=trace.seconds + seconds)
