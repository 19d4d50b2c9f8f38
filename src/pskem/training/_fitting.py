"""A fit: choose what to train, train it, put it together."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

from sklearn.base import BaseEstimator

from pskem.engine import workers
from pskem.model import Model, multiply
from pskem.structures import FloatArray
from pskem.training._callbacks import caller_depth
from pskem.training._choosing import choose
from pskem.training._holdout import reference_log_densities
from pskem.training._journal import Journal, Page, mark_of
from pskem.training._loop import State
from pskem.training._observers import Observers, Watcher, observing
from pskem.training._performing import Trained, better, perform, perform_again, plan_again
from pskem.training._planning import make_plan
from pskem.training._progress import telling_of_trials
from pskem.training._refining import Refined
from pskem.training._settings import Settings
from pskem.training._splitting import Samples

__all__ = ["Fitted", "fit_views", "threads"]

#: Cells of X below which passes are so short that threads would only wait for one another.
FEW_CELLS = 300_000


class Fitted(NamedTuple):
    """What came of a fit.

    run, refined : the training of the first view
    references : log densities of samples under models that were not trained on them, sorted
    records : what was tried before
    """

    model: Model
    run: State
    refined: Refined
    references: FloatArray
    records: tuple[dict[str, Any], ...]


def threads(settings: Settings, samples: Samples) -> int | None:
    """Threads that are worth it for so many samples."""
    few = samples.whole is None and samples.X.size < FEW_CELLS
    return 1 if few else settings.n_jobs


def fit_views(
    estimator: BaseEstimator,
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    watch: Watcher | None,
    journal: Journal,
) -> Fitted:
    """The model of the samples: one, or the product of several that were tried before."""
    with workers(threads(settings, samples)) as parallel_map:
        journal.agree(lambda: mark_of(samples, parallel_map))
        with telling_of_trials(settings.verbose) as tell:
            choice = choose(settings, samples, before, seed, parallel_map, tell)
        if (settings.n_views or 1) > 1 and not choice.records:
            warnings.warn(
                f"n_views={settings.n_views} is not used: forms are tried with 20 to 20,000"
                " samples of known classes, without validation data, and where early_stopping and"
                " block_weights are 'auto' and warm_start is False. There is one model.",
                UserWarning,
                stacklevel=3 + caller_depth(estimator),
            )
        references = choice.references
        fitted: list[Trained] = []
        models: list[Model] = []
        exponents: list[float] = []
        shown: Observers | None = None
        for v, view in enumerate(choice.views):
            first, second = (Page(journal, f"view {v}, {part}: ") for part in ("some", "all"))
            plan = make_plan(view.settings, samples, before, seed, choice.maps)
            with observing(estimator, plan, samples, watch, not fitted, depth=4) as observers:
                shown = shown or observers
                data, trained = perform(plan, samples, parallel_map, observers, page=first)
                if references is None:
                    unseen = samples.validating(plan.held_out)
                    pairs = [] if unseen is None else [(trained.refined.best, unseen)]
                    references = reference_log_densities(pairs, parallel_map)
                if trained.to_repeat:
                    del data  # two copies of the samples would be one too many
                    plan = plan_again(view.settings, samples, trained, seed, choice.maps)
                    observers.go_on(plan, trained.run, trained.refined)
                    data, again = perform_again(
                        plan, samples, trained, parallel_map, observers, second
                    )
                    kept = better(trained, again, samples, parallel_map)
                    observers.end(data, again.run, again.refined, kept is again)
                    trained = kept
                else:
                    observers.end(data, trained.run, trained.refined)
            fitted.append(trained)
            models.append(view.finish(trained.refined.best))
            exponents.append(view.exponent)
            if trained.stopped:  # what there is has to do
                choice, exponents = choice.first_alone, [1.0]
                break
    product = multiply(models, exponents)
    assert shown is not None  # there is a view at least
    assert references is not None
    shown.finish(product)
    return Fitted(product, fitted[0].run, fitted[0].refined, references, choice.records)
