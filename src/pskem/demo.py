"""A demonstration on scikit-learn's digits: beside four well-known classifiers, on one split."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import Pipeline

from pskem.display import KernelImagesDisplay, Page, Table, TraceDisplay, WeightsDisplay
from pskem.estimators import SharedKernelClassifier
from pskem.evaluation import Evaluation, evaluate
from pskem.starts import ClassKMeans

OURS = "shared kernels"
#: Principal components of the 64 pixels, the same for all.
FEATURES = 24
IMAGE = (8, 8)
FOLDS = 5


class Contestant(NamedTuple):
    """A classifier and the settings to choose from."""

    name: str
    classifier: Any
    grid: dict[str, list[Any]]


class Entry(NamedTuple):
    """How a contestant did.

    settings : those that cross-validation on the training part chose
    validation : its accuracy there
    accuracy, log_loss : on the test part; no log loss where there are no probabilities
    """

    name: str
    settings: dict[str, Any]
    validation: float
    accuracy: float
    log_loss: float | None
    seconds: float

    @property
    def row(self) -> tuple[str, ...]:
        settings = [f"{name}={v}" for name, v in self.settings.items() if v is not None]
        return (
            self.name,
            f"{100 * self.accuracy:.2f} %",
            "-" if self.log_loss is None else f"{self.log_loss:.3f}",
            f"{100 * self.validation:.2f} %",
            f"{self.seconds:.1f}",
            ", ".join(settings) or "-",
        )


class Demo(NamedTuple):
    """All entries, best first, our fitted pipeline and its evaluation on the test part."""

    entries: list[Entry]
    pipeline: Pipeline
    evaluation: Evaluation
    n_train: int
    n_test: int

    @property
    def table(self) -> Table:
        """The entries as texts."""
        headings = ("classifier", "accuracy", "log loss", "in validation", "seconds", "settings")
        return Table(headings, [entry.row for entry in self.entries])


def contestants() -> list[Contestant]:
    """Those who take part."""
    from sklearn.discriminant_analysis import (
        LinearDiscriminantAnalysis,
        QuadraticDiscriminantAnalysis,
    )
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.svm import SVC

    # One block, so that its kernels are whole images.
    ours = SharedKernelClassifier(n_blocks=1, max_iter=30, early_stopping=False, random_state=0)
    kernels: dict[str, list[Any]] = {
        "covariance_type": ["full", "tied"],
        "n_components": [10, 20, 40],
        "init": [ClassKMeans(own_mass=0.5), ClassKMeans()],
    }
    return [
        Contestant(OURS, ours, kernels),
        Contestant("LDA", LinearDiscriminantAnalysis(), {"shrinkage": [None]}),
        Contestant("QDA", QuadraticDiscriminantAnalysis(), {"reg_param": [0.0, 0.01, 0.1]}),
        Contestant("kNN", KNeighborsClassifier(), {"n_neighbors": [1, 3, 5, 9]}),
        Contestant("RBF-SVM", SVC(), {"C": [1.0, 10.0, 100.0]}),
    ]


def compare(observe: Callable[[Contestant], None] = lambda contestant: None) -> Demo:
    """Choose each contestant's settings on the training part, then measure it on the test part."""
    from sklearn.datasets import load_digits
    from sklearn.decomposition import PCA
    from sklearn.metrics import log_loss
    from sklearn.model_selection import GridSearchCV, train_test_split

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, stratify=y, random_state=0
    )
    entries, fitted = [], {}
    for contestant in contestants():
        observe(contestant)
        steps = [("pca", PCA(FEATURES, random_state=0)), ("classifier", contestant.classifier)]
        grid = {f"classifier__{name}": values for name, values in contestant.grid.items()}
        search = GridSearchCV(Pipeline(steps), grid, cv=FOLDS)
        start = time.perf_counter()
        with warnings.catch_warnings():
            # Some settings of the grid are too large for the data; they lose.
            warnings.simplefilter("ignore", ConvergenceWarning)
            search.fit(X_train, y_train)
        seconds = time.perf_counter() - start
        fitted[contestant.name] = search.best_estimator_
        chosen = {name.removeprefix("classifier__"): v for name, v in search.best_params_.items()}
        loss = None
        if hasattr(search, "predict_proba"):
            loss = float(log_loss(y_test, search.predict_proba(X_test)))
        scores = float(search.best_score_), float(search.score(X_test, y_test))
        entries.append(Entry(contestant.name, chosen, *scores, loss, seconds))
    pipeline = fitted[OURS]
    evaluation = evaluate(y_test, pipeline.predict_proba(X_test), list(map(str, range(10))))
    entries.sort(key=lambda entry: entry.accuracy, reverse=True)
    return Demo(entries, pipeline, evaluation, len(y_train), len(y_test))


def make_page(demo: Demo) -> Page:
    """The demonstration as a page with plots."""
    import matplotlib.pyplot as plt
    from sklearn.metrics import ConfusionMatrixDisplay

    model = demo.pipeline[-1]
    page = Page("Shared kernels on handwritten digits")
    page.text(
        f"{demo.n_train:,} images of 8 x 8 pixels to train on and {demo.n_test} to test on, which"
        f" come with scikit-learn. All classifiers get the same {FEATURES} principal components of"
        f" the training images. The settings of each were chosen by {FOLDS}-fold cross-validation"
        " on the training images; the test images were used once."
    )
    page.table(demo.table, ours=[entry.name for entry in demo.entries].index(OURS))
    page.heading("The kernels")
    page.text(
        f"The ten classes draw on {len(model.blocks_[0].means)} Gaussian kernels, with weights of"
        f" their own; {100 * model.shared_proportion():.0f} % of what they draw on is shared."
        " These are the means of the kernels, drawn as images, with the classes that use them most."
    )
    images = KernelImagesDisplay.from_estimator(demo.pipeline, IMAGE)
    page.figure(images.figure_, "Means of the kernels, and whose they are.")
    weights = WeightsDisplay.from_estimator(demo.pipeline)
    page.figure(
        weights.figure_,
        "The weights. Columns with several dark cells are kernels that classes share:"
        f" {100 * model.shared_proportion():.0f}% of all pairs of a class and a kernel it holds.",
    )
    page.heading("The training")
    trace = TraceDisplay.from_estimator(demo.pipeline)
    page.figure(trace.figure_, "The likelihood rises in every pass.")
    page.heading("The mistakes")
    figure, ax = plt.subplots(figsize=(6, 5), layout="constrained")
    ConfusionMatrixDisplay(demo.evaluation.confusion).plot(ax=ax, cmap="Greys", colorbar=False)
    page.figure(figure, "Test images by true and predicted digit.")
    page.text(
        f"Expected calibration error {100 * demo.evaluation.calibration_error:.1f}%, Brier score"
        f" {demo.evaluation.brier:.3f}."
    )
    return page
