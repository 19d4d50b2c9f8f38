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
    log_volumes,
    measure,
    workers,
)
from pskem.model import Model
from pskem.starts import STARTS, ClassKMeans, StartMethod
from pskem.structures import Categorical, FloatArray, Structure
from pskem.training._initial import Fixed, check_start, check_unchanged, fixed_from, given_sizes
from pskem.training._order import (
    ENOUGH_FOR_DEPENDENCE,
    Rows,
    distinct,
    representative,
    together,
)
from pskem.training._settings import Settings
from pskem.training._splitting import Refinement, Samples, hold_out

__all__ = [
    "Data",
    "Plan",
    "arrange",
    "deal_blocks",
    "make_plan",
    "suggest_n_components",
    "suit",
    "usual_blocks",
]

#: Training samples of a class for every kernel of its own and feature of the block.
SAMPLES_PER_FEATURE = 30
#: Kernels of a class at most.
MOST_PER_CLASS = 20
#: Samples of a class from which on it has kernels of its own, where others have no class. Fewer are
#: too few to start all its kernels from.
ENOUGH_OF_ONES_OWN = 8
#: Blocks that teach each other the classes of unlabelled samples, and features of each, at least.
BLOCKS_THAT_TEACH = 3
FEWEST_THAT_TEACH = 4
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


def make_plan(settings: Settings, samples: Samples, before: Model | None, seed: int) -> Plan:
    """The plan of a fit; ``before`` is the model from which it goes on."""
    rows, unlabelled = samples.different_rows()
    unlabelled = unlabelled.times(settings.unlabelled_weight)
    L, M = len(samples.classes), samples.n_numbers
    counts = samples.counts(rows)
    settings = suit(settings, counts, M, unlabelled.size > 0)
    start = settings.start
    assert start is not None
    try:
        blocks = _blocks(settings, samples, before, seed, rows) if M else []
    except ValueError as error:
        raise _for_numbers(error, samples) from None
    structures: list[Structure] = [settings.structure] * len(blocks)
    if samples.levels:
        blocks = [*blocks, np.arange(M, samples.X.shape[1])]
        structures.append(Categorical(samples.levels))
    R = len(blocks)
    if before is None:
        own = isinstance(start, ClassKMeans)
        suggested = [
            suggest_n_components(counts, len(part), kind.most_kernels, unlabelled.total, own)
            for part, kind in zip(blocks, structures, strict=True)
        ]
        if settings.given is not None:
            suggested = given_sizes(settings.given, suggested)
    else:
        suggested = [len(block.kernels.means) for block in before.blocks]
    try:
        n_components = _sizes(settings.n_components, suggested, bool(samples.levels))
    except ValueError as error:
        raise _for_numbers(error, samples) from None
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
    refinement, rows, held_out = hold_out(settings, samples, seed, rows, unlabelled.size > 0)
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
            Regulariser(floor, shrinkage.amount(structure, len(features), few), diagonal)
            for features, structure in zip(blocks, structures, strict=True)
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
        unlabelled=unlabelled,
        learn_priors=samples.learn_priors and unlabelled.size > 0,
    )


def arrange(plan: Plan, samples: Samples, parallel_map: Mapper) -> Data:
    """The samples of a plan, in batches."""
    X, labels, L = samples.X, samples.labels, len(samples.classes)
    rows = together(plan.rows.followed_by(plan.unlabelled), X, labels % (L + 1))
    n_classes = L + (plan.unlabelled.size > 0)
    everyone = ArraySource.arrange(
        X, labels % (L + 1), rows.places, plan.blocks, n_classes, parallel_map, rows.weights
    )
    source, others = everyone.divide() if plan.unlabelled.size else (everyone, None)
    coordinates = measure(everyone, plan.structures)
    for features, frame in zip(plan.blocks, coordinates, strict=True):
        extreme = (frame.scale < SMALLEST_SCALE) | (frame.scale > LARGEST_SCALE)
        if extreme.any():
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
        seen = together(distinct(X_val, y_val, counted), X_val, y_val)
        X_val, y_val = X_val[seen.places], y_val[seen.places]
        pairs = zip(plan.blocks, coordinates, strict=True)
        parts = [locate(X_val, *pair) for pair in pairs]
        bounds = np.searchsorted(y_val, np.arange(L + 1)).astype(np.intp)
        holdout = ArraySource(parts, bounds, parallel_map, seen.weights)
    watched = samples.validation is not None or plan.early_stopping
    everyone.standardise(coordinates)  # and with it its views
    volumes = log_volumes(source, coordinates)
    spare = 0.0 if others is None else float(log_volumes(others, coordinates).sum())
    return Data(source, others, everyone, coordinates, volumes, spare, holdout, watched)


def suit(settings: Settings, counts: NDArray[np.intp], M: int, unlabelled: bool) -> Settings:
    """Settings with the start and the blocks that suit so many samples of each class, (L,).

    Few samples are too few to start kernels of their class from, where others have no class.
    """
    shared = unlabelled and np.median(counts) < ENOUGH_OF_ONES_OWN
    start = settings.start or STARTS["em" if shared else "class-kmeans"]
    partition, n_blocks = settings.partition, settings.n_blocks
    if isinstance(partition, str):
        if partition == "auto":  # blocks that teach each other have a bit of everything
            partition = "interleaved" if unlabelled else "sequential"
        if n_blocks is None and M:
            n_blocks = usual_blocks(counts, M, unlabelled)
    return settings._replace(start=start, partition=partition, n_blocks=n_blocks)


def _for_numbers(error: ValueError, samples: Samples) -> ValueError:
    """An error about blocks or kernels, in view of the categories that there may be."""
    if not samples.levels:
        return error
    return ValueError(
        f"{error} n_blocks, partition and n_components are for the {samples.n_numbers} column(s) of"
        " numbers: categories have a block of their own."
    )


def _sizes(value: Any, suggested: Sequence[int], categories: bool) -> list[int]:
    """Kernels of each block; settings for numbers alone leave those of the categories open."""
    if not categories:
        return check_n_components(value, suggested)
    listed = np.iterable(value) and not isinstance(value, str)
    if listed and len(value) == len(suggested):
        return check_n_components(value, suggested)
    if len(suggested) == 1:  # nothing but categories
        return check_n_components(value, suggested)
    return [*check_n_components(value, suggested[:-1]), suggested[-1]]


def suggest_n_components(
    counts: NDArray[np.intp],
    m: int,
    most: float = np.inf,
    unlabelled: float = 0.0,
    own: bool = True,
) -> int:
    """K for a block of m features, from the samples of each class (L,), and of none.

    One kernel for every 30 m samples of a class, at least 1 and at most 20, or ``most``. Samples
    without a class belong to classes as often as the others do. Kernels of a class of their own
    start at samples that have one; those that all share start anywhere.
    """
    everyone = counts * (1.0 + unlabelled / counts.sum())
    found = np.clip(everyone // (SAMPLES_PER_FEATURE * m), 1, min(most, MOST_PER_CLASS))
    return int((np.minimum(found, counts) if unlabelled and own else found).sum())


def usual_blocks(counts: NDArray[np.intp], M: int, unlabelled: bool) -> int:
    """The number of blocks of M features.

    Where classes have fewer samples than there are features, blocks teach each other the classes of
    samples without one, and there are three of them at least.
    """
    usual = len(partition_features(M))
    if not unlabelled or np.median(counts) >= M:
        return usual
    return max(usual, min(BLOCKS_THAT_TEACH, M // FEWEST_THAT_TEACH))


def _blocks(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    rows: Rows,
) -> list[NDArray[np.intp]]:
    """The blocks of the columns of X."""
    n_blocks = settings.n_blocks or "auto"
    M, partition = samples.n_numbers, settings.partition
    learned = isinstance(partition, str) and partition in ("random", "dependence")
    if before is not None and learned:
        # What chance or other data decided stays as it was, if as many blocks are wanted.
        blocks = partition_features(M, n_blocks)
        known = [block.features for block in before.blocks if block.structure.standardised]
        return known if len(known) == len(blocks) else blocks
    names = samples.feature_names
    if samples.levels:
        names = None if names is None else names[:M]
        partition = _among_numbers(partition, samples)
    X = samples.X[:, :M]
    return deal_blocks(X, samples.labels, n_blocks, partition, seed, names, rows)


def _among_numbers(partition: Any, samples: Samples) -> Any:
    """A partition of the user's columns as one of the features that are numbers."""
    if isinstance(partition, str) or samples.numeric is None:
        return partition
    places = {int(column): i for i, column in enumerate(samples.numeric)}
    found = []
    for r, block in enumerate(partition):
        listed = np.asarray(block)
        if listed.dtype.kind in "iu":
            out = [int(column) for column in listed.ravel() if int(column) not in places]
            if out:
                raise ValueError(
                    f"partition[{r}] holds column {out[0]}, which is no column of numbers."
                    " Categories have a block of their own."
                )
            listed = np.array([places[int(column)] for column in listed.ravel()])
        found.append(listed)
    return found


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
    if isinstance(partition, str) and partition == "auto":
        partition = "sequential"
    if isinstance(partition, str) and partition == "dependence":
        everyone = distinct(X, labels) if rows is None else rows
        seen = everyone.at(representative(np.arange(everyone.size), ENOUGH_FOR_DEPENDENCE))
        with workers(1):  # BLAS rounds by the number of its threads
            dependence = within_class_dependence(X[seen.places], labels[seen.places], seen.weights)
    rng = np.random.default_rng([seed, 0])
    return partition_features(X.shape[1], n_blocks, partition, rng, feature_names, dependence)
