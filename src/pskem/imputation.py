"""What a model makes of missing cells: their mean given the others, or draws."""

from __future__ import annotations

from itertools import compress

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from pskem.engine import CHUNK, Mapper
from pskem.margins import Margin, Margins
from pskem.model import Block, Model
from pskem.structures import Categorical, FloatArray, Gaussians, conditional, draw_places

__all__ = ["impute"]

#: Points of the Gauss-Hermite rule for means of features that are mapped.
QUADRATURE = 32


def impute(
    model: Model,
    X: FloatArray,
    labels: NDArray[np.intp] | None,
    rng: np.random.Generator | None,
    parallel_map: Mapper,
) -> FloatArray:
    """X (N, M) with gaps filled in, by conditional means or, with a generator, by draws.

    The density is that of the first view. Classes are those of the labels (N,) or, without them,
    as probable as the density makes them; block weights, which are for decisions, do not enter.
    Columns of no block keep their gaps.
    """
    model = model.first_view
    filled = X.copy()
    rows = np.flatnonzero(model.gaps(X).any(axis=1))
    for low in range(0, len(rows), CHUNK):
        some = rows[low : low + CHUNK]
        known = None if labels is None else labels[some]
        filled[some] = _fill(model, X[some], known, rng, parallel_map)
    return filled


def _fill(
    model: Model,
    X: FloatArray,
    labels: NDArray[np.intp] | None,
    rng: np.random.Generator | None,
    parallel_map: Mapper,
) -> FloatArray:
    L = len(model.classes)
    if labels is None:
        joint = model.log_likelihood(X, parallel_map).sum(axis=1) + model.log_priors
        posterior = softmax(joint, axis=1)
        if rng is not None:
            posterior = np.eye(L)[draw_places(posterior, rng)]
    else:
        posterior = np.eye(L)[labels]
    shares = model.responsibilities(X, posterior, parallel_map)
    filled = X.copy()
    for block, share in zip(model.blocks, shares, strict=True):
        chosen = share
        if rng is not None:
            chosen = np.eye(share.shape[1])[draw_places(share, rng)]
        filled[:, block.features] = _fill_block(block, X, chosen, rng)
    return filled


def _fill_block(
    block: Block, X: FloatArray, shares: FloatArray, rng: np.random.Generator | None
) -> FloatArray:
    """The columns of a block, (n, m), of samples that belong to its kernels by shares (n, K)."""
    if isinstance(block.structure, Categorical):
        return _fill_categories(block.structure, X[:, block.features], shares @ block.means, rng)
    local = block.local(X).T.astype(np.float64)  # (n, m)
    gaps = np.isnan(local)
    filled = X[:, block.features].copy()
    patterns, which = np.unique(gaps, axis=0, return_inverse=True)
    for v, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        rows = np.flatnonzero(which.reshape(-1) == v)
        slope, offset, left = conditional(block.structure, block.kernels.gaussians, ~pattern)
        means = np.einsum("kqp,np->nkq", slope, local[np.ix_(rows, ~pattern)]) + offset
        values = np.einsum("nk,nkq->nq", shares[rows], means)
        if rng is not None:
            roots = np.linalg.cholesky(left)[shares[rows].argmax(axis=1)]
            values += np.einsum("nab,nb->na", roots, rng.standard_normal(values.shape))
        scale, shift = block.scale[pattern], block.shift[pattern]
        values = values * scale + shift
        maps = block.reading.maps if isinstance(block.reading, Margins) else ()
        for q, margin in enumerate(compress(maps, pattern)):
            if margin is None:
                continue
            if rng is not None:
                values[:, q] = margin.inverse(values[:, q])
            else:
                spread = np.sqrt(left[:, q, q]) * scale[q]
                centres = means[:, :, q] * scale[q] + shift[q]
                values[:, q] = (shares[rows] * _expected(margin, centres, spread)).sum(axis=1)
        here = np.ix_(rows, pattern)
        filled[here] = np.where(np.isnan(filled[here]), values, filled[here])
    return filled


def _expected(margin: Margin, means: FloatArray, spreads: FloatArray) -> FloatArray:
    """Mean of x where its map is Gaussian, for means (n, K) and standard deviations (K,)."""
    places, weights = np.polynomial.hermite_e.hermegauss(QUADRATURE)
    points = means[:, :, None] + spreads[:, None] * places
    expected: FloatArray = margin.inverse(points) @ (weights / weights.sum())
    return expected


def _fill_categories(
    structure: Categorical,
    X: FloatArray,
    probabilities: FloatArray,
    rng: np.random.Generator | None,
) -> FloatArray:
    """Indicators (n, m), with the most probable value, or a draw, where a column has none."""
    drawn = probabilities
    if rng is not None:
        kernels = Gaussians(probabilities, np.empty((len(probabilities), 0)))
        drawn = structure.draw(kernels, np.arange(len(probabilities)), rng)
    columns = []
    pairs = (np.split(part, structure.starts[1:], axis=1) for part in (X, drawn))
    for known, made in zip(*pairs, strict=True):
        chosen = np.eye(made.shape[1])[made.argmax(axis=1)]
        columns.append(np.where(known.any(axis=1)[:, None], known, chosen))
    return np.hstack(columns)
