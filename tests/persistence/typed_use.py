"""What a type checker sees of the library. mypy checks this file; nothing runs it."""

from typing import TypeAlias, assert_type

from sklearn.base import BaseEstimator

import pskem
from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.persistence import Header, load_with_header

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
