"""Moments: from kernels and back, from frame to frame, and in parts, against sums by hand."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pskem.engine import (
    ArraySource,
    Frame,
    Kernels,
    Moments,
    OwnClass,
    Regulariser,
    Summarise,
    estimate,
    expect,
    maximisation,
    prepare,
    rebase,
    serial_map,
)
from pskem.structures import STRUCTURES, Gaussians, SecondMoments
from reference import COVARIANCE_TYPES, of_type, random_covariances, reference_log_densities

DOUBLE = np.dtype(np.float64)
types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
sizes = pytest.mark.parametrize(("K", "m"), [(1, 1), (3, 1), (1, 3), (4, 3)])


def random_gaussians(rng, covariance_type, K, m):
    covariances = of_type(random_covariances(rng, K, m), covariance_type)
    return Gaussians(2.0 * rng.standard_normal((K, m)), covariances)


def random_frame(rng, covariance_type, K, m):
    """Origins of every kernel, and a whitener where the structure has one."""
    whitener = np.linalg.inv(np.linalg.cholesky(random_covariances(rng, 1, m)[0]))
    return Frame(rng.standard_normal((K, m)), whitener if covariance_type == "tied" else None)


def random_samples(rng, K, m, N=40):
    """Samples (N, m), not about zero, and how much each counts for each kernel, (N, K)."""
    return rng.standard_normal((N, m)) + 1.5, rng.uniform(0.1, 1.0, (N, K))


def phi(z, covariance_type):
    """Products of the features of z, (m,), that second moments of a kernel are sums of."""
    a, b = np.triu_indices(len(z))
    return {
        "full": lambda: z[a] * z[b],
        "tied": lambda: np.empty(0),
        "diag": lambda: z * z,
        "spherical": lambda: np.array([z @ z]),
    }[covariance_type]()


def by_hand(X, W, covariance_type, frame):
    """The moments of X (N, m) under W (N, K) in a frame, sample by sample."""
    K, m = frame.origins.shape
    whitener = np.eye(m) if frame.whitener is None else frame.whitener
    masses, first, common = np.zeros(K), np.zeros((K, m)), np.zeros((m, m))
    own = [np.zeros_like(phi(np.zeros(m), covariance_type)) for _ in range(K)]
    for x, weights in zip(X, W, strict=True):
        for k, w in enumerate(weights):
            z = whitener @ (x - frame.origins[k])
            masses[k] += w
            first[k] += w * z
            own[k] += w * phi(z, covariance_type)
            common += w * np.outer(z, z)
    second = SecondMoments(np.array(own), common if covariance_type == "tied" else np.zeros(()))
    return Moments(masses, first, second, frame)


def fitted_by_hand(X, W, covariance_type):
    """Means and covariances of X (N, m) under W (N, K), by numpy."""
    m = X.shape[1]
    masses = W.sum(axis=0)
    means = np.array([np.average(X, axis=0, weights=w) for w in W.T])
    P = np.array([np.cov(X.T, aweights=w, bias=True).reshape(m, m) for w in W.T])
    if covariance_type == "tied":
        return means, np.average(P, axis=0, weights=masses)
    return means, of_type(P, covariance_type)


def assert_close(one, other, tolerance=1e-11):
    """Moments in the same frame."""
    for a, b in zip(
        (one.masses, one.first, *one.second, *one.frame),
        (other.masses, other.first, *other.second, *other.frame),
        strict=True,
    ):
        assert np.shape(a) == np.shape(b)
        if a is not None:
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=100 * tolerance)


# --------------------------------------------------------------------------- estimate and expect


@sizes
@types
def test_estimates_of_expected_moments_are_the_kernels(rng, covariance_type, K, m):
    structure = STRUCTURES[covariance_type]
    kernels = random_gaussians(rng, covariance_type, K, m)
    frame = random_frame(rng, covariance_type, K, m)
    moments = expect(structure, kernels, rng.uniform(0.5, 20.0, K), frame)
    means, covariances = estimate(structure, moments)
    np.testing.assert_allclose(means, kernels.means, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(covariances, kernels.covariances, rtol=1e-11, atol=1e-12)


@sizes
@types
def test_expected_moments_are_those_of_samples_with_these_moments(rng, covariance_type, K, m):
    """mu +- sqrt(m) times each column of a Cholesky factor have mean mu and covariance P."""
    structure = STRUCTURES[covariance_type]
    kernels = random_gaussians(rng, covariance_type, K, m)
    frame = random_frame(rng, covariance_type, K, m)
    counts = rng.uniform(0.5, 20.0, K)
    X, W = [], []
    for k, P in enumerate(structure.storage.dense(kernels.covariances, K, m)):
        offsets = np.sqrt(m) * np.linalg.cholesky(P).T
        X += [kernels.means[k] + offsets, kernels.means[k] - offsets]
        W.append(np.zeros((2 * m, K)))
        W[-1][:, k] = counts[k] / (2 * m)
    expected = by_hand(np.concatenate(X), np.concatenate(W), covariance_type, frame)
    assert_close(expect(structure, kernels, counts, frame), expected)


@sizes
@types
def test_estimates_are_weighted_means_and_covariances(rng, covariance_type, K, m):
    X, W = random_samples(rng, K, m)
    moments = by_hand(X, W, covariance_type, random_frame(rng, covariance_type, K, m))
    means, covariances = estimate(STRUCTURES[covariance_type], moments)
    expected = fitted_by_hand(X, W, covariance_type)
    np.testing.assert_allclose(means, expected[0], rtol=1e-11)
    np.testing.assert_allclose(covariances, expected[1], rtol=1e-10, atol=1e-12)


@types
def test_a_kernel_without_mass_takes_nothing_from_the_others(rng, covariance_type):
    """It ends at its origin; the covariances of the others, or of all, are as without it."""
    X, W = random_samples(rng, 3, 2)
    W[:, 1] = 0.0
    frame = random_frame(rng, covariance_type, 3, 2)
    moments = by_hand(X, W, covariance_type, frame)
    means, covariances = estimate(STRUCTURES[covariance_type], moments)
    expected = fitted_by_hand(X, W[:, [0, 2]], covariance_type)
    np.testing.assert_allclose(means[1], frame.origins[1], rtol=1e-13)
    np.testing.assert_allclose(means[[0, 2]], expected[0], rtol=1e-11)
    others = covariances if covariance_type == "tied" else covariances[[0, 2]]
    np.testing.assert_allclose(others, expected[1], rtol=1e-10, atol=1e-12)


@types
def test_an_empty_kernel_does_not_widen_the_others_in_an_m_step(rng, covariance_type):
    """Two kernels with samples and one a thousand standard deviations away."""
    structure = STRUCTURES[covariance_type]
    X = rng.standard_normal((30, 2))
    means = np.array([[-0.5, 0.0], [1000.0, 1000.0], [0.5, 0.0]])
    start = Kernels(
        np.full((1, 3), 1 / 3), means, of_type(np.array([np.eye(2)] * 3), covariance_type)
    )
    prepared = prepare(structure, start, DOUBLE)
    source = ArraySource([np.ascontiguousarray(X.T)], np.array([0, 30]), serial_map)
    (statistics,), _ = source.fold(Summarise((prepared,), OwnClass()))
    after, health = maximisation(prepared, statistics, Regulariser(1e-10))
    assert health.empty.tolist() == [False, True, False]
    joint = reference_log_densities(X, means[[0, 2]], np.array([np.eye(2)] * 2))
    W = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    expected = fitted_by_hand(X, W, covariance_type)
    np.testing.assert_allclose(after.means, [expected[0][0], means[1], expected[0][1]], rtol=1e-10)
    others = after.covariances if covariance_type == "tied" else after.covariances[[0, 2]]
    np.testing.assert_allclose(others, expected[1], rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------------------------------- rebase


@sizes
@types
def test_rebased_moments_are_the_sums_taken_in_the_other_frame(rng, covariance_type, K, m):
    structure = STRUCTURES[covariance_type]
    X, W = random_samples(rng, K, m)
    one, other = (random_frame(rng, covariance_type, K, m) for _ in range(2))
    found = rebase(structure, by_hand(X, W, covariance_type, one), other)
    assert_close(found, by_hand(X, W, covariance_type, other))


@types
def test_moments_may_be_negative(rng, covariance_type):
    """Under a contrast a sample may count for a kernel or against it."""
    structure = STRUCTURES[covariance_type]
    X, W = random_samples(rng, 4, 3)
    W -= 0.55
    one, other = (random_frame(rng, covariance_type, 4, 3) for _ in range(2))
    found = rebase(structure, by_hand(X, W, covariance_type, one), other)
    assert_close(found, by_hand(X, W, covariance_type, other))


@pytest.mark.parametrize("way", ["from", "to", "both"])
def test_a_frame_without_a_whitener_is_that_of_the_identity(rng, way):
    structure = STRUCTURES["tied"]
    X, W = random_samples(rng, 4, 3)
    one, other = (random_frame(rng, "tied", 4, 3) for _ in range(2))
    if way != "to":
        one = one._replace(whitener=None)
    if way != "from":
        other = other._replace(whitener=None)
    assert_close(rebase(structure, by_hand(X, W, "tied", one), other), by_hand(X, W, "tied", other))


@types
def test_there_and_back_again(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    one, other = (random_frame(rng, covariance_type, 4, 3) for _ in range(2))
    moments = by_hand(*random_samples(rng, 4, 3), covariance_type, one)
    assert_close(rebase(structure, rebase(structure, moments, other), one), moments)


@sizes
@types
def test_estimates_do_not_depend_on_the_frame(rng, covariance_type, K, m):
    structure = STRUCTURES[covariance_type]
    one, other = (random_frame(rng, covariance_type, K, m) for _ in range(2))
    moments = by_hand(*random_samples(rng, K, m), covariance_type, one)
    before, after = (
        estimate(structure, moments),
        estimate(structure, rebase(structure, moments, other)),
    )
    np.testing.assert_allclose(after.means, before.means, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(after.covariances, before.covariances, rtol=1e-10, atol=1e-12)


# ----------------------------------------------------------------------------------------- merge


@sizes
@types
def test_halves_in_frames_of_their_own_merge_into_the_whole(rng, covariance_type, K, m):
    structure = STRUCTURES[covariance_type]
    X, W = random_samples(rng, K, m)
    one, other, common = (random_frame(rng, covariance_type, K, m) for _ in range(3))
    left = rebase(structure, by_hand(X[:15], W[:15], covariance_type, one), common)
    right = rebase(structure, by_hand(X[15:], W[15:], covariance_type, other), common)
    whole = left.merge(right)
    assert_close(whole, by_hand(X, W, covariance_type, common))
    means, covariances = estimate(structure, whole)
    expected = fitted_by_hand(X, W, covariance_type)
    np.testing.assert_allclose(means, expected[0], rtol=1e-10)
    np.testing.assert_allclose(covariances, expected[1], rtol=1e-9, atol=1e-11)


@types
def test_moments_of_a_pass_are_those_of_its_responsibilities(rng, covariance_type):
    """In the frame in which the kernels took them, also about the mean of a narrow kernel."""
    structure = STRUCTURES[covariance_type]
    X = rng.standard_normal((60, 2))
    labels = np.repeat([0, 1], 30)
    means, covariances = rng.standard_normal((3, 2)), random_covariances(rng, 3, 2)
    if covariance_type != "tied":
        means[1] = X[4] + [1e-5, -2e-5]
        covariances[1] = 1e-10 * np.eye(2)
    kernels = Kernels(rng.dirichlet(np.ones(3), 2), means, of_type(covariances, covariance_type))
    prepared = prepare(structure, kernels, DOUBLE)
    assert prepared.frame.origins.any() == (covariance_type != "tied")
    source = ArraySource([np.ascontiguousarray(X.T)], np.array([0, 30, 60]), serial_map)
    (statistics,), _ = source.fold(Summarise((prepared,), OwnClass()))
    dense = structure.storage.dense(kernels.covariances, 3, 2)
    joint = reference_log_densities(X, means, dense) + np.log(kernels.weights)[labels]
    W = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))
    found = statistics.moments(prepared)
    assert_close(found, by_hand(X, W, covariance_type, prepared.frame), tolerance=1e-9)
    other = random_frame(rng, covariance_type, 3, 2)
    expected = by_hand(X, W, covariance_type, other)
    assert_close(rebase(structure, found, other), expected, tolerance=1e-9)
