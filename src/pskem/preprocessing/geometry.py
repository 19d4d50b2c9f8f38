"""Deskewing and downsampling, as functions of arrays of images."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray


class Slant(NamedTuple):
    """Centre of mass and slant of n images, from their moments up to order two.

    row, column : (n,), the centre of mass
    shear : (n,), columns that the image leans per row: mu_11 / mu_02
    """

    row: FloatArray
    column: FloatArray
    shear: FloatArray


def measure_slant(images: FloatArray) -> Slant:
    """Slant of images (n, h, w); an empty image counts as upright and centred."""
    _, h, w = images.shape
    rows, columns = np.arange(h, dtype=images.dtype), np.arange(w, dtype=images.dtype)
    by_row, by_column = images.sum(axis=2), images.sum(axis=1)  # (n, h), (n, w)
    mass = by_row.sum(axis=1)
    there = mass > 0.0
    mass = np.where(there, mass, 1.0)
    row = np.where(there, by_row @ rows / mass, (h - 1) / 2)
    column = np.where(there, by_column @ columns / mass, (w - 1) / 2)
    row_variance = by_row @ rows**2 / mass - row**2
    product = np.einsum("nh,h->n", images @ columns, rows) / mass - row * column
    # A single row of pixels has no slant; below this its variance is rounding.
    upright = ~there | (row_variance <= 1e-6)
    shear = np.where(upright, 0.0, product / np.where(upright, 1.0, row_variance))
    return Slant(row, column, shear)


def straighten(images: FloatArray, slant: Slant) -> FloatArray:
    """Shear images (n, c, h, w) upright and centre their mass, with bilinear interpolation.

    Pixels outside an image are zero. All rows move down by the same amount, then each row moves
    sideways, so two linear interpolations give the bilinear one.
    """
    n, c, h, w = images.shape
    down = slant.row - (h - 1) / 2  # (n,)
    out = np.empty_like(images)
    upper, lower, fraction = _neighbours(np.arange(h) + down[:, None], h)  # (n, h)
    lines = np.arange(n)[:, None]
    leaning = slant.shear[:, None] * (np.arange(h) - (h - 1) / 2)  # (n, h)
    across = leaning + slant.column[:, None] - (w - 1) / 2
    left, right, part = _neighbours(np.arange(w) + across[:, :, None], w)  # (n, h, w)
    for plane in range(c):
        # One line of zeros below and one to the right stand for all that lies outside.
        padded = np.zeros((n, h + 1, w + 1), dtype=images.dtype)
        padded[:, :h, :w] = images[:, plane]
        moved = padded[lines, upper] * (1.0 - fraction[:, :, None])
        moved += padded[lines, lower] * fraction[:, :, None]  # (n, h, w + 1)
        out[:, plane] = np.take_along_axis(moved, left, axis=2) * (1.0 - part)
        out[:, plane] += np.take_along_axis(moved, right, axis=2) * part
    return out


def _neighbours(
    position: FloatArray, size: int
) -> tuple[NDArray[np.intp], NDArray[np.intp], FloatArray]:
    """Indices of the pixels on both sides of each position, and the weight of the second.

    Pixels outside the line of ``size`` pixels have index ``size``.
    """
    below = np.floor(position)
    fraction = position - below
    first = below.astype(np.intp)
    second = first + 1
    first[(first < 0) | (first >= size)] = size
    second[(second < 0) | (second >= size)] = size
    return first, second, fraction


def block_means(images: FloatArray, factor: int) -> FloatArray:
    """Means of factor x factor pixels: (..., h, w) -> (..., h / factor, w / factor)."""
    *lead, h, w = images.shape
    cells = images.reshape(*lead, h // factor, factor, w // factor, factor)
    return cells.mean(axis=(-3, -1))
