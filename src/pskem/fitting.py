"""What both estimators do around the training: check, plan, observe, warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from pskem import checks
from pskem.callbacks import DECORATOR_FRAMES, FitTask
from pskem.em import SMALLEST_FLOOR
from pskem.initialise import METHODS, Recipe, Start
from pskem.kernels import Kernels
from pskem.model import Block
from pskem.parallel import Mapper
from pskem.progress import PassBar
from pskem.samples import CHUNK
from pskem.structures import STRUCTURES, FloatArray
from pskem.training import Data, Holdout, Plan, Progress, Run, train

__all__ = ["check_common", "draw_seed", "fit_blocks", "make_plan", "starts_from", "to_blocks"]


def check_common(estimator: Any) -> None:
    """Check the parameters that both estimators have."""
    checks.check_choice("covariance_type", estimator.covariance_type, list(STRUCTURES))
    checks.check_choice("init", estimator.init, METHODS)
    checks.check_range("init_range", estimator.init_range)
    checks.check_real("init_scale", estimator.init_scale, 0.0, strict=True)
    checks.check_integer("n_init", estimator.n_init, 1)
    checks.check_real("reg_covar", estimator.reg_covar, 0.0)
    checks.check_integer("max_iter", estimator.max_iter, 1)
    checks.check_real("tol", estimator.tol, 0.0)
    checks.check_integer("verbose", int(estimator.verbose), 0)


def draw_seed(random_state: Any) -> int:
    """A seed for all that is random in a fit, from scikit-learn's kind of random state."""
    return int(check_random_state(random_state).randint(np.iinfo(np.int32).max))


def make_plan(
    estimator: Any,
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
    starts: Sequence[Start],
    seed: int,
    early_stopping: bool = False,
    n_iter_no_change: int | None = None,
) -> Plan:
    """The plan of a fit, from an estimator whose parameters have been checked."""
    recipe = Recipe(
        estimator.init, checks.check_range("init_range", estimator.init_range), estimator.init_scale
    )
    return Plan(
        STRUCTURES[estimator.covariance_type],
        blocks,
        n_components,
        starts,
        recipe,
        estimator.n_init,
        float(estimator.reg_covar),
        estimator.max_iter,
        float(estimator.tol),
        early_stopping,
        n_iter_no_change,
        seed,
    )


def starts_from(blocks: Sequence[Block]) -> list[Start]:
    """Starts that go on from fitted blocks."""
    return [Start(block.weights, block.means, block.covariances) for block in blocks]


def to_blocks(plan: Plan, data: Data, kernels: Sequence[Kernels]) -> list[Block]:
    """Fitted blocks in the user's units."""
    rows = zip(plan.blocks, kernels, data.coordinates, strict=True)
    return [Block.from_kernels(*row, plan.structure) for row in rows]


def fit_blocks(
    estimator: BaseEstimator,
    plan: Plan,
    data: Data,
    holdout: Holdout | None,
    parallel_map: Mapper,
    X: FloatArray,
    y: Any,
    attributes: Callable[[list[Block]], dict[str, Any]],
) -> Run:
    """Train, with the estimator's progress bar and callbacks; warn of what went wrong.

    ``attributes`` turns blocks into fitted attributes, for callbacks that want a usable estimator.
    """
    task = FitTask(estimator, plan.max_iter * plan.n_init, X, y)
    verbose = int(estimator.verbose)
    every = 10 if verbose == 1 else 1
    bar = PassBar(plan.max_iter, plan.n_init, len(X), every) if verbose else None

    def state(kernels: Sequence[Kernels]) -> Callable[[], dict[str, Any]]:
        return lambda: attributes(to_blocks(plan, data, kernels))

    def observe(progress: Progress) -> bool:
        if bar is not None:
            bar(progress)
        return task.after_pass(state(progress.kernels))

    try:
        run = train(plan, data, holdout, parallel_map, observe)
    finally:
        if bar is not None:
            bar.close()
    task.end(state(run.kernels))
    _warn(plan, data, run)
    return run


def _warn(plan: Plan, data: Data, run: Run) -> None:
    """One ConvergenceWarning per kind of trouble, with the remedy."""
    if plan.tol > 0.0 and not run.stopped and not run.converged.all():
        late = ", ".join(map(str, np.flatnonzero(~run.converged)))
        warnings.warn(
            f"max_iter={plan.max_iter} passes ended before the mean log likelihood per sample"
            f" gained less than tol={plan.tol:g} in block(s) {late}. Increase max_iter or tol, or"
            " set tol=0 if a fixed number of passes is what you want.",
            ConvergenceWarning,
            stacklevel=4 + DECORATOR_FRAMES,
        )
    empty, collapsed = [], []
    for r, (health, samples) in enumerate(zip(run.health, data.samples, strict=True)):
        place = f"block {r}: " if len(run.health) > 1 else ""
        if health.empty.any():
            empty.append(place + _listed(np.flatnonzero(health.empty)))
        # Directions in which all of the data are constant are no fault of the kernels.
        null = _null_directions(plan, samples.X)
        if (health.collapsed > null).any():
            collapsed.append(place + _listed(np.flatnonzero(health.collapsed > null)))
    if empty:
        warnings.warn(
            f"Kernels ran empty ({'; '.join(empty)}): no sample is left to them, their weights are"
            " zero and their means and covariances stay as they were. The model is valid without"
            " them. Use fewer components or another init.",
            ConvergenceWarning,
            stacklevel=4 + DECORATOR_FRAMES,
        )
    if collapsed:
        warnings.warn(
            f"Kernels collapsed in some direction ({'; '.join(collapsed)}): the samples left to them"
            f" do not vary there, and reg_covar={plan.reg_covar:g} times the variance of the data"
            " stands in. Use fewer components, a larger reg_covar or a simpler covariance_type.",
            ConvergenceWarning,
            stacklevel=4 + DECORATOR_FRAMES,
        )


def _null_directions(plan: Plan, X: FloatArray) -> int:
    """Directions of a block in which the data as a whole do not vary."""
    second = np.zeros((len(X), len(X)))  # about the mean, which standardised data have at zero
    for low in range(0, X.shape[1], CHUNK):
        part = X[:, low : low + CHUNK].astype(np.float64, copy=False)
        second += part @ part.T
    total = plan.structure.compact(second[None] / X.shape[1])
    return int(plan.structure.floor(total, max(plan.reg_covar, SMALLEST_FLOOR)).n_collapsed[0])


def _listed(indices: NDArray[np.intp]) -> str:
    shown = ", ".join(map(str, indices[:8]))
    return f"{len(indices)} of them: {shown}{', ...' if len(indices) > 8 else ''}"
