"""Those who see every pass: the progress bar, scikit-learn's callbacks, and the user's own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from pskem.model import Model
from pskem.training._callbacks import FitTask, caller_depth
from pskem.training._diagnostics import describe_ending, troubles
from pskem.training._loop import Progress, State
from pskem.training._planning import Data, Plan
from pskem.training._progress import PassBar
from pskem.training._refining import Refined
from pskem.training._splitting import Samples

__all__ = ["Observers", "Watcher", "observing"]

#: Sees the model after a pass; something true asks for the training to stop.
Watcher = Callable[[Model], Any]


def _bar(plan: Plan) -> PassBar | None:
    """The progress bar of a training, if one is wanted."""
    if not plan.verbose:
        return None
    n_samples, every = plan.rows.size + plan.unlabelled.size, 10 if plan.verbose == 1 else 1
    return PassBar(plan.max_iter, plan.n_init, n_samples, every, plan.refinement.passes)


class Observers:
    """All who see the passes of a fit, and hear of its end."""

    def __init__(
        self,
        estimator: BaseEstimator,
        plan: Plan,
        samples: Samples,
        y: Any,
        watch: Watcher | None,
        depth: int,
    ) -> None:
        self._depth = depth
        later = plan.refinement.passes
        self._estimator, self._plan, self._watch = estimator, plan, watch
        self._names = samples.feature_names
        self._task = FitTask(estimator, plan.max_iter * plan.n_init + later, samples.X, y)
        self._bar = _bar(plan)

    def __call__(self, state: Progress) -> bool:
        """See a pass; True asks for the training to stop."""
        if self._bar is not None:
            self._bar(state)
        asked = self._watch is not None and bool(self._watch(state.model))
        return self._task.after_pass(state.model, state.discriminative) or asked

    def close(self, text: str) -> None:
        """Close the bar."""
        if self._bar is not None:
            self._bar.close(text)

    def end(self, data: Data, run: State, refined: Refined) -> None:
        """Hear how the training went; warn the caller of ``fit`` of what went wrong."""
        self.close(describe_ending(run, refined))
        for message in troubles(self._plan, data, run, self._names):
            depth = self._depth + caller_depth(self._estimator)
            warnings.warn(message, ConvergenceWarning, stacklevel=depth)

    def finish(self, model: Model) -> None:
        """Tell the callbacks that the fit is done."""
        self._task.end(model)


class Bystanders:
    """Those who see the passes of a further view: nobody but the bar."""

    def __init__(self, bar: PassBar | None) -> None:
        self._bar = bar

    def __call__(self, state: Progress) -> bool:
        return self._bar is not None and self._bar(state)

    def close(self, text: str) -> None:
        if self._bar is not None:
            self._bar.close(text)

    def end(self, data: Data, run: State, refined: Refined) -> None:
        self.close(describe_ending(run, refined))


@contextmanager
def observing(
    estimator: BaseEstimator,
    plan: Plan,
    samples: Samples,
    y: Any,
    watch: Watcher | None = None,
    first: bool = True,
    depth: int = 3,
) -> Iterator[Observers | Bystanders]:
    """Observers of a fit, whose bar is closed also if the fit fails.

    Of several views of the samples only the first is shown to callbacks, and can be stopped.
    Warnings point so deep into the calls, to where ``fit`` was called.
    """
    alone = Observers(estimator, plan, samples, y, watch, depth) if first else None
    observers = alone or Bystanders(_bar(plan))
    try:
        yield observers
    except Warning:  # turned into an error by the user: the fit itself is done
        raise
    except BaseException:
        observers.close("interrupted")
        raise
