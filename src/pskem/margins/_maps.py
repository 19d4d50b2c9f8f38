"""Maps of single features, from the whole line onto the whole line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

__all__ = ["Margin", "Margins", "Power", "Quantiles", "raised"]

#: Steps of bisection that find the inverse of a quantile map to the last digits.
BISECTIONS = 60
#: Largest exponent of e in an inverse.
FARTHEST = 600.0


class Margin(Protocol):
    """A strictly increasing map of the line onto itself. NaN stays NaN."""

    def forward(self, x: FloatArray) -> FloatArray: ...
    def inverse(self, z: FloatArray) -> FloatArray: ...
    def log_slope(self, x: FloatArray) -> FloatArray: ...


@dataclass(frozen=True)
class Power:
    """Yeo and Johnson's (2000) power of (x - centre) / spread, with an exponent from 0 to 2.

    Within this range it is a map of the whole line onto itself: 1 leaves a feature as it is, less
    pulls in a tail on the right, more one on the left.
    """

    centre: float
    spread: float
    exponent: float

    def forward(self, x: FloatArray) -> FloatArray:
        u = (x - self.centre) / self.spread
        return raised(u, np.log1p(np.abs(u)), self.exponent)

    def inverse(self, z: FloatArray) -> FloatArray:
        right, left = self.exponent, 2.0 - self.exponent
        size = np.abs(z)
        u = np.where(z < 0.0, -_lowered(size, left), _lowered(size, right))
        return self.centre + self.spread * u

    def log_slope(self, x: FloatArray) -> FloatArray:
        u = (x - self.centre) / self.spread
        slope: FloatArray = (self.exponent - 1.0) * np.sign(u) * np.log1p(np.abs(u))
        return slope - np.log(self.spread)


def raised(u: FloatArray, size: FloatArray, exponent: FloatArray | float) -> FloatArray:
    """Yeo and Johnson's power of u, given log(1 + |u|)."""
    power = np.where(u < 0.0, 2.0 - exponent, exponent)
    safe = np.where(power == 0.0, 1.0, power)
    return np.sign(u) * np.where(power == 0.0, size, np.expm1(safe * size) / safe)


def _lowered(value: FloatArray, power: float) -> FloatArray:
    """u from ((1 + u)^p - 1) / p."""
    return np.expm1(
        np.minimum(value if power == 0.0 else np.log1p(power * value) / power, FARTHEST)
    )


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A smooth map that takes some quantiles of a feature to those of the normal distribution.

    Cubic between knots, with slopes that are the harmonic means of those of the chords, so that it
    rises everywhere (Fritsch and Butland, 1984); straight beyond the outer ones.
    """

    values: FloatArray
    scores: FloatArray

    @property
    def slopes(self) -> FloatArray:
        """At the knots."""
        chords = np.diff(self.scores) / np.diff(self.values)
        inner = 2.0 * chords[:-1] * chords[1:] / (chords[:-1] + chords[1:])
        return np.concatenate([chords[:1], inner, chords[-1:]])

    def _pieces(self, x: FloatArray) -> tuple[FloatArray, ...]:
        """For x within the knots: coefficients of a cubic in t, t itself, and dx / dt."""
        piece = np.clip(np.searchsorted(self.values, x, side="right") - 1, 0, len(self.values) - 2)
        low, width = self.values[piece], np.diff(self.values)[piece]
        first, rise = self.scores[piece], np.diff(self.scores)[piece]
        slopes = self.slopes
        begins, ends = width * slopes[piece], width * slopes[piece + 1]
        second, third = 3.0 * rise - 2.0 * begins - ends, begins + ends - 2.0 * rise
        return first, begins, second, third, (x - low) / width, width

    def _cubic(self, x: FloatArray) -> FloatArray:
        a, b, c, d, t, _ = self._pieces(x)
        return a + t * (b + t * (c + t * d))

    def forward(self, x: FloatArray) -> FloatArray:
        inside = np.clip(x, self.values[0], self.values[-1])
        slopes = self.slopes
        beyond = np.where(x < self.values[0], slopes[0], slopes[-1]) * (x - inside)
        return self._cubic(inside) + beyond

    def inverse(self, z: FloatArray) -> FloatArray:
        inside = np.clip(z, self.scores[0], self.scores[-1])
        slopes = self.slopes
        beyond = (z - inside) / np.where(z < self.scores[0], slopes[0], slopes[-1])
        known = np.nan_to_num(inside, nan=self.scores[0])
        piece = np.clip(np.searchsorted(self.scores, known) - 1, 0, len(self.scores) - 2)
        low, high = self.values[piece], self.values[piece + 1]
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            above = self._cubic(middle) > known
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return 0.5 * (low + high) + beyond

    def log_slope(self, x: FloatArray) -> FloatArray:
        _, b, c, d, t, width = self._pieces(np.clip(x, self.values[0], self.values[-1]))
        return np.log((b + t * (2.0 * c + 3.0 * t * d)) / width)


@dataclass(frozen=True, eq=False)
class Margins:
    """One map for each feature of a block, (m,); None leaves a feature as it is."""

    maps: tuple[Margin | None, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "maps", tuple(self.maps))

    @property
    def sources(self) -> NDArray[np.intp]:
        """The feature that each mapped one is made of, (m,)."""
        return np.arange(len(self.maps))

    @property
    def may_lack(self) -> bool:
        """Whether there may be gaps where X has no NaN."""
        return False

    def carry(self, features: NDArray[np.intp]) -> None:
        """Nothing is turned."""

    def _mapped(self) -> Iterator[tuple[int, Margin]]:
        return ((i, margin) for i, margin in enumerate(self.maps) if margin is not None)

    def forward(self, X: FloatArray) -> FloatArray:
        """Rows of X (n, m) as the kernels see them."""
        mapped = X.copy()
        for i, margin in self._mapped():
            mapped[:, i] = margin.forward(X[:, i].astype(np.float64))
        return mapped

    def inverse(self, Z: FloatArray) -> FloatArray:
        """Rows that the kernels see, (n, m), in the units of X."""
        original = Z.copy()
        for i, margin in self._mapped():
            original[:, i] = margin.inverse(Z[:, i].astype(np.float64))
        return original

    def log_slopes(self, X: FloatArray) -> FloatArray:
        """Sum of log |dz / dx| over the features of rows of X, (n,); gaps have none."""
        total = np.zeros(len(X))
        for i, margin in self._mapped():
            total += np.nan_to_num(margin.log_slope(X[:, i].astype(np.float64)))
        return total

    def at(self, features: NDArray[np.intp]) -> Margins | None:
        """Of some of the features, by their places; None if these have no maps."""
        maps = tuple(self.maps[i] for i in features)
        return Margins(maps) if any(margin is not None for margin in maps) else None
