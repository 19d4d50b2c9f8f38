"""Where EM starts."""

from typing import NamedTuple

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import kstest
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture

from pskem import SharedKernelClassifier
from pskem.engine import ArraySource, Coordinates, measure, serial_map
from pskem.starts import STARTS, ClassKMeans, KDTree, Start, Uniform
from pskem.structures import STRUCTURES
from pskem.training import canonical_order
from pskem.training._initial import Fixed, initialise, look
from reference import (
    COVARIANCE_TYPES,
    plain,
    reference_log_densities,
    reference_log_likelihood,
)


class Seen(NamedTuple):
    """All samples (N, m) in standardised coordinates, their classes (N,), the coordinates."""

    points: np.ndarray
    labels: np.ndarray
    coordinates: Coordinates


def started(X, y, K, start, covariance_type="full", fixed=Fixed(), seed=0):  # noqa: B008
    """Starting kernels in standardised coordinates, and the samples; a start or its name."""
    structure = STRUCTURES[covariance_type]
    method = STARTS[start] if isinstance(start, str) else start
    order, L = canonical_order(X, y), int(y.max()) + 1
    source = ArraySource.arrange(X, y, order, [np.arange(X.shape[1])], L, serial_map)
    coordinates = measure(source, [structure])
    source = source.standardise(coordinates)
    rng = np.random.default_rng(seed)
    (view,) = look(source, coordinates, [K], [rng if method.is_random else None])
    kernels = initialise(method, 1e-6, structure, view, K, fixed, rng)
    return kernels, Seen(source.X[0].T, y[order], coordinates[0])


def nearest(points, means):
    return ((points[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)


@pytest.mark.parametrize("method", ["k-means++", "kmeans"])
def test_starts_from_the_data(labelled, method):
    X, y = labelled
    kernels, samples = started(X, y, 6, method)
    points = samples.points
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
    kernels, samples = started(X, y, 5, "k-means++")
    owner = nearest(samples.points, kernels.means)
    for j in range(2):
        share = np.bincount(owner[samples.labels == j], minlength=5) / np.sum(y == j)
        np.testing.assert_allclose(kernels.weights[j], 0.9 * share + 0.1 / 5)


def test_random_is_the_papers_in_the_users_units(labelled):
    X, y = labelled
    kernels, samples = started(X, y, 400, Uniform(3.0, 11.0, 5.0))
    means = kernels.means * samples.coordinates.scale + samples.coordinates.shift
    assert kstest(means.ravel(), "uniform", args=(3.0, 8.0)).pvalue > 1e-3
    covariance = STRUCTURES["full"].storage.rescale(kernels.covariances, samples.coordinates.scale)
    np.testing.assert_allclose(covariance, np.broadcast_to(25.0 * np.eye(5), (400, 5, 5)))
    np.testing.assert_array_equal(kernels.weights, 1 / 400)


@pytest.mark.parametrize("method", ["k-means++", "kmeans", "random"])
def test_what_is_given_is_taken(labelled, method):
    X, y = labelled
    given = Fixed(np.full((3, 2), 0.5), X[:2], np.array([np.eye(5), 2 * np.eye(5)]))
    kernels, samples = started(X, y, 2, method, fixed=given)
    np.testing.assert_allclose(
        kernels.means * samples.coordinates.scale + samples.coordinates.shift, X[:2]
    )
    np.testing.assert_array_equal(kernels.weights, given.weights)
    back = STRUCTURES["full"].storage.rescale(kernels.covariances, samples.coordinates.scale)
    np.testing.assert_allclose(back, given.covariances)
    some, _ = started(X, y, 2, method, fixed=Fixed(means=X[:2]))
    np.testing.assert_allclose(some.means, kernels.means)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("method", ["k-means++", "kmeans"])
def test_more_kernels_than_samples_start_with_some_width(labelled, method, covariance_type):
    X, y = labelled
    kernels, samples = started(X[:6], y[:6] * 0, 9, method, covariance_type)
    assert {*map(tuple, kernels.means)} == {*map(tuple, samples.points)}
    dense = STRUCTURES[covariance_type].storage.dense(kernels.covariances, 9, 5)
    # A thousandth of the variance of the data.
    np.testing.assert_allclose(np.linalg.eigvalsh(dense), 1e-3)


def test_blocks_with_the_same_data_start_differently(labelled):
    X, y = labelled
    # 6 of 600 samples: hardly ever the same ones.
    model = plain(n_components=6, n_blocks=2, max_iter=1, tol=0, random_state=0)
    one, two = model.fit(np.hstack([X, X]), y).blocks_
    assert not np.allclose(one.means, two.means)


def test_noise_of_rounding_is_no_variation(rng):
    X = np.vstack([1e9 * (1 + 2e-16 * rng.integers(-1, 2, 50)), np.full(50, 0.1), np.arange(50)])
    source = ArraySource([X.astype(float)], np.array([0, 50]), serial_map)
    (coordinates,) = measure(source)
    np.testing.assert_allclose(coordinates.scale, [1.0, 1.0, np.arange(50).std()])
    np.testing.assert_allclose(coordinates.shift, [1e9, 0.1, 24.5])


def test_random_start_is_the_papers(labelled):
    """Uniform weights, means in the range, isotropic covariances: seen through one pass of EM."""
    X, y = labelled
    model = plain(
        n_components=50,
        n_blocks=1,
        init=Uniform(3.0, 4.0, 1e5, reseed=False),
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
            init=Start(weights, means, covariances),
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


def test_what_a_start_leaves_open_another_makes(labelled):
    """Means and weights of the tree, covariances as given; the first pass tells the likelihood."""
    X, y = labelled
    settings = {"n_components": 4, "n_blocks": 1, "max_iter": 2, "tol": 0}
    covariances = np.array([np.diag([4.0, 400.0, 0.04, 36.0, 9.0])] * 4)
    some = plain(init=Start(covariances=covariances, otherwise="kdtree"), **settings).fit(X, y)
    kernels, samples = started(X, y, 4, "kdtree")
    means = kernels.means * samples.coordinates.scale + samples.coordinates.shift
    expected = reference_log_likelihood(X, kernels.weights, means, covariances)
    np.testing.assert_allclose(
        some.log_likelihoods_[0], expected[np.arange(len(y)), y].sum(), rtol=1e-10
    )
    nothing = plain(init=Start(otherwise=KDTree()), **settings).fit(X, y)
    tree = plain(init="kdtree", **settings).fit(X, y)
    np.testing.assert_array_equal(nothing.log_likelihoods_, tree.log_likelihoods_)
    assert not np.allclose(some.log_likelihoods_[0], tree.log_likelihoods_[0])


# ------------------------------------------------------------------------------- class by class


@pytest.mark.parametrize(
    ("sizes", "K", "expected"),
    [
        # Quotients of d'Hondt for the kernels beyond the first: 500/2, 500/3, 500/4, 300/2, ...
        ((500, 300, 200), 7, (4, 2, 1)),
        ((500, 300, 200), 3, (1, 1, 1)),
        ((900, 90, 10), 12, (10, 1, 1)),
        ((100, 100), 6, (3, 3)),
    ],
)
def test_kernels_are_dealt_out_to_classes_by_their_sizes(rng, sizes, K, expected):
    y = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.standard_normal((len(y), 2)) + 20.0 * y[:, None]
    kernels, samples = started(X, y, K, ClassKMeans(own_mass=1.0))
    owners = nearest(samples.points, kernels.means)
    # Classes are far apart, so a kernel belongs to the class of the samples nearest to it.
    counts = tuple(len(np.unique(owners[samples.labels == j])) for j in range(len(sizes)))
    assert counts == expected
    np.testing.assert_array_equal((kernels.weights > 0.0).sum(axis=1), expected)


@pytest.mark.parametrize("own_mass", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_classes_start_with_kernels_of_their_own(labelled, own_mass, covariance_type):
    X, y = labelled
    kernels, samples = started(X, y, 7, ClassKMeans(own_mass), covariance_type)
    own, _ = started(X, y, 7, ClassKMeans(1.0), covariance_type)
    mine = own.weights > 0.0
    np.testing.assert_array_equal(mine.sum(axis=0), 1)  # each kernel is of one class
    np.testing.assert_array_equal(kernels.means, own.means)
    points, residuals = samples.points, []
    for j in range(3):
        members = points[samples.labels == j]
        places = np.flatnonzero(mine[j])
        owner = places[nearest(members, own.means[places])]
        share = np.bincount(owner, minlength=7) / len(members)
        np.testing.assert_allclose(kernels.weights[j], own_mass * share + (1 - own_mass) / 7)
        # Means are a fixed point of Lloyd's iteration within the class.
        for k in places:
            np.testing.assert_allclose(own.means[k], members[owner == k].mean(axis=0), atol=0.05)
        residuals.append(members - own.means[owner])
    if own_mass == 1.0:
        np.testing.assert_array_equal(kernels.weights[~mine], 0.0)
    residuals = np.concatenate(residuals)
    within = STRUCTURES[covariance_type].storage.compact(
        np.array([residuals.T @ residuals / len(points)] * 7)
    )
    np.testing.assert_allclose(kernels.covariances, within, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("own_mass", [1.0, 0.5])
def test_fewer_kernels_than_classes_are_those_that_do_not_look_at_classes(labelled, own_mass):
    X, y = labelled
    kernels, _ = started(X, y, 2, ClassKMeans(own_mass))
    others, _ = started(X, y, 2, "k-means++")
    for ours, theirs in zip(kernels, others, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert (kernels.weights > 0.0).all()


def test_rare_classes_are_seen_in_many_samples(rng):
    """Of 8000 samples, three of the last class: chance alone would most likely miss some."""
    y = np.repeat([0, 1, 2], [7000, 997, 3])
    X = rng.standard_normal((8000, 2)) + 30.0 * y[:, None]
    for seed in range(3):
        kernels, samples = started(X, y, 6, ClassKMeans(1.0), seed=seed)
        (k,) = np.flatnonzero(kernels.weights[2])
        rare = samples.points[samples.labels == 2]
        np.testing.assert_allclose(kernels.means[k], rare.mean(axis=0), atol=1e-12)


def test_an_own_mass_of_one_trains_classes_apart(labelled):
    """Zeros stay zero: the model is one mixture for each class, with nothing shared."""
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=6,
        n_blocks=1,
        init=ClassKMeans(own_mass=1.0, reseed=False),
        max_iter=10,
        tol=0,
        random_state=0,
        discriminative_iter=3,
    ).fit(X, y)
    assert ((model.blocks_[0].weights > 0.0).sum(axis=0) == 1).all()


# ------------------------------------------------------------------------------------ k-d trees


@pytest.mark.parametrize("K", [1, 2, 5, 8, 13])
def test_cells_of_the_tree_are_balanced_boxes(rng, K):
    X, y = rng.standard_normal((400, 3)) * [1.0, 2.0, 5.0], np.arange(400) % 2
    kernels, samples = started(X, y, K, "kdtree")
    again, _ = started(X, y, K, "kdtree", seed=99)
    for a, b in zip(kernels, again, strict=True):
        np.testing.assert_array_equal(a, b)
    # A recursion of its own: always halve the largest cell, at the median of its widest feature.
    cells = [samples.points]
    while len(cells) < K:
        largest = max(range(len(cells)), key=lambda i: len(cells[i]))
        cell = cells.pop(largest)
        widest = int(np.argmax(cell.max(axis=0) - cell.min(axis=0)))
        median = np.median(cell[:, widest])
        cells += [cell[cell[:, widest] <= median], cell[cell[:, widest] > median]]
    sizes = [len(cell) for cell in cells]
    assert max(sizes) <= 2 * min(sizes) + 1
    if K in (1, 2, 8):  # otherwise the choice among cells as large decides which are halved
        expected = sorted(tuple(np.round(cell.mean(axis=0), 9)) for cell in cells)
        assert sorted(tuple(row) for row in np.round(kernels.means, 9)) == expected
    # Classes are equally large, so the weights tell how many samples each cell has.
    counts = 400 * (kernels.weights.mean(axis=0) - 0.1 / K) / 0.9
    np.testing.assert_allclose(sorted(counts), sorted(sizes), atol=1.0 + 1e-9)
    assert counts.sum() == pytest.approx(400)


def test_the_tree_has_a_cell_for_every_kernel_even_of_few_samples(rng):
    X, y = rng.standard_normal((5, 2)), np.zeros(5, dtype=int)
    kernels, samples = started(X, y, 9, "kdtree")
    assert {*map(tuple, kernels.means)} == {*map(tuple, samples.points)}
    assert np.isfinite(kernels.covariances).all()


# ------------------------------------------------------------------------------ unsupervised EM


def mixture_log_likelihood(kernels, samples, weights):
    densities = reference_log_densities(samples.points, kernels.means, kernels.covariances)
    return logsumexp(densities + np.log(weights), axis=1).sum()


def test_unsupervised_em_is_a_mixture_of_all_samples(labelled):
    X, y = labelled
    kernels, samples = started(X, y, 6, "em")
    other, _ = started(X, y, 6, "k-means++")
    sizes = np.bincount(y) / len(y)
    ours = mixture_log_likelihood(kernels, samples, sizes @ kernels.weights)
    theirs = mixture_log_likelihood(other, samples, sizes @ other.weights)
    assert ours > theirs + 0.1 * len(y)
    # As good as scikit-learn's from the same start, after as many passes.
    mixture = GaussianMixture(
        6,
        weights_init=np.full(6, 1 / 6),
        means_init=other.means,
        precisions_init=np.linalg.inv(other.covariances),
        max_iter=20,
        tol=0,
        reg_covar=0,
    )
    with pytest.warns(ConvergenceWarning):
        mixture.fit(samples.points)
    np.testing.assert_allclose(kernels.means, mixture.means_, rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(kernels.covariances, mixture.covariances_, rtol=1e-6, atol=1e-8)
    # Weights are the shares of the classes, of which a tenth is spread evenly.
    shares = mixture.predict_proba(samples.points)
    for j in range(3):
        expected = shares[samples.labels == j].mean(axis=0)
        np.testing.assert_allclose(kernels.weights[j], 0.9 * expected + 0.1 / 6, atol=1e-6)


@pytest.mark.parametrize("method", ["class-kmeans", "kdtree", "em"])
def test_given_means_are_taken_by_every_method(labelled, method):
    X, y = labelled
    kernels, samples = started(X, y, 4, method, fixed=Fixed(means=X[:4]))
    means = kernels.means * samples.coordinates.scale + samples.coordinates.shift
    np.testing.assert_allclose(means, X[:4], rtol=1e-9)


def test_a_tree_of_many_samples_leaves_nothing_to_chance(rng):
    X, y = rng.standard_normal((6000, 2)), np.arange(6000) % 2
    one, other = (started(X, y, 8, "kdtree", seed=seed)[0] for seed in (0, 1))
    np.testing.assert_array_equal(one.means, other.means)


def test_given_weights_decide_who_may_use_a_kernel(labelled):
    """Kernels are not dealt out to classes that may not use them."""
    X, y = labelled
    weights = np.eye(3)[::-1].copy()
    given = Fixed(weights, None, None)
    kernels, _ = started(X, y, 3, "class-kmeans", fixed=given)
    blind, _ = started(X, y, 3, "k-means++", fixed=given)
    np.testing.assert_array_equal(kernels.weights, weights)
    np.testing.assert_array_equal(kernels.means, blind.means)
