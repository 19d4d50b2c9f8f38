"""Samples that stand for many, with what is known of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.engine import ArrayPieces, Mapped, Mapper, Piece, Pieces, workers
from pskem.structures import FloatArray
from pskem.training._layout import MOST_PER_CLASS
from pskem.training._order import whole_again
from pskem.training._settings import Settings
from pskem.training._splitting import Samples
from pskem.training._surveying import MANY, Whole, draw, gather, split_by_lot, survey

__all__ = ["represent", "stand_in", "with_class_alone"]


def stand_in(settings: Settings, samples: Samples, seed: int) -> Samples:
    """Samples in memory as they are or, if they are many, others that stand for them."""
    size, scaled = _size(samples)
    if size < MANY:
        return samples
    pieces = Mapped(ArrayPieces((samples.X, samples.labels, scaled)), _as_piece)
    with workers(settings.n_jobs) as parallel_map:
        drawn = represent(settings, samples, pieces, seed, parallel_map)
    return drawn._replace(memory=samples) if drawn.whole is not None else samples


def represent(
    settings: Settings, known: Samples, pieces: Pieces, seed: int, parallel_map: Mapper
) -> Samples:
    """Samples that stand for those of the pieces; all of them if they are few.

    known : classes, priors, and all else that is not of single samples
    """
    found = survey(pieces, len(known.classes), _most_kernels(settings, known), seed, parallel_map)
    by_class = 1.0 if known.class_weights is None else known.class_weights
    masses, unlabelled = found.masses[:-1] / by_class, float(found.masses[-1])
    if masses.sum() + unlabelled < MANY:
        piece = gather(pieces, parallel_map)
        return known._replace(X=piece.X, labels=piece.labels, weights=piece.weights)
    split = split_by_lot(pieces, found, settings.validation_fraction, parallel_map)
    unused = known.validation is not None or not _may_hold_out(settings)
    piece = draw(pieces, found, None if unused else split, parallel_map)
    whole = Whole(pieces, masses, unlabelled, found.n_rows, split)
    return known._replace(X=piece.X, labels=piece.labels, weights=piece.weights, whole=whole)


def with_class_alone(settings: Settings, samples: Samples, seed: int) -> Samples:
    """Without the samples that have no class."""
    if samples.whole is None:
        return samples.labelled()
    if samples.memory is not None:
        return stand_in(settings, samples.memory.labelled(), seed)
    pieces = Mapped(samples.whole.pieces, _known)
    with workers(settings.n_jobs) as parallel_map:
        return represent(settings, samples._replace(whole=None), pieces, seed, parallel_map)


def _as_piece(arrays: tuple[Any, ...]) -> Piece:
    return Piece(*arrays)


def _known(piece: Piece) -> Piece:
    return piece.at(np.flatnonzero(piece.labels >= 0))


def _size(samples: Samples) -> tuple[float, FloatArray | None]:
    """What samples in memory count, whatever the weights of classes; and weights of one or more.

    The latter on average, as elsewhere.
    """
    if samples.weights is None:
        return float(len(samples.X)), None
    scaled = whole_again(samples.weights / min(1.0, float(samples.weights.mean())))
    if samples.class_weights is None:
        return float(scaled.sum()), scaled
    return float((scaled / np.append(samples.class_weights, 1.0)[samples.labels]).sum()), scaled


def _most_kernels(settings: Settings, samples: Samples) -> int:
    """Kernels of a block at most."""
    given = settings.n_components
    if isinstance(given, str):
        return MOST_PER_CLASS * len(samples.classes)
    numbers: NDArray[Any] = np.asarray(given)
    return int(numbers.max(initial=1))


def _may_hold_out(settings: Settings) -> bool:
    """Whether some samples may be held out."""
    return settings.early_stopping is not False or isinstance(settings.block_weights, str)
