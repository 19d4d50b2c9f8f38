"""Which map each feature has: none, a power or a smooth map of quantiles, by likelihood.

Powers of all features are searched for at once, so that few features cost hardly more than one.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from pskem.margins._maps import Margin, Margins, Power, Quantiles, raised
from pskem.structures import FloatArray

__all__ = ["fit_margins", "quantiles"]

#: Different values below which a feature is left as it is.
FEWEST_VALUES = 10
#: Knots of a quantile map at most, and samples for each at least.
MOST_KNOTS, SAMPLES_PER_KNOT = 24, 10
#: Parameters of a power: the exponent, and one for the choice among frames.
POWERS_PRICE = 2
#: Where the powers of a feature begin: at the end of its shorter tail, in units of so many times
#: the distance of its median from there; or at the median, in units of its spread.
UNITS = (1.0, 0.3, 0.03)
#: Steps of the golden section that find an exponent to a hundredth, and its ratio.
SECTIONS, GOLDEN = 11, 0.5 * (np.sqrt(5.0) - 1.0)
#: Pseudo-samples with a thousandth of the variance of all, which keep the variance within a class
#: that is all the same from deciding alone.
PSEUDO_SAMPLES, PSEUDO_VARIANCE = 2.0, 1e-3
#: Numbers of an array of samples, features and frames, at most.
AT_A_TIME = 2**20
TINY = 1e-300


def fit_margins(X: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None) -> Margins:
    """Maps of the columns of X (n, m), chosen by likelihood.

    What is compared is the likelihood of one Gaussian per class, with the slope of the map, less
    what the Bayesian information criterion takes for each parameter.
    """
    maps: list[Margin | None] = [None] * X.shape[1]
    counted = np.ones(len(X)) if weights is None else weights
    varied = [i for i in range(X.shape[1]) if _n_values(X[:, i]) >= FEWEST_VALUES]
    classes = np.zeros((int(labels.max(initial=0)) + 1, len(X)))
    classes[labels, np.arange(len(X))] = 1.0
    some = max(1, AT_A_TIME // (len(X) * (1 + len(UNITS))))
    for low in range(0, len(varied), some):
        here = varied[low : low + some]
        # Of maps that are then not taken.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            found = _fit(X[:, here].astype(np.float64), classes, counted)
        for i, margin in zip(here, found, strict=True):
            maps[i] = margin
    return Margins(tuple(maps))


def _n_values(x: FloatArray) -> int:
    return len(np.unique(x[~np.isnan(x)]))


def _fit(X: FloatArray, classes: FloatArray, counted: FloatArray) -> list[Margin | None]:
    """The best map of each column of X (n, m); classes : (L, n), one for a sample's own."""
    seen = ~np.isnan(X)
    parts = [(x[there], counted[there]) for x, there in zip(X.T, seen.T, strict=True)]
    centres, spreads = (np.array(part) for part in zip(*map(_frames, parts), strict=True))
    X = np.where(seen, X, centres[:, 0])  # of no weight
    weights = np.where(seen, counted[:, None], 0.0)
    price = 0.5 * np.log(weights.sum(axis=0))
    most = _log_likelihoods(X, classes, weights)
    best: list[Margin | None] = [None] * X.shape[1]
    exponents, found = _powers(X, classes, weights, centres, spreads)
    for i, (part, power, gained) in enumerate(zip(parts, exponents, found, strict=True)):
        frame = int(np.argmax(gained))
        if gained[frame] - POWERS_PRICE * price[i] > most[i]:
            centre, spread = float(centres[i, frame]), float(spreads[i, frame])
            best[i] = Power(centre, spread, power[frame])
            most[i] = gained[frame] - POWERS_PRICE * price[i]
        smooth = _quantile_map(*part)
        if smooth is not None:
            x = X[:, i]
            gain = _log_likelihoods(smooth.forward(x)[:, None], classes, weights[:, [i]])[0]
            gain += weights[:, i] @ smooth.log_slope(x) - len(smooth.values) * price[i]
            if gain > most[i]:
                best[i] = smooth
    return best


def _frames(part: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """Centres and spreads of the powers of a feature, (F,), from its values and their weights."""
    shares = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
    low, first, middle, third, high = quantiles(*part, shares)
    end, reach = (low, middle - low) if middle - low < high - middle else (high, high - middle)
    spreads = [(third - first) / 1.35, *(unit * reach for unit in UNITS)]
    return np.array([middle, *[end] * len(UNITS)]), np.array(spreads)


def _powers(
    X: FloatArray,
    classes: FloatArray,
    weights: FloatArray,
    centres: FloatArray,
    spreads: FloatArray,
) -> tuple[list[list[float]], FloatArray]:
    """The best exponents in each frame (m, F), and the log likelihoods of features with them.

    X, weights : (n, m). A frame without spread has minus infinity.
    """
    n, shape = len(X), centres.shape
    usable = spreads > 0.0
    scales = np.where(usable, spreads, 1.0).reshape(-1)
    u = ((X[:, :, None] - centres).reshape(n, -1)) / scales  # (n, m F)
    size = np.log1p(np.abs(u))
    weights = np.repeat(weights, shape[1], axis=1)
    by_exponent = np.einsum("nc,nc->c", weights, np.sign(u) * size)
    volume = weights.sum(axis=0) * np.log(scales)

    def gained(exponent: FloatArray) -> FloatArray:
        slopes = (exponent - 1.0) * by_exponent - volume
        return _log_likelihoods(raised(u, size, exponent), classes, weights) + slopes

    low, high = np.zeros(u.shape[1]), np.full(u.shape[1], 2.0)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = gained(left), gained(right)
    for _ in range(SECTIONS):
        lower = at_left > at_right
        low, high = np.where(lower, low, left), np.where(lower, right, high)
        new = np.where(lower, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        value = gained(new)
        left, right = np.where(lower, new, right), np.where(lower, left, new)
        at_left, at_right = np.where(lower, value, at_right), np.where(lower, at_left, value)
    exponents = np.where(at_left > at_right, left, right).reshape(shape)
    best = np.maximum(at_left, at_right).reshape(shape)
    return exponents.tolist(), np.where(usable, best, -np.inf)


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


def _log_likelihoods(z: FloatArray, classes: FloatArray, weights: FloatArray) -> FloatArray:
    """Of one Gaussian per class, up to a constant, for each column of z (n, C) with weights.

    Minus infinity where squares leave the range of floating point.
    """
    masses, totals = classes @ weights, weights.sum(axis=0)  # (L, C), (C,)
    centred = z - np.einsum("nc,nc->c", weights, z) / totals
    weighed = weights * centred
    overall = np.einsum("nc,nc->c", weighed, centred)
    sums = classes @ weighed
    # About the mean of all, where little cancels.
    squares = classes @ (weighed * centred) - sums * sums / np.maximum(masses, TINY)
    pseudo = PSEUDO_SAMPLES * PSEUDO_VARIANCE * overall / totals
    variances = (np.maximum(squares, 0.0) + pseudo) / (masses + PSEUDO_SAMPLES)
    logs = np.where(masses > 0.0, np.log(np.maximum(variances, TINY)), 0.0)
    found = -0.5 * np.sum(masses * logs, axis=0)
    return np.where(np.isfinite(found), found, -np.inf)
