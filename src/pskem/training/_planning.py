"""From settings and samples to a plan: blocks, kernels, starts, and which samples validate."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.checks import check_block_weights
from pskem.engine import (
    ArraySource,
    Coordinates,
    Mapper,
    Regulariser,
    Source,
    locate,
    log_volumes,
    measure,
)
from pskem.margins import Margins
from pskem.model import Model, Reading
from pskem.starts import StartMethod
from pskem.structures import FloatArray, Structure
from pskem.training._initial import Fixed, check_start, check_unchanged, fixed_from
from pskem.training._layout import count_kernels, lay_out, suit
from pskem.training._order import Rows, distinct, together
from pskem.training._settings import Settings
from pskem.training._splitting import Refinement, Samples, hold_out

__all__ = ["Data", "Plan", "arrange", "make_plan"]

#: No eigenvalue of a covariance in standardised coordinates goes below this, even with
#: ``reg_covar=0``: beyond it rounding decides what the matrix is.
SMALLEST_FLOOR = 1e-10
#: Standard deviations of features that can be squared, with room for kernels, in double precision.
SMALLEST_SCALE, LARGEST_SCALE = 1e-130, 1e130


class Plan(NamedTuple):
    """Everything that decides a fit, apart from the samples.

    fixed : what the user fixed of each block's start; ``start`` makes the rest
    regularisers : one per block, in standardised coordinates
    block_weights : with which the assembled classifier is validated during EM
    early_stopping : whether validation chooses the pass of EM
    rows, held_out : rows of X to train on and to validate on, sorted by class
    unlabelled : rows of X without a class, to train on as well
    learn_priors : whether these change the priors
    readings : how each block reads its columns of X; None for as they are
    tried : whether the form is one of several that were tried, and nobody's wish
    """

    structures: Sequence[Structure]
    blocks: Sequence[NDArray[np.intp]]
    n_components: Sequence[int]
    start: StartMethod
    fixed: Sequence[Fixed]
    reseed: bool
    n_init: int
    regularisers: Sequence[Regulariser]
    block_weights: FloatArray
    max_iter: int
    tol: float
    early_stopping: bool
    patience: int | None
    refinement: Refinement
    seed: int
    verbose: int
    rows: Rows
    held_out: Rows
    unlabelled: Rows
    learn_priors: bool
    readings: Sequence[Reading | None]
    tried: bool

    @property
    def total(self) -> float:
        """What all rows count that are trained on."""
        return self.rows.total + self.unlabelled.total


class Data(NamedTuple):
    """Samples in standardised coordinates: to train on, and to validate on if there are any.

    source : with classes
    unlabelled : without; None if there are none
    everyone : both, the latter as an additional class
    log_volumes : (R,), subtract them from log likelihoods of the source in these coordinates
    unlabelled_volume : the same of the samples without a class, for all blocks at once
    watched : whether validation data are scored after the passes of EM
    """

    source: Source
    unlabelled: Source | None
    everyone: Source
    coordinates: Sequence[Coordinates]
    log_volumes: FloatArray
    unlabelled_volume: float
    holdout: Source | None
    watched: bool


def make_plan(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    maps: Margins | None = None,
) -> Plan:
    """The plan of a fit; ``before`` is the model from which it goes on.

    maps : of all columns, if they are known already
    """
    rows, unlabelled = samples.different_rows()
    unlabelled = unlabelled.times(settings.unlabelled_weight)
    L = len(samples.classes)
    counts = samples.counts(rows)
    settings = suit(settings, counts, samples.n_numbers, unlabelled.size > 0)
    start = settings.start
    assert start is not None
    refinement, kept, held_out = hold_out(settings, samples, seed, rows, unlabelled.size > 0)
    layout = lay_out(settings, samples, before, seed, rows, kept, maps)
    blocks, structures, _ = layout
    n_components = count_kernels(settings, samples, before, layout, counts, unlabelled.total)
    R = len(blocks)
    if before is not None:
        check_unchanged(before, structures, samples.classes, blocks, n_components)
        fixed = fixed_from(before.blocks)
    elif settings.given is not None:
        if samples.levels:
            raise ValueError(
                "init=Start(...) gives kernels for features in a fixed order, but categories have a"
                " block of their own. Use a start that makes kernels, or leave the categories out."
            )
        fixed = check_start(settings.given, blocks, n_components, L, settings.structure)
    else:
        fixed = [Fixed()] * R
    given = check_block_weights(settings.block_weights, R)
    floor = max(float(settings.reg_covar), SMALLEST_FLOOR)
    shrinkage, few = settings.shrinkage, unlabelled.size > 0
    diagonal = shrinkage.target == "diag"
    firm = settings.shape.firmness if isinstance(shrinkage.samples, str) else 1.0
    return Plan(
        structures=structures,
        blocks=blocks,
        n_components=n_components,
        start=start,
        fixed=fixed,
        # Elsewhere is where samples of a class are explained worst; those without would object.
        reseed=settings.reseed and not unlabelled.size,
        # Starts that leave nothing to chance are all the same.
        n_init=1 if all(part.complete for part in fixed) else settings.n_init,
        regularisers=[
            Regulariser(floor, firm * shrinkage.amount(structure, m, few), diagonal)
            for m, structure in zip(layout.widths, structures, strict=True)
        ],
        block_weights=given if isinstance(given, np.ndarray) else np.ones(R),
        max_iter=settings.max_iter,
        tol=float(settings.tol),
        early_stopping=settings.early_stopping is True,
        patience=settings.n_iter_no_change,
        refinement=refinement,
        seed=seed,
        verbose=settings.verbose,
        rows=kept,
        held_out=held_out,
        unlabelled=unlabelled,
        learn_priors=samples.learn_priors and unlabelled.size > 0,
        readings=layout.readings,
        tried=settings.form is not None,
    )


def _read(plan: Plan, X: FloatArray) -> tuple[FloatArray, Sequence[NDArray[np.intp]]]:
    """Rows of X (n, M) as the kernels see them, and the columns of each block among these."""
    if all(reading is None for reading in plan.readings):
        return X, plan.blocks
    pairs = zip(plan.blocks, plan.readings, strict=True)
    parts = [X[:, own] if read is None else read.forward(X[:, own]) for own, read in pairs]
    ends = np.cumsum([0, *(part.shape[1] for part in parts)])
    return np.hstack(parts), [np.arange(low, high) for low, high in pairwise(ends)]


def arrange(plan: Plan, samples: Samples, parallel_map: Mapper) -> Data:
    """The samples of a plan, in batches."""
    L = len(samples.classes)
    X, labels, blocks = samples.X, samples.labels % (L + 1), plan.blocks
    rows = plan.rows.followed_by(plan.unlabelled)
    if any(reading is not None for reading in plan.readings):
        # In the order of the rows: a matrix product may round by the place of a sample.
        X, blocks = _read(plan, X[rows.places])
        labels, rows = labels[rows.places], Rows(np.arange(rows.size), rows.weights)
    rows = together(rows, X, labels)
    n_classes = L + (plan.unlabelled.size > 0)
    everyone = ArraySource.arrange(
        X, labels, rows.places, blocks, n_classes, parallel_map, rows.weights
    )
    source, others = everyone.divide() if plan.unlabelled.size else (everyone, None)
    coordinates = measure(everyone, plan.structures)
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
    validation = samples.validating(plan.held_out)
    holdout = None
    if validation is not None:
        X_val, y_val, counted = validation
        X_val, blocks = _read(plan, X_val)
        seen = together(distinct(X_val, y_val, counted), X_val, y_val)
        X_val, y_val = X_val[seen.places], y_val[seen.places]
        pairs = zip(blocks, coordinates, strict=True)
        located = [locate(X_val[:, features], frame) for features, frame in pairs]
        bounds = np.searchsorted(y_val, np.arange(L + 1)).astype(np.intp)
        holdout = ArraySource(located, bounds, parallel_map, seen.weights)
    watched = samples.validation is not None or plan.early_stopping
    everyone.standardise(coordinates)  # and with it its views
    volumes = log_volumes(source, coordinates) - _log_slopes(plan, samples, plan.rows)
    spare = 0.0
    if others is not None:
        spare = float(
            (log_volumes(others, coordinates) - _log_slopes(plan, samples, plan.unlabelled)).sum()
        )
    return Data(source, others, everyone, coordinates, volumes, spare, holdout, watched)


def _log_slopes(plan: Plan, samples: Samples, rows: Rows) -> FloatArray:
    """What the maps add to the log likelihoods of some rows in each block, (R,)."""
    sums = np.zeros(len(plan.blocks))
    for r, (features, reading) in enumerate(zip(plan.blocks, plan.readings, strict=True)):
        if reading is not None:
            X = samples.X[np.ix_(rows.places, features)]
            sums[r] = rows.counted @ reading.log_slopes(X)
    return sums
