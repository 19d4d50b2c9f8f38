"""What follows from posterior probabilities alone: decisions, and priors."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from pskem import checks
from pskem.clusters import is_dask
from pskem.estimators._dask import lazily
from pskem.estimators._deciding import Decisions, decide, estimate_priors, in_class_order
from pskem.estimators._input import TakesGaps, check_in_memory, checked_weights, labels_of
from pskem.estimators._opening import checked_table
from pskem.estimators._scoring import share_right, share_right_of_table
from pskem.estimators._stored import StoredTable
from pskem.structures import FloatArray

__all__ = ["PosteriorMixin"]


class PosteriorMixin(TakesGaps):
    """Decisions from log posterior probabilities.

    Needs ``classes_`` and ``predict_log_proba``.
    """

    classes_: Any

    def predict_log_proba(self, X: Any) -> FloatArray:
        raise NotImplementedError

    @lazily(per_class=True)
    def predict_proba(self, X: Any) -> FloatArray:
        """Posterior probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        return np.exp(self.predict_log_proba(X))

    @lazily(dtype=None)
    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        y : ndarray of shape (n_samples,)
        """
        winners = self.predict_log_proba(X).argmax(axis=1)
        decided: NDArray[Any] = self.classes_[winners]
        return decided

    def decision_function(self, X: Any) -> FloatArray:
        """Log posterior probabilities, or log odds where there are two classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        decision : ndarray of shape (n_samples, n_classes) or (n_samples,)
            With two classes log p(c=1|x) - log p(c=0|x), as scikit-learn's other generative
            classifiers have it.
        """
        log_proba = self.predict_log_proba(X)
        return log_proba[:, 1] - log_proba[:, 0] if log_proba.shape[1] == 2 else log_proba

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Accuracy. Samples without a class do not count.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Or a collection of Dask's. Or what :func:`pskem.open_table` gives, then without `y` and
            `sample_weight`.
        y : array-like of shape (n_samples,), default=None
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        accuracy : float
        """
        from sklearn.metrics import accuracy_score

        marker = getattr(getattr(self, "estimator", None) or self, "unlabelled", None)
        if isinstance(X, StoredTable):
            table = checked_table(X, y, sample_weight)
            return share_right_of_table(self, table, marker)
        if not is_dask(X):
            check_in_memory(X)
        if y is None:
            raise ValueError("y is missing: give the class of each row of X.")
        if is_dask(X):
            return share_right(self, X, y, sample_weight, marker)
        found = self.predict(X)
        y, known = labels_of(y, marker)
        if known is None:
            return float(accuracy_score(y, found, sample_weight=sample_weight))
        if len(known) != len(found):
            raise ValueError(f"X has {len(found)} samples and y has {len(known)}; they must agree.")
        weights = None
        if sample_weight is not None:
            weights = checked_weights(sample_weight, len(known))[known]
        return float(accuracy_score(y, found[known], sample_weight=weights))

    @property
    def class_prior_(self) -> FloatArray:
        raise NotImplementedError

    def estimate_priors(self, X: Any) -> FloatArray:
        """Class priors of a sample whose classes nobody knows.

        Those under which X is most probable, by EM [1]_: they differ from those of the training
        where classes have become more or less frequent. :meth:`with_priors` takes them.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        priors : ndarray of shape (n_classes,)
            In the order of `classes_`.

        References
        ----------
        .. [1] M. Saerens, P. Latinne and C. Decaestecker, "Adjusting the Outputs of a Classifier to
           New a Priori Probabilities", Neural Computation, 2002.
        """
        check_in_memory(X)
        return estimate_priors(self.predict_log_proba(X), self.class_prior_)

    def with_priors(self, priors: Any) -> Self:
        """The same model where classes are as frequent as given.

        Posterior probabilities are multiplied by the ratio of the new priors to the old ones, and
        normalised. A class that had no prior keeps none.

        Parameters
        ----------
        priors : "uniform", array-like of shape (n_classes,), dict or Series
            In the order of `classes_`, or by class.

        Returns
        -------
        model : estimator
            A copy; this one stays as it is.
        """
        check_is_fitted(self)
        if priors is None:
            raise ValueError("priors=None: give 'uniform', or one number per class.")
        listed = in_class_order(priors, self.classes_)
        return self._shifted(checks.check_prior(listed, self.class_prior_))

    def _shifted(self, priors: FloatArray) -> Self:
        raise NotImplementedError

    def decide(
        self,
        X: Any,
        *,
        min_proba: float = 0.0,
        cost: float | None = None,
        outlier_share: float | None = None,
        rejected: Any = None,
    ) -> Decisions:
        """The most probable class of each sample, unless that is too uncertain.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        min_proba : float, default=0.0
            The probability that the most probable class must have.
        cost : float between 0 and 1 or None, default=None
            What it costs to name no class, where a wrong one costs 1. It is worth it if the most
            probable class has less than 1 - cost [1]_.
        outlier_share : float between 0 and 1 or None, default=None
            Samples that are less probable than this share of the reference samples of
            :meth:`is_outlier` get no class.
        rejected : object, default=None
            What stands for no class.

        Returns
        -------
        decisions : Decisions
            `labels` (n_samples,), and `reasons`: "", "uncertain" or "outlier".

        References
        ----------
        .. [1] C. K. Chow, "On Optimum Recognition Error and Reject Tradeoff", 1970.
        """
        check_in_memory(X)
        checks.check_real("min_proba", min_proba, 0.0, 1.0)
        least = float(min_proba)
        if cost is not None:
            checks.check_real("cost", cost, 0.0, 1.0)
            least = max(least, 1.0 - float(cost))
        log_proba = self.predict_log_proba(X)
        winners = log_proba.argmax(axis=1)
        outliers = None if outlier_share is None else self.is_outlier(X, outlier_share)
        certainty = np.exp(log_proba.max(axis=1))
        return decide(self.classes_[winners], certainty, least, outliers, rejected)

    def is_outlier(self, X: Any, share: float = 0.01) -> NDArray[np.bool_]:
        raise NotImplementedError
