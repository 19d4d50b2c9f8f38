"""Kernels evaluated on samples with gaps (NaN), and the sums that whole samples would have.

Gaps are missing at random: a sample's density is that of the features it has. Given kernel k with
mean mu and precision A = P^-1, the features Q that a sample x lacks are Gaussian,

    x_Q = G (mu - x) on average, with G = A_QQ^-1 A_Q. and covariance A_QQ^-1,

where x stands with zeros in its gaps. The marginal precision of the others is A - A_.Q G. All of it
is the same for samples that lack the same features, so sums over these need the moments of x alone
and are completed once for each pattern of gaps and kernel (Ghahramani & Jordan, 1994): at the end
of a pass or, where there are too many patterns to wait for it, tile by tile.

Features that are uncorrelated within kernels need no patterns: a gap just drops out of the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pskem.engine._evaluators import Scratch, Sums, Terms, mark
from pskem.engine._parallel import Mapper
from pskem.structures import (
    LOG_2PI,
    STRUCTURES,
    FloatArray,
    Separable,
    Structure,
    invert_lower,
    upper_triangle,
)

__all__ = [
    "Gapped",
    "GappedSeparable",
    "Gaps",
    "distinct_patterns",
    "fill",
    "joint_patterns",
    "pattern_keys",
]

#: Numbers of the natural parameters that are kept for a pass; if there would be more, they are made
#: when they are needed.
MOST_KEPT = 2**24
#: Numbers of the matrices that are worked on at a time.
AT_A_TIME = 2**19
#: phi of samples whose features are correlated, whatever the structure.
_FULL = STRUCTURES["full"]


def pattern_keys(X: FloatArray) -> NDArray[np.uint8]:
    """What samples (m, n) lack, as bits: (bytes, n)."""
    return np.packbits(np.isnan(X), axis=0)


class Run(NamedTuple):
    """Samples next to each other that lack the same features; ``key`` says which."""

    key: bytes
    samples: slice


def _runs(gaps: NDArray[np.bool_]) -> list[Run]:
    """The runs of samples whose gaps are (m, n)."""
    n = gaps.shape[1]
    changes = (gaps[:, 1:] != gaps[:, :-1]).any(axis=0)
    ends = np.concatenate([[0], np.flatnonzero(changes) + 1, [n]]) if n else np.zeros(1, np.intp)
    keys = np.packbits(gaps[:, ends[:-1]], axis=0).T
    places = zip(keys, pairwise(ends.tolist()), strict=True)
    return [Run(key.tobytes(), slice(*samples)) for key, samples in places]


def _patterns(keys: Iterable[bytes], m: int) -> NDArray[np.bool_]:
    """The gaps that keys stand for: (V, m)."""
    bits = np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(-1, -(-m // 8))
    return np.unpackbits(bits, axis=1, count=m).astype(bool)


def distinct_patterns(X: FloatArray) -> NDArray[np.bool_] | None:
    """The different patterns of gaps in samples (m, n): (V, m), True where there is a gap.

    None if there is no gap at all.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        suspicious = np.isnan(X.sum())  # NaN also for some huge values, but never without gaps
    gaps = np.isnan(X) if suspicious else None
    if gaps is None or not gaps.any():
        return None
    return _patterns(sorted({run.key for run in _runs(gaps)}), len(X))


def joint_patterns(
    one: NDArray[np.bool_] | None, other: NDArray[np.bool_] | None
) -> NDArray[np.bool_] | None:
    """The different patterns of both, or so many that nothing is kept for any of them."""
    if one is None or other is None:
        return other if one is None else one
    found = np.unique(np.concatenate([one, other]), axis=0)
    return found[: 1 + MOST_KEPT // found.shape[1] ** 2]


class Completions(NamedTuple):
    """What kernels make of V patterns of gaps, with p features that are there and q that are not.

    seen, missing : (V, p) and (V, q), the features
    theta : (V, K, d + 1), natural parameters of the marginals, and the rest of the log density; d
        is that of p features
    slope : (V, K, q, p), G of the features that are there
    offset : (V, K, q), the missing features are offset - slope @ x on average
    left : (V, K, q, q), and vary by that
    """

    seen: NDArray[np.intp]
    missing: NDArray[np.intp]
    theta: FloatArray
    slope: FloatArray
    offset: FloatArray
    left: FloatArray

    @classmethod
    def joined(cls, parts: Sequence[Completions]) -> Completions:
        """Those of the same patterns and the kernels of all parts."""
        seen, missing = parts[0][:2]
        columns = zip(*(part[2:] for part in parts), strict=True)
        return cls(seen, missing, *(np.concatenate(column, axis=1) for column in columns))

    def at(self, patterns: NDArray[np.intp], kernels: NDArray[np.intp]) -> Completions:
        """Those of some patterns and kernels."""
        both = patterns[:, None], kernels
        own = (part[both] for part in self[2:])
        return Completions(self.seen[patterns], self.missing[patterns], *own)


class Gaps(NamedTuple):
    """Kernels in the form that samples with gaps need.

    precisions : (K, m, m)
    means : (K, m), from the kernels' origins
    log_det : (K,), of the covariances
    kept : by the number of missing features, the places of patterns and their completions, of all
        kernels; empty if there are too many
    """

    precisions: FloatArray
    means: FloatArray
    log_det: FloatArray
    kept: dict[int, tuple[dict[bytes, int], Completions]]

    @classmethod
    def of(
        cls,
        structure: Structure,
        means: FloatArray,
        covariances: FloatArray,
        patterns: NDArray[np.bool_],
        parallel_map: Mapper,
    ) -> Gaps:
        """For samples with these patterns of gaps, (V, m)."""
        K, m = means.shape
        dense = structure.storage.dense(covariances, K, m)
        if not structure.storage.per_kernel:
            dense = dense[:1]
        root = invert_lower(np.linalg.cholesky(dense))
        precisions = np.broadcast_to(root.swapaxes(1, 2) @ root, (K, m, m))
        log_det = -2.0 * np.log(np.diagonal(root, axis1=1, axis2=2)).sum(axis=1)
        gaps = cls(precisions, means, np.broadcast_to(log_det, K), {})
        if len(patterns) * K * m * m > MOST_KEPT:
            return gaps
        numbers = patterns.sum(axis=1)
        groups = {q: patterns[numbers == q] for q in np.unique(numbers).tolist()}
        some = max(1, AT_A_TIME // (len(patterns) * m * m))
        chunks = [np.arange(low, min(low + some, K)) for low in range(0, K, some)]
        tasks = list(product(groups, chunks))
        columns = zip(*tasks, strict=True)
        made = list(parallel_map(lambda q, some: gaps._completions(groups[q], q, some), *columns))
        kept = {}
        for i, (q, same) in enumerate(groups.items()):
            places = {key.tobytes(): v for v, key in enumerate(np.packbits(same, axis=1))}
            parts = made[i * len(chunks) : (i + 1) * len(chunks)]
            kept[q] = places, Completions.joined(parts)
        return gaps._replace(kept=kept)

    def complete(
        self, keys: Sequence[bytes], kernels: NDArray[np.intp]
    ) -> Iterator[tuple[list[bytes], Completions]]:
        """Completions for some kernels, of some patterns at a time that lack as many features."""
        m = self.means.shape[1]
        patterns = _patterns(keys, m)
        numbers = patterns.sum(axis=1)
        most = max(1, AT_A_TIME // (len(kernels) * m * m))
        for q in np.unique(numbers).tolist():
            same = np.flatnonzero(numbers == q)
            for low in range(0, len(same), most):
                here = same[low : low + most]
                some = [keys[i] for i in here]
                if self.kept:
                    places, completions = self.kept[q]
                    found = np.array([places[key] for key in some], dtype=np.intp)
                    yield some, completions.at(found, kernels)
                else:
                    yield some, self._completions(patterns[here], q, kernels)

    def _completions(
        self, patterns: NDArray[np.bool_], q: int, kernels: NDArray[np.intp]
    ) -> Completions:
        """Completions of patterns (V, m) that lack q features, for some kernels."""
        V, m = patterns.shape
        missing = np.nonzero(patterns)[1].reshape(V, q)
        seen = np.nonzero(~patterns)[1].reshape(V, m - q)
        means, precisions = self.means[kernels], self.precisions[kernels]
        rows = precisions[:, missing].swapaxes(0, 1)  # A_Q., (V, K, q, m)
        core = np.take_along_axis(rows, missing[:, None, None], axis=3)  # A_QQ
        left = np.linalg.inv(core)
        left = 0.5 * (left + left.swapaxes(2, 3))
        across = np.take_along_axis(rows, seen[:, None, None], axis=3)  # A_QO
        slope = left @ across
        own = precisions[:, seen[:, :, None], seen[:, None]].swapaxes(0, 1)
        marginal = own - across.swapaxes(2, 3) @ slope
        centres = means[:, seen].swapaxes(0, 1)  # (V, K, p)
        linear = (marginal @ centres[..., None])[..., 0]
        # |P_OO| = |P| |A_QQ|; nothing observed, nothing said.
        log_det = self.log_det[kernels] + np.linalg.slogdet(core).logabsdet if q < m else 0.0
        constant = -0.5 * ((centres * linear).sum(axis=2) + log_det + (m - q) * LOG_2PI)
        a, b = upper_triangle(m - q)
        quadratic = marginal[..., a, b] * np.where(a == b, -0.5, -1.0)
        theta = np.concatenate([quadratic, linear, constant[..., None]], axis=2)
        offset = means[:, missing].swapaxes(0, 1) + (slope @ centres[..., None])[..., 0]
        return Completions(seen, missing, theta, slope, offset, left)


class Gapped(NamedTuple):
    """Kernels with correlated features, pattern by pattern, by the features that are there."""

    structure: Structure
    gaps: Gaps
    whitener: FloatArray | None
    active: NDArray[np.intp]
    offsets: FloatArray  # (K', c), what is added to log densities in each class
    dtype: np.dtype[np.floating]

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        (m, n), (K, c) = X.shape, self.offsets.shape
        runs = _runs(np.isnan(X))
        thetas = self._thetas(list({run.key: None for run in runs}))
        shape = _FULL.n_rows(m) + c, n
        room = scratch.array("phi", shape, self.dtype).reshape(-1)
        factors = scratch.array("factors", shape, self.dtype).reshape(-1)
        values = scratch.array("values", (K, n), self.dtype)
        parts = []
        used = 0
        for key, samples in runs:
            seen, theta = thetas[key]
            size = samples.stop - samples.start
            phi = room[used : used + theta.shape[1] * size].reshape(theta.shape[1], size)
            used += phi.size
            _products(X[seen, samples].astype(self.dtype, copy=False), phi, factors)
            if c == 1:
                phi[-1] = 1.0
            else:
                mark(phi[-c:], np.clip(bounds, samples.start, samples.stop) - samples.start)
            np.matmul(theta, phi, out=values[:, samples])
            parts.append((key, samples, phi))
        return Terms(values, 0.0, X, room, bounds, parts)

    def _thetas(self, keys: list[bytes]) -> dict[bytes, tuple[NDArray[np.intp], FloatArray]]:
        """The features that are there, and theta with the constants of all classes, (K', d + c)."""
        found: dict[bytes, tuple[NDArray[np.intp], FloatArray]] = {}
        for some, completions in self.gaps.complete(keys, self.active):
            theta = completions.theta
            whole = np.concatenate([theta[..., :-1], theta[..., -1:] + self.offsets], axis=2)
            pairs = zip(completions.seen, whole.astype(self.dtype, copy=False), strict=True)
            found.update(zip(some, pairs, strict=True))
        return found

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        """Sums of whole samples, or, where patterns are few, what they will be made from."""
        K, c = self.offsets.shape
        masses = np.zeros((K, c))
        known: dict[bytes, FloatArray] = {}
        for key, samples, phi in terms.runs:
            part = (W[:, samples] @ phi.T).astype(np.float64, copy=False)  # (K', d + c)
            masses += part[:, -c:]
            if c > 1:
                part = np.hstack([part[:, :-c], part[:, -c:].sum(axis=1, keepdims=True)])
            known[key] = known[key] + part if key in known else part
        if self.gaps.kept:
            nothing, kernels = np.zeros((K, self._n_rows(terms))), self.active.tobytes()
            pending = {(key, kernels): part for key, part in known.items()}
            return Sums(np.hstack([nothing, masses]), np.zeros(()), pending)
        whole = fill(self.structure, self.gaps, self.whitener, known, self.active)
        return Sums(np.hstack([whole.phi, masses]), whole.scatter)

    def _n_rows(self, terms: Terms) -> int:
        return self.structure.n_rows(len(terms.X))


def _products(X: FloatArray, phi: FloatArray, room: FloatArray) -> None:
    """Write phi of few samples (m, n): as Full does, but in few calls."""
    m, n = X.shape
    a, b = upper_triangle(m)
    first, second = phi[: len(a)], room[: len(a) * n].reshape(len(a), n)
    np.take(X, a, axis=0, out=first, mode="clip")
    np.take(X, b, axis=0, out=second, mode="clip")
    first *= second
    phi[len(a) : len(a) + m] = X


def fill(
    structure: Structure,
    gaps: Gaps,
    whitener: FloatArray | None,
    known: Mapping[bytes, FloatArray],
    kernels: NDArray[np.intp],
) -> Sums:
    """The sums of phi of whole samples, (K', d), in the structure's own form.

    From sums of phi and masses, (K', d + 1), of the features that are there, for each pattern.
    """
    K, m = len(kernels), gaps.means.shape[1]
    first, second = np.zeros((K, m)), np.zeros((K, m, m))
    for some, completions in gaps.complete(list(known), kernels):
        parts = _whole(completions, np.array([known[key] for key in some]), m)
        for total, part in zip((first, second), parts, strict=True):
            total += part.sum(axis=0)
    own, common = structure.spread(np.ones(K), structure.storage.compact(second), m)
    if whitener is not None:
        first, common = first @ whitener.T, whitener @ common @ whitener.T
    return Sums(np.hstack([own, first]), common)


@cache
def _unpacked(m: int) -> NDArray[np.intp]:
    """Where the entries of a symmetric matrix stand among those of its upper triangle: (m, m)."""
    places = np.empty((m, m), dtype=np.intp)
    a, b = upper_triangle(m)
    places[a, b] = places[b, a] = np.arange(len(a))
    places.flags.writeable = False
    return places


def _whole(completions: Completions, known: FloatArray, m: int) -> tuple[FloatArray, FloatArray]:
    """First (V, K, m) and second moments (V, K, m, m) of whole samples.

    From the sums of phi and the masses, (V, K, d + 1), of the features that are there.
    """
    seen, missing, _, slope, offset, left = completions
    V, K, _, p = slope.shape
    n, x_O = known[..., -1:], known[..., known.shape[2] - 1 - p : -1]
    O_O = known[..., _unpacked(p)]  # sums of x_O x_O', (V, K, p, p)
    x_Q = n * offset - (slope @ x_O[..., None])[..., 0]
    Q_O = offset[..., None] * x_O[:, :, None] - slope @ O_O
    Q_Q = x_Q[..., None] * offset[:, :, None] - Q_O @ slope.swapaxes(2, 3)
    Q_Q += n[..., None] * left
    Q_Q = 0.5 * (Q_Q + Q_Q.swapaxes(2, 3))
    order = np.concatenate([seen, missing], axis=1)  # of the features in what was made
    there, back = np.arange(V)[:, None], np.argsort(order, axis=1)
    first = np.concatenate([x_O, x_Q], axis=2)
    rows = np.concatenate([O_O, Q_O.swapaxes(2, 3)], axis=3)
    second = np.concatenate([rows, np.concatenate([Q_O, Q_Q], axis=3)], axis=2)
    first = first[there[:, None], np.arange(K)[:, None], back[:, None]]
    places = back[:, None, :, None], back[:, None, None]
    second = second[there[:, None, None], np.arange(K)[:, None, None], *places]
    return first, second


class GappedSeparable(NamedTuple):
    """Kernels with uncorrelated features: a gap drops out of a sum over features.

    phi is x^2, x and whether x is there, for every feature.
    """

    structure: Structure
    separable: Separable
    means: FloatArray  # (K', m), from the kernels' origins
    variances: FloatArray  # (K', m)
    active: NDArray[np.intp]
    offsets: FloatArray  # (K', c), what is added to log densities in each class
    dtype: np.dtype[np.floating]

    def evaluate(self, X: FloatArray, bounds: NDArray[np.intp], scratch: Scratch) -> Terms:
        (m, n), (K, c) = X.shape, self.offsets.shape
        precisions = 1.0 / self.variances
        linear = precisions * self.means
        constant = -0.5 * (self.means * linear + np.log(self.variances) + LOG_2PI)
        theta = np.hstack([-0.5 * precisions, linear, constant, self.offsets])
        phi = scratch.array("phi", (3 * m + c, n), self.dtype)
        seen = ~np.isnan(X)
        phi[m : 2 * m] = np.where(seen, X, 0.0)
        np.square(phi[m : 2 * m], out=phi[:m])
        phi[2 * m : 3 * m] = seen
        mark(phi[3 * m :], bounds)
        values = scratch.array("values", (K, n), self.dtype)
        np.matmul(theta.astype(self.dtype, copy=False), phi, out=values)
        return Terms(values, 0.0, X, phi, bounds)

    def collect(self, terms: Terms, W: FloatArray, balance: FloatArray | float) -> Sums:
        K, m = self.means.shape
        sums = (W @ terms.phi.T).astype(np.float64)
        squares, first, seen, masses = np.split(sums, [m, 2 * m, 3 * m], axis=1)
        absent = masses.sum(axis=1, keepdims=True) - seen
        second = squares + absent * (self.means**2 + self.variances)
        first = first + absent * self.means
        packed = self.structure.spread(np.ones(K), self.separable.from_variances(second), m)
        return Sums(np.hstack([packed.own, first, masses]), packed.common)
