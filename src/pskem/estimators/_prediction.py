"""What a fitted shared kernel classifier answers: all from its model."""

from __future__ import annotations

from copy import copy
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pskem import checks
from pskem.engine import workers
from pskem.estimators._columns import is_missing
from pskem.estimators._deciding import NoReferenceError
from pskem.estimators._input import TakesGaps, checked_weights, validated
from pskem.estimators._posterior import PosteriorMixin
from pskem.imputation import impute
from pskem.model import HELD, Block, InformationCriteria, Model
from pskem.structures import FloatArray
from pskem.training import draw_seeds
from pskem.typicality import comparable_log_density

__all__ = ["FittedModel", "ModelPredictor"]


class FittedModel(TakesGaps):
    """The model of a fitted estimator, and views of it."""

    model_: Model
    n_features_in_: int

    n_jobs: int | None

    @property
    def blocks_(self) -> list[Block]:
        return list(self.model_.blocks)

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

    def is_outlier(self, X: Any, share: float = 0.01) -> NDArray[np.bool_]:
        """Whether samples are less probable than a share of reference samples.

        The reference are log densities of samples that the model was not trained on: those that
        the fit held out (from 1,000 samples on, with discriminative passes, or if
        `early_stopping` asks for it) or validated on, or those of :meth:`set_reference`. Samples
        with gaps are compared by what is usual of the features that they have.

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
        return self._comparable(X) < np.quantile(reference, share)

    def _comparable(self, X: Any) -> FloatArray:
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return comparable_log_density(self.model_, X, parallel_map)

    def set_reference(self, X: Any) -> Self:
        """Set the samples by which :meth:`is_outlier` judges.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples that the model was not trained on.

        Returns
        -------
        self : estimator
        """
        self.reference_log_densities_ = np.sort(self._comparable(X))
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


class ModelPredictor(FittedModel, PosteriorMixin):
    """Predictions, densities, samples and criteria of an estimator with a fitted model.

    Needs ``model_``, ``n_features_in_`` and ``n_jobs``.
    """

    n_features_in_: int

    @property
    def classes_(self) -> NDArray[Any]:
        return self.model_.classes

    @property
    def class_prior_(self) -> FloatArray:
        return self.model_.priors

    def _shifted(self, priors: FloatArray) -> Self:
        other = copy(self)
        other.model_ = self.model_.with_priors(priors)
        other.reference_log_densities_ = np.empty(0)  # densities are others now
        return other

    @property
    def block_weights_(self) -> FloatArray:
        return self.model_.block_weights

    @property
    def temperature_(self) -> float:
        return self.model_.temperature

    def block_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class under each block, log q_rj(x_r).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_blocks, n_classes)
            Its sum over the blocks is :meth:`class_log_likelihood`; decisions weigh it by
            `block_weights_` first.
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return self.model_.log_likelihood(X, parallel_map)

    def class_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class, log p(x|c=j).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_classes)
            Of the features that the partition uses.
        """
        return self.block_log_likelihood(X).sum(axis=1)

    def predict_joint_log_proba(self, X: Any) -> FloatArray:
        """Joint log density of each class and the sample, log p(c=j) + log p(x|c=j).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        joint : ndarray of shape (n_samples, n_classes)
            Each block counts by its weight in `block_weights_`; with weights other than one it is
            a score from which decisions follow, and no density.
        """
        return self.model_.joint(self.block_log_likelihood(X))

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
        with workers(self.n_jobs) as parallel_map:
            return self.model_.log_posterior(X, parallel_map)

    def responsibilities(self, X: Any, y: Any = None) -> list[FloatArray]:
        """Posterior probabilities of the kernels of each block.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,), default=None
            Classes of the samples. With them, the w_nk of the E-step: probabilities given the
            sample and its class. Without, probabilities given the sample alone, averaged over the
            model's posterior of the class.

        Returns
        -------
        responsibilities : list of ndarray of shape (n_samples, n_components)
            One array per block; rows sum to one.
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            if y is None:
                posterior = np.exp(self.model_.log_posterior(X, parallel_map))
            else:
                posterior = np.eye(len(self.classes_))[self._known(X, y)]
            return self.model_.responsibilities(X, posterior, parallel_map)

    def _labels_of(self, X: FloatArray, y: Any) -> NDArray[np.intp] | None:
        return None if y is None else self._known(X, y)

    def _known(self, X: FloatArray, y: Any) -> NDArray[np.intp]:
        if y is None:
            raise ValueError("y is missing: the classes of the samples are needed here.")
        labels = column_or_1d(y)
        if labels.dtype == object and any(is_missing(label) for label in labels):
            raise ValueError("y has samples without a class; leave them out here.")
        if len(labels) != len(X):
            raise ValueError(f"X has {len(X)} samples and y has {len(labels)}; they must agree.")
        return checks.check_labels(labels, self.classes_, "y")

    def sample(
        self, n_samples: int = 1, classes: Any = None, random_state: Any = None
    ) -> tuple[FloatArray, NDArray[Any]]:
        """Draw samples from the model.

        Parameters
        ----------
        n_samples : int, default=1
        classes : label or array-like of shape (n_samples,), default=None
            The class to draw from, one for all or one for each; None draws classes by their
            priors.
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
            Features that the partition leaves out are NaN.
        y : ndarray of shape (n_samples,)
        """
        check_is_fitted(self)
        checks.check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(draw_seeds(random_state, 4))
        if classes is None:
            labels = rng.choice(len(self.classes_), size=n_samples, p=self.class_prior_)
        else:
            given = np.asarray(classes)
            if given.ndim == 0:
                given = np.repeat(given, n_samples)
            if given.shape != (n_samples,):
                raise ValueError(
                    f"classes has shape {given.shape}; give one class, or one for each of the"
                    f" n_samples={n_samples} samples."
                )
            labels = checks.check_labels(given, self.classes_, "classes")
        code = getattr(self, "columns_", None)
        width = self.n_features_in_
        if code is not None:
            width = len(code.numeric) + sum(code.levels)
        X, _ = self.model_.draw(labels, width, rng)
        return self._as_columns(X), self.classes_[labels]

    def _log_likelihood(self, X: Any, y: Any) -> FloatArray:
        log_likelihood = self.class_log_likelihood(X)
        labels = self._known(log_likelihood, y)
        return log_likelihood[np.arange(len(labels)), labels]

    def expand(self) -> Block:
        """The equivalent unpartitioned mixture, with one component per choice of kernels.

        A model of R blocks with K kernels each is a mixture of K^R Gaussians with block-diagonal
        covariances (Appendix B of the paper).

        Returns
        -------
        block : Block
            With all features that the partition uses, in the order of the columns.

        Raises
        ------
        ValueError
            If there would be more than 10,000 components.
        """
        check_is_fitted(self)
        return self.model_.expand()

    def shared_proportion(self, threshold: float = HELD) -> float:
        """How much of the kernels is shared: N_S / N_T of the paper.

        A class holds a kernel if its weight is at least the threshold. N_T counts all pairs of a
        kernel and a class that holds it, N_S those whose kernel several classes hold; both are
        summed over the blocks.

        Parameters
        ----------
        threshold : float, default=0.01

        Returns
        -------
        proportion : float between 0 and 1
        """
        check_is_fitted(self)
        checks.check_real("threshold", threshold, 0.0, 1.0, strict=True)
        return self.model_.shared_proportion(threshold)
