"""After EM: block weights, then discriminative passes, of which validation keeps the best."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from pskem.discriminative import Criterion, discriminative_passes
from pskem.kernels import Kernels, prepare
from pskem.likelihood import block_log_likelihood
from pskem.parallel import Mapper
from pskem.samples import CHUNK
from pskem.structures import FloatArray, Structure
from pskem.training import Data, Holdout, Observer, Plan, Progress
from pskem.weighting import Weighting, fit_weighting

__all__ = ["Refined", "Wishes", "refine", "unrefined"]


class Wishes(NamedTuple):
    """What to do after EM.

    block_weights : (R,), given; None is all ones, or fitted
    fit_weights : whether to fit the block weights to the validation data
    passes : discriminative passes, at most
    smoothing : samples of EM's kernels that every discriminative pass adds (I-smoothing)
    choose : whether validation chooses among the passes
    """

    block_weights: FloatArray | None = None
    fit_weights: bool = False
    passes: int = 0
    smoothing: float = 0.0
    choose: bool = False

    def without_validation(self) -> Wishes:
        """The same where nothing could be held out."""
        return self._replace(fit_weights=False, choose=False)


class Refined(NamedTuple):
    """The outcome.

    kernels : one per block, of the pass that is kept
    weighting : block weights and temperature
    log_posteriors : sum_n log p(c_n|x_n) of the training samples, before the first discriminative
        pass and after each
    scores : validation accuracy of the same; empty if nothing was validated
    best : the pass that is kept; 0 is EM's result
    asked : whether an observer ended the passes
    """

    kernels: Sequence[Kernels]
    weighting: Weighting
    log_posteriors: FloatArray
    scores: FloatArray
    best: int
    asked: bool


def unrefined(kernels: Sequence[Kernels]) -> Refined:
    """EM's result as it is."""
    ones = Weighting(np.ones(len(kernels)), 1.0)
    return Refined(kernels, ones, np.empty(0), np.empty(0), 0, False)


class _Verdict(NamedTuple):
    """Accuracy first; of equals, the better probabilities."""

    accuracy: float
    mean_log_posterior: float


def refine(
    wishes: Wishes,
    plan: Plan,
    data: Data,
    holdout: Holdout | None,
    log_prior: FloatArray,
    kernels: Sequence[Kernels],
    parallel_map: Mapper,
    observe: Observer,
) -> Refined:
    """Fit what was wished for to the kernels that EM found."""
    R = len(kernels)
    weighting = Weighting(np.ones(R) if wishes.block_weights is None else wishes.block_weights, 1.0)
    if wishes.fit_weights:
        weighting = _fit(plan, kernels, holdout, parallel_map)
    if wishes.passes == 0:
        return Refined(kernels, weighting, np.empty(0), np.empty(0), 0, False)

    T = weighting.temperature
    criterion = Criterion(log_prior / T, weighting.weights / T)
    steps = discriminative_passes(
        plan.structure,
        data.samples,
        kernels,
        plan.regularisers,
        criterion,
        wishes.smoothing,
        parallel_map,
    )
    trace: list[float] = []
    verdicts: list[_Verdict] = []
    kept, best, asked = kernels, 0, False
    for p, step in enumerate(islice(steps, wishes.passes + 1)):
        trace.append(step.criterion)
        if holdout is not None:
            verdicts.append(_judge(plan, step.kernels, weighting, holdout, parallel_map))
        if not wishes.choose or p == 0 or verdicts[-1] > verdicts[best]:
            kept, best = step.kernels, p
        if p == 0:
            continue
        score = verdicts[-1].accuracy if verdicts else None
        asked = observe(Progress(0, p, step.kernels, step.criterion, score, True, weighting))
        patience = plan.n_iter_no_change
        if asked or (wishes.choose and patience is not None and p - best >= patience):
            break
    if wishes.fit_weights and best:
        weighting = _fit(plan, kept, holdout, parallel_map)
    scores = np.array([verdict.accuracy for verdict in verdicts])
    return Refined(kept, weighting, np.array(trace), scores, best, asked)


def _fit(
    plan: Plan, kernels: Sequence[Kernels], holdout: Holdout | None, parallel_map: Mapper
) -> Weighting:
    assert holdout is not None  # whoever wishes for fitted weights has held out samples
    log_q = _log_likelihoods(plan.structure, kernels, holdout, parallel_map)
    return fit_weighting(log_q, holdout.labels, holdout.log_prior)


def _judge(
    plan: Plan,
    kernels: Sequence[Kernels],
    weighting: Weighting,
    holdout: Holdout,
    parallel_map: Mapper,
) -> _Verdict:
    log_q = _log_likelihoods(plan.structure, kernels, holdout, parallel_map)
    joint = weighting.joint(log_q, holdout.log_prior)
    n, labels = np.arange(len(holdout.labels)), holdout.labels
    log_posterior = log_softmax(joint / weighting.temperature, axis=1)[n, labels]
    fit = float(log_posterior[np.isfinite(holdout.log_prior)[labels]].sum()) / len(n)
    return _Verdict(float(np.mean(joint.argmax(axis=1) == labels)), fit)


def _log_likelihoods(
    structure: Structure, kernels: Sequence[Kernels], holdout: Holdout, parallel_map: Mapper
) -> FloatArray:
    """log q_rj of the validation samples, (n, R, L), in standardised coordinates."""
    pairs = zip(kernels, holdout.X, strict=True)
    prepared = [prepare(structure, theta, X.dtype) for theta, X in pairs]
    n, R = len(holdout.labels), len(prepared)
    result = np.empty((n, R, len(holdout.log_prior)))

    def fill(task: tuple[int, int]) -> None:
        r, low = task
        rows = slice(low, low + CHUNK)
        result[rows, r] = block_log_likelihood(structure, prepared[r], holdout.X[r][:, rows]).T

    parallel_map(fill, product(range(R), range(0, n, CHUNK)))
    return result
