"""Where EM starts: data, K and a generator to starting kernels, in standardised coordinates."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pskem.kernels import Kernels
from pskem.samples import CHUNK, FARTHEST, Coordinates, Samples
from pskem.structures import FloatArray, Structure

__all__ = ["METHODS", "Method", "Start", "initialise"]

#: Seeds are looked for among at most this many samples, or this many per kernel if that is more.
SEED_SAMPLES = 5000
SEED_SAMPLES_PER_KERNEL = 50
#: Share of each class's weight that is spread evenly over all kernels at the start, so that no
#: kernel is closed to a class: a weight of zero would stay zero.
EVEN_SHARE = 0.1
#: Starting kernels are at least this wide (variance relative to the data's), even where as many
#: kernels as samples would make them points.
NARROWEST_START = 1e-3

#: What is wrong with a start whose densities leave the range of floating point.
FAR = "{:.3g} standard deviations away from the data. Start within the range of X."
WIDE = "with {:.3g} times the variance of the data. Start with kernels about as wide as X at most."


class Start(NamedTuple):
    """What the user fixed of a block's start, in the user's units; None is left to the method.

    A weight of zero stays zero. ``origin`` is what an error names as the source of means and
    covariances, if it is not the parameter.
    """

    weights: FloatArray | None = None
    means: FloatArray | None = None
    covariances: FloatArray | None = None
    origin: str | None = None

    @property
    def complete(self) -> bool:
        """Whether nothing is left to the method."""
        return not any(part is None for part in (self.weights, self.means, self.covariances))

    def allowed(self, L: int, K: int) -> NDArray[np.bool_]:
        """Which weights, (L, K), may be other than zero."""
        return np.ones((L, K), dtype=bool) if self.weights is None else self.weights > 0.0


class View(NamedTuple):
    """What a method sees of a block: some samples (n, m), their classes (n,), their frame."""

    points: FloatArray
    labels: NDArray[np.intp]
    n_classes: int
    coordinates: Coordinates


class Method(Protocol):
    """How to make what the user did not fix; means come first, given or made."""

    def means(self, view: View, K: int, rng: np.random.Generator) -> FloatArray:
        """(K, m)"""
        ...

    def covariances(self, structure: Structure, view: View, means: FloatArray) -> FloatArray:
        """In the structure's shape"""
        ...

    def weights(self, view: View, means: FloatArray) -> FloatArray:
        """(L, K), rows sum to one"""
        ...


class Clustered(NamedTuple):
    """Means from the data by k-means++, perhaps refined; the rest from the nearest samples."""

    lloyd: bool

    def means(self, view: View, K: int, rng: np.random.Generator) -> FloatArray:
        """K seeds by k-means++ (Arthur & Vassilvitskii, 2007), (K, m)."""
        distinct = np.unique(view.points, axis=0)
        if len(distinct) <= K:
            return distinct[np.arange(K) % len(distinct)]
        # scikit-learn's clustering takes 0.2 s to import, which `import pskem` should not cost.
        from sklearn.cluster import KMeans, kmeans_plusplus

        seed = int(rng.integers(2**31 - 1))
        centres, _ = kmeans_plusplus(view.points, K, random_state=seed)
        if self.lloyd:
            # Sums that several OpenMP threads share would not have the same bits twice.
            with threadpool_limits(1):
                centres = KMeans(K, init=centres, n_init=1).fit(view.points).cluster_centers_
        return np.asarray(centres)

    def covariances(self, structure: Structure, view: View, means: FloatArray) -> FloatArray:
        """The pooled covariance of the samples about their nearest mean, for all kernels."""
        residual = view.points - means[_nearest(view.points, means)]
        within = residual.T @ residual / len(residual)
        covariances = structure.compact(np.broadcast_to(within, (len(means), *within.shape)))
        return structure.floor(covariances, NARROWEST_START).covariances

    def weights(self, view: View, means: FloatArray) -> FloatArray:
        """Shares of each class that fall to each mean, mixed with even shares."""
        K = len(means)
        counts = np.zeros((view.n_classes, K))
        np.add.at(counts, (view.labels, _nearest(view.points, means)), 1.0)
        totals = counts.sum(axis=1, keepdims=True)
        shares = np.where(totals > 0.0, counts / np.maximum(totals, 1.0), 1.0 / K)
        return (1.0 - EVEN_SHARE) * shares + EVEN_SHARE / K


class Uniform(NamedTuple):
    """The paper's start: means uniform on a range, spherical kernels, in the user's units."""

    low: float
    high: float
    scale: float

    def means(self, view: View, K: int, rng: np.random.Generator) -> FloatArray:
        shift, scale = view.coordinates
        with np.errstate(over="ignore"):
            ends = (np.array([[self.low], [self.high]]) - shift) / scale
        _check_size(ends, f"init_range=({self.low:g}, {self.high:g}) puts a kernel", FAR)
        return (rng.uniform(self.low, self.high, size=(K, len(shift))) - shift) / scale

    def covariances(self, structure: Structure, view: View, means: FloatArray) -> FloatArray:
        K, m = means.shape
        with np.errstate(over="ignore"):
            variances = (self.scale / view.coordinates.scale) ** 2
        _check_size(variances, f"init_scale={self.scale:g} makes a kernel", WIDE)
        return structure.compact(np.broadcast_to(np.diag(variances), (K, m, m)))

    def weights(self, view: View, means: FloatArray) -> FloatArray:
        return np.full((view.n_classes, len(means)), 1.0 / len(means))


#: The methods by name, each made from ``init_range`` and ``init_scale``.
METHODS: dict[str, Callable[[tuple[float, float], float], Method]] = {
    "k-means++": lambda _range, _scale: Clustered(lloyd=False),
    "kmeans": lambda _range, _scale: Clustered(lloyd=True),
    "random": lambda mean_range, scale: Uniform(*mean_range, scale),
}


def initialise(
    structure: Structure,
    samples: Samples,
    coordinates: Coordinates,
    n_components: int,
    method: Method,
    start: Start,
    floor: float,
    rng: np.random.Generator,
) -> Kernels:
    """Starting kernels of one block."""
    view = _view(samples, coordinates, n_components, rng)
    means: FloatArray
    if start.means is None:
        means = method.means(view, n_components, rng)
    else:
        with np.errstate(over="ignore"):
            means = (start.means - coordinates.shift) / coordinates.scale
        _check_size(means, f"{start.origin or 'means_init'} puts a kernel", FAR)
    if start.covariances is None:
        covariances = method.covariances(structure, view, means)
    else:
        with np.errstate(over="ignore"):
            covariances = structure.rescale(start.covariances, 1.0 / coordinates.scale)
        _check_size(covariances, f"{start.origin or 'covariances_init'} makes a kernel", WIDE)
    weights = method.weights(view, means) if start.weights is None else start.weights
    return Kernels(weights, means, structure.floor(covariances, floor).covariances)


def _view(
    samples: Samples, coordinates: Coordinates, n_components: int, rng: np.random.Generator
) -> View:
    """All samples of a block, or as many as are needed to find seeds among."""
    N, size = samples.n_samples, max(SEED_SAMPLES, SEED_SAMPLES_PER_KERNEL * n_components)
    chosen = np.sort(rng.choice(N, size, replace=False)) if size < N else np.arange(N)
    points = samples.X[:, chosen].T.astype(np.float64)
    return View(points, samples.labels[chosen], len(samples.bounds) - 1, coordinates)


def _nearest(points: FloatArray, means: FloatArray) -> NDArray[np.intp]:
    """Index of the nearest mean, (n,)."""
    lengths = (means * means).sum(axis=1)
    nearest = np.empty(len(points), dtype=np.intp)
    for low in range(0, len(points), CHUNK):
        rows = slice(low, low + CHUNK)
        nearest[rows] = np.argmin(lengths - 2.0 * (points[rows] @ means.T), axis=1)
    return nearest


def _check_size(values: FloatArray, what: str, wrong: str) -> None:
    """Refuse values, in standardised coordinates, whose squares leave the range of floats."""
    largest = np.abs(values).max()
    if not largest <= FARTHEST[np.dtype(np.float64)]:
        raise ValueError(f"{what} {wrong.format(largest)}")
