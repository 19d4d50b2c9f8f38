"""What a fitted shared kernel classifier answers: all from its model."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pskem import checks
from pskem.engine import workers
from pskem.estimators._columns import is_missing
from pskem.estimators._dask import lazily
from pskem.estimators._fitted import FittedModel
from pskem.estimators._input import validated
from pskem.estimators._posterior import PosteriorMixin
from pskem.model import HELD, Block
from pskem.structures import FloatArray
from pskem.training import draw_seeds

__all__ = ["ModelPredictor"]


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
    def shares_(self) -> FloatArray:
        sharing = self.model_.sharing
        return np.zeros(len(self.model_.blocks)) if sharing is None else sharing.shares

    @property
    def n_views_(self) -> int:
        views = self.model_.views
        return 1 if views is None else 1 + max(views)

    @property
    def block_views_(self) -> NDArray[np.intp]:
        views = self.model_.views
        return np.array([0] * len(self.model_.blocks) if views is None else views, dtype=np.intp)

    @property
    def temperature_(self) -> float:
        return self.model_.temperature

    @lazily(per_class=True, per_block=True)
    def block_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class under each block, log q_rj(x_r).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_blocks, n_classes)
            Its sum over the blocks of the first view is :meth:`class_log_likelihood`; decisions
            weigh it by `block_weights_` and sum it over all.
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return self.model_.log_likelihood(X, parallel_map)

    @lazily(per_class=True)
    def class_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class, log p(x|c=j).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_classes)
            Of the features that the partition uses, under the first view if there are several.
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return self.model_.first_view.log_likelihood(X, parallel_map).sum(axis=1)

    @lazily(per_class=True)
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
