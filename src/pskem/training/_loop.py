"""EM as a loop over states: each is whole in itself, and the next one follows from it alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Health, Kernels, Mapper, Unlabelled, em_pass, keep_gains, reseed
from pskem.model import Block, Model
from pskem.starts import BlockSamples
from pskem.structures import FloatArray
from pskem.training._arranging import Data
from pskem.training._holdout import judge
from pskem.training._initial import initialise, look
from pskem.training._journal import NO_PAGE, Page
from pskem.training._planning import Plan

__all__ = ["Observer", "Progress", "State", "Trainer", "train", "unwatched"]

#: Passes of a run after which a block's empty kernels are put elsewhere, at most: those that keep
#: running empty are not needed.
MOST_RESEEDINGS = 3


class State(NamedTuple):
    """A training by EM after a pass.

    start : which of several starts it began from
    model : after the last pass
    health : of its kernels, one per block
    reseedings : how often each block may still put empty kernels elsewhere
    log_likelihoods : (passes, R), in the user's units, each before the pass's update
    joint : (passes,), the same of all blocks, and where some classes are not known log p of all
        samples, with their classes as far as these are known
    scores : (passes,), validation accuracy; empty if nothing is validated
    converged : (R,) bool, whether the last gain of the block's log likelihood was below tol
    best, best_health, best_iter : the pass that is kept, counted from 1
    ended : what ended the training: "converged", "patience", "passes", "asked"; empty if nothing
    """

    start: int
    model: Model
    health: tuple[Health, ...]
    reseedings: tuple[int, ...]
    log_likelihoods: FloatArray
    joint: FloatArray
    scores: FloatArray
    converged: NDArray[np.bool_]
    best: Model
    best_health: tuple[Health, ...]
    best_iter: int
    ended: str

    @property
    def iteration(self) -> int:
        """Passes that were made."""
        return len(self.log_likelihoods)

    @property
    def objective(self) -> float:
        """log p(X|C) or, where some classes are not known, log p of all that is known."""
        return float(self.joint[-1])

    @property
    def score(self) -> float | None:
        return float(self.scores[-1]) if len(self.scores) else None

    @property
    def discriminative(self) -> bool:
        return False

    def merit(self, early_stopping: bool) -> float:
        """What the best of several starts has most of.

        Validation data that are only watched must not choose anything.
        """
        return float(self.scores[self.best_iter - 1]) if early_stopping else self.objective


class Progress(Protocol):
    """What every state of a training has, after a pass of EM or a discriminative one.

    start : which of several starts it began from
    iteration : passes that were made, of its kind
    objective : log p of all samples, or sum_n log p(c_n|x_n) in discriminative passes
    score : validation accuracy, if anything is validated
    """

    @property
    def start(self) -> int: ...
    @property
    def model(self) -> Model: ...
    @property
    def iteration(self) -> int: ...
    @property
    def objective(self) -> float: ...
    @property
    def score(self) -> float | None: ...
    @property
    def discriminative(self) -> bool: ...


#: Sees a state after every pass; True asks for the training to stop.
Observer = Callable[[Progress], bool]


def unwatched(state: Progress) -> bool:
    """An observer that asks for nothing."""
    return False


class Trainer(NamedTuple):
    """EM on the samples of a plan."""

    plan: Plan
    data: Data
    parallel_map: Mapper

    def begin(self, model: Model, start: int) -> State:
        """The state before the first pass."""
        R = len(model.blocks)
        nothing = tuple(
            Health(np.zeros(0, dtype=bool), np.zeros(0, dtype=np.intp)) for _ in range(R)
        )
        again = MOST_RESEEDINGS if self.plan.reseed else 0
        left = tuple(again if structure.standardised else 0 for structure in self.plan.structures)
        trace, none = np.empty((0, R)), np.empty(0)
        unknown = np.zeros(R, dtype=bool)
        made = (trace, none, none, unknown, model, nothing, 0)
        return State(start, model, nothing, left, *made, "" if self.plan.max_iter else "passes")

    def advance(self, state: State) -> State:
        """The state after one more pass."""
        plan, data, before = self.plan, self.data, state.model
        others = None
        if data.unlabelled is not None:
            others = Unlabelled(data.unlabelled, before.log_priors)
        step = em_pass(
            plan.structures,
            data.source,
            before.kernels,
            plan.regularisers,
            self.parallel_map,
            others,
        )
        updated, health, left = self._mend(state, step.kernels, step.health)
        model = before.with_kernels(updated)
        if plan.learn_priors:
            masses = data.source.masses + step.posterior_masses
            model = replace(model, priors=masses / masses.sum())
        trace = np.vstack([state.log_likelihoods, step.log_likelihoods - data.log_volumes])
        joint = np.append(state.joint, trace[-1].sum() + self._rest(before, step.unlabelled))
        scores, converged = state.scores, state.converged
        if len(trace) > 1 and plan.tol > 0.0:
            # A fall, which rounding can cause, is no convergence either. Blocks that samples of
            # unknown classes couple converge together.
            gains = np.diff(trace[-2:], axis=0)[0] if others is None else np.diff(joint[-2:])
            converged = np.broadcast_to(np.abs(gains) / data.total < plan.tol, converged.shape)
        if data.holdout is not None and data.watched:
            scores = np.append(scores, judge(model, data.holdout).accuracy)
        kept = (state.best, state.best_health, state.best_iter)
        if not plan.early_stopping or scores[-1] > scores[:-1].max(initial=-np.inf):
            kept = (model, health, len(trace))
        ended = self._ending(len(trace), kept[-1], bool(converged.all()))
        made = (trace, joint, scores, converged)
        return State(state.start, model, health, left, *made, *kept, ended)

    def _rest(self, model: Model, unlabelled: float) -> float:
        """What the joint likelihood has besides log p(X|C), where some classes are not known."""
        if self.data.unlabelled is None:
            return 0.0
        masses = self.data.source.masses
        own = float(masses @ np.where(masses > 0.0, model.log_priors, 0.0))
        return own + unlabelled - self.data.unlabelled_volume

    def _ending(self, passes: int, best_iter: int, converged: bool) -> str:
        plan = self.plan
        if converged:
            return "converged"
        waited = plan.patience is not None and passes - best_iter >= plan.patience
        if plan.early_stopping and waited:
            return "patience"
        return "passes" if passes >= plan.max_iter else ""

    def _mend(
        self, state: State, kernels: Sequence[Kernels], health: Sequence[Health]
    ) -> tuple[list[Kernels], tuple[Health, ...], tuple[int, ...]]:
        """Put empty kernels elsewhere, in each block a few times."""
        mended, seen, left = list(kernels), list(health), list(state.reseedings)
        for r, block in enumerate(state.model.blocks):
            if left[r] and seen[r].empty.any():
                left[r] -= 1
                structure, before, empty = self.plan.structures[r], mended[r], seen[r].empty
                mended[r], still = reseed(
                    structure, before, self.data.seen, r, empty, block.allowed
                )
                if self.data.seen is not self.data.everyone:
                    source = self.data.source
                    mended[r], moved = keep_gains(structure, before, mended[r], source, r)
                    still = empty & ~moved
                seen[r] = seen[r]._replace(empty=still)
        return mended, tuple(seen), tuple(left)


def train(
    trainer: Trainer,
    classes: NDArray[Any],
    priors: FloatArray,
    observe: Observer,
    page: Page = NO_PAGE,
) -> State:
    """The best of ``n_init`` runs, each from where it was left if it has been begun."""
    plan = trainer.plan
    best: State | None = None
    first: Model | None = None
    for i in range(plan.n_init):
        model = _start_model(trainer, classes, priors, i)
        if first is not None and first.same_kernels(model):
            continue  # chance left nothing to decide
        first = first or model
        state = page.get(f"EM {i}") or trainer.begin(model, i)
        while not state.ended:
            state = trainer.advance(state)
            page.put(f"EM {i}", state)
            if observe(state):
                state = state._replace(ended="asked")
        if best is None or state.merit(plan.early_stopping) > best.merit(plan.early_stopping):
            best = state
        if state.ended == "asked":
            return best._replace(ended="asked")
    assert best is not None  # n_init >= 1
    return best


def _start_model(trainer: Trainer, classes: NDArray[Any], priors: FloatArray, i: int) -> Model:
    """The model with which the i-th run begins."""
    plan, coordinates = trainer.plan, trainer.data.coordinates
    # Blocks do not overlap, so the smallest feature tells a block apart whatever its place in the
    # list: permuted blocks get the same starts.
    generators = [
        np.random.default_rng([plan.seed, 2, i, int(features.min())]) for features in plan.blocks
    ]
    if all(part.complete for part in plan.fixed):  # nothing is left to be made from samples
        nothing = np.empty((0, 0)), np.zeros(0, dtype=np.intp), len(classes)
        seen = [BlockSamples(*nothing, place) for place in coordinates]
    else:
        lots = generators if plan.start.is_random else [None] * len(generators)
        seen = look(trainer.data.seen, coordinates, plan.n_components, lots, len(classes))
    make = partial(initialise, plan.start, plan.regularisers[0].floor)
    given = (plan.structures, seen, plan.n_components, plan.fixed, generators)
    kernels = trainer.parallel_map(make, *given)
    parts = zip(plan.blocks, kernels, coordinates, plan.structures, plan.readings, strict=True)
    blocks = tuple(
        Block(features, made, frame, structure, made.weights > 0.0, reading=reading)
        for features, made, frame, structure, reading in parts
    )
    return Model(blocks, classes, priors, plan.block_weights)
