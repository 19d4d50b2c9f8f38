"""Perform a run: train on each part of its split and choose the pass of each protocol."""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from pskem.estimators import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
)
from pskem.study.configuration import RunSpec, StudyError
from pskem.study.materials import Material, Place, load
from pskem.study.methods import CLASSIFIERS, Sample, StudyClassifier, Trace
from pskem.study.splits import Part, Rows, make_parts
from pskem.study.tabular import judge
from pskem.tables import encode, fit_encoder, indicator_encoder, keeps_columns, scaler_of

__all__ = ["PartResult", "Result", "perform"]


class PartResult(NamedTuple):
    """Result on one training and test set of a run.

    test : accuracy on the test rows after each pass
    validation : accuracy on the validation rows after each pass; empty without validation
    chosen : the pass that validation chose, or the last one without it; counted from 1
    log_likelihoods, shared, seconds : as in :class:`pskem.study.methods.Trace`
    log_loss, calibration_error : of the probabilities of the test rows; None if not measured
    """

    n_train: int
    n_validation: int
    n_test: int
    test: list[float]
    validation: list[float]
    chosen: int
    log_likelihoods: list[float]
    shared: list[float]
    seconds: float
    log_loss: float | None = None
    calibration_error: float | None = None

    @property
    def peak(self) -> float:
        """The paper's protocol: the best pass by its accuracy on the test rows."""
        return max(self.test)

    @property
    def honest(self) -> float:
        """The pass that was chosen without looking at the test rows."""
        return self.test[self.chosen - 1]


class Result(NamedTuple):
    """Result of a run.

    seconds : time of the whole run
    warnings : number of occurrences of each warning
    """

    parts: list[PartResult]
    seconds: float
    warnings: dict[str, int]

    @property
    def peak(self) -> float:
        return float(np.mean([part.peak for part in self.parts]))

    @property
    def honest(self) -> float:
        return float(np.mean([part.honest for part in self.parts]))

    @property
    def last(self) -> float:
        return float(np.mean([part.test[-1] for part in self.parts]))

    @property
    def seconds_per_pass(self) -> float:
        return float(np.mean([part.seconds / len(part.test) for part in self.parts]))

    @property
    def shared(self) -> float | None:
        """The shared proportion after the last pass."""
        if not self.parts[0].shared:
            return None
        return float(np.mean([part.shared[-1] for part in self.parts]))


def perform(run: RunSpec, place: Place, threads: int = 1) -> Result:
    """Perform a run whose data are in place."""
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught, threadpool_limits(threads):
        warnings.simplefilter("always")
        material = load(run.point, run.path, place)
        split = (run.point.split, run.point.validation)
        parts = make_parts(material.y, material.n_train, *split, run.seed)
        results = [_perform_part(run, material, part, threads) for part in parts]
    texts = Counter(_gist(str(warning.message)) for warning in caught)
    return Result(results, time.perf_counter() - start, dict(texts))


def _gist(text: str) -> str:
    """A warning without details in parentheses, so that similar ones are counted together."""
    before = ""
    while text != before:  # names of columns may have parentheses of their own
        before, text = text, re.sub(r"\s*\([^()]*\)", "", text)
    return " ".join(text.split())


def _perform_part(run: RunSpec, material: Material, part: Part, threads: int) -> PartResult:
    method = CLASSIFIERS[run.point.method]
    rows = [part.test, part.validation] if len(part.validation) else [part.test]
    trace = _train(run, method, material, part.train, rows, threads, part.unlabelled)
    test = trace.accuracies[0]
    validation: list[float] = []
    if len(part.validation):
        validation = trace.accuracies[1]
    elif part.inner and method.has_passes:
        inner = [
            _train(run, method, material, kept, [held_out], threads).accuracies[0]
            for kept, held_out in part.inner
        ]
        validation = np.mean(inner, axis=0).tolist()
    # Of equals the first: fewer passes.
    chosen = int(np.argmax(validation)) + 1 if validation else len(test)
    n_validation = len(part.validation) or sum(len(held_out) for _, held_out in part.inner)
    return PartResult(
        len(part.train),
        n_validation,
        len(part.test),
        test,
        validation,
        chosen,
        trace.log_likelihoods,
        trace.shared,
        trace.seconds,
        trace.log_loss,
        trace.calibration_error,
    )


def _train(
    run: RunSpec,
    method: StudyClassifier,
    material: Material,
    train: Rows,
    watched: list[Rows],
    threads: int,
    unlabelled: Rows | None = None,
) -> Trace:
    """Train on some rows and watch the accuracy on others."""
    settings: dict[str, Any] = dict(run.point.settings)
    others = np.empty(0, dtype=np.intp) if unlabelled is None else unlabelled
    if run.point.features.get("frame", False):
        first, test = ((material.X.iloc[rows], material.y[rows]) for rows in (train, watched[0]))
        return judge(method.make(settings, run.seed, threads), first, test)
    if material.task is None:
        model = method.make(settings, run.seed, threads)
        samples = [Sample(material.X[rows], material.y[rows]) for rows in (train, *watched)]
        labelled = samples[0]._replace(unlabelled=material.X[others])
        return method.train(model, labelled, samples[1:])
    if len(others):
        raise StudyError("Rows without their classes are for image sets so far.")
    if len(np.unique(material.y[train])) < 2:
        raise StudyError("A training part holds one class only. Use fewer folds, or shuffle them.")
    usual = {"n_components": "auto"} if method.has_passes else {}
    model, task = method.make({**usual, **settings}, run.seed, threads), material.task
    if keeps_columns(task.encoder) and not _takes_table(model, task.columns.categorical):
        encoder = indicator_encoder(task.columns, scaler_of(task.encoder))
        task = task._replace(encoder=encoder)
    encoder, X = fit_encoder(task.encoder, material.X.iloc[train])
    seen = [Sample(encode(encoder, material.X.iloc[rows]), material.y[rows]) for rows in watched]
    return method.train(model, Sample(X, material.y[train]), seen)


def _takes_table(model: Any, categorical: list[str]) -> bool:
    """Whether a classifier takes columns as they are; it is told which of them are categories."""
    named = {"categorical_features": categorical or None}
    if isinstance(model, SharedKernelClassifier):
        model.set_params(**named)
    elif isinstance(model, PartitionEnsemble | SharedKernelClassifierCV):
        member = SharedKernelClassifier() if model.estimator is None else clone(model.estimator)
        model.set_params(estimator=member.set_params(**named))
    else:
        return False
    return True
