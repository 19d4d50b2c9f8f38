"""Fitted blocks as values in the user's units, and what can be computed from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import product
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag

from pskem.engine._kernels import Kernels, Prepared, kernel_log_densities, prepare, softmax_in_place
from pskem.engine._mixing import mix
from pskem.engine._parallel import Mapper
from pskem.engine._sources import CHUNK, Coordinates, locate
from pskem.structures import STRUCTURES, FloatArray, Structure

__all__ = [
    "HELD",
    "Block",
    "block_log_likelihoods",
    "count_at_floor",
    "draw",
    "expand",
    "information_criteria",
    "n_parameters",
    "responsibilities",
    "shared_proportion",
]

#: A class holds a kernel if its weight is at least this: the paper's threshold.
HELD = 0.01
#: Components beyond which the expansion of a partitioned model is refused.
MAX_EXPANDED = 10_000


@dataclass(frozen=True, eq=False, repr=False)
class Block:
    """The shared kernel model of one block of features, in the user's units. Immutable.

    Attributes
    ----------
    features : ndarray of shape (m,)
        Columns of X that the block uses.
    weights : ndarray of shape (n_classes, n_components)
        pi_kj of the paper; rows sum to one.
    means : ndarray of shape (n_components, m)
    covariances : ndarray
        (n_components, m, m) for ``"full"``, (m, m) for ``"tied"``, (n_components, m) for
        ``"diag"``, (n_components,) for ``"spherical"``.
    covariance_type : str
    shift, scale : ndarray of shape (m,)
        The standardised coordinates, (x - shift) / scale, in which densities are evaluated.
    allowed : ndarray of bool of shape (n_classes, n_components)
        Which weights were free to be other than zero; all of them unless `weights_init` said
        otherwise, or kernels belong to classes (`own_mass`).
    """

    features: NDArray[np.intp]
    weights: FloatArray
    means: FloatArray
    covariances: FloatArray
    covariance_type: str
    shift: FloatArray
    scale: FloatArray
    allowed: NDArray[np.bool_]

    def __post_init__(self) -> None:
        for name in ("features", "weights", "means", "covariances", "shift", "scale", "allowed"):
            array = np.array(getattr(self, name))
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[type[Block], tuple[Any, ...]]:
        # Through the constructor, so that copies are read-only too.
        return Block, tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        return (
            f"Block(n_features={len(self.features)}, n_components={len(self.means)},"
            f" n_classes={len(self.weights)}, covariance_type={self.covariance_type!r})"
        )

    @classmethod
    def from_kernels(
        cls,
        features: NDArray[np.intp],
        kernels: Kernels,
        coordinates: Coordinates,
        structure: Structure,
        allowed: NDArray[np.bool_],
    ) -> Block:
        """A block from kernels in standardised coordinates."""
        shift, scale = (np.asarray(part, dtype=np.float64) for part in coordinates)
        return cls(
            features,
            kernels.weights,
            kernels.means * scale + shift,
            structure.rescale(kernels.covariances, scale),
            structure.name,
            shift,
            scale,
            allowed,
        )

    @property
    def structure(self) -> Structure:
        return STRUCTURES[self.covariance_type]

    @property
    def coordinates(self) -> Coordinates:
        return Coordinates(self.shift, self.scale)

    @property
    def kernels(self) -> Kernels:
        """The kernels in standardised coordinates."""
        return Kernels(
            self.weights,
            (self.means - self.shift) / self.scale,
            self.structure.rescale(self.covariances, 1.0 / self.scale),
        )

    @property
    def dense_covariances(self) -> FloatArray:
        """The covariances as (n_components, m, m), whatever their type."""
        return self.structure.dense(self.covariances, *self.means.shape)

    def prepared(self, dtype: np.dtype[np.floating]) -> Prepared:
        """The kernels made ready for evaluation in a given precision."""
        return prepare(self.structure, self.kernels, dtype)

    def log_densities(self, prepared: Prepared, X: FloatArray) -> FloatArray:
        """log N(x_n; mu_k, P_k), (K, n), for rows of X (n, M)."""
        local = locate(X, self.features, self.coordinates)
        values = kernel_log_densities(self.structure, prepared, local)
        return values - self.coordinates.log_volume


def block_log_likelihoods(
    blocks: Sequence[Block], X: FloatArray, parallel_map: Mapper
) -> FloatArray:
    """log q_rj(x_n): (N, R, L), the summands of Pulford (2022), eq. (skemp)."""
    prepared = [block.prepared(X.dtype) for block in blocks]
    result = np.empty((len(X), len(blocks), len(blocks[0].weights)))

    def fill(task: tuple[int, int]) -> None:
        r, low = task
        rows = slice(low, low + CHUNK)
        log_densities = blocks[r].log_densities(prepared[r], X[rows])
        result[rows, r] = mix(log_densities, blocks[r].weights).T

    parallel_map(fill, product(range(len(blocks)), range(0, len(X), CHUNK)))
    return result


def responsibilities(
    blocks: Sequence[Block], X: FloatArray, class_posterior: FloatArray, parallel_map: Mapper
) -> list[FloatArray]:
    """p(z_r = k | x), R arrays (N, K), for given class posteriors (N, L).

    Given the class the blocks are independent, so p(z_r = k | x) is the mean of the
    E-step's responsibilities over the posterior of the class. With the indicator of a known class
    as the posterior it is the E-step's own.
    """
    prepared = [block.prepared(X.dtype) for block in blocks]
    result: list[FloatArray] = [np.zeros((len(X), len(block.means))) for block in blocks]

    def fill(task: tuple[int, int]) -> None:
        r, low = task
        rows = slice(low, low + CHUNK)
        log_densities = blocks[r].log_densities(prepared[r], X[rows])  # (K, n)
        with np.errstate(divide="ignore"):
            log_weights = np.log(blocks[r].weights)
        for log_weight, posterior in zip(log_weights, class_posterior[rows].T, strict=True):
            terms = log_weight[:, None] + log_densities
            softmax_in_place(terms)
            result[r][rows] += (posterior * terms).T

    parallel_map(fill, product(range(len(blocks)), range(0, len(X), CHUNK)))
    return result


def draw(
    blocks: Sequence[Block], labels: NDArray[np.intp], n_features: int, rng: np.random.Generator
) -> tuple[FloatArray, NDArray[np.intp]]:
    """One sample per label, (n, M), NaN where no block uses a column, and its kernels (n, R)."""
    X = np.full((len(labels), n_features), np.nan)
    chosen = []
    for block in blocks:
        m = len(block.features)
        factors = np.linalg.cholesky(block.dense_covariances)
        cumulative = np.cumsum(block.weights, axis=1)[labels]  # (n, K)
        z = (rng.random((len(labels), 1)) * cumulative[:, -1:] >= cumulative).sum(axis=1)
        noise = rng.standard_normal((len(labels), m))
        X[:, block.features] = block.means[z] + np.einsum("nab,nb->na", factors[z], noise)
        chosen.append(z)
    return X, np.stack(chosen, axis=1)


def n_parameters(blocks: Sequence[Block]) -> int:
    """Free parameters of the model: weights that are not fixed at zero, means, covariances."""
    total = 0
    for block in blocks:
        K, m = block.means.shape
        free_weights = np.count_nonzero(block.allowed) - len(block.allowed)
        total += int(free_weights) + K * m + block.structure.n_parameters(K, m)
    return total


class Criteria(NamedTuple):
    """Akaike's and the Bayesian information criterion; lower is better."""

    aic: float
    bic: float


def information_criteria(
    blocks: Sequence[Block], log_likelihood: float, n_samples: int
) -> Criteria:
    """From the log likelihood of the blocks on so many samples."""
    p = n_parameters(blocks)
    return Criteria(2.0 * p - 2.0 * log_likelihood, p * log(n_samples) - 2.0 * log_likelihood)


def count_at_floor(blocks: Sequence[Block], floor: float) -> int:
    """Kernels whose smallest variance, relative to that of the data, is the floor."""
    smallest = [
        np.linalg.eigvalsh(block.structure.dense(block.kernels.covariances, *block.means.shape))
        for block in blocks
    ]
    return int(sum((values.min(axis=1) <= floor * (1.0 + 1e-6)).sum() for values in smallest))


def shared_proportion(blocks: Sequence[Block], threshold: float) -> float:
    """N_S / N_T of the paper's section 3.3, both summed over the blocks before the division."""
    holders = np.concatenate([(block.weights >= threshold).sum(axis=0) for block in blocks])
    n_total = holders.sum()
    return float(holders[holders > 1].sum() / n_total) if n_total else 0.0


def expand(blocks: Sequence[Block]) -> Block:
    """The equivalent model with one block: Pulford (2022), Appendix B.

    Every choice of one kernel per block is a component; its weight in a class is the product of
    the weights, its mean the concatenation, its covariance the direct sum.
    """
    sizes = [len(block.means) for block in blocks]
    count = float(np.prod(sizes, dtype=float))
    if count > MAX_EXPANDED:
        raise ValueError(
            f"The expanded mixture would have {' x '.join(map(str, sizes))} = {count:.3g}"
            f" components; at most {MAX_EXPANDED} are accepted. Use fewer components or blocks;"
            " block_log_likelihood gives the same likelihood without the expansion."
        )
    features = np.concatenate([block.features for block in blocks])
    order = np.argsort(features)
    dense = [block.dense_covariances for block in blocks]
    weights, means, covariances, allowed = [], [], [], []
    for choice in product(*map(range, sizes)):
        chosen = list(zip(choice, blocks, strict=True))
        weights.append(np.prod([block.weights[:, k] for k, block in chosen], axis=0))
        means.append(np.concatenate([block.means[k] for k, block in chosen])[order])
        allowed.append(np.all([block.allowed[:, k] for k, block in chosen], axis=0))
        joint = block_diag(*(dense[r][k] for r, k in enumerate(choice)))
        covariances.append(joint[np.ix_(order, order)])
    return Block(
        features[order],
        np.array(weights).T,
        np.array(means),
        np.array(covariances),
        "full",
        np.concatenate([block.shift for block in blocks])[order],
        np.concatenate([block.scale for block in blocks])[order],
        np.array(allowed).T,
    )
