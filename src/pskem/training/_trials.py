"""Parts of the samples that models are asked about, after a training on the others.

Every sample is asked about once (cross-fitting), so that what is open can be decided by answers to
questions that a model has not seen, and nothing has to be held out in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.margins import Margins
from pskem.structures import FloatArray
from pskem.training._layout import fit_maps
from pskem.training._splitting import Samples, cross

__all__ = ["FEWEST_TO_TRY", "TOO_MANY_TO_TRY", "Answers", "Trial", "answers_of", "make_trials"]

#: Parts of the samples that are asked about in turn; from MANY samples on one of PARTS_OF_MANY is.
PARTS, PARTS_OF_MANY, MANY = 3, 5, 3000
#: Samples from which on nothing is tried, and a part of them held out.
TOO_MANY_TO_TRY = 20_000
#: Samples below which there is nothing to be learnt from parts of them.
FEWEST_TO_TRY = 20


class Trial(NamedTuple):
    """Samples to train on, and others that are asked about.

    weights : (n,), of the latter; None if each counts as one
    maps : of the features, from those that are trained on, if any form asks for them
    """

    samples: Samples
    X: FloatArray
    labels: NDArray[np.intp]
    weights: FloatArray | None
    maps: Margins | None


class Answers(NamedTuple):
    """What is right, for all samples that are asked about: labels (n,), and what each counts."""

    labels: NDArray[np.intp]
    counted: FloatArray

    def loss(self, log_posterior: FloatArray) -> float:
        """Mean negative log posterior of the true classes; those without prior have no say."""
        own = log_posterior[np.arange(len(self.labels)), self.labels]
        heard = np.isfinite(own)
        counted = self.counted[heard]
        return -float(counted @ own[heard] / max(counted.sum(), 1.0))


def answers_of(trials: Sequence[Trial]) -> Answers:
    """Of all trials, one after the other."""
    labels = np.concatenate([trial.labels for trial in trials])
    counted = [
        np.ones(len(trial.labels)) if trial.weights is None else trial.weights for trial in trials
    ]
    return Answers(labels, np.concatenate(counted))


def make_trials(samples: Samples, seed: int, mapped: bool) -> Iterator[Trial]:
    """Parts of the samples, to be asked about in turn; every class keeps some to be trained on.

    None if the samples are too few, or too many.
    """
    rows, _ = samples.different_rows()
    labels, total = samples.labels[rows.places], samples.counts(rows).sum()
    if not FEWEST_TO_TRY <= total < TOO_MANY_TO_TRY:
        return
    many = total >= MANY
    rng = np.random.default_rng([seed, 4])
    n_parts = PARTS_OF_MANY if many else PARTS
    dealt = cross(rows, labels, len(samples.classes), n_parts, rng, samples.class_weights)
    for kept, asked in islice(dealt, 1 if many else None):
        if asked.size:
            trained = samples._replace(
                X=samples.X[kept.places], labels=samples.labels[kept.places], weights=kept.weights
            )
            X, y = samples.X[asked.places], samples.labels[asked.places]
            yield Trial(trained, X, y, asked.weights, fit_maps(trained) if mapped else None)
