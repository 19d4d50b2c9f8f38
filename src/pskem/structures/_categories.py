"""Kernels over categories: a product of categorical distributions, one for each column.

It is an exponential family as well: with one indicator for every value of every column, the log
probability is theta . x with theta = log p, and its M-step are frequencies. A cell that is missing
has no indicator, and so drops out of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from pskem.structures._base import FloatArray, Floored, Gaussians, Natural, SecondMoments

__all__ = ["Categorical", "draw_places"]

#: No category of a kernel is less probable than this, where nothing smooths: log 0 would be final.
SMALLEST = 1e-10


class Nothing:
    """No covariances: (K, 0)."""

    per_kernel = True

    def __init__(self, n_columns: int) -> None:
        self.n_columns = n_columns

    def shape(self, K: int, m: int) -> tuple[int, ...]:
        return (K, 0)

    def n_parameters(self, K: int, m: int) -> int:
        return -K * self.n_columns  # the probabilities of each column sum to one

    def dense(self, covariances: FloatArray, K: int, m: int) -> FloatArray:
        return np.zeros((K, m, m))

    def compact(self, covariances: FloatArray) -> FloatArray:
        return np.zeros((len(covariances), 0))

    def rescale(self, covariances: FloatArray, scale: FloatArray) -> FloatArray:
        return covariances

    def select(self, covariances: FloatArray, features: NDArray[Any]) -> FloatArray:
        return covariances


@dataclass(frozen=True)
class Categorical:
    """Every kernel has probabilities of the values of each column. phi = x, the indicators.

    Parameters
    ----------
    levels : tuple of int
        How many values each column has; its indicators stand next to each other.
    """

    levels: tuple[int, ...]
    name: ClassVar[str] = "categorical"
    common_scale: ClassVar[bool] = False
    without_phi: ClassVar[None] = None
    separable: ClassVar[None] = None
    standardised: ClassVar[bool] = False
    gap: ClassVar[float] = 0.0

    @property
    def storage(self) -> Nothing:
        return Nothing(len(self.levels))

    @property
    def starts(self) -> NDArray[np.intp]:
        """Where the indicators of each column begin."""
        return np.cumsum((0, *self.levels[:-1])).astype(np.intp)

    @property
    def most_kernels(self) -> float:
        """One for each combination of values of all columns but the one with the most values."""
        return float(prod(self.levels) // max(self.levels))

    def absent(self, X: FloatArray) -> NDArray[np.bool_]:
        """Where no value of a column is there."""
        return self._totals(X) == 0.0

    def draw(
        self, gaussians: Gaussians, kernels: NDArray[np.intp], rng: np.random.Generator
    ) -> FloatArray:
        parts = np.split(gaussians.means[kernels], self.starts[1:], axis=1)
        return np.hstack([np.eye(part.shape[1])[draw_places(part, rng)] for part in parts])

    def restrict(self, observed: NDArray[np.bool_]) -> Categorical:
        kept = np.add.reduceat(observed, self.starts, dtype=np.intp)
        if ((kept > 0) & (kept < self.levels)).any():
            raise ValueError("A categorical column is there with all of its values, or not at all.")
        return Categorical(tuple(int(n) for n in kept if n))

    def n_rows(self, m: int) -> int:
        return m

    def natural(self, means: FloatArray, covariances: FloatArray) -> Natural:
        nothing = np.zeros(len(means))
        return Natural(np.log(np.maximum(means, SMALLEST)), nothing, None, nothing, nothing)

    def features(self, natural: Natural, X: FloatArray, out: FloatArray) -> None:
        out[:] = X

    def products(self, counts: FloatArray, a: FloatArray, b: FloatArray) -> SecondMoments:
        return SecondMoments(np.empty((len(a), 0)), np.zeros(()))

    def spread(self, counts: FloatArray, covariances: FloatArray, m: int) -> SecondMoments:
        return SecondMoments(np.empty((len(counts), 0)), np.zeros(()))

    def gather(self, counts: FloatArray, moments: SecondMoments, m: int) -> FloatArray:
        return np.empty((len(counts), 0))

    def floor(self, covariances: FloatArray, floor: float) -> Floored:
        return Floored(covariances, np.zeros(len(covariances), dtype=np.intp))

    def settle(self, means: FloatArray, masses: FloatArray, pseudo: float) -> FloatArray:
        """Probabilities from mean indicators, (K, m), of samples that count so much, (K,).

        Smoothed by pseudo-samples that have the frequencies of all kernels together: the mean of a
        Dirichlet posterior. Columns with gaps are normalised by the samples that have them.
        """
        counts = np.maximum(means, 0.0) * masses[:, None]
        everyone = counts.sum(axis=0) + 1.0 / np.repeat(self.levels, self.levels)
        counts = counts + pseudo * everyone / self._totals(everyone)
        totals = self._totals(counts)
        even = 1.0 / np.repeat(self.levels, self.levels)
        found = np.where(totals > 0.0, counts / np.where(totals > 0.0, totals, 1.0), even)
        found = np.maximum(found, SMALLEST)
        return found / self._totals(found)

    def _totals(self, values: FloatArray) -> FloatArray:
        """Sums over the values of each column, repeated for each of them, along the last axis."""
        sums = np.add.reduceat(values, self.starts, axis=-1)
        return np.repeat(sums, self.levels, axis=-1)


def draw_places(shares: FloatArray, rng: np.random.Generator) -> NDArray[np.intp]:
    """One column for each row of shares (n, K), which sum to one."""
    cumulative = np.cumsum(shares, axis=1)
    places: NDArray[np.intp] = (
        rng.random((len(shares), 1)) * cumulative[:, -1:] >= cumulative
    ).sum(axis=1)
    return places
