"""Train a pipeline on a task, and save it with what is needed to use it."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.checks import check_boolean, check_n_components
from pskem.estimators import SharedKernelClassifier
from pskem.persistence import save
from pskem.starts import Start
from pskem.structures import FloatArray
from pskem.tables import TableError, category_features, fit_encoder, unknown_allowed
from pskem.training import Settings, deal_blocks, draw_seeds, split, suggest_n_components
from pskem.workflow.task import Task

__all__ = ["Trained", "complete", "hold_out", "known_labels", "train"]

#: The floor where there are indicators of categories: a kernel that has seen one category should
#: not rule out the others.
CATEGORY_FLOOR = 0.1


def complete(
    classifier: SharedKernelClassifier,
    encoder: Pipeline,
    X: FloatArray,
    y: NDArray[Any],
    category_floor: float | None = CATEGORY_FLOOR,
) -> SharedKernelClassifier:
    """A copy of the classifier with blocks for categories, and a floor that suits them.

    The features of each category make a block with a kernel for each of its values, which all
    classes share: a table of frequencies. In one block with numbers, kernels would gather around
    categories, also around those that tell nothing of the class. The settings of blocks and
    kernels are for the numbers. If there are categories, ``category_floor`` takes the place of the
    default of ``reg_covar``; None leaves that, too.
    """
    model: SharedKernelClassifier = clone(classifier)
    categories = category_features(encoder)
    if not categories:
        return model
    if category_floor is not None and model.reg_covar == SharedKernelClassifier().reg_covar:
        model.set_params(reg_covar=category_floor)
    if isinstance(model.init, Start):
        raise TableError(
            "init=Start(...) gives kernels for features in a fixed order, but categories get blocks"
            " of their own. Use a start that makes kernels, or leave the categories out."
        )
    numbers = np.setdiff1d(np.arange(X.shape[1]), np.concatenate(categories))
    _, labels, counts = np.unique(y, return_inverse=True, return_counts=True)
    parts: list[NDArray[np.intp]] = []
    kernels: list[int] = []
    if len(numbers):
        (seed,) = draw_seeds(model.random_state)
        try:
            dealt = deal_blocks(X[:, numbers], labels, model.n_blocks, model.partition, seed)
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
        init=Start(
            means=[*[None] * len(parts), *values],
            otherwise="class-kmeans" if model.init == "auto" else model.init,
            reseed=Settings.parse(model.get_params(deep=False)).reseed,
        ),
    )


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
    category_floor: float | None = CATEGORY_FLOOR,
) -> Trained:
    """Train a pipeline on a task, with a part of the rows held out to watch.

    The held-out rows are seen by no step, unless ``early_stopping`` is True: then they choose the
    pass. ``category_floor`` is as for :func:`complete`.
    """
    known = task.labelled
    places, others = np.flatnonzero(known), np.flatnonzero(~known)
    kept, watching = hold_out(
        known_labels(task.y[known]), validation_fraction, classifier.random_state
    )
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
    model = complete(classifier, encoder, X[mine], known_labels(y[mine]), category_floor)
    validation: tuple[Any, ...] = ()
    if len(held_out):
        with unknown_allowed():
            X_val = encoder.transform(watched.X)
        validation = X_val, known_labels(watched.y), watched.weights
    # Rows that choose something can no longer measure it.
    names = ("X_val", "y_val", "sample_weight_val")
    choosing = dict(zip(names, validation, strict=True)) if chooses else {}
    model.fit(X, y, weights, **choosing)
    validated = float(model.score(*validation)) if validation else None
    X, y = X[mine], known_labels(y[mine])
    weights = None if weights is None else weights[mine]
    accuracy = float(model.score(X, y, weights))
    own = np.arange(len(y)), np.searchsorted(model.classes_, y)
    log_likelihood = float(np.average(model.class_log_likelihood(X)[own], weights=weights))
    model.set_params(verbose=0)
    pipeline = Pipeline([*encoder.steps, ("classifier", model)])
    return Trained(pipeline, task, len(rows), len(held_out), accuracy, validated, log_likelihood)


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
    seed = random_state if isinstance(random_state, Integral) else draw_seeds(random_state)[0]
    return split(labels, fraction, len(classes), int(seed))
