"""Classifiers on a data frame as it is: columns for peers, tuned peers, and what is measured."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.pipeline import Pipeline, make_pipeline

from pskem.estimators import PartitionEnsemble, SharedKernelClassifier, SharedKernelClassifierCV
from pskem.evaluation import calibration_error
from pskem.study.classifiers import Trace
from pskem.study.configuration import StudyError

__all__ = ["SearchedNeighbours", "SearchedSVM", "column_encoder", "judge"]

#: These take numbers with gaps as they are. By name: a library may not be there.
TAKE_GAPS = ("HistGradientBoostingClassifier", "LGBMClassifier", "XGBoost")
#: These take texts as well.
TAKE_FRAMES = (SharedKernelClassifier, SharedKernelClassifierCV, PartitionEnsemble)
#: A probability below this counts as this in a log loss.
SMALLEST = 1e-15
#: Folds of the training rows by which settings are searched.
FOLDS = 3
WIDTHS = (0.1, 0.3, 1.0, 3.0)
COSTS = [0.1, 1.0, 10.0, 100.0]
NEIGHBOURS = (1, 3, 5, 9, 15, 31)


class SearchedSVM(ClassifierMixin, BaseEstimator):
    """Support vectors with an RBF kernel: C and gamma by a grid search, then Platt scaling."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        from sklearn.svm import SVC

        # Standardised features: squared distances are of the order of their number.
        grid = {"C": COSTS, "gamma": [width / X.shape[1] for width in WIDTHS]}
        best = _searched(SVC(), grid, X, y, self.random_state)
        self.model_ = SVC(**best, probability=True, random_state=self.random_state)
        with _quiet():
            self.model_.fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: NDArray[Any]) -> Any:
        return self.model_.predict(X)

    def predict_proba(self, X: NDArray[Any]) -> Any:
        return self.model_.predict_proba(X)


class SearchedNeighbours(ClassifierMixin, BaseEstimator):
    """Nearest neighbours: their number and weights by a grid search."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> Self:
        from sklearn.neighbors import KNeighborsClassifier

        most = len(y) - -(-len(y) // FOLDS)  # rows of the smallest training part
        numbers = [k for k in NEIGHBOURS if k <= most]
        grid: dict[str, Sequence[Any]] = {
            "n_neighbors": numbers,
            "weights": ["uniform", "distance"],
        }
        best = _searched(KNeighborsClassifier(), grid, X, y, self.random_state)
        self.model_ = KNeighborsClassifier(**best).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: NDArray[Any]) -> Any:
        return self.model_.predict(X)

    def predict_proba(self, X: NDArray[Any]) -> Any:
        return self.model_.predict_proba(X)


def _searched(
    model: Any,
    grid: Mapping[str, Sequence[Any]],
    X: NDArray[Any],
    y: NDArray[Any],
    seed: int | None,
) -> dict[str, Any]:
    """The settings with the best accuracy in a cross-validation of the training rows."""
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=seed)
    with _quiet():
        best: dict[str, Any] = (
            GridSearchCV(model, grid, cv=folds, refit=False).fit(X, y).best_params_
        )
    return best


@contextmanager
def _quiet() -> Iterator[None]:
    """Without warnings that say nothing about the result."""
    with warnings.catch_warnings():
        # A small class is not in all folds.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        # scikit-learn 1.9 would rather have Platt scaling done from outside, but its own way to do
        # so refuses small classes.
        warnings.filterwarnings("ignore", "The `probability` parameter", FutureWarning)
        yield


def column_encoder(X: Any, gaps: bool) -> Any:
    """Columns of a frame as features: numbers standardised, categories one-hot.

    Missing numbers are medians or, with ``gaps``, stay missing. A missing text is one more value.
    """
    from pandas.api.types import is_numeric_dtype
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = [name for name in X.columns if is_numeric_dtype(X[name])]
    texts = [name for name in X.columns if name not in numbers]
    # A column without any value in the training rows stays, so that no table has no columns.
    medians = SimpleImputer(strategy="median", keep_empty_features=True)
    scaled = StandardScaler() if gaps else make_pipeline(medians, StandardScaler())
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    return ColumnTransformer([("numbers", scaled, numbers), ("texts", one_hot, texts)])


def judge(model: Any, train: tuple[Any, NDArray[Any]], test: tuple[Any, NDArray[Any]]) -> Trace:
    """Train a classifier on a frame and its labels, and measure its answers on another.

    The seconds include the encoding of the columns. A class that is not among the training rows has
    the probability 0.
    """
    (X, y), (X_test, y_test) = train, test
    if not hasattr(model, "predict_proba"):
        raise StudyError(f"{type(model).__name__} has no probabilities, which frame = true needs.")
    if not isinstance(model, TAKE_FRAMES):
        gaps = type(model).__name__ in TAKE_GAPS
        model = Pipeline([("columns", column_encoder(X, gaps)), ("classifier", model)])
    classes, labels = np.unique(y, return_inverse=True)
    start = time.perf_counter()
    with _quiet():
        model = _fitted(model, X, labels)
    seconds = time.perf_counter() - start
    with warnings.catch_warnings():
        # New in the test rows: no column is theirs.
        warnings.filterwarnings("ignore", "Found unknown categories", UserWarning)
        predicted = model.predict(X_test)
        proba = np.asarray(model.predict_proba(X_test), dtype=np.float64)
    # A label that no training row has is none of the columns.
    truth = np.searchsorted(classes, y_test)
    truth[~np.isin(y_test, classes)] = -1
    return Trace(
        [[float(np.mean(predicted == truth))]],
        [],
        [],
        seconds,
        log_loss(truth, proba),
        calibration_error(truth, proba),
    )


def log_loss(truth: NDArray[np.intp], proba: NDArray[np.float64]) -> float:
    """Mean of -log p(true class), from labels (n,) and probabilities (n, L); -1 is no column."""
    own = np.where(truth < 0, 0.0, proba[np.arange(len(truth)), truth])
    return float(-np.log(np.clip(own, SMALLEST, 1.0)).mean())


def _fitted(model: Any, X: Any, labels: NDArray[np.intp]) -> Any:
    """The model after training or, if a peer refuses the rows, the frequencies of the classes.

    A quadratic discriminant refuses classes whose covariance has no inverse. What it would say is
    then what is known without any feature.
    """
    from sklearn.dummy import DummyClassifier

    try:
        return model.fit(X, labels)
    except np.linalg.LinAlgError:
        if isinstance(model, TAKE_FRAMES):
            raise
    name = type(model[-1]).__name__
    warnings.warn(
        f"{name} refuses the training rows: the frequencies of the classes count instead.",
        UserWarning,
        stacklevel=2,
    )
    return DummyClassifier(strategy="prior").fit(X, labels)
