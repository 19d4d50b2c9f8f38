"""Put kernels that ran empty where the data are explained worst, so that the likelihood rises."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from pskem.engine._em import expectation
from pskem.engine._kernels import Kernels, Prepared, prepare
from pskem.engine._sources import Batch, Gathered, Source, Total, take
from pskem.structures import FloatArray, Gaussians, Structure, pool, replace_kernels

__all__ = ["best_weight", "keep_gains", "reseed"]

#: Places that are tried for a kernel, worst first, before it is left empty.
MOST_PLACES = 5


def _explain(prepared: Prepared, block: int, batch: Batch) -> Gathered:
    """log p(x|c) of each sample under a block, its class and its weight."""
    found = expectation(prepared, batch.X[block], batch.bounds)
    return Gathered(((found.log_likelihoods, batch.labels, batch.known_weights),))


def _density(prepared: Prepared, block: int, label: int, batch: Batch) -> Gathered:
    """Log density of one kernel, of a class's samples: (n,)."""
    own = slice(*batch.bounds[label : label + 2])
    return Gathered(((prepared.log_densities(batch.X[block][:, own])[0],),))


def reseed(
    structure: Structure,
    kernels: Kernels,
    source: Source,
    block: int,
    empty: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
) -> tuple[Kernels, NDArray[np.bool_]]:
    """Kernels of a block with new places for empty ones, and which (K,) are still empty.

    A kernel moves to the sample with the lowest log p(x|c) of the classes that may use it, (L, K),
    with the covariance that the others have on average. The class of that sample gives it the
    weight that raises the likelihood most; a place at which no weight does is passed over.
    """
    double, patterns = np.dtype(np.float64), source.patterns[block]
    prepared = prepare(structure, kernels, double, patterns)
    log_q, labels, counted = source.fold(partial(_explain, prepared, block)).arrays
    masses = np.where(empty, 0.0, source.masses @ kernels.weights)
    common = pool(structure, kernels.covariances, masses, diagonal=False)
    weights, means = kernels.weights.copy(), kernels.means.copy()
    tried = np.zeros(len(labels), dtype=bool)
    still = empty.copy()
    for k in np.flatnonzero(empty).tolist():
        covariance = common[[k]] if structure.storage.per_kernel else common
        for _ in range(MOST_PLACES):
            open_ = allowed[labels, k] & ~tried
            if not open_.any():
                break
            worst = int(np.argmin(np.where(open_, log_q, np.inf)))
            tried[worst] = True
            j = int(labels[worst])
            place, *_ = source.fold(partial(take, [(block, np.array([worst]))])).arrays
            # A gap of the sample lies where the data are on average.
            place = np.where(np.isnan(place), 0.0, place).astype(np.float64)
            alone = Kernels(np.ones((1, 1)), place.T, covariance)
            ready = prepare(structure, alone, double, patterns)
            (log_density,) = source.fold(partial(_density, ready, block, j)).arrays
            own = labels == j
            ratios = np.exp(np.minimum(log_density - log_q[own], 700.0))
            weight = best_weight(ratios, counted[own])
            if weight > 0.0:
                weights[j] *= 1.0 - weight
                weights[j, k] += weight
                means[k] = place[:, 0]
                log_q[own] += np.log1p(weight * (ratios - 1.0))
                still[k] = False
                break
    moved, before = Gaussians(means, common), kernels.gaussians
    placed = replace_kernels(structure, empty & ~still, moved, before)
    return Kernels(weights, *placed), still


def _gain(before: Prepared, after: Prepared, block: int, batch: Batch) -> Total:
    """What the log likelihood of each class gains, (L,)."""
    X, bounds = batch.X[block], batch.bounds
    one, two = (expectation(ready, X, bounds).log_likelihoods for ready in (before, after))
    gains = np.append(0.0, np.cumsum(batch.known_weights * (two - one)))
    return Total((np.diff(gains[bounds]),))


def keep_gains(
    structure: Structure, before: Kernels, moved: Kernels, source: Source, block: int
) -> tuple[Kernels, NDArray[np.bool_]]:
    """Moved kernels, but in classes that lose by it those as before; and which (K,) are moved.

    For kernels that were moved by samples that stand for all.
    """
    double, patterns = np.dtype(np.float64), source.patterns[block]
    one, two = (prepare(structure, kernels, double, patterns) for kernels in (before, moved))
    (gains,) = source.fold(partial(_gain, one, two, block)).arrays
    weights = np.where(gains[:, None] > 0.0, moved.weights, before.weights)
    used = (weights != before.weights).any(axis=0) & (moved.means != before.means).any(axis=1)
    placed = replace_kernels(structure, used, moved.gaussians, before.gaussians)
    return Kernels(weights, *placed), used


def best_weight(ratios: FloatArray, counted: FloatArray | float = 1.0) -> float:
    """argmax over w in [0, 1/2] of sum_n counted_n log(1 - w + w ratios_n); by bisection.

    The sum is concave.
    """

    def slope(w: float) -> float:
        return float(np.sum(counted * (ratios - 1.0) / (1.0 + w * (ratios - 1.0))))

    if slope(0.0) <= 0.0:
        return 0.0
    low, high = 0.0, 0.5
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return low
