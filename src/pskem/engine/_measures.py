"""What is measured of the samples before a training: their means and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from pskem.engine._coordinates import Coordinates
from pskem.engine._sources import Batch, Source, Total
from pskem.structures import FloatArray, Structure

__all__ = ["log_volumes", "measure", "second_moments"]


class Extremes(NamedTuple):
    """Smallest and largest value of each feature, (m,) a block."""

    low: tuple[FloatArray, ...]
    high: tuple[FloatArray, ...]

    def merge(self, other: Extremes) -> Extremes:
        return Extremes(
            tuple(np.minimum(a, b) for a, b in zip(self.low, other.low, strict=True)),
            tuple(np.maximum(a, b) for a, b in zip(self.high, other.high, strict=True)),
        )


def _extremes(batch: Batch) -> Extremes:
    return Extremes(
        tuple(np.fmin.reduce(part, axis=1, initial=np.inf) for part in batch.X),
        tuple(np.fmax.reduce(part, axis=1, initial=-np.inf) for part in batch.X),
    )


class _Counted:
    """Sums over the samples of a batch that have a feature, each with its weight."""

    def __init__(self, gapped: bool, X: FloatArray, weights: FloatArray | None) -> None:
        self.gaps = np.isnan(X) if gapped else None
        self.weights, self.shape = weights, X.shape

    @property
    def masses(self) -> FloatArray:
        """What the samples count, (m,)."""
        m, n = self.shape
        if self.gaps is None:
            return np.full(m, float(n) if self.weights is None else self.weights.sum())
        return self.sum(np.ones(self.shape))

    def sum(self, values: FloatArray) -> FloatArray:
        """Sums of values (m, n): (m,)."""
        if self.gaps is not None:
            values = np.where(self.gaps, 0.0, values)
        if self.weights is not None:
            values = values * self.weights
        return values.sum(axis=1, dtype=np.float64)


def _sums(gapped: Sequence[bool], units: Sequence[FloatArray], batch: Batch) -> Total:
    """Sums of x / unit, each (m,), and what the samples count that have the feature."""
    found: list[FloatArray] = []
    for X, unit, gaps in zip(batch.X, units, gapped, strict=True):
        counted = _Counted(gaps, X, batch.weights)
        found += [counted.sum(X / unit[:, None]), counted.masses]
    return Total(tuple(found))


def _squares(
    gapped: Sequence[bool],
    units: Sequence[FloatArray],
    shifts: Sequence[FloatArray],
    batch: Batch,
) -> Total:
    """Sums of ((x - shift) / unit)^2, each (m,)."""
    found = []
    for X, unit, shift, gaps in zip(batch.X, units, shifts, gapped, strict=True):
        deviations = X / unit[:, None] - (shift / unit)[:, None]
        counted = _Counted(gaps, X, batch.weights)
        found.append(counted.sum(np.square(deviations, dtype=np.float64)))
    return Total(tuple(found))


def _seen(batch: Batch) -> Total:
    """What the samples count that have each feature, (m,) each."""
    return Total(tuple(~np.isnan(X) @ batch.known_weights for X in batch.X))


def log_volumes(source: Source, coordinates: Sequence[Coordinates]) -> FloatArray:
    """Of all samples, for each block, (R,).

    Subtract them from log likelihoods in these coordinates. Only features that are there count.
    """
    scales = [np.log(frame.scale) for frame in coordinates]
    if all(patterns is None for patterns in source.patterns):
        return float(source.masses.sum()) * np.array([part.sum() for part in scales])
    seen = source.fold(_seen).arrays
    return np.array([masses @ part for masses, part in zip(seen, scales, strict=True)])


def measure(source: Source, structures: Sequence[Structure] | None = None) -> list[Coordinates]:
    """Mean and standard deviation of each feature, as the structures of the blocks want it.

    Some have one common scale for all features of a block, and some take features as they are. A
    constant feature has scale 1, and so has one that is missing everywhere. The latter has no mean:
    whatever it is in samples that come later is a gap as well.
    """
    gapped = [patterns is not None for patterns in source.patterns]
    low, high = source.fold(_extremes)
    largest = [np.fmax(np.abs(a), np.abs(b)) for a, b in zip(low, high, strict=True)]
    # Dividing by the largest value first keeps sums and squares of huge values finite.
    units = [
        np.where((values > 0.0) & np.isfinite(values), values, 1.0).astype(source.dtype)
        for values in largest
    ]
    found = source.fold(partial(_sums, gapped, units)).arrays
    sums, masses = found[::2], found[1::2]
    shifts = []
    for total, unit, counted, a, b in zip(sums, units, masses, low, high, strict=True):
        seen = counted > 0.0
        mean = total / np.where(seen, counted, 1.0) * unit
        shifts.append(np.where(seen, np.clip(mean, a, b), np.nan).astype(source.dtype))
    squares = source.fold(partial(_squares, gapped, units, shifts)).arrays
    measured = []
    kinds = [None] * len(shifts) if structures is None else structures
    rows = zip(shifts, units, squares, masses, kinds, strict=True)
    for shift, unit, square, counted, structure in rows:
        if structure is not None and not structure.standardised:
            measured.append(Coordinates(np.zeros_like(shift), np.ones(len(shift))))
            continue
        variance = square / np.where(counted > 0.0, counted, 1.0)
        spread = np.sqrt(variance) * unit.astype(np.float64)
        spread[spread <= 10 * np.finfo(source.dtype).eps * unit] = 0.0
        if structure is not None and structure.common_scale:
            widest = float(spread.max()) or 1.0
            seen = (counted > 0.0) | (counted.max() == 0.0)
            spread[:] = np.sqrt(np.mean((spread[seen] / widest) ** 2)) * widest
        measured.append(Coordinates(shift, np.where(spread > 0.0, spread, 1.0)))
    return measured


def _products(batch: Batch) -> Total:
    found: list[FloatArray] = []
    for X in batch.X:
        seen = ~np.isnan(X)
        part = np.where(seen, X, 0.0).astype(np.float64, copy=False)
        weights = batch.known_weights
        found += [(part * weights) @ part.T, seen @ weights]
    return Total(tuple(found))


def second_moments(source: Source) -> list[FloatArray]:
    """Mean of x x' of each block, (m, m): the covariance of samples that are standardised.

    Each feature by the samples that have it; correlations are weaker for gaps.
    """
    found = source.fold(_products).arrays
    pairs = zip(found[::2], found[1::2], strict=True)
    inverse = ((total, 1.0 / np.sqrt(np.where(n > 0.0, n, 1.0))) for total, n in pairs)
    return [total * root[:, None] * root for total, root in inverse]
