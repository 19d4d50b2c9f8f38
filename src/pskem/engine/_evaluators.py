"""Kernels evaluated on samples, and samples collected under kernels.

For samples of some classes, phi(x) is the feature map of the structure followed by one indicator
row per class, and theta holds the natural parameters followed by one column of constants per class.
Then theta @ phi(X) is log pi_kj + log N(x_n; mu_k, P_k), (K, n), in one product, and W @ phi(X)'
has the sums of phi and the masses of every class. Where a product is not the best way, another
evaluator takes its place.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pskem.structures import FloatArray, Natural, Structure, WithoutPhi

__all__ = ["Centred", "Evaluator", "KernelByKernel", "Product", "Scratch", "Terms"]


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
    """

    values: FloatArray
    common: FloatArray | float
    X: FloatArray
    phi: FloatArray


class Evaluator(Protocol):
    """Two products with phi, for the kernels ``active``, (K',)."""

    @property
    def active(self) -> NDArray[np.intp]: ...

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        """theta @ phi(X), (K', n), for X (m, n), whose c classes begin at bounds, (c + 1,)."""
        ...

    def collect(self, terms: Terms, W: FloatArray) -> FloatArray:
        """W @ phi(X)', (K', d + c), for W (K', n) and the X of the terms."""
        ...


def _mark(indicators: FloatArray, bounds: NDArray[np.intp]) -> None:
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
        _mark(phi[self.d :], bounds)
        values = scratch.array("values", (K, X.shape[1]), self.theta.dtype)
        np.matmul(self.theta, phi, out=values)
        common: FloatArray | float = 0.0
        if self.natural.whitener is not None:  # phi is z, and -z'z / 2 is left out
            common = -0.5 * np.einsum("an,an->n", phi[: self.d], phi[: self.d])
        return Terms(values, common, X, phi)

    def collect(self, terms: Terms, W: FloatArray) -> FloatArray:
        return W @ terms.phi.T


class KernelByKernel(NamedTuple):
    """Products with the matrix of each kernel, without phi."""

    forms: WithoutPhi
    active: NDArray[np.intp]
    theta: FloatArray  # (K', d + c)
    d: int

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        K, rows = self.theta.shape
        indicators = scratch.array("phi", (rows - self.d, X.shape[1]), self.theta.dtype)
        _mark(indicators, bounds)
        values = scratch.array("values", (K, X.shape[1]), self.theta.dtype)
        self.forms.evaluate(self.theta[:, : self.d], X, values)
        values += self.theta[:, self.d :] @ indicators
        return Terms(values, 0.0, X, indicators)

    def collect(self, terms: Terms, W: FloatArray) -> FloatArray:
        return np.hstack([self.forms.collect(W, terms.X), W @ terms.phi.T])


class Centred(NamedTuple):
    """Another evaluator, but some kernels about their own mean, where nothing cancels."""

    inner: Evaluator
    structure: Structure
    natural: Natural
    theta: FloatArray  # (K', d + c)
    rows: NDArray[np.intp]  # of the kernels that are apart
    origins: FloatArray  # (K', m)

    @property
    def active(self) -> NDArray[np.intp]:
        return self.inner.active

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        terms = self.inner.evaluate(X, bounds, scratch)
        d = self.structure.n_rows(len(X))
        indicators = terms.phi[len(terms.phi) - (self.theta.shape[1] - d) :]
        for row in self.rows:
            local = self._features(X, row)
            terms.values[row] = self.theta[row, :d] @ local + self.theta[row, d:] @ indicators
        return terms

    def collect(self, terms: Terms, W: FloatArray) -> FloatArray:
        sums = self.inner.collect(terms, W)
        for row in self.rows:
            local = self._features(terms.X, row)
            sums[row, : len(local)] = local @ W[row]
        return sums

    def _features(self, X: FloatArray, row: int) -> FloatArray:
        """phi(x - origin): near the mean its terms are small."""
        local = np.empty((self.structure.n_rows(len(X)), X.shape[1]), dtype=self.theta.dtype)
        shifted = X - self.origins[row][:, None].astype(X.dtype, copy=False)
        self.structure.features(self.natural, shifted, local)
        return local
