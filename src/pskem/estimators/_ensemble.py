"""Several models of the same data, over different partitions, rows and columns, multiplied."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from pskem import checks
from pskem.engine import workers
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.estimators._columns import take_columns
from pskem.estimators._dask import lazily
from pskem.estimators._input import all_or_nothing, validated
from pskem.estimators._posterior import PosteriorMixin
from pskem.estimators._variety import (
    Given,
    Resampled,
    alternatives,
    categories_among,
    check_blocks,
    count_columns,
    draw_columns,
    fit_product,
)
from pskem.model import Model, multiply, relocate
from pskem.structures import FloatArray
from pskem.training import Partition, draw_seeds

__all__ = ["PartitionEnsemble"]

#: Rows that are predicted at a time: all blocks of all members are held in memory.
ROWS_AT_A_TIME = 8192


class PartitionEnsemble(PosteriorMixin, ClassifierMixin, BaseEstimator):
    """Product of shared kernel classifiers over partitions, rows and columns that differ.

    A partition ignores what features of different blocks tell about each other. Over several
    random partitions, other pairs of features meet in each. Members may also be trained on other
    rows (`bootstrap`), other columns (`max_features`) or with other numbers of kernels
    (`n_components`). Their posterior probabilities are multiplied,
    p(c|x) ~ prod_i p_i(c|x)^(w_i / T); by default that is their geometric mean. The product is one
    model again, `model_`, whose log likelihoods add up over the blocks of all members.

    Parameters
    ----------
    estimator : SharedKernelClassifier or None, default=None
        What the members are clones of. None is one with default settings. With one block, which is
        the default for up to 100 features, there is nothing to partition: members then differ in
        their starts, and from 20,000 samples on in the samples that choose the passes and
        calibrate. That alone can be worth it. With fewer samples and one kernel per class they are
        all the same, unless they are given other rows or columns.
    n_estimators : int, default=5
        Number of members.
    partition : str, list of arrays or None, default="random"
        Set on the members. None leaves the estimator's own; unless that is ``"random"``, the
        members then differ in their starts only.
    n_components : sequence, int, "auto" or None, default=None
        Numbers of kernels that the members are given in turn, such as ``[3, 6, "auto"]``. Each may
        be what the estimator's own `n_components` may be. One value is set on all members, and None
        leaves the estimator's own.
    bootstrap : bool, default=False
        Whether each member is trained on as many rows as there are, drawn with replacement. It is
        the same as fitting the member with whole numbers as `sample_weight`. A row with a weight of
        3 is drawn as if it stood there three times; fractions multiply what is drawn. Every class
        keeps at least one row. It is not the default, because it does not always help: a member
        sees about two thirds of the rows, and a row that is drawn twice may be on both sides of its
        cross-fitting, which makes it too sure of itself. ``weights="fit"`` mends part of that.
    max_features : float or int, default=1.0
        Columns of X that each member is given, drawn without replacement: a share of them, or a
        number. A column of categories counts as one.
    weights : "fit" or None, default=None
        How much each member counts. None is the same for all. ``"fit"`` fits the weights and a
        temperature to the rows that members were not trained on, and needs ``bootstrap=True``. Of
        each row the members speak that left it out; rows that no member left out do not count.
    random_state : int, RandomState instance or None, default=None
        Gives every member a seed of its own, whatever the estimator's own is. With an int, the
        order of the rows does not change the result.
    n_jobs : int or None, default=None
        Set on the members, which are fitted one after the other, each in so many threads. None
        leaves the estimator's own. The result has the same bits for all.
    verbose : int, default=0
        Set on the members, whose fits then show their progress. 0 leaves the estimator's own.

    Attributes
    ----------
    estimators_ : list of SharedKernelClassifier
        Each is fitted to the columns in `estimators_features_`.
    estimators_features_ : list of ndarray of int
        Places of the columns of X that each member was given, sorted.
    weights_ : ndarray of shape (n_estimators,)
        w_i, which sum to one. A member with a weight of zero is left out of `model_`.
    temperature_ : float
        T, of the product. Members have their own besides.
    model_ : Model
        The product as one immutable value, with the blocks of all members and the columns of X
        (for categories: their indicators). Posterior probabilities are the softmax of
        (log p(c=j) + sum_r model_.block_weights[r] log q_rj(x)) / model_.temperature. Its density
        is that of the first view of the first member.
    class_prior_ : ndarray of shape (n_classes,)
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
        n_components: Sequence[Any] | int | None = None,
        bootstrap: bool = False,
        max_features: float | int = 1.0,
        weights: Literal["fit"] | None = None,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_estimators = n_estimators
        self.partition = partition
        self.n_components = n_components
        self.bootstrap = bootstrap
        self.max_features = max_features
        self.weights = weights
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
        members, seeds = self._members()
        with all_or_nothing(self):
            given = Given.accept(self, X, y, sample_weight, members[0].unlabelled)
            columns = self._deal_columns(members, seeds)
            resampled = Resampled.draw(given, seeds) if self.bootstrap else None
            for i, (member, own) in enumerate(zip(members, columns, strict=True)):
                if i and members[0].unlabelled_weight_ is not None:  # chosen once for all
                    member.set_params(unlabelled_weight=members[0].unlabelled_weight_)
                member.fit(
                    self._taken(X, own),
                    y,
                    sample_weight if resampled is None else resampled.sample_weight(i),
                    X_val=None if X_val is None else self._taken(X_val, own),
                    y_val=y_val,
                    sample_weight_val=sample_weight_val,
                )
            models = self._models(members, columns)
            exponents = np.full(len(members), 1.0 / len(members))
            if self.weights is not None and resampled is not None:
                with workers(members[0].n_jobs) as parallel_map:
                    exponents = fit_product(
                        models, given, resampled, members[0].class_weight, parallel_map
                    )
        if len(models) > 1 and all(models[0].same_kernels(model) for model in models[1:]):
            varied = "Use" if self.partition == "random" else "Use partition='random',"
            warnings.warn(
                f"All {len(members)} members have the same kernels: their blocks and starts leave"
                f" nothing to chance. {varied} bootstrap=True or"
                " max_features below 1.0, or give the estimator n_blocks of at least 2, more"
                " components, or early_stopping=True.",
                UserWarning,
                stacklevel=2,
            )
        self.estimators_ = members
        self.estimators_features_ = columns
        self.weights_ = exponents / exponents.sum()
        self.temperature_ = 1.0 if self.weights is None else float(1.0 / exponents.sum())
        self.classes_ = members[0].classes_
        return self

    def _members(self) -> tuple[list[SharedKernelClassifier], list[int]]:
        """Unfitted members, and their seeds."""
        checks.check_integer("n_estimators", self.n_estimators, 1)
        checks.check_n_jobs(self.n_jobs)
        checks.check_integer("verbose", self.verbose, 0, boolean=True)
        checks.check_boolean("bootstrap", self.bootstrap)
        checks.check_choice("weights", self.weights, ["fit"], none=True)
        if self.weights is not None and not self.bootstrap:
            raise ValueError(
                "weights='fit' needs rows that members were not trained on, but bootstrap=False"
                " trains all members on all rows. Set bootstrap=True, or weights=None."
            )
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
        seeds = draw_seeds(self.random_state, self.n_estimators)
        members = [clone(estimator).set_params(**settings, random_state=seed) for seed in seeds]
        if self.n_components is not None:
            sizes = alternatives(self.n_components)
            for i, member in enumerate(members):
                member.set_params(n_components=sizes[i % len(sizes)])
        return members, seeds

    def _deal_columns(
        self, members: list[SharedKernelClassifier], seeds: list[int]
    ) -> list[NDArray[np.intp]]:
        """Places of the columns of each member; members learn which of theirs are categories."""
        M = self.n_features_in_
        number = count_columns(self.max_features, M)
        if number == M:
            return [np.arange(M) for _ in members]
        code = getattr(self, "columns_", None)
        columns = [draw_columns(number, M, seed) for seed in seeds]
        categories = [categories_among(code, own) for own in columns]
        numbers = [number - len(own) for own in categories]
        check_blocks(members[0].partition, members[0].n_blocks, numbers, self.max_features)
        for member, own in zip(members, categories, strict=True):
            member.set_params(categorical_features=own or None)
        return columns

    def _taken(self, X: Any, columns: NDArray[np.intp]) -> Any:
        """What a member is given of X."""
        return X if len(columns) == self.n_features_in_ else take_columns(X, columns)

    def _models(
        self, members: list[SharedKernelClassifier], columns: list[NDArray[np.intp]]
    ) -> list[Model]:
        """The members' models, as models of all features."""
        code = getattr(self, "columns_", None)
        places = columns if code is None else [code.features(own) for own in columns]
        pairs = zip(members, places, strict=True)
        return [relocate(member.model_, features) for member, features in pairs]

    @property
    def model_(self) -> Model:
        check_is_fitted(self)
        exponents = self.weights_ / self.temperature_
        kept = np.flatnonzero(exponents)
        models = self._models(self.estimators_, self.estimators_features_)
        return multiply([models[i] for i in kept], exponents[kept].tolist())

    @property
    def class_prior_(self) -> FloatArray:
        return self.model_.priors

    def _shifted(self, priors: FloatArray) -> Self:
        other = copy(self)
        other.estimators_ = [member.with_priors(priors) for member in self.estimators_]
        return other

    @lazily(dtype=bool)
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
        pairs = zip(self.estimators_, self.estimators_features_, strict=True)
        votes = [member.is_outlier(self._taken(X, own), share) for member, own in pairs]
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
        for member, own in zip(self.estimators_, self.estimators_features_, strict=True):
            member.set_reference(self._taken(X, own), sample_weight)
        return self

    @lazily(per_class=True, per_block=True)
    def block_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class under each block of `model_`, log q_rj(x_r).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_blocks, n_classes)
            ``model_.joint`` adds it up to what posterior probabilities follow from.
        """
        X = validated(self, X)
        with workers(self.estimators_[0].n_jobs) as parallel_map:
            return self.model_.log_likelihood(X, parallel_map)

    @lazily(per_class=True)
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
        model, starts = self.model_, range(0, len(X), ROWS_AT_A_TIME)
        with workers(self.estimators_[0].n_jobs) as parallel_map:
            parts = [model.log_posterior(X[i : i + ROWS_AT_A_TIME], parallel_map) for i in starts]
        return np.concatenate(parts)
