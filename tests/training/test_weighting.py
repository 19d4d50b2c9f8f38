"""Block weights and temperature against derivatives, other optimisers and planted values."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize
from scipy.special import log_softmax
from sklearn.linear_model import LogisticRegression

from pskem.training._weighting import PULL_TEMPERATURE, cross_entropy, fit_weighting


def gaussian_blocks(rng, n, L=3, R=2, spread=1.0):
    """log q (n, R, L) of unit Gaussians about random centres, labels, log priors."""
    log_prior = np.log(rng.dirichlet(5.0 * np.ones(L)))
    labels = rng.choice(L, n, p=np.exp(log_prior))
    log_q = np.empty((n, R, L))
    for r in range(R):
        centres = spread * rng.standard_normal((L, 2))
        X = centres[labels] + rng.standard_normal((n, 2))
        log_q[:, r] = -0.5 * ((X[:, None] - centres) ** 2).sum(axis=2)
    return log_q, labels, log_prior


def loss_of(weighting, log_q, labels, log_prior):
    """Mean cross-entropy, written out."""
    joint = np.einsum("nrj,r->nj", log_q, weighting.weights) + log_prior
    log_p = log_softmax(joint / weighting.temperature, axis=1)
    return -log_p[np.arange(len(labels)), labels].mean()


def penalised(coefficients, log_q, labels, log_prior):
    """What is minimised, in beta / T and 1 / T, written out."""
    n = len(labels)
    joint = np.einsum("nrj,r->nj", log_q, coefficients[:-1]) + coefficients[-1] * log_prior
    log_p = log_softmax(joint, axis=1)
    # All is as it should be but for one sample in n + 2, of which nobody knows what it is.
    doubt = 1.0 / (n + 2.0)
    loss = -(1.0 - doubt) * log_p[np.arange(n), labels].mean() - doubt * log_p.mean()
    return loss + 0.5 * PULL_TEMPERATURE * (coefficients[-1] - 1.0) ** 2


def coefficients_of(weighting):
    return np.append(weighting.weights, 1.0) / weighting.temperature


def test_cross_entropy_and_its_gradient(rng):
    terms = rng.standard_normal((3, 20, 4))
    labels = rng.integers(4, size=20)
    for _ in range(5):
        a = rng.uniform(-1.0, 2.0, 3)
        scores = np.einsum("i,inj->nj", a, terms)
        p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        targets = np.eye(4)[labels]
        loss, slope = cross_entropy(a, terms, targets)
        assert loss == pytest.approx(-np.log(p[np.arange(20), labels]).mean(), rel=1e-13)
        numerical = approx_fprime(a, lambda v, t=targets: cross_entropy(v, terms, t)[0], 1e-7)
        np.testing.assert_allclose(slope, numerical, atol=1e-6)


def test_cross_entropy_is_convex(rng):
    log_q, labels, log_prior = gaussian_blocks(rng, 60)
    terms = np.concatenate([log_q.transpose(1, 0, 2), np.tile(log_prior, (1, 60, 1))])
    for _ in range(10):
        a = rng.uniform(0.0, 3.0, 3)
        hessian = np.array(
            [
                (
                    cross_entropy(a + 1e-5 * step, terms, np.eye(3)[labels])[1]
                    - cross_entropy(a - 1e-5 * step, terms, np.eye(3)[labels])[1]
                )
                / 2e-5
                for step in np.eye(3)
            ]
        )
        np.testing.assert_allclose(hessian, hessian.T, atol=1e-7)
        assert np.linalg.eigvalsh(hessian).min() > -1e-7


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # SLSQP of old versions
@pytest.mark.parametrize("R", [1, 2, 4])
def test_the_optimum_is_that_of_another_optimiser(rng, R):
    log_q, labels, log_prior = gaussian_blocks(rng, 300, R=R, spread=0.7)
    # No class counts as farther behind than 4 times what is usual between the best and the worst.
    relative = log_q - log_q.max(axis=2, keepdims=True)
    typical = np.maximum(np.median(-relative.min(axis=2), axis=0), 1.0)
    cut_off = np.maximum(relative, -4.0 * typical[:, None])
    found = fit_weighting(log_q, labels, log_prior)
    theirs = minimize(
        penalised,
        np.full(R + 1, 3.0),
        args=(cut_off, labels, log_prior),
        method="SLSQP",
        bounds=[(0.0, None)] * R + [(1e-3, None)],
        options={"ftol": 1e-14, "maxiter": 1000},
    )
    assert theirs.success
    ours = penalised(coefficients_of(found), cut_off, labels, log_prior)
    assert ours == pytest.approx(theirs.fun, abs=1e-8)
    np.testing.assert_allclose(coefficients_of(found), theirs.x, atol=2e-3)


def test_the_optimum_on_a_grid(rng):
    """One block: no point of a fine grid of (beta / T, 1 / T) is better."""
    log_q, labels, log_prior = gaussian_blocks(rng, 100, R=1, spread=0.7)
    log_q = np.clip(log_q - log_q.max(axis=2, keepdims=True), -1.5, 0.0)  # nothing to cut off
    found = coefficients_of(fit_weighting(log_q, labels, log_prior))
    grid = [(a, b) for a in np.linspace(0.0, 4.0, 81) for b in np.linspace(0.02, 3.0, 75)]
    losses = [penalised(point, log_q, labels, log_prior) for point in grid]
    best = grid[int(np.argmin(losses))]
    ours = penalised(found, log_q, labels, log_prior)
    assert ours <= min(losses) + 1e-9
    assert np.abs(found - best).max() <= 0.06


def test_one_block_and_two_classes_are_logistic_regression(rng):
    """With even priors only beta / T is left, the slope of a logistic regression on log q."""
    n = 4000
    labels = np.repeat([0, 1], n // 2)
    scores = np.clip(rng.standard_normal(n) + 1.2 * labels - 0.6, -1.9, 1.9)  # nothing to cut off
    log_q = np.zeros((n, 1, 2))
    log_q[:, 0, 1] = scores
    # With so many samples the pull toward one does not matter to this many digits.
    logistic = LogisticRegression(C=1e6, fit_intercept=False).fit(scores[:, None], labels)
    found = fit_weighting(log_q, labels, np.log([0.5, 0.5]))
    slope = coefficients_of(found)[0]
    assert slope == pytest.approx(logistic.coef_[0, 0], rel=2e-3)
    assert found.temperature == pytest.approx(1.0, abs=1e-3)  # nothing but the pull decides it


@pytest.mark.parametrize("copies", [2, 5])
def test_copies_of_a_block_share_its_weight(rng, copies):
    log_q, labels, log_prior = gaussian_blocks(rng, 5000, R=1)
    alone = fit_weighting(log_q, labels, log_prior)
    repeated = np.repeat(log_q, copies, axis=1)
    together = fit_weighting(repeated, labels, log_prior)
    # The samples are those of the model, so that one block alone is right as it is.
    assert coefficients_of(alone)[0] == pytest.approx(1.0, abs=0.15)
    np.testing.assert_allclose(together.weights, together.weights[0], rtol=1e-3)
    sums = [coefficients_of(one)[:-1].sum() for one in (alone, together)]
    assert sums[1] == pytest.approx(sums[0], rel=0.02)
    ones = alone._replace(weights=np.ones(copies), temperature=1.0)
    repaired = loss_of(together, repeated, labels, log_prior)
    assert repaired == pytest.approx(loss_of(alone, log_q, labels, log_prior), abs=1e-3)
    assert repaired < loss_of(ones, repeated, labels, log_prior) - 0.01


def test_planted_weights_and_temperature_are_recovered(rng):
    n, L = 60_000, 3
    beta, T = np.array([0.5, 1.5]), 2.5
    log_prior = np.log([0.6, 0.3, 0.1])
    log_q = rng.uniform(-3.0, 0.0, (n, 2, L))  # within the range in which nothing is cut off
    log_p = log_softmax((np.einsum("nrj,r->nj", log_q, beta) + log_prior) / T, axis=1)
    labels = (rng.random((n, 1)) > np.exp(log_p).cumsum(axis=1)).sum(axis=1)
    found = fit_weighting(log_q, labels, log_prior)
    assert found.temperature == pytest.approx(T, rel=0.1)
    np.testing.assert_allclose(found.weights, beta, rtol=0.1)


def test_one_wild_sample_does_not_decide(rng):
    log_q, labels, log_prior = gaussian_blocks(rng, 500)
    before = fit_weighting(log_q, labels, log_prior)
    log_q[0, 0, labels[0]] = -1e6  # its own class is hopelessly behind
    after = fit_weighting(log_q, labels, log_prior)
    np.testing.assert_allclose(after.weights, before.weights, rtol=0.15)
    # Without a bound on what one sample can say, the block would have no weight left.
    terms = np.concatenate([log_q.transpose(1, 0, 2), np.tile(log_prior, (1, 500, 1))])
    _, slope = cross_entropy(np.array([1e-4, 1.0, 1.0]), terms, np.eye(3)[labels])
    assert slope[0] > 0.0
    assert after.weights[0] > 0.3


def test_a_block_that_misleads_gets_no_weight(rng):
    log_q, labels, log_prior = gaussian_blocks(rng, 1000)
    log_q[:, 1] *= -1.0  # favours the wrong classes
    found = fit_weighting(log_q, labels, log_prior)
    assert found.weights[1] == 0.0
    assert found.weights[0] > 0.5
    assert found.temperature > 0.0


def test_a_class_without_prior_is_left_out(rng):
    log_q, labels, log_prior = gaussian_blocks(rng, 800)
    keep = labels != 2
    log_q, labels = log_q[keep], labels[keep]
    log_prior = np.log(np.exp(log_prior[:2]) / np.exp(log_prior[:2]).sum())
    two = fit_weighting(log_q[:, :, :2], labels, log_prior)
    three = fit_weighting(log_q, labels, np.append(log_prior, -np.inf))
    # What is cut off depends on the worst class, which is now another one.
    np.testing.assert_allclose(three.weights, two.weights, rtol=0.1)
    assert np.isfinite(three.temperature)


def test_samples_of_a_class_without_prior_have_no_say(rng):
    """They are wrong whatever the weights are."""
    log_q, labels, log_prior = gaussian_blocks(rng, 800)
    log_prior = np.append(np.log([0.5, 0.5]), -np.inf)
    possible = labels != 2
    assert not possible.all()
    ours = fit_weighting(log_q, labels, log_prior)
    theirs = fit_weighting(log_q[possible], labels[possible], log_prior)
    assert ours.temperature == pytest.approx(theirs.temperature, rel=0.05)
    np.testing.assert_allclose(ours.weights, theirs.weights, rtol=0.05)


def test_samples_that_are_all_right_leave_a_doubt():
    """Half of one sample in n + 2 may be wrong: Platt's targets, met exactly."""
    labels = np.arange(100) % 2
    log_q = np.where(np.eye(2)[labels] == 1.0, 0.0, -200.0)[:, None].repeat(2, axis=1)
    found = fit_weighting(log_q, labels, np.log([0.5, 0.5]))
    p = np.exp(-loss_of(found, log_q, labels, np.log([0.5, 0.5])))
    assert p == pytest.approx(1.0 - 0.5 / 102.0, abs=1e-4)
    assert found.weights[0] == pytest.approx(found.weights[1])
    assert found.temperature == pytest.approx(1.0, abs=1e-3)
