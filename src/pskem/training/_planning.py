"""From settings and samples to a plan: blocks, kernels, starts, and which samples validate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.checks import check_block_weights
from pskem.engine import Regulariser
from pskem.margins import Margins
from pskem.model import Model, Reading
from pskem.starts import StartMethod
from pskem.structures import FloatArray, Structure
from pskem.training._initial import Fixed, check_start, check_unchanged, fixed_from
from pskem.training._layout import count_kernels, lay_out, suit
from pskem.training._order import Rows
from pskem.training._settings import Settings
from pskem.training._splitting import Refinement, Samples, hold_out

__all__ = ["Plan", "make_plan", "regularisers"]

#: No eigenvalue of a covariance in standardised coordinates goes below this, even with
#: ``reg_covar=0``: beyond it rounding decides what the matrix is.
SMALLEST_FLOOR = 1e-10


class Plan(NamedTuple):
    """Everything that decides a fit, apart from the samples.

    fixed : what the user fixed of each block's start; ``start`` makes the rest
    regularisers : one per block, in standardised coordinates
    block_weights : with which the assembled classifier is validated during EM
    early_stopping : whether validation chooses the pass of EM
    rows, held_out : rows of X to train on and to validate on, sorted by class
    unlabelled : rows of X without a class, to train on as well
    unlabelled_weight : by which their weights are multiplied; those of the rows are already
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
    unlabelled_weight: float
    learn_priors: bool
    readings: Sequence[Reading | None]
    tried: bool


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
    counted = 1.0 if settings.unlabelled_weight is None else settings.unlabelled_weight
    spare = counted * samples.totals(rows, unlabelled)[1]
    unlabelled = unlabelled.times(counted)
    L = len(samples.classes)
    counts = samples.class_sizes(rows)
    settings = suit(settings, counts, samples.n_numbers, unlabelled.size > 0)
    start = settings.start
    assert start is not None
    refinement, kept, held_out = hold_out(settings, samples, seed, rows, unlabelled.size > 0)
    layout = lay_out(settings, samples, before, seed, rows, kept, maps)
    blocks, structures, _ = layout
    n_components = count_kernels(settings, samples, before, layout, counts, spare)
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
        regularisers=regularisers(settings, layout.widths, structures, unlabelled.size > 0),
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
        unlabelled_weight=counted,
        learn_priors=samples.learn_priors and unlabelled.size > 0,
        readings=layout.readings,
        tried=settings.form is not None,
    )


def regularisers(
    settings: Settings, widths: Sequence[int], structures: Sequence[Structure], unlabelled: bool
) -> list[Regulariser]:
    """What holds the M-steps of blocks of so many features back."""
    floor = max(float(settings.reg_covar), SMALLEST_FLOOR)
    shrinkage = settings.shrinkage
    diagonal = shrinkage.target == "diag"
    firm = settings.shape.firmness if isinstance(shrinkage.samples, str) else 1.0
    return [
        Regulariser(floor, firm * shrinkage.amount(structure, m, unlabelled), diagonal)
        for m, structure in zip(widths, structures, strict=True)
    ]
