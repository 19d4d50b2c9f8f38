"""Samples with gaps: densities and completed sums, against each sample by itself."""

from typing import NamedTuple

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
    distinct_patterns,
    maximisation,
    prepare,
    serial_map,
    summarise,
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


def random_batch(rng, weighted=False, shift=0.0):
    """80 samples of one class and 120 of the other; all patterns in each, in no order."""
    X = [rng.standard_normal((m, 200)) + shift for m in SIZES]
    for n, pattern in enumerate(rng.permutation(np.arange(200) % len(PATTERNS))):
        for part, seen in zip(X, PATTERNS[pattern], strict=True):
            part[np.array(seen) == 0, n] = np.nan
    weights = rng.uniform(0.2, 3.0, 200) if weighted else None
    return Batch(tuple(X), np.array([0, 80, 200]), weights=weights)


class Alone(NamedTuple):
    """A source of one batch."""

    batch: Batch

    def fold(self, function):
        return function(self.batch)


def summed(kernels, covariance_type, target, batch, dtype=DOUBLE):
    structure = STRUCTURES[covariance_type]
    pairs = zip(kernels, batch.X, strict=True)
    prepared = tuple(prepare(structure, k, dtype, distinct_patterns(X)) for k, X in pairs)
    return prepared, summarise(Alone(batch), prepared, target, serial_map)


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


def by_hand(kernels, covariance_type, batch, weigh):
    """Masses (K,), first (K, m) and second moments (K, m, m) of each block, and the value.

    ``weigh`` gives the target over the classes, (L,), and its worth, from log q (R, L) and a label.
    """
    found = [[np.zeros(3), np.zeros((3, m)), np.zeros((3, m, m))] for m in SIZES]
    value = 0.0
    for n, label in enumerate(batch.labels):
        counts = 1.0 if batch.weights is None else batch.weights[n]
        rows = [
            (block, X[:, n], ~np.isnan(X[:, n])) for block, X in zip(kernels, batch.X, strict=True)
        ]
        joint = [
            np.log(block.weights) + log_terms(block, covariance_type, x[seen], seen)
            for block, x, seen in rows
        ]  # (L, K)
        target, worth = weigh(np.array([logsumexp(part, axis=1) for part in joint]), label)
        value += counts * worth
        for sums, part, (block, x, seen) in zip(found, joint, rows, strict=True):
            w = counts * target @ np.exp(log_softmax(part, axis=1))  # (K,)
            for k, P in enumerate(dense(block, covariance_type)):
                whole, left = complete(block.means[k], P, x[seen], seen)
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
    batch = random_batch(rng, weighted)
    prepared, found = summed(kernels, covariance_type, target, batch)
    expected, value = by_hand(kernels, covariance_type, batch, weigh)
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
    batch = random_batch(rng)
    trace = []
    for _ in range(25):
        prepared, found = summed(kernels, covariance_type, OwnClass(), batch)
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
    X = start.means.T + 0.01 * rng.standard_normal((3, 40))
    X[1, :30] = np.nan
    moved = []
    for shift in (0.0, 512.0):
        kernels = start._replace(means=start.means + shift)
        batch = Batch((X + shift,), np.array([0, 40]))
        (prepared,), found = summed([kernels], covariance_type, OwnClass(), batch)
        after, _ = maximisation(prepared, found.blocks[0], Regulariser(1e-10))
        moved.append(after.covariances)
    assert prepared.centred.all()
    np.testing.assert_allclose(moved[1], moved[0], rtol=1e-9, atol=1e-14)


@types
@pytest.mark.parametrize("kept", [True, False])
def test_completions_that_are_not_kept_are_made_again(rng, covariance_type, kept, monkeypatch):
    kernels = [random_kernels(rng, covariance_type, m) for m in SIZES]
    batch = random_batch(rng)
    _, expected = summed(kernels, covariance_type, OwnClass(), batch)
    monkeypatch.setattr("pskem.engine._gaps.MOST_KEPT", 2**24 if kept else 0)
    monkeypatch.setattr("pskem.engine._gaps.AT_A_TIME", 100)
    prepared, found = summed(kernels, covariance_type, OwnClass(), batch)
    if covariance_type in ("full", "tied"):
        assert bool(prepared[0].gaps.kept) == kept
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@types
def test_single_precision_is_close_to_double(rng, covariance_type):
    kernels = [random_kernels(rng, covariance_type, m) for m in SIZES]
    batch = random_batch(rng)
    _, expected = summed(kernels, covariance_type, OwnClass(), batch)
    single = batch._replace(X=tuple(X.astype(np.float32) for X in batch.X))
    prepared, found = summed(kernels, covariance_type, OwnClass(), single, np.dtype(np.float32))
    assert prepared[0].dtype == np.float32
    for one, other in zip(found.blocks, expected.blocks, strict=True):
        np.testing.assert_allclose(one.sums, other.sums, rtol=1e-4, atol=1e-3)
        assert one.sums.dtype == np.float64


@types
def test_samples_without_gaps_are_as_they_would_be_alone(rng, covariance_type):
    kernels = random_kernels(rng, covariance_type, 4)
    X = rng.standard_normal((4, 60))
    structure = STRUCTURES[covariance_type]
    one = prepare(structure, kernels, DOUBLE).log_densities(X)
    X_more = np.hstack([X, np.full((4, 1), np.nan)])
    other = prepare(structure, kernels, DOUBLE, distinct_patterns(X_more)).log_densities(X_more)
    np.testing.assert_allclose(other[:, :-1], one, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(other[:, -1], 0.0)  # nothing observed, nothing said


def test_patterns_are_told_apart(rng):
    X = rng.standard_normal((11, 300))
    assert distinct_patterns(X) is None
    huge = np.array([[1e308, -1e308], [1e308, -1e308]])
    assert distinct_patterns(huge) is None
    X[rng.random(X.shape) < 0.1] = np.nan
    found = distinct_patterns(X)
    expected = np.unique(np.isnan(X).T, axis=0)
    np.testing.assert_array_equal(np.unique(found, axis=0), expected)
    assert len(found) == len(expected)


@types
def test_a_pass_is_the_same_in_whatever_order_the_rows_come(rng, covariance_type):
    """Threads, batches and runs of gaps do not decide what the sums are."""
    kernels = [random_kernels(rng, covariance_type, m) for m in SIZES]
    batch = random_batch(rng)
    order = np.concatenate([rng.permutation(80), 80 + rng.permutation(120)])
    shuffled = batch._replace(X=tuple(X[:, order] for X in batch.X))
    _, one = summed(kernels, covariance_type, OwnClass(), batch)
    _, other = summed(kernels, covariance_type, OwnClass(), shuffled)
    for a, b in zip(one.blocks, other.blocks, strict=True):
        np.testing.assert_allclose(a.sums, b.sums, rtol=1e-10, atol=1e-10)
