"""Where EM starts: data, K and a generator to starting kernels, in standardised coordinates."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pskem.kernels import Kernels
from pskem.samples import Coordinates, Samples
from pskem.structures import FloatArray, Structure

__all__ = ["METHODS", "Recipe", "Start", "initialise"]

METHODS = ("k-means++", "kmeans", "random")

#: Seeds are looked for among at most this many samples, or this many per kernel if that is more.
SEED_SAMPLES = 5000
SEED_SAMPLES_PER_KERNEL = 50
#: Share of each class's weight that is spread evenly over all kernels at the start, so that no
#: kernel is closed to a class: a weight of zero would stay zero.
EVEN_SHARE = 0.1
#: Starting kernels are at least this wide (variance relative to the data's), even where as many
#: kernels as samples would make them points.
NARROWEST_START = 1e-3


class Start(NamedTuple):
    """What the user fixed of a block's start, in the user's units; None is left to the method."""

    weights: FloatArray | None = None
    means: FloatArray | None = None
    covariances: FloatArray | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to the method."""
        return all(part is not None for part in self)


class Recipe(NamedTuple):
    """How to make what the user did not fix.

    method : one of METHODS
    mean_range, scale : of the random start, in the user's units
    """

    method: str
    mean_range: tuple[float, float]
    scale: float


def initialise(
    structure: Structure,
    samples: Samples,
    coordinates: Coordinates,
    n_components: int,
    recipe: Recipe,
    start: Start,
    floor: float,
    rng: np.random.Generator,
) -> Kernels:
    """Starting kernels of one block."""
    shift, scale = coordinates
    random = recipe.method == "random"
    K, m = n_components, len(samples.X)
    L = len(samples.bounds) - 1
    points, labels = _subsample(samples, max(SEED_SAMPLES, SEED_SAMPLES_PER_KERNEL * K), rng)

    means: FloatArray
    if start.means is not None:
        means = (start.means - shift) / scale
    elif random:
        means = (rng.uniform(*recipe.mean_range, size=(K, m)) - shift) / scale
    else:
        means = _seeds(points, K, lloyd=recipe.method == "kmeans", rng=rng)

    nearest = _nearest(points, means)
    if start.covariances is not None:
        covariances = structure.rescale(start.covariances, 1.0 / scale)
    elif random:
        isotropic = np.broadcast_to(recipe.scale**2 * np.eye(m), (K, m, m))
        covariances = structure.rescale(structure.compact(isotropic), 1.0 / scale)
    else:
        residual = points - means[nearest]
        within = residual.T @ residual / len(points)
        covariances = structure.compact(np.broadcast_to(within, (K, m, m)))
        covariances = structure.floor(covariances, NARROWEST_START).covariances

    if start.weights is not None:
        weights = start.weights
    elif random:
        weights = np.full((L, K), 1.0 / K)
    else:
        weights = _weights(nearest, labels, L, K)
    return Kernels(weights, means, structure.floor(covariances, floor).covariances)


def _subsample(
    samples: Samples, size: int, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[np.intp]]:
    """At most ``size`` samples, (n, m), and their classes."""
    N = samples.n_samples
    chosen = np.sort(rng.choice(N, size, replace=False)) if size < N else np.arange(N)
    return samples.X[:, chosen].T.astype(np.float64), samples.labels[chosen]


def _seeds(points: FloatArray, K: int, lloyd: bool, rng: np.random.Generator) -> FloatArray:
    """K seeds by k-means++ (Arthur & Vassilvitskii, 2007), (K, m), perhaps refined by k-means."""
    distinct = np.unique(points, axis=0)
    if len(distinct) <= K:
        return distinct[np.arange(K) % len(distinct)]
    # scikit-learn's clustering takes 0.2 s to import, which `import pskem` should not cost.
    from sklearn.cluster import KMeans, kmeans_plusplus

    seed = int(rng.integers(2**31 - 1))
    with threadpool_limits(1):  # the sums of several threads would not have the same bits twice
        centres, _ = kmeans_plusplus(points, K, random_state=seed)
        if lloyd:
            centres = KMeans(K, init=centres, n_init=1).fit(points).cluster_centers_
    return np.asarray(centres)


def _nearest(points: FloatArray, means: FloatArray) -> NDArray[np.intp]:
    """Index of the nearest mean, (n,)."""
    return np.argmin((means * means).sum(axis=1) - 2.0 * (points @ means.T), axis=1)


def _weights(nearest: NDArray[np.intp], labels: NDArray[np.intp], L: int, K: int) -> FloatArray:
    """Shares of each class that fall to each mean, mixed with even shares: (L, K)."""
    counts = np.zeros((L, K))
    np.add.at(counts, (labels, nearest), 1.0)
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0.0, counts / np.maximum(totals, 1.0), 1.0 / K)
    return (1.0 - EVEN_SHARE) * shares + EVEN_SHARE / K
