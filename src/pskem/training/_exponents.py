"""How much each of several models counts in their product."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from pskem.structures import FloatArray
from pskem.training._weighting import cross_entropy, platt_targets

__all__ = ["fit_exponents"]

#: How strongly exponents are pulled toward equal ones: in cross-entropy of so many samples, but not
#: more than this in the mean over all of them.
PULL_SAMPLES, MOST_PULL = 30.0, 0.1


def fit_exponents(
    log_posteriors: FloatArray,
    labels: NDArray[np.intp],
    priors: FloatArray,
    counted: FloatArray,
) -> FloatArray:
    """How much each of several models counts in their product, (V,).

    The cross-entropy of samples that none of them was trained on is convex in the exponents. They
    are held near equal ones that sum to one, the more so the fewer samples there are.

    Parameters
    ----------
    log_posteriors : (V, n, L)
    labels : (n,), counted : (n,), how much each sample counts
    priors : (L,)

    References
    ----------
    L. Breiman, "Stacked Regressions", 1996, for the idea; G. E. Hinton, "Training Products of
    Experts by Minimizing Contrastive Divergence", 2002, for products.
    """
    V = len(log_posteriors)
    possible = priors > 0.0
    terms = np.where(possible, log_posteriors, np.log(np.finfo(float).tiny))
    targets = platt_targets(labels, np.where(possible, 0.0, -np.inf), counted)

    pull = min(MOST_PULL, PULL_SAMPLES / float(counted.sum()))

    def objective(a: FloatArray) -> tuple[float, FloatArray]:
        loss, slope = cross_entropy(a, terms, targets, counted)
        off = a - 1.0 / V
        return loss + pull * float(off @ off), slope + 2.0 * pull * off

    start = np.full(V, 1.0 / V)
    bounds = [(0.0, None)] * V
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds)
    exponents: FloatArray = found.x if found.x.any() else start
    return exponents
