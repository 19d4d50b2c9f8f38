"""Which models to train: several are tried on samples that they do not see, and multiplied.

What forms of models answer about such samples chooses the number of discriminative passes,
calibrates probabilities, and says how much each form counts in the product

    p(c|x) ~ prod_v p_v(c|x)^a_v,

whose log likelihoods add up over all blocks of all views, as those of blocks do in one model. Then
all views are trained on all samples: nothing is wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pskem.engine import Mapper
from pskem.margins import Margins
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._calibration import Calibration, calibrated
from pskem.training._exponents import fit_exponents
from pskem.training._forms import FEW_SAMPLES, describe_form, forms
from pskem.training._holdout import reference_log_densities
from pskem.training._layout import fit_maps
from pskem.training._planning import make_plan
from pskem.training._racing import Tried, race, to_try
from pskem.training._settings import Settings
from pskem.training._splitting import Samples
from pskem.training._trials import FEWEST_TO_TRY, TOO_MANY_TO_TRY, Trial, answers_of, make_trials

__all__ = ["Choice", "View", "choose", "tries_forms"]

#: Passes are laborious where samples lack numbers in more ways than so many, or have more.
MANY_PATTERNS, MANY_FEATURES = 8, 200
#: Discriminative passes after which answers are looked at.
CHECKPOINTS = (0, 3, 10, 30)
#: Views that are multiplied, at most, where nothing else is said.
USUAL_VIEWS = 6


class View(NamedTuple):
    """A model to train on all samples, and what becomes of it.

    calibration : None if the training finds it itself
    exponent : of its probabilities in the product of all views
    """

    settings: Settings
    calibration: Calibration | None = None
    exponent: float = 1.0

    def finish(self, model: Model) -> Model:
        """The trained model, calibrated."""
        return model if self.calibration is None else calibrated(model, self.calibration)


class Choice(NamedTuple):
    """The views to train, and how they were chosen.

    references : log densities of samples that were not trained on, under the first; None if the
        training has samples of its own for that
    records : what was tried, one dictionary each
    maps : of all columns, if they are known
    """

    views: tuple[View, ...]
    references: FloatArray | None = None
    records: tuple[dict[str, Any], ...] = ()
    maps: Margins | None = None

    @property
    def first_alone(self) -> Choice:
        """The first view, where the others are not trained any more."""
        records = (
            {**record, "exponent": 1.0}
            if record["view"] == 0
            else {**record, "exponent": 0.0, "view": None}
            for record in self.records
        )
        return self._replace(views=self.views[:1], records=tuple(records))


def choose(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    parallel_map: Mapper,
    tell: Callable[[int, int], None],
) -> Choice:
    """The views to train; ``tell`` hears how many forms of how many have been tried."""
    trials, mapped = [], settings.margins is not False
    if _worth_trying(settings, samples, before):
        trials = list(make_trials(samples, seed, mapped))
    if not trials:
        return Choice((View(settings),))
    maps = fit_maps(samples) if mapped else None
    laborious, size = _laborious(samples), _size(samples)
    most = settings.n_views or (USUAL_VIEWS if settings.open_form else 1)
    candidates = [settings]
    if settings.open_form:
        useful = maps is not None and any(margin is not None for margin in maps.maps)
        found = forms(settings, samples, size, useful, laborious)
        # One view has to be a density of X, and forms that are none cannot be kept beside it.
        found = [form for form in found if most > 1 or not form.shape.recoded]
        candidates = _distinct(found, trials[0], seed)
    checkpoints = CHECKPOINTS[: 2 if laborious else 3 if size < FEW_SAMPLES else None]
    tried = race(candidates, trials, most, checkpoints, seed, parallel_map, tell)
    order = _kept(tried, most)
    kept = [tried[i] for i in order]
    exponents = _exponents(kept, trials, samples.priors)
    asked = ((trial.X, trial.labels, trial.weights) for trial in trials)
    pairs = zip(kept[0].models, asked, strict=True)
    references = reference_log_densities(pairs, parallel_map)
    used = [
        (place, float(a))
        for i, (place, a) in enumerate(zip(order, exponents, strict=True))
        if a > 0.0 or i == 0  # whose density is the model's
    ]
    views = [View(tried[i].settings, tried[i].calibration, a) for i, a in used]
    place_of = {i: (view, a) for view, (i, a) in enumerate(used)}
    records = tuple(_record(one, *place_of.get(i, (None, 0.0))) for i, one in enumerate(tried))
    return Choice(tuple(views), references, records, maps)


def _worth_trying(settings: Settings, samples: Samples, before: Model | None) -> bool:
    """Whether anything is open that parts of the samples can decide."""
    if before is not None or samples.whole is not None or not _undecided(settings):
        return False
    told = samples.validation is not None or (samples.labels < 0).any()
    return not told and len(samples.classes) > 1


def _undecided(settings: Settings) -> bool:
    """Whether the settings leave something to parts of the samples."""
    if settings.warm_start or settings.given is not None:
        return False
    return settings.early_stopping is None and isinstance(settings.block_weights, str)


def tries_forms(settings: Settings, n_samples: float) -> bool:
    """Whether a fit to so many samples, all with a class, tries models of several forms."""
    enough = FEWEST_TO_TRY <= n_samples < TOO_MANY_TO_TRY
    return settings.open_form and enough and _undecided(settings)


def _size(samples: Samples) -> int:
    """How many samples there are, a repeated one as often as it stands there."""
    return int(samples.counts(samples.different_rows()[0]).sum())


def _laborious(samples: Samples) -> bool:
    """Whether passes take long: numbers are many, or missing in many ways, and each is costly."""
    if samples.n_numbers > MANY_FEATURES:
        return True
    gaps = np.isnan(samples.X[:, : samples.n_numbers])
    some = gaps[gaps.any(axis=1)]
    return len(some) > MANY_PATTERNS and len(np.unique(some, axis=0)) > MANY_PATTERNS


def _distinct(candidates: Sequence[Settings], trial: Trial, seed: int) -> list[Settings]:
    """Forms that differ on a part of the samples: few have no more kernels."""
    found: dict[Any, Settings] = {}
    for form in candidates:
        plan = make_plan(to_try(form, CHECKPOINTS), trial.samples, None, seed, trial.maps)
        mapped = tuple(reading is not None for reading in plan.readings)
        shape = form.shape.linear, form.shape.local
        key = (*map(str, plan.structures), *plan.n_components, mapped, *shape)
        if plan.blocks:
            found.setdefault(key, form)
    return list(found.values())


def _kept(tried: Sequence[Tried], most: int) -> list[int]:
    """Places of the best forms, so many at most, the plainest of them first.

    The density of the first is that of the model, so it has to be one of X. Of discrete features,
    many kernels would make one of spikes.
    """
    order = sorted(range(len(tried)), key=lambda i: tried[i].loss)
    proper = [i for i in order if not tried[i].settings.shape.recoded]
    best = order[:most]
    first = min((i for i in best if i in proper), default=proper[0])
    return [first, *(i for i in best if i != first)][:most]


def _exponents(kept: Sequence[Tried], trials: Sequence[Trial], priors: FloatArray) -> FloatArray:
    if len(kept) == 1:
        return np.ones(1)
    labels, counted = answers_of(trials)
    heard = priors[labels] > 0.0
    terms = np.stack([one.log_posterior[heard] for one in kept])
    return fit_exponents(terms, labels[heard], priors, counted[heard])


def _record(tried: Tried, view: int | None, exponent: float) -> dict[str, Any]:
    """What was tried and what came of it, as plain values; no view if it is not kept."""
    return {
        **describe_form(tried.settings),
        "n_components": [len(block.kernels.means) for block in tried.models[0].blocks],
        "discriminative_iter": int(tried.settings.discriminative_iter or 0),
        "log_loss": tried.loss,
        "exponent": exponent,
        "view": view,
    }
