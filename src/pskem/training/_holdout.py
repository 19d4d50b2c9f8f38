"""How well a model classifies samples that it was not trained on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Batch, Gathered, Mapper, Prepared, Source, Total, mix
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._order import distinct
from pskem.typicality import comparable_log_density

__all__ = ["Verdict", "judge", "reference_log_densities", "seen_by_blocks", "to_compare"]


class Verdict(NamedTuple):
    """Accuracy first; of equals, the better probabilities."""

    accuracy: float
    mean_log_posterior: float


def _ready(model: Model, source: Source) -> list[Prepared]:
    pairs = zip(model.blocks, source.patterns, strict=True)
    return [block.prepared(source.dtype, patterns) for block, patterns in pairs]


def _likelihoods(blocks: Sequence[Prepared], batch: Batch) -> FloatArray:
    """log q_rj of a batch, (n, R, L), in standardised coordinates."""
    pairs = zip(blocks, batch.X, strict=True)
    parts = [mix(block.log_densities(X), block.kernels.weights).T for block, X in pairs]
    return np.stack(parts, axis=1)


def _judge(model: Model, blocks: Sequence[Prepared], batch: Batch) -> Total:
    """Weights of samples, of right decisions, and log posteriors of the true classes, summed."""
    joint = model.joint(_likelihoods(blocks, batch))
    n, labels = np.arange(batch.n_samples), batch.labels
    log_posterior = model.posterior_of(joint)[n, labels]
    # Samples of a class without prior are wrong whatever the model.
    possible = np.isfinite(model.log_priors)[labels]
    weights = batch.known_weights
    right = weights[joint.argmax(axis=1) == labels].sum()
    gained = (weights * log_posterior)[possible].sum()
    return Total((np.array([weights.sum(), right, gained]),))


def judge(model: Model, holdout: Source) -> Verdict:
    """How well the model does on held-out samples."""
    (found,) = holdout.fold(partial(_judge, model, _ready(model, holdout))).arrays
    n, right, log_posterior = found.tolist()
    return Verdict(right / n, log_posterior / n)


def _gather(blocks: Sequence[Prepared], batch: Batch) -> Gathered:
    log_q = _likelihoods(blocks, batch).transpose(1, 2, 0)
    return Gathered(((log_q, batch.labels, batch.known_weights),))


def seen_by_blocks(
    model: Model, holdout: Source
) -> tuple[FloatArray, NDArray[np.intp], FloatArray, FloatArray]:
    """log q (n, R, L) of held-out samples, their labels, the log priors, their weights."""
    log_q, labels, weights = holdout.fold(partial(_gather, _ready(model, holdout))).arrays
    return log_q.transpose(2, 0, 1), labels, model.log_priors, weights


#: Samples that are enough to leave those with other patterns of gaps out.
ENOUGH = 100
#: Log densities that stand for those of all reference samples.
REFERENCES = 1001


#: Samples that a model was not trained on: X (n, M), labels (n,) and weights (n,), or None.
Unseen = tuple[FloatArray, NDArray[np.intp], FloatArray | None]


def reference_log_densities(
    pairs: Iterable[tuple[Model, Unseen]], parallel_map: Mapper
) -> FloatArray:
    """log p(x) of samples that models were not trained on, sorted; empty if there are none.

    Of those with the most frequent gaps too, if there are not enough without, as if they had none.
    Many, or weighted ones, are represented by quantiles.
    """
    parts = [_comparable(model, unseen, parallel_map) for model, unseen in pairs]
    if not parts:
        return np.empty(0)
    found, counted = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(found, kind="stable")
    found, counted = found[order], counted[order]
    if len(found) <= REFERENCES and (counted == 1.0).all():
        return found
    below = np.cumsum(counted) - 0.5 * counted
    return np.interp(np.linspace(below[0], below[-1], REFERENCES), below, found)


def _comparable(
    model: Model, unseen: Unseen, parallel_map: Mapper
) -> tuple[FloatArray, FloatArray]:
    """log p(x) of the different samples, and how much each counts."""
    X, labels, weights = unseen
    rows = distinct(X, labels, weights)
    rows = rows.at(to_compare(model, X[rows.places], ENOUGH))
    return comparable_log_density(model, X[rows.places], parallel_map), rows.counted


def to_compare(model: Model, X: FloatArray, enough: int) -> NDArray[np.intp]:
    """So many rows of X at least: those without gaps, then pattern by pattern, as each costs.

    Frequent patterns come first.
    """
    gaps = model.gaps(X) & ~model.unseen(X.shape[1])
    patterns, which, sizes = np.unique(gaps, axis=0, return_inverse=True, return_counts=True)
    order = np.lexsort((-sizes, patterns.any(axis=1)))
    needed = np.searchsorted(np.cumsum(sizes[order]), enough) + 1
    return np.flatnonzero(np.isin(which.reshape(-1), order[:needed]))
