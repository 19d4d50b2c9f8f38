"""The blocks of the features, and how many kernels each has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.blocks import partition_features, within_class_dependence
from pskem.checks import check_n_components
from pskem.engine import workers
from pskem.margins import Margins, fit_margins
from pskem.model import Model, Reading
from pskem.recoding import Recoding, fit_parts, fit_turn
from pskem.starts import STARTS, ClassKMeans, EverySample
from pskem.structures import Categorical, FloatArray, Structure
from pskem.training._initial import given_sizes
from pskem.training._order import ENOUGH_FOR_DEPENDENCE, Rows, distinct, representative
from pskem.training._settings import SAMPLES_PER_FEATURE, Settings
from pskem.training._splitting import Samples

__all__ = [
    "Layout",
    "count_kernels",
    "deal_blocks",
    "fit_maps",
    "grown_kernels",
    "lay_out",
    "suggest_n_components",
    "suit",
    "usual_blocks",
]

#: Samples of a class for every kernel and feature, where kernels are many; and for a kernel without
#: a covariance of its own.
SAMPLES_PER_FEATURE_OF_FINE, FEWEST = 3, 10
#: Samples by which maps of features are chosen, at most.
ENOUGH_FOR_MARGINS = 2000
#: Kernels of a class at most.
MOST_PER_CLASS = 20
#: Kernels of a class in a stream, at most, while its samples are few.
MOST_OF_SMALL_CLASS = 8
#: Samples of a class from which on it has kernels of its own, where others have no class. Fewer are
#: too few to start all its kernels from.
ENOUGH_OF_ONES_OWN = 8
#: Blocks that teach each other the classes of unlabelled samples, and features of each, at least.
BLOCKS_THAT_TEACH = 3
FEWEST_THAT_TEACH = 4


class Layout(NamedTuple):
    """The blocks of the columns of X, and how each reads them.

    readings : maps of features, or other numbers that are made of them; None for neither
    """

    blocks: list[NDArray[np.intp]]
    structures: list[Structure]
    readings: list[Reading | None]

    @property
    def widths(self) -> list[int]:
        """Features of the kernels of each block."""
        pairs = zip(self.blocks, self.readings, strict=True)
        return [len(part if read is None else read.sources) for part, read in pairs]


def lay_out(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    rows: Rows,
    kept: Rows,
    maps: Margins | None,
) -> Layout:
    """The blocks of the columns of X; readings follow from the rows that are trained on, kept.

    maps : of all columns, if they are known already
    """
    if settings.margins and maps is None and before is None:
        maps = fit_maps(samples, kept)
    if settings.shape.recoded and before is None:
        return _recoded(settings, samples, kept, maps if settings.margins else None)
    M = samples.n_numbers
    try:
        blocks = _numbers(settings, samples, before, seed, rows) if M else []
    except ValueError as error:
        raise _for_numbers(error, samples) from None
    structures: list[Structure] = [settings.structure] * len(blocks)
    if samples.levels:
        blocks = [*blocks, np.arange(M, samples.X.shape[1])]
        structures.append(Categorical(samples.levels))
    readings: list[Reading | None] = [None] * len(blocks)
    if before is not None:
        readings = [block.reading for block in before.blocks]
    elif settings.margins:
        assert maps is not None
        pairs = zip(blocks, structures, strict=True)
        readings = [maps.at(part) if kind.standardised else None for part, kind in pairs]
    return Layout(blocks, structures, readings)


def fit_maps(samples: Samples, rows: Rows | None = None) -> Margins:
    """Maps of all columns of X, from some rows or from all that have a class."""
    everyone = samples.different_rows()[0] if rows is None else rows
    seen = everyone.at(representative(np.arange(everyone.size), ENOUGH_FOR_MARGINS))
    return fit_margins(samples.X[seen.places], samples.labels[seen.places], seen.weights)


def _recoded(settings: Settings, samples: Samples, rows: Rows, maps: Margins | None) -> Layout:
    """Blocks that read columns as other numbers; those of one column stay together."""
    form = settings.shape
    X = samples.X[rows.places]
    parts = fit_parts(X, rows.weights, samples.levels, maps, form.n_steps)
    ends = np.cumsum([part.n_columns for part in parts])
    # Blocks are the same for all parts of the samples, whatever the edges that these have.
    most = np.array([form.n_steps or 1] * samples.n_numbers + list(samples.levels))
    R = 1 if form.local else len(partition_features(int(most.sum())))
    block_of = (np.cumsum(most) - most) * R // most.sum()
    blocks: list[NDArray[np.intp]] = []
    readings: list[Reading | None] = []
    for r in range(R):
        own = [i for i in np.flatnonzero(block_of == r).tolist() if parts[i].width]
        if own:
            columns = [np.arange(ends[i] - parts[i].n_columns, ends[i]) for i in own]
            reading = Recoding(tuple(parts[i] for i in own))
            blocks.append(np.concatenate(columns))
            if form.local:
                numbers = reading.forward(X[:, blocks[-1]])
                turn = fit_turn(numbers, samples.labels[rows.places], rows.weights)
                reading = replace(reading, turn=turn)
            readings.append(reading)
    return Layout(blocks, [settings.structure] * len(blocks), readings)


def count_kernels(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    layout: Layout,
    counts: NDArray[np.intp],
    unlabelled: float,
) -> list[int]:
    """The number of kernels of each block."""
    if before is not None:
        suggested = [len(block.kernels.means) for block in before.blocks]
    else:
        own, form = isinstance(settings.start, ClassKMeans), settings.shape
        suggested = []
        for m, kind in zip(layout.widths, layout.structures, strict=True):
            fine = form.fine if kind.standardised else form.fine_categories
            enough: float | None = None
            if fine:  # a kernel with a covariance of its own takes more samples
                enough = SAMPLES_PER_FEATURE_OF_FINE * m if kind.storage.per_kernel else FEWEST
            if form.linear:
                enough = np.inf
            if form.growing and own:
                suggested.append(int(grown_kernels(counts, m, kind.most_kernels).sum()))
                continue
            if isinstance(settings.start, EverySample):
                suggested.append(len(settings.start.widths) * samples.different_rows()[0].size)
                continue
            suggested.append(
                suggest_n_components(counts, m, kind.most_kernels, unlabelled, own, enough)
            )
        if settings.given is not None:
            suggested = given_sizes(settings.given, suggested)
    try:
        return _sizes(settings.n_components, suggested, bool(samples.levels))
    except ValueError as error:
        raise _for_numbers(error, samples) from None


def suit(settings: Settings, counts: NDArray[np.intp], M: int, unlabelled: bool) -> Settings:
    """Settings with the start and the blocks that suit so many samples of each class, (L,).

    Few samples are too few to start kernels of their class from, where others have no class.
    """
    shared = unlabelled and np.median(counts) < ENOUGH_OF_ONES_OWN
    start = settings.start or STARTS["em" if shared else "class-kmeans"]
    partition, n_blocks = settings.partition, settings.n_blocks
    if isinstance(partition, str):
        if partition == "auto":  # blocks that teach each other have a bit of everything
            partition = "interleaved" if unlabelled else "sequential"
        if n_blocks is None and M:
            n_blocks = usual_blocks(counts, M, unlabelled)
    return settings._replace(start=start, partition=partition, n_blocks=n_blocks)


def _for_numbers(error: ValueError, samples: Samples) -> ValueError:
    """An error about blocks or kernels, in view of the categories that there may be."""
    if not samples.levels:
        return error
    return ValueError(
        f"{error} n_blocks, partition and n_components are for the {samples.n_numbers} column(s) of"
        " numbers: categories have a block of their own."
    )


def _sizes(value: Any, suggested: Sequence[int], categories: bool) -> list[int]:
    """Kernels of each block; settings for numbers alone leave those of the categories open."""
    if not categories:
        return check_n_components(value, suggested)
    listed = np.iterable(value) and not isinstance(value, str)
    if listed and len(value) == len(suggested):
        return check_n_components(value, suggested)
    if len(suggested) == 1:  # nothing but categories
        return check_n_components(value, suggested)
    return [*check_n_components(value, suggested[:-1]), suggested[-1]]


def suggest_n_components(
    counts: NDArray[np.intp],
    m: int,
    most: float = np.inf,
    unlabelled: float = 0.0,
    own: bool = True,
    samples_per_kernel: float | None = None,
) -> int:
    """K for a block of m features, from the samples of each class (L,), and of none.

    One kernel for every 30 m samples of a class, if nothing else is said, at least 1 and at most
    20, or ``most``. Samples without a class belong to classes as often as the others do. Kernels of
    a class of their own start at samples that have one; those that all share start anywhere.
    """
    everyone = counts * (1.0 + unlabelled / counts.sum())
    enough = samples_per_kernel or SAMPLES_PER_FEATURE * m
    found = np.clip(everyone // enough, 1, min(most, MOST_PER_CLASS))
    return int((np.minimum(found, counts) if unlabelled and own else found).sum())


def grown_kernels(
    counts: FloatArray | NDArray[np.intp], m: int, most: float = np.inf
) -> NDArray[np.intp]:
    """Kernels of each class in a block of m features of a stream, for so many samples (L,).

    One for every 3 m samples up to 8, so that those that come later find kernels to move; beyond
    that one for every 30 m, at most 20 or ``most``, as where all samples are there at once.
    """
    soon = np.minimum(counts // (SAMPLES_PER_FEATURE_OF_FINE * m), MOST_OF_SMALL_CLASS)
    found = np.maximum(soon, counts // (SAMPLES_PER_FEATURE * m))
    return np.clip(found, 1, min(most, MOST_PER_CLASS)).astype(np.intp)


def usual_blocks(counts: NDArray[np.intp], M: int, unlabelled: bool) -> int:
    """The number of blocks of M features.

    Where classes have fewer samples than there are features, blocks teach each other the classes of
    samples without one, and there are three of them at least.
    """
    usual = len(partition_features(M))
    if not unlabelled or np.median(counts) >= M:
        return usual
    return max(usual, min(BLOCKS_THAT_TEACH, M // FEWEST_THAT_TEACH))


def _numbers(
    settings: Settings,
    samples: Samples,
    before: Model | None,
    seed: int,
    rows: Rows,
) -> list[NDArray[np.intp]]:
    """The blocks of the columns of X that are numbers."""
    n_blocks = settings.n_blocks or "auto"
    M, partition = samples.n_numbers, settings.partition
    learned = isinstance(partition, str) and partition in ("random", "dependence")
    if before is not None and learned:
        # What chance or other data decided stays as it was, if as many blocks are wanted.
        blocks = partition_features(M, n_blocks)
        known = [block.features for block in before.blocks if block.structure.standardised]
        return known if len(known) == len(blocks) else blocks
    names = samples.feature_names
    if samples.levels:
        names = None if names is None else names[:M]
        partition = _among_numbers(partition, samples)
    X = samples.X[:, :M]
    return deal_blocks(X, samples.labels, n_blocks, partition, seed, names, rows)


def _among_numbers(partition: Any, samples: Samples) -> Any:
    """A partition of the user's columns as one of the features that are numbers."""
    if isinstance(partition, str) or samples.numeric is None:
        return partition
    places = {int(column): i for i, column in enumerate(samples.numeric)}
    found = []
    for r, block in enumerate(partition):
        listed = np.asarray(block)
        if listed.dtype.kind in "iu":
            out = [int(column) for column in listed.ravel() if int(column) not in places]
            if out:
                raise ValueError(
                    f"partition[{r}] holds column {out[0]}, which is no column of numbers."
                    " Categories have a block of their own."
                )
            listed = np.array([places[int(column)] for column in listed.ravel()])
        found.append(listed)
    return found


def deal_blocks(
    X: FloatArray,
    labels: NDArray[np.intp],
    n_blocks: int | str,
    partition: Any,
    seed: int,
    feature_names: Sequence[str] | None = None,
    rows: Rows | None = None,
) -> list[NDArray[np.intp]]:
    """The blocks of the columns of X (N, M), with samples for a partition that follows from them.

    At most 20,000 samples are looked at. The different rows are found if they are not given.
    """
    dependence = None
    if isinstance(partition, str) and partition == "auto":
        partition = "sequential"
    if isinstance(partition, str) and partition == "dependence":
        everyone = distinct(X, labels) if rows is None else rows
        seen = everyone.at(representative(np.arange(everyone.size), ENOUGH_FOR_DEPENDENCE))
        with workers(1):  # BLAS rounds by the number of its threads
            dependence = within_class_dependence(X[seen.places], labels[seen.places], seen.weights)
    rng = np.random.default_rng([seed, 0])
    return partition_features(X.shape[1], n_blocks, partition, rng, feature_names, dependence)
