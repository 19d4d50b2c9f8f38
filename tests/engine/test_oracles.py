"""The engine against truths from elsewhere: other estimators, closed forms, brute force."""

from itertools import product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import GaussianNB

from pskem import SharedKernelDensity
from pskem.engine import ArraySource, Kernels, Regulariser, auxiliary, em_pass, serial_map
from pskem.starts import KMeans, Start, Uniform
from pskem.structures import STRUCTURES
from reference import (
    COVARIANCE_TYPES,
    of_type,
    plain,
    random_covariances,
    reference_log_densities,
    reference_log_likelihood,
)


def one_hot_model(X, y, covariance_type="full", n_blocks=1):
    """One pass with one kernel per class: class moments in closed form."""
    L, m = len(np.unique(y)), X.shape[1] // n_blocks
    return plain(
        n_components=L,
        n_blocks=n_blocks,
        covariance_type=covariance_type,
        init=Start(
            weights=[np.eye(L)] * n_blocks,
            means=[np.zeros((L, m))] * n_blocks,
            covariances=[np.array([np.eye(m)] * L)] * n_blocks,
            reseed=False,
        ),
        reg_covar=0,
        max_iter=1,
        tol=0,
    ).fit(X, y)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_one_class_is_gaussian_mixture(labelled, rng, covariance_type):
    X, _ = labelled
    K = 4
    means = X[rng.choice(len(X), K, replace=False)]
    weights = rng.dirichlet(np.ones(K))
    covariances = of_type(np.array([np.cov(X.T)] * K), covariance_type)
    precisions = (
        np.linalg.inv(covariances) if covariance_type in ("full", "tied") else 1.0 / covariances
    )
    with pytest.warns(ConvergenceWarning):
        theirs = GaussianMixture(
            K,
            covariance_type=covariance_type,
            weights_init=weights,
            means_init=means,
            precisions_init=precisions,
            reg_covar=0,
            tol=0,
            max_iter=25,
        ).fit(X)
    ours = SharedKernelDensity(
        n_components=K,
        covariance_type=covariance_type,
        init=Start(weights, means, covariances),
        reg_covar=0,
        tol=0,
        max_iter=25,
    ).fit(X)
    np.testing.assert_allclose(ours.weights_, theirs.weights_, rtol=1e-9)
    np.testing.assert_allclose(ours.means_, theirs.means_, rtol=1e-9)
    np.testing.assert_allclose(ours.covariances_, theirs.covariances_, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(ours.score_samples(X), theirs.score_samples(X), rtol=1e-9)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-9)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    np.testing.assert_allclose(ours.aic(X), theirs.aic(X), rtol=1e-9)
    np.testing.assert_allclose(ours.bic(X), theirs.bic(X), rtol=1e-9)
    assert ours.log_likelihoods_.shape == (25,)
    # Passes report what they found; the 26th would find what score_samples finds now.
    assert ours.log_likelihoods_[-1] <= ours.score_samples(X).sum()


def test_one_kernel_per_class_is_quadratic_discriminant_analysis(labelled):
    X, y = labelled
    model = one_hot_model(X, y)
    (block,) = model.blocks_
    np.testing.assert_array_equal(block.weights, np.eye(3))
    for j in range(3):
        np.testing.assert_allclose(block.means[j], X[y == j].mean(axis=0), rtol=1e-10)
        np.testing.assert_allclose(block.covariances[j], np.cov(X[y == j].T, bias=True), rtol=1e-9)
    # The divisor of scikit-learn's covariances depends on its version: n or n - 1. With the same
    # divisor the posteriors are the same.
    theirs = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, y)
    n = np.bincount(y)
    ratios = np.array([P[0, 0] for P in theirs.covariance_]) / block.covariances[:, 0, 0]
    assert np.allclose(ratios, 1.0) or np.allclose(ratios, n / (n - 1.0))
    weights, means, covariances = block.kernels
    scaled = Kernels(weights, means, covariances * ratios[:, None, None])
    model.model_ = model.model_.with_kernels([scaled])
    np.testing.assert_allclose(
        model.predict_log_proba(X), theirs.predict_log_proba(X), rtol=1e-9, atol=1e-9
    )


def test_one_feature_per_block_is_naive_bayes(labelled):
    X, y = labelled
    model = one_hot_model(X, y, n_blocks=X.shape[1])
    theirs = GaussianNB(var_smoothing=0).fit(X, y)
    np.testing.assert_allclose(
        model.predict_joint_log_proba(X), theirs.predict_joint_log_proba(X), rtol=1e-10
    )


def test_tied_one_kernel_per_class_is_linear_discriminant_analysis(labelled):
    X, y = labelled
    model = one_hot_model(X, y, covariance_type="tied")
    pooled = sum(np.cov(X[y == j].T, bias=True) * np.mean(y == j) for j in range(3))
    np.testing.assert_allclose(model.blocks_[0].covariances, pooled, rtol=1e-9)
    theirs = LinearDiscriminantAnalysis(solver="lsqr").fit(X, y)
    np.testing.assert_allclose(
        model.predict_log_proba(X), theirs.predict_log_proba(X), rtol=1e-9, atol=1e-9
    )


def tiny(rng, K, N, m=2):
    """N samples of two classes and two sets of kernels."""
    n = N // 2
    X = rng.standard_normal((N, m))
    labels = np.repeat([0, 1], [n, N - n])
    bounds = np.array([0, n, N])

    def kernels():
        return Kernels(
            rng.dirichlet(np.ones(K), size=2),
            rng.standard_normal((K, m)),
            random_covariances(rng, K, m),
        )

    return (
        X,
        labels,
        ArraySource([np.ascontiguousarray(X.T)], bounds, serial_map),
        kernels(),
        kernels(),
    )


@pytest.mark.parametrize(("K", "N"), [(2, 8), (3, 7), (2, 1), (3, 2)])
def test_auxiliary_function_is_the_sum_over_all_association_sequences(rng, K, N):
    X, labels, source, after, before = tiny(rng, K, N)

    def log_joint(theta):
        """log p(x_n, z_n = k | c_n), (N, K)."""
        log_densities = reference_log_densities(X, theta.means, theta.covariances)
        return log_densities + np.log(theta.weights)[labels]

    g, h = log_joint(after), log_joint(before)
    log_h = h - logsumexp(h, axis=1, keepdims=True)
    n = np.arange(N)
    expected = sum(
        g[n, sequence].sum() * np.exp(log_h[n, sequence].sum())
        for sequence in map(list, product(range(K), repeat=N))
    )
    assert auxiliary(STRUCTURES["full"], source, after, before) == pytest.approx(
        expected, rel=1e-12
    )


def test_auxiliary_function_is_minus_infinity_where_an_association_is_ruled_out(rng):
    _, _, source, after, before = tiny(rng, 2, 6)
    closed = after._replace(weights=np.array([[1.0, 0.0], [0.5, 0.5]]))
    assert auxiliary(STRUCTURES["full"], source, closed, before) == -np.inf


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_pass_maximises_the_auxiliary_function(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    _, _, source, _, before = tiny(rng, 2, 40)
    before = before._replace(covariances=of_type(before.covariances, covariance_type))
    (best,) = em_pass([structure], source, [before], [Regulariser(0.0)], serial_map).kernels
    peak = auxiliary(structure, source, best, before)
    assert peak > auxiliary(structure, source, before, before)
    for _ in range(50):
        step = 10.0 ** rng.uniform(-3, -1)
        weights = best.weights * np.exp(step * rng.standard_normal(best.weights.shape))
        noise = 1.0 + step * rng.standard_normal()
        other = Kernels(
            weights / weights.sum(axis=1, keepdims=True),
            best.means + step * rng.standard_normal(best.means.shape),
            best.covariances * noise**2,
        )
        assert auxiliary(structure, source, other, before) < peak


@pytest.mark.parametrize(("n_blocks", "K"), [(2, 2), (3, 2), (2, [2, 3])])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("partition", ["sequential", "interleaved", "random"])
def test_blocks_expand_to_one_mixture(labelled, covariance_type, partition, n_blocks, K):
    X, y = labelled
    model = plain(
        n_components=K,
        n_blocks=n_blocks,
        partition=partition,
        covariance_type=covariance_type,
        max_iter=5,
        tol=0,
        random_state=0,
    ).fit(X, y)
    expanded = model.expand()
    assert len(expanded.means) == np.prod(np.broadcast_to(K, n_blocks))
    np.testing.assert_allclose(expanded.weights.sum(axis=1), 1.0)
    np.testing.assert_array_equal(expanded.features, np.arange(5))
    expected = reference_log_likelihood(X, expanded.weights, expanded.means, expanded.covariances)
    np.testing.assert_allclose(model.class_log_likelihood(X), expected, rtol=1e-9)


def test_planted_parameters_are_recovered(rng):
    """Two blocks, kernels shared by two classes; errors within five standard errors."""
    N, K = 40_000, 3
    weights = np.array([[0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    means = [np.array([[0, 0], [5, 0], [0, 6]]), np.array([[1, -4], [5, 5], [-6, 2]])]
    covariances = [random_covariances(rng, K, 2, 0.5, 1.5) for _ in range(2)]
    y = rng.integers(2, size=N)
    X = np.hstack(
        [
            np.array([rng.multivariate_normal(mu[k], P[k]) for k in _draw(rng, weights[y])])
            for mu, P in zip(means, covariances, strict=True)
        ]
    )
    model = plain(
        n_components=K, n_blocks=2, priors="uniform", tol=1e-8, max_iter=200, random_state=0
    ).fit(X, y)
    assert model.converged_.all()
    for block, mu, P in zip(model.blocks_, means, covariances, strict=True):
        distance = np.linalg.norm(block.means[:, None] - mu[None], axis=2)
        _, match = linear_sum_assignment(distance.T)
        error = 5.0 / np.sqrt(N * 0.1)
        np.testing.assert_allclose(block.means[match], mu, atol=error * np.sqrt(1.5))
        np.testing.assert_allclose(block.covariances[match], P, atol=error * 1.5 * np.sqrt(2))
        np.testing.assert_allclose(block.weights[:, match], weights, atol=error * 0.5)


def _draw(rng, probabilities):
    return (rng.random((len(probabilities), 1)) > probabilities.cumsum(axis=1)).sum(axis=1)


def test_the_engine_is_the_written_out_algorithm(labelled, rng):
    """Eqs. (skemw)-(skemP) sample by sample, with labels gathered one at a time."""
    X, y = labelled
    K, L = 4, 3
    weights = rng.dirichlet(np.ones(K), size=L)
    means = X[rng.choice(len(X), K, replace=False)]
    covariances = np.array([np.cov(X.T)] * K)
    model = plain(
        n_components=K,
        n_blocks=1,
        init=Start(weights, means, covariances, reseed=False),
        reg_covar=0,
        max_iter=6,
        tol=0,
    ).fit(X, y)
    trace = []
    for _ in range(6):
        log_joint = reference_log_densities(X, means, covariances) + np.log(weights)[y]
        trace.append(logsumexp(log_joint, axis=1).sum())
        w = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
        weights = np.array([w[y == j].mean(axis=0) for j in range(L)])
        means = np.array([np.average(X, axis=0, weights=w[:, k]) for k in range(K)])
        covariances = np.array([np.cov(X.T, aweights=w[:, k], bias=True) for k in range(K)])
    (block,) = model.blocks_
    np.testing.assert_allclose(block.weights, weights, rtol=1e-9)
    np.testing.assert_allclose(block.means, means, rtol=1e-9)
    np.testing.assert_allclose(block.covariances, covariances, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(model.log_likelihoods_[:, 0], trace, rtol=1e-11)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("reg_covar", [0.0, 1e-6, 1e-2])
@pytest.mark.parametrize(
    "init",
    [
        KMeans(refine=False, reseed=False),
        KMeans(reseed=False),
        Uniform(-20.0, 60.0, scale=20.0, reseed=False),
    ],
    ids=["k-means++", "kmeans", "random"],
)
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_likelihood_never_falls(labelled, covariance_type, init, reg_covar):
    X, y = labelled
    model = plain(
        n_components=12,
        n_blocks=2,
        covariance_type=covariance_type,
        init=init,
        reg_covar=reg_covar,
        max_iter=60,
        tol=0,
        random_state=3,
    ).fit(X, y)
    gains = np.diff(model.log_likelihoods_, axis=0)
    assert (gains >= -1e-10 * np.abs(model.log_likelihoods_[1:])).all()
    assert (model.log_likelihoods_[-1] > model.log_likelihoods_[0]).all()
