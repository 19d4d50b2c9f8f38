"""What of a model grows with a stream: kernels, classes that come later, coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from pskem.engine import (
    Coordinates,
    Frame,
    Kernels,
    Regulariser,
    Running,
    estimate,
    expect,
    maximise,
)
from pskem.model import Block, Model
from pskem.starts import BlockSamples, ClassKMeans, Wanted
from pskem.structures import Categorical, FloatArray, Gaussians, pool
from pskem.training._layout import grown_kernels
from pskem.training._settings import Settings
from pskem.training._stream import Stream, regularisers_of

__all__ = ["grown", "moved_to", "own_kernels", "split_kernels", "welcomed", "widened"]

#: Standard deviations along its longest axis by which the halves of a kernel lie off its mean.
OFFSET = 0.5
#: By this factor a feature may spread more or less than in the first part, or by so many standard
#: deviations lie elsewhere, before it is standardised anew.
CHANGED = 4.0


def welcomed(
    model: Model,
    stream: Stream,
    X: FloatArray,
    labels: NDArray[np.intp],
    counted: FloatArray,
    settings: Settings,
    seed: int,
) -> tuple[Model, Stream]:
    """The model and the stream with kernels for classes that come for the first time.

    X : a part of the stream, (n, M); labels, counted : (n,). Where classes share their kernels, a
    class that comes has the kernels of all, and no more are needed.
    """
    seen = stream.totals > 0.0
    new = np.setdiff1d(labels, np.flatnonzero(seen))
    if not new.size:
        return model, stream
    blocks, statistics, start = list(model.blocks), list(stream.statistics), list(stream.start)
    ancestors = list(stream.ancestors)
    for r, block in enumerate(model.blocks):
        one, first = stream.statistics[r], stream.start[r]
        if one is None or first is None or not own_kernels(block, seen, settings):
            continue
        running = [one, first]
        for label in new.tolist():
            rows = labels == label
            size = round(len(block.kernels.means) / seen.sum())
            if isinstance(settings.n_components, str):
                (size,) = _kernels_for(block, counted[rows].sum(keepdims=True))
            points = block.local(X[rows]).T
            rng = np.random.default_rng([seed, 5, label, int(block.features.min())])
            size = max(1, min(size, len(points)))
            blocks[r], running = _welcome(
                blocks[r], running, points, counted[rows], label, size, rng
            )
            ancestors[r] = np.append(ancestors[r], np.full(size, -1 - label))
        statistics[r], start[r] = running
    stream = stream._replace(
        statistics=tuple(statistics), start=tuple(start), ancestors=tuple(ancestors)
    )
    return replace(model, blocks=tuple(blocks)), stream


def grown(model: Model, stream: Stream, settings: Settings) -> tuple[Model, Stream]:
    """The model and the stream with more kernels, and in other coordinates, where that is due.

    Where classes have become larger, and where features lie elsewhere.
    """
    seen = stream.totals > 0.0
    mean, variance = stream.watch.spread
    held = regularisers_of(model, settings)
    blocks, statistics, start = list(model.blocks), list(stream.statistics), list(stream.start)
    ancestors = list(stream.ancestors)
    for r, block in enumerate(model.blocks):
        one, first = stream.statistics[r], stream.start[r]
        if one is None or first is None:
            continue
        running = [one, first]
        if isinstance(settings.n_components, str) and own_kernels(block, seen, settings):
            block, running, parents = split_kernels(block, running, held[r])
            ancestors[r] = ancestors[r][parents]
        coordinates = suitable_coordinates(block, mean, variance)
        blocks[r], (statistics[r], start[r]) = moved_to(block, running, coordinates)
    stream = stream._replace(
        statistics=tuple(statistics), start=tuple(start), ancestors=tuple(ancestors)
    )
    return replace(model, blocks=tuple(blocks)), stream


def own_kernels(block: Block, seen: NDArray[np.bool_], settings: Settings) -> bool:
    """Whether each kernel belongs to one of the classes that have been seen, (L,).

    Where that is one class only, by how kernels start.
    """
    start = settings.start
    usual = start is None or (isinstance(start, ClassKMeans) and start.own_mass == 1.0)
    alone = bool((block.allowed[seen].sum(axis=0) == 1).all())
    return alone and (usual or int(seen.sum()) > 1)


def _kernels_for(block: Block, totals: FloatArray) -> NDArray[np.intp]:
    """How many kernels suit classes that count so much."""
    m = block.kernels.means.shape[1]
    return grown_kernels(totals, m, block.structure.most_kernels)


def widened(block: Block, places: NDArray[np.intp], priors: FloatArray, shared: bool) -> Block:
    """The block with more classes: those it has stand at these places, with priors (L,).

    Others have the kernels of all, until they come.
    """
    own, L = block.kernels, len(priors)
    weights = np.tile(priors[places] @ own.weights, (L, 1))
    weights[places] = own.weights
    allowed = np.full(weights.shape, shared)
    allowed[places] = block.allowed
    return replace(block, kernels=own._replace(weights=weights), allowed=allowed)


def _welcome(
    block: Block,
    running: Sequence[Running],
    points: FloatArray,
    weights: FloatArray,
    label: int,
    size: int,
    rng: np.random.Generator,
) -> tuple[Block, list[Running]]:
    """The block with kernels of a class that comes for the first time, and running sums with them.

    points : samples of the class in the coordinates of the block, (n, m); weights : (n,)
    size : how many kernels
    """
    structure, kernels = block.structure, block.kernels
    labels = np.zeros(len(points), dtype=np.intp)
    seen = BlockSamples(points.astype(np.float64), labels, 1, block.coordinates, weights)
    made = ClassKMeans().make(Wanted(structure, seen, size, rng))
    means = structure.settle(made.means, np.full(size, 10.0), 1.0)
    masses = running[0].moments.masses
    covariances = kernels.covariances
    if structure.storage.per_kernel:
        # As wide as the others: the samples of the class may be few.
        common = pool(structure, covariances, np.maximum(masses, 1e-12), diagonal=False)[:1]
        covariances = np.concatenate([covariances, np.repeat(common, size, axis=0)])
    L, K = kernels.weights.shape
    weights_of_all = np.hstack([kernels.weights, np.zeros((L, size))])
    weights_of_all[label] = np.append(np.zeros(K), np.full(size, 1.0 / size))
    allowed = np.hstack([block.allowed, np.zeros((L, size), dtype=bool)])
    allowed[label] = weights_of_all[label] > 0.0
    more = Kernels(weights_of_all, np.vstack([kernels.means, means]), covariances)
    return replace(block, kernels=more, allowed=allowed), [
        one.with_kernels(means) for one in running
    ]


def split_kernels(
    block: Block, running: Sequence[Running], regulariser: Regulariser
) -> tuple[Block, list[Running], NDArray[np.intp]]:
    """The block and its sums, where heavy kernels are split in two, by the first of the sums.

    Until classes have as many kernels as suits what they count. From which kernel each comes, (K,).
    """
    structure, kernels = block.structure, block.kernels
    parents, found = list(range(len(kernels.means))), list(running)
    totals = running[0].totals
    missing = np.where(totals > 0.0, _kernels_for(block, totals) - block.allowed.sum(axis=1), 0)
    if not (missing > 0).any():
        return block, found, np.array(parents)
    offsets: dict[int, FloatArray] = {}
    for label in np.flatnonzero(missing > 0).tolist():
        for _ in range(int(missing[label])):
            own = block.allowed[label, parents]
            k = int(np.argmax(np.where(own, found[0].masses[label], -1.0)))
            offset = offsets.get(k)
            offset = _offset(block, k) if offset is None else offset
            found = [one.split(structure, k, offset) for one in found]
            offsets[k] = offsets[len(parents)] = np.sqrt(1.0 - OFFSET**2) * offset
            parents.append(parents[k])
    covariances = kernels.covariances
    before = Kernels(
        kernels.weights[:, parents],
        kernels.means[parents],
        covariances[parents] if structure.storage.per_kernel else covariances,
    )
    made, _ = maximise(structure, before, *found[0], regulariser)
    block = replace(block, kernels=made, allowed=block.allowed[:, parents])
    return block, [one.about(structure, made.means) for one in found], np.array(parents)


def _offset(block: Block, k: int) -> FloatArray:
    """How far the halves of a kernel lie off its mean, (m,): along the axis where it is longest."""
    structure, (_, means, covariances) = block.structure, block.kernels
    if isinstance(structure, Categorical):
        return _offset_of_categories(structure, means[k])
    some = covariances[[k]] if structure.storage.per_kernel else covariances
    values, vectors = np.linalg.eigh(structure.storage.dense(some, 1, means.shape[1])[0])
    longest = vectors[:, -1]
    longest = longest * np.sign(longest[np.argmax(np.abs(longest))])  # whatever LAPACK makes of it
    return OFFSET * np.sqrt(max(values[-1], 0.0)) * longest


def _offset_of_categories(structure: Categorical, probabilities: FloatArray) -> FloatArray:
    """One half has more of the value that is nearest to being there in every second sample."""
    spread = probabilities * (1.0 - probabilities)
    value = int(np.argmax(spread))
    column = int(np.searchsorted(structure.starts, value, side="right")) - 1
    own = np.zeros(len(probabilities), dtype=bool)
    own[structure.starts[column] :][: structure.levels[column]] = True
    p = probabilities[value]
    step = min(OFFSET * np.sqrt(spread[value]), p, 1.0 - p)
    offset = np.where(own, -step * probabilities / max(1.0 - p, 1e-300), 0.0)
    offset[value] = step
    return offset


def suitable_coordinates(block: Block, mean: FloatArray, variance: FloatArray) -> Coordinates:
    """Coordinates that suit features with these means and variances, (M,), of X.

    Those that the block has, unless features lie far from where they lay before, or spread
    otherwise.
    """
    structure, (shift, scale) = block.structure, block.coordinates
    if not structure.standardised or block.reading is not None:
        return block.coordinates
    spread = np.sqrt(np.maximum(variance[block.features], 0.0))
    places = mean[block.features]
    known = ~np.isnan(shift) & np.isfinite(places) & np.isfinite(spread) & (spread > 0.0)
    if not known.any():
        return block.coordinates
    if structure.common_scale:
        spread = np.full(len(spread), np.sqrt(np.mean(spread[known] ** 2)))
    elsewhere = np.abs(places - shift) > CHANGED * np.maximum(scale, spread)
    changed = elsewhere | (spread > CHANGED * scale) | (spread < scale / CHANGED)
    if not changed[known].any():
        return block.coordinates
    widened = known | structure.common_scale
    return Coordinates(np.where(known, places, shift), np.where(widened, spread, scale))


def moved_to(
    block: Block, running: Sequence[Running], coordinates: Coordinates
) -> tuple[Block, list[Running]]:
    """The same block, and its sums, in other coordinates."""
    structure, (shift, scale) = block.structure, block.coordinates
    pairs = zip(coordinates, block.coordinates, strict=True)
    if all(np.array_equal(*pair, equal_nan=True) for pair in pairs):
        return block, list(running)
    factor = scale / coordinates.scale
    move = np.where(np.isnan(shift), 0.0, (shift - coordinates.shift) / coordinates.scale)

    def moved(means: FloatArray, covariances: FloatArray) -> tuple[FloatArray, FloatArray]:
        return means * factor + move, structure.storage.rescale(covariances, factor)

    found = []
    for one in running:
        gaussians = Gaussians(*moved(*estimate(structure, one.moments)))
        frame = Frame(one.moments.frame.origins * factor + move, None)
        found.append(one._replace(moments=expect(structure, gaussians, one.moments.masses, frame)))
    weights, means, covariances = block.kernels
    kernels = Kernels(weights, *moved(means, covariances))
    return replace(block, kernels=kernels, coordinates=coordinates), found
