"""What is measured of the samples before a training: their means and their spread."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from pskem.engine._coordinates import Coordinates
from pskem.engine._sources import Batch, Source, Total
from pskem.structures import FloatArray

__all__ = ["measure", "second_moments"]


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
        tuple(part.min(axis=1, initial=np.inf) for part in batch.X),
        tuple(part.max(axis=1, initial=-np.inf) for part in batch.X),
    )


def _add_up(values: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Sums over samples, (m,) from (m, n), each with its weight."""
    if weights is not None:
        values = values * weights
    return values.sum(axis=1, dtype=np.float64)


def _sums(units: list[FloatArray], batch: Batch) -> Total:
    """Sums of x / unit, each (m,)."""
    pairs = zip(batch.X, units, strict=True)
    return Total(tuple(_add_up(X / unit[:, None], batch.weights) for X, unit in pairs))


def _squares(units: list[FloatArray], shifts: list[FloatArray], batch: Batch) -> Total:
    """Sums of ((x - shift) / unit)^2, each (m,)."""
    rows = zip(batch.X, units, shifts, strict=True)
    deviations = (X / unit[:, None] - (shift / unit)[:, None] for X, unit, shift in rows)
    squares = (np.square(part, dtype=np.float64) for part in deviations)
    return Total(tuple(_add_up(part, batch.weights) for part in squares))


def measure(source: Source, common_scale: bool = False) -> list[Coordinates]:
    """Mean and standard deviation of each feature, or one common scale for all of a block.

    A constant feature has scale 1.
    """
    N = float(source.masses.sum())
    low, high = source.fold(_extremes)
    largest = [np.maximum(np.abs(a), np.abs(b)) for a, b in zip(low, high, strict=True)]
    # Dividing by the largest value first keeps sums and squares of huge values finite.
    units = [np.where(values > 0.0, values, 1.0).astype(source.dtype) for values in largest]
    sums = source.fold(partial(_sums, units)).arrays
    means = [total / N * unit for total, unit in zip(sums, units, strict=True)]
    limits = zip(means, low, high, strict=True)
    shifts = [np.clip(mean, a, b).astype(source.dtype) for mean, a, b in limits]
    squares = source.fold(partial(_squares, units, shifts)).arrays
    found = []
    for shift, unit, square in zip(shifts, units, squares, strict=True):
        spread = np.sqrt(square / N) * unit.astype(np.float64)
        spread[spread <= 10 * np.finfo(source.dtype).eps * unit] = 0.0
        if common_scale:
            widest = float(spread.max()) or 1.0
            spread[:] = np.sqrt(np.mean((spread / widest) ** 2)) * widest
        found.append(Coordinates(shift, np.where(spread > 0.0, spread, 1.0)))
    return found


def _products(batch: Batch) -> Total:
    parts = [part.astype(np.float64, copy=False) for part in batch.X]
    weights = batch.weights
    return Total(tuple((p if weights is None else p * weights) @ p.T for p in parts))


def second_moments(source: Source) -> list[FloatArray]:
    """Mean of x x' of each block, (m, m): the covariance of samples that are standardised."""
    N = float(source.masses.sum())
    return [total / N for total in source.fold(_products).arrays]
