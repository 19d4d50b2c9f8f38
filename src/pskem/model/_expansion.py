"""A partitioned model as the mixture that it is: Pulford (2022), Appendix B."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from scipy.linalg import block_diag

from pskem.engine import Coordinates, Kernels
from pskem.model._block import Block
from pskem.structures import STRUCTURES

__all__ = ["expand"]

#: Components beyond which the expansion of a partitioned model is refused.
MAX_EXPANDED = 10_000


def expand(blocks: Sequence[Block]) -> Block:
    """One block that is equivalent to several: every choice of one kernel per block is a kernel."""
    if not all(block.structure.standardised for block in blocks):
        raise ValueError("A model with categories has no equivalent mixture of Gaussians.")
    if any(block.reading is not None for block in blocks):
        raise ValueError(
            "A model with maps of its features has no equivalent mixture of Gaussians. Train"
            " with margins=False and a given covariance_type."
        )
    sizes = [len(block.kernels.means) for block in blocks]
    count = float(np.prod(sizes, dtype=float))
    if count > MAX_EXPANDED:
        raise ValueError(
            f"The expanded mixture would have {' x '.join(map(str, sizes))} = {count:.3g}"
            f" components; at most {MAX_EXPANDED} are accepted. Use fewer components or"
            " blocks; block_log_likelihood gives the same likelihood without the expansion."
        )
    features = np.concatenate([block.features for block in blocks])
    order = np.argsort(features)
    dense = [b.structure.storage.dense(b.kernels.covariances, *b.means.shape) for b in blocks]
    weights, means, covariances, allowed = [], [], [], []
    for choice in product(*map(range, sizes)):
        chosen = list(zip(choice, blocks, strict=True))
        weights.append(np.prod([block.weights[:, k] for k, block in chosen], axis=0))
        means.append(np.concatenate([block.kernels.means[k] for k, block in chosen])[order])
        allowed.append(np.all([block.allowed[:, k] for k, block in chosen], axis=0))
        joint = block_diag(*(dense[r][k] for r, k in enumerate(choice)))
        covariances.append(joint[np.ix_(order, order)])
    return Block(
        features[order],
        Kernels(np.array(weights).T, np.array(means), np.array(covariances)),
        Coordinates(
            np.concatenate([block.shift for block in blocks])[order],
            np.concatenate([block.scale for block in blocks])[order],
        ),
        STRUCTURES["full"],
        np.array(allowed).T,
    )
