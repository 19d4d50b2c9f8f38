"""The scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from pskem import checks
from pskem.callbacks import CallbackSupportMixin, with_callbacks
from pskem.fitting import (
    Watcher,
    all_or_nothing,
    check_common,
    check_unchanged,
    draw_seeds,
    fit_blocks,
    make_plan,
    starts_from,
    to_blocks,
)
from pskem.model import Block
from pskem.parallel import workers
from pskem.partition import partition_features
from pskem.prediction import BlockPredictor
from pskem.structures import STRUCTURES, FloatArray
from pskem.training import Plan, make_data, make_holdout, split

__all__ = ["SharedKernelClassifier"]


class SharedKernelClassifier(BlockPredictor, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Shared kernel classifier, trained by (partitioned) supervised EM.

    All classes draw on one common set of Gaussian kernels with class-specific weights,
    p(x|c=j) = sum_k pi_kj N(x; mu_k, P_k). The features are cut into blocks, one such model is
    trained per block, and the log likelihoods of the blocks are added: this is PSKEM; with one
    block it is SKEM [1]_.

    Parameters
    ----------
    n_components : int or sequence of int, default=20
        K, the number of kernels: one number, or one per block.
    n_blocks : int or "auto", default="auto"
        R, the number of blocks. ``"auto"`` makes blocks of at most 16 features. Sizes differ by at
        most one.
    partition : {"sequential", "interleaved", "random"} or list of arrays, default="sequential"
        How features are dealt out to the blocks. A list gives the column indices (or the column
        names, if X has them) of each block; blocks must not overlap. Features that the list
        leaves out are not used.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        The form of the kernels: ``"full"`` is SKEM, ``"tied"`` MDA (one covariance for all
        kernels), ``"diag"`` DGMM, ``"spherical"`` the PRBF network of Titsias and Likas.
    init : {"k-means++", "kmeans", "random"}, default="k-means++"
        Where EM starts. ``"k-means++"`` and ``"kmeans"`` (refined by Lloyd's iterations) take
        means from the data, the pooled within-cluster covariance, and class shares as weights.
        ``"random"`` is the paper's start: means uniform on `init_range`, covariances
        ``init_scale**2`` times the identity, uniform weights, all in the units of X.
    init_range : pair of float, default=(-2.0, 2.0)
        Range of the means of the random start.
    init_scale : float, default=2.0
        Standard deviation of the kernels of the random start.
    weights_init : array of shape (n_classes, n_components) or list of these, default=None
        Starting weights, one array per block. Rows sum to one. A weight of zero stays zero, so
        zeros say which kernels a class may use (constrained sharing).
    means_init : array of shape (n_components, m) or list of these, default=None
        Starting means, one array per block.
    covariances_init : array of shape (n_components, m, m) or list of these, default=None
        Starting covariances, one array per block; the shape of `covariance_type` is accepted too.
    n_init : int, default=1
        Number of starts. The run with the highest log likelihood is kept or, with early stopping,
        the one with the highest validation score.
    reg_covar : float, default=1e-6
        Smallest eigenvalue that a kernel's covariance may have, relative to the variance of the
        features. The floor is a constraint on the maximisation, so the likelihood still never
        falls. With 0, only a floor of 1e-10 against rounding remains.
    max_iter : int, default=100
        Largest number of EM passes.
    tol : float, default=1e-3
        Training stops when the mean log likelihood per sample gains less than this in every
        block. ``tol=0`` runs all passes.
    early_stopping : bool, default=False
        Whether to validate the assembled classifier after every pass and to keep the pass with
        the highest accuracy. Validation data are `X_val` and `y_val` of :meth:`fit` or, without
        them, a part of the training data.
    validation_fraction : float, default=0.1
        Part of the samples that is held out for early stopping, shared out over the classes by
        their sizes.
    n_iter_no_change : int or None, default=10
        Passes without a better validation score after which training stops. None goes on, and
        still keeps the best pass.
    priors : None, "uniform" or array of shape (n_classes,), default=None
        Class priors. None takes the class frequencies, ``"uniform"`` is the paper's choice.
    random_state : int, RandomState instance or None, default=None
        Source of randomness. With an int, the same data give the same model, in whatever order
        their rows come.
    n_jobs : int or None, default=None
        Number of threads; None is all available cores. The result has the same bits for all.
    verbose : int, default=0
        Shows a progress bar on stderr. Where stderr is no terminal: a line every 10 passes for 1,
        every pass for 2.
    warm_start : bool, default=False
        Whether :meth:`fit` goes on from the last fit's kernels. The classes, the features, the
        blocks and `covariance_type` must be the same; `weights_init`, `means_init` and
        `covariances_init` are then not used, and a weight that they fixed at zero stays there.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
    blocks_ : list of Block
        One immutable value per block with `features`, `weights` (n_classes, K), `means` (K, m) and
        `covariances`, in the units of X.
    n_iter_ : int
        Number of passes that were run.
    converged_ : ndarray of bool of shape (n_blocks,)
        Whether the last pass gained less than `tol` in the block; False when the passes ran out.
    log_likelihoods_ : ndarray of shape (n_iter_, n_blocks)
        log p(X|C) of the training data under each block, as each pass found it (before its
        update).
    validation_scores_ : ndarray of shape (n_iter_,)
        Validation accuracy after each pass; empty if nothing was validated.
    best_iter_ : int
        The pass whose parameters were kept, counted from 1: the last one without early stopping.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    SharedKernelDensity : The one-class case, an ordinary Gaussian mixture.

    Notes
    -----
    Kernels to which no sample is left keep their mean and covariance and have no weight beyond
    rounding; kernels that collapse are held at the floor of `reg_covar`. Both are reported in a
    ``ConvergenceWarning``, the latter only for floors below 0.01: a higher one is meant to be felt.

    References
    ----------
    .. [1] G. W. Pulford, "Improvements to Supervised EM Learning of Shared Kernel Models by
       Feature Space Partitioning", 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pskem import SharedKernelClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SharedKernelClassifier(n_components=4, random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.95
    True
    """

    def __init__(
        self,
        *,
        n_components: int | Sequence[int] = 20,
        n_blocks: int | str = "auto",
        partition: str | Sequence[Any] = "sequential",
        covariance_type: str = "full",
        init: str = "k-means++",
        init_range: tuple[float, float] = (-2.0, 2.0),
        init_scale: float = 2.0,
        weights_init: Any = None,
        means_init: Any = None,
        covariances_init: Any = None,
        n_init: int = 1,
        reg_covar: float = 1e-6,
        max_iter: int = 100,
        tol: float = 1e-3,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = 10,
        priors: Any = None,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
    ) -> None:
        self.n_components = n_components
        self.n_blocks = n_blocks
        self.partition = partition
        self.covariance_type = covariance_type
        self.init = init
        self.init_range = init_range
        self.init_scale = init_scale
        self.weights_init = weights_init
        self.means_init = means_init
        self.covariances_init = covariances_init
        self.n_init = n_init
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.priors = priors
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        X_val: Any = None,
        y_val: Any = None,
        watch: Watcher | None = None,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            float32 stays float32 in the arithmetic where that is safe.
        y : array-like of shape (n_samples,)
        X_val, y_val : array-like, default=None
            Validation data. They are scored after every pass (`validation_scores_`); with
            ``early_stopping=True`` the best pass is kept, else the last one. In a pipeline they
            must have gone through the steps before this one.
        watch : callable or None, default=None
            Called after every pass with the list of blocks as they then are, in the units of X;
            something true ends the training.

        Returns
        -------
        self : SharedKernelClassifier
        """
        self._check_parameters()
        with all_or_nothing(self):
            before = getattr(self, "blocks_", None) if self.warm_start else None
            X, y = validate_data(
                self, X, y, dtype=[np.float64, np.float32], reset=before is None, order="C"
            )
            check_classification_targets(y)
            classes, labels = np.unique(y, return_inverse=True)
            L = len(classes)
            prior = checks.check_prior(self.priors, np.bincount(labels) / len(labels))
            validation = self._check_validation(X_val, y_val, classes)

            (seed,) = draw_seeds(self.random_state)
            plan = self._plan(X, classes, before, seed)
            rows = None
            if self.early_stopping and validation is None:
                rows, held_out = split(X, labels, self.validation_fraction, L, seed)
                if not len(held_out):
                    raise ValueError(
                        f"validation_fraction={self.validation_fraction} of {len(y)} samples leaves"
                        " none to validate on (every class keeps one to train on). Use a larger"
                        " fraction or more samples, give X_val and y_val, or set"
                        " early_stopping=False."
                    )
                validation = X[held_out], labels[held_out]
            data = make_data(X, labels, rows, L, plan)
            holdout = None
            if validation is not None:
                holdout = make_holdout(*validation, prior, data, plan)

            def attributes(blocks: list[Block]) -> dict[str, Any]:
                return {"blocks_": blocks, "classes_": classes, "class_prior_": prior}

            with workers(self.n_jobs) as parallel_map:
                run = fit_blocks(self, plan, data, holdout, parallel_map, X, y, attributes, watch)

        self.classes_ = classes
        self.class_prior_ = prior
        self.blocks_ = to_blocks(plan, data, run.kernels)
        self.n_iter_ = len(run.log_likelihoods)
        self.converged_ = run.converged
        self.log_likelihoods_ = run.log_likelihoods
        self.validation_scores_ = run.validation_scores
        self.best_iter_ = run.best_iter
        return self

    def _check_parameters(self) -> None:
        check_common(self)
        checks.check_boolean("early_stopping", self.early_stopping)
        checks.check_real("validation_fraction", self.validation_fraction, 0.0, 1.0, strict=True)
        checks.check_integer("n_iter_no_change", self.n_iter_no_change, 1, none=True)

    def _check_validation(
        self, X_val: Any, y_val: Any, classes: NDArray[Any]
    ) -> tuple[FloatArray, NDArray[np.intp]] | None:
        if (X_val is None) != (y_val is None):
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"X_val and y_val go together, but {missing} is missing.")
        if X_val is None:
            return None
        try:
            X_val, y_val = validate_data(
                self, X_val, y_val, dtype=[np.float64, np.float32], reset=False, order="C"
            )
        except ValueError as error:
            raise ValueError(f"X_val and y_val are not accepted. {error}") from None
        return X_val, checks.check_labels(y_val, classes, "y_val")

    def _plan(
        self, X: FloatArray, classes: NDArray[Any], before: list[Block] | None, seed: int
    ) -> Plan:
        names = getattr(self, "feature_names_in_", None)
        rng = np.random.default_rng([seed, 0])
        blocks = partition_features(X.shape[1], self.n_blocks, self.partition, rng, names)
        n_components = checks.check_n_components(self.n_components, len(blocks))
        if before is None:
            structure = STRUCTURES[self.covariance_type]
            explicit = (self.weights_init, self.means_init, self.covariances_init)
            starts = checks.check_starts(*explicit, blocks, n_components, len(classes), structure)
        else:
            drawn = isinstance(self.partition, str) and self.partition == "random"
            if drawn and len(blocks) == len(before):
                blocks = [block.features for block in before]
            check_unchanged(before, self.covariance_type, blocks, n_components)
            if not np.array_equal(classes, self.classes_):
                raise ValueError(
                    f"warm_start=True needs the classes of the last fit, {self.classes_.tolist()},"
                    f" but y has {classes.tolist()}. Set warm_start=False to start afresh."
                )
            starts = starts_from(before)
        return make_plan(
            self, blocks, n_components, starts, seed, self.early_stopping, self.n_iter_no_change
        )
