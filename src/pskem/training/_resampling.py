"""Samples drawn with replacement, and what those that were left out say about a product.

What is drawn are lots: a row that counts three times has three of them, as if it stood there as
often. Lots follow the canonical order of rows, so that the order of the rows in X decides nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray
from pskem.training._exponents import fit_exponents
from pskem.training._order import distinct

__all__ = ["Lots", "draw_lots", "fit_left_out", "make_lots"]

#: Lots of a row at most; if it counts more often, each of them counts for more.
MOST_LOTS = 100
#: Weights are whole numbers up to this.
ROUNDING = 1e-9


class Lots(NamedTuple):
    """What is drawn: all (C,).

    places : rows of X
    labels : their classes; -1 where nobody knows them
    weights : how much a lot counts: 1 unless weights of samples are no whole numbers
    """

    places: NDArray[np.intp]
    labels: NDArray[np.intp]
    weights: FloatArray

    def sample_weight(self, drawn: NDArray[np.intp], n_samples: int) -> FloatArray:
        """Weights of the rows of X, (n_samples,), if lots were drawn so often, (C,)."""
        weights: FloatArray = np.zeros(n_samples)
        np.add.at(weights, self.places, drawn * self.weights)
        return weights


def make_lots(X: FloatArray, labels: NDArray[np.intp], weights: FloatArray | None) -> Lots:
    """Lots of the samples: X (N, M), labels (N,), weights (N,); none of rows without weight."""
    counting = np.arange(len(X)) if weights is None else np.flatnonzero(weights > 0.0)
    some = None if weights is None else weights[counting]
    rows = distinct(X[counting], labels[counting], some)
    number = np.clip(np.ceil(rows.counted - ROUNDING), 1, MOST_LOTS).astype(np.intp)
    places = np.repeat(counting[rows.places], number)
    return Lots(places, labels[places], np.repeat(rows.counted / number, number))


def draw_lots(lots: Lots, rng: np.random.Generator) -> NDArray[np.intp]:
    """How often each lot is drawn, (C,): as many as there are, with replacement.

    Every class keeps one at least.
    """
    C = len(lots.places)
    drawn = np.bincount(rng.integers(C, size=C), minlength=C)
    present = np.bincount(lots.labels[drawn > 0] + 1, minlength=int(lots.labels.max()) + 2)[1:]
    for j in np.flatnonzero(present == 0):
        drawn[rng.choice(np.flatnonzero(lots.labels == j))] = 1
    return drawn


def fit_left_out(
    log_posteriors: FloatArray,
    left_out: NDArray[np.bool_],
    labels: NDArray[np.intp],
    priors: FloatArray,
    counted: FloatArray,
) -> FloatArray:
    """Exponents of models in their product, (V,), by samples that each was not trained on.

    For a sample that a model was trained on, the mean of the models that were not stands for it.
    Samples that all models were trained on, or whose class has no prior, do not count. If no others
    are left, exponents are equal and sum to one.

    Parameters
    ----------
    log_posteriors : (V, n, L), read where samples were left out
    left_out : (V, n)
    labels : (n,), counted : (n,), how much each sample counts
    priors : (L,)
    """
    V = len(log_posteriors)
    heard = left_out.any(axis=0) & (priors[labels] > 0.0)
    if not heard.any():
        return np.full(V, 1.0 / V)
    terms, known = log_posteriors[:, heard], left_out[:, heard, None]
    mean = np.sum(terms, axis=0, where=known) / known.sum(axis=0)
    return fit_exponents(np.where(known, terms, mean), labels[heard], priors, counted[heard])
