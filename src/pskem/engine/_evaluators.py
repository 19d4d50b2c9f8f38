"""Kernels evaluated on samples, and samples collected under kernels.

For samples of some classes, phi(x) is the feature map of the structure followed by one indicator
row per class, and theta holds the natural parameters followed by one column of constants per class.
Then theta @ phi(X) is log pi_kj + log N(x_n; mu_k, P_k), (K, n), in one product, and W @ phi(X)'
has the sums of phi and the masses of every class. Where a product is not the best way, another
evaluator takes its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray, Natural, Structure, WithoutPhi

__all__ = [
    "Apart",
    "Centred",
    "Distances",
    "Evaluator",
    "KernelByKernel",
    "Pending",
    "Product",
    "Scratch",
    "Sums",
    "Terms",
]


class Scratch:
    """Memory for the two large arrays of a tile, used again for the next one."""

    def __init__(self) -> None:
        self._buffers: dict[str, FloatArray] = {}

    def array(self, name: str, shape: tuple[int, int], dtype: np.dtype[np.floating]) -> FloatArray:
        size = shape[0] * shape[1]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size, dtype=dtype)
        return buffer[:size].reshape(shape)


class Terms(NamedTuple):
    """The log terms of a tile and what made them.

    values : (K', n), without what all kernels have in common
    common : (n,), or zero
    X : (m, n)
    phi : the rows of phi that were formed, (d + c, n), or (c, n) where only the indicators were
    bounds : (c + 1,), where the classes begin
    runs : samples with the same gaps, where there are gaps
    """

    values: FloatArray
    common: FloatArray | float
    X: FloatArray
    phi: FloatArray
    bounds: NDArray[np.intp]
    runs: Sequence[Any] = ()


#: Sums of samples with the same gaps, (K', ...), by pattern and by the kernels that they are of.
Pending = Mapping[tuple[bytes, bytes], FloatArray]


class Sums(NamedTuple):
    """What is collected.

    phi : W @ phi(X)', (K', d + c)
    scatter : z z' (m, m) where a covariance is common
    pending : sums of samples with gaps that are not in phi and scatter yet, but only their masses
    """

    phi: FloatArray
    scatter: FloatArray
    pending: Pending | None = None


class Evaluator(Protocol):
    """Two products with phi, for the kernels ``active``, (K',)."""

    @property
    def active(self) -> NDArray[np.intp]: ...

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        """theta @ phi(X), (K', n), for X (m, n), whose c classes begin at bounds, (c + 1,)."""
        ...

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        """The sums under W (K', n), whose columns add up to ``balance``, for the X of the terms."""
        ...


def mark(indicators: FloatArray, bounds: NDArray[np.intp]) -> None:
    """Write one indicator row per class, (c, n)."""
    c = len(indicators)
    indicators[:] = 1.0 if c == 1 else 0.0
    if c > 1:
        for j in range(c):
            indicators[j, bounds[j] : bounds[j + 1]] = 1.0


class Product(NamedTuple):
    """One matrix product for all kernels."""

    structure: Structure
    natural: Natural
    active: NDArray[np.intp]
    theta: FloatArray  # (K', d + c)
    d: int

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        K, rows = self.theta.shape
        phi = scratch.array("phi", (rows, X.shape[1]), self.theta.dtype)
        self.structure.features(self.natural, X, phi[: self.d])
        mark(phi[self.d :], bounds)
        values = scratch.array("values", (K, X.shape[1]), self.theta.dtype)
        np.matmul(self.theta, phi, out=values)
        common: FloatArray | float = 0.0
        if self.natural.whitener is not None:  # phi is z, and -z'z / 2 is left out
            common = -0.5 * np.einsum("an,an->n", phi[: self.d], phi[: self.d])
        return Terms(values, common, X, phi, bounds)

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        return Sums(W @ terms.phi.T, self._scatter(terms, balance))

    def _scatter(self, terms: Terms, balance: FloatArray | float) -> FloatArray:
        whitener = self.natural.whitener
        if whitener is None:
            return np.zeros(())
        if np.isscalar(balance) and balance == 0.0:
            return np.zeros_like(whitener)
        z = terms.phi[: self.d]
        return ((z if np.isscalar(balance) else z * balance) @ z.T).astype(np.float64)


class Distances(NamedTuple):
    """A product of whitened features, but log densities by the distances of samples to kernels.

    Far from the origin, in standard deviations within kernels, squares of z and theta cancel.
    """

    inner: Product
    means: FloatArray  # (K', m), whitened
    constants: FloatArray  # (K', c), the log densities at the means, and what is added to them

    @property
    def active(self) -> NDArray[np.intp]:
        return self.inner.active

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        terms = self.inner.evaluate(X, bounds, scratch)
        d = self.inner.d
        np.matmul(self.constants, terms.phi[d:], out=terms.values)
        for values, mean in zip(terms.values, self.means, strict=True):
            away = terms.phi[:d] - mean[:, None]
            values -= 0.5 * np.einsum("an,an->n", away, away)
        return terms._replace(common=0.0)

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        return self.inner.collect(terms, W, balance)


class KernelByKernel(NamedTuple):
    """Products with the matrix of each kernel, without phi."""

    forms: WithoutPhi
    active: NDArray[np.intp]
    theta: FloatArray  # (K', d + c)
    d: int

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        K, rows = self.theta.shape
        indicators = scratch.array("phi", (rows - self.d, X.shape[1]), self.theta.dtype)
        mark(indicators, bounds)
        values = scratch.array("values", (K, X.shape[1]), self.theta.dtype)
        self.forms.evaluate(self.theta[:, : self.d], X, values)
        values += self.theta[:, self.d :] @ indicators
        return Terms(values, 0.0, X, indicators, bounds)

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        sums = np.hstack([self.forms.collect(W, terms.X), W @ terms.phi.T])
        return Sums(sums, np.zeros(()))


class Apart(NamedTuple):
    """A kernel that is evaluated about an origin of its own, (m,), by its row among the others."""

    row: int
    origin: FloatArray
    evaluator: Evaluator

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp]) -> Terms:
        shifted = X - self.origin[:, None].astype(X.dtype, copy=False)
        return self.evaluator.evaluate(shifted, bounds, Scratch())


class Centred(NamedTuple):
    """Another evaluator, but some kernels about their own mean, where nothing cancels."""

    inner: Evaluator
    apart: tuple[Apart, ...]

    @property
    def active(self) -> NDArray[np.intp]:
        return self.inner.active

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        terms = self.inner.evaluate(X, bounds, scratch)
        for kernel in self.apart:
            terms.values[kernel.row] = kernel.evaluate(X, bounds).values[0]
        return terms

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        sums = self.inner.collect(terms, W, balance)
        for kernel in self.apart:
            local = kernel.evaluate(terms.X, terms.bounds)
            own = kernel.evaluator.collect(local, W[[kernel.row]], balance)
            sums.phi[kernel.row] = own.phi[0]
            for (pattern, _), part in (own.pending or {}).items():
                assert sums.pending is not None  # of the same samples
                sums.pending[pattern, self.active.tobytes()][kernel.row] = part[0]
        return sums
