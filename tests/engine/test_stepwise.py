"""Stepwise passes: against EM, against sums by hand, in parts, split and joined."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pskem.engine import (
    ArraySource,
    Contrast,
    DecisionRule,
    Kernels,
    OwnClass,
    Regulariser,
    Running,
    em_pass,
    estimate,
    expect,
    prepare,
    remembered,
    serial_map,
    stepwise_pass,
    summarise,
)
from pskem.engine._moments import Frame
from pskem.structures import STRUCTURES, Categorical, Gaussians
from reference import COVARIANCE_TYPES, of_type, random_covariances, reference_log_densities

DOUBLE = np.dtype(np.float64)
LOOSE = Regulariser(1e-10)
types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def world(rng, covariance_type, n=240, K=4, m=3, L=2):
    """Samples of two classes, sorted by class, and kernels that both share."""
    labels = np.sort(rng.integers(L, size=n))
    X = rng.standard_normal((n, m)) + 1.5 * labels[:, None]
    covariances = of_type(random_covariances(rng, K, m), covariance_type)
    kernels = Kernels(rng.dirichlet(np.ones(K), L), X[rng.choice(n, K)], covariances)
    return X, labels, kernels


def source(X, labels, L=2):
    bounds = np.searchsorted(labels, np.arange(L + 1))
    return ArraySource([np.ascontiguousarray(X.T)], bounds, serial_map)


def summed(structure, kernels, X, labels, target=None):
    """Kernels made ready, and the statistics of samples under them."""
    prepared = prepare(structure, kernels, DOUBLE)
    found = summarise(source(X, labels), (prepared,), target or OwnClass(), serial_map)
    return prepared, found.blocks[0]


def nothing(structure, kernels):
    return remembered(structure, kernels, np.zeros(len(kernels.weights)))


def joint_by_hand(X, kernels, structure):
    """log pi_kc + log N_k(x_n), (N, L, K)."""
    dense = structure.storage.dense(kernels.covariances, *kernels.means.shape)
    log_densities = reference_log_densities(X, kernels.means, dense)
    return log_densities[:, None, :] + np.log(kernels.weights)


def responsibilities_by_hand(X, kernels, structure):
    """w_nck for every class, (N, L, K), and log q_nc, (N, L)."""
    joint = joint_by_hand(X, kernels, structure)
    log_q = logsumexp(joint, axis=2)
    return np.exp(joint - log_q[:, :, None]), log_q


@types
def test_a_first_part_is_a_pass_of_em(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    X, labels, kernels = world(rng, covariance_type)
    regulariser = Regulariser(1e-6, 5.0, True)
    expected = em_pass([structure], source(X, labels), [kernels], [regulariser], serial_map)
    prepared, own = summed(structure, kernels, X, labels)
    found = stepwise_pass(prepared, nothing(structure, kernels), own, regulariser).kernels
    for a, b in zip(found, expected.kernels[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@types
@pytest.mark.parametrize("n_parts", [2, 7])
def test_parts_under_the_same_kernels_sum_up_to_the_whole(rng, covariance_type, n_parts):
    """Averages with steps of 1/t: each part counts by its samples, also if these are unequal."""
    structure = STRUCTURES[covariance_type]
    X, labels, kernels = world(rng, covariance_type)
    prepared, everyone = summed(structure, kernels, X, labels)
    whole, expected, _ = stepwise_pass(prepared, nothing(structure, kernels), everyone, LOOSE)
    memory = nothing(structure, kernels)
    for part in np.array_split(rng.permutation(len(X)), n_parts):
        part = np.sort(part)
        _, own = summed(structure, kernels, X[part], labels[part])
        memory, found, _ = stepwise_pass(prepared, memory, own, LOOSE)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)
    memory = memory.about(structure, whole.moments.frame.origins)
    np.testing.assert_allclose(memory.masses, whole.masses, rtol=1e-12)
    np.testing.assert_allclose(memory.moments.first, whole.moments.first, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(memory.moments.second.own, whole.moments.second.own, rtol=1e-9)


def test_what_is_forgotten_counts_less(rng):
    """Means of a class with one kernel: weighted by how much of each part is kept."""
    structure = STRUCTURES["full"]
    parts = [rng.standard_normal((n, 2)) + i for i, n in enumerate((30, 50, 20))]
    kernels = Kernels(np.ones((1, 1)), np.zeros((1, 2)), np.eye(2)[None])
    prepared = prepare(structure, kernels, DOUBLE)
    memory, kept = nothing(structure, kernels), 0.25
    for part in parts:
        rows = ArraySource([part.T.copy()], np.array([0, len(part)]), serial_map)
        (own,), _ = summarise(rows, (prepared,), OwnClass(), serial_map)
        memory, found, _ = stepwise_pass(prepared, memory.times(kept), own, LOOSE)
    weights = np.repeat(kept ** np.arange(2.0, -1.0, -1.0), [len(part) for part in parts])
    everyone = np.vstack(parts)
    np.testing.assert_allclose(found.means[0], np.average(everyone, axis=0, weights=weights))
    covariance = np.cov(everyone.T, aweights=weights, bias=True)
    np.testing.assert_allclose(found.covariances[0], covariance, rtol=1e-10)


@types
def test_a_contrast_is_weighted_by_hand(rng, covariance_type):
    """Each sample counts as its own class and lambda times what is too much or too little."""
    structure, lam, N = STRUCTURES[covariance_type], 0.3, 500.0
    X, labels, kernels = world(rng, covariance_type)
    rule = DecisionRule(np.log([0.4, 0.6]), np.array([0.7]))
    prepared, own = summed(structure, kernels, X, labels)
    _, contrast = summed(structure, kernels, X, labels, Contrast(rule))
    memory = remembered(structure, kernels, np.array([0.5 * N, 0.5 * N]))
    running, found, plain = stepwise_pass(prepared, memory, own, LOOSE, contrast, lam)

    W, log_q = responsibilities_by_hand(X, kernels, structure)
    scores = rule.log_prior + 0.7 * log_q
    posterior = np.exp(scores - logsumexp(scores, axis=1, keepdims=True))
    truth = np.eye(2)[labels]
    target = truth + lam * (truth - posterior)  # (N, L)
    w = np.einsum("nc,nck->nk", target, W)
    n = memory.masses.sum(axis=0)
    means = (n[:, None] * kernels.means + w.T @ X) / (n + w.sum(axis=0))[:, None]
    np.testing.assert_allclose(found.means, means, rtol=1e-10, atol=1e-12)
    dense = structure.storage.dense(kernels.covariances, *kernels.means.shape)
    spread = []
    for k in range(len(means)):
        second = n[k] * (dense[k] + np.outer(kernels.means[k], kernels.means[k]))
        second = second + np.einsum("n,na,nb->ab", w[:, k], X, X)
        mass = n[k] + w[:, k].sum()
        spread.append(second / mass - np.outer(means[k], means[k]))
    if covariance_type == "tied":
        expected = np.average(spread, axis=0, weights=n + w.sum(axis=0))
    else:
        expected = of_type(np.array(spread), covariance_type)
    np.testing.assert_allclose(found.covariances, expected, rtol=1e-9, atol=1e-11)
    without = stepwise_pass(prepared, memory, own, LOOSE).kernels
    for a, b in zip(plain, without, strict=True):
        np.testing.assert_array_equal(a, b)
    # It counts as many samples as there were, in each class.
    counts = 0.5 * N + np.bincount(labels)
    np.testing.assert_allclose(running.totals, counts, rtol=1e-12)


def test_a_contrast_raises_the_posteriors_of_the_true_classes(rng):
    structure = STRUCTURES["full"]
    X, labels, kernels = world(rng, "full", n=400)
    rule = DecisionRule(np.log([0.5, 0.5]), np.ones(1))

    def criterion(after):
        _, log_q = responsibilities_by_hand(X, after, structure)
        log_p = log_q - logsumexp(log_q, axis=1, keepdims=True)
        return log_p[np.arange(len(labels)), labels].sum()

    prepared, own = summed(structure, kernels, X, labels)
    _, contrast = summed(structure, kernels, X, labels, Contrast(rule))
    memory = remembered(structure, kernels, np.array([2000.0, 2000.0]))
    values = []
    for lam in (0.0, 1.0, 3.0):
        after = stepwise_pass(prepared, memory, own, LOOSE, contrast, lam)
        values.append(criterion(after.kernels))
    assert values[0] < values[1] < values[2]


@types
def test_a_contrast_beyond_measure_leaves_proper_kernels(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    X, labels, kernels = world(rng, covariance_type)
    prepared, own = summed(structure, kernels, X, labels)
    rule = DecisionRule(np.log([0.5, 0.5]), np.ones(1))
    _, contrast = summed(structure, kernels, X, labels, Contrast(rule))
    memory = remembered(structure, kernels, np.array([5.0, 5.0]))
    running, found, plain = stepwise_pass(prepared, memory, own, LOOSE, contrast, 1e6)
    dense, before = (
        structure.storage.dense(one.covariances, *one.means.shape) for one in (found, plain)
    )
    assert np.linalg.eigvalsh(dense - 0.0999 * before).min() > 0.0
    assert (running.masses >= 0.0).all()
    np.testing.assert_allclose(found.weights.sum(axis=1), 1.0)


@types
def test_halves_of_a_kernel_have_its_moments(rng, covariance_type):
    structure, offset = STRUCTURES[covariance_type], np.array([0.2, -0.1, 0.3])
    kernels = Gaussians(
        rng.standard_normal((3, 3)), of_type(random_covariances(rng, 3, 3), covariance_type)
    )
    masses = rng.uniform(1.0, 9.0, (2, 3))
    frame = Frame(rng.standard_normal((3, 3)), None)
    whole = Running(masses, expect(structure, kernels, masses.sum(axis=0), frame))
    halves = whole.split(structure, 1, offset)
    np.testing.assert_allclose(halves.masses[:, [1, 3]], masses[:, [1, 1]] / 2)
    means, covariances = estimate(structure, halves.moments)
    np.testing.assert_allclose(means[[1, 3]], kernels.means[1] + np.array([[1], [-1]]) * offset)
    if covariance_type == "full":
        expected = kernels.covariances[1] - np.outer(offset, offset)
        np.testing.assert_allclose(covariances[[1, 3]], [expected] * 2, rtol=1e-9)
    together = halves.gathered(structure, np.array([0, 1, 2, 1]), frame.origins)
    for a, b in zip(together.moments[:2], whole.moments[:2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)
    for a, b in zip(together.moments.second, whole.moments.second, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_halves_of_categories_have_their_frequencies():
    structure = Categorical((2, 3))
    means = np.array([[0.5, 0.5, 0.2, 0.3, 0.5]])
    whole = remembered(
        structure, Kernels(np.ones((1, 1)), means, np.empty((1, 0))), np.array([8.0])
    )
    halves = whole.split(structure, 0, np.array([0.25, -0.25, 0.0, 0.0, 0.0]))
    found, _ = estimate(structure, halves.moments)
    np.testing.assert_allclose(found[:, 0], [0.75, 0.25])
    np.testing.assert_allclose(found.mean(axis=0), means[0])


@types
def test_what_two_have_in_common_counts_once(rng, covariance_type):
    """Three sets of samples under the same kernels: the first is in both that are joined."""
    structure = STRUCTURES[covariance_type]
    X, labels, kernels = world(rng, covariance_type)
    prepared, _ = summed(structure, kernels, X, labels)
    thirds = [np.sort(part) for part in np.array_split(rng.permutation(len(X)), 3)]

    def after(memory, part):
        _, own = summed(structure, kernels, X[part], labels[part])
        return stepwise_pass(prepared, memory, own, LOOSE).running

    start = after(nothing(structure, kernels), thirds[0])
    one, two = after(start, thirds[1]), after(start, thirds[2])
    found = one.joined(structure, two, start, kernels, LOOSE)
    expected = after(one, thirds[2]).about(structure, found.moments.frame.origins)
    np.testing.assert_allclose(found.masses, expected.masses, rtol=1e-11)
    np.testing.assert_allclose(found.moments.first, expected.moments.first, atol=1e-9)
    np.testing.assert_allclose(found.moments.second.own, expected.moments.second.own, atol=1e-8)
    np.testing.assert_allclose(
        found.moments.second.common, expected.moments.second.common, atol=1e-8
    )
