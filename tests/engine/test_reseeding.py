"""Empty kernels find new places: against a grid, and by what the likelihood says."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from pskem import SharedKernelClassifier
from pskem.engine import ArraySource, Kernels, reseed, serial_map
from pskem.engine._reseeding import best_weight
from pskem.starts import Start, Uniform
from pskem.structures import STRUCTURES
from reference import COVARIANCE_TYPES, of_type, random_covariances, reference_log_likelihood


@pytest.fixture(autouse=True)
def _one_thread():
    """Matrices are tiny here, and threads of BLAS would only wait for one another."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.mark.parametrize("seed", range(6))
def test_the_best_weight_is_that_of_a_grid(seed):
    rng = np.random.default_rng(seed)
    ratios = rng.lognormal(-1.0, 2.0, 40)
    grid = np.linspace(0.0, 0.5, 5001)
    values = np.log(1.0 - grid[:, None] + grid[:, None] * ratios).sum(axis=1)
    assert best_weight(ratios) == pytest.approx(grid[values.argmax()], abs=1e-4)


@pytest.mark.parametrize(
    ("ratios", "expected"),
    [
        ([0.5, 0.9], 0.0),  # nowhere better
        ([1.0, 1.0], 0.0),  # no difference
        ([3.0, 3.0, 3.0], 0.5),  # everywhere better, but half is the most
        ([4.0, 0.0, 0.0], 1.0 / 9.0),  # 3 / (1 + 3 w) = 2 / (1 - w)
        ([2.0, 0.0], 0.0),  # log(1 + w) + log(1 - w) falls at once
    ],
)
def test_the_best_weight_in_closed_form(ratios, expected):
    assert best_weight(np.array(ratios)) == pytest.approx(expected, abs=1e-12)


class Placed:
    """Two classes; kernels 0 and 1 have the samples, kernels 2 and 3 are far away and empty."""

    def __init__(self, rng, covariance_type="full", weights=None):
        self.covariance_type, self.structure = covariance_type, STRUCTURES[covariance_type]
        X = rng.standard_normal((60, 2))
        X[30:] += [6.0, 0.0]
        X[25:30] += [0.0, 9.0]  # a group in the first class that no kernel explains
        X[29] += [0.0, 1.5]
        X[50:54] += [0.0, -7.0]  # and a lesser one in the second
        self.X, self.labels = X, np.repeat([0, 1], 30)
        bounds = np.array([0, 30, 60])
        self.source = ArraySource([np.ascontiguousarray(X.T)], bounds, serial_map)
        if weights is None:
            weights = np.array([[0.9, 0.1, 0.0, 0.0], [0.1, 0.9, 0.0, 0.0]])
        means = np.array([[0.0, 0.0], [6.0, 0.0], [300.0, 0.0], [0.0, 300.0]])
        # Of the empty kernels nothing must count, not even their covariances.
        covariances = random_covariances(rng, 4, 2, 0.8, 1.2)
        covariances[2:] *= 100.0 if covariance_type != "tied" else 1.0
        self.kernels = Kernels(weights, means, of_type(covariances, covariance_type))
        self.empty = np.array([False, False, True, True])

    def log_q(self, kernels):
        """log p(x_n | c_n), (N,), by the definition."""
        dense = self.structure.storage.dense(kernels.covariances, 4, 2)
        everything = reference_log_likelihood(self.X, kernels.weights, kernels.means, dense)
        return everything[np.arange(60), self.labels]

    def reseed(self, allowed=None, empty=None):
        allowed = np.ones((2, 4), dtype=bool) if allowed is None else allowed
        empty = self.empty if empty is None else empty
        return reseed(self.structure, self.kernels, self.source, 0, empty, allowed)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_kernels_move_to_the_worst_explained_sample(rng, covariance_type):
    placed = Placed(rng, covariance_type)
    before = placed.log_q(placed.kernels)
    after, still = placed.reseed(empty=np.array([False, False, True, False]))
    assert not still.any()
    worst = int(before.argmin())
    assert placed.labels[worst] == 0
    np.testing.assert_array_equal(after.means[2], placed.X[worst])
    np.testing.assert_array_equal(after.means[[0, 1, 3]], placed.kernels.means[[0, 1, 3]])
    # Only the class of that sample gives weight, the same share of each of its kernels.
    np.testing.assert_array_equal(after.weights[1], placed.kernels.weights[1])
    w = after.weights[0, 2]
    np.testing.assert_allclose(after.weights[0], [0.9 * (1 - w), 0.1 * (1 - w), w, 0.0])
    if placed.structure.storage.per_kernel:
        # The others' average, by their masses: 30 samples have each of the two rows of weights.
        P = placed.kernels.covariances
        masses = 30.0 * placed.kernels.weights.sum(axis=0)
        masses[2] = 0.0
        np.testing.assert_allclose(after.covariances[2], np.average(P, axis=0, weights=masses))
        np.testing.assert_array_equal(after.covariances[[0, 1, 3]], P[[0, 1, 3]])
    else:
        np.testing.assert_array_equal(after.covariances, placed.kernels.covariances)
    # No other weight is better.
    gains = []
    for v in np.linspace(0.0, 0.5, 101):
        row = np.array([0.9 * (1 - v), 0.1 * (1 - v), v, 0.0])
        other = after._replace(weights=np.array([row, after.weights[1]]))
        gains.append(placed.log_q(other).sum())
    assert placed.log_q(after).sum() >= max(gains) - 1e-9
    assert placed.log_q(after).sum() > before.sum() + 10.0


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_two_kernels_move_one_after_the_other(rng, covariance_type):
    """The second goes where the first has left most to explain, here to the other group."""
    placed = Placed(rng, covariance_type)
    after, still = placed.reseed()
    assert not still.any()
    np.testing.assert_allclose(after.weights.sum(axis=1), 1.0)
    first = after.means[2]
    after_one, _ = placed.reseed(empty=np.array([False, False, True, False]))
    np.testing.assert_array_equal(first, after_one.means[2])
    log_q = placed.log_q(after_one)
    log_q[(first == placed.X).all(axis=1)] = np.inf  # no place is tried twice
    np.testing.assert_array_equal(after.means[3], placed.X[log_q.argmin()])
    assert placed.log_q(after).sum() > placed.log_q(after_one).sum()


@pytest.mark.parametrize("seed", range(20))
def test_the_likelihood_never_falls(seed):
    """Also where there is nothing to gain: data of the model itself."""
    rng = np.random.default_rng(seed)
    placed = Placed(rng)
    placed.X[:] = rng.standard_normal((60, 2)) + np.outer(placed.labels, [6.0, 0.0])
    placed.source.X[0][:] = placed.X.T
    after, still = placed.reseed()
    assert placed.log_q(after).sum() >= placed.log_q(placed.kernels).sum() - 1e-10
    np.testing.assert_array_equal(after.means[still], placed.kernels.means[still])
    np.testing.assert_array_equal(after.covariances[still], placed.kernels.covariances[still])
    np.testing.assert_array_equal(after.weights[:, still], 0.0)


def test_constrained_weights_are_respected(rng):
    placed = Placed(rng)
    allowed = np.array([[True, True, False, False], [True, True, True, False]])
    before = placed.log_q(placed.kernels)
    after, still = placed.reseed(allowed)
    np.testing.assert_array_equal(still, [False, False, False, True])  # no class may use the last
    np.testing.assert_array_equal(after.weights[~allowed], 0.0)
    np.testing.assert_array_equal(after.weights[0], placed.kernels.weights[0])
    worst = 30 + int(before[30:].argmin())  # of the only class that may use it
    np.testing.assert_array_equal(after.means[2], placed.X[worst])


def test_a_place_where_nothing_can_be_gained_is_passed_over():
    """One of thirty samples is worst, but a kernel for it would cost the others more than it gains.

    The next worst are the two samples of the other class, side by side.
    """
    X = np.append(np.zeros(29), [2.0, 1.9, 1.9])[None]
    bounds = np.array([0, 30, 32])
    kernels = Kernels(np.array([[1.0, 0.0]] * 2), np.array([[0.0], [50.0]]), np.ones((2, 1, 1)))
    after, still = reseed(
        STRUCTURES["full"],
        kernels,
        ArraySource([X], bounds, serial_map),
        0,
        np.array([False, True]),
        np.ones((2, 2), dtype=bool),
    )
    assert not still.any()
    assert after.means[1, 0] == 1.9
    np.testing.assert_array_equal(after.weights[0], [1.0, 0.0])
    np.testing.assert_allclose(after.weights[1], [0.5, 0.5])


# ------------------------------------------------------------------------- through the estimator


def far_start(reseed, covariance_type):
    """Kernels of which all but one start where no data are."""
    return SharedKernelClassifier(
        n_components=4,
        n_blocks=1,
        covariance_type=covariance_type,
        init=Start(
            weights=np.full((2, 4), 0.25),
            means=np.array([[0.0, 0.0], [900.0, 0.0], [0.0, 900.0], [900.0, 900.0]]),
            covariances=np.array([np.eye(2)] * 4),
            reseed=reseed,
        ),
        shrinkage=0.0,
        tol=0,
        max_iter=30,
        early_stopping=False,
        discriminative_iter=0,
        block_weights=None,
        random_state=0,
    )


def groups(rng, n=400):
    y = rng.integers(2, size=n)
    centres = np.array([[[0.0, 0.0], [8.0, 0.0]], [[0.0, 8.0], [8.0, 8.0]]])
    return centres[y, rng.integers(2, size=n)] + rng.standard_normal((n, 2)), y


def effective(model, y):
    """Samples of each kernel, on average."""
    return np.bincount(y) @ model.blocks_[0].weights


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_start_far_away_ends_without_empty_kernels(rng, covariance_type):
    X, y = groups(rng)
    with pytest.warns(ConvergenceWarning, match="ran empty"):
        without = far_start(False, covariance_type).fit(X, y)
    assert np.sum(effective(without, y) < 1e-6) == 3
    model = far_start(True, covariance_type).fit(X, y)
    assert effective(model, y).min() > 10.0
    gains = np.diff(model.log_likelihoods_[:, 0])
    assert (gains >= -1e-10 * np.abs(model.log_likelihoods_[1:, 0])).all()
    assert model.log_likelihoods_[-1, 0] > without.log_likelihoods_[-1, 0] + 100.0
    # The four groups are found, each by one kernel.
    corners = {(0, 0), (8, 0), (0, 8), (8, 8)}
    assert {tuple(8 * np.round(mu / 8).astype(int)) for mu in model.blocks_[0].means} == corners


def test_a_random_start_off_the_data(rng):
    X, y = groups(rng)
    common = {"n_components": 4, "n_blocks": 1, "shrinkage": 0.0, "tol": 0, "max_iter": 30}
    plain = {"discriminative_iter": 0, "early_stopping": False, "block_weights": None}

    def start(reseed):
        init = Uniform(50.0, 60.0, scale=1.0, reseed=reseed)
        return SharedKernelClassifier(init=init, random_state=0, **common, **plain)

    with pytest.warns(ConvergenceWarning, match="ran empty"):
        without = start(reseed=False).fit(X, y)
    assert effective(without, y).min() < 1e-6
    model = start(reseed=True).fit(X, y)
    assert effective(model, y).min() > 10.0
    assert (np.diff(model.log_likelihoods_[:, 0]) >= -1e-8).all()
