"""Train a pipeline on a task, and save it with what is needed to use it."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.checks import check_boolean
from pskem.estimators import SharedKernelClassifier
from pskem.persistence import save
from pskem.tables import TableError, encode, fit_encoder, keeps_columns
from pskem.training import MANY, Journal, draw_seeds, other_lots, row_keys, split
from pskem.workflow.task import Task

__all__ = ["Trained", "hold_out", "known_labels", "lots_of", "measured_seed", "suited", "train"]


def suited(classifier: SharedKernelClassifier, task: Task) -> SharedKernelClassifier:
    """A copy of the classifier that knows which columns of the task are categories."""
    categories = task.columns.categorical if keeps_columns(task.encoder) else []
    model: SharedKernelClassifier = clone(classifier)
    return model.set_params(categorical_features=list(categories) or None)


class Learnt(Protocol):
    """What a table was like that a pipeline is trained on.

    remarks : what was done to the table that its owner should know
    metadata : what a model file needs in order to read tables like this one
    """

    @property
    def remarks(self) -> list[str]: ...
    @property
    def metadata(self) -> dict[str, Any]: ...


class Trained(NamedTuple):
    """A trained pipeline and how the training went."""

    pipeline: Pipeline
    task: Learnt
    n_train: int
    n_validation: int
    training_accuracy: float
    validation_accuracy: float | None
    #: Per row, in the units of what the classifier takes.
    log_likelihood: float

    @property
    def classifier(self) -> SharedKernelClassifier:
        return self.pipeline[-1]

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
        return self.classifier.model_.count_at_floor(self.classifier.reg_covar)

    def summary(self) -> dict[str, Any]:
        """The same as plain values."""
        model = self.classifier
        kept = [trial for trial in model.trials_ if trial["view"] is not None]
        return {
            "n_train": self.n_train,
            "n_validation": self.n_validation,
            "n_features": model.n_features_in_,
            "n_blocks": len(model.blocks_),
            "n_components": [len(block.means) for block in model.blocks_],
            "block_views": model.block_views_.tolist(),
            "views": sorted(kept, key=lambda trial: trial["view"]),
            "n_tried": len(model.trials_),
            "n_at_floor": self.n_at_floor,
            "reg_covar": model.reg_covar,
            "covariance_type": model.covariance_type,
            "classes": model.classes_.tolist(),
            "unlabelled_weight": model.unlabelled_weight_,
            "n_iter": model.n_iter_,
            "best_iter": model.best_iter_,
            "converged": bool(model.converged_.all()),
            "log_likelihood_per_row": self.log_likelihood,
            "training_accuracy": self.training_accuracy,
            "validation_accuracy": self.validation_accuracy,
            "remarks": self.task.remarks,
        }

    def save(self, path: Any, *, overwrite: bool = False) -> None:
        """Write the model file, with what is needed to read tables like the one it is from."""
        facts = {
            "n_train": self.n_train,
            "training_accuracy": self.training_accuracy,
            "validation_accuracy": self.validation_accuracy,
        }
        metadata = {**self.task.metadata, **facts}
        save(self.pipeline, path, metadata=metadata, overwrite=overwrite)


def train(
    task: Task,
    classifier: SharedKernelClassifier,
    validation_fraction: float = 0.0,
    checkpoint: Journal | None = None,
) -> Trained:
    """Train a pipeline on a task, with a part of the rows held out to watch.

    The held-out rows are seen by no step, unless ``early_stopping`` is True: then they choose the
    pass.
    """
    known = task.labelled
    places, others = np.flatnonzero(known), np.flatnonzero(~known)
    if len(known) < MANY:
        kept, watching = hold_out(
            known_labels(task.y[known]), validation_fraction, classifier.random_state
        )
    else:  # as if they were read piece by piece
        lots = lots_of(task.X.iloc[places], measured_seed(classifier.random_state))
        kept, watching = (np.flatnonzero(side) for side in _sides(lots, validation_fraction))
    rows, held_out = np.concatenate([places[kept], others]), places[watching]
    chooses = check_boolean("early_stopping", classifier.early_stopping, auto=True) is True
    if chooses and not len(held_out):
        raise TableError(
            "Early stopping needs rows to validate on: hold out a larger fraction, or train"
            " without it."
        )
    trained, watched = task.at(rows), task.at(held_out)
    encoder, X = fit_encoder(task.encoder, trained.X)
    weights = trained.weights
    mine = trained.labelled
    y = trained.y
    model = suited(classifier, task)
    validation: tuple[Any, ...] = ()
    if len(held_out):
        X_val = encode(encoder, watched.X)
        validation = X_val, known_labels(watched.y), watched.weights
    # Rows that choose something can no longer measure it.
    names = ("X_val", "y_val", "sample_weight_val")
    choosing = dict(zip(names, validation, strict=True)) if chooses else {}
    model.fit(X, y, weights, checkpoint=checkpoint, **choosing)
    validated = float(model.score(*validation)) if validation else None
    if validation and not len(model.reference_log_densities_):
        model.set_reference(X_val, watched.weights)
    X, y = (X if len(mine) == mine.sum() else X[mine]), known_labels(y[mine])
    weights = None if weights is None else weights[mine]
    accuracy = float(model.score(X, y, weights))
    own = np.arange(len(y)), np.searchsorted(model.classes_, y)
    log_likelihood = float(np.average(model.class_log_likelihood(X)[own], weights=weights))
    model.set_params(verbose=0)
    pipeline = Pipeline([*encoder.steps, ("classifier", model)])
    return Trained(pipeline, task, len(rows), len(held_out), accuracy, validated, log_likelihood)


def _sides(
    lots: NDArray[np.float64], fraction: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    return lots >= fraction, lots < fraction


def lots_of(X: Any, seed: int) -> NDArray[np.float64]:
    """Numbers between 0 and 1, (n,), that the values of the rows of an array or a frame decide."""
    if not hasattr(X, "iloc"):
        return row_keys(X, seed) / 2.0**64
    is_number = [kind.kind == "f" for kind in X.dtypes]
    keys = row_keys(X.loc[:, is_number].to_numpy(), seed)
    for name in X.columns[np.logical_not(is_number)]:
        texts = X[name].astype("category").cat
        codes = pd.util.hash_array(texts.categories.to_numpy(dtype=object))
        keys = other_lots(keys ^ np.append(codes, np.uint64(0))[texts.codes])
    return keys / 2.0**64


def known_labels(y: NDArray[Any]) -> NDArray[Any]:
    """Labels of one kind, from objects among which there may have been gaps."""
    return np.array(y.tolist()) if y.dtype == object else y


def hold_out(
    y: NDArray[Any], fraction: float, random_state: Any
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows to train on and rows to hold out, a fraction of every class as far as it goes."""
    if fraction == 0.0:
        return np.arange(len(y)), np.empty(0, dtype=np.intp)
    classes, labels = np.unique(y, return_inverse=True)
    return split(labels, fraction, len(classes), measured_seed(random_state))


def measured_seed(random_state: Any) -> int:
    """The seed by which rows are held out to measure accuracy."""
    return int(random_state if isinstance(random_state, Integral) else draw_seeds(random_state)[0])
