"""After EM: block weights, then discriminative passes, of which validation keeps the best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from pskem.engine._discriminative import Criterion, discriminative_passes
from pskem.engine._kernels import Kernels
from pskem.engine._parallel import Mapper
from pskem.structures import FloatArray
from pskem.training._holdout import Holdout, Verdict, judge, log_likelihoods
from pskem.training._loop import Data, Observer, Plan, Progress, Run, Snapshot
from pskem.training._weighting import Weighting, fit_weighting

__all__ = ["Refined", "Wishes", "refine", "unrefined"]


class Wishes(NamedTuple):
    """What to do after EM.

    fit_weights : whether to fit the block weights to the validation data
    passes : discriminative passes, at most
    smoothing : samples of EM's kernels that every discriminative pass adds (I-smoothing)
    choose : whether validation chooses among the passes
    """

    fit_weights: bool = False
    passes: int = 0
    smoothing: float = 0.0
    choose: bool = False

    def without_validation(self) -> Wishes:
        """The same where nothing could be held out."""
        return self._replace(fit_weights=False, choose=False)


class Refined(NamedTuple):
    """The outcome.

    model : kernels of the pass that is kept, with their weighting
    log_posteriors : sum_n log p(c_n|x_n) of the training samples, before the first discriminative
        pass and after each
    scores : validation accuracy of the same; empty if nothing was validated
    best : the pass that is kept; 0 is EM's result
    asked : whether an observer ended the passes
    """

    model: Snapshot
    log_posteriors: FloatArray
    scores: FloatArray
    best: int
    asked: bool


def unrefined(model: Snapshot) -> Refined:
    """EM's kernels as they are."""
    return Refined(model, np.empty(0), np.empty(0), 0, False)


def refine(
    wishes: Wishes,
    plan: Plan,
    data: Data,
    holdout: Holdout | None,
    log_prior: FloatArray,
    run: Run,
    parallel_map: Mapper,
    observe: Observer,
) -> Refined:
    """Fit what was wished for to the kernels that EM found."""
    kernels, weighting = run.kernels, plan.weighting
    if wishes.fit_weights:
        weighting = _fit(plan, kernels, holdout, parallel_map)
    # Whoever ended EM has ended the training, and one class has nothing to be told apart from.
    if wishes.passes == 0 or run.asked or len(log_prior) == 1:
        return unrefined(Snapshot(kernels, weighting, run.allowed))

    T = weighting.temperature
    criterion = Criterion(log_prior / T, weighting.weights / T)
    steps = discriminative_passes(
        plan.structure,
        data.samples,
        kernels,
        [regulariser.floor for regulariser in plan.regularisers],
        criterion,
        wishes.smoothing,
        parallel_map,
    )
    trace: list[float] = []
    verdicts: list[Verdict] = []
    kept, best, asked = kernels, 0, False
    for p, step in enumerate(islice(steps, wishes.passes + 1)):
        trace.append(step.criterion)
        if holdout is not None:
            structure = plan.structure
            verdicts.append(judge(structure, step.kernels, weighting, holdout, parallel_map))
        if not wishes.choose or p == 0 or verdicts[-1] > verdicts[best]:
            kept, best = step.kernels, p
        if p == 0:
            continue
        score = verdicts[-1].accuracy if verdicts else None
        model = Snapshot(step.kernels, weighting, run.allowed)
        asked = observe(Progress(0, p, model, step.criterion, score, discriminative=True))
        patience = plan.n_iter_no_change
        if asked or (wishes.choose and patience is not None and p - best >= patience):
            break
    if wishes.fit_weights and best:
        weighting = _fit(plan, kept, holdout, parallel_map)
    scores = np.array([verdict.accuracy for verdict in verdicts])
    model = Snapshot(kept, weighting, run.allowed)
    return Refined(model, np.array(trace), scores, best, asked)


def _fit(
    plan: Plan, kernels: Sequence[Kernels], holdout: Holdout | None, parallel_map: Mapper
) -> Weighting:
    assert holdout is not None  # whoever wishes for fitted weights has held out samples
    log_q = log_likelihoods(plan.structure, kernels, holdout, parallel_map)
    return fit_weighting(log_q, holdout.labels, holdout.log_prior)
