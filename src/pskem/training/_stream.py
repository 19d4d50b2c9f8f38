"""What a model needs besides to go on learning from a stream of samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine import Kernels, Regulariser, Running, remembered
from pskem.model import Block, Model
from pskem.recoding import Recoding
from pskem.structures import FloatArray
from pskem.training._answering import Window
from pskem.training._drift import Watch
from pskem.training._order import Rows, whole_again
from pskem.training._planning import regularisers
from pskem.training._settings import Settings
from pskem.training._splitting import Samples

__all__ = ["Stream", "begin_stream", "weight_unit"]

#: The largest variance in any kernel, relative to that of the data, of a feature that is constant.
LEAST_VARIANCE = 1e-5


class Stream(NamedTuple):
    """What a model needs besides to go on learning from a stream.

    statistics : of each block, what all samples so far sum up to; None for blocks that stay
    start : the same as the stream began or branched off, and
    kept : how much of that is still in the statistics, after what was forgotten
    began : what samples counted that had been seen then, and how many parts had come
    first : names of the parts that came next; streams with one in common are not merged
    ancestors : (K,) for each block, from which of the kernels at the start each one comes; -1 - j
        for those of class j, if that came later
    origin : names the start; streams with the same one can be merged
    seen : what all samples so far count
    n_parts : how many parts came
    unit : the weight of a sample that counts as one
    window : the latest answers about samples before they were learnt from
    watch : what tells how much to remember
    plain : the kernels as the last part would have left them without its contrast; None if there
        was none, or more than kernels has changed since
    caution : how often the contrast is halved, because it has not helped
    """

    statistics: tuple[Running | None, ...]
    start: tuple[Running | None, ...]
    kept: float
    began: tuple[float, int]
    first: tuple[str, ...]
    ancestors: tuple[NDArray[np.intp], ...]
    origin: str
    seen: float
    n_parts: int
    unit: float
    window: Window
    watch: Watch
    plain: tuple[Kernels, ...] | None = None
    caution: float = 0.0

    def sealed(self) -> Stream:
        """The same, with arrays that nobody can write to."""
        _seal(self)
        return self

    def branched(self, model: Model) -> Stream:
        """The same for copies that are to be merged again: what they have in common ends here."""
        return self._replace(
            start=self.statistics,
            kept=1.0,
            began=(self.seen, self.n_parts),
            first=(),
            ancestors=_own_ancestors(model),
            origin=name_of(model, self.totals, self.unit),
        ).sealed()

    @property
    def totals(self) -> FloatArray:
        """What the samples of each class count that are remembered, (L,)."""
        return next(one.totals for one in self.statistics if one is not None)

    def watched(self, samples: Samples) -> Stream:
        """With a look at one more part, by which the memory is chosen."""
        rows = in_units(samples.different_rows()[0], samples, self.unit)
        X = samples.X[rows.places, : self.watch.means.shape[2]]
        labels = samples.labels[rows.places]
        return self._replace(watch=self.watch.seen(X, labels, rows.counted))


def _seal(value: Any) -> None:
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
    elif isinstance(value, tuple):
        for part in value:
            _seal(part)


def begin_stream(
    model: Model,
    totals: FloatArray,
    unit: float,
    found: Sequence[Running] | None = None,
) -> Stream:
    """The stream that goes on from a model of so many samples of each class, (L,).

    found : what they sum up to; None for what samples would that the kernels drew themselves
    """
    statistics: tuple[Running | None, ...] = tuple(
        (None if is_frozen(block) else _drawn(block, totals) for block in model.blocks)
        if found is None
        else found
    )
    L, M = len(model.classes), 1 + max(int(block.features.max()) for block in model.blocks)
    window, watch = Window.nobody(len(model.blocks), L), Watch.nobody(L, M)
    return Stream(
        statistics=statistics,
        start=statistics,
        kept=1.0,
        began=(float(totals.sum()), 1),
        first=(),
        ancestors=_own_ancestors(model),
        origin=name_of(model, totals, unit),
        seen=float(totals.sum()),
        n_parts=1,
        unit=unit,
        window=window,
        watch=watch,
    ).sealed()


def _drawn(block: Block, totals: FloatArray) -> Running:
    """What so many samples of each class sum up to on average, if the kernels drew them.

    The floor is no variance: there is none in features of which no kernel has more.
    """
    structure, kernels = block.structure, block.kernels
    if structure.standardised and not structure.common_scale:
        dense = structure.storage.dense(kernels.covariances, *kernels.means.shape)
        varying = np.diagonal(dense, axis1=1, axis2=2).max(axis=0) > LEAST_VARIANCE
        covariances = structure.storage.rescale(kernels.covariances, varying.astype(np.float64))
        kernels = kernels._replace(covariances=covariances)
    return remembered(structure, kernels, totals)


def _own_ancestors(model: Model) -> tuple[NDArray[np.intp], ...]:
    return tuple(np.arange(len(kernels.means)) for kernels in model.kernels)


def name_of(model: Model, totals: FloatArray, unit: float) -> str:
    """What tells streams apart that are elsewhere: a hash of the model and what it has seen."""
    digest = sha256(np.append(totals, unit).tobytes())
    for block in model.blocks:
        digest.update(repr(block.structure).encode())
        for part in (block.features, *block.coordinates, *block.kernels):
            digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()


def is_frozen(block: Block) -> bool:
    """Whether a block stays as it is: its columns are read as other numbers, and EM is not for it.

    Such are kernels at every sample, and a linear form.
    """
    return isinstance(block.reading, Recoding)


def weight_unit(samples: Samples) -> float:
    """The weight that counts as one: weights below one on average are scaled up to one."""
    return 1.0 if samples.weights is None else min(1.0, float(samples.weights.mean()))


def in_units(rows: Rows, samples: Samples, unit: float) -> Rows:
    """Rows whose weights count in units of the first part, not in their own."""
    factor = weight_unit(samples) / unit
    return rows if factor == 1.0 else Rows(rows.places, whole_again(rows.counted * factor))


def regularisers_of(
    model: Model, settings: Settings, unlabelled: bool = False
) -> list[Regulariser]:
    """What holds the M-steps of the blocks of a model back."""
    widths = [block.kernels.means.shape[1] for block in model.blocks]
    structures = [block.structure for block in model.blocks]
    return regularisers(settings, widths, structures, unlabelled)


def with_class_priors(model: Model, totals: FloatArray, given: FloatArray | None) -> Model:
    """The model with the priors of its stream, or given ones; classes that are absent have none."""
    priors = totals if given is None else np.where(totals > 0.0, given, 0.0)
    if not priors.any():
        priors = totals
    return replace(model, priors=priors / priors.sum(), shift=None)
