"""The fitted model as one immutable value, and everything that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, logsumexp

from pskem.engine import (
    CHUNK,
    Kernels,
    Mapper,
    distinct_patterns,
    mix,
    serial_map,
    softmax_in_place,
)
from pskem.model._block import Block, frozen
from pskem.model._expansion import expand
from pskem.model._sharing import Sharing
from pskem.structures import FloatArray, draw_places

__all__ = ["HELD", "InformationCriteria", "Model", "shared_proportion"]

#: Log densities of a block that are held in memory at a time, about.
MOST_NUMBERS = 2**22
#: A class holds a kernel if its weight is at least this: the paper's threshold.
HELD = 0.01


class InformationCriteria(NamedTuple):
    """Akaike's and the Bayesian information criterion; lower is better."""

    aic: float
    bic: float


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A shared kernel model. Immutable; predictions are functions of it and nothing else.

    Attributes
    ----------
    blocks : tuple of Block
    classes : ndarray of shape (n_classes,)
    priors : ndarray of shape (n_classes,)
    block_weights : ndarray of shape (n_blocks,)
        beta_r: how much the log likelihood of each block counts in decisions.
    temperature : float
        Posterior probabilities are the softmax of
        (log priors[j] + sum_r block_weights[r] log q_rj(x)) / temperature.
    shift : ndarray of shape (n_classes,) or None
        Log of the priors over those that the model was trained with, if they are others. It is
        added to the log posteriors as it is, whatever the temperature.
    sharing : Sharing or None
        A share of the kernels of all classes that every class is given in decisions: it bounds what
        a block can say against a class. :meth:`shared` is the model whose kernels have the weights.
    views : tuple of int, or None
        Which of several models of the same features each block belongs to, if they are more than
        one. Decisions follow from all of them; the density is that of the first.
    """

    blocks: tuple[Block, ...]
    classes: NDArray[Any]
    priors: FloatArray
    block_weights: FloatArray
    temperature: float = 1.0
    shift: FloatArray | None = None
    sharing: Sharing | None = None
    views: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("classes", "priors", "block_weights"):
            object.__setattr__(self, name, frozen(getattr(self, name)))
        if self.shift is not None:
            object.__setattr__(self, "shift", frozen(self.shift))
        object.__setattr__(self, "blocks", tuple(self.blocks))
        if self.sharing is not None:
            object.__setattr__(self, "sharing", Sharing(*map(frozen, self.sharing)))
        if self.views is not None:
            object.__setattr__(self, "views", tuple(self.views))

    def __reduce__(self) -> tuple[type[Model], tuple[Any, ...]]:
        return Model, tuple(getattr(self, field.name) for field in fields(self))

    def __repr__(self) -> str:
        return f"Model(blocks={self.blocks!r}, n_classes={len(self.classes)})"

    @property
    def kernels(self) -> list[Kernels]:
        """The kernels of each block, in standardised coordinates."""
        return [block.kernels for block in self.blocks]

    @property
    def log_priors(self) -> FloatArray:
        with np.errstate(divide="ignore"):
            return np.log(self.priors)

    @property
    def n_parameters(self) -> int:
        """Free parameters of all blocks."""
        return sum(block.n_parameters for block in self.blocks)

    def with_kernels(self, kernels: Iterable[Kernels]) -> Model:
        """The same model with other kernels, in standardised coordinates."""
        pairs = zip(self.blocks, kernels, strict=True)
        other = object.__new__(Model)
        vars(other).update(vars(self), blocks=tuple(block.with_kernels(k) for block, k in pairs))
        return other

    @property
    def first_view(self) -> Model:
        """The model of the first view alone, which is a density: no feature counts twice."""
        if self.views is None:
            return self
        kept = [r for r, view in enumerate(self.views) if view == 0]
        blocks = tuple(self.blocks[r] for r in kept)
        return replace(
            self,
            blocks=blocks,
            block_weights=self.block_weights[kept],
            sharing=self._sharing_of(kept),
            views=None,
        )

    def _sharing_of(self, kept: Sequence[int]) -> Sharing | None:
        """The shares of some blocks."""
        return None if self.sharing is None else self.sharing.at(kept)

    def same_kernels(self, other: Model) -> bool:
        """Whether another model has the same kernels of the same features."""
        if len(self.blocks) != len(other.blocks):
            return False
        pairs = zip(self.blocks, other.blocks, strict=True)
        return all(
            np.array_equal(one, two)
            for a, b in pairs
            for one, two in zip((a.features, *a.kernels), (b.features, *b.kernels), strict=True)
        )

    def joint(self, log_q: FloatArray) -> FloatArray:
        """log p(c=j) + sum_r beta_r log q_rj, (n, L), from log q (n, R, L)."""
        if self.sharing is not None:
            log_q = self.sharing.apply(log_q)
        joint = (log_q * self.block_weights[:, None]).sum(axis=1) + self.log_priors
        # What is divided by the temperature later is not the shift.
        return joint if self.shift is None else joint + (self.temperature - 1.0) * self.shift

    def with_priors(self, priors: FloatArray) -> Model:
        """The same model where classes are as frequent as this, (L,).

        Posterior probabilities change by the ratio of the priors, as Bayes has it; a class that
        had none keeps none.
        """
        before = np.zeros(len(priors)) if self.shift is None else self.shift
        with np.errstate(divide="ignore", invalid="ignore"):
            both = (self.priors > 0.0) & (priors > 0.0)
            change = np.where(both, np.log(priors) - self.log_priors, 0.0)
        possible = np.where(self.priors > 0.0, priors, 0.0)
        if not possible.any():
            raise ValueError(
                "The model has no prior for any of the classes that have one now; a class that had"
                f" none keeps none. It has priors {np.round(self.priors, 6).tolist()}."
            )
        return replace(self, priors=possible / possible.sum(), shift=before + change)

    def weighed(
        self,
        block_weights: FloatArray,
        temperature: float,
        shares: FloatArray | None = None,
    ) -> Model:
        """The same model with other weights of blocks, (R,), temperature, and shares, (R,)."""
        sharing = None if shares is None else Sharing(shares, self.priors)
        return replace(self, block_weights=block_weights, temperature=temperature, sharing=sharing)

    def shared(self) -> Model:
        """The model that decides the same by the weights of its kernels: see :class:`Sharing`."""
        if self.sharing is None:
            return self
        shares = self.sharing.shares
        pools = np.broadcast_to(self.sharing.priors, (len(shares), len(self.classes)))
        parts = zip(self.blocks, shares, pools, strict=True)
        blocks = tuple(block.shared(float(share), pool) for block, share, pool in parts)
        return replace(self, blocks=blocks, sharing=None)

    def log_likelihood(self, X: FloatArray, parallel_map: Mapper = serial_map) -> FloatArray:
        """log q_rj(x_n): (N, R, L), the summands of Pulford (2022), eq. (skemp)."""
        result = np.empty((len(X), len(self.blocks), len(self.classes)))

        def see(r: int, rows: slice, log_densities: FloatArray) -> None:
            result[rows, r] = mix(log_densities, self.blocks[r].weights).T

        self._show(X, see, parallel_map)
        for r, block in enumerate(self.blocks):
            if block.reading is not None:
                result[:, r] += block.log_slopes(X)[:, None]
        return result

    def _show(
        self, X: FloatArray, see: Callable[[int, slice, FloatArray], None], parallel_map: Mapper
    ) -> None:
        """Show log N(x_n; mu_k, P_k), (K, n), of each block and some rows of X at a time.

        Densities are those of the rows after the maps of a block.
        """
        gapped = bool(np.isnan(X).any())
        patterns = (
            distinct_patterns(block.local(X)) if gapped or block.may_lack else None
            for block in self.blocks
        )
        pairs = zip(self.blocks, patterns, strict=True)
        prepared = [block.prepared(X.dtype, seen) for block, seen in pairs]

        def show(r: int, rows: slice) -> None:
            see(r, rows, self.blocks[r].log_densities(prepared[r], X[rows]))

        tasks = [
            (r, slice(low, low + size))
            for r, block in enumerate(self.blocks)
            for size in [min(CHUNK, max(1, MOST_NUMBERS // len(block.kernels.means)))]
            for low in range(0, len(X), size)
        ]
        if tasks:
            parallel_map(show, *zip(*tasks, strict=True))

    def gaps(self, X: FloatArray) -> NDArray[np.bool_]:
        """Where rows of X (n, M) lack what the model knows of; nowhere in columns of no block."""
        gaps = np.zeros(X.shape, dtype=bool)
        for block in self.first_view.blocks:
            gaps[:, block.features] = block.gaps(X)
        return gaps

    def unseen(self, n_features: int) -> NDArray[np.bool_]:
        """Columns that no sample of the training had a value in, (n_features,)."""
        unseen = np.zeros(n_features, dtype=bool)
        for block in self.first_view.blocks:
            unseen[block.features] = np.isnan(block.shift)
        return unseen

    def lacking(self, X: FloatArray) -> NDArray[np.bool_]:
        """Which rows of X lack something that the training has seen, (n,)."""
        return np.any(self.gaps(X) & ~self.unseen(X.shape[1]), axis=1)

    def without(self, X: FloatArray, missing: NDArray[np.bool_]) -> FloatArray:
        """Rows of X (n, M) with gaps in some columns, (M,)."""
        left = X.copy()
        for block in self.first_view.blocks:
            left[:, block.features[missing[block.features]]] = block.structure.gap
        return left

    def log_posterior(self, X: FloatArray, parallel_map: Mapper = serial_map) -> FloatArray:
        """log p(c=j|x_n): (N, L)."""
        return self.posterior_of(self.joint(self.log_likelihood(X, parallel_map)))

    def posterior_of(self, joint: FloatArray) -> FloatArray:
        """Log posteriors (n, L) from joint log densities (n, L)."""
        # Far from all kernels the joint is huge; the differences between classes are not.
        relative = joint - joint.max(axis=1, keepdims=True)
        return log_softmax(relative / self.temperature, axis=1)

    def log_density(self, X: FloatArray, parallel_map: Mapper = serial_map) -> FloatArray:
        """log p(x_n): (N,), of the first view. Block weights do not enter."""
        log_likelihood = self.first_view.log_likelihood(X, parallel_map).sum(axis=1)
        return logsumexp(log_likelihood + self.log_priors, axis=1)

    def responsibilities(
        self, X: FloatArray, class_posterior: FloatArray, parallel_map: Mapper = serial_map
    ) -> list[FloatArray]:
        """p(z_r = k | x), R arrays (N, K), for given class posteriors (N, L).

        Given the class the blocks are independent, so p(z_r = k | x) is the mean of the
        E-step's responsibilities over the posterior of the class. With the indicator of a known
        class as the posterior it is the E-step's own.
        """
        sizes = [len(block.kernels.means) for block in self.blocks]
        result: list[FloatArray] = [np.zeros((len(X), K)) for K in sizes]

        def see(r: int, rows: slice, log_densities: FloatArray) -> None:
            with np.errstate(divide="ignore"):
                log_weights = np.log(self.blocks[r].weights)
            for log_weight, posterior in zip(log_weights, class_posterior[rows].T, strict=True):
                terms = log_weight[:, None] + log_densities
                softmax_in_place(terms)
                result[r][rows] += (posterior * terms).T

        self._show(X, see, parallel_map)
        return result

    def marginal(self, features: Sequence[int] | NDArray[np.intp]) -> Model:
        """The model of some features alone, by their columns in X; the others are integrated out.

        A block of which nothing is observed drops out.
        """
        seen = [np.isin(block.features, features) for block in self.blocks]
        kept = [r for r, observed in enumerate(seen) if observed.any()]
        if not kept:
            raise ValueError(f"The model uses none of the features {list(features)[:10]}.")
        blocks = tuple(self.blocks[r].marginal(seen[r]) for r in kept)
        views = None if self.views is None else tuple(self.views[r] for r in kept)
        return replace(
            self,
            blocks=blocks,
            block_weights=self.block_weights[kept],
            sharing=self._sharing_of(kept),
            views=views,
        )

    def draw(
        self, labels: NDArray[np.intp], n_features: int, rng: np.random.Generator
    ) -> tuple[FloatArray, NDArray[np.intp]]:
        """One sample per label, (n, M), NaN in columns of no block, and its kernels (n, R).

        Of the first view.
        """
        X = np.full((len(labels), n_features), np.nan)
        chosen = []
        for block in self.first_view.blocks:
            z = draw_places(block.weights[labels], rng)
            X[:, block.features] = block.draw(z, rng)
            chosen.append(z)
        return X, np.stack(chosen, axis=1)

    def criteria(self, log_likelihood: float, n_samples: float) -> InformationCriteria:
        """Information criteria, from log p(X|C) of so many samples."""
        p = self.first_view.n_parameters
        lost = -2.0 * log_likelihood
        return InformationCriteria(2.0 * p + lost, p * log(n_samples) + lost)

    def count_at_floor(self, floor: float) -> int:
        """Kernels whose smallest variance, relative to that of the data, is the floor."""
        count = 0
        for block in self.blocks:
            kernels = block.kernels
            if not block.structure.standardised:
                continue
            dense = block.structure.storage.dense(kernels.covariances, *kernels.means.shape)
            smallest = np.linalg.eigvalsh(dense).min(axis=1)
            count += int((smallest <= floor * (1.0 + 1e-6)).sum())
        return count

    def shared_proportion(self, threshold: float = HELD) -> float:
        """How much of the kernels is shared: see :func:`shared_proportion`."""
        return shared_proportion(self.blocks, threshold)

    def expand(self) -> Block:
        """The equivalent model with one block: Pulford (2022), Appendix B.

        Every choice of one kernel per block is a component; its weight in a class is the product
        of the weights, its mean the concatenation, its covariance the direct sum.
        """
        return expand(self.first_view.blocks)


def shared_proportion(blocks: Iterable[Block], threshold: float = HELD) -> float:
    """N_S / N_T of the paper's section 3.3, both summed over the blocks before the division."""
    holders = np.concatenate([(block.weights >= threshold).sum(axis=0) for block in blocks])
    n_total = holders.sum()
    return float(holders[holders > 1].sum() / n_total) if n_total else 0.0
