"""What both estimators do around the training: check, plan, observe, warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from pskem import checks
from pskem.engine._em import Regulariser
from pskem.engine._parallel import Mapper
from pskem.model import Block
from pskem.structures import STRUCTURES, FloatArray
from pskem.training._callbacks import FitTask, caller_depth
from pskem.training._defaults import suggest_shrinkage
from pskem.training._diagnostics import troubles, verdict
from pskem.training._holdout import Holdout
from pskem.training._loop import (
    SMALLEST_FLOOR,
    Data,
    Observer,
    Plan,
    Progress,
    Run,
    Snapshot,
    train,
)
from pskem.training._progress import PassBar
from pskem.training._refining import Refined, unrefined
from pskem.training._starts import METHODS, Start
from pskem.training._weighting import Weighting, equal_weighting

__all__ = [
    "Watcher",
    "all_or_nothing",
    "check_common",
    "check_unchanged",
    "draw_seeds",
    "fit_blocks",
    "make_plan",
    "starts_from",
    "to_blocks",
    "validated",
]

#: What ``shrinkage_target`` accepts.
TARGETS = ["pooled", "diag"]
#: Sees the blocks after a pass; something true asks for the training to stop.
Watcher = Callable[[list[Block]], Any]
#: Stands in for weights that underflowed, in a start that goes on from a fit. Zero would be final.
SMALLEST_WEIGHT = 1e-300


def check_common(estimator: Any) -> None:
    """Check the parameters that both estimators have."""
    checks.check_choice("covariance_type", estimator.covariance_type, list(STRUCTURES))
    checks.check_choice("init", estimator.init, list(METHODS))
    checks.check_range("init_range", estimator.init_range)
    checks.check_real("init_scale", estimator.init_scale, 0.0, strict=True)
    checks.check_integer("n_init", estimator.n_init, 1)
    checks.check_real("reg_covar", estimator.reg_covar, 0.0)
    checks.check_real("shrinkage", estimator.shrinkage, 0.0, auto=True)
    checks.check_choice("shrinkage_target", estimator.shrinkage_target, TARGETS)
    checks.check_real("weight_smoothing", estimator.weight_smoothing, 0.0)
    checks.check_boolean("reseed", estimator.reseed)
    checks.check_integer("max_iter", estimator.max_iter, 1)
    checks.check_real("tol", estimator.tol, 0.0)
    checks.check_n_jobs(estimator.n_jobs)
    checks.check_integer("verbose", estimator.verbose, 0, boolean=True)
    checks.check_boolean("warm_start", estimator.warm_start)


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Put back what validation stores of the input, if the fit fails or is interrupted.

    Otherwise an estimator that had been fitted would answer for columns that it does not know.
    """
    names = ("n_features_in_", "feature_names_in_")
    before = {name: getattr(estimator, name) for name in names if hasattr(estimator, name)}
    try:
        yield
    except BaseException:
        for name in names:
            if name in before:
                setattr(estimator, name, before[name])
            elif hasattr(estimator, name):
                delattr(estimator, name)
        raise


def validated(estimator: Any, X: Any) -> FloatArray:
    """X for a fitted estimator, checked against what it was fitted to."""
    check_is_fitted(estimator, "blocks_")
    checked: FloatArray = validate_data(
        estimator, X, dtype=[np.float64, np.float32], reset=False, order="C"
    )
    return checked


def draw_seeds(random_state: Any, size: int = 1) -> list[int]:
    """Seeds for all that is random, from scikit-learn's kind of random state."""
    try:
        generator = check_random_state(random_state)
    except ValueError:
        raise ValueError(
            f"random_state={random_state!r} is not accepted: give None, an integer from 0 to"
            " 2**32 - 1, or a numpy.random.RandomState."
        ) from None
    return [int(seed) for seed in generator.randint(np.iinfo(np.int32).max, size=size)]


def make_plan(
    estimator: Any,
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
    starts: Sequence[Start],
    seed: int,
    early_stopping: bool = False,
    n_iter_no_change: int | None = None,
    weighting: Weighting | None = None,
) -> Plan:
    """The plan of a fit, from an estimator whose parameters have been checked."""
    mean_range = checks.check_range("init_range", estimator.init_range)
    return Plan(
        structure=STRUCTURES[estimator.covariance_type],
        blocks=blocks,
        n_components=n_components,
        starts=starts,
        method=METHODS[estimator.init](
            mean_range, estimator.init_scale, getattr(estimator, "own_mass", 1.0)
        ),
        # Starts that leave nothing to chance are all the same.
        n_init=1 if all(start.complete for start in starts) else estimator.n_init,
        regularisers=[_regulariser(estimator, len(features)) for features in blocks],
        reseed=estimator.reseed,
        weighting=equal_weighting(len(blocks)) if weighting is None else weighting,
        max_iter=estimator.max_iter,
        tol=float(estimator.tol),
        early_stopping=early_stopping,
        n_iter_no_change=n_iter_no_change,
        seed=seed,
    )


def _regulariser(estimator: Any, m: int) -> Regulariser:
    """What holds the M-step of a block of m features back."""
    asked = estimator.shrinkage
    return Regulariser(
        max(float(estimator.reg_covar), SMALLEST_FLOOR),
        suggest_shrinkage(m) if isinstance(asked, str) else float(asked),
        estimator.shrinkage_target == "diag",
        float(estimator.weight_smoothing),
    )


def starts_from(blocks: Sequence[Block]) -> list[Start]:
    """Starts that go on from fitted blocks."""
    origin = "The last fit, from which warm_start=True goes on,"
    return [
        Start(
            np.where(block.allowed, np.maximum(block.weights, SMALLEST_WEIGHT), 0.0),
            block.means,
            block.covariances,
            origin,
        )
        for block in blocks
    ]


def check_unchanged(
    before: Sequence[Block],
    covariance_type: str,
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
) -> None:
    """Refuse a warm start with settings that the fitted blocks do not have."""
    for name, was, now in [
        ("covariance_type", before[0].covariance_type, covariance_type),
        ("blocks", [b.features.tolist() for b in before], [b.tolist() for b in blocks]),
        ("n_components", [len(b.means) for b in before], list(n_components)),
    ]:
        if was != now:
            raise ValueError(
                f"warm_start=True needs the {name} of the last fit, {was!r}, not {now!r}. Set"
                " warm_start=False to start afresh."
            )


def to_blocks(plan: Plan, data: Data, model: Snapshot) -> list[Block]:
    """Fitted blocks in the user's units."""
    rows = zip(plan.blocks, model.kernels, data.coordinates, model.allowed, strict=True)
    return [
        Block.from_kernels(features, theta, coordinates, plan.structure, open_)
        for features, theta, coordinates, open_ in rows
    ]


def _unrefined(run: Run, _: Observer) -> Refined:
    return unrefined(Snapshot(run.kernels, equal_weighting(len(run.kernels)), run.allowed))


def fit_blocks(
    estimator: BaseEstimator,
    plan: Plan,
    data: Data,
    holdout: Holdout | None,
    parallel_map: Mapper,
    X: FloatArray,
    y: Any,
    attributes: Callable[[list[Block], Weighting], dict[str, Any]],
    watch: Watcher | None = None,
    later: int = 0,
    refinement: Callable[[Run, Observer], Refined] = _unrefined,
) -> tuple[Run, Refined]:
    """Train, with the estimator's progress bar and callbacks; warn of what went wrong.

    ``attributes`` turns blocks and their weighting into fitted attributes, for callbacks that want
    a usable estimator.
    ``watch`` sees the blocks after every pass and may end the training. ``refinement`` goes on from
    where EM ends, for ``later`` passes at most.
    """
    task = FitTask(estimator, plan.max_iter * plan.n_init + later, X, y)
    verbose = int(estimator.verbose)
    every = 10 if verbose == 1 else 1
    N = data.samples[0].n_samples
    bar = PassBar(plan.max_iter, plan.n_init, N, every, later) if verbose else None

    def state(model: Snapshot) -> Callable[[], dict[str, Any]]:
        return lambda: attributes(to_blocks(plan, data, model), model.weighting)

    def observe(progress: Progress) -> bool:
        if bar is not None:
            bar(progress)
        asked = watch is not None and bool(watch(to_blocks(plan, data, progress.model)))
        return task.after_pass(state(progress.model), progress.discriminative) or asked

    try:
        run = train(plan, data, holdout, parallel_map, observe)
        refined = refinement(run, observe)
    except BaseException:
        if bar is not None:
            bar.close("interrupted")
        raise
    if bar is not None:
        bar.close(verdict(run, refined))
    task.end(state(refined.model))
    for message in troubles(plan, data, run):
        warnings.warn(message, ConvergenceWarning, stacklevel=3 + caller_depth(estimator))
    return run, refined
