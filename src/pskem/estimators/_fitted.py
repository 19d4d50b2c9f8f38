"""What a fitted estimator with a model answers, whether it has classes or not."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from pskem import checks
from pskem.engine import workers
from pskem.estimators._dask import lazily
from pskem.estimators._deciding import NoReferenceError
from pskem.estimators._input import (
    TakesGaps,
    check_in_memory,
    checked_weights,
    counted_rows,
    validated,
)
from pskem.imputation import impute
from pskem.model import Block, InformationCriteria, Model
from pskem.structures import FloatArray
from pskem.training import draw_seeds, reference_log_densities
from pskem.typicality import comparable_log_density

__all__ = ["FittedModel"]


class FittedModel(TakesGaps):
    """The model of a fitted estimator, and views of it."""

    model_: Model
    n_features_in_: int

    n_jobs: int | None

    @property
    def blocks_(self) -> list[Block]:
        return list(self.model_.blocks)

    @lazily()
    def score_samples(self, X: Any) -> FloatArray:
        """Log density of each sample under the whole model, log p(x).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Of the features that the partition uses; `block_weights_` do not enter.
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return self.model_.log_density(X, parallel_map)

    @lazily(dtype=bool)
    def is_outlier(self, X: Any, share: float = 0.01) -> NDArray[np.bool_]:
        """Whether samples are less probable than a share of reference samples.

        Reference samples are those that the fit asked about, held out or validated on, with their
        densities under models that were not trained on them; or those of :meth:`set_reference`.
        Samples with gaps are compared by what is usual for the features that they have.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        share : float between 0 and 1, default=0.01
            Of the reference samples that would be called outliers.

        Returns
        -------
        outlier : ndarray of bool of shape (n_samples,)
        """
        check_is_fitted(self)
        checks.check_real("share", share, 0.0, 1.0)
        reference = getattr(self, "reference_log_densities_", np.empty(0))
        if not len(reference):
            raise NoReferenceError(
                "There are no reference samples to tell outliers by: none were held out in the fit,"
                " or the priors have changed since. Give some that the model was not trained on:"
                " set_reference(X)."
            )
        if 0.0 < share * len(reference) < 1.0:
            warnings.warn(
                f"share={share:g} cannot be told by {len(reference)} reference sample(s); use"
                f" {np.ceil(1.0 / share):.0f} at least, or a larger share.",
                UserWarning,
                stacklevel=2,
            )
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            found = comparable_log_density(self.model_, X, parallel_map)
        return found < np.quantile(reference, share)

    def set_reference(self, X: Any, sample_weight: Any = None) -> Self:
        """Set the samples by which :meth:`is_outlier` judges.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples that the model was not trained on.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : estimator
        """
        X = validated(self, X)
        unseen = counted_rows(X, np.zeros(len(X), dtype=np.intp), sample_weight)
        with workers(self.n_jobs) as parallel_map:
            found = reference_log_densities([(self.model_, unseen)], parallel_map)
        self.reference_log_densities_ = found
        return self

    def impute(
        self,
        X: Any,
        y: Any = None,
        *,
        method: Literal["mean", "draw"] = "mean",
        random_state: Any = None,
    ) -> FloatArray:
        """Fill gaps in with what the model makes of the other features.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Classes of the samples, if they are known. A density ignores it.
        method : {"mean", "draw"}, default="mean"
            Conditional means, or draws from the conditional distribution, which vary as the data
            do: several of them make multiple imputations.
        random_state : int, RandomState instance or None, default=None
            For draws.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Gaps stay in columns that the partition leaves out.
        """
        X = validated(self, X)
        checks.check_choice("method", method, ["mean", "draw"])
        labels = self._labels_of(X, y)
        rng = None if method == "mean" else np.random.default_rng(draw_seeds(random_state, 4))
        with workers(self.n_jobs) as parallel_map:
            filled = impute(self.model_, X, labels, rng, parallel_map)
        return self._as_columns(filled)

    def _as_columns(self, features: FloatArray) -> Any:
        """Features as the columns that they are made from: objects, where some are categories."""
        code = getattr(self, "columns_", None)
        return features if code is None else code.decode(features, self.n_features_in_)

    def _labels_of(self, X: FloatArray, y: Any) -> NDArray[np.intp] | None:
        """Classes of samples, as places, where a model has classes and they are known."""
        return None

    def _log_likelihood(self, X: Any, y: Any) -> FloatArray:
        """log p(x|c) of the samples' own classes, (n,)."""
        raise NotImplementedError

    def _criteria(self, X: Any, y: Any, sample_weight: Any) -> InformationCriteria:
        check_in_memory(X)
        log_likelihood = self._log_likelihood(X, y)
        n = len(log_likelihood)
        weights = np.ones(n) if sample_weight is None else checked_weights(sample_weight, n)
        return self.model_.criteria(float(weights @ log_likelihood), float(weights.sum()))

    def aic(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Akaike's information criterion of log p(X|C); lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            A density ignores it.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        aic : float
        """
        return self._criteria(X, y, sample_weight).aic

    def bic(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Bayesian information criterion of log p(X|C); lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            A density ignores it.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        bic : float
        """
        return self._criteria(X, y, sample_weight).bic
