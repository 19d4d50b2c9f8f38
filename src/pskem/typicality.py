"""Log densities of samples with gaps, made comparable with those of samples that lack nothing."""

from __future__ import annotations

import numpy as np

from pskem.engine import Mapper, serial_map
from pskem.model import Model
from pskem.structures import FloatArray

__all__ = ["comparable_log_density"]

#: Draws by which densities of fewer features are compared with those of all.
DRAWS = 2000
#: Below this quantile the draws are too few, and log densities are stretched as they are above it.
LOW = 0.01


def comparable_log_density(
    model: Model, X: FloatArray, parallel_map: Mapper = serial_map
) -> FloatArray:
    """log p(x_n), (N,), for rows with gaps as if they had all features that the model knows.

    The density of fewer features is a density in another space. Draws of the model tell what is
    usual there: a row that is as probable as a share of them, without the features that it lacks,
    gets the log density that this share has of the draws as they are. That is right as far as the
    model is.
    """
    log_p = model.log_density(X, parallel_map)
    rows = np.flatnonzero(model.lacking(X))
    if not len(rows):
        return log_p
    patterns, which = np.unique(model.gaps(X[rows]), axis=0, return_inverse=True)
    rng = np.random.default_rng(0)
    labels = rng.choice(len(model.classes), size=DRAWS, p=model.priors)
    draws, _ = model.draw(labels, X.shape[1], rng)
    usual = np.sort(model.log_density(draws, parallel_map))
    for v, pattern in enumerate(patterns):
        here = rows[which.reshape(-1) == v]
        own = np.sort(model.log_density(model.without(draws, pattern), parallel_map))
        log_p[here] = _translate(log_p[here], own, usual)
    return log_p


def _translate(values: FloatArray, own: FloatArray, usual: FloatArray) -> FloatArray:
    """Values from a sorted sample to the same place in another one; below both in proportion.

    Where the sample is all the same, that is usual, and what lies below it is as far below.
    """
    first, middle = int(LOW * len(own)), len(own) // 2
    width = own[middle] - own[first]
    translated, ratio = np.full(len(values), usual[middle]), 1.0
    if width > 0.0:
        translated = np.interp(values, own[first:], usual[first:])
        ratio = (usual[middle] - usual[first]) / width
    below = values < own[first]
    translated[below] = usual[first] + (values[below] - own[first]) * ratio
    return translated
