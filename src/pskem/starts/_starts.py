"""The values that ``init`` takes, and how each makes kernels of samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from pskem import checks
from pskem.engine import (
    ArraySource,
    Kernels,
    Regulariser,
    em_pass,
    expectation,
    prepare,
    serial_map,
)
from pskem.starts._base import FAR, WIDE, BlockSamples, StartMethod, Wanted, check_size
from pskem.starts._lloyd import centroids, lloyd, nearest
from pskem.starts._seeding import seeds_among_gaps
from pskem.structures import FloatArray, Structure

__all__ = [
    "STARTS",
    "ClassKMeans",
    "KDTree",
    "KMeans",
    "MadeStart",
    "Start",
    "StartName",
    "Uniform",
    "UnsupervisedEM",
    "as_start",
]

StartName = Literal["class-kmeans", "k-means++", "kmeans", "kdtree", "em", "random"]

#: Share of each class's weight that goes where its samples are; the rest is spread evenly over all
#: kernels, so that no kernel is closed to a class: a weight of zero would stay zero.
OWN_MASS = 0.9
#: Starting kernels are at least this wide (variance relative to the data's), even where as many
#: kernels as samples would make them points.
NARROWEST_START = 1e-3

#: Decimals of standardised values that count where values are compared. The last bits of features
#: that a matrix product made differ from processor to processor.
DIGITS = 9


@dataclass(frozen=True)
class KMeans:
    """Means by k-means over all samples, whatever their class.

    Covariances are the pooled one within clusters, weights the shares of the classes.

    Parameters
    ----------
    refine : bool, default=True
        Whether Lloyd's iterations refine the seeds of k-means++.
    reseed : bool, default=True
    """

    refine: bool = True
    reseed: bool = True
    is_random = True

    def __post_init__(self) -> None:
        checks.check_boolean("refine", self.refine)
        checks.check_boolean("reseed", self.reseed)

    def make(self, wanted: Wanted) -> Kernels:
        means, seen = wanted.means, wanted.seen
        if means is None:
            means = _seeds(seen.points, seen.weights, wanted.K, wanted.rng, self.refine)
        return _from_owners(wanted.structure, seen, means, nearest(seen.points, means))


#: Seeds alone: what other starts fall back on.
_SEEDS = KMeans(refine=False)


@dataclass(frozen=True)
class ClassKMeans:
    """Means by k-means within each class, and most of a class's weight, or all, to its own kernels.

    Kernels are dealt out by the sizes of the classes, at least one to each. With fewer kernels than
    classes, or with given means or weights, it is k-means++ over all samples instead.

    Parameters
    ----------
    own_mass : float, default=1.0
        Share of a class's weight that goes to its own kernels; the rest is spread evenly over all.
        With 1, kernels are not shared (a weight of zero stays zero). EM moves shared kernels to
        where they describe all classes together best, which is not where they tell them apart:
        on CIFAR-10, one kernel a class has 51 % accuracy after EM, and 32 % with 0.9.
    reseed : bool, default=True
    """

    own_mass: float = 1.0
    reseed: bool = True
    is_random = True

    def __post_init__(self) -> None:
        checks.check_real("own_mass", self.own_mass, 0.0, 1.0)
        checks.check_boolean("reseed", self.reseed)

    def make(self, wanted: Wanted) -> Kernels:
        seen, K = wanted.seen.labelled, wanted.K
        counts = np.bincount(seen.labels, minlength=seen.n_classes)
        # Given weights say which classes may use a kernel, and means where it lies.
        given = wanted.means is not None or wanted.weights is not None
        if given or np.count_nonzero(counts) > K:
            return _SEEDS.make(wanted)
        found = []
        owners = np.empty(len(seen.points), dtype=np.intp)
        first = 0
        for j, size in enumerate(_deal(counts, K)):
            own = np.flatnonzero(seen.labels == j)
            if size:
                weights = None if seen.weights is None else seen.weights[own]
                centres = _seeds(seen.points[own], weights, size, wanted.rng, refine=True)
                owners[own] = first + nearest(seen.points[own], centres)
                found.append(centres)
                first += size
        means = np.concatenate(found)
        return _from_owners(wanted.structure, seen, means, owners, self.own_mass)


@dataclass(frozen=True)
class KDTree:
    """Means of the cells of a k-d tree (Bentley, 1975): cells are halved at the median.

    The largest cell comes next, along the feature in which it is widest. Nothing is random.

    Parameters
    ----------
    reseed : bool, default=True
    """

    reseed: bool = True
    is_random = False

    def __post_init__(self) -> None:
        checks.check_boolean("reseed", self.reseed)

    def make(self, wanted: Wanted) -> Kernels:
        if wanted.means is not None:
            return _SEEDS.make(wanted)
        seen = wanted.seen
        cells = [np.arange(len(seen.points))]
        while len(cells) < wanted.K:
            cells.sort(key=len)
            cell = cells.pop()
            part = np.round(seen.points[cell], DIGITS)
            low = np.fmin.reduce(part, axis=0, initial=np.inf)
            widths = np.fmax.reduce(part, axis=0, initial=-np.inf) - low
            order = np.argsort(part[:, widths.argmax()], kind="stable")  # gaps come last
            half = (len(cell) + 1) // 2
            cells += [cell[order[:half]], cell[order[half:]] if len(cell) > 1 else cell]
        owners = np.empty(len(seen.points), dtype=np.intp)
        for k, cell in enumerate(cells):
            owners[cell] = k
        found = np.array([_mean(seen.points[cell], seen.counted[cell]) for cell in cells])
        return _from_owners(wanted.structure, seen, found, owners)


@dataclass(frozen=True)
class UnsupervisedEM:
    """Standard EM, which does not look at classes, from k-means++: the paper's warm start.

    Classes have weight where their samples are; samples without a class help to find the kernels.

    Parameters
    ----------
    passes : int, default=20
    reseed : bool, default=True
    """

    passes: int = 20
    reseed: bool = True
    is_random = True

    def __post_init__(self) -> None:
        checks.check_integer("passes", self.passes, 1)
        checks.check_boolean("reseed", self.reseed)

    def make(self, wanted: Wanted) -> Kernels:
        kernels = _SEEDS.make(wanted)
        if wanted.means is not None:
            return kernels
        structure, seen, K = wanted.structure, wanted.seen, wanted.K
        kernels = kernels._replace(weights=np.full((1, K), 1.0 / K))
        X, bounds = np.ascontiguousarray(seen.points.T), np.array([0, len(seen.points)])
        source = ArraySource([X], bounds, serial_map, seen.weights)
        ready = partial(prepare, structure, dtype=X.dtype, patterns=source.patterns[0])
        for _ in range(self.passes):
            step = em_pass(
                [structure], source, [kernels], [Regulariser(NARROWEST_START)], serial_map
            )
            (kernels,) = step.kernels
        W = expectation(ready(kernels), X, bounds).responsibilities * seen.counted
        shares = np.array([W[:, seen.labels == j].sum(axis=1) for j in range(seen.n_classes)])
        return kernels._replace(weights=_mixed(shares))


@dataclass(frozen=True)
class Uniform:
    """The paper's start: means uniform on a range, spherical kernels, uniform weights.

    Parameters
    ----------
    low, high : float, default=-2.0 and 2.0
        Range of the means, in the units of X.
    scale : float, default=2.0
        Standard deviation of the kernels, in the units of X.
    reseed : bool, default=True
    """

    low: float = -2.0
    high: float = 2.0
    scale: float = 2.0
    reseed: bool = True
    is_random = True

    def __post_init__(self) -> None:
        checks.check_real("low", self.low, -np.inf)
        checks.check_real("high", self.high, -np.inf)
        if not self.low < self.high:
            raise ValueError(f"low={self.low!r} must be less than high={self.high!r}.")
        checks.check_real("scale", self.scale, 0.0, strict=True)
        checks.check_boolean("reseed", self.reseed)

    def make(self, wanted: Wanted) -> Kernels:
        (shift, scale), K, means = wanted.seen.coordinates, wanted.K, wanted.means
        m = len(shift)
        if means is None:
            with np.errstate(over="ignore"):
                ends = (np.array([[self.low], [self.high]]) - shift) / scale
            place = f"The range of the uniform start, {self.low:g} to {self.high:g}, puts a kernel"
            check_size(ends, place, FAR)
            means = (wanted.rng.uniform(self.low, self.high, size=(K, m)) - shift) / scale
        with np.errstate(over="ignore"):
            variances = (self.scale / scale) ** 2
        check_size(variances, f"The uniform start's scale of {self.scale:g} makes a kernel", WIDE)
        covariances = np.broadcast_to(np.diag(variances), (K, m, m))
        weights = np.full((wanted.seen.n_classes, K), 1.0 / K)
        return Kernels(weights, means, wanted.structure.storage.compact(covariances))


#: The values that make kernels.
MadeStart = KMeans | ClassKMeans | KDTree | UnsupervisedEM | Uniform


@dataclass(frozen=True, eq=False)
class Start:
    """Kernels to start from, all of them or parts, in the units of X.

    Parameters
    ----------
    weights : array of shape (n_classes, n_components) or list of these, default=None
        One array per block (or None), rows sum to one. A weight of zero stays zero, so zeros say
        which kernels a class may use (constrained sharing). For a density: (n_components,).
    means : array of shape (n_components, m) or list of these, default=None
    covariances : array of shape (n_components, m, m) or list of these, default=None
        The shape of `covariance_type` is accepted too.
    otherwise : str or another start, default="k-means++"
        What makes the parts that are not given.
    reseed : bool, default=True
    """

    weights: Any = None
    means: Any = None
    covariances: Any = None
    otherwise: StartName | MadeStart = "k-means++"
    reseed: bool = True

    def __post_init__(self) -> None:
        checks.check_boolean("reseed", self.reseed)
        as_start("otherwise", self.otherwise)


#: The starts by the names that ``init`` takes.
STARTS: dict[str, StartMethod] = {
    "class-kmeans": ClassKMeans(),
    "k-means++": _SEEDS,
    "kmeans": KMeans(),
    "kdtree": KDTree(),
    "em": UnsupervisedEM(),
    "random": Uniform(),
}


def as_start(name: str, value: Any) -> StartMethod:
    """What makes kernels, from its name or as it is."""
    if isinstance(value, tuple(map(type, STARTS.values()))):
        return cast(StartMethod, value)
    if isinstance(value, str) and value in STARTS:
        return STARTS[value]
    raise ValueError(
        f"{name}={value!r} is not known. Accepted: {', '.join(map(repr, [*STARTS, 'auto']))}, or a"
        " value of pskem.starts such as ClassKMeans(own_mass=0.9)."
    )


def _mean(points: FloatArray, weights: FloatArray | None) -> FloatArray:
    """Mean of points (n, m), each with its weight: (m,). Zero for what no point has."""
    if np.isnan(points).any():
        together = np.zeros(len(points), dtype=np.intp)
        return centroids(points, together, np.zeros((1, points.shape[1])), weights)[0]
    return np.asarray(np.average(points, axis=0, weights=weights))


def _seeds(
    points: FloatArray,
    weights: FloatArray | None,
    K: int,
    rng: np.random.Generator,
    refine: bool,
) -> FloatArray:
    """K points by k-means++ (Arthur & Vassilvitskii, 2007), perhaps refined: (K, m)."""
    if refine and K == 1:
        return _mean(points, weights)[None]
    gaps = np.isnan(points)
    filled = np.where(gaps, _mean(points, weights), points) if gaps.any() else points
    distinct = np.unique(filled, axis=0)
    if len(distinct) <= K:
        return distinct[np.arange(K) % len(distinct)]
    if gaps.any():
        centres = filled[seeds_among_gaps(points, filled, weights, K, rng)]
    else:
        # scikit-learn's clustering takes 0.2 s to import, which `import pskem` should not cost.
        from sklearn.cluster import kmeans_plusplus

        seed = int(rng.integers(2**31 - 1))
        centres, _ = kmeans_plusplus(points, K, sample_weight=weights, random_state=seed)
    return lloyd(points, np.asarray(centres), weights) if refine else np.asarray(centres)


def _deal(counts: NDArray[np.intp], K: int) -> NDArray[np.intp]:
    """Kernels of each class, by the numbers of samples; at least one where there are any."""
    sizes = (counts > 0).astype(np.intp)
    for _ in range(K - int(sizes.sum())):  # the method of Jefferson and d'Hondt
        sizes[np.argmax(counts / (sizes + 1.0))] += 1
    return sizes


def _from_owners(
    structure: Structure,
    seen: BlockSamples,
    means: FloatArray,
    owners: NDArray[np.intp],
    own_mass: float = OWN_MASS,
) -> Kernels:
    """Kernels about these means, when each sample belongs to one of them, (n,).

    All have the pooled covariance about the means, and classes have weight where their samples are.
    """
    residual, counted = seen.points - means[owners], seen.counted
    gaps = np.isnan(residual)
    if gaps.any():
        # As wide in each feature as the samples that have it; correlations are weaker for gaps.
        share = counted @ ~gaps / counted.sum()
        residual = np.where(gaps, 0.0, residual) / np.sqrt(np.where(share > 0.0, share, 1.0))
    weighted = residual if seen.weights is None else residual * counted[:, None]
    within = residual.T @ weighted / counted.sum()
    covariances = structure.storage.compact(np.broadcast_to(within, (len(means), *within.shape)))
    covariances = structure.floor(covariances, NARROWEST_START).covariances
    counts, known = np.zeros((seen.n_classes, len(means))), seen.labels >= 0
    np.add.at(counts, (seen.labels[known], owners[known]), counted[known])
    return Kernels(_mixed(counts, own_mass), means, covariances)


def _mixed(counts: FloatArray, own_mass: float = OWN_MASS) -> FloatArray:
    """Shares of each class, (L, K), mixed with even shares."""
    K = counts.shape[1]
    totals = counts.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0.0, counts / np.where(totals > 0.0, totals, 1.0), 1.0 / K)
    return own_mass * shares + (1.0 - own_mass) / K
