"""The one-class estimator, beyond its equality with GaussianMixture."""

import numpy as np
import pytest
from scipy.integrate import dblquad
from scipy.special import logsumexp

from pskem import SharedKernelDensity
from pskem.starts import Start
from reference import COVARIANCE_TYPES, reference_log_densities


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_methods(labelled, covariance_type):
    X, _ = labelled
    model = SharedKernelDensity(n_components=4, covariance_type=covariance_type, random_state=0)
    model.fit(X)
    (block,) = model.blocks_
    log_joint = reference_log_densities(X, model.means_, block.dense_covariances) + np.log(
        model.weights_
    )
    expected = logsumexp(log_joint, axis=1)
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-9)
    assert model.score(X) == pytest.approx(expected.mean())
    np.testing.assert_allclose(
        model.predict_proba(X), np.exp(log_joint - expected[:, None]), atol=1e-9
    )
    np.testing.assert_array_equal(model.predict(X), log_joint.argmax(axis=1))
    assert model.converged_ is True


def test_fitted_attributes_are_views_of_the_model(labelled):
    X, _ = labelled
    model = SharedKernelDensity(n_components=3, random_state=0)
    views = ("model_", "blocks_", "weights_", "means_", "covariances_")
    for name in views:
        assert not hasattr(model, name)
    (block,) = model.fit(X).model_.blocks
    assert not {*views[1:]} & vars(model).keys()
    assert model.blocks_[0] is block
    np.testing.assert_array_equal(model.weights_, block.weights[0])
    np.testing.assert_array_equal(model.means_, block.means)
    np.testing.assert_array_equal(model.covariances_, block.covariances)


def test_a_given_start_is_where_it_starts(labelled):
    """The first entry of the trace is the likelihood of the given mixture."""
    X, _ = labelled
    weights, covariances = np.array([0.5, 0.2, 0.3]), np.array([np.cov(X.T)] * 3)
    start = Start(weights, X[:3], covariances)
    model = SharedKernelDensity(n_components=3, init=start, max_iter=2, tol=0).fit(X)
    log_joint = reference_log_densities(X, X[:3], covariances) + np.log(weights)
    expected = logsumexp(log_joint, axis=1).sum()
    assert model.log_likelihoods_[0] == pytest.approx(expected, rel=1e-10)


def test_samples_come_from_the_kernels(labelled):
    X, _ = labelled
    model = SharedKernelDensity(n_components=3, random_state=0).fit(X)
    drawn, components = model.sample(40_000, random_state=0)
    share = np.bincount(components, minlength=3) / len(components)
    np.testing.assert_allclose(share, model.weights_, atol=5 * 0.5 / np.sqrt(40_000))
    for k, (mean, covariance) in enumerate(zip(model.means_, model.covariances_, strict=True)):
        own = drawn[components == k]
        error = 5 * np.sqrt(np.diag(covariance) / len(own))
        assert (np.abs(own.mean(axis=0) - mean) < error).all()
        variances = np.diag(covariance)
        error = 5 * np.sqrt((covariance**2 + np.outer(variances, variances)) / len(own))
        assert (np.abs(np.cov(own.T) - covariance) < error).all()


def test_the_density_integrates_to_one(rng):
    X = rng.standard_normal((300, 2)) @ [[3.0, 1.0], [0.0, 0.5]] + [100.0, -3.0]
    model = SharedKernelDensity(n_components=2, random_state=0, max_iter=300).fit(X)
    total, _ = dblquad(
        lambda b, a: np.exp(model.score_samples([[a, b]])[0]), 80, 120, -15, 9, epsabs=1e-4
    )
    assert total == pytest.approx(1.0, abs=1e-3)


def test_warm_start_goes_on(labelled):
    X, _ = labelled
    whole = SharedKernelDensity(n_components=5, random_state=0, tol=0, max_iter=9).fit(X)
    parts = SharedKernelDensity(
        n_components=5, random_state=0, tol=0, max_iter=4, warm_start=True
    ).fit(X)
    parts.set_params(max_iter=5).fit(X)
    np.testing.assert_allclose(parts.log_likelihoods_, whole.log_likelihoods_[4:], rtol=1e-9)
