"""A kernel at every sample, of several widths: the most local of all shared kernel models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from pskem.engine import Kernels, repeats
from pskem.starts._base import BlockSamples, Wanted
from pskem.structures import FloatArray

__all__ = ["EverySample"]

#: Widths that have less of the samples than this are left out.
LEAST_SHARE = 0.01
#: Iterations that find the shares of the widths, at most, and a change after which they have
#: settled.
MOST_ITERATIONS, SETTLED = 200, 1e-6
#: Samples whose distances from all others are held in memory at a time.
AT_A_TIME = 512


@dataclass(frozen=True)
class EverySample:
    """Spherical kernels at the samples of each class, all with the same mixture of widths.

    The shares of the widths maximise the likelihood of each sample under the others of its class
    (Duin, 1976), by EM. Where samples repeat, the narrowest one gets its share. With one width it
    is the probabilistic neural network of Specht (1990). No pass of EM is to follow: it would move
    every kernel onto its sample.

    Parameters
    ----------
    widths : tuple of float
        Standard deviations of the kernels, times the fourth root of the number of features, in the
        units of the block before it is standardised.
    """

    widths: tuple[float, ...] = (0.02, 0.1, 0.25, 0.5, 1.0)
    reseed = False
    is_random = False

    def make(self, wanted: Wanted) -> Kernels:
        seen = wanted.seen.labelled
        n, m = seen.points.shape
        widths = np.array(self.widths) * m**0.25 / seen.coordinates.scale[0]
        shares = _shares(_left_out(seen, widths), seen.counted)
        kept = shares >= LEAST_SHARE
        widths, shares = widths[kept], shares[kept] / shares[kept].sum()
        own = np.zeros((seen.n_classes, n))
        own[seen.labels, np.arange(n)] = seen.counted
        own /= np.maximum(own.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        return Kernels(
            np.hstack([share * own for share in shares]),
            np.tile(seen.points, (len(widths), 1)),
            np.repeat(widths * widths, n),
        )


def _left_out(seen: BlockSamples, widths: FloatArray) -> FloatArray:
    """Log densities of the samples under the others of their class, for each width, (S, n).

    A row that stands there several times is left out once, so it has itself as a neighbour. A row
    alone in its class has no neighbour, and a density of zero.
    """
    n, m = seen.points.shape
    found = np.full((len(widths), n), -np.inf)
    for j in range(seen.n_classes):
        own = np.flatnonzero(seen.labels == j)
        if not len(own):
            continue
        points, counted = seen.points[own], seen.counted[own]
        left = counted * (1.0 - 1.0 / repeats(counted))  # of a row itself
        squares = np.einsum("na,na->n", points, points)
        for low in range(0, len(own), AT_A_TIME):
            some = slice(low, low + AT_A_TIME)
            distances = squares[some, None] + squares - 2.0 * points[some] @ points.T
            np.maximum(distances, 0.0, out=distances)
            others = np.tile(counted, (len(distances), 1))
            rows = np.arange(len(distances))
            others[rows, low + rows] = left[some]
            total = others.sum(axis=1)
            with np.errstate(divide="ignore"):
                logs = np.log(others)
                for s, width in enumerate(widths):
                    terms = logs - distances / (2.0 * width * width)
                    found[s, own[some]] = logsumexp(terms, axis=1) - m * np.log(width)
                found[:, own[some]] -= np.where(total > 0.0, np.log(np.maximum(total, 1e-300)), 0.0)
    return found


def _shares(log_densities: FloatArray, counted: FloatArray) -> FloatArray:
    """Shares of the widths (S,) under which samples with these log densities are most likely."""
    heard = np.isfinite(log_densities).any(axis=0)
    shares = np.full(len(log_densities), 1.0 / len(log_densities))
    if not heard.any():
        return shares
    log_densities, counted = log_densities[:, heard], counted[heard]
    densities = np.exp(log_densities - log_densities.max(axis=0))
    for _ in range(MOST_ITERATIONS):
        terms = shares[:, None] * densities
        before, shares = shares, (terms / terms.sum(axis=0)) @ counted / counted.sum()
        if np.abs(shares - before).max() < SETTLED:
            break
    return shares
