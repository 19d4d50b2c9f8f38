"""Lloyd's algorithm for k-means, which comes to the same clusters on every processor.

Samples of few distinct values are often equally far from two means. The last bits of a matrix
product, which differ from processor to processor, would then decide, and EM would start, and end,
somewhere else.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

__all__ = ["centroids", "lloyd", "nearest"]

#: Samples that are worked on at a time.
CHUNK = 512
#: Squared distances are the same if they differ by less than this times the squared lengths that
#: they are made of; rounding is about 1e-15 of these.
SAME = 1e-10
#: Centres that move by less, squared and relative to the variance of a feature, have arrived.
TOLERANCE = 1e-4
MOST_STEPS = 300


def nearest(points: FloatArray, means: FloatArray) -> NDArray[np.intp]:
    """Index of the nearest mean, the first of those at the same distance: (n,).

    Points may have gaps (NaN); distances are then in the features that a point has.
    """
    squares = means * means
    found = np.empty(len(points), dtype=np.intp)
    for low in range(0, len(points), CHUNK):
        part, lengths = points[low : low + CHUNK], squares.sum(axis=1)
        gaps = np.isnan(part)
        if gaps.any():
            part = np.where(gaps, 0.0, part)
            lengths = ~gaps @ squares.T  # (n, K)
        distances = part @ (-2.0 * means.T)  # (n, K), squared, without what all means have
        distances += lengths
        margin = SAME * ((part * part).sum(axis=1) + lengths.max())
        limit = distances.min(axis=1) + margin
        found[low : low + CHUNK] = np.argmax(distances <= limit[:, None], axis=1)
    return found


def lloyd(points: FloatArray, centres: FloatArray, weights: FloatArray | None = None) -> FloatArray:
    """Centres (K, m) of clusters of the points (n, m), from given centres on.

    There must be more distinct points than centres. Points may have weights, (n,), and gaps (NaN),
    but each must have something.
    """
    spread = centres.var(axis=0) if np.isnan(points).any() else points.var(axis=0)
    tolerance = TOLERANCE * float(spread.mean())
    owners: NDArray[np.intp] | None = None
    for _ in range(MOST_STEPS):
        before, owners = owners, _nobody_empty(points, centres, nearest(points, centres))
        if before is not None and np.array_equal(owners, before):
            break
        last, centres = centres, centroids(points, owners, centres, weights)
        if ((centres - last) ** 2).sum() <= tolerance:
            break
    return centres


def centroids(
    points: FloatArray,
    owners: NDArray[np.intp],
    otherwise: FloatArray,
    weights: FloatArray | None = None,
) -> FloatArray:
    """Means of clusters, (K, m), by sums in the order of the points.

    A feature that no point of a cluster has takes the value that stands in ``otherwise``.
    """
    K, gaps = len(otherwise), np.isnan(points)
    gapped = bool(gaps.any())
    filled = np.where(gaps, 0.0, points) if gapped else points
    weighted = filled if weights is None else filled * weights[:, None]
    sums = np.array([np.bincount(owners, column, minlength=K) for column in weighted.T]).T
    if not gapped:
        return sums / np.bincount(owners, weights, minlength=K)[:, None]
    counted = ~gaps * (1.0 if weights is None else weights[:, None])
    seen = np.array([np.bincount(owners, column, minlength=K) for column in counted.T]).T
    return np.where(seen > 0.0, sums / np.where(seen > 0.0, seen, 1.0), otherwise)


def _nobody_empty(
    points: FloatArray, centres: FloatArray, owners: NDArray[np.intp]
) -> NDArray[np.intp]:
    """The owners (n,), but a centre without points gets the one farthest from its own."""
    counts = np.bincount(owners, minlength=len(centres))
    for k in np.flatnonzero(counts == 0):
        squares = np.nansum((points - centres[owners]) ** 2, axis=1)
        squares[counts[owners] == 1] = 0.0
        far = int(np.argmax(squares >= (1.0 - SAME) * squares.max()))
        counts[[owners[far], k]] += [-1, 1]
        owners[far] = k
    return owners
