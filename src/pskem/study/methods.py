"""The classifiers of a study, by name: shared kernels and conventional classifiers."""

from __future__ import annotations

from importlib.util import find_spec

from pskem.study.classifiers import (
    OURS,
    RESERVED,
    Conventional,
    Ensemble,
    OutOfTheBox,
    Sample,
    SemiSupervised,
    SharedKernels,
    StudyClassifier,
    Trace,
    Tuned,
)

__all__ = [
    "CLASSIFIERS",
    "OURS",
    "RESERVED",
    "Sample",
    "StudyClassifier",
    "Trace",
    "lacking",
    "library_of",
]

#: Megabytes of kernel values that a support vector machine may keep.
SVM_CACHE = 1000

_CACHE = {"cache_size": SVM_CACHE}
_SVC = "sklearn.svm.SVC"
CLASSIFIERS: dict[str, StudyClassifier] = {
    OURS: SharedKernels(),
    "lda": Conventional("sklearn.discriminant_analysis.LinearDiscriminantAnalysis"),
    "qda": Conventional(
        "sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis",
        # Some classes of images have features that do not vary.
        usual={"reg_param": 1e-4},
    ),
    "logistic": Conventional("sklearn.linear_model.LogisticRegression", usual={"max_iter": 2000}),
    "linear-svm": Conventional(_SVC, {"kernel": "linear"}, machine=_CACHE),
    "rbf-svm": Conventional(_SVC, {"kernel": "rbf"}, machine=_CACHE),
    "quadratic-svm": Conventional(
        _SVC, {"kernel": "poly", "degree": 2}, {"coef0": 1.0}, machine=_CACHE
    ),
    "knn": Conventional("sklearn.neighbors.KNeighborsClassifier", parallel=True),
    "bagged-trees": Conventional("sklearn.ensemble.BaggingClassifier", parallel=True),
    "hist-gradient-boosting": Conventional("sklearn.ensemble.HistGradientBoostingClassifier"),
    "pskem": OutOfTheBox(),
    "pskem-labelled": OutOfTheBox(labelled_only=True),
    "pskem-cv": Conventional(
        # Without a time budget, so that the machine does not choose.
        "pskem.estimators.SharedKernelClassifierCV",
        {"time_budget": None},
        parallel=True,
    ),
    "pskem-ensemble": Ensemble(),
    "self-training": SemiSupervised(
        Conventional("pskem.study.peers.self_training", usual={"n_neighbors": 3}, parallel=True)
    ),
    "label-spreading": SemiSupervised(
        Conventional(
            "sklearn.semi_supervised.LabelSpreading",
            {"kernel": "knn"},
            {"n_neighbors": 7},
            parallel=True,
        )
    ),
}
CLASSIFIERS |= {
    "tuned-qda": Tuned(
        Conventional("sklearn.discriminant_analysis.QuadraticDiscriminantAnalysis"),
        {"reg_param": [1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3]},
    ),
    "tuned-rbf-svm": Tuned(
        Conventional(_SVC, {"kernel": "rbf"}, machine=_CACHE), {"C": [0.3, 1.0, 3.0, 10.0, 30.0]}
    ),
    "tuned-knn": Tuned(
        Conventional("sklearn.neighbors.KNeighborsClassifier", parallel=True),
        {"n_neighbors": [1, 3, 5, 9, 15, 25], "weights": ["uniform", "distance"]},
    ),
    "tuned-hist-gradient-boosting": Tuned(
        Conventional("sklearn.ensemble.HistGradientBoostingClassifier"),
        {"learning_rate": [0.05, 0.1, 0.2], "max_iter": [100, 300]},
    ),
}
#: Peers on tables of numbers and categories. ``pskem.study.tabular`` prepares the columns for them.
CLASSIFIERS |= {
    "random-forest": Conventional("sklearn.ensemble.RandomForestClassifier", parallel=True),
    "extra-trees": Conventional("sklearn.ensemble.ExtraTreesClassifier", parallel=True),
    "naive-bayes": Conventional("sklearn.naive_bayes.GaussianNB"),
    "lightgbm": Conventional(
        "lightgbm.LGBMClassifier", machine={"verbosity": -1}, parallel=True, needs="lightgbm"
    ),
    "xgboost": Conventional("pskem.study.peers.XGBoost", parallel=True, needs="xgboost"),
    "searched-rbf-svm": Conventional("pskem.study.tabular.SearchedSVM"),
    "searched-knn": Conventional("pskem.study.tabular.SearchedNeighbours"),
}


def library_of(method: str) -> str | None:
    """The library that a classifier comes from, if a study can go without."""
    needs: str | None = getattr(CLASSIFIERS.get(method), "needs", None)
    return needs


def lacking(method: str) -> str | None:
    """The library that a classifier needs and that is not installed, if there is one."""
    needs = library_of(method)
    return needs if needs is not None and find_spec(needs) is None else None
