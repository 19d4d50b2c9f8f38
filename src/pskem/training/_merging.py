"""Streams that began alike and went apart, as one.

Both have split their kernels as their classes grew. Sums of the parts of a kernel add up to those
of the kernel, so that the sums of both are the same however they are dealt out to the parts: each
kernel of the one goes to the nearest of the other that comes from the same kernel of the start.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from pskem.engine import Kernels, Regulariser, Running, maximise
from pskem.model import Block, Model
from pskem.structures import FloatArray
from pskem.training._growing import moved_to
from pskem.training._settings import Settings
from pskem.training._stream import Stream, regularisers_of, with_class_priors

__all__ = ["merge_streams"]


class _Side(NamedTuple):
    """A block of one of two streams, its sums, and where its kernels come from."""

    block: Block
    running: Running
    start: Running
    ancestors: NDArray[np.intp]


def merge_streams(
    one: tuple[Model, Stream],
    other: tuple[Model, Stream],
    settings: Settings,
    given: FloatArray | None,
) -> tuple[Model, Stream]:
    """The model and the stream of two that began alike and have seen different parts since.

    Their sums are added; those of the common start count once. If each has kept a share of the
    start, both together keep the product of these.

    given : priors, if they do not follow from the samples
    """
    (model, stream), (second, more) = one, other
    if stream.origin != more.origin or not np.array_equal(model.classes, second.classes):
        raise ValueError(
            "These models cannot be merged: they began otherwise. Begin with one model, copy it,"
            " and let each copy learn from parts of its own."
        )
    if set(stream.first) & set(more.first):
        raise ValueError(
            "These models cannot be merged: both have learnt from the same part since they began,"
            " which would count twice. Copy the model that branch() gives, and let each copy learn"
            " from parts of its own."
        )
    twice = stream.kept + more.kept - stream.kept * more.kept
    held = regularisers_of(model, settings)
    blocks, ancestors = list(model.blocks), list(stream.ancestors)
    statistics, start = list(stream.statistics), list(stream.start)
    for r in range(len(blocks)):
        sides = _side(model, stream, r), _side(second, more, r)
        if sides[0] is not None and sides[1] is not None:
            found = _merged(sides[0], sides[1], twice, held[r])
            blocks[r], statistics[r], start[r], ancestors[r] = found
    seen, n_parts = stream.began
    window = stream.window.merge(more.window)
    model, window = window.calibrated(replace(model, blocks=tuple(blocks)), settings)
    merged = stream._replace(
        statistics=tuple(statistics),
        start=tuple(start),
        kept=stream.kept * more.kept,
        first=stream.first + more.first,
        ancestors=tuple(ancestors),
        seen=stream.seen + more.seen - seen,
        n_parts=stream.n_parts + more.n_parts - n_parts,
        window=window,
        watch=stream.watch.merge(more.watch),
        plain=None,
        caution=0.5 * (stream.caution + more.caution),
    )
    return with_class_priors(model, merged.totals, given), merged.sealed()


def _side(model: Model, stream: Stream, r: int) -> _Side | None:
    running, start = stream.statistics[r], stream.start[r]
    if running is None or start is None:
        return None
    return _Side(model.blocks[r], running, start, stream.ancestors[r])


def _merged(one: _Side, other: _Side, twice: float, regulariser: Regulariser) -> _Side:
    """A block of both; ``twice`` is how much of the start they have in common."""
    if len(other.ancestors) > len(one.ancestors):
        one, other = other, one
    block, sums = moved_to(other.block, [other.running, other.start], one.block.coordinates)
    other = _Side(block, sums[0], sums[1], other.ancestors)
    one = _with_strangers(one, other)
    places = _places(one, other)
    structure, origins = one.block.structure, one.running.moments.frame.origins
    more, common = (
        part.gathered(structure, places, origins) for part in (other.running, other.start)
    )
    before = one.block.kernels
    total = one.running.joined(structure, more, common.times(twice), before, regulariser)
    kernels, _ = maximise(structure, before, *total, regulariser)
    running, start = (part.about(structure, kernels.means) for part in (total, one.start))
    return _Side(one.block.with_kernels(kernels), running, start, one.ancestors)


def _with_strangers(one: _Side, other: _Side) -> _Side:
    """One side with the kernels of the other that come from none of its own, without samples."""
    strange = np.flatnonzero(~np.isin(other.ancestors, one.ancestors))
    if not strange.size:
        return one
    block, (weights, means, covariances) = one.block, one.block.kernels
    theirs = other.block.kernels
    if block.structure.storage.per_kernel:
        covariances = np.concatenate([covariances, theirs.covariances[strange]])
    nothing = np.zeros((len(weights), len(strange)))
    kernels = Kernels(
        np.hstack([weights, nothing]), np.vstack([means, theirs.means[strange]]), covariances
    )
    allowed = np.hstack([block.allowed, other.block.allowed[:, strange]])
    running, start = (part.with_kernels(theirs.means[strange]) for part in (one.running, one.start))
    ancestors = np.append(one.ancestors, other.ancestors[strange])
    return _Side(replace(block, kernels=kernels, allowed=allowed), running, start, ancestors)


def _places(one: _Side, other: _Side) -> NDArray[np.intp]:
    """To which kernel of one side each of the other goes, (K,)."""
    places = np.zeros(len(other.ancestors), dtype=np.intp)
    for ancestor in np.unique(other.ancestors):
        here, there = (np.flatnonzero(side.ancestors == ancestor) for side in (one, other))
        gaps = one.block.kernels.means[here] - other.block.kernels.means[there][:, None]
        distances = np.square(gaps).sum(axis=2)  # (there, here)
        nearest = distances.argmin(axis=1)
        if len(there) <= len(here):  # each to another one
            rows, columns = linear_sum_assignment(distances)
            nearest[rows] = columns
        places[there] = here[nearest]
    return places
