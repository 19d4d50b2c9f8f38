"""Constrained sharing: weights that start at zero stay there."""

import numpy as np
import pytest

from pskem.starts import Start
from reference import plain


def test_constrained_sharing(labelled, rng):
    """Zeros stay zero; a model in which nothing is shared is one mixture per class."""
    X, y = labelled
    K = 2
    weights = np.kron(np.eye(3), np.full((1, K), 1.0 / K))
    means = np.concatenate([X[y == j][:K] for j in range(3)])
    settings = {"n_blocks": 1, "reg_covar": 0, "tol": 0, "max_iter": 15}
    covariances = np.array([np.cov(X.T)] * 3 * K)
    model = plain(
        n_components=3 * K,
        init=Start(weights, means, covariances, reseed=False),
        **settings,
    ).fit(X, y)
    (block,) = model.blocks_
    np.testing.assert_array_equal(block.weights == 0.0, weights == 0.0)
    assert model.shared_proportion() == 0.0
    for j in range(3):
        own = slice(j * K, (j + 1) * K)
        alone = plain(
            n_components=K,
            init=Start(np.full((1, K), 1.0 / K), means[own], covariances[own], reseed=False),
            **settings,
        ).fit(X[y == j], y[y == j])
        shift = np.abs(alone.blocks_[0].means - block.means[own]).max()
        assert shift < 1e-8 * np.abs(X).max()
        np.testing.assert_allclose(
            alone.class_log_likelihood(X)[:, 0], model.class_log_likelihood(X)[:, j], rtol=1e-8
        )


def test_partial_masks_hold_in_chunks_of_several_classes(labelled):
    X, y = labelled
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.4, 0.3, 0.3]])
    init = Start(weights, reseed=False)
    model = plain(n_components=3, n_blocks=1, init=init, max_iter=20, tol=0, random_state=0).fit(
        X, y
    )
    np.testing.assert_array_equal(model.blocks_[0].weights == 0.0, weights == 0.0)


@pytest.mark.filterwarnings("ignore:Kernels ran empty")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("far", [1e4, 1e12, 1e20, 1e60])
def test_masks_hold_when_the_allowed_kernels_are_far_away(labelled, far, dtype):
    X, y = labelled
    X = X.astype(dtype)
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]])
    means = np.vstack([X[:2], np.full(5, far)])  # all that class 1 may use is far away
    model = plain(
        n_components=3,
        n_blocks=1,
        init=Start(weights, means, [np.eye(5)] * 3, reseed=False),
        max_iter=1,
        tol=0,
    ).fit(X, y)
    (block,) = model.blocks_
    np.testing.assert_array_equal(block.weights[1], [0.0, 0.0, 1.0])
    assert (block.weights[weights == 0.0] == 0.0).all()
    np.testing.assert_array_equal(block.allowed, weights > 0.0)
