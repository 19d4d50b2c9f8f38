"""Monotone maps of features after which Gaussian kernels fit them better.

Skewed and heavy-tailed features are what Gaussian kernels fear. A map of each feature by itself,
from the whole line to the whole line, makes its distribution within the classes more Gaussian. The
model keeps the maps and their slopes, so that densities, draws and gaps are exact in the units of
the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline
from scipy.optimize import minimize_scalar
from scipy.special import ndtri

from pskem.structures import FloatArray

__all__ = ["Margin", "Margins", "Power", "Quantiles", "fit_margins", "quantiles"]

#: Different values below which a feature is left as it is.
FEWEST_VALUES = 10
#: Knots of a quantile map at most, and samples for each at least.
MOST_KNOTS, SAMPLES_PER_KNOT = 24, 10
#: Steps of bisection that find the inverse of a quantile map to the last digits.
BISECTIONS = 60
#: Parameters of a power: the exponent, and one for the choice among frames.
POWERS_PRICE = 2
#: Largest exponent of e in an inverse.
FARTHEST = 600.0
#: Pseudo-samples with a thousandth of the variance of all, which keep the variance within a class
#: that is all the same from deciding alone.
PSEUDO_SAMPLES, PSEUDO_VARIANCE = 2.0, 1e-3


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
        size = np.log1p(np.abs(u))
        right, left = self.exponent, 2.0 - self.exponent
        return np.where(u < 0.0, -_raised(size, left), _raised(size, right))

    def inverse(self, z: FloatArray) -> FloatArray:
        right, left = self.exponent, 2.0 - self.exponent
        size = np.abs(z)
        u = np.where(z < 0.0, -_lowered(size, left), _lowered(size, right))
        return self.centre + self.spread * u

    def log_slope(self, x: FloatArray) -> FloatArray:
        u = (x - self.centre) / self.spread
        slope: FloatArray = (self.exponent - 1.0) * np.sign(u) * np.log1p(np.abs(u))
        return slope - np.log(self.spread)


def _raised(log_size: FloatArray, power: float) -> FloatArray:
    """((1 + u)^p - 1) / p from log(1 + u)."""
    return log_size if power == 0.0 else np.expm1(power * log_size) / power


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

    @property
    def _spline(self) -> CubicHermiteSpline:
        return CubicHermiteSpline(self.values, self.scores, self.slopes)

    def forward(self, x: FloatArray) -> FloatArray:
        inside = np.clip(x, self.values[0], self.values[-1])
        slopes = self.slopes
        beyond = np.where(x < self.values[0], slopes[0], slopes[-1]) * (x - inside)
        return np.asarray(self._spline(inside) + beyond, dtype=np.float64)

    def inverse(self, z: FloatArray) -> FloatArray:
        inside = np.clip(z, self.scores[0], self.scores[-1])
        slopes = self.slopes
        beyond = (z - inside) / np.where(z < self.scores[0], slopes[0], slopes[-1])
        known = np.nan_to_num(inside, nan=self.scores[0])
        piece = np.clip(np.searchsorted(self.scores, known) - 1, 0, len(self.scores) - 2)
        low, high = self.values[piece], self.values[piece + 1]
        spline = self._spline
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            above = spline(middle) > known
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        return 0.5 * (low + high) + beyond

    def log_slope(self, x: FloatArray) -> FloatArray:
        inside = np.clip(x, self.values[0], self.values[-1])
        return np.asarray(np.log(self._spline.derivative()(inside)), dtype=np.float64)


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


def fit_margins(X: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None) -> Margins:
    """Maps of the columns of X (n, m), chosen by likelihood.

    What is compared is the likelihood of one Gaussian per class, with the slope of the map, less
    what the Bayesian information criterion takes for each parameter.
    """
    maps: list[Margin | None] = [None] * X.shape[1]
    for i in range(X.shape[1]):
        seen = ~np.isnan(X[:, i])
        x = X[seen, i].astype(np.float64)
        counted = np.ones(len(x)) if weights is None else weights[seen]
        maps[i] = _fit_margin(x, labels[seen], counted)
    return Margins(tuple(maps))


def _fit_margin(x: FloatArray, labels: NDArray[np.intp], counted: FloatArray) -> Margin | None:
    if len(np.unique(x)) < FEWEST_VALUES:
        return None
    price = 0.5 * np.log(counted.sum())
    best: Margin | None = None
    most = _log_likelihood(x, np.zeros(len(x)), labels, counted)
    for margin, n_parameters in _candidates(x, labels, counted):
        gained = _log_likelihood(margin.forward(x), margin.log_slope(x), labels, counted)
        gained -= price * n_parameters
        if gained > most:
            best, most = margin, gained
    return best


def _candidates(
    x: FloatArray, labels: NDArray[np.intp], counted: FloatArray
) -> Iterator[tuple[Margin, int]]:
    """Maps of a feature, and how many parameters each has."""
    low, first, middle, third, high = quantiles(x, counted, np.array([0.0, 0.25, 0.5, 0.75, 1.0]))
    frames = [(middle, (third - first) / 1.35)]
    # From the end of the shorter tail.
    end, reach = (low, middle - low) if middle - low < high - middle else (high, high - middle)
    frames += [(end, part * reach) for part in (1.0, 0.3, 0.03)]
    for centre, spread in frames:
        if spread > 0.0:
            yield _best_power(x, labels, counted, centre, spread), POWERS_PRICE
    smooth = _quantile_map(x, counted)
    if smooth is not None:
        yield smooth, len(smooth.values)


def _best_power(
    x: FloatArray, labels: NDArray[np.intp], counted: FloatArray, centre: float, spread: float
) -> Power:
    def lost(exponent: float) -> float:
        margin = Power(centre, spread, exponent)
        return -_log_likelihood(margin.forward(x), margin.log_slope(x), labels, counted)

    found = minimize_scalar(lost, bounds=(0.0, 2.0), method="bounded", options={"xatol": 0.01})
    return Power(centre, spread, float(found.x))


def _quantile_map(x: FloatArray, counted: FloatArray) -> Quantiles | None:
    n_knots = int(min(MOST_KNOTS, counted.sum() // SAMPLES_PER_KNOT))
    if n_knots < 3:
        return None
    edge = 0.5 / counted.sum()
    shares = np.linspace(edge, 1.0 - edge, n_knots)
    values, places = np.unique(quantiles(x, counted, shares), return_inverse=True)
    if len(values) < 3:
        return None
    # Where a value takes several shares, it has the middle one.
    middle = np.bincount(places, shares) / np.bincount(places)
    scores: FloatArray = ndtri(middle)
    return Quantiles(values, scores)


def quantiles(x: FloatArray, counted: FloatArray, shares: FloatArray) -> FloatArray:
    """Quantiles of samples, of which each counts so often."""
    order = np.argsort(x, kind="stable")
    below = np.cumsum(counted[order]) - 0.5 * counted[order]
    return np.interp(shares, below / counted.sum(), x[order])


def _log_likelihood(
    z: FloatArray, log_slope: FloatArray, labels: NDArray[np.intp], counted: FloatArray
) -> float:
    """Of one Gaussian per class, up to a constant, with the slope of the map that made z."""
    masses = np.bincount(labels, counted)
    held = np.maximum(masses, 1e-300)
    means = np.bincount(labels, counted * z) / held
    squares = np.bincount(labels, counted * np.square(z - means[labels]))
    centre = counted @ z / counted.sum()
    overall = counted @ np.square(z - centre) / counted.sum()
    variances = (squares + PSEUDO_SAMPLES * PSEUDO_VARIANCE * overall) / (masses + PSEUDO_SAMPLES)
    with np.errstate(divide="ignore"):
        logs = np.where(masses > 0.0, np.log(np.maximum(variances, 1e-300)), 0.0)
    return float(counted @ log_slope - 0.5 * masses @ logs)
