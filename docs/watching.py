"""A default fit, and what each of its forms made of rows that it was not trained on.

All that docs/choosing.py uses of private modules of pskem is in this file. The fit is the usual
one; its choice is overheard where the exponents of the product are fitted.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

from pskem import SharedKernelClassifier
from pskem.model import Sharing, multiply
from pskem.structures import FloatArray
from pskem.training import _choosing, fit_exponents
from pskem.training._calibration import (
    FIRST_SHARE,
    SECOND_SHARE,
    SHARES,
    SMALLEST_SLOPE,
    Calibration,
    cross_entropy_of_shares,
)
from pskem.training._trials import answers_of
from pskem.training._weighting import FARTHEST_BEHIND, PULL_TEMPERATURE, platt_targets

__all__ = [
    "Calibration",
    "Rows",
    "View",
    "Watched",
    "fit_exponents",
    "fit_final",
    "fit_some",
    "posterior",
    "watch",
    "with_final",
]

#: An exponent that counts for nothing, and keeps a view in the product all the same.
NOTHING = 1e-12
#: Log odds from which shares are searched for, as the training does.
SEARCHES = (FIRST_SHARE, SECOND_SHARE)
#: Log odds of a share that is none.
NO_SHARE = -700.0


class Rows(NamedTuple):
    """Rows of the training that forms were asked about: labels (n,), and what each counts (n,)."""

    labels: NDArray[np.intp]
    counted: FloatArray
    priors: FloatArray


class View(NamedTuple):
    """A form that was kept, by its log likelihoods of the classes under its R blocks.

    proper : whether it is a density of the features, so that it could be the only view
    loss : of the rows that were asked about, by which forms are ranked
    calibration : as fitted by the training
    asked : (n, R, L), of the rows that were asked about, by the models of the trials
    tested : (n', R, L), of the test rows, by the model of all training rows
    by_trials : (n', R, L) each, of the test rows, by the models of the trials
    """

    proper: bool
    loss: float
    exponent: float
    calibration: Calibration
    asked: FloatArray
    tested: FloatArray
    by_trials: tuple[FloatArray, ...]


class Watched(NamedTuple):
    """A default fit: what it is, what it kept, and the rows that decided."""

    model: SharedKernelClassifier
    views: tuple[View, ...]
    rows: Rows


class _Heard(NamedTuple):
    """What the exponents are fitted to, and what they are, (V,)."""

    kept: Any
    trials: Any
    exponents: FloatArray


def watch(model: SharedKernelClassifier, X: Any, y: Any, X_test: Any) -> Watched:
    """Fit a model, and ask all that it kept about the test rows."""
    with _listening() as heard:
        model.fit(X, y)
    ((kept, trials, exponents),) = heard
    labels, counted = answers_of(trials)
    tested = _by_view(model, X_test)
    by_trials = []
    for models in zip(*(one.models for one in kept), strict=True):
        other = copy(model)
        other.model_ = multiply(models, [1.0] * len(models))
        by_trials.append(_by_view(other, X_test))
    views = []
    for v, one in enumerate(kept):
        pairs = zip(one.models, trials, strict=True)
        asked = np.concatenate([each.log_likelihood(trial.X) for each, trial in pairs])
        of_trials = tuple(found[v] for found in by_trials)
        proper, exponent = not one.settings.shape.recoded, float(exponents[v])
        views.append(View(proper, one.loss, exponent, one.calibration, asked, tested[v], of_trials))
    return Watched(model, tuple(views), Rows(labels, counted, model.model_.priors))


@contextmanager
def _listening() -> Iterator[list[_Heard]]:
    """Hear what fits choose; a view that counts for nothing is trained all the same."""
    heard: list[_Heard] = []
    fit = _choosing._exponents

    def overheard(kept: Any, trials: Any, *more: Any) -> FloatArray:
        found = fit(kept, trials, *more)
        heard.append(_Heard(kept, trials, found))
        return np.maximum(found, NOTHING)

    with mock.patch.object(_choosing, "_exponents", overheard):
        yield heard


def _by_view(model: SharedKernelClassifier, X: Any) -> list[FloatArray]:
    """Log likelihoods (n, R, L) under the blocks of each view."""
    log_q, views = model.block_log_likelihood(X), model.model_.views
    if views is None:
        return [log_q]
    return [log_q[:, np.equal(views, v)] for v in range(1 + max(views))]


def posterior(log_q: FloatArray, calibration: Calibration, priors: FloatArray) -> FloatArray:
    """Log probabilities of the classes (n, L)."""
    mixed = Sharing(calibration.shares, priors).apply(log_q)
    joint = np.tensordot(mixed, calibration.weights, (1, 0)) + np.log(priors)
    return log_softmax(joint / calibration.temperature, axis=1)


def fit_some(log_q: FloatArray, rows: Rows, weights: bool, shares: bool) -> Calibration:
    """A temperature, with or without weights of blocks and shares, fitted like all of them.

    Shares bound what a block can say against a class. Without them, a row whose class is thousands
    behind would decide alone, so that it is bounded as in `fit_weighting`, in the fit alone.
    """
    R = log_q.shape[1]
    labels, counted, priors = rows
    relative = log_q - log_q.max(axis=2, keepdims=True)
    if not shares:
        typical = np.median(-relative.min(axis=2), axis=0)
        relative = np.maximum(relative, -FARTHEST_BEHIND * np.maximum(typical, 1.0)[:, None])
    q = np.exp(relative).transpose(1, 0, 2)
    pool = (q * priors).sum(axis=2, keepdims=True)
    targets = platt_targets(labels, np.log(priors), counted)

    def whole(a: FloatArray) -> FloatArray:
        """beta_r / T, the log odds of e_r, 1 / T."""
        slopes = a[:R] if weights else np.repeat(a[-1], R)
        return np.concatenate([slopes, a[-1 - R : -1] if shares else np.full(R, NO_SHARE), a[-1:]])

    def objective(a: FloatArray) -> tuple[float, FloatArray]:
        given = (q, pool, np.log(priors), targets, counted)
        loss, slope = cross_entropy_of_shares(whole(a), *given)
        off = a[-1] - 1.0
        last = slope[-1] + PULL_TEMPERATURE * off + (0.0 if weights else slope[:R].sum())
        parts = [slope[:R]] * weights + [slope[R:-1]] * shares + [[last]]
        return loss + 0.5 * PULL_TEMPERATURE * off * off, np.concatenate(parts)

    bounds = [(SMALLEST_SLOPE, None)] * R * weights + [SHARES] * R * shares + [(1e-3, None)]
    starts = ([1.0] * R * weights + [first] * R * shares + [1.0] for first in SEARCHES)
    found = (minimize(objective, a, jac=True, method="L-BFGS-B", bounds=bounds) for a in starts)
    a = whole(min(found, key=lambda one: one.fun).x)
    found_shares = expit(a[R:-1]) if shares else np.zeros(R)
    return Calibration(a[:R] / a[-1], float(1.0 / a[-1]), found_shares)


def fit_final(log_posterior: FloatArray, rows: Rows) -> tuple[float, float]:
    """A temperature, and then a share of the priors in the posterior, fitted together."""
    targets = platt_targets(rows.labels, np.log(rows.priors), rows.counted)

    def objective(a: FloatArray) -> float:
        log_p = with_final(log_posterior, (1.0 / a[0], float(expit(a[1]))), rows.priors)
        loss = -rows.counted @ (targets * log_p).sum(axis=1) / rows.counted.sum()
        return float(loss + 0.5 * PULL_TEMPERATURE * (a[0] - 1.0) ** 2)

    bounds = [(1e-3, None), SHARES]
    found = (minimize(objective, [1.0, a], method="L-BFGS-B", bounds=bounds) for a in SEARCHES)
    inverse, odds = min(found, key=lambda one: one.fun).x
    return float(1.0 / inverse), float(expit(odds))


def with_final(
    log_posterior: FloatArray, found: tuple[float, float], priors: FloatArray
) -> FloatArray:
    """Log of (1 - e) p(c|x)^(1/T) / sum + e p(c)."""
    temperature, share = found
    log_p = log_softmax(log_posterior / temperature, axis=1)
    mixed: FloatArray = np.logaddexp(np.log1p(-share) + log_p, np.log(share) + np.log(priors))
    return mixed
