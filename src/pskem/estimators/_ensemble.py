"""Several models of the same data, over different partitions, multiplied."""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from pskem import checks
from pskem.engine import workers
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.estimators._input import validated
from pskem.estimators._posterior import PosteriorMixin
from pskem.structures import FloatArray
from pskem.training import Partition, draw_seeds

__all__ = ["PartitionEnsemble"]


class PartitionEnsemble(PosteriorMixin, ClassifierMixin, BaseEstimator):
    """Product of shared kernel classifiers over several partitions of the features.

    A partition ignores what features of different blocks tell about each other. Over several
    random partitions, other pairs of features meet in each. The members' posterior probabilities
    are combined by their geometric mean, p(c|x) ~ prod_i p_i(c|x)^(1/n).

    Parameters
    ----------
    estimator : SharedKernelClassifier or None, default=None
        What the members are clones of. None is one with default settings. With one block, which is
        the default for up to 100 features, there is nothing to partition: members then differ in
        their starts and in the samples that they hold out, from 1,000 samples on, and that alone
        can be worth it.
    n_estimators : int, default=5
        Number of members.
    partition : str, list of arrays or None, default="random"
        Set on the members. None leaves the estimator's own; unless that is ``"random"``, the
        members then differ in their starts only.
    random_state : int, RandomState instance or None, default=None
        Gives every member a seed of its own, whatever the estimator's own is.
    n_jobs : int or None, default=None
        Set on the members, which are fitted one after the other, each in so many threads. None
        leaves the estimator's own. The result has the same bits for all.
    verbose : int, default=0
        Set on the members, whose fits then show their progress. 0 leaves the estimator's own.

    Attributes
    ----------
    estimators_ : list of SharedKernelClassifier
    classes_ : ndarray of shape (n_classes,)
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    SharedKernelClassifier : The members.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from pskem import PartitionEnsemble, SharedKernelClassifier
    >>> X, y = load_wine(return_X_y=True)
    >>> member = SharedKernelClassifier(n_components=3, n_blocks=4)
    >>> PartitionEnsemble(member, 3, random_state=0).fit(X, y).score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        estimator: SharedKernelClassifier | None = None,
        n_estimators: int = 5,
        *,
        partition: Partition | None = "random",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.partition = partition
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
    ) -> Self:
        """Train the members.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
        sample_weight : array-like of shape (n_samples,), default=None
        X_val, y_val, sample_weight_val : array-like, default=None
            Weights and validation data, as for :meth:`SharedKernelClassifier.fit`.

        Returns
        -------
        self : PartitionEnsemble
        """
        members = self._members()
        for i, member in enumerate(members):
            if i and members[0].unlabelled_weight_ is not None:  # chosen once for all
                member.set_params(unlabelled_weight=members[0].unlabelled_weight_)
            member.fit(
                X,
                y,
                sample_weight,
                X_val=X_val,
                y_val=y_val,
                sample_weight_val=sample_weight_val,
            )
        models = [member.model_ for member in members]
        if len(models) > 1 and all(models[0].same_kernels(model) for model in models[1:]):
            varied = "Give" if self.partition == "random" else "Use partition='random', or give"
            warnings.warn(
                f"All {len(members)} members are the same model: their blocks and starts leave"
                f" nothing to chance, and they hold out nothing. {varied} the estimator n_blocks of"
                " at least 2, more components, or early_stopping=True.",
                UserWarning,
                stacklevel=2,
            )
        self.estimators_ = members
        self.classes_ = members[0].classes_
        self.n_features_in_ = members[0].n_features_in_
        for name in ("feature_names_in_", "columns_"):
            if hasattr(members[0], name):
                setattr(self, name, getattr(members[0], name))
            elif hasattr(self, name):
                delattr(self, name)
        return self

    def _members(self) -> list[SharedKernelClassifier]:
        """Unfitted members with their seeds."""
        checks.check_integer("n_estimators", self.n_estimators, 1)
        checks.check_n_jobs(self.n_jobs)
        checks.check_integer("verbose", self.verbose, 0, boolean=True)
        estimator = SharedKernelClassifier() if self.estimator is None else self.estimator
        if not isinstance(estimator, SharedKernelClassifier):
            raise ValueError(
                f"estimator={self.estimator!r} must be a SharedKernelClassifier or None. Put steps"
                " that come before it into a pipeline around the PartitionEnsemble."
            )
        settings: dict[str, Any] = {}
        if self.partition is not None:
            settings["partition"] = self.partition
        if self.n_jobs is not None:
            settings["n_jobs"] = self.n_jobs
        if self.verbose:
            settings["verbose"] = self.verbose
        return [
            clone(estimator).set_params(**settings, random_state=seed)
            for seed in draw_seeds(self.random_state, self.n_estimators)
        ]

    @property
    def class_prior_(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            logs = np.log([member.class_prior_ for member in self.estimators_])
        return softmax(logs.mean(axis=0))

    def _shifted(self, priors: FloatArray) -> Self:
        other = copy(self)
        other.estimators_ = [member.with_priors(priors) for member in self.estimators_]
        return other

    def is_outlier(self, X: Any, share: float = 0.01) -> NDArray[np.bool_]:
        """Whether samples are less probable than a share of reference samples, to most members.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        share : float between 0 and 1, default=0.01

        Returns
        -------
        outlier : ndarray of bool of shape (n_samples,)
        """
        check_is_fitted(self)
        votes = [member.is_outlier(X, share) for member in self.estimators_]
        return np.mean(votes, axis=0) > 0.5

    def set_reference(self, X: Any, sample_weight: Any = None) -> Self:
        """Set the samples by which :meth:`is_outlier` judges.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples that the members were not trained on.
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        self : PartitionEnsemble
        """
        check_is_fitted(self)
        for member in self.estimators_:
            member.set_reference(X, sample_weight)
        return self

    def predict_log_proba(self, X: Any) -> FloatArray:
        """Log posterior probabilities of the classes.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_proba : ndarray of shape (n_samples, n_classes)
            In the order of `classes_`.
        """
        X = validated(self, X)
        parts = []
        for member in self.estimators_:
            with workers(member.n_jobs) as parallel_map:
                parts.append(member.model_.log_posterior(X, parallel_map))
        return log_softmax(np.mean(parts, axis=0), axis=1)
