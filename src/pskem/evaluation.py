"""Metrics of predicted probabilities against true labels."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

#: Bins of confidence for the calibration error.
BINS = 15


class ClassScores(NamedTuple):
    """Scores of one class."""

    name: str
    precision: float
    recall: float
    f1: float
    support: int


class Evaluation(NamedTuple):
    """Metrics of a set of predictions.

    accuracy : share of samples predicted correctly
    balanced_accuracy : mean of the recalls of the classes
    log_loss : mean of -log p(true class)
    brier : mean squared error of the probabilities, summed over classes: 0 to 2
    calibration_error : expected calibration error of the predicted class, over 15 equal bins
    confusion : (L, L), samples by true class (rows) and predicted class (columns)
    classes : one entry per class
    """

    n_samples: int
    accuracy: float
    balanced_accuracy: float
    log_loss: float
    brier: float
    calibration_error: float
    confusion: NDArray[np.intp]
    classes: list[ClassScores]

    def as_dict(self) -> dict[str, Any]:
        """The metrics as plain values, for JSON."""
        return {
            **self._asdict(),
            "confusion": self.confusion.tolist(),
            "classes": [scores._asdict() for scores in self.classes],
        }


def evaluate(labels: NDArray[np.intp], proba: FloatArray, names: list[str]) -> Evaluation:
    """Evaluate probabilities (n, L) against labels (n,), which are indices into ``names``."""
    from sklearn import metrics

    L = proba.shape[1]
    predicted = proba.argmax(axis=1)
    positions = np.arange(L)
    columns = metrics.precision_recall_fscore_support(
        labels, predicted, labels=positions, zero_division=0.0
    )
    _, recall, _, support = columns
    return Evaluation(
        n_samples=len(labels),
        accuracy=float(np.mean(predicted == labels)),
        balanced_accuracy=float(recall[support > 0].mean()),
        log_loss=float(metrics.log_loss(labels, proba, labels=positions)),
        brier=float(np.square(proba - np.eye(L)[labels]).sum(axis=1).mean()),
        calibration_error=calibration_error(labels, proba),
        confusion=metrics.confusion_matrix(labels, predicted, labels=positions),
        classes=[
            ClassScores(name, float(p), float(r), float(f), int(n))
            for name, p, r, f, n in zip(names, *columns, strict=True)
        ],
    )


def calibration_error(labels: NDArray[np.intp], proba: FloatArray) -> float:
    """Expected calibration error: mean of |accuracy - confidence| over bins of confidence.

    Guo, Pleiss, Sun & Weinberger (2017). The confidence is the largest probability of a sample; the
    bins have equal width.
    """
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    gaps = np.bincount(bins, weights=right - confidence, minlength=BINS)
    return float(np.abs(gaps).sum() / len(labels))
