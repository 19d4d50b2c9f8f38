"""One training, by its plan; and again on all samples, once those that were held out have chosen.

The second training goes on from the kernels that EM found in the first, with as many discriminative
passes of the same kind as validation kept, and its probabilities are calibrated like those of the
first. From a new start EM might end elsewhere, in an optimum of which the held-out samples have
said nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pskem.engine import Mapper
from pskem.margins import Margins
from pskem.model import Model
from pskem.training._arranging import Data, arrange
from pskem.training._journal import NO_PAGE, Page
from pskem.training._loop import Observer, State, Trainer, train
from pskem.training._planning import Plan, make_plan
from pskem.training._refining import Refined, Refiner, refine
from pskem.training._settings import Settings
from pskem.training._splitting import Samples

__all__ = ["Trained", "better", "perform", "perform_again", "plan_again"]

#: Standard errors from which on a loss is no noise.
NOISE = 2.0


class Trained(NamedTuple):
    """A training that was performed."""

    plan: Plan
    run: State
    refined: Refined

    @property
    def stopped(self) -> bool:
        """Whether somebody asked for its end."""
        return "asked" in (self.run.ended, self.refined.ended)

    @property
    def to_repeat(self) -> bool:
        """Whether all samples are to be trained on now."""
        return self.plan.refinement.repeat and not self.stopped


def perform(
    plan: Plan,
    samples: Samples,
    parallel_map: Mapper,
    observe: Observer,
    rule: Model | None = None,
    page: Page = NO_PAGE,
) -> tuple[Data, Trained]:
    """A training and its samples, in batches.

    rule : by whose block weights and temperature discriminative passes go, if they are not fitted
    page : where it is written down
    """
    data = arrange(plan, samples, parallel_map)
    trainer = Trainer(plan, data, parallel_map)
    run = train(trainer, samples.classes, samples.priors, observe, page)
    if rule is not None:
        run = run._replace(best=run.best.weighed(rule.block_weights, rule.temperature))
    refined = refine(Refiner(plan, data, parallel_map), run, observe, page)
    return data, Trained(plan, run, refined)


def plan_again(
    settings: Settings, samples: Samples, first: Trained, seed: int, maps: Margins | None
) -> Plan:
    """The plan of a training on all samples that goes on from EM's kernels of the first."""
    settings = settings._replace(
        early_stopping=False,
        block_weights=first.plan.block_weights,
        discriminative_iter=first.refined.best_iter,
    )
    plan = make_plan(settings, samples, first.run.best, seed, maps)
    growing = first.plan.refinement.growing
    return plan._replace(refinement=plan.refinement._replace(growing=growing))


def perform_again(
    plan: Plan,
    samples: Samples,
    first: Trained,
    parallel_map: Mapper,
    observe: Observer,
    page: Page = NO_PAGE,
) -> tuple[Data, Trained]:
    """The training on all samples, with the first's verdicts and calibration."""
    data, again = perform(plan, samples, parallel_map, observe, first.refined.model, page)
    before = first.refined.best
    shares = None if before.sharing is None else before.sharing.shares
    refined = again.refined._replace(
        best=again.refined.best.weighed(before.block_weights, before.temperature, shares),
        verdicts=first.refined.verdicts,
    )
    return data, again._replace(refined=refined)


def better(first: Trained, again: Trained, samples: Samples, parallel_map: Mapper) -> Trained:
    """The training on all samples, unless it is only a part of one, or has lost.

    It has lost if it answers worse, beyond noise, about the samples that were held out from the
    first: it has seen them, the first has not.
    """
    if again.stopped and again.refined.iteration < max(1, again.plan.refinement.passes):
        return first
    held_out = first.plan.held_out
    X, labels = samples.X[held_out.places], samples.labels[held_out.places]
    before, after = (
        one.refined.best.log_posterior(X, parallel_map)[np.arange(len(labels)), labels]
        for one in (first, again)
    )
    heard = np.isfinite(before) & np.isfinite(after)  # classes without prior have no say
    gains, counted = (after - before)[heard], held_out.counted[heard]
    lost = -float(counted @ gains)
    return first if lost > NOISE * np.sqrt(counted**2 @ gains**2) else again
