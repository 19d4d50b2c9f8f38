"""Train a pipeline on a task, and save it with what is needed to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.blocks._dependence import within_class_dependence
from pskem.blocks._partition import ARRANGEMENTS, partition_features
from pskem.checks import check_boolean, check_n_components
from pskem.estimators._classifier import SharedKernelClassifier
from pskem.files import check_place
from pskem.model import count_at_floor
from pskem.persistence import ModelFileError, read_header, save
from pskem.structures import FloatArray
from pskem.tables import TableError, category_features, fit_encoder, unknown_allowed
from pskem.training._defaults import suggest_n_components
from pskem.training._loop import split
from pskem.workflow.task import Task

__all__ = [
    "Trained",
    "check_model_place",
    "complete",
    "hold_out",
    "train",
]

#: The floor where there are indicators of categories: a kernel that has seen one category should
#: not rule out the others.
CATEGORY_FLOOR = 0.1


def complete(
    classifier: SharedKernelClassifier, encoder: Pipeline, X: FloatArray, y: NDArray[Any]
) -> SharedKernelClassifier:
    """A copy of the classifier with blocks for categories, and a floor that suits them.

    The features of each category make a block with a kernel for each of its values, which all
    classes share: a table of frequencies. In one block with numbers, kernels would gather around
    categories, also around those that tell nothing of the class. The settings of blocks and
    kernels are for the numbers.
    """
    model = clone(classifier)
    categories = category_features(encoder)
    if model.reg_covar is None:
        floor = CATEGORY_FLOOR if categories else SharedKernelClassifier().reg_covar
        model.set_params(reg_covar=floor)
    if not categories:
        return model
    if isinstance(model.partition, str) and model.partition == "ica":
        raise TableError(
            "partition='ica' mixes all features, and categories need blocks of their own. Choose"
            f" another partition ({', '.join(ARRANGEMENTS)}), or leave the categories out."
        )
    numbers = np.setdiff1d(np.arange(X.shape[1]), np.concatenate(categories))
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    parts: list[NDArray[np.intp]] = []
    kernels: list[int] = []
    if len(numbers):
        dependence = _dependence(model, X[:, numbers], labels)
        settings = (model.n_blocks, model.partition, model.random_state)
        try:
            dealt = partition_features(len(numbers), *settings, dependence=dependence)
            suggested = [suggest_n_components(counts, len(part)) for part in dealt]
            kernels = check_n_components(model.n_components, suggested)
        except ValueError as error:
            raise TableError(
                f"{error} n_blocks and n_components are for the {len(numbers):,} numeric"
                " feature(s): each category has a block of its own, with a kernel for each of its"
                " values."
            ) from error
        parts = [numbers[part] for part in dealt]
    values = [np.unique(X[:, features], axis=0) for features in categories]
    blocks = [features.tolist() for features in (*parts, *categories)]
    return model.set_params(
        n_blocks="auto",
        partition=blocks,
        n_components=[*kernels, *map(len, values)],
        means_init=[*[None] * len(parts), *values] if len(blocks) > 1 else values[0],
    )


def _dependence(
    model: SharedKernelClassifier, X: FloatArray, labels: NDArray[np.intp]
) -> FloatArray | None:
    """The dependence of the features of X, if the classifier's partition is to go by it."""
    if isinstance(model.partition, str) and model.partition == "dependence":
        return within_class_dependence(X, labels)
    return None


def check_model_place(path: Any) -> None:
    """Refuse a path for a model file at which none can be made, or where something else lies."""
    check_place(path)
    if Path(path).exists():
        try:
            read_header(path)
        except ModelFileError:
            raise FileExistsError(
                f"{path} exists and is not a model file. Remove it, or name another file."
            ) from None


class Trained(NamedTuple):
    """A trained pipeline and how the training went."""

    pipeline: Pipeline
    task: Task
    n_train: int
    n_validation: int
    training_accuracy: float
    validation_accuracy: float | None
    #: Per row, in the units of the encoded features.
    log_likelihood: float

    @property
    def classifier(self) -> SharedKernelClassifier:
        classifier: SharedKernelClassifier = self.pipeline[-1]
        return classifier

    @property
    def ending(self) -> str:
        model = self.classifier
        if len(model.validation_scores_):
            return f"pass {model.best_iter_} kept"
        text = "converged" if model.converged_.all() else "not converged"
        if len(model.log_posteriors_):
            text += f", then {model.discriminative_best_iter_} discriminative"
        return text

    @property
    def n_at_floor(self) -> int:
        """Kernels that would have collapsed further, were it not for ``reg_covar``."""
        return count_at_floor(self.classifier.blocks_, self.classifier.reg_covar)

    def summary(self) -> dict[str, Any]:
        """The same as plain values."""
        model = self.classifier
        return {
            "n_train": self.n_train,
            "n_validation": self.n_validation,
            "n_features": model.n_features_in_,
            "n_blocks": len(model.blocks_),
            "n_components": [len(block.means) for block in model.blocks_],
            "n_at_floor": self.n_at_floor,
            "reg_covar": model.reg_covar,
            "covariance_type": model.covariance_type,
            "classes": model.classes_.tolist(),
            "n_iter": model.n_iter_,
            "best_iter": model.best_iter_,
            "converged": bool(model.converged_.all()),
            "log_likelihood_per_row": self.log_likelihood,
            "training_accuracy": self.training_accuracy,
            "validation_accuracy": self.validation_accuracy,
            "remarks": self.task.remarks,
        }

    def save(self, path: Any) -> None:
        """Write the model file, with what is needed to read tables like the one it is from."""
        facts = {
            "n_train": self.n_train,
            "training_accuracy": self.training_accuracy,
            "validation_accuracy": self.validation_accuracy,
        }
        save(self.pipeline, path, metadata={**self.task.metadata, **facts})


def train(
    task: Task, classifier: SharedKernelClassifier, validation_fraction: float = 0.0
) -> Trained:
    """Train a pipeline on a task, with a part of the rows held out to watch.

    The held-out rows are seen by no step, unless ``early_stopping`` is True: then they choose the
    pass. Where ``reg_covar`` is None it follows from the data.
    """
    rows, held_out = hold_out(task.y, validation_fraction, classifier.random_state)
    chooses = check_boolean("early_stopping", classifier.early_stopping, auto=True) is True
    if chooses and not len(held_out):
        raise TableError(
            "Early stopping needs rows to validate on: hold out a larger fraction, or train"
            " without it."
        )
    encoder, X = fit_encoder(task.encoder, task.X.iloc[rows])
    y = task.y[rows]
    model = complete(classifier, encoder, X, y)
    watched: dict[str, Any] = {}
    if len(held_out):
        with unknown_allowed():
            X_val = encoder.transform(task.X.iloc[held_out])
        watched = {"X_val": X_val, "y_val": task.y[held_out]}
    # Rows that choose something can no longer measure it.
    model.fit(X, y, **(watched if chooses else {}))
    validated = float(model.score(watched["X_val"], watched["y_val"])) if watched else None
    accuracy = float(model.score(X, y))
    own = np.arange(len(y)), np.searchsorted(model.classes_, y)
    log_likelihood = float(model.class_log_likelihood(X)[own].mean())
    model.set_params(verbose=0)
    pipeline = Pipeline([*encoder.steps, ("classifier", model)])
    return Trained(pipeline, task, len(rows), len(held_out), accuracy, validated, log_likelihood)


def hold_out(
    y: NDArray[Any], fraction: float, random_state: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on and rows to hold out, a fraction of every class as far as it goes."""
    if fraction == 0.0:
        return np.arange(len(y)), np.empty(0, dtype=np.intp)
    classes, labels = np.unique(y, return_inverse=True)
    place = np.arange(len(y), dtype=np.float64)[:, None]
    return split(place, labels, fraction, len(classes), int(random_state or 0))
