"""scikit-learn's callbacks (``sklearn.callback``, from version 1.9), where they exist.

With an older scikit-learn the names here do nothing and ``set_callbacks`` is absent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sklearn.base import BaseEstimator

#: Frames that the decorator puts between a caller and ``fit``.
DECORATOR_FRAMES = 1

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Stands for the mixin of newer versions."""

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Stands for the decorator of newer versions."""
        return method

    DECORATOR_FRAMES = 0


__all__ = ["DECORATOR_FRAMES", "CallbackSupportMixin", "FitTask", "with_callbacks"]


class FitTask:
    """The task tree of a fit: one root, one leaf per EM pass.

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
        if hasattr(estimator, "_skl_callbacks") or hasattr(estimator, "_parent_callback_ctx"):
            self._root = estimator._init_callback_context(max_subtasks=max_passes)
            self._root.call_on_fit_task_begin(estimator=estimator, **self._data)

    def after_pass(self, fitted_attributes: Callable[[], dict[str, Any]]) -> bool:
        """Tell the callbacks of a pass that ended; True where one of them asks to stop."""
        if self._root is None:
            return False
        leaf = self._root.subcontext(task_name="EM pass")
        leaf.call_on_fit_task_begin(estimator=self._estimator, **self._data)
        return bool(
            leaf.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=fitted_attributes,
                **self._data,
            )
        )

    def end(self, fitted_attributes: Callable[[], dict[str, Any]]) -> None:
        """Tell the callbacks that the fit is done."""
        if self._root is not None:
            self._root.call_on_fit_task_end(
                estimator=self._estimator,
                reconstruction_attributes=fitted_attributes,
                **self._data,
            )
