"""Kernels, and how they are made ready for evaluation without loss of digits."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._coordinates import CHUNK
from pskem.engine._evaluators import (
    Apart,
    Centred,
    Distances,
    Evaluator,
    KernelByKernel,
    Product,
    Scratch,
)
from pskem.engine._gaps import Gapped, GappedSeparable, Gaps, pattern_keys
from pskem.engine._moments import Frame
from pskem.engine._parallel import Mapper, serial_map
from pskem.engine._sources import Source
from pskem.structures import LOG_2PI, FloatArray, Gaussians, Natural, Structure

__all__ = ["Kernels", "Prepared", "prepare", "prepare_all"]

#: Errors of the product form, in a log density near a kernel's mean, above which a kernel is
#: evaluated about its own mean (float64) or the block in float64 (float32).
TOLERATED_ERROR = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-3}
#: Origins stay within this many standard deviations of the data: from beyond, where a start may put
#: a kernel, the data themselves would cancel.
FARTHEST_ORIGIN = 1e3
#: Stands for log 0 in the products, where 0 * -inf would be NaN. Below any log density: kernels
#: farther off than float32 can take are computed in float64.
LOG_ZERO = {np.dtype(np.float64): -1e300, np.dtype(np.float32): -1e30}
#: Features from which on, and kernels up to which, kernels are evaluated one by one.
MANY_FEATURES = 48
FEW_KERNELS = 8


class Kernels(NamedTuple):
    """The parameters Theta of one block.

    weights : (L, K), rows sum to one; pi_kj of the paper is weights[j, k]
    means : (K, m)
    covariances : in the shape of the structure
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray

    @property
    def gaussians(self) -> Gaussians:
        return Gaussians(self.means, self.covariances)


class Prepared(NamedTuple):
    """Kernels made ready for an E-step in a given precision.

    log_weights : (L, K), finite
    centred : (K,) bool, kernels that are evaluated, and whose sums are taken, about their own mean
    frame : of the sums
    gapped : whether samples have gaps
    gaps : what gaps need where features are correlated within kernels
    """

    structure: Structure
    kernels: Kernels
    natural: Natural
    log_weights: FloatArray
    centred: NDArray[np.bool_]
    frame: Frame
    dtype: np.dtype[np.floating]
    gapped: bool = False
    gaps: Gaps | None = None

    @property
    def n_rows(self) -> int:
        """d: the rows of phi."""
        return self.structure.n_rows(self.kernels.means.shape[1])

    def evaluator(self, offsets: FloatArray) -> Evaluator:
        """For samples of c classes, with something to add to each kernel's log density: (c, K).

        Kernels with no weight in any of the classes are left out.
        """
        active = np.flatnonzero((offsets > LOG_ZERO[self.dtype]).any(axis=0))
        base = self._evaluator(active, offsets)
        apart = np.flatnonzero(self.centred[active]).tolist()
        if not apart:
            return base
        origins = self.frame.origins
        alone = ((row, active[[row]]) for row in apart)
        return Centred(
            base,
            tuple(Apart(row, origins[k[0]], self._evaluator(k, offsets)) for row, k in alone),
        )

    def _evaluator(self, active: NDArray[np.intp], offsets: FloatArray) -> Evaluator:
        """For some kernels, about their origins."""
        structure, natural, dtype = self.structure, self.natural, self.dtype
        if self.gapped:
            added = offsets.T[active]
            if self.gaps is not None:
                return Gapped(structure, self.gaps, natural.whitener, active, added, dtype)
            return self._separable(active, added)
        constants = (natural.constant + offsets).T[active]
        theta = np.hstack([natural.theta[active], constants]).astype(dtype, copy=False)
        d = natural.theta.shape[1]
        few = self.kernels.means.shape[1] >= MANY_FEATURES and len(active) <= FEW_KERNELS
        if few and structure.without_phi is not None:
            return KernelByKernel(structure.without_phi, active, theta, d)
        product = Product(structure, natural, active, theta, d)
        lost = natural.conditioning * np.finfo(dtype).eps
        if natural.whitener is None or not np.any(lost > TOLERATED_ERROR[dtype]):
            return product
        peak = np.log(np.diagonal(natural.whitener)).sum() - 0.5 * d * LOG_2PI
        return Distances(product, natural.theta[active], (peak + offsets).T[active])

    def _separable(self, active: NDArray[np.intp], offsets: FloatArray) -> GappedSeparable:
        separable, kernels = self.structure.separable, self.kernels
        assert separable is not None
        means = (kernels.means - self.frame.origins)[active]
        variances = separable.variances(kernels.covariances, means.shape[1])[active]
        return GappedSeparable(
            self.structure, separable, means, variances, active, offsets, self.dtype
        )

    def log_densities(self, X: FloatArray) -> FloatArray:
        """log N(x_n; mu_k, P_k), (K, n), for X (m, n), in double precision."""
        if self.gaps is not None and X.shape[1] > 1:
            order = np.lexsort(pattern_keys(X))  # samples with the same gaps together
            values = np.empty((len(self.kernels.means), X.shape[1]))
            values[:, order] = self._log_densities(X[:, order])
            return values
        return self._log_densities(X)

    def _log_densities(self, X: FloatArray) -> FloatArray:
        evaluator = self.evaluator(np.zeros((1, len(self.kernels.means))))
        scratch, values = Scratch(), np.empty((len(self.kernels.means), X.shape[1]))
        for low in range(0, X.shape[1], CHUNK):
            part = X[:, low : low + CHUNK].astype(self.dtype, copy=False)
            terms = evaluator.evaluate(part, np.array([0, part.shape[1]]), scratch)
            np.add(terms.values, terms.common, out=values[:, low : low + CHUNK])
        return values


def prepare(
    structure: Structure,
    kernels: Kernels,
    dtype: np.dtype[np.floating],
    patterns: NDArray[np.bool_] | None = None,
    parallel_map: Mapper = serial_map,
) -> Prepared:
    """Kernels in natural form, and in which way each can be evaluated without loss.

    patterns : (V, m), the patterns of gaps in the samples to come; None if they have none
    """
    natural = structure.natural(kernels.means, kernels.covariances)
    dtype = np.dtype(dtype)
    loss = natural.cancellation + natural.conditioning
    if np.any(loss * np.finfo(dtype).eps > TOLERATED_ERROR[dtype]):
        dtype = np.dtype(np.float64)
    lossy = natural.cancellation * np.finfo(dtype).eps > TOLERATED_ERROR[dtype]
    origins = np.zeros_like(kernels.means)
    if lossy.any():
        near = np.clip(kernels.means, -FARTHEST_ORIGIN, FARTHEST_ORIGIN)
        origins[lossy] = near[lossy]
        natural = structure.natural(kernels.means - origins, kernels.covariances)
    with np.errstate(divide="ignore"):
        log_weights = np.maximum(np.log(kernels.weights), LOG_ZERO[dtype])
    frame = Frame(origins, natural.whitener)
    ready = Prepared(structure, kernels, natural, log_weights, lossy, frame, dtype)
    if patterns is None:
        return ready
    gaps = None
    if structure.separable is None:
        means = kernels.means - origins
        gaps = Gaps.of(structure, means, kernels.covariances, patterns, parallel_map)
    return ready._replace(gapped=True, gaps=gaps)


def prepare_all(
    structures: Sequence[Structure],
    kernels: Sequence[Kernels],
    source: Source,
    parallel_map: Mapper,
) -> tuple[Prepared, ...]:
    """The kernels of all blocks, for the samples of a source."""
    if all(patterns is None for patterns in source.patterns):
        return tuple(parallel_map(partial(prepare, dtype=source.dtype), structures, kernels))
    # What gaps need is most of the work, and is shared out within each block.
    blocks = zip(structures, kernels, source.patterns, strict=True)
    return tuple(prepare(s, k, source.dtype, gaps, parallel_map) for s, k, gaps in blocks)
