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
from pskem.engine._parallel import workers
from pskem.engine._sources import canonical_order
from pskem.estimators._prediction import BlockPredictor
from pskem.model import Block
from pskem.structures import FloatArray
from pskem.training._callbacks import CallbackSupportMixin, with_callbacks
from pskem.training._fitting import (
    Watcher,
    all_or_nothing,
    check_common,
    draw_seeds,
    fit_blocks,
    to_blocks,
)
from pskem.training._loop import Observer, Run
from pskem.training._planning import divide, find_unmixing, plan_fit
from pskem.training._refining import Refined, refine
from pskem.training._weighting import Weighting

__all__ = ["SharedKernelClassifier"]


class SharedKernelClassifier(BlockPredictor, CallbackSupportMixin, ClassifierMixin, BaseEstimator):
    """Shared kernel classifier, trained by (partitioned) supervised EM and discriminative passes.

    All classes draw on one common set of Gaussian kernels with class-specific weights,
    p(x|c=j) = sum_k pi_kj N(x; mu_k, P_k). The features are cut into blocks, one such model is
    trained per block, and the log likelihoods of the blocks are added: this is PSKEM; with one
    block it is SKEM [1]_. After EM, discriminative passes raise the posterior probabilities of the
    true classes [2]_. docs/beyond.md says why the defaults are what they are; the paper's own
    training is ``init="random", shrinkage=0, reseed=False, discriminative_iter=0,
    priors="uniform"`` with explicit `n_components` and `n_blocks`.

    Parameters
    ----------
    n_components : int, sequence of int or "auto", default="auto"
        K, the number of kernels: one number, or one per block. ``"auto"`` gives a class one kernel
        for every 30 m of its samples in a block of m features, at least 1 and at most 20. That
        suits kernels that start in their class; starts that do not know classes tend to need more.
    n_blocks : int or "auto", default="auto"
        R, the number of blocks. ``"auto"`` makes blocks of at most 100 features: with kernels that
        start in their class, larger blocks were as accurate as smaller ones or more, and a pass
        costs O(m) per feature, kernel and sample. Sizes differ by at most one.
    partition : {"sequential", "interleaved", "random", "dependence", "ica"} or list of arrays, \
            default="sequential"
        How features are dealt out to the blocks. ``"dependence"`` makes the blocks as independent
        given the class as it can: it keeps features together whose mutual information within the
        classes, estimated from their correlations, is high. ``"ica"`` first unmixes the features
        by scikit-learn's FastICA, into as many components as X has dimensions, and deals out the
        components by their dependence; see `unmixing_`. Neither uses more than 20,000 samples. A
        list gives the column indices (or the column names, if X has them) of each block; blocks
        must not overlap. Features that the list leaves out are not used.
    covariance_type : {"full", "tied", "diag", "spherical"}, default="full"
        The form of the kernels: ``"full"`` is SKEM, ``"tied"`` MDA (one covariance for all
        kernels), ``"diag"`` DGMM, ``"spherical"`` the PRBF network of Titsias and Likas.
    init : {"class-kmeans", "k-means++", "kmeans", "kdtree", "em", "random"}, \
            default="class-kmeans"
        Where EM starts. ``"class-kmeans"`` deals out the kernels to the classes by their sizes and
        takes means by k-means within each class. ``"k-means++"`` and ``"kmeans"`` (refined by
        Lloyd's iterations) do not look at classes; ``"kdtree"`` takes the means of cells that
        recursive median splits make, and leaves nothing to chance. All take the pooled covariance
        within clusters, and class shares as weights. ``"em"`` is the mixture that 20 passes of
        standard EM make of ``"k-means++"``. ``"random"`` is the paper's start: means uniform on
        `init_range`, covariances ``init_scale**2`` times the identity, uniform weights, all in the
        units of X. With fewer kernels than classes, or with `means_init` or `weights_init`,
        ``"class-kmeans"`` is ``"k-means++"``.
    own_mass : float, default=1.0
        Share of a class's weight that ``"class-kmeans"`` gives to the class's own kernels; the rest
        is spread evenly over all. With 1, kernels are not shared (a weight of zero stays zero).
        EM moves shared kernels to where they describe all classes together best, which is not where
        they tell them apart: on CIFAR-10, one kernel a class has 51 % accuracy after EM, and 32 %
        with 0.9. Fewer kernels than classes are shared in any case.
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
        features. The floor is a constraint on the maximisation, so that by itself it lets the
        likelihood never fall. With 0, only a floor of 1e-10 against rounding remains.
    shrinkage : float or "auto", default="auto"
        Pseudo-samples nu of each kernel that have a common covariance Psi:
        P_k = (n_k P_k + nu Psi) / (n_k + nu), with Psi estimated anew in every pass. ``"auto"`` is
        m + 1 for a block of m features, with which no covariance is singular and kernels with many
        samples stay nearly as they are. For a fixed Psi this is the maximum a posteriori under an
        inverse Wishart prior, and the penalised likelihood never falls; as Psi moves, neither the
        penalised nor the plain likelihood need rise in every pass. Discriminative passes do not
        shrink.
    shrinkage_target : {"pooled", "diag"}, default="diag"
        Psi: the covariance within all kernels together, or its diagonal.
    weight_smoothing : float, default=0.0
        Pseudo-samples of each class that are spread evenly over the kernels that it may use: a
        Dirichlet prior on the weights.
    reseed : bool, default=True
        Whether a kernel that runs empty moves to the sample that is explained worst, with as much
        weight as raises the likelihood most; at most three times in a run.
    max_iter : int, default=100
        Largest number of EM passes.
    tol : float, default=1e-3
        Training stops when the mean log likelihood per sample gains less than this in every
        block. ``tol=0`` runs all passes.
    block_weights : "auto", "fit", None or array of shape (n_blocks,), default="auto"
        Weights beta_r of the blocks' log likelihoods in decisions. ``"fit"`` fits them, and a
        temperature, to held-out samples: blocks that depend on each other count the same evidence
        several times, and posterior probabilities would be far too sure of themselves. ``"auto"``
        fits them if early stopping holds out samples anyway. None is one for all.
    discriminative_iter : int or "auto", default="auto"
        Most passes of extended Baum-Welch after EM, which raise sum_n log p(c_n|x_n) and stop when
        they cannot. ``"auto"`` is 20 where validation keeps the best and 5 where it does not. The
        passes give up some of the fit to the density of X for better decisions: use 0 if densities
        or samples of the model matter more.
    discriminative_smoothing : float, default=0.0
        Samples of EM's kernels that each discriminative pass adds to every kernel (I-smoothing).
    early_stopping : bool or "auto", default="auto"
        Whether to validate the assembled classifier after every pass and to keep the pass with
        the highest accuracy. ``"auto"`` does so for the discriminative passes, if there are
        validation data or 1,000 samples at least: a tenth of fewer chooses by chance and is missed
        in the training. Validation data are `X_val` and `y_val` of :meth:`fit` or, without them, a
        part of the training data, which is not trained on.
    validation_fraction : float, default=0.1
        Part of the samples that is held out for early stopping and block weights, shared out over
        the classes by their sizes.
    n_iter_no_change : int or None, default=10
        Passes without a better validation score after which training stops. None goes on, and
        still keeps the best pass.
    priors : None, "uniform" or array of shape (n_classes,), default=None
        Class priors. None takes the class frequencies, ``"uniform"`` is the paper's choice.
    random_state : int, RandomState instance or None, default=None
        Source of randomness. With an int, the same data, to the last bit, give the same model, in
        whatever order their rows come.
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
        `covariances`, in the units of X; with ``partition="ica"``, `features` are components.
    unmixing_ : Unmixing or None
        With ``partition="ica"``, an immutable value with the matrices `unmixing` (C, M) and
        `mixing` (M, C): components are ``unmixing @ (x - mean)``. All methods take and return
        features. Densities are those of the features too, by way of `log_det`, unless the features
        are linearly dependent (C < M) and have none: then they are densities of the components.
        None with other partitions.
    n_iter_ : int
        Number of passes that were run.
    converged_ : ndarray of bool of shape (n_blocks,)
        Whether the last pass gained less than `tol` in the block; False when the passes ran out.
    log_likelihoods_ : ndarray of shape (n_iter_, n_blocks)
        log p(X|C) of the training data, or of their components, under each block, as each pass
        found it (before its update).
    validation_scores_ : ndarray of shape (n_iter_,)
        Validation accuracy after each pass; empty if nothing was validated.
    best_iter_ : int
        The pass whose parameters were kept, counted from 1: the last one without early stopping.
    block_weights_ : ndarray of shape (n_blocks,)
    temperature_ : float
        Posterior probabilities are the softmax of
        (log p(c=j) + sum_r block_weights_[r] log q_rj(x)) / temperature_.
    log_posteriors_ : ndarray
        sum_n log p(c_n|x_n) of the training samples before the first discriminative pass and after
        each; empty without such passes.
    discriminative_scores_ : ndarray
        Validation accuracy of the same; empty if nothing was validated.
    discriminative_best_iter_ : int
        The discriminative pass whose parameters were kept; 0 is the result of EM.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    SharedKernelClassifierCV : Chooses K, blocks and shrinkage by validation or BIC.
    PartitionEnsemble : Multiplies models over several partitions.
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
    .. [2] D. Povey and P. C. Woodland, "Minimum Phone Error and I-smoothing for Improved
       Discriminative Training", ICASSP 2002; P. S. Gopalakrishnan et al., "An Inequality for
       Rational Functions with Applications to Some Statistical Estimation Problems", 1991.

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
        n_components: int | str | Sequence[int] = "auto",
        n_blocks: int | str = "auto",
        partition: str | Sequence[Any] = "sequential",
        covariance_type: str = "full",
        init: str = "class-kmeans",
        own_mass: float = 1.0,
        init_range: tuple[float, float] = (-2.0, 2.0),
        init_scale: float = 2.0,
        weights_init: Any = None,
        means_init: Any = None,
        covariances_init: Any = None,
        n_init: int = 1,
        reg_covar: float = 1e-6,
        shrinkage: float | str = "auto",
        shrinkage_target: str = "diag",
        weight_smoothing: float = 0.0,
        reseed: bool = True,
        max_iter: int = 100,
        tol: float = 1e-3,
        block_weights: Any = "auto",
        discriminative_iter: int | str = "auto",
        discriminative_smoothing: float = 0.0,
        early_stopping: bool | str = "auto",
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
        self.own_mass = own_mass
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
        self.block_weights = block_weights
        self.discriminative_iter = discriminative_iter
        self.discriminative_smoothing = discriminative_smoothing
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
            Validation data. They are scored after every pass (`validation_scores_`,
            `discriminative_scores_`), and take the place of samples that `early_stopping` and
            `block_weights` would hold out. In a pipeline they must have gone through the steps
            before this one.
        watch : callable or None, default=None
            Called after every pass with the list of blocks as they then are, in the units of X
            or, with ``partition="ica"``, of its components; something true ends the training.

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
            prior = checks.check_prior(self.priors, np.bincount(labels) / len(labels))
            validation = self._check_validation(X_val, y_val, classes)

            (seed,) = draw_seeds(self.random_state)
            given = X, y
            unmixing = find_unmixing(self, X, labels, before, seed)
            if unmixing is not None:
                # Products round by the place of a row, so the rows decide that too.
                order = canonical_order(X, labels)
                with workers(1):
                    X, labels = unmixing.components(X[order]), labels[order]
                    if validation is not None:
                        validation = unmixing.components(validation[0]), validation[1]
            plan = plan_fit(self, X, labels, classes, before, seed)
            data, holdout, wishes = divide(self, X, labels, prior, plan, validation)
            watched = validation is not None or plan.early_stopping

            def attributes(blocks: list[Block], weighting: Weighting) -> dict[str, Any]:
                return {
                    "blocks_": blocks,
                    "block_weights_": weighting.weights,
                    "classes_": classes,
                    "class_prior_": prior,
                    "temperature_": weighting.temperature,
                    "unmixing_": unmixing,
                }

            with workers(self.n_jobs) as parallel_map, np.errstate(divide="ignore"):
                then = (plan, data, holdout, np.log(prior))

                def refinement(run: Run, observe: Observer) -> Refined:
                    return refine(wishes, *then, run, parallel_map, observe)

                run, refined = fit_blocks(
                    self,
                    plan,
                    data,
                    holdout if watched else None,
                    parallel_map,
                    *given,
                    attributes,
                    watch,
                    wishes.passes,
                    refinement,
                )

        blocks = to_blocks(plan, data, refined.model)
        for name, value in attributes(blocks, refined.model.weighting).items():
            setattr(self, name, value)
        self.log_posteriors_ = refined.log_posteriors
        self.discriminative_scores_ = refined.scores
        self.discriminative_best_iter_ = refined.best
        self.n_iter_ = len(run.log_likelihoods)
        self.converged_ = run.converged
        self.log_likelihoods_ = run.log_likelihoods
        self.validation_scores_ = run.validation_scores
        self.best_iter_ = run.best_iter
        return self

    def _check_parameters(self) -> None:
        check_common(self)
        checks.check_real("own_mass", self.own_mass, 0.0, 1.0)
        checks.check_block_weights(self.block_weights)
        checks.check_integer("discriminative_iter", self.discriminative_iter, 0, auto=True)
        checks.check_real("discriminative_smoothing", self.discriminative_smoothing, 0.0)
        checks.check_boolean("early_stopping", self.early_stopping, auto=True)
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
