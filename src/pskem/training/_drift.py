"""How much of a stream to remember: memories of several lengths predict the next part.

Each memory is a Gaussian of every feature in every class, which forgets at its own rate. If the
classes stay where they are, the longest predicts best, because it has seen most; if they move, a
shorter one does. The samples of a part are asked about before any of the memories learns of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

__all__ = ["MEMORIES", "Watch", "merge_spreads"]

#: Samples that each memory counts for, at most, the longest last.
MEMORIES = (250.0, 1000.0, 4000.0, 16_000.0, 64_000.0)
#: Standard errors by which a shorter memory must be better than the longest.
BETTER = 3.0
#: Squared standard deviations beyond which it does not matter how far off a value is.
FARTHEST = 25.0


class Watch(NamedTuple):
    """Means and variances of the features in each class, under memories of several lengths.

    masses, means, variances : (J, L, M), of what samples count that have the feature
    asked : (J,), samples by which each memory is judged; older ones count less
    gains, squares : (J,), sums over these of the log likelihood, relative to the longest memory,
        and of its square
    """

    masses: FloatArray
    means: FloatArray
    variances: FloatArray
    asked: FloatArray
    gains: FloatArray
    squares: FloatArray

    @classmethod
    def nobody(cls, n_classes: int, n_features: int) -> Watch:
        """Before the first sample."""
        nothing, none = np.zeros((len(MEMORIES), n_classes, n_features)), np.zeros(len(MEMORIES))
        return cls(nothing, nothing, nothing, none, none, none)

    def memory(self, n_parameters: int) -> float:
        """The memory that is best for a model of so many parameters.

        A model of P parameters that have been estimated from n samples loses about P / 2n in the
        mean log likelihood of others, and a memory of so many samples is worth twice as many.
        """
        asked = np.maximum(self.asked, 1.0)
        mean = self.gains / asked
        spread = np.sqrt(np.maximum(self.squares / asked - mean**2, 0.0) / asked)
        total = max(1.0, float(self.masses[-1].sum(axis=0).max(initial=0.0)))
        cost = n_parameters / (4.0 * np.minimum(MEMORIES, total))
        merits = np.where(mean > BETTER * spread, mean, 0.0) - cost
        return MEMORIES[int(np.argmax(merits[::-1])) * -1 - 1]

    @property
    def spread(self) -> tuple[FloatArray, FloatArray]:
        """Mean and variance of each feature in all classes, (M,); NaN where no sample has it."""
        n, means = self.masses[-1], self.means[-1]
        total = n.sum(axis=0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = (n * means).sum(axis=0) / total
            return mean, (n * (self.variances[-1] + (means - mean) ** 2)).sum(axis=0) / total

    def seen(self, X: FloatArray, labels: NDArray[np.intp], counted: FloatArray) -> Watch:
        """After samples X (n, M) of known classes, each with its weight."""
        X = X.astype(np.float64, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            return self._seen(X, labels, counted)

    def _seen(self, X: FloatArray, labels: NDArray[np.intp], counted: FloatArray) -> Watch:
        asked, gains, squares = self._judged(X, labels, counted)
        J, L, M = self.masses.shape
        n, mean, variance = (np.zeros((L, M)) for _ in range(3))
        for j in np.unique(labels):
            own, weights = X[labels == j], counted[labels == j, None]
            there = ~np.isnan(own) * weights
            n[j] = there.sum(axis=0)
            safe = np.where(n[j] > 0.0, n[j], 1.0)
            mean[j] = np.where(there > 0.0, own * weights, 0.0).sum(axis=0) / safe
            variance[j] = (there * np.where(there > 0.0, own - mean[j], 0.0) ** 2).sum(
                axis=0
            ) / safe
        parts = [self._remembered(level) for level in range(J)]
        merged = [merge_spreads(*part, n, mean, variance) for part in parts]
        masses, means, variances = (np.stack(column) for column in zip(*merged, strict=True))
        return Watch(masses, means, variances, asked, gains, squares)

    def merge(self, other: Watch) -> Watch:
        """Of the samples of both."""
        found = [
            merge_spreads(*one, *two)
            for one, two in zip(
                zip(*self[:3], strict=True), zip(*other[:3], strict=True), strict=True
            )
        ]
        judged = (one + two for one, two in zip(self[3:], other[3:], strict=True))
        return Watch(*(np.stack(column) for column in zip(*found, strict=True)), *judged)

    def _remembered(self, level: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What is left of a memory when a part comes."""
        masses = self.masses[level]
        total = masses.sum(axis=0).max(initial=0.0)
        factor = min(1.0, MEMORIES[level] / total) if total > 0.0 else 1.0
        return factor * masses, self.means[level], self.variances[level]

    def _judged(
        self, X: FloatArray, labels: NDArray[np.intp], counted: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """How well the memories predict samples, (J,) each, with what they predicted before."""
        J = len(self.masses)
        known = self.masses[-1].sum(axis=1)[labels] > 0.0
        X, labels, counted = X[known], labels[known], counted[known]
        _, everyone = self.spread
        usual = np.where(np.isfinite(everyone) & (everyone > 0.0), everyone, np.inf)
        found = np.array([self._log_density(level, X, labels, usual) for level in range(J)])
        relative = found - found[-1]
        limits = 2.0 * np.array(MEMORIES)
        left = np.minimum(1.0, limits / np.maximum(self.asked, 1.0))
        return (
            left * self.asked + counted.sum(),
            left * self.gains + relative @ counted,
            left * self.squares + relative**2 @ counted,
        )

    def _log_density(
        self, level: int, X: FloatArray, labels: NDArray[np.intp], usual: FloatArray
    ) -> FloatArray:
        """Of samples under their classes, but for a constant, (n,).

        Each variance is mixed with that of all classes, as one more sample. Features that have been
        the same everywhere do not count.
        """
        n, means = self.masses[level], self.means[level]
        varying = np.isfinite(usual)
        prior = np.where(varying, usual, 1.0)
        variances = (n * self.variances[level] + prior) / (n + 1.0)
        log_density = np.zeros(len(X))
        for j in np.unique(labels):
            own = labels == j
            squares = np.minimum((X[own] - means[j]) ** 2 / variances[j], FARTHEST)
            terms = -0.5 * (squares + np.log(variances[j]))
            there = varying & (n[j] > 0.0) & ~np.isnan(X[own])
            log_density[own] = np.where(there, terms, 0.0).sum(axis=1)
        return log_density


def merge_spreads(
    n: FloatArray,
    means: FloatArray,
    variances: FloatArray,
    n_more: FloatArray,
    means_more: FloatArray,
    variances_more: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Masses, means and variances of two sets of samples together (Chan, Golub & LeVeque, 1979)."""
    total = n + n_more
    share = n_more / np.where(total > 0.0, total, 1.0)
    offset = means_more - means
    variance = (
        (1.0 - share) * variances + share * variances_more + share * (1.0 - share) * offset**2
    )
    return total, means + share * offset, variance
