"""Several models of the same samples, multiplied into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from pskem.model._model import Model
from pskem.model._sharing import Sharing

__all__ = ["multiply"]


def multiply(models: Sequence[Model], exponents: Sequence[float]) -> Model:
    """The model whose posterior is the product of several, each raised to a power.

    log p(c|x) = sum_v a_v (log p(c) + sum_r beta_vr log q_vr(x)) / T_v + ..., so that it is the sum
    over all blocks of all of them, with weights a_v beta_vr / T_v.
    """
    if len(models) == 1 and exponents[0] == 1.0:
        return models[0]
    pairs = list(zip(models, exponents, strict=True))
    inverse = sum(a / model.temperature for model, a in pairs)
    weights = [a * model.block_weights / (model.temperature * inverse) for model, a in pairs]
    views = tuple(v for v, model in enumerate(models) for _ in model.blocks)
    return replace(
        models[0],
        blocks=tuple(block for model in models for block in model.blocks),
        block_weights=np.concatenate(weights),
        temperature=1.0 / inverse,
        sharing=_all_shares(models),
        views=None if len(models) == 1 else views,
    )


def _all_shares(models: Sequence[Model]) -> Sharing | None:
    """The shares of the blocks of several models, all trained on the same samples."""
    if all(model.sharing is None for model in models):
        return None
    parts = [
        np.zeros(len(model.blocks)) if model.sharing is None else model.sharing.shares
        for model in models
    ]
    pools = [model.sharing.priors for model in models if model.sharing is not None]
    return Sharing(np.concatenate(parts), pools[0])
