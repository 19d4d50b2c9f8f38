"""How well a model classifies samples that it was not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import log_softmax

from pskem.engine import Batch, Gathered, Prepared, Source, Total, mix
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._weighting import Weighting, fit_weighting

__all__ = ["Verdict", "judge", "weigh_blocks"]


class Verdict(NamedTuple):
    """Accuracy first; of equals, the better probabilities."""

    accuracy: float
    mean_log_posterior: float


@dataclass(frozen=True)
class _Likelihoods:
    """log q_rj of a batch, (n, R, L), in standardised coordinates."""

    blocks: tuple[Prepared, ...]

    def __call__(self, batch: Batch) -> FloatArray:
        pairs = zip(self.blocks, batch.X, strict=True)
        parts = [mix(block.log_densities(X), block.kernels.weights).T for block, X in pairs]
        return np.stack(parts, axis=1)


def _likelihoods(model: Model, source: Source) -> _Likelihoods:
    return _Likelihoods(tuple(block.prepared(source.dtype) for block in model.blocks))


@dataclass(frozen=True)
class _Judge:
    """Samples, right decisions, and log posteriors of the true classes, summed."""

    model: Model
    likelihoods: _Likelihoods

    def __call__(self, batch: Batch) -> Total:
        joint = self.model.joint(self.likelihoods(batch))
        n, labels = np.arange(batch.n_samples), batch.labels
        log_posterior = log_softmax(joint / self.model.temperature, axis=1)[n, labels]
        # Samples of a class without prior are wrong whatever the model.
        possible = np.isfinite(self.model.log_priors)[labels]
        right = np.count_nonzero(joint.argmax(axis=1) == labels)
        return Total((np.array([len(n), right, log_posterior[possible].sum()]),))


def judge(model: Model, holdout: Source) -> Verdict:
    """How well the model does on held-out samples."""
    (found,) = holdout.fold(_Judge(model, _likelihoods(model, holdout))).arrays
    n, right, log_posterior = found.tolist()
    return Verdict(right / n, log_posterior / n)


@dataclass(frozen=True)
class _Gather:
    likelihoods: _Likelihoods

    def __call__(self, batch: Batch) -> Gathered:
        return Gathered(((self.likelihoods(batch).transpose(1, 2, 0), batch.labels),))


def weigh_blocks(model: Model, holdout: Source) -> Weighting:
    """Block weights and a temperature, fitted to held-out samples."""
    log_q, labels = holdout.fold(_Gather(_likelihoods(model, holdout))).arrays
    return fit_weighting(log_q.transpose(2, 0, 1), labels, model.log_priors)
