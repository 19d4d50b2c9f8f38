"""Batches with gaps: sums lifted from the observed features, against each sample by itself."""

from functools import reduce

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp
from scipy.stats import multivariate_normal

from pskem.engine import (
    Batch,
    Contrast,
    DecisionRule,
    Kernels,
    OwnClass,
    Regulariser,
    Summarise,
    Summary,
    maximisation,
    prepare,
)
from pskem.structures import STRUCTURES
from reference import COVARIANCE_TYPES, of_type, random_covariances

DOUBLE = np.dtype(np.float64)
SIZES = (4, 2)  # features of two blocks
RULE = DecisionRule(np.log([0.3, 0.7]), np.array([0.8, 1.3]))
types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
#: Which features of both blocks are observed: all, some, and none of one block.
PATTERNS = [
    ([1, 1, 1, 1], [1, 1]),
    ([1, 0, 1, 0], [1, 1]),
    ([0, 0, 0, 1], [0, 1]),
    ([0, 1, 1, 1], [0, 0]),
]


def dense(kernels, covariance_type):
    """The covariances as (K, m, m)."""
    (K, m), P = kernels.means.shape, kernels.covariances
    return {
        "full": lambda: P,
        "tied": lambda: np.array([P] * K),
        "diag": lambda: np.array([np.diag(row) for row in P]),
        "spherical": lambda: np.array([value * np.eye(m) for value in P]),
    }[covariance_type]()


def random_kernels(rng, covariance_type, m, K=3):
    covariances = of_type(random_covariances(rng, K, m), covariance_type)
    means = 1.5 * rng.standard_normal((K, m))
    return Kernels(rng.dirichlet(np.ones(K), 2), means, covariances)


def random_batches(rng, weighted=False):
    """One batch a pattern, 20 samples of one class and 30 of the other."""
    batches = []
    for pattern in PATTERNS:
        observed = tuple(np.array(part, dtype=bool) for part in pattern)
        X = tuple(rng.standard_normal((int(part.sum()), 50)) for part in observed)
        weights = rng.uniform(0.2, 3.0, 50) if weighted else None
        batches.append(Batch(X, np.array([0, 20, 50]), weights=weights, observed=observed))
    return batches


def summarise(kernels, covariance_type, target, batches):
    structure = STRUCTURES[covariance_type]
    prepared = tuple(prepare(structure, block, DOUBLE) for block in kernels)
    function = Summarise(prepared, target)
    return prepared, reduce(Summary.merge, [function(batch) for batch in batches])


def log_terms(kernels, covariance_type, x, observed):
    """log N(x_O; mu_O, P_OO) of each kernel, (K,); nothing observed says nothing."""
    if not observed.any():
        return np.zeros(len(kernels.means))
    matrices = dense(kernels, covariance_type)[:, observed][:, :, observed]
    rows = zip(kernels.means[:, observed], matrices, strict=True)
    return np.array([multivariate_normal(mean, P).logpdf(x) for mean, P in rows])


def complete(mean, P, x, observed):
    """Mean and covariance of all features, given kernel and observed ones: (m,), (m, m)."""
    hidden = ~observed
    gain = P[np.ix_(hidden, observed)] @ np.linalg.inv(P[np.ix_(observed, observed)])
    whole, left = np.zeros(len(mean)), np.zeros_like(P)
    whole[observed] = x
    whole[hidden] = mean[hidden] + gain @ (x - mean[observed])
    left[np.ix_(hidden, hidden)] = P[np.ix_(hidden, hidden)] - gain @ P[np.ix_(observed, hidden)]
    return whole, left


def by_hand(kernels, covariance_type, batches, weigh):
    """Masses (K,), first (K, m) and second moments (K, m, m) of each block, and the value.

    ``weigh`` gives the target over the classes, (L,), and its worth, from log q (R, L) and a label.
    """
    found = [[np.zeros(3), np.zeros((3, m)), np.zeros((3, m, m))] for m in SIZES]
    value = 0.0
    for batch in batches:
        for n, label in enumerate(batch.labels):
            counts = 1.0 if batch.weights is None else batch.weights[n]
            rows = list(zip(kernels, batch.X, batch.observed, strict=True))
            joint = [
                np.log(block.weights) + log_terms(block, covariance_type, X[:, n], seen)
                for block, X, seen in rows
            ]  # (L, K)
            target, worth = weigh(np.array([logsumexp(part, axis=1) for part in joint]), label)
            value += counts * worth
            for sums, part, (block, X, seen) in zip(found, joint, rows, strict=True):
                w = counts * target @ np.exp(log_softmax(part, axis=1))  # (K,)
                for k, P in enumerate(dense(block, covariance_type)):
                    whole, left = complete(block.means[k], P, X[:, n], seen)
                    sums[0][k] += w[k]
                    sums[1][k] += w[k] * whole
                    sums[2][k] += w[k] * (np.outer(whole, whole) + left)
    return found, value


def own_class(log_q, label):
    return np.eye(log_q.shape[1])[label], log_q[:, label].sum()


def contrast(log_q, label):
    log_posterior = log_softmax(RULE.log_prior + RULE.block_weights @ log_q)
    return np.eye(len(log_posterior))[label] - np.exp(log_posterior), log_posterior[label]


@types
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("target", "weigh"), [(OwnClass(), own_class), (Contrast(RULE), contrast)])
def test_sums_are_those_of_completed_samples(rng, covariance_type, target, weigh, weighted):
    kernels = [random_kernels(rng, covariance_type, m) for m in SIZES]
    batches = random_batches(rng, weighted)
    prepared, found = summarise(kernels, covariance_type, target, batches)
    expected, value = by_hand(kernels, covariance_type, batches, weigh)
    np.testing.assert_allclose(found.value.sum(), value, rtol=1e-11)
    storage = STRUCTURES[covariance_type].storage
    rows = zip(found.blocks, prepared, expected, SIZES, strict=True)
    for statistics, block, (masses, first, second), m in rows:
        moments = statistics.moments(block)
        np.testing.assert_allclose(moments.masses, masses, rtol=1e-10, atol=1e-11)
        whitener = np.eye(m) if block.frame.whitener is None else block.frame.whitener
        np.testing.assert_allclose(moments.first, first @ whitener.T, rtol=1e-10, atol=1e-10)
        if covariance_type == "tied":
            own = whitener @ second.sum(axis=0) @ whitener.T
            np.testing.assert_allclose(moments.second.common, own, rtol=1e-10, atol=1e-10)
        else:
            packed = STRUCTURES[covariance_type].spread(np.ones(3), storage.compact(second), m)
            np.testing.assert_allclose(moments.second.own, packed.own, rtol=1e-10, atol=1e-10)


@types
def test_the_likelihood_of_what_is_observed_never_falls(rng, covariance_type):
    kernels = [random_kernels(rng, covariance_type, m) for m in SIZES]
    batches = random_batches(rng)
    trace = []
    for _ in range(25):
        prepared, found = summarise(kernels, covariance_type, OwnClass(), batches)
        trace.append(found.value.sum())
        rows = zip(prepared, found.blocks, strict=True)
        kernels = [maximisation(*row, Regulariser(1e-8))[0] for row in rows]
    assert np.diff(trace).min() > -1e-9
    assert trace[-1] > trace[0] + 10.0


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_a_narrow_kernel_far_from_the_origin_loses_no_digits(rng, covariance_type):
    """The lifted sums are about the kernel's own origin, as those without gaps are."""
    start = random_kernels(rng, covariance_type, 3, K=1)
    start = start._replace(weights=np.ones((1, 1)), covariances=1e-4 * start.covariances)
    observed = np.array([True, False, True])
    X = start.means[:, observed].T + 0.01 * rng.standard_normal((2, 40))
    moved = []
    for shift in (0.0, 512.0):
        kernels = start._replace(means=start.means + shift)
        batch = Batch((X + shift,), np.array([0, 40]), observed=(observed,))
        (prepared,), found = summarise([kernels], covariance_type, OwnClass(), [batch])
        after, _ = maximisation(prepared, found.blocks[0], Regulariser(1e-10))
        moved.append(after.covariances)
    np.testing.assert_allclose(moved[1], moved[0], rtol=1e-10, atol=1e-14)
