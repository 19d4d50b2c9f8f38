"""Several models of the same samples, multiplied into one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from pskem.model._model import Model
from pskem.model._sharing import Sharing
from pskem.structures import FloatArray

__all__ = ["multiply", "relocate"]


def multiply(models: Sequence[Model], exponents: Sequence[float]) -> Model:
    """The model whose posterior is the product of several, each raised to a power.

    log p(c|x) = sum_v a_v (log p_v(c) + sum_r beta_vr log q_vr(x)) / T_v + ..., so that it is the
    sum over all blocks of all of them, with weights a_v beta_vr / T_v. Priors are multiplied too,
    where they differ; but if they have been changed since the training, that counts once, whatever
    the exponents. Views are counted through all models.
    """
    if len(models) == 1 and exponents[0] == 1.0:
        return models[0]
    pairs = list(zip(models, exponents, strict=True))
    inverse = sum(a / model.temperature for model, a in pairs)
    portions = [a / (model.temperature * inverse) for model, a in pairs]
    weights = [a * model.block_weights / (model.temperature * inverse) for model, a in pairs]
    priors, shift = _priors(models, portions)
    return replace(
        models[0],
        blocks=tuple(block for model in models for block in model.blocks),
        priors=priors,
        block_weights=np.concatenate(weights),
        temperature=1.0 / inverse,
        shift=shift,
        sharing=_all_shares(models),
        views=_all_views(models),
    )


def relocate(model: Model, columns: NDArray[np.intp]) -> Model:
    """The same model of a wider X, in which its columns stand at these places."""
    blocks = tuple(replace(block, features=columns[block.features]) for block in model.blocks)
    return replace(model, blocks=blocks)


def _priors(
    models: Sequence[Model], portions: Sequence[float]
) -> tuple[FloatArray, FloatArray | None]:
    """Priors (L,) and shift of a product; the portions of its models sum to one."""
    first = models[0]
    unshifted = all(model.shift is None for model in models)
    if unshifted and all(np.array_equal(model.priors, first.priors) for model in models):
        return first.priors, None
    trained, shift = np.zeros(len(first.priors)), np.zeros(len(first.priors))
    for model, portion in zip(models, portions, strict=True):
        if portion > 0.0:
            change = 0.0 if model.shift is None else model.shift
            trained = trained + portion * (model.log_priors - change)
            shift = shift + portion * change
    return softmax(trained + shift), None if unshifted else shift


def _all_views(models: Sequence[Model]) -> tuple[int, ...] | None:
    """To which view each block belongs, counted through all models; None if there is one only."""
    views: list[int] = []
    for model in models:
        first = max(views, default=-1) + 1
        views += [first + view for view in model.views or [0] * len(model.blocks)]
    return tuple(views) if max(views) else None


def _all_shares(models: Sequence[Model]) -> Sharing | None:
    """The shares of the blocks of several models, each with the priors of its own pool."""
    if all(model.sharing is None for model in models):
        return None
    parts = [
        (len(model.blocks), model.sharing or Sharing(np.zeros(len(model.blocks)), model.priors))
        for model in models
    ]
    shares = np.concatenate([sharing.shares for _, sharing in parts])
    pools = [np.broadcast_to(sharing.priors, (R, sharing.priors.shape[-1])) for R, sharing in parts]
    told = [model.sharing.priors for model in models if model.sharing is not None]
    if all(np.array_equal(priors, told[0]) for priors in told) and told[0].ndim == 1:
        return Sharing(shares, told[0])
    return Sharing(shares, np.concatenate(pools))
