"""From what ``fit`` is given to samples: features, classes as places, weights, priors."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.multiclass import check_classification_targets

from pskem import checks
from pskem.estimators._deciding import in_class_order
from pskem.estimators._input import accept_labelled, counted_rows
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training import Samples, Settings, draw_seeds, settle_unlabelled, whole_again

__all__ = ["gather_samples", "unlabelled_weight"]


def gather_samples(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    validation: tuple[Any, Any, Any],
    settings: Settings,
    before: Model | None,
) -> Samples:
    """Validated samples; the estimator learns of its features unless it goes on from a fit."""
    X, y, labelled = accept_labelled(estimator, X, y, settings.unlabelled, before is None)
    check_classification_targets(y)
    places = np.full(len(X), -1, dtype=np.intp)  # in y
    places[slice(None) if labelled is None else labelled] = np.arange(len(y))
    X, places, weights = counted_rows(X, places, sample_weight)
    known = places >= 0
    if not known.any():
        raise ValueError("sample_weight is zero for all samples whose class is known.")
    classes, own = np.unique(y[places[known]], return_inverse=True)
    labels = np.full(len(X), -1, dtype=np.intp)
    labels[known] = own
    masses: FloatArray = np.bincount(own).astype(np.float64)
    if weights is not None:  # summed so that the order of rows does not matter
        masses = np.array([fsum(weights[known][own == j]) for j in range(len(classes))])
        masses = whole_again(masses / min(1.0, fsum(weights[known]) / known.sum()))
    by_class = checks.check_class_weight(settings.class_weight, classes, masses)
    if by_class is not None:
        # Samples without a class count as they are.
        weights = np.append(by_class, 1.0)[labels] * (1.0 if weights is None else weights)
        masses = masses * by_class
    priors = checks.check_prior(in_class_order(settings.priors, classes), masses / masses.sum())
    held_out = _validation(estimator, *validation, classes, settings.unlabelled)
    names = getattr(estimator, "feature_names_in_", None)
    code, learn = getattr(estimator, "columns_", None), settings.priors is None
    made = Samples(X, labels, classes, priors, held_out, names, weights, learn, by_class)
    if code is None:
        return made
    columns = names if names is not None else [str(i) for i in range(estimator.n_features_in_)]
    return made._replace(
        feature_names=code.names(columns), levels=code.levels, numeric=code.numeric
    )


def unlabelled_weight(classifier: Any, X: Any, y: Any, sample_weight: Any) -> float | None:
    """How much each sample without a class would count in a fit; None if there are none."""
    tried = clone(classifier)
    settings = Settings.parse(tried.get_params(deep=False))
    samples = gather_samples(tried, X, y, sample_weight, (None, None, None), settings, None)
    settled, _ = settle_unlabelled(settings, samples, *draw_seeds(tried.random_state))
    return settled.unlabelled_weight


def _validation(
    estimator: Any, X: Any, y: Any, weights: Any, classes: NDArray[Any], marker: Any
) -> tuple[FloatArray, NDArray[np.intp], FloatArray | None] | None:
    """Validation data, if there are any."""
    if (X is None) != (y is None):
        missing = "X_val" if X is None else "y_val"
        raise ValueError(f"X_val and y_val go together, but {missing} is missing.")
    if X is None:
        if weights is not None:
            raise ValueError("sample_weight_val is given, but X_val and y_val are missing.")
        return None
    try:
        X, y, labelled = accept_labelled(estimator, X, y, marker, reset=False)
        if labelled is not None:  # which validate nothing
            X = X[labelled]
            weights = None if weights is None else np.asarray(weights)[labelled]
        X, y, weights = counted_rows(X, y, weights, "sample_weight_val")
    except ValueError as error:
        raise ValueError(f"X_val and y_val are not accepted. {error}") from None
    return X, checks.check_labels(y, classes, "y_val"), weights
