"""Columns of X as other numbers: steps of a number, indicators of categories and of missing values.

Within a step nothing matters, from step to step anything may happen: a linear function of steps is
a sum of staircases, one for each column, as trees and additive models make them. Kernels of such
numbers decide, but they are no density of X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.margins import Margin, Margins, quantiles
from pskem.structures import FloatArray

__all__ = ["Indicators", "Mapped", "Part", "Recoding", "Steps", "Turn", "fit_parts", "fit_turn"]

#: What is added to variances within classes, relative to those of all classes together.
LEAST_VARIANCE = 1e-3


class Part(Protocol):
    """One column of the user, as it stands in X and as kernels see it."""

    @property
    def n_columns(self) -> int:
        """Columns of X."""
        ...

    @property
    def width(self) -> int:
        """Numbers that are made of them."""
        ...

    def forward(self, X: FloatArray) -> FloatArray:
        """Rows of X (n, n_columns) as numbers, (n, width). NaN is a gap."""
        ...

    def log_slopes(self, X: FloatArray) -> FloatArray:
        """Log of the slope of the map of rows of X, (n,)."""
        ...


@dataclass(frozen=True)
class Mapped:
    """A number as it is or, with a margin, after this map.

    If gaps tell, something stands in for a number that is missing, and another says so.
    """

    margin: Margin | None = None
    stand_in: float | None = None
    n_columns: ClassVar[int] = 1

    @property
    def width(self) -> int:
        return 1 if self.stand_in is None else 2

    def forward(self, X: FloatArray) -> FloatArray:
        numbers = X if self.margin is None else self.margin.forward(X.astype(np.float64))
        if self.stand_in is None:
            return numbers
        missing = np.isnan(numbers)
        return np.hstack([np.where(missing, self.stand_in, numbers), missing])

    def log_slopes(self, X: FloatArray) -> FloatArray:
        if self.margin is None:
            return np.zeros(len(X))
        return np.nan_to_num(self.margin.log_slope(X[:, 0].astype(np.float64)))


@dataclass(frozen=True, eq=False)
class Steps:
    """Whether a number is above each of several edges and, if gaps tell, whether it is missing."""

    edges: FloatArray
    gaps_tell: bool
    n_columns: ClassVar[int] = 1

    @property
    def width(self) -> int:
        return len(self.edges) + self.gaps_tell

    def forward(self, X: FloatArray) -> FloatArray:
        missing = np.isnan(X)
        steps = (self.edges < X).astype(np.float64)
        if self.gaps_tell:
            return np.hstack([steps, missing])
        return np.where(missing, np.nan, steps)

    def log_slopes(self, X: FloatArray) -> FloatArray:
        return np.zeros(len(X))


@dataclass(frozen=True)
class Indicators:
    """The indicators of a category, of which one says nothing new where none is ever missing."""

    n_columns: int
    gaps_tell: bool

    @property
    def width(self) -> int:
        return self.n_columns - (not self.gaps_tell)

    def forward(self, X: FloatArray) -> FloatArray:
        if self.gaps_tell:
            return X
        missing = ~X.any(axis=1, keepdims=True)
        return np.where(missing, np.nan, X[:, 1:])

    def log_slopes(self, X: FloatArray) -> FloatArray:
        return np.zeros(len(X))


@dataclass(frozen=True, eq=False)
class Turn:
    """A linear map that makes numbers uncorrelated within classes: (x - centre) @ matrix.

    A missing number is replaced by the centre.
    """

    centre: FloatArray
    matrix: FloatArray

    def forward(self, numbers: FloatArray) -> FloatArray:
        return np.nan_to_num(numbers - self.centre) @ self.matrix

    @property
    def covariance(self) -> FloatArray:
        """Of the numbers, where that of the turned ones is the identity."""
        return np.asarray(np.linalg.inv(self.matrix @ self.matrix.T))

    def at(self, kept: NDArray[np.bool_]) -> Turn:
        """Of some of the numbers, (m,)."""
        return Turn(self.centre[kept], _whitener(self.covariance[np.ix_(kept, kept)]))


@dataclass(frozen=True, eq=False)
class Recoding:
    """How a block reads its columns of X: a part for each column of the user, perhaps turned."""

    parts: tuple[Part, ...]
    turn: Turn | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))

    @property
    def sources(self) -> NDArray[np.intp]:
        """For each number that is made, the first column of the block that it is made of."""
        firsts = np.cumsum([0, *(part.n_columns for part in self.parts)])[:-1]
        return np.repeat(firsts, [part.width for part in self.parts]).astype(np.intp)

    @property
    def may_lack(self) -> bool:
        """Whether there may be gaps where X has no NaN."""
        return self.turn is None

    def _split(self, X: FloatArray) -> list[FloatArray]:
        ends = np.cumsum([part.n_columns for part in self.parts])
        return np.split(X, ends[:-1], axis=1)

    def forward(self, X: FloatArray) -> FloatArray:
        """Rows of X (n, m) as the kernels see them."""
        pairs = zip(self.parts, self._split(X), strict=True)
        numbers = np.hstack([part.forward(own) for part, own in pairs])
        return numbers if self.turn is None else self.turn.forward(numbers)

    def log_slopes(self, X: FloatArray) -> FloatArray:
        """Log slopes of the maps among the parts, summed, (n,)."""
        pairs = zip(self.parts, self._split(X), strict=True)
        return np.sum([part.log_slopes(own) for part, own in pairs], axis=0)

    def inverse(self, Z: FloatArray) -> FloatArray:
        """There is none: between two edges every number is the same."""
        raise ValueError(
            "A block that reads columns as other numbers has no values of X. Use a block of the"
            " first view, or train with n_views=1."
        )

    def at(self, features: NDArray[np.intp]) -> Recoding:
        """Of some of the columns, by their places: all of a category, or none."""
        kept, first = [], 0
        for part in self.parts:
            if first in features:
                kept.append(part)
            first += part.n_columns
        turn = self.turn and self.turn.at(np.isin(self.sources, features))
        return Recoding(tuple(kept), turn)

    def carry(self, features: NDArray[np.intp]) -> FloatArray | None:
        """Matrix from the whitened numbers to those of some of the columns, (m, m')."""
        if self.turn is None:
            return None
        kept = np.isin(self.sources, features)
        return np.linalg.inv(self.turn.matrix)[:, kept] @ self.turn.at(kept).matrix


def _whitener(covariance: FloatArray) -> FloatArray:
    """Vectors with this covariance, times this matrix from the right, are uncorrelated."""
    return np.asarray(np.linalg.inv(np.linalg.cholesky(covariance)).T)


def fit_turn(numbers: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None) -> Turn:
    """The turn after which the covariance of numbers (n, m) within classes is about the identity.

    It is shrunk toward its diagonal as if by m + 1 samples, and no variance falls below a
    thousandth of that of all classes.
    """
    n, m = numbers.shape
    counted = np.ones(n) if weights is None else weights
    seen = counted[:, None] * ~np.isnan(numbers)
    known = np.nan_to_num(numbers)
    centre = (seen * known).sum(axis=0) / np.maximum(seen.sum(axis=0), np.finfo(float).tiny)
    known = np.where(np.isnan(numbers), 0.0, known - centre)
    spread = np.sqrt(counted @ np.square(known) / counted.sum())
    spread = np.where(spread > 0.0, spread, 1.0)
    known = known / spread
    masses = np.bincount(labels, counted)
    sums = np.stack([np.bincount(labels, counted * column) for column in known.T], axis=1)
    inner = known - (sums / np.maximum(masses, np.finfo(float).tiny)[:, None])[labels]
    within = (counted[:, None] * inner).T @ inner
    variances = np.diag(within) / counted.sum()
    within = (within + (m + 1) * np.diag(variances)) / (counted.sum() + m + 1)
    within += LEAST_VARIANCE * np.eye(m)
    return Turn(centre, _whitener(within) / spread[:, None])


def fit_parts(
    X: FloatArray,
    weights: FloatArray | None,
    levels: Sequence[int],
    maps: Margins | None,
    n_steps: int | None,
) -> list[Part]:
    """A part for each column of the user: numbers, then categories with so many levels.

    Numbers become so many steps at most; with None they stay numbers, perhaps after maps.
    """
    n_numbers = X.shape[1] - sum(levels)
    parts: list[Part] = []
    for i in range(n_numbers):
        seen = ~np.isnan(X[:, i])
        x, counted = X[seen, i].astype(np.float64), np.ones(len(X)) if weights is None else weights
        counted = counted[seen]
        if n_steps is not None:
            parts.append(Steps(_edges(x, counted, n_steps), not seen.all()))
            continue
        part = Mapped(None if maps is None else maps.maps[i])
        if seen.any() and not seen.all():
            mean = np.average(part.forward(x[:, None])[:, 0], weights=counted)
            part = Mapped(part.margin, float(mean))
        parts.append(part)
    bounds = np.cumsum([n_numbers, *levels])
    for low, high in pairwise(bounds.tolist()):
        parts.append(Indicators(high - low, not X[:, low:high].any(axis=1).all()))
    return parts


def _edges(x: FloatArray, counted: FloatArray, n_steps: int) -> FloatArray:
    """Edges between the values of a feature: all, or so many that are equally many samples apart.

    An edge lies between two values, so that rounding does not decide on which side a sample is.
    """
    values = np.unique(x)
    if len(values) < 2:
        return np.empty(0)
    between = 0.5 * (values[1:] + values[:-1])
    if len(between) <= n_steps:
        return between
    shares = np.arange(1, n_steps + 1) / (n_steps + 1)
    places = np.searchsorted(between, quantiles(x, counted, shares))
    return between[np.unique(np.minimum(places, len(between) - 1))]
