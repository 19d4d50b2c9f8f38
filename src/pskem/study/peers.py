"""Classifiers of other libraries that need more than their name to be made."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

__all__ = ["XGBoost", "self_training"]


def self_training(n_neighbors: int = 3, threshold: float = 0.75, n_jobs: int = 1) -> Any:
    """Self-training of nearest neighbours, which have probabilities and are quick to refit."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.semi_supervised import SelfTrainingClassifier

    return SelfTrainingClassifier(
        KNeighborsClassifier(n_neighbors, n_jobs=n_jobs), threshold=threshold
    )


class XGBoost(ClassifierMixin, BaseEstimator):
    """XGBoost at its defaults, which takes no other classes than 0, 1, ... by itself."""

    def __init__(self, random_state: int | None = None, n_jobs: int | None = None) -> None:
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        self.classes_, labels = np.unique(y, return_inverse=True)
        kind = import_module("xgboost").XGBClassifier
        self.model_ = kind(random_state=self.random_state, n_jobs=self.n_jobs).fit(X, labels)
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[self.model_.predict(X)]

    def predict_proba(self, X: Any) -> Any:
        return self.model_.predict_proba(X)
