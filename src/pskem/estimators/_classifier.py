"""The scikit-learn classifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassifierMixin

from pskem.estimators._gathering import gather_samples
from pskem.estimators._input import all_or_nothing
from pskem.estimators._opening import table_of
from pskem.estimators._prediction import ModelPredictor
from pskem.estimators._stored import gather_table
from pskem.estimators._streams import LearnsFromStreams
from pskem.starts import KMeans, Uniform
from pskem.training import (
    CallbackSupportMixin,
    CovarianceType,
    Init,
    Journal,
    Partition,
    Refined,
    Settings,
    Shrinkage,
    State,
    Stepwise,
    Watcher,
    class_totals,
    described,
    draw_seeds,
    find_journal,
    fit_views,
    settle_unlabelled,
    stand_in,
    with_callbacks,
)

__all__ = ["EM_ALONE", "PAPER", "SharedKernelClassifier"]

#: EM and nothing else: nothing is held out, shrunk, put elsewhere, weighed or refined.
EM_ALONE: Mapping[str, Any] = {
    "init": KMeans(refine=False, reseed=False),
    "shrinkage": 0.0,
    "block_weights": None,
    "discriminative_iter": 0,
    "early_stopping": False,
    "unlabelled_weight": 1.0,
}
#: The training of Pulford (2022): EM alone from a random start, with uniform class priors.
PAPER: Mapping[str, Any] = {
    **EM_ALONE,
    "init": Uniform(reseed=False),
    "priors": "uniform",
}


class SharedKernelClassifier(
    LearnsFromStreams, ModelPredictor, CallbackSupportMixin, ClassifierMixin, BaseEstimator
):
    """Shared kernel classifier, trained by (partitioned) supervised EM and discriminative passes.

    All classes draw on one common set of Gaussian kernels with class-specific weights,
    p(x|c=j) = sum_k pi_kj N(x; mu_k, P_k). The features are cut into blocks, one such model is
    trained per block, and the log likelihoods of the blocks are added: this is PSKEM; with one
    block it is SKEM [1]_. After EM, discriminative passes raise the posterior probabilities of the
    true classes [2]_. By default several such models of different forms are tried, and the best are
    multiplied: their log likelihoods add up like those of blocks. docs/beyond.md says why the
    defaults are what they are; the paper's own training is
    ``SharedKernelClassifier(n_components=K, n_blocks=R, **pskem.PAPER)``.

    Parameters
    ----------
    n_components : int, sequence of int or "auto", default="auto"
        K, the number of kernels: one number, or one per block. ``"auto"`` gives a class one kernel
        for every 30 m of its samples in a block of m features, at least 1 and at most 20. That
        suits kernels that start in their class; starts that do not know classes tend to need more.
    n_blocks : int or "auto", default="auto"
        R, the number of blocks. ``"auto"`` makes blocks of at most 100 features: with kernels that
        start in their class, larger blocks were as accurate as smaller ones or more, and a pass
        costs O(m) per feature, kernel and sample. Sizes differ by at most one. Where samples
        without a class are learnt from, and classes have fewer samples than there are features,
        there are 3 blocks at least: they teach each other.
    partition : {"auto", "sequential", "interleaved", "random", "dependence"} or list of arrays, \
            default="auto"
        How features are dealt out to the blocks. ``"auto"`` is ``"sequential"``, but
        ``"interleaved"`` where samples without a class are learnt from. ``"dependence"`` makes the
        blocks as independent given the class as it can: it keeps features together whose mutual
        information within the classes, estimated from the correlations of at most 20,000 samples,
        is high; after
        :class:`pskem.preprocessing.IndependentComponents` there is little left to keep. A list
        gives the column indices (or the column names, if X has them) of each block; blocks must
        not overlap. Features that the list leaves out are not used.
    covariance_type : {"auto", "full", "tied", "diag", "spherical"}, default="auto"
        The form of the kernels: ``"full"`` is SKEM, ``"tied"`` MDA (one covariance for all
        kernels), ``"diag"`` DGMM, ``"spherical"`` the PRBF network of Titsias and Likas.
        ``"auto"`` is ``"full"`` if another part of the form is given; otherwise views differ in it.
    init : str or a start of :mod:`pskem.starts`, default="auto"
        Where EM starts. ``"auto"`` is ``"class-kmeans"``, but ``"em"`` where samples without a
        class are learnt from and classes have fewer than 8 samples: all samples then find the
        kernels, and the few with a class say whose they are. ``"class-kmeans"`` deals out the
        kernels to the classes by their sizes and takes means by k-means within each class; the
        kernels of a class are its own, and nothing is shared (``ClassKMeans(own_mass=...)``
        shares). ``"k-means++"`` and ``"kmeans"`` (refined by Lloyd's iterations) do not look at
        classes; ``"kdtree"`` takes the means of cells that recursive median splits make, and leaves
        nothing to chance; ``"em"`` is the mixture that 20 passes of standard EM make of
        ``"k-means++"``; ``"random"`` is the paper's start, ``Uniform(low=-2, high=2, scale=2)``.
        ``Start(weights, means, covariances)`` gives kernels, or parts of them.
    n_init : int, default=1
        Number of starts. The run with the highest log likelihood is kept or, with early stopping,
        the one with the highest validation score.
    reg_covar : float, default=1e-6
        Smallest eigenvalue that a kernel's covariance may have, relative to the variance of the
        features. The floor is a constraint on the maximisation, so that by itself it lets the
        likelihood never fall. With 0, only a floor of 1e-10 against rounding remains.
    shrinkage : float, "auto" or Shrinkage, default="auto"
        Pseudo-samples nu of each kernel that have a common covariance Psi:
        P_k = (n_k P_k + nu Psi) / (n_k + nu), with Psi estimated anew in every pass. ``"auto"`` is
        m + 1 for a block of m features, with which no covariance is singular and kernels with many
        samples stay nearly as they are; three times as many where samples without a class are
        learnt from; and 20 for categories, whose probabilities shrink to their frequencies. Psi is
        the diagonal of the covariance within all kernels together; ``Shrinkage(nu,
        target="pooled")`` takes all of it. For a fixed Psi this is the maximum a posteriori under
        an inverse Wishart prior, and the penalised likelihood never falls; as Psi moves, neither
        the penalised nor the plain likelihood need rise in every pass. Discriminative passes do not
        shrink.
    margins : bool or "auto", default="auto"
        Whether to map features that are skewed or heavy-tailed, each by itself: by a power of Yeo
        and Johnson or by smoothed quantiles, whichever makes the classes most Gaussian, or not at
        all. The maps are part of the model; densities, draws and gaps stay exact in the units of X.
        ``"auto"`` is False if a form is given; otherwise views differ in it.
    n_views : int or "auto", default="auto"
        Models of different forms that are multiplied, at most. Forms are tried by cross-fitting
        (trained without a third of the samples and asked about it, in turn; from 3,000 samples on
        without a fifth, once). They differ in `covariance_type`, `margins`, the number of kernels,
        and in whether categories are taken as numbers; one is linear in steps of the numbers, one
        has a kernel at every sample. ``"auto"`` is 6 from 20 samples on and up to 20,000, if
        n_components, n_blocks, partition, covariance_type, init and shrinkage are all ``"auto"``,
        and 1 otherwise: whoever gives a form gets it. With 1, the best form that is a density of X
        is kept. Nothing is tried with validation data, `early_stopping` True or False, given block
        weights, samples without a class that count, or `warm_start`.
    max_iter : int, default=100
        Largest number of EM passes, of each training.
    tol : float, default=1e-3
        Training stops when the mean log likelihood per sample gains less than this in every
        block. ``tol=0`` runs all passes.
    block_weights : "auto", "fit", None or array of shape (n_blocks,), default="auto"
        Weights beta_r of the blocks' log likelihoods in decisions. ``"fit"`` fits them to samples
        that were not trained on, with a temperature and `shares_`: blocks that depend on each other
        count the same evidence several times, and posterior probabilities would be far too sure of
        themselves. ``"auto"`` does so where such samples choose among discriminative passes: held
        out or, from 20 samples on and up to 20,000, by cross-fitting, after which all samples are
        trained on. None is one for all. The block of the categories is the last.
    discriminative_iter : int or "auto", default="auto"
        Most passes of extended Baum-Welch after EM, which raise sum_n log p(c_n|x_n) and stop when
        they cannot. ``"auto"`` is 0, 3, 10 or 30 by cross-fitting, but at most 10 below 500
        samples, and 3 where passes take long because X has over 200 numbers, or gaps in many
        patterns; and 20 for the linear form. Where samples are held out it is 20, of which
        validation keeps the best; and 5 where nobody watches. The passes give up some of the fit to
        the density of X for better decisions: use 0 if densities or samples of the model matter
        more.
    early_stopping : bool or "auto", default="auto"
        Whether to validate the assembled classifier after every pass and to keep the pass with
        the highest accuracy. ``"auto"`` does so for the discriminative passes, if there are
        validation data or 20,000 samples at least; fewer are cross-fitted instead. False does
        neither. Validation data are `X_val` and `y_val` of :meth:`fit` or, without them, a part of
        the training data. With ``"auto"`` all samples are trained on in the end, from EM's kernels,
        with the passes and the calibration that the held out ones chose, unless the model then
        answers worse about these. With True, with `warm_start`, and where ``block_weights="fit"``
        holds samples out in spite of False, they stay out of the training.
    validation_fraction : float, default=0.1
        Part of the samples that is held out for early stopping and block weights, shared out over
        the classes by their sizes.
    n_iter_no_change : int or None, default=10
        Passes without a better validation score after which training stops. None goes on, and
        still keeps the best pass.
    priors : None, "uniform", array of shape (n_classes,) or dict, default=None
        Class priors, in the order of the classes or by class. None takes the class frequencies,
        ``"uniform"`` is the paper's choice.
    class_weight : None, "balanced" or dict, default=None
        Weights of the classes, by which those of their samples are multiplied; ``"balanced"`` lets
        all classes count alike. The frequencies that `priors` takes change with them.
    unlabelled : label or None, default=None
        What stands for an unknown class in y, besides None and NaN: -1 for those used to
        scikit-learn's semi-supervised classifiers. Samples without a class are learnt from.
    unlabelled_weight : float or "auto", default="auto"
        How often each sample without a class counts. ``"auto"`` hides a fifth of the labels at a
        time and chooses what finds them best: 1, as much for all of them as for all samples with a
        class, or 0, which leaves them out. They help where classes are clusters, and can do great
        harm where they are not. It is 0 if they are fewer than those with a class, and these are
        tried with models of several forms, which help more.
    categorical_features : "from_dtype", None or array-like, default="from_dtype"
        Columns that hold categories: those of texts and categories in a data frame, none, or a
        list of names or places, or a mask. They have a block of their own with categorical
        kernels, exact discrete distributions; missing and unknown values are gaps. Some views take
        categories as numbers instead; to these a missing value is one of its own if the training
        has some. Truth values are the numbers 0 and 1, and their gaps are gaps, unless they are
        named here or have the dtype of categories. Columns of texts that look like identifiers or
        numbers give a warning. Settings of blocks and kernels are for the numbers.
    random_state : int, RandomState instance or None, default=None
        Source of randomness. With an int, the same data, to the last bit, give the same model, in
        whatever order their rows come.
    n_jobs : int or None, default=None
        Number of threads; None is all available cores. Below 300,000 cells of X a fit has one,
        because threads would only wait for one another. The result has the same bits for all.
    verbose : int, default=0
        Shows a progress bar on stderr. Where stderr is no terminal: a line every 10 passes for 1,
        every pass for 2.
    warm_start : bool, default=False
        Whether :meth:`fit` goes on from the last fit's kernels. The classes, the features, the
        blocks and `covariance_type` must be the same; `init` is then not used, and a weight that
        it fixed at zero stays there.
    stepwise : float, "auto" or Stepwise, default="auto"
        For :meth:`partial_fit`: how many samples the parts before count for, at most, or a
        :class:`pskem.Stepwise`, which says more. ``"auto"`` is 64,000, and fewer where the classes
        move. The first part decides blocks and kernels; with ``n_components="auto"`` there is one
        kernel for every 3 m samples of a class up to 8, and then one for every 30 m, and kernels
        are split as classes grow. `n_views`, `verbose`, `warm_start` and callbacks are for
        :meth:`fit`.

    Attributes
    ----------
    model_ : Model
        The fitted model as one immutable value; the next six are parts of it.
    classes_ : ndarray of shape (n_classes,)
    class_prior_ : ndarray of shape (n_classes,)
    blocks_ : list of Block
        One immutable value per block with `features`, `weights` (n_classes, K), `means` (K, m) and
        `covariances`, in the units of X or, if it has a `reading`, of what that makes of X.
    block_weights_ : ndarray of shape (n_blocks,)
    temperature_ : float
        Posterior probabilities are the softmax of
        (log p(c=j) + sum_r block_weights_[r] log q_rj(x)) / temperature_, where q_rj has a share
        shares_[r] of the kernels of all classes.
    shares_ : ndarray of shape (n_blocks,)
        How much of the kernels of all classes every class is given in decisions. It bounds what a
        block can say against a class by log(1 / share).
    n_views_ : int
        Models that are multiplied.
    block_views_ : ndarray of int of shape (n_blocks,)
        To which of these models each block belongs, counted from 0.
    trials_ : list of dict
        The forms that were tried; empty if nothing was tried. `view` is the place of the form among
        the models that are multiplied, or None if it is not one of them, and `exponent` how much it
        counts there. `log_loss` is of samples that they had not seen, to which their calibration
        was fitted. `n_components` is that of the first trial, which had fewer samples. The other
        entries say what is special about the form.
    n_iter_ : int
        Number of passes that were run. Where samples were held out and all are trained on in the
        end, this and what follows is of the training on all, but for `discriminative_scores_`.
    converged_ : ndarray of bool of shape (n_blocks,)
        Whether the last pass gained less than `tol` in the block; False when the passes ran out.
    log_likelihoods_ : ndarray of shape (n_iter_, n_blocks)
        log p(X|C) of the training data under each block, as each pass found it (before its
        update). This and what follows is of the first view, if there are several.
    joint_log_likelihoods_ : ndarray of shape (n_iter_,)
        The sum over the blocks or, where some classes are not known, log p of all samples with
        their classes as far as these are known, which is what EM then raises. Samples count by
        their weights.
    validation_scores_ : ndarray of shape (n_iter_,)
        Validation accuracy after each pass; empty if nothing was validated.
    best_iter_ : int
        The pass whose parameters were kept, counted from 1: the last one without early stopping.
    log_posteriors_ : ndarray
        sum_n log p(c_n|x_n) of the training samples before the first discriminative pass and after
        each; empty without such passes.
    discriminative_scores_ : ndarray
        Validation accuracy before the first discriminative pass and after each that was tried;
        empty if nothing was validated.
    discriminative_best_iter_ : int
        The discriminative pass whose parameters were kept; 0 is the result of EM.
    reference_log_densities_ : ndarray
        log p(x) of samples under models that were not trained on them, sorted: what
        :meth:`is_outlier` judges by. Empty if there are none.
    unlabelled_weight_ : float or None
        How often each sample without a class counted; None if there were none.
    class_count_ : ndarray of shape (n_classes,)
        What the samples of each class count, those without a class by their posteriors. In a stream
        those that are remembered.
    stream_ : Stream
        After :meth:`partial_fit`: what the model needs besides to go on, as one immutable value. It
        holds sums and answers, but no samples. `n_iter_` and the traces are of the first part.
    columns_ : ColumnCode
        How columns become features, where some of them are categories.
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
        n_components: int | Literal["auto"] | Sequence[int] = "auto",
        n_blocks: int | Literal["auto"] = "auto",
        partition: Partition = "auto",
        covariance_type: CovarianceType | Literal["auto"] = "auto",
        init: Init = "auto",
        n_init: int = 1,
        reg_covar: float = 1e-6,
        shrinkage: float | Literal["auto"] | Shrinkage = "auto",
        margins: bool | Literal["auto"] = "auto",
        n_views: int | Literal["auto"] = "auto",
        max_iter: int = 100,
        tol: float = 1e-3,
        block_weights: Literal["auto", "fit"] | ArrayLike | None = "auto",
        discriminative_iter: int | Literal["auto"] = "auto",
        early_stopping: bool | Literal["auto"] = "auto",
        validation_fraction: float = 0.1,
        n_iter_no_change: int | None = 10,
        priors: Literal["uniform"] | ArrayLike | None = None,
        class_weight: Literal["balanced"] | Mapping[Any, float] | None = None,
        unlabelled: Any = None,
        unlabelled_weight: float | Literal["auto"] = "auto",
        categorical_features: Any = "from_dtype",
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        warm_start: bool = False,
        stepwise: float | Literal["auto"] | Stepwise = "auto",
    ) -> None:
        self.n_components = n_components
        self.n_blocks = n_blocks
        self.partition = partition
        self.covariance_type = covariance_type
        self.init = init
        self.n_init = n_init
        self.reg_covar = reg_covar
        self.shrinkage = shrinkage
        self.margins = margins
        self.n_views = n_views
        self.max_iter = max_iter
        self.tol = tol
        self.block_weights = block_weights
        self.discriminative_iter = discriminative_iter
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.priors = priors
        self.class_weight = class_weight
        self.unlabelled = unlabelled
        self.unlabelled_weight = unlabelled_weight
        self.categorical_features = categorical_features
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.warm_start = warm_start
        self.stepwise = stepwise

    @with_callbacks
    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        *,
        X_val: Any = None,
        y_val: Any = None,
        sample_weight_val: Any = None,
        watch: Watcher | None = None,
        checkpoint: str | PathLike[str] | Journal | None = None,
    ) -> Self:
        """Train the model.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            float32 stays float32 in the arithmetic where that is safe. NaN is a gap: a sample
            counts by the features that it has, exactly, as long as gaps tell nothing of what is
            missing. X can be a numpy.memmap or a collection of Dask's, too; or what
            :func:`pskem.open_table` gives, then without `y` and `sample_weight`.
        y : array-like of shape (n_samples,)
            None and NaN stand for classes that nobody knows, and so does `unlabelled`.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts: with a weight of 3 it counts as if it stood there three
            times, with 0 as if it did not. Weights below one on average are scaled up to one.
            Whole multiples of a common unit are taken for numbers of repeats, which are dealt out
            over both sides where samples are asked about or held out. If such weights say how
            important samples are instead, add a hundredth of their mean to all of them.
        X_val, y_val, sample_weight_val : array-like, default=None
            Validation data. They are scored after every pass (`validation_scores_`,
            `discriminative_scores_`), and take the place of samples that `early_stopping` and
            `block_weights` would hold out. In a pipeline they must have gone through the steps
            before this one.
        watch : callable or None, default=None
            Called after every pass with the :class:`Model` as it then is; something true ends the
            training.
        checkpoint : path-like, Checkpoint or None, default=None
            A file that keeps the training as it goes. A fit that was killed goes on from there with
            the same call, and ends with the same bits. The file stays until you remove it. A
            :class:`pskem.Checkpoint` can be one of the callbacks instead (:meth:`set_callbacks`).

        Returns
        -------
        self : SharedKernelClassifier
        """
        settings = Settings.parse(self.get_params(deep=False))
        with all_or_nothing(self):
            before = getattr(self, "model_", None) if settings.warm_start else None
            validation = (X_val, y_val, sample_weight_val)
            journal = find_journal(self, checkpoint)
            seed = journal.begin(described(self, before), *draw_seeds(self.random_state))
            table = table_of(self, X, y, sample_weight)
            if table is None:
                samples = gather_samples(self, X, y, sample_weight, validation, settings, before)
                samples = stand_in(settings, samples, seed)
            else:
                samples = gather_table(self, table, validation, settings, before, seed)
            weight = None if before is None else getattr(self, "unlabelled_weight_", None)
            settings, samples = settle_unlabelled(settings, samples, seed, weight)
            fitted = fit_views(self, settings, samples, before, seed, watch, journal)
        self.model_ = fitted.model
        self.class_count_ = class_totals(samples, fitted.model.priors, settings.unlabelled_weight)
        if hasattr(self, "stream_"):  # of parts that came before this fit
            del self.stream_
        self.unlabelled_weight_ = settings.unlabelled_weight
        self.reference_log_densities_ = fitted.references
        self.trials_ = list(fitted.records)
        return self._store(fitted.run, fitted.refined)

    def _store(self, run: State, refined: Refined) -> Self:
        self.n_iter_ = run.iteration
        self.converged_ = run.converged
        self.log_likelihoods_ = run.log_likelihoods
        self.joint_log_likelihoods_ = run.joint
        self.validation_scores_ = run.scores
        self.best_iter_ = run.best_iter
        self.log_posteriors_ = refined.log_posteriors
        self.discriminative_scores_ = np.array([v.accuracy for v in refined.verdicts])
        self.discriminative_best_iter_ = refined.best_iter
        return self
