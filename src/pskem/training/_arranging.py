"""From a plan and samples to data: sources in standardised coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, Self

import numpy as np

from pskem.engine import ArraySource, Coordinates, Mapper, Source, locate, log_volumes, measure
from pskem.structures import FloatArray
from pskem.training._order import Rows, distinct, together
from pskem.training._piecewise import Arrangement, PieceSource, read_blocks
from pskem.training._planning import Plan
from pskem.training._splitting import Samples, part_rows

__all__ = ["Data", "arrange"]

#: Standard deviations of features that can be squared, with room for kernels, in double precision.
SMALLEST_SCALE, LARGEST_SCALE = 1e-130, 1e130


class Data(NamedTuple):
    """Samples in standardised coordinates: to train on, and to validate on if there are any.

    source : with classes
    unlabelled : without; None if there are none
    everyone : both, the latter as an additional class
    seen : the same, or as many as stand for them, in memory
    log_volumes : (R,), subtract them from log likelihoods of the source in these coordinates
    unlabelled_volume : the same of the samples without a class, for all blocks at once
    watched : whether validation data are scored after the passes of EM
    """

    source: Source
    unlabelled: Source | None
    everyone: Source
    seen: Source
    coordinates: Sequence[Coordinates]
    log_volumes: FloatArray
    unlabelled_volume: float
    holdout: Source | None
    watched: bool

    @property
    def total(self) -> float:
        """What all samples count that are trained on."""
        spare = 0.0 if self.unlabelled is None else float(self.unlabelled.masses.sum())
        return float(self.source.masses.sum()) + spare


class Raw(Source, Protocol):
    """Samples in the units of X."""

    def standardise(self, coordinates: Sequence[Coordinates]) -> Self:
        """The same samples in these coordinates; these are not to be used any more."""
        ...

    def divide(self) -> tuple[Self, Self]:
        """The samples of all classes but the last, and those of the last.

        The last class is of samples whose class nobody knows; they come with as many classes, all
        of them in the first.
        """
        ...


def arrange(plan: Plan, samples: Samples, parallel_map: Mapper) -> Data:
    """The samples of a plan, in batches."""
    raw, slopes = _sources(plan, samples, parallel_map)
    coordinates = measure(raw, plan.structures)
    _check_scales(plan, coordinates)
    everyone = raw.standardise(coordinates)
    source, others = everyone.divide() if plan.unlabelled.size else (everyone, None)
    seen: Source = everyone
    if samples.whole is not None:
        seen = _in_memory(plan, samples, plan.rows, plan.unlabelled, parallel_map)
        seen = seen.standardise(coordinates)
    spare = 0.0
    if others is not None:
        spare = float((log_volumes(others, coordinates) - slopes[1]).sum())
    return Data(
        source,
        others,
        everyone,
        seen,
        coordinates,
        log_volumes(source, coordinates) - slopes[0],
        spare,
        _holdout(plan, samples, coordinates, parallel_map),
        watched=samples.validation is not None or plan.early_stopping,
    )


def _sources(
    plan: Plan, samples: Samples, parallel_map: Mapper
) -> tuple[Raw, tuple[FloatArray, FloatArray]]:
    """All samples that are trained on, and what the maps of features add to log likelihoods.

    The latter of each block, (R,), for the samples with a class and for those without.
    """
    if samples.whole is None:
        rows = plan.rows, plan.unlabelled
        raw = _in_memory(plan, samples, *rows, parallel_map)
        return raw, (_log_slopes(plan, samples, rows[0]), _log_slopes(plan, samples, rows[1]))
    split = samples.whole.split if plan.held_out.size else None
    memory = samples.memory
    if memory is not None:
        known, unknown = memory.different_rows()
        if split is not None:
            share = split.share(memory.X[known.places], memory.labels[known.places])
            known, _ = part_rows(known, share)
        rows = known, unknown.times(plan.unlabelled_weight)
        raw = _in_memory(plan, memory, *rows, parallel_map)
        return raw, (_log_slopes(plan, memory, rows[0]), _log_slopes(plan, memory, rows[1]))
    arrangement = Arrangement(
        tuple(plan.blocks),
        tuple(plan.readings),
        len(samples.classes),
        split,
        plan.unlabelled_weight,
        plan.unlabelled.size > 0,
    )
    pieces = samples.whole.pieces
    source = PieceSource.arrange(pieces, arrangement, parallel_map)
    if all(reading is None for reading in plan.readings):
        nothing = np.zeros(len(plan.blocks))
        return source, (nothing, nothing)
    slopes = pieces.fold(arrangement.log_slopes, parallel_map).arrays
    return source, (slopes[0], slopes[1])


def _check_scales(plan: Plan, coordinates: Sequence[Coordinates]) -> None:
    parts = zip(plan.blocks, plan.readings, coordinates, strict=True)
    for features, reading, frame in parts:
        extreme = (frame.scale < SMALLEST_SCALE) | (frame.scale > LARGEST_SCALE)
        if extreme.any():
            features = features if reading is None else features[reading.sources]
            raise ValueError(
                f"X has values whose squares leave the range of floating point: feature(s)"
                f" {', '.join(map(str, features[extreme][:10]))} vary by"
                f" {frame.scale[extreme][0]:.3g}. Between {SMALLEST_SCALE:g} and"
                f" {LARGEST_SCALE:g} is accepted; rescale the features."
            )


def _holdout(
    plan: Plan, samples: Samples, coordinates: Sequence[Coordinates], parallel_map: Mapper
) -> Source | None:
    """The samples to validate on, if there are any."""
    validation = samples.validating(plan.held_out)
    if validation is None:
        return None
    X, labels, counted = validation
    X, blocks = read_blocks(plan.blocks, plan.readings, X)
    rows = together(distinct(X, labels, counted), X, labels)
    X, labels = X[rows.places], labels[rows.places]
    pairs = zip(blocks, coordinates, strict=True)
    located = [locate(X[:, features], frame) for features, frame in pairs]
    bounds = np.searchsorted(labels, np.arange(len(samples.classes) + 1)).astype(np.intp)
    return ArraySource(located, bounds, parallel_map, rows.weights)


def _in_memory(
    plan: Plan, samples: Samples, known: Rows, unknown: Rows, parallel_map: Mapper
) -> ArraySource:
    """Samples at hand; those without a class are an additional class."""
    L = len(samples.classes)
    X, labels, blocks = samples.X, samples.labels % (L + 1), plan.blocks
    rows = known.followed_by(unknown)
    if any(reading is not None for reading in plan.readings):
        # In the order of the rows: a matrix product may round by the place of a sample.
        X, blocks = read_blocks(plan.blocks, plan.readings, X[rows.places])
        labels, rows = labels[rows.places], Rows(np.arange(rows.size), rows.weights)
    rows = together(rows, X, labels)
    n_classes = L + (plan.unlabelled.size > 0)
    return ArraySource.arrange(
        X, labels, rows.places, blocks, n_classes, parallel_map, rows.weights
    )


def _log_slopes(plan: Plan, samples: Samples, rows: Rows) -> FloatArray:
    """What the maps add to the log likelihoods of some rows in each block, (R,)."""
    sums = np.zeros(len(plan.blocks))
    for r, (features, reading) in enumerate(zip(plan.blocks, plan.readings, strict=True)):
        if reading is not None:
            X = samples.X[np.ix_(rows.places, features)]
            sums[r] = rows.counted @ reading.log_slopes(X)
    return sums
