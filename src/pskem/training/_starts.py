"""Where EM starts: data, K and a generator to starting kernels, in standardised coordinates."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from pskem.engine._em import Regulariser, em_passes, expectation
from pskem.engine._kernels import Kernels, prepare
from pskem.engine._parallel import Mapper
from pskem.engine._sources import CHUNK, FARTHEST, Coordinates, Samples, cut
from pskem.structures import FloatArray, Structure

__all__ = ["METHODS", "Method", "Start", "initialise"]

#: Seeds are looked for among at most this many samples, or this many per kernel if that is more.
SEED_SAMPLES = 5000
SEED_SAMPLES_PER_KERNEL = 50
#: Share of each class's weight that goes where its samples are; the rest is spread evenly over all
#: kernels, so that no kernel is closed to a class: a weight of zero would stay zero.
OWN_MASS = 0.9
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


class View(NamedTuple):
    """What a method sees of a block: some samples (n, m), their classes (n,), their frame."""

    points: FloatArray
    labels: NDArray[np.intp]
    n_classes: int
    coordinates: Coordinates


class Wanted(NamedTuple):
    """What a method is asked for: K kernels of a structure for what is seen of a block.

    Means (K, m) and weights (L, K) that are given will take the place of those that are made.
    """

    structure: Structure
    view: View
    K: int
    rng: np.random.Generator
    means: FloatArray | None = None
    weights: FloatArray | None = None


class Method(Protocol):
    """How to make what the user did not fix."""

    @property
    def is_random(self) -> bool:
        """Whether samples, of which it sees some, and what it makes of them are left to chance."""
        ...

    def __call__(self, wanted: Wanted) -> Kernels:
        """Starting kernels."""
        ...


class Clustered(NamedTuple):
    """Means from the data by k-means++, perhaps refined; the rest from the nearest samples."""

    lloyd: bool

    @property
    def is_random(self) -> bool:
        return True

    def __call__(self, wanted: Wanted) -> Kernels:
        means, view = wanted.means, wanted.view
        if means is None:
            means = _seeds(view.points, wanted.K, wanted.rng, self.lloyd)
        return _from_owners(wanted.structure, view, means, _nearest(view.points, means))


class ClassClustered(NamedTuple):
    """Means from each class by k-means, and most of a class's weight, or all, to its own kernels.

    Kernels are dealt out by the sizes of the classes, at least one to each. With fewer kernels than
    classes there is no such start, and the one that does not look at classes is made.
    """

    own_mass: float

    @property
    def is_random(self) -> bool:
        return True

    def __call__(self, wanted: Wanted) -> Kernels:
        view, K = wanted.view, wanted.K
        counts = np.bincount(view.labels, minlength=view.n_classes)
        # Given weights say which classes may use a kernel, and means where it lies.
        given = wanted.means is not None or wanted.weights is not None
        if given or np.count_nonzero(counts) > K:
            return Clustered(lloyd=False)(wanted)
        found = []
        owners = np.empty(len(view.points), dtype=np.intp)
        first = 0
        for j, size in enumerate(_deal(counts, K)):
            own = np.flatnonzero(view.labels == j)
            if size:
                centres = _seeds(view.points[own], size, wanted.rng, lloyd=True)
                owners[own] = first + _nearest(view.points[own], centres)
                found.append(centres)
                first += size
        means = np.concatenate(found)
        return _from_owners(wanted.structure, view, means, owners, self.own_mass)


class Tree(NamedTuple):
    """Means of the cells of a k-d tree (Bentley, 1975): cells are halved at the median.

    The largest cell comes next, along the feature in which it is widest. Nothing is random.
    """

    @property
    def is_random(self) -> bool:
        return False

    def __call__(self, wanted: Wanted) -> Kernels:
        if wanted.means is not None:
            return Clustered(lloyd=False)(wanted)
        view = wanted.view
        cells = [np.arange(len(view.points))]
        while len(cells) < wanted.K:
            cells.sort(key=len)
            cell = cells.pop()
            part = view.points[cell]
            order = np.argsort(part[:, np.ptp(part, axis=0).argmax()], kind="stable")
            half = (len(cell) + 1) // 2
            cells += [cell[order[:half]], cell[order[half:]] if len(cell) > 1 else cell]
        owners = np.empty(len(view.points), dtype=np.intp)
        for k, cell in enumerate(cells):
            owners[cell] = k
        found = np.array([view.points[cell].mean(axis=0) for cell in cells])
        return _from_owners(wanted.structure, view, found, owners)


class Unsupervised(NamedTuple):
    """Standard EM, which does not look at classes, from k-means++: the paper's warm start."""

    passes: int = 20

    @property
    def is_random(self) -> bool:
        return True

    def __call__(self, wanted: Wanted) -> Kernels:
        kernels = Clustered(lloyd=False)(wanted)
        if wanted.means is not None:
            return kernels
        structure, view, K = wanted.structure, wanted.view, wanted.K
        kernels = kernels._replace(weights=np.full((1, K), 1.0 / K))
        N = len(view.points)
        bounds = np.array([0, N])
        samples = Samples(np.ascontiguousarray(view.points.T), bounds, cut(bounds, CHUNK))
        regulariser = Regulariser(NARROWEST_START)
        serial: Mapper = lambda function, items: [function(item) for item in items]  # noqa: E731
        for step in islice(
            em_passes(structure, [samples], [kernels], [regulariser], serial), self.passes
        ):
            (kernels,) = step.kernels
        prepared = prepare(structure, kernels, samples.X.dtype)
        W = np.concatenate(
            [expectation(structure, prepared, samples, chunk)[0] for chunk in samples.chunks], 1
        )
        shares = np.array([W[:, view.labels == j].sum(axis=1) for j in range(view.n_classes)])
        return kernels._replace(weights=_mixed(shares))


class Uniform(NamedTuple):
    """The paper's start: means uniform on a range, spherical kernels, in the user's units."""

    low: float
    high: float
    scale: float

    @property
    def is_random(self) -> bool:
        return True

    def __call__(self, wanted: Wanted) -> Kernels:
        (shift, scale), K, means = wanted.view.coordinates, wanted.K, wanted.means
        m = len(shift)
        if means is None:
            with np.errstate(over="ignore"):
                ends = (np.array([[self.low], [self.high]]) - shift) / scale
            _check_size(ends, f"init_range=({self.low:g}, {self.high:g}) puts a kernel", FAR)
            means = (wanted.rng.uniform(self.low, self.high, size=(K, m)) - shift) / scale
        with np.errstate(over="ignore"):
            variances = (self.scale / scale) ** 2
        _check_size(variances, f"init_scale={self.scale:g} makes a kernel", WIDE)
        covariances = np.broadcast_to(np.diag(variances), (K, m, m))
        weights = np.full((wanted.view.n_classes, K), 1.0 / K)
        return Kernels(weights, means, wanted.structure.compact(covariances))


#: The methods by name, each made from ``init_range``, ``init_scale`` and ``own_mass``.
METHODS: dict[str, Callable[[tuple[float, float], float, float], Method]] = {
    "class-kmeans": lambda _range, _scale, own: ClassClustered(own),
    "k-means++": lambda _range, _scale, _own: Clustered(lloyd=False),
    "kmeans": lambda _range, _scale, _own: Clustered(lloyd=True),
    "kdtree": lambda _range, _scale, _own: Tree(),
    "em": lambda _range, _scale, _own: Unsupervised(),
    "random": lambda mean_range, scale, _own: Uniform(*mean_range, scale),
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
    means: FloatArray | None = None
    if start.means is not None:
        with np.errstate(over="ignore"):
            means = (start.means - coordinates.shift) / coordinates.scale
        _check_size(means, f"{start.origin or 'means_init'} puts a kernel", FAR)
    covariances: FloatArray | None = None
    if start.covariances is not None:
        with np.errstate(over="ignore"):
            covariances = structure.rescale(start.covariances, 1.0 / coordinates.scale)
        _check_size(covariances, f"{start.origin or 'covariances_init'} makes a kernel", WIDE)
    weights = start.weights
    if weights is None or means is None or covariances is None:
        view = _view(samples, coordinates, n_components, rng if method.is_random else None)
        made = method(Wanted(structure, view, n_components, rng, means, weights))
        weights = made.weights if weights is None else weights
        means = made.means
        covariances = made.covariances if covariances is None else covariances
    return Kernels(weights, means, structure.floor(covariances, floor).covariances)


def _view(
    samples: Samples, coordinates: Coordinates, n_components: int, rng: np.random.Generator | None
) -> View:
    """All samples of a block, or as many as are needed to find seeds among.

    Without a generator they are taken at equal distances: samples of a class are in no order.
    """
    N, size = samples.n_samples, max(SEED_SAMPLES, SEED_SAMPLES_PER_KERNEL * n_components)
    if size < N:
        chosen = (
            np.linspace(0, N - 1, size).astype(np.intp)
            if rng is None
            else rng.choice(N, size, replace=False)
        )
        # Rare classes are seen as well.
        present = np.bincount(samples.labels[chosen], minlength=len(samples.bounds) - 1)
        rare = np.flatnonzero(present < SEED_SAMPLES_PER_KERNEL)
        few = [samples.bounds[j] + np.arange(SEED_SAMPLES_PER_KERNEL) for j in rare]
        more = [rows[rows < samples.bounds[j + 1]] for j, rows in zip(rare, few, strict=True)]
        chosen = np.unique(np.concatenate([chosen, *more]))
    else:
        chosen = np.arange(N)
    points = samples.X[:, chosen].T.astype(np.float64)
    return View(points, samples.labels[chosen], len(samples.bounds) - 1, coordinates)


def _seeds(points: FloatArray, K: int, rng: np.random.Generator, lloyd: bool) -> FloatArray:
    """K points by k-means++ (Arthur & Vassilvitskii, 2007), perhaps refined: (K, m)."""
    if lloyd and K == 1:
        return points.mean(axis=0, keepdims=True)
    distinct = np.unique(points, axis=0)
    if len(distinct) <= K:
        return distinct[np.arange(K) % len(distinct)]
    # scikit-learn's clustering takes 0.2 s to import, which `import pskem` should not cost.
    from sklearn.cluster import KMeans, kmeans_plusplus

    centres, _ = kmeans_plusplus(points, K, random_state=int(rng.integers(2**31 - 1)))
    if lloyd:
        # Sums that several OpenMP threads share would not have the same bits twice.
        with threadpool_limits(1):
            centres = KMeans(K, init=centres, n_init=1).fit(points).cluster_centers_
    return np.asarray(centres)


def _deal(counts: NDArray[np.intp], K: int) -> NDArray[np.intp]:
    """Kernels of each class, by the numbers of samples; at least one where there are any."""
    sizes = (counts > 0).astype(np.intp)
    for _ in range(K - int(sizes.sum())):  # the method of Jefferson and d'Hondt
        sizes[np.argmax(counts / (sizes + 1.0))] += 1
    return sizes


def _from_owners(
    structure: Structure,
    view: View,
    means: FloatArray,
    owners: NDArray[np.intp],
    own_mass: float = OWN_MASS,
) -> Kernels:
    """Kernels about these means, when each sample belongs to one of them, (n,).

    All have the pooled covariance about the means, and classes have weight where their samples are.
    """
    residual = view.points - means[owners]
    within = residual.T @ residual / len(residual)
    covariances = structure.compact(np.broadcast_to(within, (len(means), *within.shape)))
    covariances = structure.floor(covariances, NARROWEST_START).covariances
    counts = np.zeros((view.n_classes, len(means)))
    np.add.at(counts, (view.labels, owners), 1.0)
    return Kernels(_mixed(counts, own_mass), means, covariances)


def _mixed(counts: FloatArray, own_mass: float = OWN_MASS) -> FloatArray:
    """Shares of each class, (L, K), mixed with even shares."""
    K = counts.shape[1]
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0.0, counts / np.maximum(totals, 1.0), 1.0 / K)
    return own_mass * shares + (1.0 - own_mass) / K


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
