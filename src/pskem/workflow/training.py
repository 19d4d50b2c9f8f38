"""Train a pipeline on a task, and save it with what is needed to use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.checks import check_n_components
from pskem.classifier import SharedKernelClassifier
from pskem.files import check_place
from pskem.model import count_at_floor
from pskem.partition import partition_features
from pskem.persistence import ModelFileError, read_header, save
from pskem.tables import TableError, category_features, unknown_allowed
from pskem.training import split
from pskem.workflow.task import Task

__all__ = [
    "Trained",
    "check_model_place",
    "complete",
    "hold_out",
    "suggest_n_components",
    "suggest_reg_covar",
    "train",
]

#: Training samples per kernel and parameter of its mean that the suggested K leaves.
SAMPLES_PER_MEAN = 5
#: Kernels for every class that are suggested at least, and kernels at most.
FEWEST_PER_CLASS = 2
LARGEST_SUGGESTION = 64
#: The suggested floor where few samples, or indicators of categories, make kernels collapse: a
#: kernel that has seen one category should not rule out the others.
HIGH_FLOOR = 0.1
FEW_ROWS = 10_000


def suggest_n_components(
    n_samples: int, n_features: int, n_classes: int, n_blocks: int | str
) -> int:
    """A number of kernels that so many samples can bear, and a few for every class."""
    m = max(map(len, partition_features(n_features, n_blocks)))
    most = min(n_samples // (SAMPLES_PER_MEAN * (m + 1)), LARGEST_SUGGESTION)
    return max(most, FEWEST_PER_CLASS * n_classes)


def suggest_reg_covar(task: Task) -> float:
    """The estimator's own floor for large tables of numbers, a higher one for others."""
    default: float = SharedKernelClassifier().reg_covar
    return HIGH_FLOOR if task.columns.categorical or len(task.y) < FEW_ROWS else default


def complete(
    classifier: SharedKernelClassifier,
    encoder: Pipeline,
    task: Task,
    n_samples: int,
    n_features: int,
) -> SharedKernelClassifier:
    """A copy of the classifier with settings from the data where it has None, and its blocks.

    The features of each category make a block of their own, with a kernel for each of its values:
    in one block with numbers, kernels would gather around categories, also around those that tell
    nothing of the class. The settings of blocks and kernels are for the numbers.
    """
    model = clone(classifier)
    categories = category_features(encoder)
    numbers = np.setdiff1d(np.arange(n_features), np.concatenate([[-1], *categories]))
    if model.n_components is None:
        n_classes = len(np.unique(task.y))
        K = suggest_n_components(n_samples, max(1, len(numbers)), n_classes, model.n_blocks)
        model.set_params(n_components=K)
    if model.reg_covar is None:
        model.set_params(reg_covar=suggest_reg_covar(task))
    if not categories:
        return model
    parts: list[NDArray[np.intp]] = []
    kernels: list[int] = []
    if len(numbers):
        settings = (model.n_blocks, model.partition, model.random_state)
        parts = [numbers[part] for part in partition_features(len(numbers), *settings)]
        kernels = check_n_components(model.n_components, len(parts))
    kernels += [len(features) + 1 for features in categories]
    blocks = [features.tolist() for features in (*parts, *categories)]
    return model.set_params(n_blocks="auto", partition=blocks, n_components=kernels)


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

    @property
    def classifier(self) -> SharedKernelClassifier:
        classifier: SharedKernelClassifier = self.pipeline[-1]
        return classifier

    @property
    def log_likelihood(self) -> float:
        """Per row, in the units of the encoded features, of the pass that was kept."""
        model = self.classifier
        return float(model.log_likelihoods_[model.best_iter_ - 1].sum() / self.n_train)

    @property
    def ending(self) -> str:
        model = self.classifier
        if model.early_stopping:
            return f"pass {model.best_iter_} kept"
        return "converged" if model.converged_.all() else "not converged"

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

    The held-out rows are not seen by any step. With early stopping they choose the pass. Settings
    of the classifier that are None are completed from the data.
    """
    rows, held_out = hold_out(task.y, validation_fraction, classifier.random_state)
    if classifier.early_stopping and not len(held_out):
        raise TableError(
            "Early stopping needs rows to validate on: hold out a larger fraction, or train"
            " without it."
        )
    encoder = clone(task.encoder)
    X, y = encoder.fit_transform(task.X.iloc[rows]), task.y[rows]
    model = complete(classifier, encoder, task, *X.shape)
    watched: dict[str, Any] = {}
    if len(held_out):
        with unknown_allowed():
            X_val = encoder.transform(task.X.iloc[held_out])
        watched = {"X_val": X_val, "y_val": task.y[held_out]}
    model.fit(X, y, **watched)
    validated = float(model.score(watched["X_val"], watched["y_val"])) if watched else None
    accuracy = float(model.score(X, y))
    model.set_params(verbose=0)
    pipeline = Pipeline([*encoder.steps, ("classifier", model)])
    return Trained(pipeline, task, len(rows), len(held_out), accuracy, validated)


def hold_out(
    y: NDArray[Any], fraction: float, random_state: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on and rows to hold out, a fraction of every class as far as it goes."""
    if fraction == 0.0:
        return np.arange(len(y)), np.empty(0, dtype=np.intp)
    classes, labels = np.unique(y, return_inverse=True)
    place = np.arange(len(y), dtype=np.float64)[:, None]
    return split(place, labels, fraction, len(classes), int(random_state or 0))
