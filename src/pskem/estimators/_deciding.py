"""Decisions under other priors, and the choice not to decide."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray

__all__ = ["OUTLIER", "UNCERTAIN", "Decisions", "NoReferenceError", "estimate_priors"]

#: Why no class is named.
UNCERTAIN = "uncertain"
OUTLIER = "outlier"

#: Priors that change by less have been found.
SMALLEST_CHANGE = 1e-9
MOST_STEPS = 10_000


class Decisions(NamedTuple):
    """Classes of samples, as far as they are decided.

    labels : (n,), objects; what stands for no decision where there is none
    reasons : (n,), texts: empty, "uncertain" or "outlier"
    """

    labels: NDArray[np.object_]
    reasons: NDArray[np.str_]

    @property
    def accepted(self) -> NDArray[np.bool_]:
        """Where a class is named, (n,)."""
        return self.reasons == ""


class NoReferenceError(ValueError):
    """There are no samples to tell outliers by."""


def in_class_order(values: Any, classes: NDArray[Any]) -> Any:
    """Values in the order of the classes, where they are given by class; others as they are."""
    if hasattr(values, "index") and hasattr(values, "to_dict"):  # a Series
        values = values.to_dict()
    if not isinstance(values, Mapping):
        return values
    known = classes.tolist()
    wrong = [name for name in values if name not in known]
    missing = [name for name in known if name not in values]
    if wrong or missing:
        what = f"names {wrong[0]!r}" if wrong else f"lacks {missing[0]!r}"
        raise ValueError(f"priors {what}; the classes are {known[:20]}. Give a number for each.")
    return [values[name] for name in known]


def estimate_priors(log_posterior: FloatArray, priors: FloatArray) -> FloatArray:
    """Class priors (L,) under which samples with these log posteriors (n, L) are most probable.

    The posteriors are under the given priors. By EM: each sample counts in every class by its
    posterior, which changes with the priors (Saerens, Latinne & Decaestecker, 2002).
    """
    found = priors
    possible = priors > 0.0
    ratios = np.exp(log_posterior[:, possible]) / priors[possible]  # p(x|c) but for a factor
    for _ in range(MOST_STEPS):
        joint = ratios * found[possible]
        step = np.zeros_like(priors)
        step[possible] = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
        change, found = np.abs(step - found).max(), step
        if change < SMALLEST_CHANGE:
            break
    return found / found.sum()


def decide(
    labels: NDArray[Any],
    certainty: FloatArray,
    least: float,
    outliers: NDArray[np.bool_] | None,
    rejected: Any,
) -> Decisions:
    """Labels (n,) where their probability is high enough, and the sample is no outlier."""
    reasons = np.where(certainty < least, UNCERTAIN, "")
    if outliers is not None:
        reasons = np.where(outliers, OUTLIER, reasons)
    decided = labels.astype(object)
    decided[reasons != ""] = rejected
    return Decisions(decided, reasons)
