"""Train on a table that is read piece by piece."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from pskem.engine import Mapped, Pieces, workers
from pskem.estimators import (
    Census,
    Frame,
    SharedKernelClassifier,
    counted_frame,
    measure_table,
    take_census,
)
from pskem.structures import FloatArray
from pskem.tables import (
    FileTable,
    TableError,
    is_named,
    make_encoder,
    open_table,
    scale_of,
    selected_columns,
    stored_size,
    weights_of,
)
from pskem.training import MANY, Journal, merge_spreads
from pskem.workflow.task import (
    TABLE,
    Task,
    check_classes,
    check_counts,
    is_labelled,
    remarks_on_rows,
)
from pskem.workflow.training import Trained, known_labels, lots_of, measured_seed, train

__all__ = ["StoredTask", "exceeds_memory", "train_stored"]

#: A table takes so many times its size where it is read at once: the frame, its columns as numbers,
#: those scaled, and the engine's own copy.
COPIES = 4
#: Share of the memory that is free which a table may take.
SHARE = 0.5


def exceeds_memory(source: str) -> int:
    """Bytes that a table would take if it were read at once; 0 if there is room for them."""
    if source == "-" or is_named(source) or not Path(source).is_file():
        return 0
    needed = COPIES * stored_size(source)
    return needed if needed > SHARE * _free_memory() else 0


def _free_memory() -> float:
    """Bytes of memory that are free, as far as that can be told."""
    try:
        text = Path("/proc/meminfo").read_text()
        free = 1024.0 * int(text.split("MemAvailable:")[1].split()[0])
    except (OSError, IndexError, ValueError):
        try:
            free = 0.5 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        except (ValueError, OSError):
            return float("inf")
    return min(free, _free_in_container())


def _free_in_container(folder: Path = Path("/sys/fs/cgroup")) -> float:
    """Bytes that a container may still take; files that were read count, but make room."""
    try:
        given = int((folder / "memory.max").read_text())
        used = int((folder / "memory.current").read_text())
        about = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return float(given - used + int(about["inactive_file"]))
    except (OSError, ValueError, KeyError):
        return float("inf")


class StoredTask(NamedTuple):
    """A table that is read piece by piece, made ready for training."""

    table: FileTable
    remarks: list[str]

    @classmethod
    def open(
        cls,
        source: str,
        target: str,
        *,
        weights: str | None = None,
        unlabelled: bool = False,
        drop: Collection[str] = (),
        categorical: Collection[str] = (),
    ) -> StoredTask:
        """Open a table; without ``unlabelled``, rows without a class are left out."""
        table = open_table(
            source,
            target,
            weights=weights,
            drop=drop,
            categorical=categorical,
            unlabelled=unlabelled,
        ).numbers_first()
        remarks = [
            f"Column {name!r} is left out: {why}."
            for name, why in table.used.dropped.items()
            if name != weights
        ]
        return cls(table, remarks)

    def on_cluster(self) -> StoredTask:
        """The same, read by the workers of a Dask cluster."""
        return self._replace(table=self.table.on_cluster())

    def in_memory(self, n_jobs: int | None) -> Task:
        """The same, read at once."""
        table = self.table
        with workers(n_jobs) as parallel_map:
            frames = table.pieces.fold(_as_rows, parallel_map).frames
        parts = [pd.DataFrame(frame.X, columns=table.names) for frame in frames]
        X = pd.concat(parts, ignore_index=True).astype(
            dict.fromkeys(table.used.categorical, object)
        )
        y = np.concatenate([frame.labels.each() for frame in frames])
        n_left_out = table.n_rows - len(y)
        y = known_labels(y) if is_labelled(y).all() else y
        weights = None
        if table.weights is not None:
            given = np.concatenate([frame.weights for frame in frames])
            weights = weights_of(pd.DataFrame({table.weights: given}), table.weights)
            kept = weights > 0.0
            X, y, weights = X[kept], y[kept], weights[kept]
        n_without = int((~is_labelled(y)).sum()) if table.unlabelled else n_left_out
        remarks = [*self.remarks, *remarks_on_rows(n_without, table.unlabelled)]
        target = str(table.target)
        check_classes(y, target)
        encoder = make_encoder(table.used, None, None, False, None)
        return Task(table.source, X, y, target, table.used, encoder, remarks, weights)

    @property
    def metadata(self) -> dict[str, Any]:
        """What a model file needs in order to read tables like this one."""
        table = self.table
        about = {"source": table.source, "target": table.target, **table.used._asdict()}
        return {TABLE: about}


class Rows(NamedTuple):
    """Frames, one after the other."""

    frames: tuple[Frame, ...]

    def merge(self, other: Rows) -> Rows:
        return Rows(self.frames + other.frames)


def _as_rows(frame: Frame) -> Rows:
    return Rows((frame,))


def train_stored(
    task: StoredTask,
    classifier: SharedKernelClassifier,
    validation_fraction: float = 0.0,
    checkpoint: Journal | None = None,
    tell: Callable[[str], None] | None = None,
) -> Trained:
    """Train on a table, with a part of the rows held out to measure accuracy.

    Lots that follow from the values of a row say which are held out. With early stopping, the
    classifier holds out others to choose the pass by. A table of few rows is read at once.

    tell : is told what is found out about the table before the training
    """
    table = task.table
    if table.n_rows < MANY:
        few = task.in_memory(classifier.n_jobs)
        _say(few.remarks[len(task.remarks) :], tell)
        return train(few, classifier, validation_fraction, checkpoint)
    model = clone(classifier).set_params(categorical_features=None)
    seed = measured_seed(classifier.random_state)
    sides = [Side(validation_fraction, held_out, seed) for held_out in (False, True)]
    with workers(classifier.n_jobs) as parallel_map:
        look = Look(len(table.used.numeric), sides[0])
        census, spread = table.pieces.fold(look, parallel_map)
    counts = {label: n for label, (_, n) in census.classes.items()}
    n_counted, n_unlabelled = sum(counts.values()), census.unlabelled[1]
    if not counts and not n_unlabelled and census.uncounted:
        raise TableError(
            f"All weights in the column {table.weights!r} are 0; at least one row must count."
        )
    check_counts(counts, str(table.target), n_unlabelled > 0)
    n_left_out = table.n_rows - n_counted - census.uncounted
    remarks = remarks_on_rows(n_unlabelled if table.unlabelled else n_left_out, table.unlabelled)
    _say(remarks, tell)
    task = task._replace(remarks=[*task.remarks, *remarks])
    kept, asked = (Part(table, side, spread) for side in sides)
    model.fit(kept, checkpoint=checkpoint)
    found = measure_table(model, kept)
    validated = measure_table(model, asked) if validation_fraction else None
    n_validated = 0 if validated is None else validated.n
    model.set_params(verbose=0)
    selection = selected_columns(table.used, *spread)
    pipeline = Pipeline([("columns", selection), ("classifier", model)])
    return Trained(
        pipeline,
        task,
        n_counted + n_unlabelled - n_validated,
        n_validated,
        found.accuracy or 0.0,
        None if validated is None else validated.accuracy,
        found.log_likelihood,
    )


def _say(lines: Sequence[str], tell: Callable[[str], None] | None) -> None:
    if tell is not None:
        for line in lines:
            tell(line)


@dataclass(frozen=True)
class Side:
    """The rows of a frame that are held out, or the others, as far as they count.

    Those without a class are never held out.
    """

    fraction: float
    held_out: bool
    seed: int

    def __call__(self, frame: Frame) -> Frame:
        frame = counted_frame(frame)
        if not (self.fraction or self.held_out):  # all are trained on
            return frame
        chosen = (lots_of(frame.X, self.seed) < self.fraction) & (frame.labels.codes >= 0)
        rows = np.flatnonzero(chosen == self.held_out)
        X = frame.X.iloc[rows] if hasattr(frame.X, "iloc") else frame.X[rows]
        weights = None if frame.weights is None else frame.weights[rows]
        return Frame(X, frame.labels._replace(codes=frame.labels.codes[rows]), weights)


class Spread(NamedTuple):
    """Of columns of numbers, (M,) each: values that are there, their mean, their mean square.

    The latter about the mean.
    """

    n: FloatArray
    mean: FloatArray
    variance: FloatArray

    @classmethod
    def of(cls, X: FloatArray) -> Spread:
        """Of numbers (n, M)."""
        there = ~np.isnan(X)
        n = there.sum(axis=0).astype(np.float64)
        some = np.maximum(n, 1.0)
        mean = np.where(there, X, 0.0).sum(axis=0) / some
        return cls(n, mean, np.square(np.where(there, X - mean, 0.0)).sum(axis=0) / some)

    def merge(self, other: Spread) -> Spread:
        return Spread(*merge_spreads(*self, *other))

    def scaled(self, frame: Frame) -> Frame:
        """The frame with its numbers scaled."""
        scale, X = scale_of(self.mean, self.variance), frame.X
        if not hasattr(X, "iloc"):
            return frame._replace(X=(X - self.mean) / scale)
        scaled = X.copy()
        names = X.columns[: len(scale)]
        scaled[names] = (X[names].to_numpy() - self.mean) / scale
        return frame._replace(X=scaled)


class Seen(NamedTuple):
    """What is known of a table before it is trained on: its rows, and how numbers spread.

    spread : of the rows that are trained on
    """

    census: Census
    spread: Spread

    def merge(self, other: Seen) -> Seen:
        return Seen(self.census.merge(other.census), self.spread.merge(other.spread))


@dataclass(frozen=True)
class Look:
    """Takes in what is to be known of the rows of a frame.

    n_numbers : columns of numbers, which are the first ones
    kept : the rows that are trained on
    """

    n_numbers: int
    kept: Side

    def __call__(self, frame: Frame) -> Seen:
        X = self.kept(frame).X
        numbers = X.iloc[:, : self.n_numbers].to_numpy() if hasattr(X, "iloc") else X
        return Seen(take_census(np.empty(0, dtype=np.intp), None, frame), Spread.of(numbers))


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a table, with numbers that are scaled."""

    table: FileTable
    side: Side
    spread: Spread

    @property
    def names(self) -> Sequence[str]:
        return self.table.names

    @property
    def n_columns(self) -> int:
        return self.table.n_columns

    @property
    def has_classes(self) -> bool:
        return self.table.has_classes

    @property
    def categorical(self) -> NDArray[np.intp]:
        return self.table.categorical

    @property
    def pieces(self) -> Pieces:
        return Mapped(Mapped(self.table.pieces, self.side), self.spread.scaled)
