"""What follows from one default fit: answers with other calibrations, fewer forms, fewer rows.

Nothing here is trained again. Log likelihoods of the rows that forms were asked about in the trials
decide, and those of the test rows are then put together in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from docs.choices import ALL, BEST, SHIPPED
from docs.watching import (
    Calibration,
    Rows,
    View,
    Watched,
    fit_exponents,
    fit_final,
    fit_some,
    posterior,
    with_final,
)
from scipy.special import log_softmax

from pskem.structures import FloatArray

__all__ = ["SMALLEST", "Answers", "answers_of"]

#: A probability below this counts as this in a log loss.
SMALLEST = 1e-15

#: Log probabilities (n, L) of the classes of the test rows, by model and calibration.
Answers = dict[tuple[str, str], FloatArray]


def answers_of(watched: Watched) -> Answers:
    """All that is compared, by its names in the record."""
    views, rows = watched.views, watched.rows
    tested = [view.tested for view in views]
    of_trials = [
        as_shipped(views, rows, [view.by_trials[t] for view in views])
        for t in range(len(views[0].by_trials))
    ]
    first = min(views, key=lambda view: view.loss)
    three, proper = best(views, 3), best(views, 1)
    return {
        **calibrated(SHIPPED[0], views, rows),
        **calibrated(BEST[0], [first], rows),
        ("equal exponents", ALL): as_shipped(views, rows, tested, equal(views)),
        ("three", ALL): as_shipped(three, rows, [view.tested for view in three]),
        ("one", ALL): as_shipped([first], rows, [first.tested]),
        ("proper", ALL): as_shipped(proper, rows, [view.tested for view in proper]),
        ("one trial", ALL): of_trials[0],
        ("all trials", ALL): product(of_trials, equal(of_trials)),
    }


def product(views: Sequence[FloatArray], exponents: FloatArray) -> FloatArray:
    """Log probabilities (n, L) of the product of views, (n, L) each."""
    return log_softmax(np.tensordot(exponents, np.stack(views), axes=1), axis=1)


def equal(views: Sequence[object]) -> FloatArray:
    """Exponents of a geometric mean."""
    return np.full(len(views), 1.0 / len(views))


def exponents_of(asked: Sequence[FloatArray], rows: Rows) -> FloatArray:
    """Exponents of views, fitted to their log probabilities of the rows that were asked about."""
    if len(asked) == 1:
        return np.ones(1)
    return fit_exponents(np.stack(asked), rows.labels, rows.priors, rows.counted)


def as_shipped(
    views: Sequence[View],
    rows: Rows,
    tested: Sequence[FloatArray],
    exponents: FloatArray | None = None,
) -> FloatArray:
    """Answers of the product, from log likelihoods of the test rows under each view."""
    if exponents is None:
        asked = [posterior(view.asked, view.calibration, rows.priors) for view in views]
        exponents = exponents_of(asked, rows)
    pairs = zip(tested, views, strict=True)
    return product([posterior(q, v.calibration, rows.priors) for q, v in pairs], exponents)


def best(views: Sequence[View], number: int) -> list[View]:
    """The best of the views, so many, one of which at least is a density of the features."""
    order = sorted(views, key=lambda view: view.loss)
    kept = order[:number]
    if not any(view.proper for view in kept):
        kept[-1] = next(view for view in order if view.proper)
    return kept


def calibrations(view: View, rows: Rows) -> dict[str, Calibration]:
    """Those of one view, by their names in the record."""
    R = view.asked.shape[1]
    return {
        "none": Calibration(np.ones(R), 1.0, np.zeros(R)),
        "temperature": fit_some(view.asked, rows, weights=False, shares=False),
        "weights": fit_some(view.asked, rows, weights=True, shares=False),
        "shares": fit_some(view.asked, rows, weights=False, shares=True),
        ALL: view.calibration,
    }


def calibrated(model: str, views: Sequence[View], rows: Rows) -> Answers:
    """Answers of the product with every calibration; exponents are fitted to each anew.

    Without shares a single row may be thousands behind, and would decide the exponents alone: no
    probability counts for less than that of the log loss there.
    """
    found = [calibrations(view, rows) for view in views]
    answers: Answers = {}
    for name in found[0]:
        pairs = [(view, own[name]) for view, own in zip(views, found, strict=True)]
        asked = [posterior(view.asked, own, rows.priors) for view, own in pairs]
        tested = [posterior(view.tested, own, rows.priors) for view, own in pairs]
        if name != ALL:
            asked = [np.maximum(log_p, np.log(SMALLEST)) for log_p in asked]
        exponents = exponents_of(asked, rows)
        answers[model, name] = product(tested, exponents)
        if name == "weights":
            last = fit_final(product(asked, exponents), rows)
            answers[model, "final"] = with_final(answers[model, name], last, rows.priors)
        if name == "none" and len(views) > 1:
            answers[model, "exponents"] = answers[model, name]
            answers[model, name] = product(tested, equal(views))
    return answers
