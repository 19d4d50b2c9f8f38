"""Kernels and their evaluation as one matrix product, with the cases where that would lose digits.

For samples of some classes, phi(x) is the feature map of the covariance structure followed by one
indicator row per class, and Theta holds the natural parameters followed by one column of constants
per class. Then Theta @ phi(X) is log pi_kj + log N(x_n; mu_k, P_k), (K, n), in one product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray, Natural, OneByOne, Structure

__all__ = [
    "Kernels",
    "Prepared",
    "Product",
    "Scratch",
    "Terms",
    "exp_in_place",
    "features_about_mean",
    "kernel_log_densities",
    "log_terms",
    "make_product",
    "prepare",
    "softmax_in_place",
]

#: Errors of the product form, in a log density near a kernel's mean, above which a kernel is
#: evaluated about its own mean (float64) or the block in float64 (float32).
TOLERATED_ERROR = {np.dtype(np.float64): 1e-8, np.dtype(np.float32): 1e-3}
#: Origins stay within this many standard deviations of the data: from beyond, where a start may put
#: a kernel, the data themselves would cancel.
FARTHEST_ORIGIN = 1e3
#: Stands for log 0 in the products, where 0 * -inf would be NaN. Below any log density: kernels
#: farther off than float32 can take are computed in float64.
LOG_ZERO = {np.dtype(np.float64): -1e300, np.dtype(np.float32): -1e30}
#: exp of anything below is zero or denormal, and very slow.
LOWEST_EXPONENT = {np.dtype(np.float64): -708.0, np.dtype(np.float32): -87.0}


class Kernels(NamedTuple):
    """The parameters Theta of one block.

    weights : (L, K), rows sum to one; pi_kj of the paper is weights[j, k]
    means : (K, m)
    covariances : in the shape of the structure
    """

    weights: FloatArray
    means: FloatArray
    covariances: FloatArray


class Prepared(NamedTuple):
    """Kernels made ready for an E-step in a given precision."""

    kernels: Kernels
    natural: Natural
    log_weights: FloatArray  # (L, K), finite
    centred: frozenset[int]  # kernels that are evaluated about their own mean
    origins: FloatArray  # (K, m): about which kernels are evaluated; zero but for the centred
    dtype: np.dtype[np.floating]


def prepare(structure: Structure, kernels: Kernels, dtype: np.dtype[np.floating]) -> Prepared:
    """Kernels in natural form, and in which way each can be evaluated without loss."""
    natural = structure.natural(kernels.means, kernels.covariances)
    dtype = np.dtype(dtype)
    loss = natural.cancellation + natural.conditioning
    if np.any(loss * np.finfo(dtype).eps > TOLERATED_ERROR[dtype]):
        dtype = np.dtype(np.float64)
    lossy = natural.cancellation * np.finfo(dtype).eps > TOLERATED_ERROR[dtype]
    near = np.clip(kernels.means, -FARTHEST_ORIGIN, FARTHEST_ORIGIN)
    origins = np.where(lossy[:, None], near, 0.0)
    if lossy.any():
        natural = structure.natural(kernels.means - origins, kernels.covariances)
    with np.errstate(divide="ignore"):
        log_weights = np.maximum(np.log(kernels.weights), LOG_ZERO[dtype])
    centred = frozenset(np.flatnonzero(lossy).tolist())
    return Prepared(kernels, natural, log_weights, centred, origins, dtype)


class Product(NamedTuple):
    """The left factor of the E-step for samples of some classes."""

    active: NDArray[np.intp]  # (K',): the kernels with weight in any of the classes
    theta: FloatArray  # (K', d + c): natural parameters, then one column of constants per class
    centred: list[tuple[int, int]]  # (row, kernel) of the kernels that are evaluated apart


def make_product(prepared: Prepared, offsets: FloatArray) -> Product:
    """For samples of c classes, with something to add to each kernel's log density: (c, K)."""
    natural = prepared.natural
    active = np.flatnonzero((offsets > LOG_ZERO[prepared.dtype]).any(axis=0))
    theta = np.hstack([natural.theta[active], (natural.constant + offsets).T[active]])
    centred = [(i, k) for i, k in enumerate(active.tolist()) if k in prepared.centred]
    return Product(active, theta.astype(prepared.dtype, copy=False), centred)


class Terms(NamedTuple):
    """The log terms of a chunk and what made them."""

    values: FloatArray  # (K', n)
    common: FloatArray | float  # (n,): what all values lack
    X: FloatArray  # (m, n)
    phi: FloatArray  # (d + c, n): features, unless it goes without; one indicator row per class
    forms: OneByOne | None  # how it goes without

    def sums(self, W: FloatArray) -> FloatArray:
        """W @ phi(X)', (K', d + c), for W (K', n)."""
        if self.forms is None:
            return W @ self.phi.T
        return np.hstack([self.forms.collect(W, self.X), W @ self.phi.T])


class Scratch:
    """Memory for the two large arrays of a chunk, used again for the next one."""

    def __init__(self) -> None:
        self._buffers: dict[str, FloatArray] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: np.dtype[np.floating]) -> FloatArray:
        size = shape[0] * shape[1]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size, dtype=dtype)
        return buffer[:size].reshape(shape)


def log_terms(
    structure: Structure,
    prepared: Prepared,
    product: Product,
    X: FloatArray,
    bounds: NDArray[np.intp],
    scratch: Scratch,
) -> Terms:
    """offset + log N(x_n; mu_k, P_k) - common(x_n) for X (m, n), whose classes begin at bounds."""
    active, theta, centred = product
    d, c, n = structure.n_rows(len(X)), len(bounds) - 1, X.shape[1]
    forms = structure.one_by_one(len(active), len(X))
    made = d if forms is None else 0
    phi = scratch.array("phi", (made + c, n), prepared.dtype)
    indicators = phi[made:]
    indicators[:] = 1.0 if c == 1 else 0.0
    if c > 1:
        for j in range(c):
            indicators[j, bounds[j] : bounds[j + 1]] = 1.0
    values = scratch.array("values", (len(active), n), prepared.dtype)
    common: FloatArray | float = 0.0
    if forms is None:
        structure.features(prepared.natural, X, phi[:d])
        np.matmul(theta, phi, out=values)
        common = structure.common(phi[:d])
    else:
        forms.evaluate(theta[:, :d], X, values)
        values += theta[:, d:] @ indicators
    for row, k in centred:
        local = features_about_mean(structure, prepared, X, k)
        values[row] = theta[row, :d] @ local + theta[row, d:] @ indicators
    return Terms(values, common, X, phi, forms)


def features_about_mean(
    structure: Structure, prepared: Prepared, X: FloatArray, k: int
) -> FloatArray:
    """phi(x - mu_k): near the mean its terms are small, so nothing cancels."""
    local = np.empty((structure.n_rows(len(X)), X.shape[1]), dtype=prepared.dtype)
    structure.features(prepared.natural, X - prepared.origins[k][:, None], local)
    return local


def exp_in_place(values: FloatArray) -> None:
    """exp, with what would be denormal set to zero (and not computed: it is 5 times slower)."""
    flat = values.reshape(-1)
    low = flat < LOWEST_EXPONENT[values.dtype]
    n_low = np.count_nonzero(low)
    if n_low == 0:
        np.exp(flat, out=flat)
    elif 2 * n_low < flat.size:
        dead = np.flatnonzero(low)
        flat[dead] = 0.0
        np.exp(flat, out=flat)
        flat[dead] = 0.0
    else:
        high = np.flatnonzero(~low)
        powers = np.exp(flat[high])
        flat.fill(0.0)
        flat[high] = powers


def softmax_in_place(values: FloatArray) -> FloatArray:
    """Turn log terms (K, n) into responsibilities; return the log-sum-exps (n,)."""
    peak = values.max(axis=0)
    values -= peak
    exp_in_place(values)
    total = values.sum(axis=0)
    values *= 1.0 / total
    return peak + np.log(total)


def kernel_log_densities(structure: Structure, prepared: Prepared, X: FloatArray) -> FloatArray:
    """log N(x_n; mu_k, P_k), (K, n), for X (m, n), in double precision."""
    X = X.astype(prepared.dtype, copy=False)
    product = make_product(prepared, np.zeros((1, len(prepared.kernels.means))))
    run = np.array([0, X.shape[1]])
    terms = log_terms(structure, prepared, product, X, run, Scratch())
    return np.add(terms.values, terms.common, dtype=np.float64)
