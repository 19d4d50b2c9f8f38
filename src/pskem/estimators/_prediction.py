"""What a fitted shared kernel classifier answers: all from the log likelihoods of its blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp
from sklearn.utils.validation import check_is_fitted, column_or_1d

from pskem import checks, model
from pskem.engine._mixing import log_posterior
from pskem.engine._parallel import workers
from pskem.model import Block
from pskem.structures import FloatArray
from pskem.training._fitting import draw_seeds, validated
from pskem.training._weighting import Weighting
from pskem.unmixing import Unmixing

__all__ = ["BlockPredictor", "PosteriorMixin"]


class PosteriorMixin:
    """Decisions from log posterior probabilities.

    Needs ``classes_`` and ``predict_log_proba``.
    """

    classes_: NDArray[Any]

    def predict_log_proba(self, X: Any) -> FloatArray:
        raise NotImplementedError

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
        return self.classes_[winners]


class BlockPredictor(PosteriorMixin):
    """Predictions, densities, samples and criteria of an estimator with fitted blocks.

    Needs ``blocks_``, ``classes_``, ``class_prior_``, ``n_features_in_`` and ``n_jobs``.
    """

    blocks_: list[Block]
    class_prior_: FloatArray
    n_features_in_: int
    n_jobs: int | None

    def block_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class under each block, log q_rj(x_r).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_blocks, n_classes)
            Its sum over the blocks is :meth:`class_log_likelihood`; decisions weigh it by
            `block_weights_` first. With ``partition="ica"`` these are densities of the components,
            and ``unmixing_.log_det`` completes the sum.
        """
        return self._block_log_likelihood(self._features(X))

    @property
    def _unmixing(self) -> Unmixing | None:
        # Models that were saved by versions without it have none.
        return getattr(self, "unmixing_", None)

    def _features(self, X: Any) -> FloatArray:
        """X as the blocks take it: validated and, where the model has an unmixing, unmixed."""
        return self._unmixed(validated(self, X))

    def _unmixed(self, X: FloatArray) -> FloatArray:
        """The same for X that has been validated."""
        return X if self._unmixing is None else self._unmixing.components(X)

    @property
    def _log_det(self) -> float:
        """What makes a log density of that which the blocks take one of X."""
        return 0.0 if self._unmixing is None else self._unmixing.log_det

    def _block_log_likelihood(self, X: FloatArray) -> FloatArray:
        """The one hook from which every prediction follows, for X as the blocks take it."""
        with workers(self.n_jobs) as parallel_map:
            return model.block_log_likelihoods(self.blocks_, X, parallel_map)

    def class_log_likelihood(self, X: Any) -> FloatArray:
        """Log likelihood of each class, log p(x|c=j).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_likelihood : ndarray of shape (n_samples, n_classes)
            Of the features that the partition uses. With ``partition="ica"`` and features that
            are linearly dependent, it is that of the components, because X has no density.
        """
        return self.block_log_likelihood(X).sum(axis=1) + self._log_det

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
        return self._joint(self._features(X)) + self._log_det

    @property
    def _weighting(self) -> Weighting:
        # Models that were saved by versions without them have neither weights nor temperature.
        weights = getattr(self, "block_weights_", np.ones(len(self.blocks_)))
        return Weighting(weights, getattr(self, "temperature_", 1.0))

    def _joint(self, X: FloatArray) -> FloatArray:
        with np.errstate(divide="ignore"):
            return self._weighting.joint(self._block_log_likelihood(X), np.log(self.class_prior_))

    def _log_posterior(self, X: FloatArray) -> FloatArray:
        """For X as the blocks take it."""
        return log_posterior(self._joint(X) / self._weighting.temperature)

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
        return self._log_posterior(self._features(X))

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of each sample under the whole model, log p(x).

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
            Of the features that the partition uses, as :meth:`class_log_likelihood`;
            `block_weights_` do not enter.
        """
        with np.errstate(divide="ignore"):
            return logsumexp(self.class_log_likelihood(X) + np.log(self.class_prior_), axis=1)

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
        X = self._features(X)
        if y is None:
            posterior = np.exp(self._log_posterior(X))
        else:
            posterior = np.eye(len(self.classes_))[self._known(X, y)]
        with workers(self.n_jobs) as parallel_map:
            return model.responsibilities(self.blocks_, X, posterior, parallel_map)

    def _known(self, X: FloatArray, y: Any) -> NDArray[np.intp]:
        if y is None:
            raise ValueError("y is missing: the classes of the samples are needed here.")
        labels = column_or_1d(y)
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
            Features that the partition leaves out are NaN; fill them before predicting, which
            accepts no NaN.
        y : ndarray of shape (n_samples,)
        """
        check_is_fitted(self, "blocks_")
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
        if self._unmixing is None:
            X, _ = model.draw(self.blocks_, labels, self.n_features_in_, rng)
        else:
            components, _ = model.draw(self.blocks_, labels, self._unmixing.n_components, rng)
            X = self._unmixing.features(components)
        return X, self.classes_[labels]

    def _criteria(self, X: Any, y: Any) -> model.Criteria:
        X = self._features(X)
        labels = self._known(X, y)
        log_likelihood = self._block_log_likelihood(X).sum(axis=1) + self._log_det
        total = float(log_likelihood[np.arange(len(X)), labels].sum())  # log p(X | C)
        return model.information_criteria(self.blocks_, total, len(X))

    def aic(self, X: Any, y: Any) -> float:
        """Akaike's information criterion of log p(X|C); lower is better.

        An unmixing (``partition="ica"``) is taken as given: it adds no parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        aic : float
        """
        return self._criteria(X, y).aic

    def bic(self, X: Any, y: Any) -> float:
        """Bayesian information criterion of log p(X|C); lower is better.

        An unmixing (``partition="ica"``) is taken as given: it adds no parameters.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)

        Returns
        -------
        bic : float
        """
        return self._criteria(X, y).bic

    def expand(self) -> Block:
        """The equivalent unpartitioned mixture, with one component per choice of kernels.

        A model of R blocks with K kernels each is a mixture of K^R Gaussians with block-diagonal
        covariances (Appendix B of the paper).

        Returns
        -------
        block : Block
            With all features that the partition uses, in the order of the columns; with
            ``partition="ica"``, with all components.

        Raises
        ------
        ValueError
            If there would be more than 10,000 components.
        """
        check_is_fitted(self, "blocks_")
        return model.expand(self.blocks_)

    def shared_proportion(self, threshold: float = model.HELD) -> float:
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
        check_is_fitted(self, "blocks_")
        checks.check_real("threshold", threshold, 0.0, 1.0, strict=True)
        return model.shared_proportion(self.blocks_, threshold)
