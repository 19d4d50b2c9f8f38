"""Where EM starts."""

import numpy as np
import pytest
from scipy.stats import kstest

from pskem import SharedKernelClassifier
from pskem.initialise import METHODS, NARROWEST_START, Start, initialise
from pskem.samples import arrange, canonical_order, measure, standardise
from pskem.structures import STRUCTURES
from reference import COVARIANCE_TYPES


def started(X, y, K, method, covariance_type="full", start=Start(), seed=0):  # noqa: B008
    """Starting kernels in standardised coordinates, the samples and the coordinates."""
    structure = STRUCTURES[covariance_type]
    order = canonical_order(X, y)
    (samples,) = arrange(X, y, order, [np.arange(X.shape[1])], len(np.unique(y)))
    coordinates = measure(samples.X, structure.common_scale)
    samples = standardise(samples, coordinates)
    maker = METHODS[method]((3.0, 11.0), 5.0)
    rng = np.random.default_rng(seed)
    kernels = initialise(structure, samples, coordinates, K, maker, start, 1e-6, rng)
    return kernels, samples, coordinates


def nearest(points, means):
    return ((points[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)


@pytest.mark.parametrize("method", ["k-means++", "kmeans"])
def test_starts_from_the_data(labelled, method):
    X, y = labelled
    kernels, samples, _ = started(X, y, 6, method)
    points = samples.X.T
    owner = nearest(points, kernels.means)
    centroids = np.array([points[owner == k].mean(axis=0) for k in range(6)])
    if method == "kmeans":  # a fixed point of Lloyd's iteration
        np.testing.assert_allclose(kernels.means, centroids, atol=0.02)
    else:  # six of the samples
        distance = np.abs(points[:, None] - kernels.means).max(axis=2).min(axis=0)
        np.testing.assert_array_equal(distance, 0.0)
        assert np.abs(kernels.means - centroids).max() > 0.1
    residual = points - kernels.means[owner]
    within = residual.T @ residual / len(points)
    for P in kernels.covariances:
        np.testing.assert_allclose(P, within, rtol=1e-8, atol=1e-10)
    # Nine tenths of a class's weight lie where its samples are, one tenth everywhere.
    for j in range(3):
        share = np.bincount(owner[samples.labels == j], minlength=6) / np.sum(y == j)
        np.testing.assert_allclose(kernels.weights[j], 0.9 * share + 0.1 / 6)


def test_shares_of_more_samples_than_are_worked_on_at_a_time(rng):
    X, y = rng.standard_normal((4500, 2)), np.repeat([0, 1], [1500, 3000])
    kernels, samples, _ = started(X, y, 5, "k-means++")
    owner = nearest(samples.X.T, kernels.means)
    for j in range(2):
        share = np.bincount(owner[samples.labels == j], minlength=5) / np.sum(y == j)
        np.testing.assert_allclose(kernels.weights[j], 0.9 * share + 0.1 / 5)


def test_random_is_the_papers_in_the_users_units(labelled):
    X, y = labelled
    kernels, _, coordinates = started(X, y, 400, "random")
    means = kernels.means * coordinates.scale + coordinates.shift
    assert kstest(means.ravel(), "uniform", args=(3.0, 8.0)).pvalue > 1e-3
    covariance = STRUCTURES["full"].rescale(kernels.covariances, coordinates.scale)
    np.testing.assert_allclose(covariance, np.broadcast_to(25.0 * np.eye(5), (400, 5, 5)))
    np.testing.assert_array_equal(kernels.weights, 1 / 400)


@pytest.mark.parametrize("method", ["k-means++", "kmeans", "random"])
def test_what_is_given_is_taken(labelled, method):
    X, y = labelled
    given = Start(np.full((3, 2), 0.5), X[:2], np.array([np.eye(5), 2 * np.eye(5)]))
    kernels, _, coordinates = started(X, y, 2, method, start=given)
    np.testing.assert_allclose(kernels.means * coordinates.scale + coordinates.shift, X[:2])
    np.testing.assert_array_equal(kernels.weights, given.weights)
    back = STRUCTURES["full"].rescale(kernels.covariances, coordinates.scale)
    np.testing.assert_allclose(back, given.covariances)
    some, _, _ = started(X, y, 2, method, start=Start(means=X[:2]))
    np.testing.assert_allclose(some.means, kernels.means)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("method", ["k-means++", "kmeans"])
def test_more_kernels_than_samples_start_with_some_width(labelled, method, covariance_type):
    X, y = labelled
    kernels, samples, _ = started(X[:6], y[:6] * 0, 9, method, covariance_type)
    assert {*map(tuple, kernels.means)} == {*map(tuple, samples.X.T)}
    dense = STRUCTURES[covariance_type].dense(kernels.covariances, 9, 5)
    np.testing.assert_allclose(np.linalg.eigvalsh(dense), NARROWEST_START)


def test_blocks_with_the_same_data_start_differently(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=4, n_blocks=2, max_iter=1, tol=0, random_state=0)
    one, two = model.fit(np.hstack([X, X]), y).blocks_
    assert not np.allclose(one.means, two.means)


def test_noise_of_rounding_is_no_variation(rng):
    X = np.vstack([1e9 * (1 + 2e-16 * rng.integers(-1, 2, 50)), np.full(50, 0.1), np.arange(50)])
    coordinates = measure(X.astype(float))
    np.testing.assert_allclose(coordinates.scale, [1.0, 1.0, np.arange(50).std()])
    np.testing.assert_allclose(coordinates.shift, [1e9, 0.1, 24.5])


def test_random_start_is_the_papers(labelled):
    """Uniform weights, means in the range, isotropic covariances: seen through one pass of EM."""
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=50,
        n_blocks=1,
        init="random",
        init_range=(3.0, 4.0),
        init_scale=1e5,
        max_iter=1,
        tol=0,
        random_state=0,
    )
    model.fit(X, y)
    (block,) = model.blocks_
    # Kernels that wide see all samples alike: weights stay uniform, moments are the data's.
    np.testing.assert_allclose(block.weights, 1 / 50, rtol=1e-2)
    np.testing.assert_allclose(block.means, np.broadcast_to(X.mean(axis=0), (50, 5)), rtol=1e-2)
    np.testing.assert_allclose(block.covariances[0], np.cov(X.T, bias=True), rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_explicit_starts_in_every_accepted_shape(labelled, covariance_type):
    X, y = labelled
    K = 3
    dense = np.array([np.eye(5) * 4.0] * K)
    compact = {
        "full": dense,
        "tied": dense[0],
        "diag": np.full((K, 5), 4.0),
        "spherical": np.full(K, 4.0),
    }[covariance_type]
    results = [
        SharedKernelClassifier(
            n_components=K,
            n_blocks=1,
            covariance_type=covariance_type,
            means_init=means,
            covariances_init=covariances,
            weights_init=weights,
            max_iter=3,
            tol=0,
        )
        .fit(X, y)
        .log_likelihoods_
        for means, covariances, weights in [
            (X[:K], dense, np.full((3, K), 1 / K)),
            (X[:K].tolist(), compact, [np.full((3, K), 1 / K)]),
            ([X[:K]], [compact], np.full((3, K), 1 / K).tolist()),
        ]
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
