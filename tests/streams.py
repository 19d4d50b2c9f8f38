"""What tests of streams share."""

import numpy as np

from reference import plain


def in_parts(model, X, y, sizes, sample_weight=None):
    """The model after parts of so many rows, or all of the same size."""
    if isinstance(sizes, int):
        sizes = [sizes] * -(-len(y) // sizes)
    classes, low = np.unique(y), 0
    for size in sizes:
        rows = slice(low, low + size)
        part = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
        weights = None if sample_weight is None else sample_weight[rows]
        model.partial_fit(part, y[rows], classes, weights)
        low += size
    assert low >= len(y)
    return model


def gaussians(**settings):
    """One Gaussian a class, without anything that holds it back, and no contrast."""
    return plain(
        **{"n_components": 3, "init": "class-kmeans", "stepwise": np.inf, "random_state": 0}
        | settings
    )


def bits(model):
    """All numbers of a model."""
    parts = [model.model_.priors, model.model_.block_weights, np.array([model.model_.temperature])]
    for block in model.model_.blocks:
        parts += [*block.kernels, *block.coordinates, block.allowed]
    return [part.copy() for part in parts]


def assert_same_bits(one, two):
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)
