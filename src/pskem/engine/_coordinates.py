"""Standardised coordinates of a block, in which everything is computed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from pskem.structures import FloatArray

__all__ = ["CHUNK", "FARTHEST", "Coordinates", "locate", "standardise"]

#: Samples that are worked on at a time, in prediction and preparation.
CHUNK = 2048
#: Standardised values at prediction are cut off here, where squares are still finite. Beyond it
#: every sample is equally, and hopelessly, far from all kernels.
FARTHEST = {np.dtype(np.float64): 1e100, np.dtype(np.float32): 1e12}


class Coordinates(NamedTuple):
    """Standardised coordinates of a block, (x - shift) / scale, with shift and scale (m,).

    A feature that no sample had has the shift NaN, so that it is a gap everywhere.
    """

    shift: FloatArray
    scale: FloatArray

    @property
    def log_volume(self) -> float:
        """log |dx / dx_standardised|: subtract it from a log density of standardised x."""
        return float(np.log(self.scale).sum())

    def log_volumes(self, X: FloatArray) -> FloatArray | float:
        """The same for samples (m, n) with gaps: of the features that each has, (n,)."""
        gaps = np.isnan(X)
        return np.log(self.scale) @ ~gaps if gaps.any() else self.log_volume


def standardise(parts: Iterable[FloatArray], coordinates: Iterable[Coordinates]) -> None:
    """Samples of each block, (m, n), in its coordinates; overwrites them, a feature at a time."""
    for part, frame in zip(parts, coordinates, strict=True):
        for row, shift, scale in zip(part, *frame, strict=True):
            row -= shift
            row /= scale


def locate(X: FloatArray, coordinates: Coordinates) -> FloatArray:
    """Features of a block, (n, m), in its coordinates: (m, n)."""
    with np.errstate(over="ignore"):
        part = X - coordinates.shift.astype(X.dtype, copy=False)
        part /= coordinates.scale.astype(X.dtype, copy=False)
    far = FARTHEST[X.dtype]
    return np.ascontiguousarray(np.clip(part, -far, far).T)
