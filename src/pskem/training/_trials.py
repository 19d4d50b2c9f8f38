"""Which models to train: several are tried on samples that they do not see, and multiplied.

Every form of model is trained on a part of the samples and asked about the rest, in turn, so that
every sample is asked about once (cross-fitting). The answers choose the number of discriminative
passes, calibrate probabilities, and say how much each form counts in the product

    p(c|x) ~ prod_v p_v(c|x)^a_v,

whose log likelihoods add up over all blocks of all views, as those of blocks do in one model. Then
all views are trained on all samples: nothing is wasted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Mapper, serial_map
from pskem.margins import Margins
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._calibration import Calibration, calibrate, calibrated
from pskem.training._exponents import fit_exponents
from pskem.training._forms import describe_form, forms
from pskem.training._holdout import reference_log_densities
from pskem.training._layout import fit_maps
from pskem.training._loop import Trainer, train, unwatched
from pskem.training._planning import Plan, arrange, make_plan
from pskem.training._refining import Refined, Refiner
from pskem.training._settings import Settings
from pskem.training._splitting import Samples, cross

__all__ = ["Choice", "View", "choose", "tries_forms"]

#: Parts of the samples that are asked about in turn; from MANY samples on one of PARTS_OF_MANY is.
PARTS, PARTS_OF_MANY, MANY = 3, 5, 3000
#: Samples from which on a model is trained once, and a part of them held out.
TOO_MANY_TO_TRY = 20_000
#: Samples below which there is nothing to be learnt from parts of them.
FEWEST_TO_TRY = 20
#: Discriminative passes after which the answers are looked at; and where a pass is laborious, since
#: samples lack features in more ways than so many, or have more features.
CHECKPOINTS, FEW_CHECKPOINTS = (0, 3, 10, 30), (0, 3)
MANY_PATTERNS, MANY_FEATURES = 8, 200
#: Views that are multiplied, at most, where nothing else is said.
USUAL_VIEWS = 6


class Trial(NamedTuple):
    """Samples to train on, and others that are asked about.

    weights : (n,), of the latter; None if each counts as one
    maps : of the features, from those that are trained on, if any form asks for them
    """

    samples: Samples
    X: FloatArray
    labels: NDArray[np.intp]
    weights: FloatArray | None
    maps: Margins | None


class Tried(NamedTuple):
    """A form of model, and what it made of samples that it was not trained on.

    settings : with the number of discriminative passes that was best
    models : of the trials, after these passes
    log_posterior : (n, L), calibrated, of all samples that were asked about
    loss : its mean for the true classes, negative. The few parameters of the calibration were
        fitted to the same samples.
    """

    settings: Settings
    models: tuple[Model, ...]
    calibration: Calibration
    log_posterior: FloatArray
    loss: float


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
    """

    views: tuple[View, ...]
    references: FloatArray | None = None
    records: tuple[dict[str, Any], ...] = ()

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
    trials = []
    if _worth_trying(settings, samples, before):
        trials = list(_trials(samples, seed, settings.margins is not False))
    if not trials:
        return Choice((View(settings),))
    settings = settings._replace(laborious=_laborious(samples))
    candidates = _distinct_forms(settings, samples, seed)
    heard, done = Lock(), 0

    def attempt(form: Settings) -> Tried:
        nonlocal done
        result = _try(form, trials, seed, serial_map)
        with heard:
            done += 1
            tell(done, len(candidates))
        return result

    tell(0, len(candidates))
    tried: list[Tried] = parallel_map(attempt, candidates)  # passes are too short to be cut further
    most = settings.n_views or (USUAL_VIEWS if settings.open_form else 1)
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
    return Choice(tuple(views), references, records)


def _kept(tried: Sequence[Tried], most: int) -> list[int]:
    """Places of the best forms, so many at most, the plainest of them first.

    Its density is that of the model: of discrete features many kernels would make one of spikes.
    Categories as numbers are no density, so one form at least is of another kind.
    """
    order = sorted(range(len(tried)), key=lambda i: tried[i].loss)
    proper = [i for i in order if not tried[i].settings.recoded]
    best = order[:most]
    first = min((i for i in best if i in proper), default=proper[0])
    return [first, *(i for i in best if i != first)][:most]


def _worth_trying(settings: Settings, samples: Samples, before: Model | None) -> bool:
    """Whether anything is open that parts of the samples can decide."""
    if before is not None or not _undecided(settings):
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


def _trials(samples: Samples, seed: int, mapped: bool) -> Iterator[Trial]:
    """Parts of the samples, to be asked about in turn; every class keeps some to be trained on.

    None if the samples are too few, or too many.
    """
    rows, _ = samples.different_rows()
    labels, total = samples.labels[rows.places], samples.counts(rows).sum()
    if not FEWEST_TO_TRY <= total < TOO_MANY_TO_TRY:
        return
    many = total >= MANY
    rng = np.random.default_rng([seed, 4])
    n_parts = PARTS_OF_MANY if many else PARTS
    dealt = cross(rows, labels, len(samples.classes), n_parts, rng, samples.class_weights)
    for kept, asked in islice(dealt, 1 if many else None):
        if asked.size:
            trained = samples._replace(
                X=samples.X[kept.places], labels=samples.labels[kept.places], weights=kept.weights
            )
            X, y = samples.X[asked.places], samples.labels[asked.places]
            yield Trial(trained, X, y, asked.weights, fit_maps(trained) if mapped else None)


def _distinct_forms(settings: Settings, samples: Samples, seed: int) -> list[Settings]:
    """Forms that differ on these samples: few have no more kernels, or no use for maps."""
    if not settings.open_form:
        return [settings]
    found: dict[Any, Settings] = {}
    if settings.margins is not False:
        settings = settings._replace(maps=fit_maps(samples))
    for form in forms(settings, samples):
        plan = make_plan(_to_try(form), samples, None, seed)
        mapped = tuple(reading is not None for reading in plan.readings)
        key = (*map(str, plan.structures), *plan.n_components, mapped, form.linear, form.local)
        if plan.blocks:
            found.setdefault(key, form)
    return list(found.values())


def _to_try(settings: Settings) -> Settings:
    """The same training with nothing held out, and all passes that might be wanted."""
    return settings._replace(
        verbose=0,
        early_stopping=False,
        block_weights=None,
        discriminative_iter=max(_checkpoints(settings)),
    )


def _checkpoints(settings: Settings) -> tuple[int, ...]:
    """Numbers of discriminative passes to look at."""
    if settings.discriminative_iter is not None:
        return (settings.discriminative_iter,)
    return FEW_CHECKPOINTS if settings.laborious else CHECKPOINTS


def _laborious(samples: Samples) -> bool:
    """Whether passes take long: features are many, or missing in many ways, and each is costly."""
    if samples.X.shape[1] > MANY_FEATURES:
        return True
    gaps = np.isnan(samples.X[:, : samples.n_numbers])
    some = gaps[gaps.any(axis=1)]
    return len(some) > MANY_PATTERNS and len(np.unique(some, axis=0)) > MANY_PATTERNS


def _try(form: Settings, trials: Sequence[Trial], seed: int, parallel_map: Mapper) -> Tried:
    """What a form of model makes of the samples that are asked about, after its best pass.

    Passes go on as long as the answers become better.
    """
    runs = [_Run.begin(_to_try(form), trial, seed, parallel_map) for trial in trials]
    labels, counted = _answers(trials)
    best: Tried | None = None
    for checkpoint in _checkpoints(form):
        models = tuple(run.after(checkpoint) for run in runs)
        pairs = zip(models, trials, strict=True)
        log_q = np.concatenate(
            [model.log_likelihood(trial.X, parallel_map) for model, trial in pairs]
        )
        log_priors = models[0].log_priors
        found = calibrate(log_q, labels, log_priors, counted)
        judged = calibrated(models[0], found)
        log_posterior = judged.posterior_of(judged.joint(log_q))
        loss = _loss(log_posterior, labels, counted)
        if best is not None and loss >= best.loss:
            break
        settings = form._replace(
            early_stopping=False,
            block_weights=None,
            discriminative_iter=checkpoint,
            tried=form.open_form,
        )
        best = Tried(settings, models, found, log_posterior, loss)
    assert best is not None
    return best


class _Run:
    """A training on the samples of a trial, that can be taken further."""

    def __init__(self, refiner: Refiner, model: Model) -> None:
        self._refiner, self._model = refiner, model
        self._state: Refined | None = None

    @classmethod
    def begin(cls, settings: Settings, trial: Trial, seed: int, parallel_map: Mapper) -> _Run:
        plan: Plan = make_plan(settings._replace(maps=trial.maps), trial.samples, None, seed)
        data = arrange(plan, trial.samples, parallel_map)
        classes, priors = trial.samples.classes, trial.samples.priors
        run = train(Trainer(plan, data, parallel_map), classes, priors, unwatched)
        return cls(Refiner(plan, data, parallel_map), run.best)

    def after(self, passes: int) -> Model:
        """The model after so many discriminative passes, or fewer if no more are to be made."""
        if passes == 0:
            return self._model
        state = self._state or self._refiner.begin(self._model, 0)
        while not state.ended and state.iteration < passes:
            state = self._refiner.advance(state)
        self._state = state
        return state.best


def _answers(trials: Sequence[Trial]) -> tuple[NDArray[np.intp], FloatArray]:
    """Labels of all samples that are asked about, and what each counts."""
    labels = np.concatenate([trial.labels for trial in trials])
    counted = [
        np.ones(len(trial.labels)) if trial.weights is None else trial.weights for trial in trials
    ]
    return labels, np.concatenate(counted)


def _loss(log_posterior: FloatArray, labels: NDArray[np.intp], counted: FloatArray) -> float:
    """Mean negative log posterior of the true classes; those without prior have no say."""
    own = log_posterior[np.arange(len(labels)), labels]
    heard = np.isfinite(own)
    return -float(counted[heard] @ own[heard] / max(counted[heard].sum(), 1.0))


def _exponents(kept: Sequence[Tried], trials: Sequence[Trial], priors: FloatArray) -> FloatArray:
    if len(kept) == 1:
        return np.ones(1)
    labels, counted = _answers(trials)
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
