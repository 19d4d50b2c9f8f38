"""What a type checker sees of the library. mypy checks this file; nothing runs it."""

from typing import TypeAlias, assert_type

from sklearn.base import BaseEstimator

import pskem
from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
    Stepwise,
)
from pskem.persistence import Header, load_with_header
from pskem.starts import Start

Saved: TypeAlias = (
    PartitionEnsemble
    | SharedKernelClassifier
    | SharedKernelClassifierCV
    | SharedKernelDensity
    | BaseEstimator
)


def load_returns_what_was_asked_for() -> None:
    assert_type(pskem.load("model.pskem", SharedKernelClassifier), SharedKernelClassifier)
    assert_type(pskem.load("model.pskem", kind=SharedKernelDensity), SharedKernelDensity)
    assert_type(pskem.load("model.pskem"), Saved)
    assert_type(load_with_header("model.pskem"), tuple[Saved, Header])
    pskem.load("model.pskem", "SharedKernelClassifier")  # type: ignore[call-overload]


def settings_are_known_by_name() -> None:
    SharedKernelClassifier(covariance_type="tied", init="kdtree", partition="dependence")
    SharedKernelClassifier(covariance_type="fulll")  # type: ignore[arg-type]
    SharedKernelClassifier(init="k-means")  # type: ignore[arg-type]
    SharedKernelClassifier(partition="by chance")  # type: ignore[arg-type]
    SharedKernelDensity(covariance_type="spheric")  # type: ignore[arg-type]
    SharedKernelClassifierCV(covariance_type=["full", "tied"], shrinkage=[1.0, "auto"])
    SharedKernelClassifierCV(covariance_type="fulll")  # type: ignore[arg-type]
    SharedKernelClassifierCV(selection="bicc")  # type: ignore[arg-type]
    SharedKernelClassifierCV(shrinkage="autto")  # type: ignore[arg-type]
    PartitionEnsemble(partition="randomm")  # type: ignore[arg-type]
    Start(otherwise="k-mean")  # type: ignore[arg-type]


def fit_returns_the_estimator(X: object, y: object) -> None:
    assert_type(SharedKernelClassifier().fit(X, y), SharedKernelClassifier)
    assert_type(SharedKernelDensity().fit(X), SharedKernelDensity)


def streams_return_the_estimator(X: object, y: object) -> None:
    model = SharedKernelClassifier(stepwise=Stepwise(memory=5000.0)).partial_fit(
        X, y, classes=[0, 1]
    )
    assert_type(model, SharedKernelClassifier)
    assert_type(model.merge(model), SharedKernelClassifier)
    SharedKernelClassifier(stepwise="long")  # type: ignore[arg-type]
