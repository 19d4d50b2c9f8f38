"""The one-class case: a Gaussian mixture trained by the paper's standard EM."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from pskem import checks, model
from pskem.engine._parallel import workers
from pskem.model import Block
from pskem.structures import STRUCTURES, FloatArray
from pskem.training._callbacks import CallbackSupportMixin, with_callbacks
from pskem.training._explicit import check_starts
from pskem.training._fitting import (
    all_or_nothing,
    check_common,
    check_unchanged,
    draw_seeds,
    fit_blocks,
    make_plan,
    starts_from,
    to_blocks,
    validated,
)
from pskem.training._loop import make_data
from pskem.training._starts import Start

__all__ = ["SharedKernelDensity"]


class SharedKernelDensity(CallbackSupportMixin, DensityMixin, BaseEstimator):
    """Gaussian mixture density: a shared kernel model with one class and one block.

    Parameters
    ----------
    n_components : int, default=20
        K, the number of kernels.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
    init : {"k-means++", "kmeans", "class-kmeans", "kdtree", "em", "random"}, default="k-means++"
        ``"class-kmeans"`` is ``"kmeans"`` here, where there are no classes.
    init_range : pair of float, default=(-2.0, 2.0)
    init_scale : float, default=2.0
    weights_init : array of shape (n_components,), default=None
    means_init : array of shape (n_components, n_features), default=None
    covariances_init : array of shape (n_components, n_features, n_features), default=None
    n_init : int, default=1
    reg_covar : float, default=1e-6
    shrinkage : float or "auto", default=0.0
    shrinkage_target : {"pooled", "diag"}, default="pooled"
    weight_smoothing : float, default=0.0
    reseed : bool, default=True
    max_iter : int, default=100
    tol : float, default=1e-3
    random_state : int, RandomState instance or None, default=None
    n_jobs : int or None, default=None
    verbose : int, default=0
    warm_start : bool, default=False
        All as in :class:`SharedKernelClassifier`.

    Attributes
    ----------
    weights_ : ndarray of shape (n_components,)
    means_ : ndarray of shape (n_components, n_features)
    covariances_ : ndarray
        In the shape of `covariance_type`.
    blocks_ : list of one Block
        The same as an immutable value.
    n_iter_ : int
    converged_ : bool
    log_likelihoods_ : ndarray of shape (n_iter_,)
        log p(X) as each pass found it, before its update.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    SharedKernelClassifier : The supervised model.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pskem import SharedKernelDensity
    >>> X, _ = load_iris(return_X_y=True)
    >>> density = SharedKernelDensity(n_components=3, random_state=0).fit(X)
    >>> density.score_samples(X[:2]).shape
    (2,)
    """

    def __init__(
        self,
        *,
        n_components: int = 20,
        covariance_type: str = "full",
        init: str = "k-means++",
        init_range: tuple[float, float] = (-2.0, 2.0),
        init_scale: float = 2.0,
        weights_init: Any = None,
        means_init: Any = None,
        covariances_init: Any = None,
        n_init: int = 1,
        reg_covar: float = 1e-6,
        shrinkage: float | str = 0.0,
        shrinkage_target: str = "pooled",
        weight_smoothing: float = 0.0,
        reseed: bool = True,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.init = init
        self.init_range = init_range
        self.init_scale = init_scale
        self.weights_init = weights_init
        self.means_init = means_init
        self.covariances_init = covariances_init
        self.n_init = n_init
        self.reg_covar = reg_covar
        self.shrinkage = shrinkage
        self.shrinkage_target = shrinkage_target
        self.weight_smoothing = weight_smoothing
        self.reseed = reseed
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start

    @with_callbacks
    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the mixture.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        self : SharedKernelDensity
        """
        check_common(self)
        checks.check_integer("n_components", self.n_components, 1)
        with all_or_nothing(self):
            before = getattr(self, "blocks_", None) if self.warm_start else None
            X = validate_data(
                self, X, dtype=[np.float64, np.float32], reset=before is None, order="C"
            )
            plan = make_plan(
                self,
                [np.arange(X.shape[1])],
                [self.n_components],
                self._starts(X.shape[1], before),
                draw_seeds(self.random_state)[0],
            )
            data = make_data(X, np.zeros(len(X), dtype=np.intp), None, 1, plan)

            with workers(self.n_jobs) as parallel_map:
                run, refined = fit_blocks(
                    self, plan, data, None, parallel_map, X, None, self._attributes
                )

        blocks = to_blocks(plan, data, refined.model)
        for name, value in self._attributes(blocks).items():
            setattr(self, name, value)
        self.n_iter_ = len(run.log_likelihoods)
        self.converged_ = bool(run.converged[0])
        self.log_likelihoods_ = run.log_likelihoods[:, 0]
        return self

    @staticmethod
    def _attributes(blocks: list[Block], _: Any = None) -> dict[str, Any]:
        (block,) = blocks
        return {
            "blocks_": blocks,
            "weights_": block.weights[0],
            "means_": block.means,
            "covariances_": block.covariances,
        }

    def _starts(self, m: int, before: list[Block] | None) -> list[Start]:
        structure, K = STRUCTURES[self.covariance_type], self.n_components
        if before is not None:
            check_unchanged(before, structure.name, [np.arange(m)], [K])
            return starts_from(before)
        weights = self.weights_init
        if weights is not None:
            weights = checks.check_shape("weights_init", weights, [(K,)], "(n_components,)")[None]
        return check_starts(
            weights, self.means_init, self.covariances_init, [np.arange(m)], [K], 1, structure
        )

    def score_samples(self, X: Any) -> FloatArray:
        """Log density of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        log_density : ndarray of shape (n_samples,)
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return model.block_log_likelihoods(self.blocks_, X, parallel_map)[:, 0, 0]

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log density of the samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored

        Returns
        -------
        score : float
        """
        return float(self.score_samples(X).mean())

    def predict_proba(self, X: Any) -> FloatArray:
        """Posterior probabilities of the kernels, w_nk.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        responsibilities : ndarray of shape (n_samples, n_components)
        """
        X = validated(self, X)
        with workers(self.n_jobs) as parallel_map:
            return model.responsibilities(self.blocks_, X, np.ones((len(X), 1)), parallel_map)[0]

    def predict(self, X: Any) -> NDArray[np.intp]:
        """The most probable kernel of each sample.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        components : ndarray of shape (n_samples,)
        """
        return self.predict_proba(X).argmax(axis=1)

    def sample(
        self, n_samples: int = 1, random_state: Any = None
    ) -> tuple[FloatArray, NDArray[np.intp]]:
        """Draw samples from the mixture.

        Parameters
        ----------
        n_samples : int, default=1
        random_state : int, RandomState instance or None, default=None

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        components : ndarray of shape (n_samples,)
            The kernel that each sample comes from, as for scikit-learn's GaussianMixture.
        """
        check_is_fitted(self, "blocks_")
        checks.check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(draw_seeds(random_state, 4))
        labels = np.zeros(n_samples, dtype=np.intp)
        X, components = model.draw(self.blocks_, labels, self.n_features_in_, rng)
        return X, components[:, 0]

    def aic(self, X: Any) -> float:
        """Akaike's information criterion; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        aic : float
        """
        return self._criteria(X).aic

    def bic(self, X: Any) -> float:
        """Bayesian information criterion; lower is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        bic : float
        """
        return self._criteria(X).bic

    def _criteria(self, X: Any) -> model.Criteria:
        log_densities = self.score_samples(X)
        total = float(log_densities.sum())
        return model.information_criteria(self.blocks_, total, len(log_densities))
