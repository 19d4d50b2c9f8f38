"""The fitted models inside of what a user has at hand: a pipeline, a search, an ensemble."""

from __future__ import annotations

from typing import Any, NamedTuple

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from pskem.estimators import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.model import Block

__all__ = ["Fitted", "take_apart"]

MODELS = (SharedKernelClassifier, SharedKernelClassifierCV, SharedKernelDensity)
ACCEPTED = ", ".join(kind.__name__ for kind in (*MODELS, PartitionEnsemble))


class Fitted(NamedTuple):
    """Fitted models, and what comes before them.

    before : steps before the models, by name, in the order in which data pass through them
    models : several of an ensemble, else one
    """

    before: list[tuple[str, Any]]
    models: list[Any]

    @property
    def class_names(self) -> list[str]:
        return [str(name) for name in getattr(self.models[0], "classes_", ["density"])]

    def block(self, number: int) -> tuple[Any, Block]:
        """A block, counted through all models, and the model that it belongs to."""
        pairs = [(model, block) for model in self.models for block in model.blocks_]
        if not -len(pairs) <= number < len(pairs):
            raise ValueError(f"block={number} is not there: blocks are 0 to {len(pairs) - 1}.")
        return pairs[number]


def take_apart(given: Any) -> Fitted:
    """The models in a fitted estimator: its last step, its best estimator, its members."""
    model, before = given, []
    while isinstance(model, Pipeline) or hasattr(model, "best_estimator_"):
        if isinstance(model, Pipeline):
            before += model.steps[:-1]
        model = model[-1] if isinstance(model, Pipeline) else model.best_estimator_
    if isinstance(model, PartitionEnsemble):
        check_is_fitted(model, "estimators_")
        return Fitted(before, list(model.estimators_))
    if not isinstance(model, MODELS):
        what = f"a {type(given).__name__}" + f" of a {type(model).__name__}" * (model is not given)
        raise ValueError(
            f"There are no kernels in {what}. Give one of {ACCEPTED}, or a fitted pipeline or"
            " search of one."
        )
    check_is_fitted(model, "model_")
    return Fitted(before, [model])
