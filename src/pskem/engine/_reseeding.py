"""Put kernels that ran empty where the data are explained worst, so that the likelihood rises."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pskem.engine._em import expectation
from pskem.engine._kernels import Kernels, kernel_log_densities, prepare
from pskem.engine._sources import Samples
from pskem.structures import FloatArray, Structure

__all__ = ["best_weight", "reseed"]

#: Places that are tried for a kernel, worst first, before it is left empty.
MOST_PLACES = 5


def reseed(
    structure: Structure,
    kernels: Kernels,
    samples: Samples,
    empty: NDArray[np.bool_],
    allowed: NDArray[np.bool_],
) -> tuple[Kernels, NDArray[np.bool_]]:
    """Kernels of a block with new places for empty ones, and which (K,) are still empty.

    A kernel moves to the sample with the lowest log p(x|c) of the classes that may use it, (L, K),
    with the covariance that the others have on average. The class of that sample gives it the
    weight that raises the likelihood most; a place at which no weight does is passed over.
    """
    prepared = prepare(structure, kernels, np.dtype(np.float64))
    log_q = np.concatenate(
        [expectation(structure, prepared, samples, chunk)[1] for chunk in samples.chunks]
    )
    labels = samples.labels
    counts = np.diff(samples.bounds).astype(np.float64)
    masses = np.where(empty, 0.0, counts @ kernels.weights)
    common = structure.pool(kernels.covariances, masses, diagonal=False)
    weights, means = kernels.weights.copy(), kernels.means.copy()
    tried = np.zeros(len(labels), dtype=bool)
    still = empty.copy()
    for k in np.flatnonzero(empty).tolist():
        for _ in range(MOST_PLACES):
            open_ = allowed[labels, k] & ~tried
            if not open_.any():
                break
            worst = int(np.argmin(np.where(open_, log_q, np.inf)))
            tried[worst] = True
            j = labels[worst]
            own = slice(samples.bounds[j], samples.bounds[j + 1])
            log_density = _log_density(structure, common, samples.X, worst, own, k)
            ratios = np.exp(np.minimum(log_density - log_q[own], 700.0))
            weight = best_weight(ratios)
            if weight > 0.0:
                weights[j] *= 1.0 - weight
                weights[j, k] += weight
                means[k] = samples.X[:, worst]
                log_q[own] += np.log1p(weight * (ratios - 1.0))
                still[k] = False
                break
    moved = empty & ~still
    covariances = structure.keep(moved, common, kernels.covariances)
    return Kernels(weights, means, covariances), still


def _log_density(
    structure: Structure, common: FloatArray, X: FloatArray, at: int, own: slice, k: int
) -> FloatArray:
    """log N(x; x_at, common) of a class's samples, (n,)."""
    covariance = common[[k]] if structure.keeps_apart else common
    alone = Kernels(np.ones((1, 1)), X[:, [at]].T.astype(np.float64), covariance)
    prepared = prepare(structure, alone, np.dtype(np.float64))
    return kernel_log_densities(structure, prepared, X[:, own])[0]


def best_weight(ratios: FloatArray) -> float:
    """argmax over w in [0, 1/2] of sum_n log(1 - w + w ratios_n), a concave sum; by bisection."""

    def slope(w: float) -> float:
        return float(np.sum((ratios - 1.0) / (1.0 + w * (ratios - 1.0))))

    if slope(0.0) <= 0.0:
        return 0.0
    low, high = 0.0, 0.5
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) > 0.0 else (low, middle)
    return low
