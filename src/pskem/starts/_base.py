"""What a start sees, what it is asked for, and what it may not make."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.engine import FARTHEST, Coordinates, Kernels
from pskem.structures import FloatArray, Structure

__all__ = ["FAR", "WIDE", "BlockSamples", "StartMethod", "Wanted", "check_size"]

#: What is wrong with a start whose densities leave the range of floating point.
FAR = "{:.3g} standard deviations away from the data. Start within the range of X."
WIDE = "with {:.3g} times the variance of the data. Start with kernels about as wide as X at most."


class BlockSamples(NamedTuple):
    """What a start sees of a block.

    points : some samples, (n, m)
    labels : their classes, (n,); -1 where nobody knows
    coordinates : that the samples are in
    weights : how much each sample counts, (n,); None if all count alike
    """

    points: FloatArray
    labels: NDArray[np.intp]
    n_classes: int
    coordinates: Coordinates
    weights: FloatArray | None = None

    @property
    def labelled(self) -> BlockSamples:
        """The samples whose class is known."""
        known = self.labels >= 0
        if known.all():
            return self
        weights = None if self.weights is None else self.weights[known]
        return self._replace(points=self.points[known], labels=self.labels[known], weights=weights)

    @property
    def counted(self) -> FloatArray:
        """The weights, also if all count alike."""
        return np.ones(len(self.points)) if self.weights is None else self.weights


class Wanted(NamedTuple):
    """What a start is asked for: K kernels of a structure for what is seen of a block.

    Means (K, m) and weights (L, K) that are given will take the place of those that are made.
    """

    structure: Structure
    seen: BlockSamples
    K: int
    rng: np.random.Generator
    means: FloatArray | None = None
    weights: FloatArray | None = None


class StartMethod(Protocol):
    """How to make starting kernels."""

    @property
    def reseed(self) -> bool:
        """Whether kernels that run empty start anew."""
        ...

    @property
    def is_random(self) -> bool:
        """Whether chance decides which samples it sees, and what it makes of them."""
        ...

    def make(self, wanted: Wanted) -> Kernels:
        """Starting kernels."""
        ...


def check_size(values: FloatArray, what: str, wrong: str) -> None:
    """Refuse values, in standardised coordinates, whose squares leave the range of floats."""
    largest = np.abs(values).max(initial=0.0)
    if not largest <= FARTHEST[np.dtype(np.float64)]:
        raise ValueError(f"{what} {wrong.format(largest)}")
