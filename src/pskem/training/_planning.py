"""From settings and samples to a plan: blocks, kernels, starts, and which samples validate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.blocks import partition_features, within_class_dependence
from pskem.checks import check_block_weights, check_n_components
from pskem.engine import (
    ArraySource,
    Coordinates,
    Mapper,
    Regulariser,
    Source,
    locate,
    measure,
    workers,
)
from pskem.model import Model
from pskem.starts import StartMethod
from pskem.structures import FloatArray, Structure
from pskem.training._initial import Fixed, check_start, fixed_from, given_sizes
from pskem.training._order import (
    ENOUGH_FOR_DEPENDENCE,
    Rows,
    distinct,
    representative,
    together,
)
from pskem.training._settings import Settings

__all__ = [
    "Data",
    "Plan",
    "Refinement",
    "Samples",
    "arrange",
    "deal_blocks",
    "make_plan",
    "split",
    "suggest_n_components",
]

#: Training samples of a class for every kernel of its own and feature of the block.
SAMPLES_PER_FEATURE = 30
#: Kernels of a class at most.
MOST_PER_CLASS = 20
#: Samples from which on some are held out to choose discriminative passes and to fit weights: a
#: tenth of fewer chooses by chance, and is missed in the training.
ENOUGH_TO_VALIDATE = 1000
#: Discriminative passes, when validation chooses among them and when it does not.
VALIDATED_PASSES = 20
UNWATCHED_PASSES = 5
#: No eigenvalue of a covariance in standardised coordinates goes below this, even with
#: ``reg_covar=0``: beyond it rounding decides what the matrix is.
SMALLEST_FLOOR = 1e-10
#: Standard deviations of features that can be squared, with room for kernels, in double precision.
SMALLEST_SCALE, LARGEST_SCALE = 1e-130, 1e130


class Samples(NamedTuple):
    """Validated input: X (N, M), labels (N,) as places in classes (L,), priors (L,).

    validation : X, labels and weights of samples to validate on
    weights : (N,), all positive; None if all samples count alike
    """

    X: FloatArray
    labels: NDArray[np.intp]
    classes: NDArray[Any]
    priors: FloatArray
    validation: tuple[FloatArray, NDArray[np.intp], FloatArray | None] | None = None
    feature_names: Sequence[str] | None = None
    weights: FloatArray | None = None


class Refinement(NamedTuple):
    """What happens after EM.

    fit_weights : whether to fit the block weights to the validation data
    passes : discriminative passes, at most
    choose : whether validation chooses among the passes
    """

    fit_weights: bool = False
    passes: int = 0
    choose: bool = False


class Plan(NamedTuple):
    """Everything that decides a fit, apart from the samples.

    fixed : what the user fixed of each block's start; ``start`` makes the rest
    regularisers : one per block, in standardised coordinates
    block_weights : with which the assembled classifier is validated during EM
    early_stopping : whether validation chooses the pass of EM
    rows, held_out : rows of X to train on and to validate on, sorted by class
    """

    structure: Structure
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


class Data(NamedTuple):
    """Samples in standardised coordinates: to train on, and to validate on if there are any.

    log_volumes : (R,), of all samples: subtract them from log likelihoods in these coordinates
    watched : whether validation data are scored after the passes of EM
    """

    source: Source
    coordinates: Sequence[Coordinates]
    log_volumes: FloatArray
    holdout: Source | None
    watched: bool


def make_plan(settings: Settings, samples: Samples, before: Model | None, seed: int) -> Plan:
    """The plan of a fit; ``before`` is the model from which it goes on."""
    rows = distinct(samples.X, samples.labels, samples.weights)
    blocks = _blocks(settings, samples, before, seed, rows)
    R, L = len(blocks), len(samples.classes)
    # A row that counts often tells no more of a kernel's shape than one that counts once.
    counts = np.bincount(samples.labels[rows.places], minlength=L)
    if before is None:
        suggested = [suggest_n_components(counts, len(features)) for features in blocks]
        if settings.given is not None:
            suggested = given_sizes(settings.given, suggested)
    else:
        suggested = [len(block.kernels.means) for block in before.blocks]
    n_components = check_n_components(settings.n_components, suggested)
    if before is not None:
        check_unchanged(before, settings, samples.classes, blocks, n_components)
        fixed = fixed_from(before.blocks)
    elif settings.given is not None:
        fixed = check_start(settings.given, blocks, n_components, L, settings.structure)
    else:
        fixed = [Fixed()] * R
    given = check_block_weights(settings.block_weights, R)
    floor = max(float(settings.reg_covar), SMALLEST_FLOOR)
    diagonal = settings.shrinkage.target == "diag"
    refinement, rows, held_out = _hold_out(settings, samples, seed, rows)
    return Plan(
        structure=settings.structure,
        blocks=blocks,
        n_components=n_components,
        start=settings.start,
        fixed=fixed,
        reseed=settings.reseed,
        # Starts that leave nothing to chance are all the same.
        n_init=1 if all(part.complete for part in fixed) else settings.n_init,
        regularisers=[
            Regulariser(floor, settings.shrinkage.amount(len(features)), diagonal)
            for features in blocks
        ],
        block_weights=given if isinstance(given, np.ndarray) else np.ones(R),
        max_iter=settings.max_iter,
        tol=float(settings.tol),
        early_stopping=settings.early_stopping is True,
        patience=settings.n_iter_no_change,
        refinement=refinement,
        seed=seed,
        verbose=settings.verbose,
        rows=rows,
        held_out=held_out,
    )


def arrange(plan: Plan, samples: Samples, parallel_map: Mapper) -> Data:
    """The samples of a plan, in batches."""
    X, labels, L = samples.X, samples.labels, len(samples.classes)
    rows, held_out = together(plan.rows, X, labels), plan.held_out
    source = ArraySource.arrange(X, labels, rows.places, plan.blocks, L, parallel_map, rows.weights)
    measured = measure(source, plan.structure.common_scale)
    coordinates = [block.coordinates for block in measured]
    for features, frame in zip(plan.blocks, coordinates, strict=True):
        extreme = (frame.scale < SMALLEST_SCALE) | (frame.scale > LARGEST_SCALE)
        if extreme.any():
            raise ValueError(
                f"X has values whose squares leave the range of floating point: feature(s)"
                f" {', '.join(map(str, features[extreme][:10]))} vary by"
                f" {frame.scale[extreme][0]:.3g}. Between {SMALLEST_SCALE:g} and"
                f" {LARGEST_SCALE:g} is accepted; rescale the features."
            )
    validation = samples.validation
    if held_out.size:
        validation = X[held_out.places], labels[held_out.places], held_out.weights
    holdout = None
    if validation is not None:
        X_val, y_val, counted = validation
        seen = together(distinct(X_val, y_val, counted), X_val, y_val)
        X_val, y_val = X_val[seen.places], y_val[seen.places]
        pairs = zip(plan.blocks, coordinates, strict=True)
        parts = [locate(X_val, *pair) for pair in pairs]
        bounds = np.searchsorted(y_val, np.arange(L + 1)).astype(np.intp)
        holdout = ArraySource(parts, bounds, parallel_map, seen.weights)
    watched = samples.validation is not None or plan.early_stopping
    volumes = np.array([block.log_volume for block in measured])
    return Data(source.standardise(coordinates), coordinates, volumes, holdout, watched)


def suggest_n_components(counts: NDArray[np.intp], m: int) -> int:
    """K for a block of m features, from the samples of each class (L,).

    One kernel for every 30 m samples of a class, at least 1 and at most 20.
    """
    per_class = np.clip(counts // (SAMPLES_PER_FEATURE * m), 1, MOST_PER_CLASS)
    return int(per_class.sum())


def _blocks(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    rows: Rows,
) -> list[NDArray[np.intp]]:
    """The blocks of the columns of X."""
    n_blocks = settings.n_blocks or "auto"
    learned = isinstance(settings.partition, str) and settings.partition in ("random", "dependence")
    if before is not None and learned:
        # What chance or other data decided stays as it was, if as many blocks are wanted.
        blocks = partition_features(samples.X.shape[1], n_blocks)
        if len(before.blocks) == len(blocks):
            return [block.features for block in before.blocks]
        return blocks
    names = samples.feature_names
    return deal_blocks(samples.X, samples.labels, n_blocks, settings.partition, seed, names, rows)


def deal_blocks(
    X: FloatArray,
    labels: NDArray[np.intp],
    n_blocks: int | str,
    partition: Any,
    seed: int,
    feature_names: Sequence[str] | None = None,
    rows: Rows | None = None,
) -> list[NDArray[np.intp]]:
    """The blocks of the columns of X (N, M), with samples for a partition that follows from them.

    At most 20,000 samples are looked at. The different rows are found if they are not given.
    """
    dependence = None
    if isinstance(partition, str) and partition == "dependence":
        everyone = distinct(X, labels) if rows is None else rows
        seen = everyone.at(representative(np.arange(everyone.size), ENOUGH_FOR_DEPENDENCE))
        with workers(1):  # BLAS rounds by the number of its threads
            dependence = within_class_dependence(X[seen.places], labels[seen.places], seen.weights)
    rng = np.random.default_rng([seed, 0])
    return partition_features(X.shape[1], n_blocks, partition, rng, feature_names, dependence)


def check_unchanged(
    before: Model,
    settings: Settings,
    classes: NDArray[Any],
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
) -> None:
    """Refuse a warm start with settings that the fitted model does not have."""
    for name, was, now in [
        ("covariance_type", before.structure.name, settings.structure.name),
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


def _hold_out(
    settings: Settings, samples: Samples, seed: int, rows: Rows
) -> tuple[Refinement, Rows, Rows]:
    """What to do after EM, rows to train on, and rows to validate on."""
    N, L = rows.size, len(samples.classes)
    nobody = rows.at(np.zeros(0, dtype=np.intp))
    validated = samples.validation is not None
    asked, weights = settings.early_stopping, settings.block_weights
    choose = (validated or N >= ENOUGH_TO_VALIDATE) if asked is None else asked
    passes = settings.discriminative_iter
    if passes is None:
        passes = VALIDATED_PASSES if choose else UNWATCHED_PASSES
    choose = choose and passes > 0
    fit = isinstance(weights, str) and (weights == "fit" or choose)
    refinement = Refinement(fit, passes, choose)
    if validated or not (asked or choose or fit):
        return refinement, rows, nobody
    fraction = settings.validation_fraction
    kept, held_out = split(samples.labels[rows.places], fraction, L, seed)
    if len(held_out):
        return refinement, rows.at(kept), rows.at(held_out)
    if asked or (isinstance(weights, str) and weights == "fit"):
        raise ValueError(
            f"validation_fraction={fraction} of {N} samples leaves none to validate on (every"
            " class keeps one to train on). Use a larger fraction or more samples, give X_val and"
            " y_val, or set early_stopping=False and block_weights=None."
        )
    if settings.discriminative_iter is None:  # nobody watches
        passes = UNWATCHED_PASSES
    return Refinement(passes=passes), rows, nobody


def split(
    labels: NDArray[np.intp], fraction: float, n_classes: int, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places to train on and places to hold out, both sorted by class.

    The fraction that is held out is shared out over the classes by their sizes; small classes may
    give none. Every class keeps at least one sample for training.
    """
    order = np.argsort(labels, kind="stable")
    rng = np.random.default_rng([seed, 1])
    bounds = np.searchsorted(labels[order], np.arange(n_classes + 1))
    held_out = np.zeros(len(order), dtype=bool)
    counts = np.diff(bounds)
    for low, n, size in zip(bounds[:-1], counts, _allot(counts, fraction, rng), strict=True):
        held_out[low + rng.permutation(n)[:size]] = True
    return order[~held_out], order[held_out]


def _allot(counts: NDArray[np.intp], fraction: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """How many samples of each class to hold out, by largest remainders; lots decide ties.

    With many small classes, of which a fraction rounds to nothing each, the whole fraction is
    still held out.
    """
    quotas = np.minimum(fraction * counts, counts - 1)
    sizes = np.floor(quotas).astype(np.intp)
    left = round(float(quotas.sum())) - int(sizes.sum())
    lots = rng.permutation(len(counts))
    sizes[np.lexsort((lots, sizes - quotas))[:left]] += 1
    return sizes
