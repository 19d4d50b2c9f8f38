"""Validation samples, and how well kernels classify them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from pskem.engine._kernels import Kernels, prepare
from pskem.engine._mixing import block_log_likelihood
from pskem.engine._parallel import Mapper
from pskem.engine._sources import CHUNK
from pskem.structures import FloatArray, Structure
from pskem.training._weighting import Weighting

__all__ = ["Holdout", "Verdict", "judge", "log_likelihoods"]


class Holdout(NamedTuple):
    """Validation data, in the coordinates of each block, (m, n) each, labels (n,), log priors."""

    X: Sequence[FloatArray]
    labels: NDArray[np.intp]
    log_prior: FloatArray


class Verdict(NamedTuple):
    """Accuracy first; of equals, the better probabilities."""

    accuracy: float
    mean_log_posterior: float


def log_likelihoods(
    structure: Structure, kernels: Sequence[Kernels], holdout: Holdout, parallel_map: Mapper
) -> FloatArray:
    """log q_rj of the validation samples, (n, R, L), in standardised coordinates."""
    pairs = zip(kernels, holdout.X, strict=True)
    prepared = [prepare(structure, theta, X.dtype) for theta, X in pairs]
    n, R = len(holdout.labels), len(prepared)
    result = np.empty((n, R, len(holdout.log_prior)))

    def fill(task: tuple[int, int]) -> None:
        r, low = task
        rows = slice(low, low + CHUNK)
        result[rows, r] = block_log_likelihood(structure, prepared[r], holdout.X[r][:, rows]).T

    parallel_map(fill, product(range(R), range(0, n, CHUNK)))
    return result


def judge(
    structure: Structure,
    kernels: Sequence[Kernels],
    weighting: Weighting,
    holdout: Holdout,
    parallel_map: Mapper,
) -> Verdict:
    """How well the assembled classifier does on the validation samples."""
    log_q = log_likelihoods(structure, kernels, holdout, parallel_map)
    joint = weighting.joint(log_q, holdout.log_prior)
    n, labels = np.arange(len(holdout.labels)), holdout.labels
    log_posterior = log_softmax(joint / weighting.temperature, axis=1)[n, labels]
    # Samples of a class without prior are wrong whatever the model.
    fit = float(log_posterior[np.isfinite(holdout.log_prior)[labels]].sum()) / len(n)
    return Verdict(float(np.mean(joint.argmax(axis=1) == labels)), fit)
