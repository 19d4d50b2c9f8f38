"""After EM: block weights, then discriminative passes, of which validation keeps the best."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pskem.engine import DecisionRule, Kernels, Mapper, Pull, Step, assess, discriminative_pass
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._arranging import Data
from pskem.training._calibration import calibrate, calibrated
from pskem.training._holdout import Verdict, judge, seen_by_blocks
from pskem.training._journal import NO_PAGE, Page
from pskem.training._loop import Observer, State
from pskem.training._planning import Plan
from pskem.training._weighting import fit_weighting

__all__ = ["Refined", "Refiner", "refine"]


class Refined(NamedTuple):
    """A training after a discriminative pass, or as EM left it.

    model : after the last pass
    step : its statistics, and the size of the next step; None without discriminative passes
    log_posteriors : sum_n log p(c_n|x_n) of the training samples, less what a pull costs, before
        the first pass and after each; empty without discriminative passes
    verdicts : on the validation samples, of the same; empty if there are none
    best, best_iter : the pass that is kept; 0 is EM's result
    ended : what ended the passes: "optimum", "patience", "passes", "asked"; empty if nothing
    pull : what holds the kernels together; None if nothing does
    """

    start: int
    model: Model
    step: Step | None
    log_posteriors: FloatArray
    verdicts: tuple[Verdict, ...]
    best: Model
    best_iter: int
    ended: str
    pull: Pull | None = None

    @property
    def iteration(self) -> int:
        """Discriminative passes that were made."""
        return max(0, len(self.log_posteriors) - 1)

    @property
    def objective(self) -> float:
        """sum_n log p(c_n|x_n)."""
        return float(self.log_posteriors[-1])

    @property
    def score(self) -> float | None:
        return self.verdicts[-1].accuracy if self.verdicts else None

    @property
    def discriminative(self) -> bool:
        return True


class Refiner(NamedTuple):
    """Discriminative passes on the samples of a plan."""

    plan: Plan
    data: Data
    parallel_map: Mapper

    def begin(self, model: Model, start: int) -> Refined:
        """The state before the first pass."""
        structures, samples = self.plan.structures, self.plan.refinement.pull
        pull = Pull.toward(structures, _together(model), samples) if samples else None
        step = assess(
            structures, self.data.source, model.kernels, _rule(model), self.parallel_map, pull=pull
        )
        trace = np.array([step.criterion])
        return Refined(start, model, step, trace, self._verdict(model), model, 0, "", pull)

    def advance(self, state: Refined) -> Refined:
        """The state after one more pass."""
        refinement = self.plan.refinement
        assert state.step is not None
        step = discriminative_pass(
            self.plan.structures,
            self.data.source,
            state.step,
            [regulariser.floor for regulariser in self.plan.regularisers],
            _rule(state.model),
            self.parallel_map,
            state.pull,
            growing=refinement.growing,
        )
        if step is None:
            return state._replace(ended="optimum")
        model = state.model.with_kernels(step.kernels)
        state = state._replace(
            model=model,
            step=step,
            log_posteriors=np.append(state.log_posteriors, step.criterion),
            verdicts=state.verdicts + self._verdict(model),
        )
        p = state.iteration
        if not refinement.choose or state.verdicts[-1] > state.verdicts[state.best_iter]:
            state = state._replace(best=model, best_iter=p)
        patience = self.plan.patience
        if p >= refinement.passes:
            return state._replace(ended="passes")
        if refinement.choose and patience is not None and p - state.best_iter >= patience:
            return state._replace(ended="patience")
        return state

    def weighed(self, model: Model) -> Model:
        """The model with block weights and a temperature, if the plan fits them."""
        if not self.plan.refinement.fit_weights:
            return model
        assert self.data.holdout is not None  # a plan that fits weights has held out samples
        found = fit_weighting(*seen_by_blocks(model, self.data.holdout))
        return model.weighed(found.weights, found.temperature)

    def calibrated(self, model: Model) -> Model:
        """The same with shares, fitted together with them."""
        if not self.plan.refinement.fit_weights:
            return model
        assert self.data.holdout is not None
        return calibrated(model, calibrate(*seen_by_blocks(model, self.data.holdout)))

    def _verdict(self, model: Model) -> tuple[Verdict, ...]:
        return () if self.data.holdout is None else (judge(model, self.data.holdout),)


def _together(model: Model) -> list[Kernels]:
    """The kernels with their means where all classes together have theirs."""
    return [
        part._replace(means=np.tile(model.priors @ part.weights @ part.means, (len(part.means), 1)))
        for part in model.kernels
    ]


def _rule(model: Model) -> DecisionRule:
    T = model.temperature
    return DecisionRule(model.log_priors / T, model.block_weights / T)


def refine(refiner: Refiner, run: State, observe: Observer, page: Page = NO_PAGE) -> Refined:
    """Fit what the plan asks for to the kernels that EM found, from where that was left."""
    refinement = refiner.plan.refinement
    model = refiner.weighed(run.best)
    # Whoever ended EM has ended the training, and one class has nothing to be told apart from.
    if refinement.passes == 0 or run.ended == "asked" or len(model.classes) == 1:
        return Refined(run.start, model, None, np.empty(0), (), refiner.calibrated(run.best), 0, "")
    state = page.get("discriminative") or refiner.begin(model, run.start)
    while not state.ended:
        done = state.iteration
        state = refiner.advance(state)
        page.put("discriminative", state)
        if state.iteration > done and observe(state):
            state = state._replace(ended="asked")
    return state._replace(best=refiner.calibrated(state.best))
