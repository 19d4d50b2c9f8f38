"""Samples that are read anew in every pass, piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from pskem.engine import (
    Additive,
    Batch,
    Coordinates,
    Mapped,
    Mapper,
    Piece,
    Pieces,
    Total,
    distinct_patterns,
    features_first,
    joint_patterns,
    pattern_keys,
    standardise,
    sum_of_squares,
)
from pskem.model import Reading
from pskem.structures import FloatArray
from pskem.training._surveying import Split

__all__ = ["Arrangement", "PieceSource", "read_blocks"]

T = TypeVar("T", bound=Additive)


def read_blocks(
    blocks: Sequence[NDArray[np.intp]], readings: Sequence[Reading | None], X: FloatArray
) -> tuple[FloatArray, Sequence[NDArray[np.intp]]]:
    """Rows of X (n, M) as the kernels see them, and the columns of each block among these."""
    if all(reading is None for reading in readings):
        return X, blocks
    pairs = zip(blocks, readings, strict=True)
    parts = [X[:, own] if read is None else read.forward(X[:, own]) for own, read in pairs]
    ends = np.cumsum([0, *(part.shape[1] for part in parts)])
    return np.hstack(parts), [np.arange(low, high) for low, high in pairwise(ends)]


@dataclass(frozen=True, eq=False)
class Arrangement:
    """How the samples of a piece become a batch.

    n_classes : without that of the samples whose class nobody knows
    split : which samples are held out; None if all are trained on
    unlabelled_weight : by which the weights of samples without a class are multiplied
    unlabelled : whether there are any; they are an additional class
    only : "known" or "unknown" for samples with a class alone, or without; empty for all
    """

    blocks: tuple[NDArray[np.intp], ...]
    readings: tuple[Reading | None, ...]
    n_classes: int
    split: Split | None
    unlabelled_weight: float
    unlabelled: bool
    coordinates: tuple[Coordinates, ...] | None = None
    only: str = ""

    def kept(self, piece: Piece) -> tuple[NDArray[np.intp], FloatArray | None]:
        """Places of the samples that are trained on, and weights of all samples of the piece."""
        known, chosen, weights = piece.labels >= 0, None, piece.weights
        if self.only:
            chosen = known if self.only == "known" else ~known
        if self.split is not None and self.only != "unknown":
            kept = 1.0 - self.split.share(piece.X, piece.labels)
            if ((kept > 0.0) & (kept < 1.0)).any():
                weights = piece.counted * kept
            chosen = kept > 0.0 if chosen is None else chosen & (kept > 0.0)
        if self.unlabelled_weight != 1.0 and not known.all():
            factors = np.where(known, 1.0, self.unlabelled_weight)
            weights = factors if weights is None else weights * factors
        return np.arange(len(known)) if chosen is None else np.flatnonzero(chosen), weights

    def __call__(self, piece: Piece) -> Batch:
        """The batch of a piece."""
        places, weights = self.kept(piece)
        labels, n_classes = self._classes(piece.labels)
        X, blocks = read_blocks(self.blocks, self.readings, piece.X)
        keys = [labels[places].astype(np.min_scalar_type(n_classes))]  # few bits are sorted quickly
        if np.isnan(sum_of_squares(X)):
            keys = [*pattern_keys(X.T)[:, places], *keys]
        order = places[np.lexsort(keys)]
        bounds = np.searchsorted(labels[order], np.arange(n_classes + 1)).astype(np.intp)
        weights = None if weights is None else weights[order]
        parts = features_first(X, order, blocks)
        if self.coordinates is not None:
            standardise(parts, self.coordinates)
        return Batch(tuple(parts), bounds, 0, weights)

    def _classes(self, labels: NDArray[np.intp]) -> tuple[NDArray[np.intp], int]:
        """Classes of the samples, and how many there are."""
        if self.only == "unknown":
            return np.zeros_like(labels), self.n_classes
        extra = self.unlabelled and not self.only
        return np.where(labels < 0, self.n_classes, labels), self.n_classes + extra

    def log_slopes(self, piece: Piece) -> Total:
        """What the maps add to the log likelihoods of each block, (R,), known and unknown."""
        places, weights = self.kept(piece)
        piece = piece._replace(weights=weights).at(places)
        sums = np.zeros((2, len(self.blocks)))
        known = piece.labels >= 0
        for r, (features, reading) in enumerate(zip(self.blocks, self.readings, strict=True)):
            if reading is not None and len(known):
                slopes = piece.counted * reading.log_slopes(piece.X[:, features])
                sums[:, r] = slopes[known].sum(), slopes[~known].sum()
        return Total((sums[0], sums[1]))


class Tally(NamedTuple):
    """Samples of each class, what they count, the patterns of gaps of each block, the precision."""

    counts: NDArray[np.intp]
    masses: FloatArray
    patterns: tuple[NDArray[np.bool_] | None, ...]
    dtype: np.dtype[np.floating]

    def merge(self, other: Tally) -> Tally:
        pairs = zip(self.patterns, other.patterns, strict=True)
        return Tally(
            self.counts + other.counts,
            self.masses + other.masses,
            tuple(joint_patterns(*pair) for pair in pairs),
            np.promote_types(self.dtype, other.dtype),
        )

    @property
    def divided(self) -> tuple[Tally, Tally]:
        """Of all classes but the last, and of the last, in the place of the first."""
        counts, masses = np.zeros_like(self.counts[:-1]), np.zeros_like(self.masses[:-1])
        counts[0], masses[0] = self.counts[-1], self.masses[-1]
        known = self._replace(counts=self.counts[:-1], masses=self.masses[:-1])
        return known, self._replace(counts=counts, masses=masses)


def _tally(arrangement: Arrangement, piece: Piece) -> Tally:
    batch = arrangement(piece)
    sums = np.append(0.0, np.cumsum(batch.known_weights))
    patterns = tuple(distinct_patterns(part) for part in batch.X)
    masses = np.diff(sums[batch.bounds])
    return Tally(np.diff(batch.bounds), masses, patterns, batch.X[0].dtype)


@dataclass(frozen=True, eq=False)
class PieceSource:
    """Samples that are read anew in every pass, a batch for each piece."""

    pieces: Pieces
    arrangement: Arrangement
    tally: Tally
    parallel_map: Mapper

    @classmethod
    def arrange(cls, pieces: Pieces, arrangement: Arrangement, parallel_map: Mapper) -> Self:
        """The samples of pieces, after a first look at all of them."""
        tally = pieces.fold(partial(_tally, arrangement), parallel_map)
        return cls(pieces, arrangement, tally, parallel_map)

    @property
    def counts(self) -> NDArray[np.intp]:
        return self.tally.counts

    @property
    def masses(self) -> FloatArray:
        return self.tally.masses

    @property
    def dtype(self) -> np.dtype[np.floating]:
        return self.tally.dtype

    @property
    def patterns(self) -> Sequence[NDArray[np.bool_] | None]:
        return self.tally.patterns

    def fold(self, function: Callable[[Batch], T]) -> T:
        return Mapped(self.pieces, self.arrangement).fold(function, self.parallel_map)

    def standardise(self, coordinates: Sequence[Coordinates]) -> Self:
        arrangement = replace(self.arrangement, coordinates=tuple(coordinates))
        return replace(self, arrangement=arrangement)

    def divide(self) -> tuple[Self, Self]:
        one, two = (
            replace(self, arrangement=replace(self.arrangement, only=only), tally=tally)
            for only, tally in zip(("known", "unknown"), self.tally.divided, strict=True)
        )
        return one, two
