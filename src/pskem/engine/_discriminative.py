"""Discriminative passes: raise the posterior probability of the true classes, not the likelihood.

Extended Baum-Welch (Gopalakrishnan et al., 1991; Normandin, 1991), as for maximum mutual
information in speech recognition (Povey & Woodland, 2002). The criterion is

    F = sum_n log p(c_n|x_n),  p(c|x) = softmax over c of log p(c) + sum_r beta_r log q_rc(x_r).

A pass takes the engine's additive statistics under the true class minus the same under the
posterior of the classes, and adds D_k samples that each kernel would have drawn itself. Then the
ordinary M-step applies: mu_k = (x_num - x_den + D_k mu_k) / (n_num - n_den + D_k), and likewise
for second moments. The result stays a proper shared kernel model.

Few samples are soon learnt by heart. A pull toward other kernels holds against that: tau more
samples that those have drawn, in every pass (I-smoothing, Povey & Woodland, 2002). What rises is
then F - tau sum_r beta_r sum_k KL(anchor_k || kernel_k).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._kernels import Kernels, Prepared, prepare, prepare_all
from pskem.engine._moments import Moments, estimate, expect
from pskem.engine._parallel import Mapper
from pskem.engine._sources import Source
from pskem.engine._statistics import Statistics, Summary, summarise
from pskem.engine._targets import Contrast, DecisionRule
from pskem.structures import FloatArray, Gaussians, Structure

__all__ = ["FIRST_STEP", "Pull", "Step", "assess", "discriminative_pass", "update"]

#: D_k in units of the kernel's mass under the posterior: at first, how much of that the next pass
#: has after one that raised F, and at least. Steps that grow as long as they can need half as many
#: passes.
FIRST_STEP, NEXT_STEP, LAST_STEP = 2.0, 0.7, 0.02
#: How often a step is halved (D doubled) before the passes end, and how often for positive
#: definite covariances.
MOST_HALVINGS = 10
MOST_DOUBLINGS = 40
#: Iterations that find weights of kernels, at most, and a change after which they have settled.
MOST_REWEIGHINGS, SETTLED = 100, 1e-12
TINY = float(np.finfo(np.float64).tiny)
#: No pass leaves a covariance below this share of what it was.
LEAST_SHARE = 0.1


class Pull(NamedTuple):
    """Samples that each kernel has besides, as if its anchor had drawn them.

    samples : tau
    anchors : one set of kernels for each block
    least : what the samples of each block are worth under the anchors themselves
    """

    samples: float
    anchors: tuple[Gaussians, ...]
    least: tuple[float, ...]

    @classmethod
    def toward(
        cls, structures: Sequence[Structure], kernels: Sequence[Kernels], samples: float
    ) -> Pull:
        """A pull toward kernels, one set for each block."""
        pull = cls(samples, tuple(part.gaussians for part in kernels), ())
        pairs = enumerate(zip(structures, kernels, strict=True))
        worth = (pull._worth(r, prepare(*pair, np.dtype(np.float64))) for r, pair in pairs)
        return pull._replace(least=tuple(worth))

    def moments(self, r: int, prepared: Prepared) -> Moments:
        """What the samples of a block sum up to, in the frame of its kernels."""
        counts = np.full(len(prepared.kernels.means), self.samples)
        return expect(prepared.structure, self.anchors[r], counts, prepared.frame)

    def penalty(self, r: int, prepared: Prepared) -> float:
        """tau sum_k KL(anchor_k || kernel_k) of a block."""
        return self.least[r] - self._worth(r, prepared)

    def _worth(self, r: int, prepared: Prepared) -> float:
        """The log likelihood of the samples of a block, each under its kernel."""
        moments, natural = self.moments(r, prepared), prepared.natural
        own, common = moments.second
        value = np.sum(natural.theta * np.hstack([own, moments.first]))
        value += moments.masses @ natural.constant
        return float(value - 0.5 * np.trace(common) if common.ndim else value)


@dataclass(frozen=True, eq=False, repr=False)
class Step:
    """Kernels of all blocks, their statistics and F under the contrast, and the step's size.

    penalty : for their distance from what they are pulled to
    prepared : the kernels made ready; follows from them, so files go without
    """

    kernels: list[Kernels]
    summary: Summary
    size: float
    penalty: float = 0.0
    prepared: tuple[Prepared, ...] | None = field(default=None, metadata={"derived": True})

    @property
    def criterion(self) -> float:
        """F, less the penalty."""
        return float(self.summary.value[0]) - self.penalty


def assess(
    structures: Sequence[Structure],
    source: Source,
    kernels: Sequence[Kernels],
    rule: DecisionRule,
    parallel_map: Mapper,
    size: float = FIRST_STEP,
    pull: Pull | None = None,
) -> Step:
    """Kernels as the first step of a discriminative training, or as a proposal."""
    prepared = prepare_all(structures, kernels, source, parallel_map)
    summary = summarise(source, prepared, Contrast(rule), parallel_map)
    penalty = 0.0
    if pull is not None:
        weighed = zip(rule.block_weights, prepared, strict=True)
        penalty = sum(float(b) * pull.penalty(r, block) for r, (b, block) in enumerate(weighed))
    return Step(list(kernels), summary, size, penalty, prepared)


def discriminative_pass(
    structures: Sequence[Structure],
    source: Source,
    step: Step,
    floors: Sequence[float],
    rule: DecisionRule,
    parallel_map: Mapper,
    pull: Pull | None = None,
    growing: bool = True,
) -> Step | None:
    """Kernels under which F, less the penalty, is higher, or None if none are found.

    If F falls, the step is taken back and D doubled. If it rises and steps are growing, the next
    pass begins with a smaller D. Blocks without weight stay as they are.
    """
    if not step.criterion < 0.0:
        return None
    prepared = step.prepared or prepare_all(structures, step.kernels, source, parallel_map)
    size = step.size
    held: list[Moments | None] = [None] * len(prepared)
    if pull is not None:
        held = [pull.moments(r, block) for r, block in enumerate(prepared)]
    for _ in range(MOST_HALVINGS):
        moved = parallel_map(partial(update, size), prepared, step.summary.blocks, floors, held)
        pairs = zip(rule.block_weights, moved, step.kernels, strict=True)
        kernels = [new if beta > 0.0 else old for beta, new, old in pairs]
        proposal = assess(structures, source, kernels, rule, parallel_map, size, pull)
        if proposal.criterion > step.criterion:
            return replace(proposal, size=max(NEXT_STEP * size, LAST_STEP) if growing else size)
        size *= 2.0
    return None


def update(
    step: float,
    prepared: Prepared,
    statistics: Statistics,
    floor: float,
    held: Moments | None = None,
) -> Kernels:
    """One step of extended Baum-Welch for a block, which moments of more samples may hold back.

    D_k begins at ``step`` times the mass under the posterior and is doubled until no variance
    falls below a tenth of what it was; weights go a part of the way that is smaller in the same
    measure. ``floor`` is the smallest eigenvalue of a covariance; shrinkage is for EM.
    """
    structure, before = prepared.structure, prepared.kernels
    found = statistics.moments(prepared)
    if held is not None:
        found = found.merge(held)
    lost = statistics.lost.sum(axis=0)
    least = 1e-12 * max(1.0, float(statistics.gained.sum()))
    D = step * lost + least
    means, covariances = before.gaussians
    for _ in range(MOST_DOUBLINGS):
        raised = found.merge(expect(structure, before.gaussians, D, prepared.frame))
        raised = raised._replace(masses=np.maximum(raised.masses, least))
        means, covariances = estimate(structure, raised)
        bad = vanishing(structure, Gaussians(means, covariances), before.gaussians)
        if not bad.any():
            break
        D = np.where(bad, 2.0 * D + least, D)
    else:
        means, covariances = before.gaussians
    covariances, _ = structure.floor(covariances, floor)
    means = structure.settle(means, np.ones(len(means)), 0.0)
    weights = reweigh(before.weights, statistics.gained, statistics.lost)
    part = min(1.0, FIRST_STEP / step)
    return Kernels(before.weights + part * (weights - before.weights), means, covariances)


def vanishing(structure: Structure, kernels: Gaussians, before: Gaussians) -> NDArray[np.bool_]:
    """Whether too little is left of kernels: (K,), or (1,) where a covariance is common.

    Of a covariance in some direction or, where there is none, of a probability.
    """
    if not kernels.covariances.size:
        return np.logical_or.reduce(kernels.means < LEAST_SHARE * before.means, axis=1)
    excess = kernels.covariances - LEAST_SHARE * before.covariances
    lifted = structure.floor(excess, 1e-12).covariances
    shape = (len(lifted), -1) if structure.storage.per_kernel else (1, -1)
    return np.logical_or.reduce((lifted != excess).reshape(shape), axis=1)


def reweigh(weights: FloatArray, gained: FloatArray, lost: FloatArray) -> FloatArray:
    """Weights that raise F: maximise sum_k gained log pi - lost pi / pi_before for each class.

    By the iteration of Povey and Woodland (2002), in which no weight becomes negative.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(weights > 0.0, lost / weights, 0.0)
    spare = slope.max(axis=1, keepdims=True) - slope
    pi = weights
    for _ in range(MOST_REWEIGHINGS):
        raised = gained + spare * pi
        totals = np.add.reduce(raised, axis=1, keepdims=True)
        before, pi = pi, np.where(totals > 0.0, raised / np.maximum(totals, TINY), pi)
        if np.abs(pi - before).max() < SETTLED:  # at once where classes have one kernel each
            break
    return np.where(weights > 0.0, pi, 0.0)
