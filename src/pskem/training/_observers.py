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


class Observers:
    """All who see the passes of a fit, and hear of its end."""

    def __init__(
        self, estimator: BaseEstimator, plan: Plan, samples: Samples, y: Any, watch: Watcher | None
    ) -> None:
        later, verbose = plan.refinement.passes, plan.verbose
        self._estimator, self._plan, self._watch = estimator, plan, watch
        self._names = samples.feature_names
        self._task = FitTask(estimator, plan.max_iter * plan.n_init + later, samples.X, y)
        self._bar: PassBar | None = None
        if verbose:
            every = 10 if verbose == 1 else 1
            self._bar = PassBar(
                plan.max_iter, plan.n_init, plan.rows.size + plan.unlabelled.size, every, later
            )

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
        self._task.end(refined.best)
        for message in troubles(self._plan, data, run, self._names):
            depth = 3 + caller_depth(self._estimator)
            warnings.warn(message, ConvergenceWarning, stacklevel=depth)


@contextmanager
def observing(
    estimator: BaseEstimator, plan: Plan, samples: Samples, y: Any, watch: Watcher | None = None
) -> Iterator[Observers]:
    """Observers of a fit, whose bar is closed also if the fit fails."""
    observers = Observers(estimator, plan, samples, y, watch)
    try:
        yield observers
    except Warning:  # turned into an error by the user: the fit itself is done
        raise
    except BaseException:
        observers.close("interrupted")
        raise
