"""What models answer about the samples of a stream before they learn from them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Mapper
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._calibration import calibrate, calibrated
from pskem.training._holdout import REFERENCES, to_compare
from pskem.training._order import representative
from pskem.training._settings import Settings
from pskem.typicality import comparable_log_density

__all__ = ["Asked", "Window", "advantage", "ask"]

#: Samples whose answers are kept, and numbers that these have, at most.
MOST_ANSWERS, MOST_NUMBERS = 5000, 2**21
#: Samples of a part that are enough to leave those with other patterns of gaps out.
FEW = 10
#: What part of a stream the answers may be of: one of so many.
LATEST = 3
#: Answers from which on probabilities are calibrated by them.
ENOUGH_ANSWERS = 100
#: The share of the answers that must be new before they are calibrated by again.
ENOUGH_NEW = 0.1
#: What the log posterior of one sample may gain or lose, where models are compared.
MOST_GAIN = 1.0


class Asked(NamedTuple):
    """Samples of a part that a model was asked about, and its answers.

    X : (n, M); labels, counted : (n,), the true classes, and what the samples count
    log_q : (n, R, L), log likelihoods of the classes under the blocks
    densities : (k,), log p(x) of the first of them
    """

    X: FloatArray
    labels: NDArray[np.intp]
    counted: FloatArray
    log_q: FloatArray
    densities: FloatArray


def ask(
    model: Model,
    X: FloatArray,
    labels: NDArray[np.intp],
    counted: FloatArray,
    parallel_map: Mapper,
) -> Asked:
    """What a model makes of a part of a stream; enough of its samples stand for all."""
    some = representative(np.arange(len(X)), _most(len(model.blocks), len(model.classes)))
    # In no order, so that those of all classes leave alike when others come.
    some = np.random.default_rng(len(some)).permutation(some)
    log_q = model.log_likelihood(X[some], parallel_map)
    few = X[some[:REFERENCES]]
    densities = comparable_log_density(model, few[to_compare(model, few, FEW)], parallel_map)
    return Asked(X[some], labels[some], counted[some], log_q, densities)


def advantage(model: Model, other: Model, asked: Asked, parallel_map: Mapper) -> float:
    """By how many standard errors a model finds the true classes more probable than another."""
    heard = model.priors[asked.labels] > 0.0
    labels, counted = asked.labels[heard], asked.counted[heard]
    if len(labels) < 2:
        return 0.0
    own = np.arange(len(labels)), labels
    found = model.posterior_of(model.joint(asked.log_q[heard]))[own]
    gains = found - other.log_posterior(asked.X[heard], parallel_map)[own]
    gains = np.clip(gains, -MOST_GAIN, MOST_GAIN)  # one sample must not decide
    mean = counted @ gains / counted.sum()
    error = np.sqrt(counted**2 @ (gains - mean) ** 2) / counted.sum()
    return float(mean / error) if error > 0.0 else 0.0


class Window(NamedTuple):
    """The latest answers.

    log_q : (n, R, L), log likelihoods of the classes under the blocks
    labels, counted : (n,), the true classes, and what the samples count
    densities : (k,), log p(x) of samples, as many as stand for all
    fresh : how many of the answers came since probabilities were calibrated last
    """

    log_q: FloatArray
    labels: NDArray[np.intp]
    counted: FloatArray
    densities: FloatArray
    fresh: int = 0

    @classmethod
    def nobody(cls, n_blocks: int, n_classes: int) -> Window:
        """Before the first answer."""
        nothing = np.empty(0)
        return cls(np.empty((0, n_blocks, n_classes)), np.zeros(0, np.intp), nothing, nothing)

    def followed_by(self, asked: Asked, seen: float) -> Window:
        """With more answers, of a stream of which so many samples have been seen.

        Those of its first two thirds leave: the model knew less then.
        """
        n = len(asked.labels)
        most = min(_most(*self.log_q.shape[1:]), max(ENOUGH_ANSWERS, n, int(seen / LATEST)))
        return Window(
            np.concatenate([self.log_q, asked.log_q])[-most:],
            np.concatenate([self.labels, asked.labels])[-most:],
            np.concatenate([self.counted, asked.counted])[-most:],
            np.concatenate([self.densities, asked.densities])[-REFERENCES:],
            self.fresh + n,
        )

    def merge(self, other: Window) -> Window:
        """The latest answers of both."""
        most = _most(*self.log_q.shape[1:])
        labels = _latest(self.labels, other.labels, most)
        return Window(
            _latest(self.log_q, other.log_q, most),
            labels,
            _latest(self.counted, other.counted, most),
            _latest(self.densities, other.densities, REFERENCES),
            len(labels),
        )

    def tells(self, settings: Settings) -> bool:
        """Whether block weights and temperature are known well enough to learn by decisions."""
        return not isinstance(settings.block_weights, str) or len(self.labels) >= ENOUGH_ANSWERS

    def calibrated(self, model: Model, settings: Settings) -> tuple[Model, Window]:
        """The model with block weights, temperature and shares that suit the answers.

        As it is, if weights are given, or few answers are new.
        """
        few = len(self.labels) < ENOUGH_ANSWERS or self.fresh < ENOUGH_NEW * len(self.labels)
        if few or not isinstance(settings.block_weights, str):
            return model, self
        found = calibrate(self.log_q, self.labels, model.log_priors, self.counted)
        return calibrated(model, found), self._replace(fresh=0)


def _most(n_blocks: int, n_classes: int) -> int:
    """Answers that are kept."""
    return min(MOST_ANSWERS, max(ENOUGH_ANSWERS, MOST_NUMBERS // (n_blocks * n_classes)))


def _latest(one: NDArray[Any], two: NDArray[Any], most: int) -> NDArray[Any]:
    """The last entries of two arrays, as many of each if they are more than so many."""
    if len(one) + len(two) > most:
        half = most // 2
        one, two = one[-max(half, most - len(two)) :], two[-max(half, most - len(one)) :]
    return np.concatenate([one, two])
