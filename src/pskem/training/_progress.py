"""A progress bar on stderr for long fits."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from pskem.training._loop import Progress

__all__ = ["PassBar", "telling_of_trials"]

WIDTH = 16


class PassBar:
    """Observer that shows passes, log likelihood per sample, validation score and time.

    On a terminal one line is drawn over and over; elsewhere a line is printed every ``every``
    passes, so that a log file stays readable.
    """

    def __init__(
        self,
        max_iter: int,
        n_init: int,
        n_samples: int,
        every: int,
        discriminative_iter: int = 0,
        stream: TextIO | None = None,
    ) -> None:
        self.max_iter = max_iter
        self.n_init = n_init
        self.n_samples = n_samples
        self.every = every
        self.discriminative_iter = discriminative_iter
        self.stream = sys.stderr if stream is None else stream
        self.live = self.stream.isatty()
        self.began = time.perf_counter()
        self.last = ""

    def __call__(self, state: Progress) -> bool:
        p = state.iteration
        self.last = self._line(state)
        if self.live:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\x1b[K" + self.last[:width])
        elif p == 1 or p % self.every == 0:
            self.stream.write(self.last + "\n")
            self.last = ""
        self.stream.flush()
        return False

    def _line(self, state: Progress) -> str:
        p = state.iteration
        later = state.discriminative
        most = self.discriminative_iter if later else self.max_iter
        done = WIDTH * p // most
        what, gain = "pass", "log likelihood"
        if later:
            what, gain = "discriminative pass", "log posterior"
        start = f"start {state.start + 1}/{self.n_init} " if self.n_init > 1 else ""
        score = state.score
        parts = [
            f"{'' if later else start}[{'#' * done}{'.' * (WIDTH - done)}] {what} {p}/{most}",
            f"{gain}/sample {state.objective / self.n_samples:.4f}",
            *([] if score is None else [f"validation {score:.4f}"]),
            f"{time.perf_counter() - self.began:.1f} s",
        ]
        return "  ".join(parts)

    def close(self, verdict: str) -> None:
        """Show the last pass, if it is not there yet, and how the training ended."""
        if self.live or self.last:
            self.stream.write(("" if self.live else self.last) + "\n")
        self.stream.write(verdict + "\n")
        self.stream.flush()


@contextmanager
def telling_of_trials(
    verbose: int, stream: TextIO | None = None
) -> Iterator[Callable[[int, int], None]]:
    """What hears how many forms of a model have been tried, and shows it."""
    stream = sys.stderr if stream is None else stream
    live, began, shown = stream.isatty(), time.perf_counter(), False

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if not verbose or total < 2:
            return
        filled = WIDTH * done // total
        bar = f"[{'#' * filled}{'.' * (WIDTH - filled)}]"
        line = f"{bar} forms tried {done}/{total}  {time.perf_counter() - began:.1f} s"
        if live:
            stream.write("\r\x1b[K" + line)
            shown = True
        elif done == total:
            stream.write(line + "\n")
        stream.flush()

    try:
        yield tell
    finally:
        if shown:
            stream.write("\n")
            stream.flush()
