"""Stepwise EM: sums that go on from part to part of a stream, and the kernels that follow.

Between two M-steps of EM stands nothing but sums of sufficient statistics. In stepwise EM (Cappé &
Moulines, 2009; Liang & Klein, 2009) they are averaged over the parts of a stream,

    s <- (1 - eta) s + eta s_part,

and the M-step is taken on s after every part. Here s is kept as a sum that counts samples, so that
the same reads s <- gamma s + s_part. Decisions follow from what tells classes apart. So each part
adds, besides what its samples sum up to under their own classes, lambda times the difference to
what they sum up to under the posterior of the classes,

    s <- gamma s + s_own + lambda (s_own - s_posterior),

which climbs the log likelihood plus lambda times the log posterior of the true classes. It is a
step of extended Baum-Welch (see ``_discriminative``) whose D is the memory's mass over lambda.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._discriminative import LEAST_SHARE, reweigh, vanishing
from pskem.engine._em import Regulariser, maximise
from pskem.engine._kernels import Kernels, Prepared
from pskem.engine._moments import Frame, Moments, estimate, expect, rebase
from pskem.engine._statistics import Statistics
from pskem.structures import FloatArray, SecondMoments, Structure

__all__ = ["Running", "Stepped", "remembered", "stepwise_pass"]

#: How often the contrast of a kernel is halved, at most, before it is left out.
MOST_HALVINGS = 40
#: What is left at least of a kernel, and of a class in it, that has had samples.
LEAST_MASS = 1e-100


class Running(NamedTuple):
    """What samples sum up to in one block, over several passes.

    masses : (L, K), of the kernels in each class
    moments : of the kernels, about places near their means
    """

    masses: FloatArray
    moments: Moments

    @property
    def totals(self) -> FloatArray:
        """What the samples of each class count, (L,)."""
        return self.masses.sum(axis=1)

    def times(self, factor: float) -> Running:
        """The same where every sample counts so many times as much."""
        factors = np.full(len(self.moments.masses), factor)
        return Running(factor * self.masses, _scaled(self.moments, factors, factor))

    def fading(self, kept: float) -> Running:
        """What is left of it; a class that has come stays one that has, however long ago."""
        counts = self.moments.masses
        factors = np.full(len(counts), kept)
        old = (counts > 0.0) & (kept * counts < LEAST_MASS)
        factors[old] = np.minimum(1.0, LEAST_MASS / counts[old])
        moments = _scaled(self.moments, factors, kept)
        least = LEAST_MASS * (self.masses > 0.0)
        return Running(np.maximum(factors * self.masses, least), moments)

    def merge(self, other: Running) -> Running:
        """The same for more samples, in the same frame."""
        return Running(self.masses + other.masses, self.moments.merge(other.moments))

    def about(self, structure: Structure, means: FloatArray) -> Running:
        """The same about other places, (K, m), where few digits cancel."""
        return self._replace(moments=rebase(structure, self.moments, Frame(means, None)))

    def with_kernels(self, means: FloatArray) -> Running:
        """The same with more kernels, at these means (k, m), that no sample has gone to."""
        L, found, k = len(self.masses), self.moments, len(means)
        own, common = found.second
        moments = Moments(
            np.append(found.masses, np.zeros(k)),
            np.vstack([found.first, np.zeros_like(means)]),
            SecondMoments(np.vstack([own, np.zeros((k, own.shape[1]))]), common),
            found.frame._replace(origins=np.vstack([found.frame.origins, means])),
        )
        return Running(np.hstack([self.masses, np.zeros((L, k))]), moments)

    def split(self, structure: Structure, k: int, offset: FloatArray) -> Running:
        """The same where the samples of a kernel are halved between it and one more.

        One half lies by an offset (m,) above the mean, the other below, and both are narrower by as
        much: together they have the moments that the kernel had.
        """
        masses, found = self.masses.copy(), self.moments
        masses[:, k] *= 0.5
        n = found.masses[k]
        mean = found.first[k] / n if n > 0.0 else np.zeros_like(offset)
        cross = structure.products(np.array([n]), mean[None], offset[None]).own
        own = found.second.own
        halves = 0.5 * own[[k]] + cross, 0.5 * own[[k]] - cross
        first = 0.5 * (found.first[k] + n * offset), 0.5 * (found.first[k] - n * offset)
        rows = np.arange(len(found.masses)) == k
        moments = Moments(
            np.append(np.where(rows, 0.5 * n, found.masses), 0.5 * n),
            np.vstack([np.where(rows[:, None], first[0], found.first), first[1]]),
            SecondMoments(
                np.vstack([np.where(rows[:, None], halves[0], own), halves[1]]),
                found.second.common,
            ),
            found.frame._replace(origins=np.vstack([found.frame.origins, found.frame.origins[k]])),
        )
        return Running(np.hstack([masses, masses[:, [k]]]), moments)

    def gathered(
        self, structure: Structure, places: NDArray[np.intp], origins: FloatArray
    ) -> Running:
        """The same where each kernel's samples go to one of others, (K,), at these origins."""
        found = rebase(structure, self.moments, Frame(origins[places], None))
        K, (own, common) = len(origins), found.second
        masses = np.zeros((len(self.masses), K))
        np.add.at(masses.T, places, self.masses.T)
        counts, first = np.zeros(K), np.zeros_like(origins)
        second = np.zeros((K, own.shape[1]))
        for total, part in ((counts, found.masses), (first, found.first), (second, own)):
            np.add.at(total, places, part)
        frame = Frame(origins, None)
        return Running(masses, Moments(counts, first, SecondMoments(second, common), frame))

    def joined(
        self,
        structure: Structure,
        other: Running,
        common: Running,
        before: Kernels,
        regulariser: Regulariser,
    ) -> Running:
        """The samples of both, but once those that they have in common.

        Under a contrast sums need not be those of samples. Where too little would be left of a
        kernel, it is the mean of both.
        """
        home = self.moments.frame.origins
        both = self.merge(other.about(structure, home))
        total = both.merge(common.about(structure, home).times(-1.0))
        # As many samples as in the total, with the moments of both.
        ratio = np.maximum(total.totals, 0.0) / np.where(both.totals > 0.0, both.totals, 1.0)
        masses = ratio[:, None] * both.masses
        gaussians = estimate(structure, both.moments)
        frame = both.moments.frame
        mean = Running(masses, expect(structure, gaussians, masses.sum(axis=0), frame))
        plain, _ = maximise(structure, before, *mean, regulariser)
        kernels, _ = maximise(structure, before, *_nowhere_negative(total), regulariser)
        bad = vanishing(structure, kernels.gaussians, plain.gaussians)
        bad = bad | (total.masses < 0.0).any(axis=0) | (total.moments.masses < 0.0)
        if not bad.any():
            return total
        if not structure.storage.per_kernel:
            return mean
        return Running(
            np.where(bad, mean.masses, total.masses),
            Moments(
                np.where(bad, mean.moments.masses, total.moments.masses),
                np.where(bad[:, None], mean.moments.first, total.moments.first),
                SecondMoments(
                    np.where(bad[:, None], mean.moments.second.own, total.moments.second.own),
                    total.moments.second.common,
                ),
                frame,
            ),
        )


def _nowhere_negative(running: Running) -> Running:
    """Sums whose masses are zero where they would be negative."""
    moments = running.moments
    return Running(
        np.maximum(running.masses, 0.0), moments._replace(masses=np.maximum(moments.masses, 0.0))
    )


def remembered(structure: Structure, kernels: Kernels, totals: FloatArray) -> Running:
    """What so many samples of each class, (L,), sum up to on average if these kernels drew them."""
    masses = totals[:, None] * kernels.weights
    frame = Frame(kernels.means, None)
    return Running(masses, expect(structure, kernels.gaussians, masses.sum(axis=0), frame))


class Stepped(NamedTuple):
    """Sums and kernels of a block after a part; ``plain`` are those without its contrast."""

    running: Running
    kernels: Kernels
    plain: Kernels


def stepwise_pass(
    prepared: Prepared,
    memory: Running,
    own: Statistics,
    regulariser: Regulariser,
    contrast: Statistics | None = None,
    weight: float = 0.0,
) -> Stepped:
    """What becomes of a block when one more part of a stream comes.

    Parameters
    ----------
    prepared : the kernels with which the part was evaluated
    memory : what the parts before sum up to, by what they count now
    own, contrast : of the part, under the target of EM and of discriminative passes
    weight : lambda; it is halved for kernels of which too little would be left
    """
    structure, before = prepared.structure, prepared.kernels
    home = memory.moments.frame
    found = rebase(structure, own.moments(prepared), home)
    base = memory.merge(Running(own.gained, found))
    kernels, _ = maximise(structure, before, *base, regulariser)
    plain = kernels
    if contrast is not None and weight > 0.0:
        raised = rebase(structure, contrast.moments(prepared), home)
        base = _contrasted(structure, before, base, raised, contrast, plain, regulariser, weight)
        kernels, _ = maximise(structure, before, *base, regulariser)
    return Stepped(base.about(structure, kernels.means), kernels, plain)


def _contrasted(
    structure: Structure,
    before: Kernels,
    base: Running,
    raised: Moments,
    contrast: Statistics,
    plain: Kernels,
    regulariser: Regulariser,
    weight: float,
) -> Running:
    """Sums with those under the contrast, (own class minus posterior), so many times.

    They count as many samples as they did before: a contrast moves means, covariances and weights.
    ``plain`` are the kernels without it. Of their covariances a tenth is left at least.
    """
    weights = reweigh(
        before.weights, base.masses + weight * contrast.gained, weight * contrast.lost
    )
    counts = base.moments.masses
    masses = np.where(base.totals[:, None] > 0.0, base.totals[:, None] * weights, base.masses)
    share = np.where(counts > 0.0, weight, 0.0)
    for _ in range(MOST_HALVINGS):
        if not structure.storage.per_kernel:  # what is common cannot be shared out
            share[:] = share.min(where=counts > 0.0, initial=weight)
        total = base.moments.merge(_scaled(raised, share, float(share[0])))
        left = (total.masses > LEAST_SHARE * counts) | (counts <= 0.0)
        total = total._replace(masses=np.where(left, total.masses, counts))
        gaussians = estimate(structure, total)
        found = expect(structure, gaussians, masses.sum(axis=0), total.frame)
        kernels, _ = maximise(structure, before, masses, found, regulariser)
        bad = vanishing(structure, kernels.gaussians, plain.gaussians) | ~left
        if not bad.any():
            return Running(masses, found)
        share = np.where(bad, 0.5 * share, share)
    return base


def _scaled(moments: Moments, factors: FloatArray, of_common: float) -> Moments:
    """Moments of which each kernel's count so many times, (K,), and what is common as well."""
    own, common = moments.second
    second = SecondMoments(factors[:, None] * own, of_common * common)
    return Moments(
        factors * moments.masses, factors[:, None] * moments.first, second, moments.frame
    )
