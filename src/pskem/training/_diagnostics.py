"""How a training went, in words: its end, and what became of kernels that ran into trouble."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from pskem.engine._sources import CHUNK
from pskem.structures import FloatArray
from pskem.training._loop import Data, Plan, Run
from pskem.training._refining import Refined

__all__ = ["troubles", "verdict"]

#: A floor as high as this is meant to be felt: that kernels reach it is no trouble.
INTENDED_FLOOR = 0.01


def verdict(run: Run, refined: Refined) -> str:
    """How a training ended, in a few words."""
    passes = len(run.log_likelihoods)
    how = "converged" if run.converged.all() else "stopped" if run.stopped else "done"
    kept = f", pass {run.best_iter} kept" if run.best_iter != passes else ""
    text = f"{how} after {passes} pass{'es' if passes > 1 else ''}{kept}"
    later = len(refined.log_posteriors) - 1
    if later > 0:
        text += f"; {later} discriminative"
        text += f", number {refined.best} kept" if refined.best != later else ""
    return text


def troubles(plan: Plan, data: Data, run: Run) -> Iterator[str]:
    """One message per kind of trouble, with the remedy."""
    if plan.tol > 0.0 and not run.stopped and not run.converged.all():
        late = ", ".join(map(str, np.flatnonzero(~run.converged)))
        yield (
            f"max_iter={plan.max_iter} ended the training before the mean log likelihood per sample"
            f" gained less than tol={plan.tol:g} in block(s) {late}. Increase max_iter or tol, or"
            " set tol=0 if a fixed number of passes is what you want."
        )
    empty, collapsed = [], []
    for r, (health, samples) in enumerate(zip(run.health, data.samples, strict=True)):
        place = f"block {r}: " if len(run.health) > 1 else ""
        if health.empty.any():
            empty.append(place + _listed(np.flatnonzero(health.empty)))
        if health.collapsed.any() and plan.regularisers[r].floor < INTENDED_FLOOR:
            # Directions in which all of the data are constant are no fault of the kernels.
            guilty = np.flatnonzero(health.collapsed > _null_directions(plan, samples.X))
            if guilty.size:
                collapsed.append(place + _listed(guilty))
    if empty:
        yield (
            f"Kernels ran empty ({'; '.join(empty)}): no sample is left to them, their weights are"
            " zero to rounding and their means and covariances stay as they were. The model is"
            " valid without them. Use fewer components, another init, or for init='random' an"
            " init_range and init_scale that fit the scale of X."
        )
    if collapsed:
        yield (
            f"Kernels collapsed in some direction ({'; '.join(collapsed)}): the samples left to"
            f" them do not vary there, and {plan.regularisers[0].floor:g} times the variance of"
            " the data stands in. Use fewer components, a larger reg_covar such as 0.01,"
            " shrinkage, or covariance_type='tied' or 'diag'."
        )


def _null_directions(plan: Plan, X: FloatArray) -> int:
    """Directions of a block in which the data as a whole do not vary."""
    second = np.zeros((len(X), len(X)))  # about the mean, which standardised data have at zero
    for low in range(0, X.shape[1], CHUNK):
        part = X[:, low : low + CHUNK].astype(np.float64, copy=False)
        second += part @ part.T
    total = plan.structure.compact(second[None] / X.shape[1])
    return int(plan.structure.floor(total, plan.regularisers[0].floor).n_collapsed[0])


def _listed(indices: NDArray[np.intp]) -> str:
    shown = ", ".join(map(str, indices[:8]))
    return f"{len(indices)} of them: {shown}{', ...' if len(indices) > 8 else ''}"
