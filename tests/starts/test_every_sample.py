"""A kernel at every sample: leave-one-out densities of another library, shares of an optimiser."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from sklearn.neighbors import KernelDensity

from pskem.engine import Coordinates
from pskem.starts import BlockSamples, EverySample, Wanted
from pskem.starts._samples import _left_out, _shares
from pskem.structures import STRUCTURES

WIDTHS = np.array([0.1, 0.4, 1.0])


def seen(points, labels, weights=None, scale=1.0):
    frame = Coordinates(np.zeros(points.shape[1]), np.full(points.shape[1], scale))
    return BlockSamples(points, labels, int(labels.max()) + 1, frame, weights)


@pytest.fixture
def points(rng):
    labels = np.repeat([0, 1], [25, 15])
    return rng.standard_normal((40, 3)) + labels[:, None], labels


def by_hand(points, labels, width):
    """Log density of each sample under the others of its class."""
    found = []
    for n, (x, label) in enumerate(zip(points, labels, strict=True)):
        others = (labels == label) & (np.arange(len(labels)) != n)
        model = KernelDensity(bandwidth=width).fit(points[others])
        found.append(model.score_samples(x[None])[0])
    return np.array(found)


def test_every_sample_is_left_out_once(points):
    X, labels = points
    found = _left_out(seen(X, labels), WIDTHS) - 1.5 * np.log(2.0 * np.pi)
    expected = [by_hand(X, labels, width) for width in WIDTHS]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_row_with_a_weight_has_itself_as_a_neighbour(points, rng):
    X, labels = points
    times = rng.integers(1, 4, len(labels))
    times[[0, 30]] = 1
    rows = np.repeat(np.arange(len(labels)), times)
    weighted = _left_out(seen(X, labels, times.astype(float)), WIDTHS)
    repeated = _left_out(seen(X[rows], labels[rows]), WIDTHS)
    np.testing.assert_allclose(weighted[:, rows], repeated, rtol=1e-9)


def test_real_weights_make_no_neighbours(points, rng):
    """They say how much a row counts, not how often it is there."""
    X, labels = points
    for weights in (rng.uniform(0.9, 1.1, 40), rng.uniform(1.0, 5.0, 40), np.full(40, 3.0)):
        wanted = Wanted(STRUCTURES["spherical"], seen(X, labels, weights), 200, rng)
        assert EverySample().make(wanted).covariances.min() > 0.001


def test_shares_are_those_of_another_optimiser(rng):
    logs, counted = rng.normal(scale=3.0, size=(4, 200)), rng.uniform(0.5, 2.0, 200)
    found = _shares(logs, counted)

    def lost(a):
        return -counted @ logsumexp(logs + np.log(softmax(a))[:, None], axis=0)

    theirs = minimize(lost, np.zeros(4))
    np.testing.assert_allclose(found, softmax(theirs.x), atol=2e-3)
    np.testing.assert_array_equal(_shares(np.full((3, 2), -np.inf), np.ones(2)), np.full(3, 1 / 3))


def test_the_kernels(points, rng):
    X, labels = points
    wanted = Wanted(STRUCTURES["spherical"], seen(X, labels, scale=2.0), 200, rng)
    weights, means, variances = EverySample().make(wanted)
    np.testing.assert_allclose(weights.sum(axis=1), 1.0)
    assert len(means) == len(variances) == weights.shape[1] <= 200
    assert len(means) % 40 == 0
    np.testing.assert_array_equal(means[:40], X)
    assert not weights[0, :40][labels == 1].any()
    assert set(np.round(2.0 * np.sqrt(variances) / 3**0.25, 9)) <= {0.02, 0.1, 0.25, 0.5, 1.0}


def test_rows_that_repeat_call_for_the_narrowest(points, rng):
    X, labels = points
    twice = seen(X, labels, np.where(np.arange(40) % 2, 2.0, 1.0))
    variances = EverySample().make(Wanted(STRUCTURES["spherical"], twice, 200, rng)).covariances
    once = (
        EverySample().make(Wanted(STRUCTURES["spherical"], seen(X, labels), 200, rng)).covariances
    )
    assert variances.min() == pytest.approx(0.0004 * np.sqrt(3.0))
    assert once.min() > 0.001
