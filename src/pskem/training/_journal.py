"""What a training writes down as it goes, so that one that was killed can go on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from importlib import import_module
from os import PathLike
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from pskem.engine import ArrayPieces, Mapper, Piece
from pskem.structures import FloatArray
from pskem.training._order import exact_keys, other_lots
from pskem.training._splitting import Samples

__all__ = ["NO_PAGE", "Chapter", "Journal", "Nowhere", "Page", "Pages", "journal_at", "mark_of"]


@runtime_checkable
class Journal(Protocol):
    """Where states of a training are kept by name."""

    def begin(self, settings: Mapping[str, str], seed: int) -> int:
        """Open it for a training with these settings.

        Returns the seed of the training that it holds, or the given one if it holds none.
        """
        ...

    def agree(self, data: Callable[[], str]) -> None:
        """Refuse to go on with other data, of which this is a mark."""
        ...

    def get(self, name: str) -> Any:
        """What was kept under a name; None if nothing was."""
        ...

    def put(self, name: str, value: Any) -> None:
        """Keep a value, soon."""
        ...


class Nowhere:
    """A journal that keeps nothing."""

    def begin(self, settings: Mapping[str, str], seed: int) -> int:
        return seed

    def agree(self, data: Callable[[], str]) -> None:
        pass

    def get(self, name: str) -> Any:
        return None

    def put(self, name: str, value: Any) -> None:
        pass


def journal_at(path: str | PathLike[str]) -> Journal:
    """A journal in a file.

    What files are like is decided far above training, so it is found by its name.
    """
    journal: Journal = import_module("pskem.persistence").Checkpoint(path)
    return journal


class Page(NamedTuple):
    """A part of a journal."""

    journal: Journal
    name: str

    def get(self, name: str) -> Any:
        return self.journal.get(f"{self.name}{name}")

    def put(self, name: str, value: Any) -> None:
        self.journal.put(f"{self.name}{name}", value)


class Chapter(NamedTuple):
    """A training that is a part of something that is written down."""

    page: Page

    def begin(self, settings: Mapping[str, str], seed: int) -> int:
        kept = self.page.get("seed")
        if kept is None:
            self.page.put("seed", seed)
            return seed
        return int(kept)

    def agree(self, data: Callable[[], str]) -> None:
        """Its data and settings follow from those of the whole."""

    def get(self, name: str) -> Any:
        return self.page.get(name)

    def put(self, name: str, value: Any) -> None:
        self.page.put(name, value)


#: What is put there is gone.
NO_PAGE = Page(Nowhere(), "")


class Pages(NamedTuple):
    """What a journal holds, by name."""

    entries: dict[str, Any]


class Mark(NamedTuple):
    """A sum of the hashes of all samples, and their number, to tell other data by."""

    keys: int
    n: int

    def merge(self, other: Mark) -> Mark:
        return Mark((self.keys + other.keys) % 2**64, self.n + other.n)


def _mark(piece: Piece) -> Mark:
    keys = exact_keys(piece.X)
    keys ^= piece.labels.astype(np.uint64)
    keys = other_lots(keys)
    if piece.weights is not None:
        keys ^= np.ascontiguousarray(piece.weights, dtype=np.float64).view(np.uint64)
        keys = other_lots(keys)
    return Mark(int(keys.sum(dtype=np.uint64)), len(keys))


def mark_of(samples: Samples, parallel_map: Mapper) -> str:
    """A mark of all samples, in whatever order, of their classes, and of those to validate on."""
    if samples.whole is not None:
        found = samples.whole.pieces.fold(_mark, parallel_map)
    else:
        arrays = (samples.X, samples.labels, samples.weights)
        found = ArrayPieces(arrays).fold(_of_arrays, parallel_map)
    columns = [] if samples.feature_names is None else [str(name) for name in samples.feature_names]
    named = repr((samples.classes.tolist(), columns))
    text = f"{found.n} samples, {found.keys:016x}, {sha256(named.encode()).hexdigest()[:16]}"
    if samples.validation is not None:
        text += f", {_mark(Piece(*samples.validation)).keys:016x}"
    return text


def _of_arrays(arrays: tuple[FloatArray, Any, FloatArray | None]) -> Mark:
    return _mark(Piece(*arrays))
