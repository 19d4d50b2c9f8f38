"""Those who see every pass: the progress bar, scikit-learn's callbacks, and the user's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, is_classifier
from sklearn.exceptions import ConvergenceWarning

from pskem.model import Model
from pskem.training._arranging import Data
from pskem.training._callbacks import FitTask, caller_depth
from pskem.training._diagnostics import describe_ending, troubles
from pskem.training._loop import Progress, State
from pskem.training._planning import Plan
from pskem.training._progress import PassBar
from pskem.training._refining import Refined
from pskem.training._splitting import Samples

__all__ = ["Observers", "Watcher", "observing"]

#: Sees the model after a pass; something true asks for the training to stop.
Watcher = Callable[[Model], Any]


def _bar(plan: Plan, samples: Samples) -> PassBar | None:
    """The progress bar of a training, if one is wanted."""
    if not plan.verbose:
        return None
    n_samples, every = plan.rows.size + plan.unlabelled.size, 10 if plan.verbose == 1 else 1
    if samples.whole is not None:
        n_samples = samples.whole.n_rows
    return PassBar(plan.max_iter, plan.n_init, n_samples, every, plan.refinement.passes)


class Observers:
    """All who see the passes of a fit, and hear of its end.

    task : of the callbacks; None if they are not shown anything
    depth : how deep in the calls warnings point; None if there are to be none
    """

    def __init__(
        self,
        plan: Plan,
        samples: Samples,
        task: FitTask | None = None,
        watch: Watcher | None = None,
        depth: int | None = None,
    ) -> None:
        self._plan, self._samples = plan, samples
        self._task, self._watch, self._depth = task, watch, depth
        self._bar = _bar(plan, samples)

    def __call__(self, state: Progress) -> bool:
        """See a pass; True asks for the training to stop."""
        if self._bar is not None:
            self._bar(state)
        asked = self._watch is not None and bool(self._watch(state.model))
        if self._task is None:
            return asked
        return self._task.after_pass(state.model, state.discriminative) or asked

    def close(self, text: str) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close(text)

    def go_on(self, plan: Plan, run: State, refined: Refined) -> None:
        """Hear how a training went that another one follows."""
        self.close(f"{describe_ending(run, refined)}; now on all samples")
        self._plan, self._bar = plan, _bar(plan, self._samples)

    def end(self, data: Data, run: State, refined: Refined, kept: bool = True) -> None:
        """Hear how the training went; warn the caller of ``fit`` of what went wrong."""
        text = describe_ending(run, refined)
        self.close(text if kept else f"{text}; the training before it is kept")
        if self._depth is not None:
            for message in troubles(self._plan, data, run, self._samples.feature_names):
                warnings.warn(message, ConvergenceWarning, stacklevel=self._depth)

    def finish(self, model: Model) -> None:
        """Tell the callbacks that the fit is done."""
        if self._task is not None:
            self._task.end(model)


@contextmanager
def observing(
    estimator: BaseEstimator,
    plan: Plan,
    samples: Samples,
    watch: Watcher | None = None,
    first: bool = True,
    depth: int = 3,
) -> Iterator[Observers]:
    """Observers of a fit, whose bar is closed also if the fit fails.

    Of several views of the samples only the first is shown to callbacks, and can be stopped.
    Warnings point so deep into the calls, to where ``fit`` was called.
    """
    if first:
        X, y = _given(samples)
        task = FitTask(estimator, _most_passes(plan), X, y if is_classifier(estimator) else None)
        deep = depth + caller_depth(estimator)
        observers = Observers(plan, samples, task, watch, deep)
    else:
        observers = Observers(plan, samples)
    try:
        yield observers
    except Warning:  # turned into an error by the user: the fit itself is done
        raise
    except BaseException:
        observers.close("interrupted")
        raise


def _given(samples: Samples) -> tuple[Any, Any]:
    """X and y as callbacks may want them; None if they are not in memory."""
    samples = samples if samples.memory is None else samples.memory
    if samples.whole is not None:
        return None, None
    y: Any = samples.classes[samples.labels]
    if (samples.labels < 0).any():
        y = np.where(samples.labels < 0, None, y.astype(object))
    return samples.X, y


def _most_passes(plan: Plan) -> int:
    """Passes that there can be, over all starts, and again on all samples."""
    later = plan.refinement.passes
    again = plan.max_iter + later if plan.refinement.repeat else 0
    return plan.max_iter * plan.n_init + later + again
