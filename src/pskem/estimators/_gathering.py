"""From what ``fit`` is given to samples: features, classes as places, weights, priors."""

from __future__ import annotations

from math import fsum
from typing import Any, NamedTuple

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

__all__ = ["Known", "gather_samples", "know", "unlabelled_weight", "validate_on"]


def gather_samples(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    validation: tuple[Any, Any, Any],
    settings: Settings,
    before: Model | None,
    classes: NDArray[Any] | None = None,
) -> Samples:
    """Validated samples; the estimator learns of its features unless it goes on from a fit.

    classes : of which the samples are a part of; None for those that they have
    """
    X, y, labelled = accept_labelled(estimator, X, y, settings.unlabelled, before is None)
    check_classification_targets(y)
    places = np.full(len(X), -1, dtype=np.intp)  # in y
    places[slice(None) if labelled is None else labelled] = np.arange(len(y))
    X, places, weights = counted_rows(X, places, sample_weight)
    known = places >= 0
    if not known.any():
        raise ValueError("sample_weight is zero for all samples whose class is known.")
    if classes is None:
        classes, own = np.unique(y[places[known]], return_inverse=True)
    else:
        own = _places_among(y[places[known]], classes)
    labels = np.full(len(X), -1, dtype=np.intp)
    labels[known] = own
    masses: FloatArray = np.bincount(own, minlength=len(classes)).astype(np.float64)
    if weights is not None:  # summed so that the order of rows does not matter
        masses = np.array([fsum(weights[known][own == j]) for j in range(len(classes))])
    found = know(settings, classes, masses, float(known.sum()))
    if found.class_weights is not None:
        # Samples without a class count as they are.
        by_label = np.append(found.class_weights, 1.0)[labels]
        weights = by_label * (1.0 if weights is None else weights)
    held_out = validate_on(estimator, *validation, classes, settings.unlabelled)
    return found.samples(estimator, X, labels, held_out)._replace(weights=weights)


class Known(NamedTuple):
    """What is known of the classes.

    class_weights : (L,), None if all classes have the weight of their samples
    learn_priors : whether samples without a class may change the priors
    """

    classes: NDArray[Any]
    priors: FloatArray
    class_weights: FloatArray | None
    learn_priors: bool

    def samples(
        self,
        estimator: Any,
        X: FloatArray,
        labels: NDArray[np.intp],
        validation: tuple[FloatArray, NDArray[np.intp], FloatArray | None] | None,
    ) -> Samples:
        """Samples of an estimator that knows its columns."""
        names = getattr(estimator, "feature_names_in_", None)
        made = Samples(
            X,
            labels,
            self.classes,
            self.priors,
            validation,
            names,
            learn_priors=self.learn_priors,
            class_weights=self.class_weights,
        )
        code = getattr(estimator, "columns_", None)
        if code is None:
            return made
        columns = names if names is not None else [str(i) for i in range(estimator.n_features_in_)]
        return made._replace(
            feature_names=code.names(columns), levels=code.levels, numeric=code.numeric
        )


def know(settings: Settings, classes: NDArray[Any], masses: FloatArray, n: float) -> Known:
    """Priors and weights of classes whose n samples count so much, (L,)."""
    if masses.sum() != n:  # there are weights
        masses = whole_again(masses / min(1.0, masses.sum() / n))
    by_class = checks.check_class_weight(settings.class_weight, classes, masses)
    if by_class is not None:
        masses = masses * by_class
    priors = checks.check_prior(in_class_order(settings.priors, classes), masses / masses.sum())
    return Known(classes, priors, by_class, settings.priors is None)


def _places_among(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """Places of labels among the classes of a stream."""
    unknown = np.setdiff1d(y, classes)
    if unknown.size:
        raise ValueError(
            f"y holds class(es) {unknown[:10].tolist()} that are not among those of the first"
            f" call, {classes[:20].tolist()}{'...' if len(classes) > 20 else ''}. Name all classes"
            " there: partial_fit(X, y, classes=...)."
        )
    return checks.check_labels(y, classes, "y")


def unlabelled_weight(classifier: Any, X: Any, y: Any, sample_weight: Any) -> float | None:
    """How much each sample without a class would count in a fit; None if there are none."""
    tried = clone(classifier)
    settings = Settings.parse(tried.get_params(deep=False))
    samples = gather_samples(tried, X, y, sample_weight, (None, None, None), settings, None)
    settled, _ = settle_unlabelled(settings, samples, *draw_seeds(tried.random_state))
    return settled.unlabelled_weight


def validate_on(
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
