"""Many samples, of which few are looked at closely: which these are, and how many there are.

From 20,000 samples on, whatever is decided before training is decided by samples that are drawn:
blocks, maps of features, starts. And a part is held out to choose and to calibrate. Lots that
follow from a row's own values draw both. So neither the order of the rows matters, nor whether they
lie in memory, in files or on a cluster. All that is needed are folds, whose results do not grow
with the number of samples.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Mapper, Piece, Pieces, Total
from pskem.structures import FloatArray
from pskem.training._order import joined, other_lots, row_keys

__all__ = ["MANY", "Split", "Survey", "Whole", "draw", "gather", "split_by_lot", "survey"]

#: Samples from which on some stand for all, and some are held out once.
MANY = 20_000

#: Samples with a class, and without, that are drawn at least, and of each class.
DRAWN, DRAWN_OF_CLASS = 20_000, 50
#: Samples that are held out at most: more would not choose better.
MOST_HELD_OUT = 20_000
#: Rows with more than this share of all samples are held out by weight, not by lot: one of them
#: would be all that is held out. So many candidates are kept until they are counted.
HEAVY, CANDIDATES = 1e-3, 4000
WHOLE = 2.0**64
#: The share of the different rows that must have lots of their own.
OF_THEIR_OWN = 0.95


class Lots(NamedTuple):
    """What rows draw: by few digits, so that rounding does not matter, or by many."""

    seed: int
    fine: bool = False

    def of(self, X: FloatArray) -> NDArray[np.uint64]:
        """The lots of rows, (n,)."""
        return row_keys(X, self.seed, self.fine)


class Frequent(NamedTuple):
    """Lots with large masses: all that have more than ``error`` (Misra & Gries, 1982).

    keys, masses : (n,), masses are too low by ``error`` at most
    """

    keys: NDArray[np.uint64]
    masses: FloatArray
    error: float = 0.0

    def merge(self, other: Frequent) -> Frequent:
        keys = np.concatenate([self.keys, other.keys])
        masses = np.concatenate([self.masses, other.masses])
        return _frequent(keys, masses, self.error + other.error)


def _frequent(keys: NDArray[np.uint64], masses: FloatArray, error: float = 0.0) -> Frequent:
    keys, places = np.unique(keys, return_inverse=True)
    masses = np.bincount(places, masses, minlength=len(keys)).astype(np.float64)
    if len(keys) > CANDIDATES:
        least = float(np.partition(masses, -CANDIDATES - 1)[-CANDIDATES - 1])
        keys, masses = keys[masses > least], masses[masses > least] - least
        error += least
    return Frequent(keys, masses, error)


def _least(keys: NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """The smallest different lots, so many at most, sorted."""
    return np.unique(keys)[:n]


class Survey(NamedTuple):
    """What is known of all samples; those without a class stand as an additional class.

    counts, masses : (L + 1,), rows, and what they count
    last : (L + 1,), the largest lot for being held out
    frequent : lots of rows that are many
    everyone, of_class : the smallest different lots for being looked at, of those with a class and
        those without, and of each class
    fine : the same of those with a class, if lots went by more digits
    lots : that were drawn
    size : how many of them are kept of those with a class, and of those without
    """

    counts: NDArray[np.intp]
    masses: FloatArray
    last: NDArray[np.uint64]
    frequent: Frequent
    everyone: tuple[NDArray[np.uint64], NDArray[np.uint64]]
    of_class: tuple[NDArray[np.uint64], ...]
    fine: NDArray[np.uint64]
    lots: Lots
    size: int

    def merge(self, other: Survey) -> Survey:
        groups = zip(self.everyone, other.everyone, strict=True)
        known, unknown = (_least(np.concatenate(pair), self.size) for pair in groups)
        classes = zip(self.of_class, other.of_class, strict=True)
        return Survey(
            self.counts + other.counts,
            self.masses + other.masses,
            np.maximum(self.last, other.last),
            self.frequent.merge(other.frequent),
            (known, unknown),
            tuple(_least(np.concatenate(pair), DRAWN_OF_CLASS) for pair in classes),
            _least(np.concatenate([self.fine, other.fine]), self.size),
            self.lots,
            self.size,
        )

    @property
    def n_rows(self) -> int:
        return int(self.counts.sum())

    @property
    def n_different(self) -> float:
        """About how many different samples have a class, by the lots that they have drawn."""
        return _number(self.everyone[0], self.size)

    @property
    def shared(self) -> bool:
        """Whether many samples share a lot that are not the same."""
        return self.n_different < OF_THEIR_OWN * _number(self.fine, self.size)


def _number(lots: NDArray[np.uint64], size: int) -> float:
    """About how many different lots there are, if these are the smallest, so many at most.

    Bar-Yossef et al. (2002).
    """
    return len(lots) if len(lots) < size else (len(lots) - 1) * WHOLE / float(lots[-1])


def _survey(n_classes: int, size: int, lots: Lots, piece: Piece) -> Survey:
    labels = np.where(piece.labels < 0, n_classes, piece.labels)
    holding = lots.of(piece.X)
    looking = other_lots(holding)
    last = np.zeros(n_classes + 1, dtype=np.uint64)
    np.maximum.at(last, labels, holding)
    known = labels < n_classes
    return Survey(
        np.bincount(labels, minlength=n_classes + 1).astype(np.intp),
        np.bincount(labels, piece.counted, minlength=n_classes + 1).astype(np.float64),
        last,
        _frequent(holding, piece.counted),
        (_least(looking[known], size), _least(looking[~known], size)),
        tuple(_least(looking[labels == j], DRAWN_OF_CLASS) for j in range(n_classes)),
        _least(lots._replace(fine=True).of(piece.X)[known], size),
        lots,
        size,
    )


def survey(
    pieces: Pieces, n_classes: int, most_kernels: int, seed: int, parallel_map: Mapper
) -> Survey:
    """Look at all samples; starts may be of so many kernels.

    Twice, if lots must go by more digits, as where features lie far from zero.
    """
    size = max(DRAWN, DRAWN_OF_CLASS * most_kernels)
    found = pieces.fold(partial(_survey, n_classes, size, Lots(seed)), parallel_map)
    if not found.shared:
        return found
    return pieces.fold(partial(_survey, n_classes, size, Lots(seed, fine=True)), parallel_map)


@dataclass(frozen=True, eq=False)
class Split:
    """Which samples are held out.

    fraction : how many of them
    below : (L,), lots of each class below which a sample is held out
    heavy : lots of rows that are many, sorted: this fraction of each of them is held out
    """

    fraction: float
    below: NDArray[np.uint64]
    heavy: NDArray[np.uint64]
    lots: Lots

    def share(self, X: FloatArray, labels: NDArray[np.intp]) -> FloatArray:
        """How much of each sample is held out, (n,): all or nothing of most of them."""
        keys = self.lots.of(X)
        known = labels >= 0
        share = (known & (keys < self.below[labels])).astype(np.float64)
        if len(self.heavy):
            places = np.minimum(np.searchsorted(self.heavy, keys), len(self.heavy) - 1)
            share[known & (self.heavy[places] == keys)] = self.fraction
        return share


def split_by_lot(pieces: Pieces, found: Survey, fraction: float, parallel_map: Mapper) -> Split:
    """Hold a fraction of the samples that have a class out; of every class some are kept."""
    fraction = min(fraction, MOST_HELD_OUT / max(1.0, found.n_different))
    many = HEAVY * float(found.masses.sum())
    frequent = found.frequent
    heavy = frequent.keys[frequent.masses + frequent.error > many]
    if len(heavy):
        (masses,) = pieces.fold(partial(_masses, heavy, found.lots), parallel_map).arrays
        heavy = heavy[masses > many]
    below = np.minimum(found.last[:-1], np.uint64(int(fraction * WHOLE)))
    return Split(fraction, below, heavy, found.lots)


def _masses(keys: NDArray[np.uint64], lots: Lots, piece: Piece) -> Total:
    """What the rows with each of some lots count."""
    own = lots.of(piece.X)
    places = np.minimum(np.searchsorted(keys, own), len(keys) - 1)
    hit = keys[places] == own
    sums = np.bincount(places[hit], piece.counted[hit], minlength=len(keys))
    return Total((sums.astype(np.float64),))


class Drawn(NamedTuple):
    """Some samples of each piece, or all.

    different : how many there were when equal ones were last made one; None if they never are
    """

    parts: tuple[Piece, ...]
    different: int | None = None

    def merge(self, other: Drawn) -> Drawn:
        both = Drawn(self.parts + other.parts)
        if self.different is None or other.different is None:
            return both
        before = max(self.different, other.different)
        if sum(len(part.labels) for part in both.parts) <= 2 * before + DRAWN:
            return both._replace(different=before)
        return both.joined()

    def joined(self) -> Drawn:
        """The same, with equal samples made one, which has the weight of all of them."""
        piece = self.piece
        if not len(piece.labels):
            return Drawn((piece,), 0)
        rows = joined(*piece)
        # A copy of its own: the piece need not stay in memory.
        one = Piece(piece.X[rows.places], piece.labels[rows.places], rows.weights)
        return Drawn((one,), rows.size)

    @property
    def piece(self) -> Piece:
        """All of them; each counts as often as it was found."""
        if len(self.parts) == 1:
            return self.parts[0]
        X = np.concatenate([part.X for part in self.parts])
        labels = np.concatenate([part.labels for part in self.parts])
        if all(part.weights is None for part in self.parts):
            return Piece(X, labels)
        return Piece(X, labels, np.concatenate([part.counted for part in self.parts]))


def _drawn(cuts: NDArray[np.uint64], split: Split | None, lots: Lots, piece: Piece) -> Drawn:
    """Samples whose lots are not above those of their class, (L + 1,), and those held out."""
    chosen = other_lots(lots.of(piece.X)) <= cuts[piece.labels]  # -1 is the last
    if split is not None:
        chosen |= split.share(piece.X, piece.labels) > 0.0
    return Drawn((piece.at(np.flatnonzero(chosen)),)).joined()


def draw(pieces: Pieces, found: Survey, split: Split | None, parallel_map: Mapper) -> Piece:
    """Samples that stand for all, and those that are held out."""
    known, unknown = (lots.max(initial=0) for lots in found.everyone)
    cuts = [max(known, own.max(initial=0)) for own in found.of_class]
    chosen = partial(_drawn, np.array([*cuts, unknown], dtype=np.uint64), split, found.lots)
    return pieces.fold(chosen, parallel_map).joined().piece


def _all(piece: Piece) -> Drawn:
    return Drawn((piece,))


def gather(pieces: Pieces, parallel_map: Mapper) -> Piece:
    """All samples."""
    return pieces.fold(_all, parallel_map).piece


class Whole(NamedTuple):
    """All samples, where those that are at hand were drawn from them.

    masses : (L,), what those with a class count, whatever the weights of the classes
    unlabelled : what those without count
    n_rows : how many rows there are
    split : which are held out, if some are to be
    """

    pieces: Pieces
    masses: FloatArray
    unlabelled: float
    n_rows: int
    split: Split
