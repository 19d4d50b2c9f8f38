"""Which samples validate, and what that allows after EM."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import repeats
from pskem.structures import FloatArray
from pskem.training._order import Rows, distinct
from pskem.training._settings import Settings
from pskem.training._surveying import Whole

__all__ = [
    "Refinement",
    "Samples",
    "cross",
    "deal_parts",
    "hold_out",
    "part_rows",
    "split",
    "split_rows",
]

#: Samples from which on some are held out to choose discriminative passes and to fit weights: a
#: tenth of fewer chooses by chance.
ENOUGH_TO_VALIDATE = 1000
#: Discriminative passes, when validation chooses among them and when it does not.
VALIDATED_PASSES = 20
UNWATCHED_PASSES = 5


class Samples(NamedTuple):
    """Validated input: X (N, M), labels (N,) as places in classes (L,), priors (L,).

    labels : -1 where nobody knows the class
    learn_priors : whether samples without a class change the priors
    validation : X, labels and weights of samples to validate on
    weights : (N,), all positive; None if all samples count alike
    class_weights : (L,), by which the weights have been multiplied
    levels : how many values each categorical column has; their indicators are the last features
    numeric : where the other features stand among the columns of the user; None for where they are
    whole : all samples, where these are only drawn from them; None if these are all
    memory : all samples as well, if they are in memory
    """

    X: FloatArray
    labels: NDArray[np.intp]
    classes: NDArray[Any]
    priors: FloatArray
    validation: tuple[FloatArray, NDArray[np.intp], FloatArray | None] | None = None
    feature_names: Sequence[str] | None = None
    weights: FloatArray | None = None
    learn_priors: bool = False
    class_weights: FloatArray | None = None
    levels: tuple[int, ...] = ()
    numeric: NDArray[np.intp] | None = None
    whole: Whole | None = None
    memory: Samples | None = None

    def counts(self, rows: Rows) -> NDArray[np.intp]:
        """Samples of each class among some rows, (L,), whatever the weights of the classes."""
        L = len(self.classes)
        labels = self.labels[rows.places]
        masses: FloatArray = np.bincount(labels, rows.counted, minlength=L).astype(np.float64)
        if self.class_weights is not None:
            masses = masses / self.class_weights
        return _at_least_one(masses)

    def class_sizes(self, rows: Rows) -> NDArray[np.intp]:
        """The same of all samples, (L,), of which these rows are at hand."""
        return self.counts(rows) if self.whole is None else _at_least_one(self.whole.masses)

    def totals(self, known: Rows, unknown: Rows) -> tuple[float, float]:
        """What all samples with a class count, and those without; these rows are at hand."""
        if self.whole is None:
            return known.total, unknown.total
        return float(self.whole.masses.sum()), self.whole.unlabelled

    def different_rows(self) -> tuple[Rows, Rows]:
        """The different rows with a class, and those without."""
        everyone = distinct(self.X, self.labels, self.weights)
        known = self.labels[everyone.places] >= 0
        return everyone.at(np.flatnonzero(known)), everyone.at(np.flatnonzero(~known))

    def labelled(self) -> Samples:
        """Those whose class is known."""
        known = self.labels >= 0
        weights = None if self.weights is None else self.weights[known]
        return self._replace(X=self.X[known], labels=self.labels[known], weights=weights)

    def validating(
        self, held_out: Rows
    ) -> tuple[FloatArray, NDArray[np.intp], FloatArray | None] | None:
        """Samples to validate on: rows that were held out, or those that were given for it."""
        if not held_out.size:
            return self.validation
        return self.X[held_out.places], self.labels[held_out.places], held_out.weights

    @property
    def n_numbers(self) -> int:
        """Features that are no indicators."""
        return self.X.shape[1] - sum(self.levels)


def _at_least_one(masses: FloatArray) -> NDArray[np.intp]:
    return np.maximum(1, np.round(masses)).astype(np.intp)


class Refinement(NamedTuple):
    """What happens after EM.

    fit_weights : whether to fit the block weights to the validation data
    passes : discriminative passes, at most
    choose : whether validation chooses among the passes
    pull : samples besides that each kernel has in these passes, which hold it where all classes
        together are
    growing : whether steps of the passes grow; among small ones there is more to choose from
    repeat : whether all samples are trained on once the choice is made
    """

    fit_weights: bool = False
    passes: int = 0
    choose: bool = False
    pull: float = 0.0
    growing: bool = True
    repeat: bool = False


def hold_out(
    settings: Settings, samples: Samples, seed: int, rows: Rows, unlabelled: bool
) -> tuple[Refinement, Rows, Rows]:
    """What to do after EM, rows to train on, and rows to validate on."""
    N, L = float(samples.class_sizes(rows).sum()), len(samples.classes)
    nobody = rows.at(np.zeros(0, dtype=np.intp))
    validated = samples.validation is not None
    asked, weights = settings.early_stopping, settings.block_weights
    enough = settings.enough_to_validate
    enough = N >= ENOUGH_TO_VALIDATE if enough is None else enough
    choose = (validated or enough) if asked is None else asked
    passes = settings.discriminative_iter
    # Few labels would soon be learnt by heart, and with them what many samples had taught.
    unwatched = 0 if unlabelled else UNWATCHED_PASSES
    if passes is None:
        passes = VALIDATED_PASSES if choose else unwatched
    choose = choose and passes > 0
    fit = isinstance(weights, str) and (weights == "fit" or choose)
    refinement = Refinement(fit, passes, choose, settings.shape.pull, growing=not choose)
    if validated or not (asked or choose or fit):
        return refinement, rows, nobody
    fraction = settings.validation_fraction
    labels = samples.labels[rows.places]
    if samples.whole is None:
        kept, held_out = split_rows(rows, labels, fraction, L, seed, samples.class_weights)
    else:
        kept, held_out = part_rows(rows, samples.whole.split.share(samples.X[rows.places], labels))
    if held_out.size:
        # Whoever asks for it, or goes on from fit to fit, gets the training that was watched.
        repeat = asked is None and not settings.warm_start
        return refinement._replace(repeat=repeat), kept, held_out
    if asked or (isinstance(weights, str) and weights == "fit"):
        raise ValueError(
            f"validation_fraction={fraction} of {N:.0f} samples leaves none to validate on (every"
            " class keeps one to train on). Use a larger fraction or more samples, give X_val and"
            " y_val, or set early_stopping=False and block_weights=None."
        )
    if settings.discriminative_iter is None:  # nobody watches
        passes = unwatched
    unchosen = refinement._replace(fit_weights=False, passes=passes, choose=False, growing=True)
    return unchosen, rows, nobody


def part_rows(rows: Rows, share: FloatArray) -> tuple[Rows, Rows]:
    """Rows to train on and rows to hold out, by the share of each that is held out, (n,)."""
    sides = []
    for part in (1.0 - share, share):
        some = np.flatnonzero(part)
        whole = rows.weights is None and bool((part[some] == 1.0).all())
        sides.append(Rows(rows.places[some], None if whole else (rows.counted * part)[some]))
    return sides[0], sides[1]


def split_rows(
    rows: Rows,
    labels: NDArray[np.intp],
    fraction: float,
    n_classes: int,
    seed: int,
    class_weights: FloatArray | None = None,
) -> tuple[Rows, Rows]:
    """Rows to train on and rows to hold out, both sorted by class.

    A row that stands there several times may be held out some of these times. A row that stands
    there once is never on both sides, whatever it or its class counts.
    """
    if rows.weights is None:
        kept, held_out = split(labels, fraction, n_classes, seed)
        return rows.at(kept), rows.at(held_out)
    times = _times(rows, labels, class_weights)
    totals = np.bincount(labels, times, minlength=n_classes).astype(np.intp)
    rng = np.random.default_rng([seed, 1])
    taken = np.zeros(rows.size, dtype=np.int64)
    for j, size in enumerate(_allot(totals, fraction, rng)):
        own = np.flatnonzero(labels == j)
        if len(own):
            taken[own] = rng.multivariate_hypergeometric(times[own], size, method="marginals")
    order = np.argsort(labels, kind="stable")
    rows, times, taken = rows.at(order), times[order], taken[order]
    return _some_times(rows, times - taken, times), _some_times(rows, taken, times)


def split(
    labels: NDArray[np.intp], fraction: float, n_classes: int, seed: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Places to train on and places to hold out, both sorted by class.

    The fraction that is held out is shared out over the classes by their sizes; small classes may
    give none. Every class keeps at least one sample for training.
    """
    order = np.argsort(labels, kind="stable")
    rng = np.random.default_rng([seed, 1])
    bounds = np.searchsorted(labels[order], np.arange(n_classes + 1))
    held_out = np.zeros(len(order), dtype=bool)
    counts = np.diff(bounds)
    for low, n, size in zip(bounds[:-1], counts, _allot(counts, fraction, rng), strict=True):
        held_out[low + rng.permutation(n)[:size]] = True
    return order[~held_out], order[held_out]


def deal_parts(
    labels: NDArray[np.intp], n_classes: int, n_parts: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """Which of several parts each sample belongs to, (n,); every class is dealt out evenly.

    The only sample of a class belongs to none, -1.
    """
    part_of = np.full(len(labels), -1)
    for j in range(n_classes):
        own = rng.permutation(np.flatnonzero(labels == j))
        if len(own) > 1:
            part_of[own] = (np.arange(len(own)) + rng.integers(n_parts)) % n_parts
    return part_of


def cross(
    rows: Rows,
    labels: NDArray[np.intp],
    n_classes: int,
    n_parts: int,
    rng: np.random.Generator,
    class_weights: FloatArray | None = None,
) -> Iterator[tuple[Rows, Rows]]:
    """The rows without each of several parts in turn, and the part; every class keeps some.

    A row that stands there several times is dealt out as often: asked about rows that are there in
    the training as well, a model is judged as it will be. A row that stands there once is never on
    both sides, whatever it or its class counts.
    """
    times = _times(rows, labels, class_weights)
    copies = np.repeat(np.arange(rows.size), times)
    part_of = deal_parts(labels[copies], n_classes, n_parts, rng)
    for part in range(n_parts):
        taken = np.bincount(copies[part_of == part], minlength=rows.size)
        yield _some_times(rows, times - taken, times), _some_times(rows, taken, times)


def _times(
    rows: Rows, labels: NDArray[np.intp], class_weights: FloatArray | None
) -> NDArray[np.intp]:
    """How often each row stands there, whatever its class counts."""
    weights = rows.counted
    return repeats(weights if class_weights is None else weights / class_weights[labels])


def _some_times(rows: Rows, number: NDArray[np.intp], times: NDArray[np.intp]) -> Rows:
    """Rows that count so many of their times."""
    some = np.flatnonzero(number)
    if rows.weights is None:
        return rows.at(some)
    return Rows(rows.places[some], (rows.weights * number / times)[some])


def _allot(counts: NDArray[np.intp], fraction: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """How many samples of each class to hold out, by largest remainders; lots decide ties.

    With many small classes, of which a fraction rounds to nothing each, the whole fraction is
    still held out.
    """
    quotas = np.minimum(fraction * counts, counts - 1)
    sizes = np.floor(quotas).astype(np.intp)
    left = round(float(quotas.sum())) - int(sizes.sum())
    lots = rng.permutation(len(counts))
    sizes[np.lexsort((lots, sizes - quotas))[:left]] += 1
    return sizes
