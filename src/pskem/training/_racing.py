"""Forms of models race: those that answer best are taken further.

All forms are trained and asked. Discriminative passes follow in rounds, each for the forms that can
still be kept, and whose answers the last round has made better.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import NamedTuple

import numpy as np

from pskem.engine import Mapper, serial_map
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._arranging import arrange
from pskem.training._calibration import Calibration, calibrate, calibrated
from pskem.training._loop import Trainer, train, unwatched
from pskem.training._planning import make_plan
from pskem.training._refining import Refined, Refiner
from pskem.training._settings import Settings
from pskem.training._trials import Answers, Trial, answers_of

__all__ = ["Tried", "race", "to_try"]


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


class _Run(NamedTuple):
    """A training on the samples of a trial, that can be taken further."""

    refiner: Refiner
    model: Model
    state: Refined | None = None

    @classmethod
    def begin(cls, settings: Settings, trial: Trial, seed: int) -> _Run:
        plan = make_plan(settings, trial.samples, None, seed, trial.maps)
        data = arrange(plan, trial.samples, serial_map)
        classes, priors = trial.samples.classes, trial.samples.priors
        run = train(Trainer(plan, data, serial_map), classes, priors, unwatched)
        return cls(Refiner(plan, data, serial_map), run.best)

    def taken_to(self, passes: int) -> _Run:
        """After so many discriminative passes, or fewer if no more are to be made."""
        if passes == 0:
            return self
        state = self.state or self.refiner.begin(self.model, 0)
        while not state.ended and state.iteration < passes:
            state = self.refiner.advance(state)
        return self._replace(model=state.best, state=state)


class _Racer(NamedTuple):
    """A form in the race; it has no runs any more once it is out.

    left : numbers of passes after which it is still to be asked
    """

    form: Settings
    left: tuple[int, ...]
    runs: tuple[_Run, ...]
    best: Tried | None = None

    @property
    def loss(self) -> float:
        return np.inf if self.best is None else self.best.loss


def race(
    forms: Sequence[Settings],
    trials: Sequence[Trial],
    most: int,
    checkpoints: tuple[int, ...],
    seed: int,
    parallel_map: Mapper,
    tell: Callable[[int, int], None],
) -> list[Tried]:
    """What each form makes of the samples that are asked about, after its best pass.

    most : forms that can be kept; others are taken no further
    checkpoints : discriminative passes after which a form is asked, where it leaves that open
    tell : hears how many forms of how many are out of the race
    """
    answers, heard, done = answers_of(trials), Lock(), 0

    def go_on(racer: _Racer) -> _Racer:
        nonlocal done
        if not racer.runs:
            form = to_try(racer.form, checkpoints)
            racer = racer._replace(runs=tuple(_Run.begin(form, trial, seed) for trial in trials))
        racer = _asked(racer, trials, answers)
        if not racer.runs:
            with heard:
                done += 1
                tell(done, len(forms))
        return racer

    tell(0, len(forms))
    racers = [_Racer(form, _passes(form, checkpoints), ()) for form in forms]
    racers = parallel_map(go_on, racers)  # passes are too short to be cut further
    while True:
        able = _able(racers, most)
        racers = [r if i in able else r._replace(runs=()) for i, r in enumerate(racers)]
        going = [i for i, racer in enumerate(racers) if racer.runs]
        if not going:
            break
        for i, racer in zip(going, parallel_map(go_on, [racers[i] for i in going]), strict=True):
            racers[i] = racer
    tell(len(forms), len(forms))
    return [racer.best for racer in racers if racer.best is not None]


def _able(racers: Sequence[_Racer], most: int) -> set[int]:
    """Places of the forms that would be kept now: the best, and the best that is a density of X."""
    ranked = sorted(range(len(racers)), key=lambda i: racers[i].loss)
    proper = [i for i in ranked if not racers[i].form.shape.recoded]
    return {*ranked[:most], *proper[:1]}


def _asked(racer: _Racer, trials: Sequence[Trial], answers: Answers) -> _Racer:
    """The racer after its next passes and the answers that it then gives."""
    passes, *left = racer.left
    runs = tuple(run.taken_to(passes) for run in racer.runs)
    models = tuple(run.model for run in runs)
    pairs = zip(models, trials, strict=True)
    log_q = np.concatenate([model.log_likelihood(trial.X) for model, trial in pairs])
    found = calibrate(log_q, answers.labels, models[0].log_priors, answers.counted)
    judged = calibrated(models[0], found)
    log_posterior = judged.posterior_of(judged.joint(log_q))
    loss = answers.loss(log_posterior)
    if not loss < racer.loss:
        return racer._replace(runs=())
    settings = racer.form._replace(
        early_stopping=False, block_weights=None, discriminative_iter=passes
    )
    best = Tried(settings, models, found, log_posterior, loss)
    return racer._replace(left=tuple(left), runs=runs if left else (), best=best)


def to_try(settings: Settings, checkpoints: tuple[int, ...]) -> Settings:
    """The same training with nothing held out, and all passes that might be wanted."""
    return settings._replace(
        verbose=0,
        early_stopping=False,
        block_weights=None,
        discriminative_iter=max(_passes(settings, checkpoints)),
    )


def _passes(settings: Settings, checkpoints: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of discriminative passes to look at."""
    given = settings.discriminative_iter
    return checkpoints if given is None else (given,)
