"""A stream of samples, part by part: stepwise EM, with what tells the classes apart.

Every part is first asked about, which calibrates the probabilities and tells how much to remember,
and then learnt from, in one pass (``_stepwise`` in the engine). The model and the stream that
follow depend on those before and on the part alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import (
    FIRST_STEP,
    ArraySource,
    Contrast,
    DecisionRule,
    Kernels,
    Mapper,
    OwnClass,
    Posterior,
    Running,
    Source,
    Statistics,
    prepare_all,
    stepwise_pass,
    summarise,
)
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training._answering import Asked, advantage, ask
from pskem.training._arranging import LARGEST_SCALE
from pskem.training._growing import grown, welcomed
from pskem.training._order import Rows, together
from pskem.training._settings import Settings
from pskem.training._splitting import Samples
from pskem.training._stream import Stream, in_units, name_of, regularisers_of, with_class_priors

__all__ = ["advance"]

#: Standard errors by which a part must find the contrast of the last one worse to halve it, and how
#: often it can be halved.
MOST_ERRORS, MOST_CAUTION = 2.0, 6.0


class _Part(NamedTuple):
    """A part of the stream: rows sorted by class, in batches, and rows without a class."""

    X: FloatArray
    labels: NDArray[np.intp]
    counted: FloatArray
    source: Source
    unlabelled: Source | None

    @property
    def total(self) -> float:
        """What all rows count."""
        sources = [self.source] if self.unlabelled is None else [self.source, self.unlabelled]
        return sum(float(source.masses.sum()) for source in sources)


def advance(
    model: Model,
    stream: Stream,
    samples: Samples,
    settings: Settings,
    seed: int,
    parallel_map: Mapper,
) -> tuple[Model, Stream]:
    """The model and the stream after one more part."""
    _check_sizes(samples.X)
    part = _arrange(model, samples, settings, stream.unit, parallel_map)
    stream = stream.watched(samples)
    asked = ask(model, part.X, part.labels, part.counted, parallel_map)
    caution = _caution(model, stream, asked, parallel_map)
    window = stream.window.followed_by(asked, stream.seen)
    model, window = window.calibrated(model, settings)
    rule = DecisionRule(
        model.log_priors / model.temperature, model.block_weights / model.temperature
    )
    kept = _kept(model, stream, settings)
    total = kept * float(stream.totals.sum())
    lambdas = np.zeros(len(model.blocks))
    decides = settings.discriminative_iter != 0 and np.count_nonzero(model.priors) > 1
    if decides and window.tells(settings):
        most = total / (FIRST_STEP * part.total)  # of which D is, as in discriminative passes
        weight = settings.stepwise.contrast * 0.5**caution
        lambdas = np.minimum(weight * np.sqrt(rule.block_weights), most)
    model, stream = welcomed(model, stream, part.X, part.labels, part.counted, settings, seed)
    model, plain, statistics = _learnt(
        model, stream, part, rule, kept, lambdas, settings, parallel_map
    )
    stream = stream._replace(
        statistics=statistics,
        kept=kept * stream.kept,
        seen=stream.seen + part.total,
        n_parts=stream.n_parts + 1,
        window=window,
        caution=caution,
    )
    after, stream = grown(model, stream, settings)
    stays = lambdas.any() and all(a is b for a, b in zip(model.kernels, after.kernels, strict=True))
    stream = stream._replace(plain=plain if stays else None)
    if not stream.first:
        stream = stream._replace(first=(name_of(after, stream.totals, stream.unit),))
    given = None if samples.learn_priors else samples.priors
    return with_class_priors(after, stream.totals, given), stream.sealed()


def _caution(model: Model, stream: Stream, asked: Asked, parallel_map: Mapper) -> float:
    """How often to halve the contrast, after what a part says of that of the part before.

    What a contrast has changed for the better is found so by samples that nobody has seen. If they
    find it worse, on data that EM is right for, it is halved.
    """
    if stream.plain is None:
        return stream.caution
    better = advantage(model, model.with_kernels(stream.plain), asked, parallel_map)
    step = float(np.clip(better, -MOST_ERRORS, MOST_ERRORS)) / MOST_ERRORS
    return float(np.clip(stream.caution - step, 0.0, MOST_CAUTION))


def _kept(model: Model, stream: Stream, settings: Settings) -> float:
    """How much of what came before still counts."""
    # Means and variances: shrinkage holds what else kernels have.
    n_parameters = 2 * sum(block.kernels.means.size for block in model.first_view.blocks)
    memory = stream.watch.memory(n_parameters)
    return settings.stepwise.kept(float(stream.totals.sum()), stream.seen, memory)


def _arrange(
    model: Model, samples: Samples, settings: Settings, unit: float, parallel_map: Mapper
) -> _Part:
    """A part in batches, in the coordinates of the model."""
    L = len(model.classes)

    def source(rows: Rows, bounds: NDArray[np.intp]) -> Source:
        parts = [block.local(samples.X[rows.places]) for block in model.blocks]
        return ArraySource(parts, bounds, parallel_map, rows.weights)

    known, unknown = (
        together(in_units(rows, samples, unit), samples.X, samples.labels)
        for rows in samples.different_rows()
    )
    labels = samples.labels[known.places]
    own = source(known, np.searchsorted(labels, np.arange(L + 1)).astype(np.intp))
    others = None
    if unknown.size and settings.unlabelled_weight != 0.0:
        edges = np.minimum(np.arange(L + 1), 1) * unknown.size  # all of them in the first class
        others = source(unknown.times(settings.unlabelled_weight), edges)
    return _Part(samples.X[known.places], labels, known.counted, own, others)


def _check_sizes(X: FloatArray) -> None:
    """Refuse values whose squares leave the range of floating point."""
    largest = np.fmax.reduce(np.abs(X), axis=0, initial=0.0).astype(np.float64)
    if (largest > LARGEST_SCALE).any():
        feature = int(np.argmax(largest))
        raise ValueError(
            f"X has values whose squares leave the range of floating point: {largest[feature]:.3g}"
            f" in feature {feature}. Up to {LARGEST_SCALE:g} is accepted; rescale the features."
        )


def _learnt(
    model: Model,
    stream: Stream,
    part: _Part,
    rule: DecisionRule,
    kept: float,
    lambdas: FloatArray,
    settings: Settings,
    parallel_map: Mapper,
) -> tuple[Model, tuple[Kernels, ...], tuple[Running | None, ...]]:
    """The model after a pass over a part, its kernels without the contrast, and its statistics."""
    structures = [block.structure for block in model.blocks]
    prepared = prepare_all(structures, model.kernels, part.source, parallel_map)
    own = summarise(part.source, prepared, OwnClass(), parallel_map).blocks
    if part.unlabelled is not None:
        own = _with_unlabelled(model, own, part.unlabelled, rule, parallel_map)
    contrast: Sequence[Statistics | None] = [None] * len(own)
    if lambdas.any():
        contrast = summarise(part.source, prepared, Contrast(rule), parallel_map).blocks
    held = regularisers_of(model, settings, part.unlabelled is not None)
    live = [r for r, one in enumerate(stream.statistics) if one is not None]
    found = parallel_map(
        stepwise_pass,
        [prepared[r] for r in live],
        [one.fading(kept) for one in stream.statistics if one is not None],
        [own[r] for r in live],
        [held[r] for r in live],
        [contrast[r] for r in live],
        [float(lambdas[r]) for r in live],
    )
    kernels, plain, statistics = list(model.kernels), list(model.kernels), list(stream.statistics)
    for r, (running, updated, without) in zip(live, found, strict=True):
        kernels[r], plain[r], statistics[r] = updated, without, running
    return model.with_kernels(kernels), tuple(plain), tuple(statistics)


def _with_unlabelled(
    model: Model,
    own: Sequence[Statistics],
    source: Source,
    rule: DecisionRule,
    parallel_map: Mapper,
) -> tuple[Statistics, ...]:
    """Statistics with those of samples without a class, which count by their posteriors."""
    structures = [block.structure for block in model.blocks]
    ready = prepare_all(structures, model.kernels, source, parallel_map)
    if model.views is None:  # as in EM; blocks of several views would count features twice
        rule = DecisionRule(model.log_priors, np.ones(len(model.blocks)))
    found = summarise(source, ready, Posterior(rule), parallel_map)
    return tuple(a.merge(b) for a, b in zip(own, found.blocks, strict=True))
