"""The first part of a stream: a fit of one model, with room to grow."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Mapper, OwnClass, Running, prepare_all, summarise
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._arranging import Data
from pskem.training._choosing import choose
from pskem.training._drawing import stand_in
from pskem.training._growing import own_kernels, widened
from pskem.training._holdout import reference_log_densities
from pskem.training._loop import State, unwatched
from pskem.training._performing import Trained, better, perform, perform_again, plan_again
from pskem.training._planning import make_plan
from pskem.training._refining import Refined
from pskem.training._settings import Form, Settings
from pskem.training._splitting import Samples
from pskem.training._stream import Stream, begin_stream, weight_unit
from pskem.training._unlabelled import settle_unlabelled

__all__ = ["Opened", "class_totals", "open_stream", "settle_part"]


class Opened(NamedTuple):
    """The model and the stream after the first part, and how its training went."""

    model: Model
    stream: Stream
    run: State
    refined: Refined
    references: FloatArray


def open_stream(settings: Settings, samples: Samples, seed: int, parallel_map: Mapper) -> Opened:
    """The model of the first part; its classes need not all be there.

    Those that are absent have no prior, and get kernels when they come.
    """
    settings = _of_a_stream(settings)
    present = np.unique(samples.labels[samples.labels >= 0])
    absent = len(present) < len(samples.classes)
    own = _restricted(settings, samples, present) if absent else samples
    own = stand_in(settings, own, seed)
    choice = choose(settings, own, None, seed, parallel_map, lambda done, all: None)
    (view,) = choice.views
    plan = make_plan(view.settings, own, None, seed, choice.maps)
    data, trained = perform(plan, own, parallel_map, unwatched)
    references = choice.references
    if references is None:
        unseen = own.validating(plan.held_out)
        pairs = [] if unseen is None else [(trained.refined.best, unseen)]
        references = reference_log_densities(pairs, parallel_map)
    if trained.to_repeat:
        first = trained
        plan = plan_again(view.settings, own, first, seed, choice.maps)
        data, again = perform_again(plan, own, first, parallel_map, unwatched)
        trained = better(first, again, own, parallel_map)
    model = view.finish(trained.refined.best)
    statistics = _sums(trained, data, parallel_map)
    if absent:
        model = _with_all_classes(model, samples, present, settings)
        statistics = [_with_all_rows(one, present, len(samples.classes)) for one in statistics]
    totals = class_totals(samples, model.priors, settings.unlabelled_weight)
    stream = begin_stream(model, totals, weight_unit(samples), statistics or None)
    stream = stream.watched(samples).sealed()
    return Opened(model, stream, trained.run, trained.refined, references)


def _sums(trained: Trained, data: Data, parallel_map: Mapper) -> list[Running]:
    """What the samples sum up to under kernels that EM alone has found; nothing under others.

    Unlike what the kernels would draw themselves, these sums know nothing of shrinkage and floors.
    """
    plan, model = trained.plan, trained.refined.best
    if trained.refined.best_iter or plan.held_out.size or plan.unlabelled.size:
        return []
    prepared = prepare_all(plan.structures, model.kernels, data.source, parallel_map)
    found = summarise(data.source, prepared, OwnClass(), parallel_map).blocks
    return [
        Running(sums.gained, sums.moments(ready)).about(ready.structure, ready.kernels.means)
        for sums, ready in zip(found, prepared, strict=True)
    ]


def _with_all_rows(running: Running, present: NDArray[np.intp], n_classes: int) -> Running:
    """Sums with a row for every class, of which those that are present stand at these places."""
    masses = np.zeros((n_classes, running.masses.shape[1]))
    masses[present] = running.masses
    return running._replace(masses=masses)


def class_totals(samples: Samples, priors: FloatArray, weight: float | None) -> FloatArray:
    """What the samples of each class count, (L,).

    Those without a class count by the priors, each with a weight.
    """
    totals, others = _masses(samples)
    others *= 0.0 if weight is None else weight
    if not others:
        return totals
    return (totals.sum() + others) * priors if samples.learn_priors else totals + others * priors


def _masses(samples: Samples) -> tuple[FloatArray, float]:
    """What the samples of each class count, (L,), and those without a class."""
    if samples.whole is not None:
        by_class = 1.0 if samples.class_weights is None else samples.class_weights
        return samples.whole.masses * by_class, samples.whole.unlabelled
    known, L = samples.labels >= 0, len(samples.classes)
    unit = weight_unit(samples)
    counted = np.ones(len(known)) if samples.weights is None else samples.weights / unit
    found = np.bincount(samples.labels[known], counted[known], minlength=L)
    return found.astype(np.float64), float(counted[~known].sum())


def settle_part(
    settings: Settings, samples: Samples, seed: int, before: float | None
) -> tuple[Settings, Samples]:
    """Settings with what samples without a class count in a part, and the samples that count.

    It is decided by the first part that has some.
    """
    if settings.unlabelled_weight is not None or before is not None or (samples.labels >= 0).all():
        return settle_unlabelled(settings, samples, seed, before)
    present = np.unique(samples.labels[samples.labels >= 0])
    own = (
        _restricted(settings, samples, present) if len(present) < len(samples.classes) else samples
    )
    weight = settle_unlabelled(_of_a_stream(settings), own, seed)[0].unlabelled_weight
    return settle_unlabelled(settings._replace(unlabelled_weight=weight), samples, seed)


def _of_a_stream(settings: Settings) -> Settings:
    """Settings of one model that can grow."""
    return settings._replace(
        open_form=False,
        n_views=1,
        margins=bool(settings.margins),
        warm_start=False,
        verbose=0,
        form=Form(growing=isinstance(settings.n_components, str)),
    )


def _restricted(settings: Settings, samples: Samples, present: NDArray[np.intp]) -> Samples:
    """The samples with no other classes than those that are there."""
    if settings.given is not None and settings.given.weights is not None:
        missing = np.delete(samples.classes, present)
        raise ValueError(
            f"init=Start(weights=...) says which kernels each class may use, so that all classes"
            f" must be in the first part; {missing[:10].tolist()} are not. Leave the weights to the"
            " start, or begin with a part that has all classes."
        )
    labels = np.where(samples.labels >= 0, np.searchsorted(present, samples.labels), -1)
    priors = samples.priors[present]
    if not priors.any():
        raise ValueError("No class of the first part has a prior; give others.")
    weights = samples.class_weights
    return samples._replace(
        labels=labels.astype(np.intp),
        classes=samples.classes[present],
        priors=priors / priors.sum(),
        class_weights=None if weights is None else weights[present],
    )


def _with_all_classes(
    model: Model, samples: Samples, present: NDArray[np.intp], settings: Settings
) -> Model:
    """The model with all classes, of which some have not come yet."""
    everyone = np.ones(len(present), dtype=bool)
    priors = np.zeros(len(samples.classes))
    priors[present] = model.priors
    blocks = tuple(
        widened(block, present, priors, not own_kernels(block, everyone, settings))
        for block in model.blocks
    )
    sharing = model.sharing
    if sharing is not None:
        pools = np.zeros(len(priors))
        pools[present] = sharing.priors
        sharing = sharing._replace(priors=pools)
    return replace(model, blocks=blocks, classes=samples.classes, priors=priors, sharing=sharing)
