"""The one-class case: a Gaussian mixture trained by the paper's standard EM."""

from __future__ import annotations

from dataclasses import replace
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils.validation import check_is_fitted

from pskem import checks
from pskem.engine import workers
from pskem.estimators._fitted import FittedModel
from pskem.estimators._input import (
    accept,
    all_or_nothing,
    checked_weights,
    counted_rows,
    validated,
)
from pskem.estimators._opening import table_of
from pskem.estimators._stored import gather_table
from pskem.structures import FloatArray
from pskem.training import (
    CallbackSupportMixin,
    CovarianceType,
    Init,
    Journal,
    Page,
    Refiner,
    Samples,
    Settings,
    Shrinkage,
    Trainer,
    arrange,
    described,
    draw_seeds,
    find_journal,
    make_plan,
    mark_of,
    observing,
    refine,
    stand_in,
    train,
    with_callbacks,
)

__all__ = ["SharedKernelDensity"]


class SharedKernelDensity(FittedModel, CallbackSupportMixin, DensityMixin, BaseEstimator):
    """Gaussian mixture density: a shared kernel model with one class and one block.

    Parameters
    ----------
    n_components : int, default=20
        K, the number of kernels.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
    init : str or a start of :mod:`pskem.starts`, default="k-means++"
        ``"class-kmeans"`` is ``"kmeans"`` here, where there are no classes.
    n_init : int, default=1
    reg_covar : float, default=1e-6
    shrinkage : float, "auto" or Shrinkage, default=0.0
    max_iter : int, default=100
    tol : float, default=1e-3
    random_state : int, RandomState instance or None, default=None
    n_jobs : int or None, default=None
    verbose : int, default=0
    warm_start : bool, default=False
        All as in :class:`SharedKernelClassifier`.

    Attributes
    ----------
    model_ : Model
        The fitted model as one immutable value; the next four are views of it.
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
        covariance_type: CovarianceType = "full",
        init: Init = "k-means++",
        n_init: int = 1,
        reg_covar: float = 1e-6,
        shrinkage: float | Literal["auto"] | Shrinkage = 0.0,
        max_iter: int = 100,
        tol: float = 1e-3,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.init = init
        self.n_init = n_init
        self.reg_covar = reg_covar
        self.shrinkage = shrinkage
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        checkpoint: str | PathLike[str] | Journal | None = None,
    ) -> Self:
        """Train the mixture.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Also a collection of Dask's, a numpy.memmap, or what :func:`pskem.open_table` gives.
        y : ignored
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts, as in :meth:`SharedKernelClassifier.fit`.
        checkpoint : path-like, Checkpoint or None, default=None
            A file that keeps the training, from which the same call goes on if it was killed.

        Returns
        -------
        self : SharedKernelDensity
        """
        settings = self._settings()
        with all_or_nothing(self):
            before = getattr(self, "model_", None) if settings.warm_start else None
            journal = find_journal(self, checkpoint)
            seed = journal.begin(described(self, before), *draw_seeds(self.random_state))
            table = table_of(self, X, None, sample_weight, classes=False)
            if table is None:
                samples = self._gather(X, sample_weight, before is None)
                samples = stand_in(settings, samples, seed)
            else:
                nothing = (None, None, None)
                samples = gather_table(self, table, nothing, settings, before, seed)
                if len(samples.classes) > 1 or (samples.labels < 0).any():
                    raise ValueError(
                        "A density knows no classes: open the table without a target, and drop its"
                        " column if it is no feature."
                    )
            plan = make_plan(settings, samples, before, seed)
            with (
                workers(settings.n_jobs) as parallel_map,
                observing(self, plan, samples) as observers,
            ):
                journal.agree(lambda: mark_of(samples, parallel_map))
                data = arrange(plan, samples, parallel_map)
                trainer = Trainer(plan, data, parallel_map)
                page = Page(journal, "")
                run = train(trainer, samples.classes, samples.priors, observers, page)
                refined = refine(Refiner(plan, data, parallel_map), run, observers, page)
                observers.end(data, run, refined)
        self.model_ = refined.best
        self.reference_log_densities_ = np.empty(0)
        self.n_iter_ = run.iteration
        self.converged_ = bool(run.converged[0])
        self.log_likelihoods_ = run.log_likelihoods[:, 0]
        return self

    def _gather(self, X: Any, sample_weight: Any, reset: bool) -> Samples:
        """Samples in memory, all of one class."""
        X = accept(self, X, reset=reset)
        names = getattr(self, "feature_names_in_", None)
        X, nobody, weights = counted_rows(X, np.zeros(len(X), dtype=np.intp), sample_weight)
        only = np.zeros(1, dtype=np.intp)
        return Samples(X, nobody, only, np.ones(1), None, names, weights)

    def _settings(self) -> Settings:
        """Settings with one block, and one row of weights, as for a classifier with one class."""
        checks.check_integer("n_components", self.n_components, 1)
        settings = Settings.parse({**self.get_params(deep=False), "n_blocks": 1})
        given = settings.given
        if given is None or given.weights is None:
            return settings
        accepted = [(self.n_components,)]
        weights = checks.check_shape("Start.weights", given.weights, accepted, "(n_components,)")
        return settings._replace(given=replace(given, weights=weights[None]))

    @property
    def weights_(self) -> FloatArray:
        return self.model_.blocks[0].weights[0]

    @property
    def means_(self) -> FloatArray:
        return self.model_.blocks[0].means

    @property
    def covariances_(self) -> FloatArray:
        return self.model_.blocks[0].covariances

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Mean log density of the samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), default=None

        Returns
        -------
        score : float
        """
        found = self.score_samples(X)
        weights = None if sample_weight is None else checked_weights(sample_weight, len(found))
        return float(np.average(found, weights=weights))

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
            return self.model_.responsibilities(X, np.ones((len(X), 1)), parallel_map)[0]

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
        check_is_fitted(self)
        checks.check_integer("n_samples", n_samples, 1)
        rng = np.random.default_rng(draw_seeds(random_state, 4))
        labels = np.zeros(n_samples, dtype=np.intp)
        X, components = self.model_.draw(labels, self.n_features_in_, rng)
        return X, components[:, 0]

    def _log_likelihood(self, X: Any, y: Any) -> FloatArray:
        return self.score_samples(X)
