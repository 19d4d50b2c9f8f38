"""The classifiers of a study, by name: shared kernels, and those that the paper compares with."""

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

from pskem import checks
from pskem.blocks._partition import ARRANGEMENTS
from pskem.engine._parallel import workers
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.estimators._ensemble import PartitionEnsemble
from pskem.model import HELD, Block, block_log_likelihoods, shared_proportion
from pskem.training._fitting import check_common
from pskem.workflow import hold_out

__all__ = ["METHODS", "OURS", "RESERVED", "Method", "Sample", "Trace"]

OURS = "shared-kernels"
#: Settings that are the runner's, whatever the classifier.
RUNNERS = frozenset({"n_jobs", "random_state", "verbose", "warm_start"})
#: Settings that a study of passes does not take: it makes all EM passes from one start and chooses
#: among them.
RESERVED = RUNNERS | {
    "block_weights",
    "discriminative_iter",
    "discriminative_smoothing",
    "early_stopping",
    "n_init",
    "n_iter_no_change",
    "tol",
    "validation_fraction",
}
#: The paper's training, to which a study adds what it names: the classifier's own defaults go
#: beyond it.
PLAIN: Mapping[str, Any] = {
    "n_components": 20,
    "init": "k-means++",
    "own_mass": 0.9,
    "shrinkage": 0.0,
    "shrinkage_target": "pooled",
    "reseed": False,
    "block_weights": None,
    "discriminative_iter": 0,
    "early_stopping": False,
}
#: Training rows by which the settings of a tuned classifier are chosen, at most, and the folds.
TUNING_ROWS = 6000
TUNING_FOLDS = 3
#: Megabytes of kernel values that a support vector machine may keep.
SVM_CACHE = 1000


class Sample(NamedTuple):
    """Features (n, M) and labels (n,) of some rows."""

    X: NDArray[Any]
    y: NDArray[Any]


class Trace(NamedTuple):
    """How a training went: one entry a pass, or a single one where there are no passes.

    accuracies : for each watched sample, its accuracy after each pass
    log_likelihoods : of the training rows, summed over the blocks, as each pass found it
    shared : the shared proportion after each pass
    seconds : of the training alone, without the watching
    """

    accuracies: list[list[float]]
    log_likelihoods: list[float]
    shared: list[float]
    seconds: float


class Method(Protocol):
    """How to train a classifier and watch it."""

    @property
    def has_passes(self) -> bool:
        """Whether it learns in passes, of which one has to be chosen."""
        ...

    def parameters(self) -> set[str]:
        """Names of the settings that it takes."""
        ...

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings with those that a study has unless it says otherwise."""
        ...

    def check(self, settings: Mapping[str, Any]) -> None:
        """Refuse settings that no data could make right, as far as can be told."""
        ...

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        """The unfitted classifier."""
        ...

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        """Fit the classifier; accuracies are of the watched samples."""
        ...


class SharedKernels(NamedTuple):
    """Ours: all watched samples are classified after every pass."""

    has_passes: bool = True

    def parameters(self) -> set[str]:
        return set(SharedKernelClassifier().get_params()) - RESERVED

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        # One block is the same however it is dealt.
        if settings.get("n_blocks") == 1 and isinstance(settings.get("partition", ""), str):
            return {key: value for key, value in settings.items() if key != "partition"}
        return dict(settings)

    def check(self, settings: Mapping[str, Any]) -> None:
        check_common(SharedKernelClassifier(**{**PLAIN, **settings}))
        if settings.get("n_blocks", "auto") != "auto":
            checks.check_integer("n_blocks", settings["n_blocks"], 1)
        if not isinstance(settings.get("partition", []), list):
            checks.check_choice("partition", settings["partition"], ARRANGEMENTS)
        if not isinstance(settings.get("priors", []), list):
            checks.check_choice("priors", settings["priors"], ["uniform"])
        K = settings.get("n_components", 1)
        checks.check_n_components(K, [1] * max(1, len(K)) if isinstance(K, list) else [1])

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        given = {**PLAIN, **settings}
        return SharedKernelClassifier(**given, tol=0.0, random_state=seed, n_jobs=threads)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        classes, counts = np.unique(sample.y, return_counts=True)
        with np.errstate(divide="ignore"):
            log_prior = np.log(checks.check_prior(model.priors, counts / counts.sum()))
        accuracies: list[list[float]] = [[] for _ in watched]
        shared: list[float] = []
        away = 0.0

        def watch(blocks: list[Block]) -> None:
            nonlocal away
            start = time.perf_counter()
            shared.append(shared_proportion(blocks, HELD))
            with workers(model.n_jobs) as parallel_map:
                for scores, (X, y) in zip(accuracies, watched, strict=True):
                    joint = block_log_likelihoods(blocks, X, parallel_map).sum(axis=1) + log_prior
                    scores.append(float(np.mean(classes[joint.argmax(axis=1)] == y)))
            away += time.perf_counter() - start

        start = time.perf_counter()
        model.fit(sample.X, sample.y, watch=watch)
        seconds = time.perf_counter() - start - away
        return Trace(accuracies, model.log_likelihoods_.sum(axis=1).tolist(), shared, seconds)


class Conventional(NamedTuple):
    """One of scikit-learn's, which is trained once and then judged.

    path : of the class, whose module is imported when it is needed
    fixed : settings that make it what its name says
    usual : settings that a study may change
    machine : settings that change how fast it is and nothing else
    parallel : whether it takes a number of threads
    """

    path: str
    fixed: Mapping[str, Any] = {}
    usual: Mapping[str, Any] = {}
    machine: Mapping[str, Any] = {}
    parallel: bool = False
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
        validate = getattr(model, "_check_parameters", None) or model._validate_params
        validate()

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        mine: dict[str, Any] = {"n_jobs": threads} if self.parallel else {}
        if "random_state" in inspect.signature(self.kind).parameters:
            mine["random_state"] = seed
        return self.kind(**settings, **self.fixed, **self.machine, **mine)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        return train_once(model, sample, watched)


def train_once(model: Any, sample: Sample, watched: list[Sample]) -> Trace:
    """The trace of a classifier without passes: fitted, and then judged."""
    start = time.perf_counter()
    model.fit(sample.X, sample.y)
    seconds = time.perf_counter() - start
    return Trace([[float(model.score(X, y))] for X, y in watched], [], [], seconds)


class Ensemble(NamedTuple):
    """Ours, multiplied over partitions; settings are those of its members and their number."""

    has_passes: bool = False

    def parameters(self) -> set[str]:
        return {"n_estimators", *SharedKernelClassifier().get_params()} - RUNNERS

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"partition": "random", **settings}

    def check(self, settings: Mapping[str, Any]) -> None:
        model = self.make(settings, 0, 1)
        checks.check_integer("n_estimators", model.n_estimators, 1)
        model.estimator._check_parameters()

    def make(self, settings: Mapping[str, Any], seed: int, threads: int) -> Any:
        members = {key: value for key, value in settings.items() if key != "n_estimators"}
        number = {key: value for key, value in settings.items() if key == "n_estimators"}
        member = SharedKernelClassifier(**members, n_jobs=threads)
        return PartitionEnsemble(member, **number, partition=None, random_state=seed)

    def train(self, model: Any, sample: Sample, watched: list[Sample]) -> Trace:
        return train_once(model, sample, watched)


class Tuned(NamedTuple):
    """A conventional classifier whose settings cross-validation of training rows chooses."""

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
            # Settings that a classifier refuses are not chosen; that needs no mention.
            warnings.filterwarnings("ignore", category=FitFailedWarning)
            warnings.filterwarnings("ignore", "One or more of the test scores", UserWarning)
            model.fit(sample.X[rows], sample.y[rows])
        best = clone(model.estimator).set_params(**model.best_params_)
        seconds = time.perf_counter() - start
        trace = train_once(best, sample, watched)
        return trace._replace(seconds=trace.seconds + seconds)


_CACHE = {"cache_size": SVM_CACHE}
_SVC = "sklearn.svm.SVC"
METHODS: dict[str, Method] = {
    OURS: SharedKernels(),
    "lda": Conventional("sklearn.discriminant_analysis.LinearDiscriminantAnalysis"),
    "qda": Conventional(
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis",
        # Some classes of images have features that do not vary.
        usual={"reg_param": 1e-4},
    ),
    "logistic": Conventional("sklearn.linear_model.LogisticRegression", usual={"max_iter": 2000}),
    "linear-svm": Conventional(_SVC, {"kernel": "linear"}, machine=_CACHE),
    "rbf-svm": Conventional(_SVC, {"kernel": "rbf"}, machine=_CACHE),
    "quadratic-svm": Conventional(
        _SVC, {"kernel": "poly", "degree": 2}, {"coef0": 1.0}, machine=_CACHE
    ),
    "knn": Conventional("sklearn.neighbors.KNeighborsClassifier", parallel=True),
    "bagged-trees": Conventional("sklearn.ensemble.BaggingClassifier", parallel=True),
    "hist-gradient-boosting": Conventional("sklearn.ensemble.HistGradientBoostingClassifier"),
    "pskem": Conventional("pskem.estimators._classifier.SharedKernelClassifier", parallel=True),
    "pskem-cv": Conventional(
        # Without a time budget, so that the machine does not choose.
        "pskem.estimators._search.SharedKernelClassifierCV",
        {"time_budget": None},
        parallel=True,
    ),
    "pskem-ensemble": Ensemble(),
}
METHODS |= {
    "tuned-qda": Tuned(
        Conventional("sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis"),
        {"reg_param": [1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3]},
    ),
    "tuned-rbf-svm": Tuned(
        Conventional(_SVC, {"kernel": "rbf"}, machine=_CACHE), {"C": [0.3, 1.0, 3.0, 10.0, 30.0]}
    ),
    "tuned-knn": Tuned(
        Conventional("sklearn.neighbors.KNeighborsClassifier", parallel=True),
        {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]},
    ),
    "tuned-hist-gradient-boosting": Tuned(
        Conventional("sklearn.ensemble.HistGradientBoostingClassifier"),
        {"learning_rate": [0.05, 0.1, 0.2], "max_iter": [100, 300]},
    ),
}
