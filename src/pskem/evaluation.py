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


class Tally(NamedTuple):
    """Sums over predictions, from which all metrics follow.

    confusion : (L, L), samples by true class (rows) and predicted class (columns)
    losses, squares : sums over the samples of -log p(true class), and of the squared errors
    gaps : (BINS,), sums of right - confidence over the samples of each bin of confidence
    """

    confusion: NDArray[np.intp]
    losses: float
    squares: float
    gaps: FloatArray

    @classmethod
    def of(cls, labels: NDArray[np.intp], proba: FloatArray) -> Tally:
        """Of probabilities (n, L) and labels (n,), which are places of classes."""
        n, L = proba.shape
        predicted = proba.argmax(axis=1)
        own = proba[np.arange(n), labels]
        least = np.finfo(proba.dtype).eps  # a probability of 0 is taken for this
        return cls(
            np.bincount(labels * L + predicted, minlength=L * L).reshape(L, L),
            float(-np.log(np.clip(own, least, 1.0)).sum(dtype=np.float64)),
            float(np.square(proba - np.eye(L)[labels]).sum(dtype=np.float64)),
            _gaps(labels, proba),
        )

    @classmethod
    def empty(cls, n_classes: int) -> Tally:
        """Of no samples."""
        return cls(np.zeros((n_classes, n_classes), dtype=np.intp), 0.0, 0.0, np.zeros(BINS))

    def merge(self, other: Tally) -> Tally:
        return Tally(
            self.confusion + other.confusion,
            self.losses + other.losses,
            self.squares + other.squares,
            self.gaps + other.gaps,
        )

    @property
    def n_samples(self) -> int:
        return int(self.confusion.sum())

    def evaluation(self, names: list[str]) -> Evaluation:
        """All metrics, with the names of the classes."""
        n, right = self.n_samples, np.diag(self.confusion)
        support, named = self.confusion.sum(axis=1), self.confusion.sum(axis=0)
        recall, precision = right / np.maximum(support, 1), right / np.maximum(named, 1)
        f1 = 2.0 * right / np.maximum(support + named, 1)
        columns = zip(names, precision, recall, f1, support, strict=True)
        return Evaluation(
            n_samples=n,
            accuracy=float(right.sum() / n),
            balanced_accuracy=float(recall[support > 0].mean()),
            log_loss=self.losses / n,
            brier=self.squares / n,
            calibration_error=float(np.abs(self.gaps).sum() / n),
            confusion=self.confusion,
            classes=[
                ClassScores(name, float(p), float(r), float(f), int(k))
                for name, p, r, f, k in columns
            ],
        )


def evaluate(labels: NDArray[np.intp], proba: FloatArray, names: list[str]) -> Evaluation:
    """Evaluate probabilities (n, L) against labels (n,), which are indices into ``names``."""
    return Tally.of(labels, proba).evaluation(names)


def calibration_error(labels: NDArray[np.intp], proba: FloatArray) -> float:
    """Expected calibration error: mean of |accuracy - confidence| over bins of confidence.

    Guo, Pleiss, Sun & Weinberger (2017). The confidence is the largest probability of a sample; the
    bins have equal width. A label may be that of no class.
    """
    return float(np.abs(_gaps(labels, proba)).sum() / len(labels))


def _gaps(labels: NDArray[np.intp], proba: FloatArray) -> FloatArray:
    """Sums of right - confidence in each bin of confidence, (BINS,)."""
    confidence = proba.max(axis=1)
    right = proba.argmax(axis=1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    return np.bincount(bins, right - confidence, BINS).astype(np.float64)
