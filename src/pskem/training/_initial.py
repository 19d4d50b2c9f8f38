"""The kernels with which EM begins: what the user fixed, and what a start makes of the rest."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.checks import check_shape, numbers
from pskem.engine import Batch, Coordinates, Gathered, Kernels, Source, take
from pskem.model import Block, Model
from pskem.starts import FAR, WIDE, BlockSamples, Start, StartMethod, Wanted, check_size
from pskem.structures import FloatArray, Structure

__all__ = [
    "Fixed",
    "check_start",
    "check_unchanged",
    "fixed_from",
    "given_sizes",
    "initialise",
    "look",
]

#: Seeds are looked for among at most this many samples, or this many per kernel if that is more.
SEED_SAMPLES = 5000
SEED_SAMPLES_PER_KERNEL = 50
#: Samples that a starting kernel counts for where what it has not seen must not be impossible.
STARTING_MASS = 10.0
#: Stands in for weights that underflowed, in a start that goes on from a fit. Zero would be final.
SMALLEST_WEIGHT = 1e-300


class Fixed(NamedTuple):
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


def fixed_from(blocks: Sequence[Block]) -> list[Fixed]:
    """Starts that go on from fitted blocks."""
    origin = "The last fit, from which warm_start=True goes on,"
    return [
        Fixed(
            np.where(block.allowed, np.maximum(block.weights, SMALLEST_WEIGHT), 0.0),
            block.means,
            block.covariances,
            origin,
        )
        for block in blocks
    ]


def _first(n: int, batch: Batch) -> Gathered:
    """Places of the first n samples of each class, (2, n) with their classes."""
    sizes = np.minimum(np.diff(batch.bounds), n)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    places = batch.first + np.repeat(batch.bounds[:-1], sizes) + rank
    return Gathered(((np.stack([places, labels]),),))


def look(
    source: Source,
    coordinates: Sequence[Coordinates],
    n_components: Sequence[int],
    generators: Sequence[np.random.Generator | None],
    n_classes: int | None = None,
) -> list[BlockSamples]:
    """All samples of each block, or as many as are needed to find seeds among.

    Samples of a class beyond these have none. Without a generator they are taken at equal
    distances: samples of a class are in no order.
    """
    N, L = int(source.counts.sum()), len(source.counts)
    n_classes = L if n_classes is None else n_classes
    chosen = [_choose(N, *pair) for pair in zip(n_components, generators, strict=True)]
    arrays = source.fold(partial(take, list(enumerate(chosen)))).arrays
    # Rare classes are seen as well.
    present = [np.bincount(labels, minlength=L) for labels in arrays[1::3]]
    rare = [np.flatnonzero(n < np.minimum(SEED_SAMPLES_PER_KERNEL, source.counts)) for n in present]
    if any(classes.size for classes in rare):
        ((places, labels),) = source.fold(partial(_first, SEED_SAMPLES_PER_KERNEL)).arrays
        order = np.lexsort((places, labels))
        places, labels = places[order], labels[order]
        rank = np.arange(len(labels)) - np.searchsorted(labels, labels)
        few = rank < SEED_SAMPLES_PER_KERNEL
        more = [places[few & np.isin(labels, classes)] for classes in rare]
        chosen = [np.union1d(*pair) for pair in zip(chosen, more, strict=True)]
        arrays = source.fold(partial(take, list(enumerate(chosen)))).arrays
    rows = zip(arrays[::3], arrays[1::3], coordinates, arrays[2::3], strict=True)
    return [
        BlockSamples(
            X.T.astype(np.float64),
            np.where(labels < n_classes, labels, -1),
            n_classes,
            frame,
            _or_none(weights),
        )
        for X, labels, frame, weights in rows
    ]


def _or_none(weights: FloatArray) -> FloatArray | None:
    """Weights, or None if all are one."""
    return None if (weights == 1.0).all() else weights


def _choose(N: int, n_components: int, rng: np.random.Generator | None) -> NDArray[np.intp]:
    """Places of samples to look at, sorted."""
    size = max(SEED_SAMPLES, SEED_SAMPLES_PER_KERNEL * n_components)
    if size >= N:
        return np.arange(N)
    if rng is None:
        return np.unique(np.linspace(0, N - 1, size).astype(np.intp))
    return np.sort(rng.choice(N, size, replace=False))


def initialise(
    method: StartMethod,
    floor: float,
    structure: Structure,
    seen: BlockSamples,
    n_components: int,
    fixed: Fixed,
    rng: np.random.Generator,
) -> Kernels:
    """Starting kernels of one block."""
    coordinates = seen.coordinates
    means: FloatArray | None = None
    if fixed.means is not None:
        with np.errstate(over="ignore"):
            means = (fixed.means - coordinates.shift) / coordinates.scale
        means = np.where(np.isnan(means), 0.0, means)  # of features that nobody has seen
        check_size(means, f"{fixed.origin or 'Start.means'} puts a kernel", FAR)
    covariances: FloatArray | None = None
    if fixed.covariances is not None:
        with np.errstate(over="ignore"):
            inverse = 1.0 / coordinates.scale
            covariances = structure.storage.rescale(fixed.covariances, inverse)
        check_size(covariances, f"{fixed.origin or 'Start.covariances'} makes a kernel", WIDE)
    weights = fixed.weights
    if weights is None or means is None or covariances is None:
        made = method.make(Wanted(structure, seen, n_components, rng, means, weights))
        weights = made.weights if weights is None else weights
        means = structure.settle(made.means, np.full(n_components, STARTING_MASS), 1.0)
        covariances = made.covariances if covariances is None else covariances
    return Kernels(weights, means, structure.floor(covariances, floor).covariances)


def check_start(
    start: Start,
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
    n_classes: int,
    structure: Structure,
) -> list[Fixed]:
    """What the start fixes of each block, in the user's units and the structure's shape."""
    R = len(blocks)
    found = []
    for r, (features, K) in enumerate(zip(blocks, n_components, strict=True)):
        m = len(features)
        place = f" (block {r})" if R > 1 else ""
        weight_shape = (n_classes, K)
        covariance_shapes = list(dict.fromkeys([structure.storage.shape(K, m), (K, m, m)]))
        w = _entry("Start.weights", start.weights, r, R, [weight_shape])
        mu = _entry("Start.means", start.means, r, R, [(K, m)])
        P = _entry("Start.covariances", start.covariances, r, R, covariance_shapes)
        if w is not None:
            w = _check_weights(f"Start.weights{place}", w, weight_shape)
        if mu is not None:
            meaning = "(n_components, features of the block)"
            mu = check_shape(f"Start.means{place}", mu, [(K, m)], meaning)
        if P is not None:
            P = check_shape(f"Start.covariances{place}", P, covariance_shapes)
            P = _check_covariances(f"Start.covariances{place}", P, K, m, structure)
        found.append(Fixed(w, mu, P))
    return found


def given_sizes(start: Start, otherwise: Sequence[int]) -> list[int]:
    """Kernels of each block by the arrays that a start gives; other numbers where it has none."""
    R = len(otherwise)
    sizes = list(otherwise)
    for value, axis in ((start.means, 0), (start.weights, -1)):
        parts = [value] if R == 1 and len(_shape(value)) == 2 else value
        if isinstance(parts, list | tuple) and len(parts) == R:
            for r, shape in enumerate(map(_shape, parts)):
                if len(shape) == 2:
                    sizes[r] = shape[axis]
    return sizes


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array; none for what is no array, which is refused later."""
    try:
        return np.shape(value)
    except ValueError:
        return ()


def _check_weights(name: str, value: Any, shape: tuple[int, int]) -> FloatArray:
    """Starting weights (L, K): not negative, rows sum to one."""
    weights = check_shape(name, value, [shape], "(n_classes, n_components)")
    if (weights < 0.0).any():
        raise ValueError(f"{name} holds negative values; weights are between 0 and 1.")
    sums = weights.sum(axis=1)
    closed = np.flatnonzero(sums == 0.0)
    if closed.size:
        raise ValueError(
            f"{name} allows class(es) {', '.join(map(str, closed))} (by position in classes_) no"
            " kernel at all: every row needs at least one positive weight."
        )
    if (abs(sums - 1.0) > 1e-6).any():
        bad = int(np.argmax(abs(sums - 1.0)))
        raise ValueError(f"{name}: every row must sum to 1, but row {bad} sums to {sums[bad]:.6g}.")
    return weights / sums[:, None]


def _entry(name: str, value: Any, r: int, R: int, shapes: Sequence[tuple[int, ...]]) -> Any:
    """What the parameter says of block r; with one block a bare array will do."""
    if value is None:
        return None
    listed = isinstance(value, list | tuple)
    if R == 1:
        if not (listed and len(value) == 1):
            return value
        inner = None if value[0] is None else numbers(name, value[0])
        return inner if inner is None or inner.shape in shapes else value
    if not listed or len(value) != R:
        got = f"{len(value)} entries" if listed else f"a {type(value).__name__}"
        raise ValueError(
            f"{name} must be a list with one array (or None) for each of the {R} blocks, got {got}."
        )
    return value[r]


def _check_covariances(
    name: str, array: FloatArray, K: int, m: int, structure: Structure
) -> FloatArray:
    """Positive definite covariances in the structure's shape, also from matrices (K, m, m)."""
    storage = structure.storage
    compact = array if array.shape == storage.shape(K, m) else storage.compact(array)
    dense = storage.dense(compact, K, m)
    if compact is not array and not np.allclose(dense, array, rtol=1e-8, atol=0.0):
        raise ValueError(
            f"{name} of shape {array.shape} is not of covariance_type={structure.name!r}. Give"
            f" covariances of that form, or of shape {storage.shape(K, m)}."
        )
    if not np.allclose(dense, dense.swapaxes(1, 2), rtol=1e-8, atol=0.0):
        raise ValueError(f"{name} must be symmetric matrices.")
    for k in range(K):
        try:
            np.linalg.cholesky(dense[k])
        except np.linalg.LinAlgError:
            raise ValueError(
                f"{name} is not positive definite (kernel {k}); all eigenvalues must be positive."
            ) from None
    return compact


def check_unchanged(
    before: Model,
    structures: Sequence[Structure],
    classes: NDArray[Any],
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
) -> None:
    """Refuse a warm start with settings that the fitted model does not have."""
    if before.views is not None:
        raise ValueError(
            f"warm_start=True goes on from one model, but the last fit is a product of"
            f" {1 + max(before.views)} views. Set warm_start=True before the first fit, or"
            " warm_start=False to start afresh."
        )
    for name, was, now in [
        ("covariance_type", _kinds(b.structure for b in before.blocks), _kinds(structures)),
        ("number of blocks", len(before.blocks), len(blocks)),
        ("blocks", [b.features.tolist() for b in before.blocks], [b.tolist() for b in blocks]),
        ("n_components", [len(b.means) for b in before.blocks], list(n_components)),
        ("classes", before.classes.tolist(), classes.tolist()),
    ]:
        if was != now:
            raise ValueError(
                f"warm_start=True needs the {name} of the last fit, {was!r}, not {now!r}. Set"
                " warm_start=False to start afresh."
            )


def _kinds(structures: Iterable[Structure]) -> str:
    """The families of kernels that there are, by name."""
    return " and ".join(dict.fromkeys(structure.name for structure in structures))
