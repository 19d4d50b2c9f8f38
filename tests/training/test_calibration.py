"""Shares, weights and temperature, fitted together: derivatives, identities, planted values."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from scipy.special import log_softmax, softmax

from pskem import SharedKernelClassifier
from pskem.training._calibration import calibrate, calibrated, cross_entropy_of_shares


def drawn(rng, n, R=2, L=3, spread=2.0):
    """log q (n, R, L), labels that follow from it by Bayes, log priors."""
    log_q = spread * rng.standard_normal((n, R, L))
    log_prior = np.log([0.5, 0.3, 0.2])
    p = softmax(log_q.sum(axis=1) + log_prior, axis=1)
    labels = (rng.random((n, 1)) > p.cumsum(axis=1)).sum(axis=1)
    return log_q, labels, log_prior


def loss_of(found, log_q, labels, log_prior):
    """Mean cross-entropy, written out."""
    q, prior = np.exp(log_q), np.exp(log_prior)
    e = found.shares[:, None]
    mixed = np.log((1.0 - e) * q + e * (q @ prior)[:, :, None])
    joint = np.einsum("nrj,r->nj", mixed, found.weights) + log_prior
    log_p = log_softmax(joint / found.temperature, axis=1)
    return -log_p[np.arange(len(labels)), labels].mean()


def test_the_gradient_is_that_of_differences(rng):
    log_q, labels, log_prior = drawn(rng, 50)
    q = np.exp(log_q - log_q.max(axis=2, keepdims=True)).transpose(1, 0, 2)
    pool = (q @ np.exp(log_prior))[:, :, None]
    rest = (q, pool, log_prior, np.eye(3)[labels], rng.uniform(0.5, 2.0, 50))
    for _ in range(5):
        a = np.r_[rng.uniform(0.2, 2.0, 2), rng.uniform(-5.0, 0.0, 2), rng.uniform(0.5, 2.0)]
        _, slope = cross_entropy_of_shares(a, *rest)
        numerical = approx_fprime(a, lambda v: cross_entropy_of_shares(v, *rest)[0], 1e-7)
        np.testing.assert_allclose(slope, numerical, atol=1e-6)


def test_planted_shares_are_recovered(rng):
    """Labels that are drawn anew for a part of the samples ask for just that share."""
    log_q, labels, log_prior = drawn(rng, 40_000, R=1, spread=6.0)
    e = 0.1
    anew = rng.random(len(labels)) < e
    labels = np.where(anew, rng.choice(3, len(labels), p=np.exp(log_prior)), labels)
    found = calibrate(log_q, labels, log_prior)
    assert found.shares[0] == pytest.approx(e, rel=0.1)
    assert found.weights[0] / found.temperature == pytest.approx(1.0, rel=0.1)


def test_it_is_never_worse_than_none(rng):
    for seed in range(5):
        log_q, labels, log_prior = drawn(np.random.default_rng(seed), 300)
        for sure in (0.3, 1.0, 5.0):
            found = calibrate(sure * log_q[:150], labels[:150], log_prior)
            none = found._replace(weights=np.ones(2), temperature=1.0, shares=np.zeros(2))
            others = (sure * log_q[150:], labels[150:], log_prior)
            assert loss_of(found, *others) <= loss_of(none, *others) + 0.02


def test_strong_evidence_that_is_right_stays_strong(rng):
    """Half of the samples are copies of what a model has seen. No share is better than any."""
    n, slope = 2000, 0.1
    log_q, labels, log_prior = drawn(rng, n, R=1, spread=slope * 20.0)
    log_q /= slope
    copies = np.arange(n) % 2 == 0
    log_q[copies] = -400.0
    log_q[copies, 0, labels[copies]] = 0.0
    found = calibrate(log_q, labels, log_prior)
    none = found._replace(weights=np.array([slope]), temperature=1.0, shares=np.zeros(1))
    rest = (log_q, labels, log_prior)
    assert loss_of(found, *rest) < loss_of(none, *rest) + 1e-3


def test_one_hopeless_sample_does_not_decide(rng):
    log_q, labels, log_prior = drawn(rng, 500)
    before = calibrate(log_q, labels, log_prior)
    log_q[0, 0, labels[0]] = -1e6
    after = calibrate(log_q, labels, log_prior)
    slopes = [one.weights / one.temperature for one in (before, after)]
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=0.25)


def test_a_block_that_tells_nothing_leaves_the_priors(rng):
    log_q = 5.0 * rng.standard_normal((2000, 1, 3))
    labels = rng.choice(3, 2000, p=[0.5, 0.3, 0.2])
    found = calibrate(log_q, labels, np.log([0.5, 0.3, 0.2]))
    entropy = -np.sum([0.5, 0.3, 0.2] * np.log([0.5, 0.3, 0.2]))
    loss = loss_of(found, log_q, labels, np.log([0.5, 0.3, 0.2]))
    assert loss == pytest.approx(entropy, abs=0.03)


def test_samples_of_a_class_without_prior_have_no_say(rng):
    log_q, labels, _ = drawn(rng, 600)
    log_prior = np.array([np.log(0.6), np.log(0.4), -np.inf])
    possible = labels != 2
    ours = calibrate(log_q, labels, log_prior)
    theirs = calibrate(log_q[possible], labels[possible], log_prior)
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=0.05)


@pytest.fixture
def trained(labelled):
    X, y = labelled
    return SharedKernelClassifier(
        n_components=6, n_blocks=2, early_stopping=False, discriminative_iter=0, random_state=0
    ).fit(X, y)


def test_a_share_is_that_of_kernels(trained, labelled):
    """The model decides as one whose classes hold so much of the kernels of all."""
    model, X = trained.model_, labelled[0]
    ours = model.weighed(np.array([0.7, 1.2]), 1.3, np.array([0.05, 0.2]))
    theirs = ours.shared()
    assert theirs.sharing is None
    for one, two, e in zip(model.blocks, theirs.blocks, (0.05, 0.2), strict=True):
        pooled = model.priors @ one.weights
        np.testing.assert_allclose(two.weights, (1.0 - e) * one.weights + e * pooled, rtol=1e-12)
    np.testing.assert_allclose(ours.log_posterior(X), theirs.log_posterior(X), atol=1e-10)
    np.testing.assert_array_equal(ours.log_density(X), model.log_density(X))


def test_with_one_block_a_share_is_that_of_the_prior(labelled):
    X, y = labelled
    fitted = SharedKernelClassifier(n_components=6, early_stopping=False, random_state=0).fit(X, y)
    e = 0.07
    shared = fitted.model_.weighed(np.ones(1), 1.0, np.array([e]))
    expected = (1.0 - e) * fitted.predict_proba(X) + e * fitted.class_prior_
    np.testing.assert_allclose(np.exp(shared.log_posterior(X)), expected, rtol=1e-10)


def test_what_a_block_says_is_bounded(trained):
    shares = np.array([0.01, 0.1])
    model = trained.model_.weighed(np.ones(2), 1.0, shares)
    far = 1e3 * np.random.default_rng(0).standard_normal((200, trained.n_features_in_))
    joint = model.joint(model.log_likelihood(far)) - model.log_priors
    bound = np.log(1.0 / (shares * model.priors.min())).sum()
    assert np.ptp(joint, axis=1).max() <= bound


def test_other_priors_leave_the_pool_as_it_was(trained, labelled):
    model = trained.model_.weighed(np.array([0.7, 1.2]), 1.3, np.array([0.05, 0.2]))
    X, priors = labelled[0], np.array([0.2, 0.3, 0.5])
    expected = np.exp(model.log_posterior(X)) * priors / model.priors
    expected /= expected.sum(axis=1, keepdims=True)
    found = np.exp(model.with_priors(priors).log_posterior(X))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_probabilities_of_few_samples_are_no_longer_overconfident(rng):
    """Nothing is held out of 200 samples, and yet the log loss of others is near that of truth."""
    n, m = 4200, 12
    y = rng.integers(2, size=n)
    X = rng.standard_t(4, size=(n, m)) + 0.5 * y[:, None]
    loss = {}
    for name, settings in {"as it is": {"early_stopping": False}, "calibrated": {}}.items():
        model = SharedKernelClassifier(covariance_type="full", random_state=0, **settings)
        log_p = model.fit(X[:200], y[:200]).predict_log_proba(X[200:])
        loss[name] = -log_p[np.arange(n - 200), y[200:]].mean()
    assert loss["calibrated"] < 0.8 * loss["as it is"]
    assert loss["calibrated"] < np.log(2.0)


def test_calibrated_models_keep_their_kernels(trained):
    log_q, labels, log_prior = drawn(np.random.default_rng(1), 100)
    found = calibrate(log_q, labels, log_prior)
    assert calibrated(trained.model_, found).same_kernels(trained.model_)
