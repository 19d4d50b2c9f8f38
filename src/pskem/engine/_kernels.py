"""Kernels, and how they are made ready for evaluation without loss of digits."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._coordinates import CHUNK
from pskem.engine._evaluators import Centred, Evaluator, KernelByKernel, Product, Scratch
from pskem.engine._moments import Frame
from pskem.structures import FloatArray, Gaussians, Natural, Structure, marginal

__all__ = ["Kernels", "Prepared", "prepare"]

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
    """

    structure: Structure
    kernels: Kernels
    natural: Natural
    log_weights: FloatArray
    centred: NDArray[np.bool_]
    frame: Frame
    dtype: np.dtype[np.floating]

    @property
    def n_rows(self) -> int:
        """d: the rows of phi."""
        return self.structure.n_rows(self.kernels.means.shape[1])

    def evaluator(self, offsets: FloatArray) -> Evaluator:
        """For samples of c classes, with something to add to each kernel's log density: (c, K).

        Kernels with no weight in any of the classes are left out.
        """
        natural, m = self.natural, self.kernels.means.shape[1]
        active = np.flatnonzero((offsets > LOG_ZERO[self.dtype]).any(axis=0))
        constants = (natural.constant + offsets).T[active]
        theta = np.hstack([natural.theta[active], constants]).astype(self.dtype, copy=False)
        few = m >= MANY_FEATURES and len(active) <= FEW_KERNELS
        base: Evaluator
        if few and self.structure.without_phi is not None:
            base = KernelByKernel(self.structure.without_phi, active, theta, natural.theta.shape[1])
        else:
            base = Product(self.structure, natural, active, theta, natural.theta.shape[1])
        apart = np.flatnonzero(self.centred[active])
        if not apart.size:
            return base
        return Centred(base, self.structure, natural, theta, apart, self.frame.origins[active])

    def marginal(self, observed: NDArray[np.bool_]) -> Prepared:
        """The kernels of the observed features (m,) alone."""
        structure, kept = marginal(self.structure, self.kernels.gaussians, observed)
        return prepare(structure, Kernels(self.kernels.weights, *kept), self.dtype)

    def log_densities(self, X: FloatArray) -> FloatArray:
        """log N(x_n; mu_k, P_k), (K, n), for X (m, n), in double precision."""
        evaluator = self.evaluator(np.zeros((1, len(self.kernels.means))))
        scratch, values = Scratch(), np.empty((len(self.kernels.means), X.shape[1]))
        for low in range(0, X.shape[1], CHUNK):
            part = X[:, low : low + CHUNK].astype(self.dtype, copy=False)
            terms = evaluator.evaluate(part, np.array([0, part.shape[1]]), scratch)
            np.add(terms.values, terms.common, out=values[:, low : low + CHUNK])
        return values


def prepare(structure: Structure, kernels: Kernels, dtype: np.dtype[np.floating]) -> Prepared:
    """Kernels in natural form, and in which way each can be evaluated without loss."""
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
    return Prepared(structure, kernels, natural, log_weights, lossy, frame, dtype)
