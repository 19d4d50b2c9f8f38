"""A checkpoint that measures what it costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pskem import Checkpoint

__all__ = ["Clocked"]


class Clocked(Checkpoint):
    """Knows the seconds of all that it did: reading its file, marking the data, writing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path: Path = path
        #: Seconds of every call, by what was done.
        self.spent: dict[str, list[float]] = {}

    @contextmanager
    def _clocked(self, what: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.spent.setdefault(what, []).append(time.perf_counter() - start)

    def begin(self, settings: Mapping[str, str], seed: int) -> int:
        with self._clocked("begin"):
            return super().begin(settings, seed)

    def agree(self, data: Callable[[], str]) -> None:
        with self._clocked("agree"):
            super().agree(data)

    def write(self) -> None:
        with self._clocked("write"):
            super().write()
