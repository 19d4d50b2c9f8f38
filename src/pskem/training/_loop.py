"""Train all blocks of a model: starts, passes in lock-step, validation, the best one kept."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.engine._em import Health, Mender, Pass, Regulariser, em_passes
from pskem.engine._kernels import Kernels
from pskem.engine._parallel import Mapper
from pskem.engine._reseeding import reseed
from pskem.engine._sources import (
    Coordinates,
    Samples,
    arrange,
    canonical_order,
    locate,
    measure,
    standardise,
)
from pskem.structures import FloatArray, Structure
from pskem.training._holdout import Holdout, judge
from pskem.training._starts import Method, Start, initialise
from pskem.training._weighting import Weighting

__all__ = [
    "SMALLEST_FLOOR",
    "Data",
    "Observer",
    "Plan",
    "Progress",
    "Run",
    "Snapshot",
    "make_data",
    "make_holdout",
    "split",
    "train",
]


#: No eigenvalue of a covariance in standardised coordinates goes below this, even with
#: ``reg_covar=0``: beyond it rounding decides what the matrix is.
SMALLEST_FLOOR = 1e-10
#: Passes of a run after which a block's empty kernels are put elsewhere, at most: those that keep
#: running empty are not needed.
MOST_RESEEDINGS = 3
#: Standard deviations of features that can be squared, with room for kernels, in double precision.
SMALLEST_SCALE, LARGEST_SCALE = 1e-130, 1e130


class Plan(NamedTuple):
    """Everything that decides a fit, apart from the data.

    reseed : whether kernels that run empty are put elsewhere
    weighting : block weights with which the assembled classifier is validated during EM
    regularisers : one per block, in standardised coordinates; floors are at least SMALLEST_FLOOR
    """

    structure: Structure
    blocks: Sequence[NDArray[np.intp]]
    n_components: Sequence[int]
    starts: Sequence[Start]
    method: Method
    n_init: int
    regularisers: Sequence[Regulariser]
    reseed: bool
    weighting: Weighting
    max_iter: int
    tol: float
    early_stopping: bool
    n_iter_no_change: int | None
    seed: int


class Data(NamedTuple):
    """The training samples of each block, and their coordinates."""

    samples: Sequence[Samples]
    coordinates: Sequence[Coordinates]


class Snapshot(NamedTuple):
    """A model after a pass.

    kernels : one per block
    weighting : block weights and temperature
    allowed : (L, K) bool each, the weights that the start left open; others stay zero
    """

    kernels: Sequence[Kernels]
    weighting: Weighting
    allowed: Sequence[NDArray[np.bool_]]


class Progress(NamedTuple):
    """What an observer learns after a pass.

    discriminative : whether the pass was a discriminative one, whose log likelihood is that of the
        classes given the samples
    """

    start: int
    iteration: int
    model: Snapshot
    log_likelihood: float
    validation_score: float | None
    discriminative: bool = False


class Observer(Protocol):
    def __call__(self, progress: Progress) -> bool:
        """See a pass; True asks for the training to stop."""
        ...


class Run(NamedTuple):
    """The outcome of training from one start.

    kernels, health : one per block, of the pass that is kept
    log_likelihoods : (passes, R), in the user's units, each before the pass's update
    validation_scores : (passes,) or empty
    best_iter : the pass that is kept, counted from 1
    converged : (R,) bool, whether the last gain of the block's log likelihood was below tol
    stopped : whether anything but the number of passes ended the training
    asked : whether an observer did
    allowed : (L, K) bool each, the weights that the start left open; others stay zero
    """

    kernels: Sequence[Kernels]
    health: Sequence[Health]
    log_likelihoods: FloatArray
    validation_scores: FloatArray
    best_iter: int
    converged: NDArray[np.bool_]
    stopped: bool
    asked: bool
    allowed: Sequence[NDArray[np.bool_]]

    def merit(self, early_stopping: bool) -> float:
        """What the best of several starts has most of.

        Validation data that are only watched must not choose anything.
        """
        if early_stopping:
            return float(self.validation_scores[self.best_iter - 1])
        return float(self.log_likelihoods[-1].sum())


def split(
    X: FloatArray,
    labels: NDArray[np.intp],
    fraction: float,
    n_classes: int,
    seed: int,
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Training and validation rows, both sorted by class.

    The fraction that is held out is shared out over the classes by their sizes; small classes may
    give none. Every class keeps at least one sample for training.
    """
    order = canonical_order(X, labels)
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


def make_data(
    X: FloatArray,
    labels: NDArray[np.intp],
    rows: NDArray[np.intp] | None,
    n_classes: int,
    plan: Plan,
) -> Data:
    """Samples of each block from X (N, M), all rows or some, standardised and sorted by class."""
    order = canonical_order(X, labels) if rows is None else rows
    samples = arrange(X, labels, order, plan.blocks, n_classes)
    coordinates = [measure(part.X, plan.structure.common_scale) for part in samples]
    for features, frame in zip(plan.blocks, coordinates, strict=True):
        extreme = (frame.scale < SMALLEST_SCALE) | (frame.scale > LARGEST_SCALE)
        if extreme.any():
            raise ValueError(
                f"X has values whose squares leave the range of floating point: feature(s)"
                f" {', '.join(map(str, features[extreme][:10]))} vary by"
                f" {frame.scale[extreme][0]:.3g}. Between {SMALLEST_SCALE:g} and"
                f" {LARGEST_SCALE:g} is accepted; rescale the features."
            )
    return Data(
        [standardise(*pair) for pair in zip(samples, coordinates, strict=True)], coordinates
    )


def make_holdout(
    X: FloatArray, labels: NDArray[np.intp], prior: FloatArray, data: Data, plan: Plan
) -> Holdout:
    """Validation data in the coordinates of the training data."""
    pairs = zip(plan.blocks, data.coordinates, strict=True)
    with np.errstate(divide="ignore"):
        log_prior = np.log(prior)
    return Holdout([locate(X, *pair) for pair in pairs], labels, log_prior)


def train(
    plan: Plan,
    data: Data,
    holdout: Holdout | None,
    parallel_map: Mapper,
    observe: Observer,
) -> Run:
    """The best of ``n_init`` runs."""
    best: Run | None = None
    for i in range(plan.n_init):
        kernels = parallel_map(partial(_initial, plan, data, i), range(len(plan.blocks)))
        if i == 0:
            first = kernels
        elif all(_same(*pair) for pair in zip(first, kernels, strict=True)):
            continue  # chance left nothing to decide
        run = _run(plan, data, kernels, holdout, parallel_map, observe, i)
        if best is None or run.merit(plan.early_stopping) > best.merit(plan.early_stopping):
            best = run
        if run.asked:
            best = best._replace(asked=True)
            break
    assert best is not None  # n_init >= 1
    return best


def _same(one: Kernels, other: Kernels) -> bool:
    return all(np.array_equal(*pair) for pair in zip(one, other, strict=True))


def _initial(plan: Plan, data: Data, i: int, r: int) -> Kernels:
    # Blocks do not overlap, so the smallest feature tells a block apart whatever its place in the
    # list: permuted blocks get the same starts.
    rng = np.random.default_rng([plan.seed, 2, i, int(plan.blocks[r].min())])
    return initialise(
        plan.structure,
        data.samples[r],
        data.coordinates[r],
        plan.n_components[r],
        plan.method,
        plan.starts[r],
        plan.regularisers[r].floor,
        rng,
    )


def _run(
    plan: Plan,
    data: Data,
    kernels: Sequence[Kernels],
    holdout: Holdout | None,
    parallel_map: Mapper,
    observe: Observer,
    start: int,
) -> Run:
    """EM passes from one start until convergence, a stop or the last pass."""
    N = data.samples[0].n_samples
    volume = N * np.array([frame.log_volume for frame in data.coordinates])
    trace: list[FloatArray] = []
    scores: list[float] = []
    converged = np.zeros(len(plan.blocks), dtype=bool)
    kept: Pass | None = None
    best_iter = 0
    stopped = asked = False
    allowed = [theta.weights > 0.0 for theta in kernels]
    mend = _mender(plan, data, allowed) if plan.reseed else None
    passes = em_passes(plan.structure, data.samples, kernels, plan.regularisers, parallel_map, mend)
    for p, step in enumerate(islice(passes, plan.max_iter), start=1):
        trace.append(step.log_likelihoods - volume)
        if p > 1 and plan.tol > 0.0:
            # A fall, which rounding can cause, is no convergence either.
            converged = np.abs(trace[-1] - trace[-2]) / N < plan.tol
        if holdout is not None:
            weighting = plan.weighting
            verdict = judge(plan.structure, step.kernels, weighting, holdout, parallel_map)
            scores.append(verdict.accuracy)
        if not plan.early_stopping or scores[-1] > max(scores[:-1], default=-np.inf):
            kept, best_iter = step, p
        score = scores[-1] if scores else None
        model = Snapshot(step.kernels, plan.weighting, allowed)
        asked = observe(Progress(start, p, model, float(trace[-1].sum()), score))
        exhausted = (
            plan.early_stopping
            and plan.n_iter_no_change is not None
            and p - best_iter >= plan.n_iter_no_change
        )
        if asked or exhausted or converged.all():
            stopped = True
            break
    assert kept is not None  # max_iter >= 1
    return Run(
        kept.kernels,
        kept.health,
        np.array(trace),
        np.array(scores),
        best_iter,
        converged,
        stopped,
        asked,
        allowed,
    )


def _mender(plan: Plan, data: Data, allowed: Sequence[NDArray[np.bool_]]) -> Mender:
    """What puts empty kernels elsewhere, each block a few times."""
    left = [MOST_RESEEDINGS] * len(allowed)

    def mend(r: int, kernels: Kernels, health: Health) -> tuple[Kernels, Health]:
        if left[r] == 0 or not health.empty.any():
            return kernels, health
        left[r] -= 1
        kernels, empty = reseed(plan.structure, kernels, data.samples[r], health.empty, allowed[r])
        return kernels, health._replace(empty=empty)

    return mend
