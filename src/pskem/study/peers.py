"""Classifiers of scikit-learn that need more than their name to be made."""

from __future__ import annotations

from typing import Any

__all__ = ["self_training"]


def self_training(n_neighbors: int = 3, threshold: float = 0.75, n_jobs: int = 1) -> Any:
    """Self-training of nearest neighbours, which have probabilities and are quick to refit."""
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.semi_supervised import SelfTrainingClassifier

    return SelfTrainingClassifier(
        KNeighborsClassifier(n_neighbors, n_jobs=n_jobs), threshold=threshold
    )
