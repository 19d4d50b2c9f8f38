"""Structures' expected sums and pooling, and the M-step with a prior, against formulas by hand."""

import numpy as np
import pytest
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from pskem.engine import (
    ArraySource,
    Frame,
    Kernels,
    OwnClass,
    Regulariser,
    Summarise,
    estimate,
    expect,
    maximisation,
    prepare,
    serial_map,
)
from pskem.structures import STRUCTURES, pool, shrink
from reference import COVARIANCE_TYPES, of_type, random_covariances, reference_log_densities

APART = [name for name in COVARIANCE_TYPES if STRUCTURES[name].storage.per_kernel]
DOUBLE = np.dtype(np.float64)


@pytest.fixture(autouse=True)
def _one_thread():
    """Matrices are tiny here, and threads of BLAS would only wait for one another."""
    with threadpool_limits(1, "blas"):
        yield


def random_kernels(rng, covariance_type, L=3, K=4, m=3):
    return Kernels(
        rng.dirichlet(np.ones(K), size=L),
        rng.standard_normal((K, m)),
        of_type(random_covariances(rng, K, m), covariance_type),
    )


def clustered(rng, L=3, n=50, m=3):
    """Samples of L classes, (N, m), labels, and both as the engine takes them."""
    labels = np.repeat(np.arange(L), n)
    X = rng.standard_normal((L * n, m)) * rng.uniform(0.5, 1.5, (L, m))[labels]
    X += rng.standard_normal((L, 2, m))[labels, rng.integers(2, size=L * n)]
    bounds = np.arange(0, L * n + 1, n)
    return X, labels, ArraySource([np.ascontiguousarray(X.T)], bounds, serial_map)


def one_pass(structure, source, kernels, regulariser):
    prepared = prepare(structure, kernels, DOUBLE)
    (statistics,), (log_likelihood,) = source.fold(Summarise((prepared,), OwnClass()))
    after, _ = maximisation(prepared, statistics, regulariser)
    return after, log_likelihood


def dense(kernels, covariance_type):
    return STRUCTURES[covariance_type].storage.dense(kernels.covariances, *kernels.means.shape)


def moments(X, labels, kernels, covariance_type):
    """Masses (L, K), means and within-kernel covariances (K, m, m), sample by sample."""
    with np.errstate(divide="ignore"):
        log_weights = np.log(kernels.weights)[labels]
    joint = reference_log_densities(X, kernels.means, dense(kernels, covariance_type)) + log_weights
    w = np.exp(joint - logsumexp(joint, axis=1, keepdims=True))  # (N, K)
    masses = np.array([w[labels == j].sum(axis=0) for j in range(len(kernels.weights))])
    means = np.array([np.average(X, axis=0, weights=column) for column in w.T])
    covariances = np.array([np.cov(X.T, aweights=column, bias=True) for column in w.T])
    return masses, means, covariances


# ---------------------------------------------------------------------------------- structures


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_estimating_from_expected_sums_gives_the_kernels_back(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    kernels = random_kernels(rng, covariance_type)
    counts = rng.uniform(0.5, 20.0, 4)
    # Whitened by some other covariance: the sums' coordinates are not the kernels' own.
    natural = prepare(structure, random_kernels(rng, covariance_type), DOUBLE).natural
    frame = Frame(rng.standard_normal((4, 3)), natural.whitener)
    means, covariances = estimate(structure, expect(structure, kernels.gaussians, counts, frame))
    np.testing.assert_allclose(means, kernels.means, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(covariances, kernels.covariances, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_expected_sums_are_the_averages_of_drawn_samples(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    kernels = random_kernels(rng, covariance_type, K=2)
    natural = prepare(structure, kernels, DOUBLE).natural
    n = 40_000
    frame = Frame(np.zeros((2, 3)), natural.whitener)
    _, first, (own, common), _ = expect(structure, kernels.gaussians, np.ones(2), frame)
    expected = np.hstack([own, first])
    scatter = np.zeros((3, 3))
    for k, P in enumerate(dense(kernels, covariance_type)):
        X = rng.multivariate_normal(kernels.means[k], P, size=n).T
        phi = np.empty((structure.n_rows(3), n))
        structure.features(natural, X, phi)
        error = 5.0 * phi.std(axis=1) / np.sqrt(n)
        assert (np.abs(phi.mean(axis=1) - expected[k]) < error).all()
        scatter += phi[-3:] @ phi[-3:].T / n
    if covariance_type == "tied":
        np.testing.assert_allclose(common, scatter, rtol=0.05, atol=0.05)
    else:
        assert np.all(common == 0.0)


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_pool_and_shrink_are_weighted_means(rng, covariance_type, diagonal):
    structure = STRUCTURES[covariance_type]
    covariances = of_type(random_covariances(rng, 4, 3), covariance_type)
    masses = np.array([3.0, 0.0, 1.0, 6.0])
    target = pool(structure, covariances, masses, diagonal)
    shrunk = shrink(structure, covariances, masses, target, 2.0)
    assert target.shape == shrunk.shape == structure.storage.shape(4, 3)
    if covariance_type == "tied":
        psi = np.diag(np.diag(covariances)) if diagonal else covariances
        np.testing.assert_allclose(target, psi, rtol=1e-14)
        np.testing.assert_allclose(shrunk, (10.0 * covariances + 2.0 * psi) / 12.0, rtol=1e-14)
        return
    psi = (3.0 * covariances[0] + 1.0 * covariances[2] + 6.0 * covariances[3]) / 10.0
    if diagonal and covariance_type == "full":
        psi = np.diag(np.diag(psi))
    for k, n in enumerate(masses):
        np.testing.assert_allclose(target[k], psi, rtol=1e-14)
        np.testing.assert_allclose(shrunk[k], (n * covariances[k] + 2.0 * psi) / (n + 2.0))


# --------------------------------------------------------------------------------- the M-step


@pytest.mark.parametrize("diagonal", [False, True])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_m_step_shrinks_as_written_out(rng, covariance_type, diagonal):
    X, labels, source = clustered(rng)
    before = random_kernels(rng, covariance_type)
    nu = 7.0
    after, _ = one_pass(
        STRUCTURES[covariance_type], source, before, Regulariser(1e-10, nu, diagonal)
    )
    by_class, means, P = moments(X, labels, before, covariance_type)
    masses = by_class.sum(axis=0)
    np.testing.assert_allclose(after.weights, by_class / 50, rtol=1e-10)
    np.testing.assert_allclose(after.means, means, rtol=1e-10, atol=1e-12)
    if covariance_type == "diag":
        P = P * np.eye(3)
    elif covariance_type == "spherical":
        P = np.trace(P, axis1=1, axis2=2)[:, None, None] / 3 * np.eye(3)
    psi = sum(n * S for n, S in zip(masses, P, strict=True)) / len(X)
    if covariance_type == "tied":
        target = np.diag(np.diag(psi)) if diagonal else psi
        expected = [(len(X) * psi + nu * target) / (len(X) + nu)] * 4
    else:
        target = psi * np.eye(3) if diagonal else psi
        expected = [(n * S + nu * target) / (n + nu) for n, S in zip(masses, P, strict=True)]
    np.testing.assert_allclose(dense(after, covariance_type), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_limits_of_shrinkage(rng, covariance_type):
    _, _, source = clustered(rng)
    structure = STRUCTURES[covariance_type]
    before = random_kernels(rng, covariance_type)
    plain, _ = one_pass(structure, source, before, Regulariser(1e-10))
    hardly, _ = one_pass(structure, source, before, Regulariser(1e-10, 1e-9))
    for ours, theirs in zip(hardly, plain, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)
    wholly, _ = one_pass(structure, source, before, Regulariser(1e-10, 1e15))
    P = dense(wholly, covariance_type)
    masses = plain.weights.sum(axis=0) * 50
    pooled = np.average(dense(plain, covariance_type), axis=0, weights=masses)
    np.testing.assert_allclose(P, np.broadcast_to(pooled, P.shape), rtol=1e-10, atol=1e-12)


# ------------------------------------------------------------------------------- monotonicity


def log_prior(kernels, covariance_type, target, regulariser):
    """log of the inverse Wishart density, up to constants."""
    P = dense(kernels, covariance_type)
    wishart = sum(np.linalg.slogdet(S)[1] + np.trace(np.linalg.solve(S, target)) for S in P)
    return -0.5 * regulariser.shrinkage * wishart


def crowded(rng):
    """Data that leave the prior something to say, and a start with a zero weight."""
    _, _, source = clustered(rng, n=12)
    weights = rng.dirichlet(np.ones(4), size=3)
    weights[0, 3] = 0.0
    weights[0] /= weights[0].sum()
    return source, weights


@pytest.mark.parametrize("covariance_type", APART)
def test_the_posterior_never_falls_for_a_fixed_target(rng, monkeypatch, covariance_type):
    """Maximum a posteriori EM. It holds for a fixed Psi only; see the next test."""
    structure = STRUCTURES[covariance_type]
    source, weights = crowded(rng)
    kernels = random_kernels(rng, covariance_type)._replace(weights=weights)
    target = random_covariances(rng, 1, 3)
    compact = of_type(np.repeat(target, 4, axis=0), covariance_type)
    monkeypatch.setattr("pskem.engine._em.pool", lambda *_: compact)
    target = structure.storage.dense(compact, 4, 3)[0]
    regulariser = Regulariser(1e-10, 5.0)
    trace = []
    for _ in range(30):
        penalty = log_prior(kernels, covariance_type, target, regulariser)
        kernels, log_likelihood = one_pass(structure, source, kernels, regulariser)
        trace.append(log_likelihood + penalty)
    gains = np.diff(trace)
    assert (gains >= -1e-10 * np.abs(trace[1:])).all()
    assert gains[0] > 0.1
    assert kernels.weights[0, 3] == 0.0


def test_with_a_target_of_its_own_neither_likelihood_nor_posterior_is_monotone():
    """Why no test asks for more: the target moves with the kernels, so passes have no one goal."""
    structure, regulariser = STRUCTURES["full"], Regulariser(1e-10, 5.0)
    falls = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        _, _, source = clustered(rng, n=12)
        kernels = random_kernels(rng, "full")
        likelihoods, posteriors, target = [], [], None
        for _ in range(40):
            plain, log_likelihood = one_pass(structure, source, kernels, Regulariser(1e-10))
            likelihoods.append(log_likelihood)
            if target is not None:
                posteriors.append(log_likelihood + log_prior(kernels, "full", target, regulariser))
            # Classes are equally large, so weights are masses but for a factor.
            target = pool(structure, plain.covariances, plain.weights.sum(axis=0), False)[0]
            kernels, _ = one_pass(structure, source, kernels, regulariser)
        falls.append([np.diff(likelihoods).min(), np.diff(posteriors).min()])
        assert likelihoods[-1] > likelihoods[0]
    assert (np.min(falls, axis=0) < -1e-3).all()
