"""A training in a file, from which it goes on if it was killed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pskem.files import check_place
from pskem.persistence.container import (
    ModelFileError,
    load,
    read_header,
    save,
)
from pskem.training import Pages
from pskem.version import __version__

__all__ = ["Checkpoint", "CheckpointError"]

#: How a checkpoint says what it is.
KIND = "checkpoint"
#: Of the time of a training, the share that writing may take; and seconds that the first writing
#: is taken to need.
SHARE, FIRST = 0.01, 0.02


class CheckpointError(ModelFileError):
    """A checkpoint is of another training, or no checkpoint."""


class Checkpoint:
    """Keeps a training in a file, so that one that was killed can go on.

    A fit with a checkpoint writes down the state of the training every now and then: as often as it
    can in a hundredth of the time. If it is killed, the same call goes on from the last state, and
    ends with the same bits as a fit that nobody disturbed. The file appears whole or not at all,
    and holds nothing but data. It stays when the fit is done: save the model, then :meth:`remove`
    it.

    A fit with a checkpoint reads its data once more when it begins, for a checksum by which it
    refuses other data later. That takes a fraction of a pass, in addition to the hundredth. Fits of
    less than two seconds write nothing.

    Parameters
    ----------
    path : path-like
    also : mapping of str to str, default=None
        What else must be as it was for a training to go on, in words, by name.
    tell : callable, default=None
        Is called with a sentence when a training goes on from the file.

    Examples
    --------
    >>> import tempfile, pathlib, pskem
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     checkpoint = pskem.Checkpoint(pathlib.Path(folder) / "iris.checkpoint")
    ...     model = pskem.SharedKernelClassifier(random_state=0)
    ...     _ = model.fit(X, y, checkpoint=checkpoint)
    ...     pskem.save(model, pathlib.Path(folder) / "iris.pskem")
    ...     checkpoint.remove()
    """

    def __init__(
        self,
        path: Any,
        also: Mapping[str, str] | None = None,
        tell: Callable[[str], object] | None = None,
    ) -> None:
        self.path = path
        self._also = dict(also or {})
        self._tell = tell
        self._about: dict[str, Any] = {}
        self._entries: dict[str, Any] = {}
        self._start_clock()

    def _start_clock(self) -> None:
        """Count time from now on."""
        self._written = time.monotonic()
        self._cost = FIRST

    def begin(self, settings: Mapping[str, str], seed: int) -> int:
        """Open the file for a training with these settings, and read it if it is there.

        Returns the seed of the training that it holds, or the given one.
        """
        settings = {**self._also, **settings}
        self._about = {KIND: 1, "settings": settings, "seed": seed, "data": None}
        self._entries = {}
        self._start_clock()
        return self._read(settings, seed)

    def _read(self, settings: Mapping[str, str], seed: int) -> int:
        """Read the file if it is there; the seed."""
        check_place(self.path)  # also of a file that is there: it will be replaced
        if not self.exists():
            return seed
        try:
            header = read_header(self.path)
            found = load(self.path, Pages) if KIND in header.metadata else None
        except ModelFileError as error:
            raise self._no_checkpoint("Name another file, or remove it to start anew.") from error
        about = header.metadata
        if found is None:
            raise CheckpointError(f"{self.path} holds a model, not a training. Name another file.")
        if header.versions.get("pskem") != __version__:
            raise self._refusal(f"of pskem {header.versions.get('pskem')}, not {__version__}")
        self._compare(about.get("settings", {}), settings)
        self._about = about
        self._entries = found.entries
        return int(about["seed"])

    def _compare(self, before: Mapping[str, str], now: Mapping[str, str]) -> None:
        """Refuse other settings."""
        for name in (*now, *sorted(before.keys() - now.keys())):
            if before.get(name) != now.get(name):
                was, is_ = (str(part.get(name, "none"))[:60] for part in (before, now))
                raise self._refusal(f"with {name}={was}, not {is_}")

    def _refusal(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"The checkpoint {self.path} is of a training {what}. It goes on with what it was begun"
            " with; remove it to start anew, or name another file."
        )

    def agree(self, data: Callable[[], str]) -> None:
        """Refuse to go on with other data."""
        mark = data()
        if self._about["data"] not in (None, mark):
            was, is_ = (f"{int(text.split()[0]):,}" for text in (self._about["data"], mark))
            how = f"{was} samples, not {is_}"
            if was == is_:
                how = f"as many samples, {was}, with other values, classes or weights, or read"
                how += " in another way"
            raise self._refusal(f"on other data ({how})")
        if self._tell is not None and self._about["data"] is not None:
            self._tell(f"The training goes on from {self.path}.")
        self._about["data"] = mark

    def get(self, name: str) -> Any:
        """What was kept under a name; None if nothing was."""
        return self._entries.get(name)

    def put(self, name: str, value: Any) -> None:
        """Keep a value, and write the file if it is time."""
        self._entries[name] = value
        if time.monotonic() - self._written >= self._cost / SHARE:
            self.write()

    def write(self) -> None:
        """Write the file now."""
        start = time.monotonic()
        save(Pages(dict(self._entries)), self.path, metadata=self._about)
        self._written = time.monotonic()
        self._cost = self._written - start

    def before(self, name: str) -> str | None:
        """A setting of the training that is in the file; None if there is none."""
        if not self.exists():
            return None
        try:
            settings = read_header(self.path).metadata.get("settings", {})
        except ModelFileError:  # which is said when a training begins with it
            return None
        return settings.get(name) if isinstance(settings, dict) else None

    def exists(self) -> bool:
        """Whether there is a file that is not empty."""
        return Path(self.path).exists() and Path(self.path).stat().st_size > 0

    def remove(self) -> None:
        """Remove the file, if there is one. What is no checkpoint stays."""
        if self.exists():
            try:
                about = read_header(self.path).metadata
            except ModelFileError as error:
                raise self._no_checkpoint("It is not removed.") from error
            if KIND not in about:
                raise CheckpointError(f"{self.path} holds a model, so it is not removed.")
        Path(self.path).unlink(missing_ok=True)

    def _no_checkpoint(self, remedy: str) -> CheckpointError:
        return CheckpointError(f"{self.path} is no checkpoint, or one that is damaged. {remedy}")

    # scikit-learn's protocol of callbacks: a fit finds the checkpoint among them, and that is all.

    def setup(self, estimator: Any, context: Any) -> None:
        """Hear that a fit begins."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Hear that a fit has ended."""

    def on_fit_task_begin(self, estimator: Any, context: Any, **about: Any) -> None:
        """Hear that a task of a fit begins."""

    def on_fit_task_end(self, estimator: Any, context: Any, **about: Any) -> None:
        """Hear that a task of a fit has ended."""
