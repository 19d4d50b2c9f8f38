"""The classifier that chooses its own size, in the manner of scikit-learn's CV estimators."""

from __future__ import annotations

import time
from collections.abc import Callable
from numbers import Real
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_classifier
from sklearn.utils.multiclass import check_classification_targets

from pskem import checks
from pskem.blocks import partition_features
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.estimators._gathering import unlabelled_weight
from pskem.estimators._input import (
    accept_labelled,
    all_or_nothing,
    checked_weights,
)
from pskem.estimators._prediction import ModelPredictor
from pskem.estimators._selection import (
    AUTO,
    SHRINKAGE_FACTORS,
    Candidate,
    Fold,
    Trial,
    by_bic,
    by_folds,
    configured,
    in_time,
    make_candidates,
    results_of,
    search,
    tries_several,
)
from pskem.structures import STRUCTURES, FloatArray
from pskem.training import (
    CovarianceType,
    Rows,
    distinct,
    draw_seeds,
    representative,
    split,
)

__all__ = ["SharedKernelClassifierCV"]

#: Samples of a class that a search on a part of the samples keeps, if there are so many.
FEWEST_OF_A_CLASS = 10


class SharedKernelClassifierCV(ModelPredictor, ClassifierMixin, BaseEstimator):
    """Shared kernel classifier whose size is chosen by cross-validation or BIC.

    Settings are tried one after the other, the likely ones first, until the time is used up; the
    best is fitted to all samples. The fitted model is :attr:`best_estimator_`, and this estimator
    predicts as it does.

    The first settings are the defaults of :class:`SharedKernelClassifier`, which multiply models of
    several forms: `n_components`, `n_blocks`, `covariance_type` and `shrinkage` are then all
    ``"auto"`` in `best_params_` and `cv_results_`. The others are settings of one model. If you
    give values to any of these four parameters, only the grid of them is tried.

    Parameters
    ----------
    estimator : SharedKernelClassifier or None, default=None
        The classifier whose other settings are used; None is one with default settings. The
        defaults are tried only if it would multiply models itself: if its own form is open (see
        `n_views` there), and the samples are fewer than 20,000 and have a class.
    n_components : "auto" or list of int, default="auto"
        Numbers of kernels to try: K of every block. ``"auto"`` tries 1, 2, 4, 8 and 16 for every
        class, as far as there are 10 samples for each.
    n_blocks : "auto" or list of int, default="auto"
        Numbers of blocks to try. ``"auto"`` tries blocks of at most 100, 32 and 16 features.
    covariance_type : "auto", str or list of str, default="auto"
        Forms of the kernels to try. ``"auto"`` tries ``"full"``.
    shrinkage : "auto" or list of float or "auto", default="auto"
        Pseudo-samples to try. ``"auto"`` tries 1, 5 and 0.2 times what the classifier would take;
        with ``selection="bic"``, which always prefers less, and as ``["auto"]``, just that.
    selection : {"validation", "bic"}, default="validation"
        What decides: the accuracy in cross-validation and, of equals, the log loss; or the Bayesian
        information criterion of a fit by EM alone, which needs one fit instead of `cv`, and judges
        how well the samples are described, not how well they are classified. A product of models
        has no such criterion, so the classifier's defaults are not tried there.
    cv : int, float, cross-validation generator or iterable, default=5
        Folds. An integer makes stratified, shuffled ones, as many as the smallest class allows; a
        number below 1 holds out that part of the samples, once.
    max_samples : int, default=20000
        The search uses so many samples at most; the best settings are fitted to all.
    time_budget : float or None, default=60.0
        Seconds that the search may take, without the last fit. The first settings are tried in any
        case; None tries all. The classifier's defaults train all forms in every fold: they are
        tried on two folds at least, and on the others while there is time. With the same budget a
        faster machine may choose other settings.
    random_state : int, RandomState instance or None, default=None
        Source of randomness of the folds, and of the classifier if it has none.
    n_jobs : int or None, default=None
        Number of threads of every fit.
    verbose : int, default=0
        1 prints a line for every trial.

    Attributes
    ----------
    best_estimator_ : SharedKernelClassifier
        Fitted to all samples.
    best_params_ : dict
    best_score_ : float
        Mean accuracy of the best settings over the folds, or minus its BIC.
    cv_results_ : dict of ndarray
        As for scikit-learn's searches: ``params``, ``param_*``, ``mean_test_score``,
        ``std_test_score``, ``split*_test_score``, ``rank_test_score``, ``mean_log_loss``, ``bic``
        and ``seconds``, in the order of the trials' ranks.
    n_candidates_ : int
        Settings that there were to try.
    model_, classes_, class_prior_, blocks_, block_weights_, temperature_
        Those of the best estimator.
    n_features_in_ : int
    feature_names_in_ : ndarray of str

    See Also
    --------
    SharedKernelClassifier : The model itself.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from pskem import SharedKernelClassifierCV
    >>> X, y = load_iris(return_X_y=True)
    >>> search = SharedKernelClassifierCV(n_components=[3, 6], shrinkage=[5.0], random_state=0)
    >>> search.fit(X, y).best_score_ > 0.95
    True
    """

    def __init__(
        self,
        estimator: SharedKernelClassifier | None = None,
        *,
        n_components: Literal["auto"] | int | list[int] = "auto",
        n_blocks: Literal["auto"] | int | list[int] = "auto",
        covariance_type: CovarianceType | Literal["auto"] | list[CovarianceType] = "auto",
        shrinkage: Literal["auto"] | float | list[float | Literal["auto"]] = "auto",
        selection: Literal["validation", "bic"] = "validation",
        cv: Any = 5,
        max_samples: int = 20_000,
        time_budget: float | None = 60.0,
        random_state: int | np.random.RandomState | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.n_components = n_components
        self.n_blocks = n_blocks
        self.covariance_type = covariance_type
        self.shrinkage = shrinkage
        self.selection = selection
        self.cv = cv
        self.max_samples = max_samples
        self.time_budget = time_budget
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Search, and fit the best settings to all samples.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : array-like of shape (n_samples,)
            Samples without a class, as for :class:`SharedKernelClassifier`, are in the training
            part of every fold; how much they count is chosen once, before the search.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts, in training and in judging.

        Returns
        -------
        self : SharedKernelClassifierCV
        """
        self._check_parameters()
        with all_or_nothing(self):
            given = X, y
            marker = None if self.estimator is None else self.estimator.unlabelled
            X, y, labelled = accept_labelled(self, X, y, marker, reset=True)
            check_classification_targets(y)
            (seed,) = draw_seeds(self.random_state)
            base = self._base(seed)
            tried, code = clone(base).set_params(unlabelled=None), getattr(self, "columns_", None)
            n_numbers = X.shape[1]
            if code is not None:  # trials see numbers for the values of categories
                X, n_numbers = code.ordinal(given[0]), len(code.numeric)
                tried.set_params(categorical_features=code.categorical.tolist())
            y, known = _spread(y, labelled, len(X))
            rows, spare = self._rows(X, y, known, sample_weight, seed)
            ratio = 0.0
            if spare.size:  # how much they count is not searched for each time
                weight = unlabelled_weight(base, *given, sample_weight)
                for model in (base, tried):
                    model.set_params(unlabelled_weight=weight)
                ratio = (weight or 0.0) * spare.total / rows.total
            some = representative(np.arange(spare.size), self.max_samples if ratio else 0)
            spare = spare.at(some)
            counts = np.unique(y[rows.places], return_counts=True)[1]
            values = {name: self._values(name) for name in Candidate._fields}
            candidates = make_candidates(
                counts,
                max(1, n_numbers),
                **{**values, "covariance_type": values["covariance_type"] or ["full"]},
                factors=(1.0,) if self.selection == "bic" else SHRINKAGE_FACTORS,
                unlabelled=ratio,
            )
            if not isinstance(tried.partition, str):  # which says how many blocks there are
                names = getattr(self, "feature_names_in_", None)
                blocks = partition_features(X.shape[1], "auto", tried.partition, None, names)
                tried.set_params(partition=blocks)  # trials do not see names
                R = len(blocks)
                candidates = list(dict.fromkeys(c._replace(n_blocks=R) for c in candidates))
            unasked = self.selection != "bic" and not any(values.values()) and not ratio
            if unasked and tries_several(base, known, sample_weight):
                candidates.insert(0, AUTO)
            budget = np.inf if self.time_budget is None else float(self.time_budget)
            deadline = time.monotonic() + budget
            trials = search(
                candidates,
                lambda candidate: candidate.cost(rows.size, X.shape[1]),
                self._attempt(tried, X, y, rows, spare, seed, deadline),
                deadline,
                self._report,
            )
            best = trials[0]
            model = configured(base, best.candidate)
            model.fit(*given, sample_weight=sample_weight)
        self.best_estimator_ = model
        self.best_params_ = best.candidate._asdict()
        self.best_score_ = best.merit[0]
        self.cv_results_ = results_of(trials)
        self.n_candidates_ = len(candidates)
        self.model_ = model.model_
        self.reference_log_densities_ = model.reference_log_densities_
        return self

    def _shifted(self, priors: FloatArray) -> Self:
        other = super()._shifted(priors)
        other.best_estimator_ = self.best_estimator_.with_priors(priors)
        return other

    def _check_parameters(self) -> None:
        checks.check_choice("selection", self.selection, ["validation", "bic"])
        if self.time_budget is not None:
            checks.check_real("time_budget", self.time_budget, 0.0)
        checks.check_integer("max_samples", self.max_samples, 2)
        checks.check_n_jobs(self.n_jobs)
        checks.check_integer("verbose", self.verbose, 0, boolean=True)
        for name in ("n_components", "n_blocks"):
            for value in self._values(name) or []:
                checks.check_integer(name, value, 1)
        for value in self._values("covariance_type") or []:
            checks.check_choice("covariance_type", value, list(STRUCTURES))
        for value in self._values("shrinkage") or []:
            checks.check_real("shrinkage", value, 0.0, auto=True)
        if self.estimator is not None and not isinstance(self.estimator, SharedKernelClassifier):
            raise ValueError(
                f"estimator={self.estimator!r} must be a SharedKernelClassifier, or None for one"
                " with default settings."
            )

    def _values(self, name: str) -> list[Any] | None:
        """The values of a setting to try; None leaves them to the data."""
        value = getattr(self, name)
        if isinstance(value, str):
            return None if value == "auto" else [value]
        values = list(value) if np.iterable(value) else [value]
        if not values:
            raise ValueError(f"{name}={value!r} is empty; give 'auto' or the values to try.")
        return values

    def _base(self, seed: int) -> SharedKernelClassifier:
        base = SharedKernelClassifier() if self.estimator is None else clone(self.estimator)
        if base.random_state is None:
            base.set_params(random_state=seed)
        return base.set_params(n_jobs=self.n_jobs) if self.n_jobs is not None else base

    def _rows(
        self,
        X: FloatArray,
        y: NDArray[Any],
        known: NDArray[np.bool_],
        sample_weight: Any,
        seed: int,
    ) -> tuple[Rows, Rows]:
        """Samples that count: those with a class to search with, and those without.

        Folds of our own are made of different rows, so that none is trained on and judged by.
        """
        weights = None if sample_weight is None else checked_weights(sample_weight, len(y))
        counted = np.arange(len(y)) if weights is None else np.flatnonzero(weights)
        if not known[counted].any():
            raise ValueError("sample_weight is zero for all samples whose class is known.")
        labels = np.full(len(y), -1, dtype=np.intp)
        labels[known] = np.unique(y[known], return_inverse=True)[1]
        if self._own_folds:
            some = None if weights is None else weights[counted]
            everyone = distinct(X[counted], labels[counted], some)
            everyone = everyone._replace(places=counted[everyone.places])
        else:
            everyone = Rows(np.arange(len(y)), weights)
        having = known[everyone.places]
        rows, spare = everyone.at(np.flatnonzero(having)), everyone.at(np.flatnonzero(~having))
        if self._own_folds and rows.size > self.max_samples:
            own = labels[rows.places]
            counts = np.bincount(own)
            _, few = split(own, self.max_samples / rows.size, len(counts), seed)
            rows = rows.at(_with_rare(few, own, counts))
        return rows, spare

    @property
    def _own_folds(self) -> bool:
        return self.selection == "bic" or isinstance(self.cv, Real)

    def _attempt(
        self,
        base: SharedKernelClassifier,
        X: FloatArray,
        y: NDArray[Any],
        rows: Rows,
        spare: Rows,
        seed: int,
        deadline: float,
    ) -> Callable[[Candidate], Trial]:
        def fold(train: Any, test: Any) -> Fold:
            one, two = rows.at(train), rows.at(test)
            parts = (X[one.places], y[one.places], X[two.places], y[two.places])
            return Fold(*parts, one.weights, two.weights).joined_by(X[spare.places], spare.weights)

        if self.selection == "bic":
            everything = slice(None)
            whole = fold(everything, everything)
            return by_bic(lambda c: [(configured(base, c), whole)])
        splits = self._splits(X, y, rows.places, seed)
        folds = [fold(train, test) for train, test in splits]
        return by_folds(
            lambda c: ((configured(base, c), fold) for fold in in_time(c, folds, deadline))
        )

    def _splits(
        self, X: FloatArray, y: NDArray[Any], places: NDArray[np.intp], seed: int
    ) -> list[tuple[Any, Any]]:
        """Folds of the rows at some places, by their numbers among these."""
        from sklearn.model_selection import StratifiedKFold, check_cv

        if not hasattr(self.cv, "split") and not isinstance(self.cv, Real):  # of all rows of X
            number = np.full(len(X), -1)
            number[places] = np.arange(len(places))
            found = ((number[np.asarray(a)], number[np.asarray(b)]) for a, b in self.cv)
            return [(a[a >= 0], b[b >= 0]) for a, b in found]
        X, y = X[places], y[places]
        if isinstance(self.cv, float | np.floating):
            checks.check_real("cv", self.cv, 0.0, 1.0, strict=True)
            classes, labels = np.unique(y, return_inverse=True)
            train, test = split(labels, float(self.cv), len(classes), seed)
            if not len(test):
                raise ValueError(
                    f"cv={self.cv} of {len(y)} samples leaves none to judge by. Use a larger"
                    " fraction, or a number of folds."
                )
            return [(train, test)]
        if isinstance(self.cv, bool):
            raise ValueError(f"cv={self.cv!r} is neither a number of folds nor a fraction.")
        if not isinstance(self.cv, int | np.integer):
            return list(check_cv(self.cv, y, classifier=is_classifier(self)).split(X, y))
        checks.check_integer("cv", self.cv, 2)
        smallest = int(np.unique(y, return_counts=True)[1].min())
        if smallest < 2:
            raise ValueError(
                "cv needs two samples of every class at least, but the smallest has one sample."
                " Leave such classes out, or set selection='bic'."
            )
        folds = StratifiedKFold(min(int(self.cv), smallest), shuffle=True, random_state=seed)
        return list(folds.split(X, y))

    def _report(self, trial: Trial, done: int, left: int) -> None:
        if self.verbose:
            settings = ", ".join(f"{k}={v}" for k, v in trial.candidate._asdict().items())
            print(f"{settings}: {trial.merit[0]:.4f} in {trial.seconds:.1f} s, {left} left")


def _spread(
    y: NDArray[Any], labelled: NDArray[np.bool_] | None, n: int
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels of n samples, (n,), and which of them are known; others are anything."""
    if labelled is None:
        return y, np.ones(n, dtype=bool)
    spread = np.empty(n, dtype=y.dtype)
    spread[labelled] = y
    return spread, labelled


def _with_rare(
    rows: NDArray[np.intp], labels: NDArray[np.intp], counts: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Rows, and the first few of every class of which there are fewer than so many among them."""
    present = np.bincount(labels[rows], minlength=len(counts))
    rare = np.flatnonzero(present < FEWEST_OF_A_CLASS)
    more = [np.flatnonzero(labels == j)[:FEWEST_OF_A_CLASS] for j in rare]
    return np.unique(np.concatenate([rows, *more]))
