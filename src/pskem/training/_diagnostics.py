"""How a training went, in words: its end, and what became of kernels that ran into trouble."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pskem.engine import second_moments
from pskem.model import Block
from pskem.structures import FloatArray
from pskem.training._arranging import Data
from pskem.training._loop import State
from pskem.training._planning import Plan
from pskem.training._refining import Refined

__all__ = ["describe_ending", "troubles"]

#: A floor as high as this is meant to be felt: that kernels reach it is no trouble.
INTENDED_FLOOR = 0.01
#: Features that a warning names at most.
NAMED = 5
#: Structures that have fewer parameters, and so collapse less easily.
SIMPLER = {
    "full": ("tied", "diag"),
    "diag": ("tied", "spherical"),
    "tied": ("diag",),
    "spherical": (),
}


def describe_ending(run: State, refined: Refined) -> str:
    """How a training ended, in a few words."""
    passes = run.iteration
    how = {"converged": "converged", "passes": "done"}.get(run.ended, "stopped")
    kept = f", pass {run.best_iter} kept" if run.best_iter != passes else ""
    text = f"{how} after {passes} pass{'es' if passes != 1 else ''}{kept}"
    if refined.iteration:
        text += f"; {refined.iteration} discriminative"
        if refined.best_iter != refined.iteration:
            text += f", number {refined.best_iter} kept"
    return text


def troubles(
    plan: Plan, data: Data, run: State, feature_names: Sequence[str] | None = None
) -> Iterator[str]:
    """One message per kind of trouble, with the remedy."""
    if plan.tol > 0.0 and run.ended == "passes":
        late = ", ".join(map(str, np.flatnonzero(~run.converged)))
        yield (
            f"max_iter={plan.max_iter} ended the training before the mean log likelihood per sample"
            f" gained less than tol={plan.tol:g} in block(s) {late}. Increase max_iter or tol, or"
            " set tol=0 if a fixed number of passes is what you want."
        )
    if plan.tried:  # it decided well, and nobody asked for so many kernels
        return
    places = [f"block {r}: " if len(run.best_health) > 1 else "" for r in range(len(plan.blocks))]
    empty = [
        place + _listed(np.flatnonzero(health.empty))
        for place, health in zip(places, run.best_health, strict=True)
        if health.empty.any()
    ]
    if empty:
        yield (
            f"Kernels ran empty ({'; '.join(empty)}): no sample is left to them, their weights are"
            " zero to rounding and their means and covariances stay as they were. The model is"
            " valid without them. Use fewer components, another init, or for init='random' a"
            " pskem.starts.Uniform that fits the scale of X."
        )
    yield from _collapses(plan, data, run, places, feature_names)


def _collapses(
    plan: Plan,
    data: Data,
    run: State,
    places: Sequence[str],
    feature_names: Sequence[str] | None,
) -> Iterator[str]:
    """What to say of kernels that collapsed, and of the features that made them."""
    floor = plan.regularisers[0].floor
    if floor >= INTENDED_FLOOR or not any(h.collapsed.any() for h in run.best_health):
        return
    collapsed: list[str] = []
    features: list[int] = []
    totals = second_moments(data.everyone)
    rows = zip(places, run.best_health, run.best.blocks, totals, strict=True)
    for place, health, block, total in rows:
        # Directions in which all of the data are constant are no fault of the kernels.
        structure = block.structure
        whole = structure.floor(structure.storage.compact(total[None]), floor).n_collapsed[0]
        guilty = np.flatnonzero(health.collapsed > whole)
        if guilty.size:
            collapsed.append(place + _listed(guilty))
            features += _flat_features(block, guilty, floor, np.diag(total))
    if not collapsed:
        return
    names = [str(f) if feature_names is None else repr(str(feature_names[f])) for f in features]
    named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
    simpler = SIMPLER[plan.structures[0].name]
    remedies = [
        f"Remove feature(s) that hardly vary within a class ({named})" if names else "",
        "use fewer components",
        "a larger reg_covar such as 0.01",
        "shrinkage='auto'" if plan.regularisers[0].shrinkage == 0.0 else "more shrinkage",
        f"covariance_type={' or '.join(map(repr, simpler))}" if simpler else "",
    ]
    *some, last = (remedy for remedy in remedies if remedy)
    advice = f"{', '.join(some)}, or {last}"
    yield (
        f"Kernels collapsed in some direction ({'; '.join(collapsed)}): the samples left to"
        f" them do not vary there, and {floor:g} times the variance of the data stands in."
        f" {advice[0].upper()}{advice[1:]}."
    )


def _flat_features(
    block: Block, kernels: NDArray[np.intp], floor: float, total: FloatArray
) -> list[int]:
    """Features that carry most of the directions in which kernels of a block collapsed."""
    means, covariances = block.kernels.gaussians
    dense = block.structure.storage.dense(covariances, *means.shape)
    counts = np.zeros(len(block.features))
    for k in kernels if block.structure.storage.per_kernel else [0]:
        values, vectors = np.linalg.eigh(dense[k])
        low = values <= floor * (1.0 + 1e-6)
        if low.all() and len(low) > 1:  # a point: no feature more than another
            continue
        loads = np.square(vectors[:, low]).sum(axis=1)
        # A feature that varies in all of the data, and alone makes up a direction, is at fault.
        counts += (loads > 0.9) & (total > 0.5)
    order = np.argsort(-counts, kind="stable")
    return [int(block.features[a]) for a in order if counts[a]]


def _listed(indices: NDArray[np.intp]) -> str:
    shown = ", ".join(map(str, indices[:8]))
    return f"{len(indices)} of them: {shown}{', ...' if len(indices) > 8 else ''}"
