"""The model as a value: what it says of some of its features."""

import numpy as np
import pytest
from scipy.integrate import trapezoid
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

from pskem.engine import Coordinates, Kernels
from pskem.model import Block, Model
from pskem.structures import STRUCTURES
from reference import COVARIANCE_TYPES, of_type, random_covariances

K, L = 3, 2
FEATURES = ([4, 0, 2], [1, 5])


@pytest.fixture(params=COVARIANCE_TYPES)
def model(request, rng):
    """Two blocks of six features, of which feature 3 is in none."""
    blocks = []
    for features in FEATURES:
        m = len(features)
        kernels = Kernels(
            rng.dirichlet(np.ones(K), size=L),
            rng.standard_normal((K, m)),
            of_type(random_covariances(rng, K, m), request.param),
        )
        # Spherical kernels have one scale for all features of a block.
        scale = np.full(m, 2.0) if request.param == "spherical" else rng.uniform(0.5, 2.0, m)
        frame = Coordinates(rng.standard_normal(m), scale)
        structure = STRUCTURES[request.param]
        blocks.append(Block(np.array(features), kernels, frame, structure, kernels.weights > 0))
    return Model(tuple(blocks), np.array(["a", "b"]), np.array([0.3, 0.7]), np.array([0.5, 1.0]))


def class_density(block, label, X, kept):
    """log q_rj of the columns ``kept`` of a block, by scipy."""
    terms = [
        np.log(weight) + multivariate_normal(mean[kept], P[np.ix_(kept, kept)]).logpdf(X)
        for weight, mean, P in zip(
            block.weights[label], block.means, block.dense_covariances, strict=True
        )
    ]
    return logsumexp(terms, axis=0)


def test_a_marginal_model_has_the_mixture_of_marginal_kernels(model, rng):
    X = 2.0 * rng.standard_normal((20, 6))
    part = model.marginal([0, 4, 5])
    assert [block.features.tolist() for block in part.blocks] == [[4, 0], [5]]
    found = part.log_likelihood(X)
    for j in range(L):
        for r, kept in enumerate(([0, 1], [1])):
            columns = np.array(FEATURES[r])[kept]
            theirs = class_density(model.blocks[r], j, X[:, columns], kept)
            np.testing.assert_allclose(found[:, r, j], theirs, rtol=1e-10)


def test_a_marginal_density_is_the_integral_over_the_other_features(model, rng):
    X = rng.standard_normal((3, 6))
    part = model.marginal([0, 1, 2, 5])  # feature 4 is integrated out
    grid = np.linspace(-60.0, 60.0, 40_001)
    for x, ours in zip(X, part.log_density(X), strict=True):
        rows = np.tile(x, (len(grid), 1))
        rows[:, 4] = grid
        integral = trapezoid(np.exp(model.log_density(rows)), grid)
        assert np.exp(ours) == pytest.approx(integral, rel=1e-8)


def test_a_block_of_which_nothing_is_kept_drops_out(model, rng):
    X = rng.standard_normal((20, 6))
    part = model.marginal([1, 3])
    assert len(part.blocks) == 1
    np.testing.assert_array_equal(part.block_weights, [1.0])
    log_q = class_density(model.blocks[1], 0, X[:, [1]], [0])
    np.testing.assert_allclose(part.log_likelihood(X)[:, 0, 0], log_q, rtol=1e-10)


def test_the_marginal_of_all_features_is_the_model(model, rng):
    X = rng.standard_normal((20, 6))
    same = model.marginal(range(6))
    np.testing.assert_array_equal(same.log_posterior(X), model.log_posterior(X))


def test_features_that_no_block_has_are_refused(model):
    with pytest.raises(ValueError, match=r"uses none of the features \[3, 17\]"):
        model.marginal([3, 17])
