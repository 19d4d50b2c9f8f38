"""How much samples without a class count: labels that are hidden for a while tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Mapper, workers
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._choosing import tries_forms
from pskem.training._drawing import with_class_alone
from pskem.training._layout import suit
from pskem.training._loop import unwatched
from pskem.training._order import Rows, representative
from pskem.training._performing import perform
from pskem.training._planning import make_plan
from pskem.training._settings import Settings
from pskem.training._splitting import ENOUGH_TO_VALIDATE, Samples, deal_parts

__all__ = ["settle_unlabelled"]

#: Parts of the labels that are hidden in turn; of so many labels one part is enough.
PARTS, PARTS_OF_MANY, MANY = 5, 10, 5000
#: Samples with and without a class by which the choice is made, at most.
ENOUGH_TO_CHOOSE = 20_000
#: What the log posterior of a hidden label counts beside whether it is found. One that is lower
#: than this counts as this: one sample must not decide.
SHARE_OF_LOG_POSTERIOR, LEAST_LOG_POSTERIOR = 0.5, -5.0
#: By so many standard errors, and by so much a label, merits easily differ.
EASILY, NO_DIFFERENCE = 0.25, 0.01


class Question(NamedTuple):
    """Samples to train on, and others whose classes are asked for.

    weights : (n,), of the latter; None if each counts as one
    """

    samples: Samples
    X: FloatArray
    labels: NDArray[np.intp]
    weights: FloatArray | None


def settle_unlabelled(
    settings: Settings, samples: Samples, seed: int, before: float | None = None
) -> tuple[Settings, Samples]:
    """Settings with what each sample without a class counts, and the samples that count.

    ``before`` is what they counted in a fit from which this one goes on, if nothing else is said.
    """
    if (samples.labels >= 0).all():
        return settings._replace(unlabelled_weight=None), samples
    weight = settings.unlabelled_weight
    if weight is None:
        weight = before
    if weight is None and _too_few(settings, samples):
        weight = 0.0
    if weight is None:
        with workers(settings.n_jobs) as parallel_map:
            weight = _choose(settings, samples, seed, parallel_map)
    settings = settings._replace(unlabelled_weight=weight)
    return settings, samples if weight else with_class_alone(settings, samples, seed)


def _too_few(settings: Settings, samples: Samples) -> bool:
    """Whether fewer samples lack a class than have one, of which models of several forms can learn.

    Those are worth more than what so few would teach one model.
    """
    known, unknown = samples.different_rows()
    size = float(samples.class_sizes(known).sum())
    with_class, without = samples.totals(known, unknown)
    return without < with_class and tries_forms(settings, size)


def _choose(settings: Settings, samples: Samples, seed: int, parallel_map: Mapper) -> float:
    """One, so little that all of them count as much as those with a class, or nothing.

    More samples make a better density, but not always a better classifier: clusters need not be
    classes. So some labels are hidden, or validation samples taken, and the weight is the one with
    which their classes are found best. Settled on 20 public tables with 3 to 100 labels a class and
    on training images of MNIST and Fashion-MNIST.
    """
    everyone = samples.different_rows()
    rows, unlabelled = (
        part.at(representative(np.arange(part.size), ENOUGH_TO_CHOOSE)) for part in everyone
    )
    # What is tried is what the fit would be, though it sees fewer labels.
    counts, weighing = samples.class_sizes(everyone[0]), settings.block_weights
    quiet = settings._replace(
        verbose=0,
        early_stopping=None if settings.early_stopping else settings.early_stopping,
        block_weights="auto" if isinstance(weighing, str) else weighing,
        enough_to_validate=bool(counts.sum() >= ENOUGH_TO_VALIDATE),
    )
    suited = suit(quiet, counts, samples.n_numbers, True)
    # As much as all labels together is another weight among the rows of the trials.
    totals = samples.totals(*everyone)
    even, tried_even = totals[0] / totals[1], rows.total / unlabelled.total
    weights = {1.0: 1.0, even: tried_even, 0.0: 0.0} if even < 1.0 else {1.0: 1.0, 0.0: 0.0}
    sizes = {weight: _sizes(suited, samples, weight, seed) for weight in weights if weight}
    merits: dict[float, list[FloatArray]] = {weight: [] for weight in weights}
    counted: list[FloatArray] = []
    for question in _questions(samples, rows, unlabelled, seed):
        for weight, found in merits.items():
            tried, known = quiet, question.samples.labelled()
            if weight:
                most = max(len(samples.classes), int((question.samples.labels >= 0).sum()))
                K = [min(size, most) for size in sizes[weight]]
                tried = suited._replace(unlabelled_weight=weights[weight], n_components=K)
                known = question.samples
            found.append(
                _merits(_trained(tried, known, seed, parallel_map), question, parallel_map)
            )
        times = question.weights
        counted.append(np.ones(len(question.labels)) if times is None else times)
    found_by = [np.concatenate(found) for found in merits.values()]
    return list(weights)[_best(found_by, np.concatenate(counted))]


def _sizes(settings: Settings, samples: Samples, weight: float, seed: int) -> Sequence[int]:
    """Kernels of each block in a fit to all samples, where those without a class count so much."""
    plan = make_plan(settings._replace(unlabelled_weight=weight), samples, None, seed)
    return plan.n_components


def _best(merits: list[FloatArray], counted: FloatArray) -> int:
    """Which of several weights it is, by the merits of the labels under each, (n,).

    A later one, with which samples count less, must be better by more than chance easily makes it.
    """
    best = 0
    for i in range(1, len(merits)):
        gain = merits[i] - merits[best]
        by_chance = EASILY * np.sqrt(counted @ gain**2) + NO_DIFFERENCE * counted.sum()
        best = i if counted @ gain > by_chance else best
    return best


def _questions(samples: Samples, rows: Rows, unlabelled: Rows, seed: int) -> Iterator[Question]:
    """Parts of the labels, hidden in turn; every class keeps some. Or the validation samples."""
    if samples.validation is not None:
        yield Question(_taken(samples, rows.followed_by(unlabelled)), *samples.validation)
        return
    labels = samples.labels[rows.places]
    many = samples.counts(rows).sum() >= MANY
    n_parts = PARTS_OF_MANY if many else PARTS
    rng = np.random.default_rng([seed, 3])
    part_of = deal_parts(labels, len(samples.classes), n_parts, rng)
    for part in range(1 if many else n_parts):
        hidden = np.flatnonzero(part_of == part)
        if len(hidden):
            asked, kept = rows.at(hidden), rows.at(np.flatnonzero(part_of != part))
            rest = unlabelled.followed_by(asked)
            trained = _taken(samples, kept.followed_by(rest), kept.size)
            yield Question(trained, samples.X[asked.places], labels[hidden], asked.weights)


def _taken(samples: Samples, rows: Rows, n_labelled: int | None = None) -> Samples:
    """Some of the samples, of which the first so many keep their label."""
    labels = samples.labels[rows.places]
    if n_labelled is not None:
        labels[n_labelled:] = -1
    return samples._replace(
        X=samples.X[rows.places],
        labels=labels,
        weights=rows.weights,
        validation=None,
        whole=None,
        memory=None,
    )


def _trained(settings: Settings, samples: Samples, seed: int, parallel_map: Mapper) -> Model:
    plan = make_plan(settings, samples, None, seed)
    _, trained = perform(plan, samples, parallel_map, unwatched)
    return trained.refined.best


def _merits(model: Model, question: Question, parallel_map: Mapper) -> FloatArray:
    """Whether each of the classes that are asked for is found, and how probable it is, (n,)."""
    log_posterior = model.log_posterior(question.X, parallel_map)
    own = log_posterior[np.arange(len(question.labels)), question.labels]
    right = log_posterior.argmax(axis=1) == question.labels
    merits: FloatArray = right + SHARE_OF_LOG_POSTERIOR * np.maximum(own, LEAST_LOG_POSTERIOR)
    return merits
