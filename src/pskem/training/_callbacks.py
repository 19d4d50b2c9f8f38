"""scikit-learn's callbacks (``sklearn.callback``, from version 1.9), where they exist.

They are imported when an estimator first has one: where rich is installed, for their progress bar,
importing them takes longer than importing all of pskem. With an older scikit-learn
``set_callbacks`` is absent.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain
from numbers import Integral
from os import PathLike
from typing import Any, ParamSpec, Self, TypeVar

import numpy as np
from sklearn.base import BaseEstimator

from pskem.model import Model
from pskem.training._journal import Journal, Nowhere, journal_at

__all__ = [
    "CallbackSupportMixin",
    "FitTask",
    "caller_depth",
    "described",
    "find_journal",
    "with_callbacks",
]


class CallbackSupportMixin:
    """scikit-learn's mixin of the same name, which does not care whose methods it finds."""

    if find_spec("sklearn.callback") is not None:

        def set_callbacks(self, *callbacks: Any) -> Self:
            """Set the callbacks that see every pass of a fit.

            Parameters
            ----------
            *callbacks : instances of scikit-learn's callbacks
                None at all removes those that were set.

            Returns
            -------
            self : estimator
            """
            from sklearn.callback import CallbackSupportMixin as Theirs

            Theirs.set_callbacks(self, *callbacks)
            return self

        def _init_callback_context(self, *arguments: Any, **options: Any) -> Any:
            from sklearn.callback import CallbackSupportMixin as Theirs

            return Theirs._init_callback_context(self, *arguments, **options)


def _has_callbacks(estimator: Any) -> bool:
    """Whether callbacks were set on an estimator, or on one that it is a part of."""
    return hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx")


P = ParamSpec("P")
T = TypeVar("T")


def with_callbacks(method: Callable[P, T]) -> Callable[P, T]:
    """scikit-learn's decorator of ``fit`` where there are callbacks, else nothing."""

    @wraps(method)
    def fit(*arguments: P.args, **options: P.kwargs) -> T:
        if not _has_callbacks(arguments[0]):
            return method(*arguments, **options)
        from sklearn.callback import with_callbacks as theirs

        result: T = theirs(method)(*arguments, **options)
        return result

    return fit


def find_journal(estimator: Any, given: Any) -> Journal:
    """Where a fit is written down: what was given for it, or one of the callbacks."""
    if given is None:
        callbacks = getattr(estimator, "_skl_callbacks", [])
        given = next((one for one in callbacks if isinstance(one, Journal)), Nowhere())
    if isinstance(given, str | PathLike):
        given = journal_at(given)
    if not isinstance(given, Journal):
        raise TypeError(f"checkpoint={given!r} is not accepted: give a path, or a Checkpoint.")
    return given


def described(estimator: Any, before: Model | None = None) -> dict[str, str]:
    """The parameters that decide what a fit ends with, as texts, and the model it starts from."""
    given = {**estimator.get_params(deep=False), "n_jobs": None, "verbose": 0}
    if not isinstance(estimator.random_state, Integral):
        given["random_state"] = None  # the seed is drawn, and kept
    with np.printoptions(threshold=sys.maxsize, precision=17):
        texts = {name: repr(value) for name, value in given.items()}
    if before is not None:
        texts["warm_start"] = f"True from the model {_mark_of_kernels(before)}"
    return texts


def _mark_of_kernels(model: Model) -> str:
    """What tells the kernels of a model from others."""
    found = sha256()
    for part in chain.from_iterable(model.kernels):
        found.update(np.asarray(part, dtype=np.float64).tobytes())
    return found.hexdigest()[:16]


def caller_depth(estimator: BaseEstimator) -> int:
    """Frames that the decorators put between a caller and ``fit``."""
    return 2 if _has_callbacks(estimator) else 1


class FitTask:
    """The task tree of a fit: one root, one leaf per pass, of EM or discriminative.

    Parameters
    ----------
    estimator : the estimator being fitted
    max_passes : the most passes that there can be, over all starts
    X, y : the training data, as validated
    """

    def __init__(self, estimator: BaseEstimator, max_passes: int, X: Any, y: Any) -> None:
        self._estimator = estimator
        self._data = {"X": X, "y": y}
        self._root: Any = None
        if _has_callbacks(estimator):
            self._root = estimator._init_callback_context(max_subtasks=max_passes)
            self._root.call_on_fit_task_begin(estimator=estimator, **self._data)

    def after_pass(self, model: Model, discriminative: bool = False) -> bool:
        """Tell the callbacks of a pass that ended; True where one of them asks to stop."""
        if self._root is None:
            return False
        name = "discriminative pass" if discriminative else "EM pass"
        leaf = self._root.subcontext(task_name=name)
        leaf.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return bool(
            leaf.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=lambda: {"model_": model},
                **self._data,
            )
        )

    def end(self, model: Model) -> None:
        """Tell the callbacks that the fit is done."""
        if self._root is not None:
            self._root.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=lambda: {"model_": model},
                **self._data,
            )
