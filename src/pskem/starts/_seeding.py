"""Seeds among samples with gaps, which scikit-learn's k-means++ does not take."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

__all__ = ["seeds_among_gaps"]


def seeds_among_gaps(
    points: FloatArray,
    filled: FloatArray,
    weights: FloatArray | None,
    K: int,
    rng: np.random.Generator,
) -> NDArray[np.intp]:
    """Places of K points (n, m) by greedy k-means++ (Arthur & Vassilvitskii, 2007).

    Distances to a seed, whose gaps are filled, are mean squares over the features that a point has.
    """
    counted = np.ones(len(points)) if weights is None else weights
    n_trials = 2 + int(np.log(K))
    chosen = [int(rng.choice(len(points), p=counted / counted.sum()))]
    nearest = _distances(points, filled[chosen])[0]
    while len(chosen) < K:
        pull = counted * nearest
        pull = pull if pull.any() else counted
        trials = rng.choice(len(points), size=n_trials, p=pull / pull.sum())
        distances = np.minimum(nearest, _distances(points, filled[trials]))
        best = int((distances @ counted).argmin())
        chosen.append(int(trials[best]))
        nearest = distances[best]
    return np.array(chosen, dtype=np.intp)


def _distances(points: FloatArray, seeds: FloatArray) -> FloatArray:
    """Mean squared distances in the features that each point has: (seeds, n)."""
    seen = ~np.isnan(points)
    known = np.where(seen, points, 0.0)
    squares = (known**2).sum(axis=1) - 2.0 * seeds @ known.T + seeds**2 @ seen.T
    return np.maximum(squares, 0.0) / np.maximum(seen.sum(axis=1), 1)
