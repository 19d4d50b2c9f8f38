"""Explicit starts where they enter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pskem.checks import check_shape, numbers
from pskem.structures import FloatArray, Structure
from pskem.training._starts import Start

__all__ = ["check_starts"]


def check_starts(
    weights: Any,
    means: Any,
    covariances: Any,
    blocks: Sequence[NDArray[np.intp]],
    n_components: Sequence[int],
    n_classes: int,
    structure: Structure,
) -> list[Start]:
    """Explicit starts of each block, in the user's units and the structure's shape."""
    R = len(blocks)
    starts = []
    for r, (features, K) in enumerate(zip(blocks, n_components, strict=True)):
        m = len(features)
        place = f" (block {r})" if R > 1 else ""
        weight_shape = (n_classes, K)
        covariance_shapes = list(dict.fromkeys([structure.shape(K, m), (K, m, m)]))
        w = _entry("weights_init", weights, r, R, [weight_shape])
        mu = _entry("means_init", means, r, R, [(K, m)])
        P = _entry("covariances_init", covariances, r, R, covariance_shapes)
        if w is not None:
            w = _check_weights(f"weights_init{place}", w, weight_shape)
        if mu is not None:
            meaning = "(n_components, features of the block)"
            mu = check_shape(f"means_init{place}", mu, [(K, m)], meaning)
        if P is not None:
            P = check_shape(f"covariances_init{place}", P, covariance_shapes)
            P = _check_covariances(f"covariances_init{place}", P, K, m, structure)
        starts.append(Start(w, mu, P))
    return starts


def _check_weights(name: str, value: Any, shape: tuple[int, int]) -> FloatArray:
    """Starting weights (L, K): not negative, rows sum to one."""
    weights = check_shape(name, value, [shape], "(n_classes, n_components)")
    if (weights < 0.0).any():
        raise ValueError(f"{name} holds negative values; weights are between 0 and 1.")
    sums = weights.sum(axis=1)
    closed = np.flatnonzero(sums == 0.0)
    if closed.size:
        raise ValueError(
            f"{name} allows class(es) {', '.join(map(str, closed))} (by position in classes_) no"
            " kernel at all: every row needs at least one positive weight."
        )
    if (abs(sums - 1.0) > 1e-6).any():
        bad = int(np.argmax(abs(sums - 1.0)))
        raise ValueError(f"{name}: every row must sum to 1, but row {bad} sums to {sums[bad]:.6g}.")
    return weights / sums[:, None]


def _entry(name: str, value: Any, r: int, R: int, shapes: Sequence[tuple[int, ...]]) -> Any:
    """What the parameter says of block r; with one block a bare array will do."""
    if value is None:
        return None
    listed = isinstance(value, list | tuple)
    if R == 1:
        if not (listed and len(value) == 1):
            return value
        inner = None if value[0] is None else numbers(name, value[0])
        return inner if inner is None or inner.shape in shapes else value
    if not listed or len(value) != R:
        got = f"{len(value)} entries" if listed else f"a {type(value).__name__}"
        raise ValueError(
            f"{name} must be a list with one array (or None) for each of the {R} blocks, got {got}."
        )
    return value[r]


def _check_covariances(
    name: str, array: FloatArray, K: int, m: int, structure: Structure
) -> FloatArray:
    """Positive definite covariances in the structure's shape, also from matrices (K, m, m)."""
    compact = array if array.shape == structure.shape(K, m) else structure.compact(array)
    dense = structure.dense(compact, K, m)
    if compact is not array and not np.allclose(dense, array, rtol=1e-8, atol=0.0):
        raise ValueError(
            f"{name} of shape {array.shape} is not of covariance_type={structure.name!r}. Give"
            f" covariances of that form, or of shape {structure.shape(K, m)}."
        )
    if not np.allclose(dense, dense.swapaxes(1, 2), rtol=1e-8, atol=0.0):
        raise ValueError(f"{name} must be symmetric matrices.")
    for k in range(K):
        try:
            np.linalg.cholesky(dense[k])
        except np.linalg.LinAlgError:
            raise ValueError(
                f"{name} is not positive definite (kernel {k}); all eigenvalues must be positive."
            ) from None
    return compact
