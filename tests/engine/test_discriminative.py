"""Extended Baum-Welch against brute force, derivatives, steps by hand, logistic regression."""

from functools import reduce
from itertools import islice, pairwise

import numpy as np
import pytest
from scipy.optimize import approx_fprime, brentq
from scipy.special import log_softmax, logsumexp
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss
from sklearn.preprocessing import PolynomialFeatures
from threadpoolctl import threadpool_limits

from pskem import SharedKernelClassifier
from pskem.engine import (
    ArraySource,
    Batch,
    Contrast,
    DecisionRule,
    Kernels,
    Pull,
    Summarise,
    Summary,
    _targets,
    assess,
    discriminative_pass,
    prepare,
    serial_map,
    update,
)
from pskem.structures import STRUCTURES, Categorical
from reference import (
    COVARIANCE_TYPES,
    of_type,
    random_covariances,
    reference_log_densities,
    reference_log_likelihood,
)

DOUBLE = np.dtype(np.float64)
SHARED = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
OWN = np.eye(3)
UNUSED = np.eye(3, 4)  # no class has the last kernel
CONSTRAINED = np.array([[0.7, 0.0, 0.3], [0.0, 1.0, 0.0], [0.4, 0.6, 0.0]])


@pytest.fixture(autouse=True)
def _one_thread():
    """Matrices are tiny here, and threads of BLAS would only wait for one another."""
    with threadpool_limits(1, "blas"):
        yield


def as_source(parts, labels, L):
    """Samples of blocks, (N, m) each, sorted by class."""
    bounds = np.searchsorted(labels, np.arange(L + 1))
    return ArraySource([np.ascontiguousarray(X.T) for X in parts], bounds, serial_map)


def passes(structure, source, kernels, floors, criterion):
    """The step of the kernels themselves, and that after each pass."""
    step = assess([structure] * len(kernels), source, kernels, criterion, serial_map)
    while step is not None:
        yield step
        step = discriminative_pass(
            [structure] * len(floors), source, step, floors, criterion, serial_map
        )


class Problem:
    """Two blocks of kernels, 2 in the second, three classes, block weights that are not one."""

    def __init__(self, rng, covariance_type="full", weights=SHARED, n=4, dtype=DOUBLE):
        self.covariance_type = covariance_type
        self.structure = STRUCTURES[covariance_type]
        self.labels = np.repeat(np.arange(3), n)
        centres = rng.standard_normal((3, 2))
        self.X = [
            (centres[self.labels] + rng.standard_normal((3 * n, 2))).astype(dtype) for _ in range(2)
        ]
        self.source = as_source(self.X, self.labels, 3)
        self.kernels = [
            Kernels(
                pi,
                rng.standard_normal((pi.shape[1], 2)),
                of_type(random_covariances(rng, pi.shape[1], 2), covariance_type),
            )
            for pi in (weights, np.array([[0.9, 0.1], [0.5, 0.5], [0.2, 0.8]]))
        ]
        self.criterion = DecisionRule(np.log([0.2, 0.5, 0.3]), np.array([0.7, 1.6]))

    def dense(self, theta):
        return self.structure.storage.dense(theta.covariances, *theta.means.shape)

    def log_posterior(self, kernels):
        """(N, L), by the definition."""
        joint = self.criterion.log_prior + sum(
            beta * reference_log_likelihood(X, theta.weights, theta.means, self.dense(theta))
            for beta, X, theta in zip(self.criterion.block_weights, self.X, kernels, strict=True)
        )
        return log_softmax(joint, axis=1)

    def F(self, kernels):
        return self.log_posterior(kernels)[np.arange(len(self.labels)), self.labels].sum()

    def found(self, cuts=(5,)):
        """Kernels made ready, and the statistics of batches that are cut at these places."""
        prepared = [
            prepare(self.structure, *pair)
            for pair in zip(self.kernels, (X.dtype for X in self.X), strict=True)
        ]
        summarise = Summarise(tuple(prepared), Contrast(self.criterion))
        edges = [0, *cuts, len(self.labels)]
        summaries = [summarise(self.batch(*pair)) for pair in pairwise(edges)]
        return prepared, reduce(Summary.merge, summaries)

    def batch(self, start, stop):
        bounds = np.searchsorted(self.labels[start:stop], np.arange(4))
        return Batch(tuple(np.ascontiguousarray(X[start:stop].T) for X in self.X), bounds, start)

    def brute_force(self, r, origins):
        """Sums of phi, gained and lost of a block, sample by sample and class by class."""
        X, theta = self.X[r], self.kernels[r]
        log_densities = reference_log_densities(X, theta.means, self.dense(theta))
        posterior = np.exp(self.log_posterior(self.kernels))
        L, K = theta.weights.shape
        gained, lost, sums = np.zeros((L, K)), np.zeros((L, K)), [0.0] * K
        for n, x in enumerate(X):
            for j in range(L):
                with np.errstate(divide="ignore"):
                    joint = log_densities[n] + np.log(theta.weights[j])
                w = np.exp(joint - logsumexp(joint))
                gained[j] += w * (self.labels[n] == j)
                lost[j] += w * posterior[n, j]
                for k in range(K):
                    more = w[k] * ((self.labels[n] == j) - posterior[n, j])
                    sums[k] = sums[k] + more * self.phi(x - origins[k], theta)
        return np.array(sums), gained, lost

    def phi(self, x, theta):
        a, b = np.triu_indices(len(x))
        return {
            "full": lambda: np.append(x[a] * x[b], x),
            "tied": lambda: np.linalg.solve(np.linalg.cholesky(theta.covariances), x),
            "diag": lambda: np.append(x * x, x),
            "spherical": lambda: np.append(x @ x, x),
        }[self.covariance_type]()


# ---------------------------------------------------------------------------------- statistics


@pytest.mark.parametrize("weights", [SHARED, CONSTRAINED, OWN, UNUSED, UNUSED[:, ::-1]])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_statistics_are_those_of_brute_force(rng, covariance_type, weights):
    problem = Problem(rng, covariance_type, weights)
    _, found = problem.found()
    assert found.value == pytest.approx([problem.F(problem.kernels)], rel=1e-12)
    for r, block in enumerate(found.blocks):
        K = len(problem.kernels[r].means)
        sums, gained, lost = problem.brute_force(r, np.zeros((K, 2)))
        np.testing.assert_allclose(block.gained, gained, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(block.lost, lost, rtol=1e-11, atol=1e-14)
        np.testing.assert_allclose(block.sums, sums, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_sums_of_narrow_kernels_are_taken_about_their_means(rng, covariance_type):
    problem = Problem(rng, covariance_type)
    theta = problem.kernels[0]
    theta.means[1] = problem.X[0][2] + [1e-5, -2e-5]  # close to one sample, far from the origin
    theta.covariances[1] *= 1e-10
    prepared, found = problem.found()
    assert prepared[0].centred.tolist() == [False, True, False]
    assert found.value == pytest.approx([problem.F(problem.kernels)], rel=1e-9)
    origins = np.zeros((3, 2))
    origins[1] = theta.means[1]
    sums, gained, lost = problem.brute_force(0, origins)
    np.testing.assert_allclose(found.blocks[0].gained, gained, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(found.blocks[0].lost, lost, rtol=1e-8, atol=1e-14)
    np.testing.assert_allclose(found.blocks[0].sums, sums, rtol=1e-8, atol=1e-14)


def test_statistics_are_additive_over_chunks(rng):
    problem = Problem(rng)
    _, whole = problem.found([])
    _, pieces = problem.found(range(1, 12))
    assert whole.value == pytest.approx(pieces.value, rel=1e-13)
    for one, other in zip(whole.blocks, pieces.blocks, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_statistics_do_not_depend_on_how_a_batch_is_cut(rng, monkeypatch, covariance_type):
    """Tiles of 32 samples, the smallest there are, against one of all 150."""
    problem = Problem(rng, covariance_type, CONSTRAINED, n=50)
    prepared, whole = problem.found([])
    monkeypatch.setattr(_targets, "TILE_NUMBERS", 1)
    tiles = list(Contrast(problem.criterion).tiles(problem.source.bounds, prepared))
    assert [tile.stop - tile.start for tile in tiles] == [32, 32, 32, 32, 22]
    _, pieces = problem.found([])
    assert whole.value == pytest.approx(pieces.value, rel=1e-13)
    for one, other in zip(whole.blocks, pieces.blocks, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)


# ------------------------------------------------------------------------------------ gradient


def derivative(function, x):
    """Of a function of an array, by central differences."""
    shape = x.shape
    forward = approx_fprime(x.ravel(), lambda v: function(v.reshape(shape)), 1e-6)
    backward = approx_fprime(x.ravel(), lambda v: function(v.reshape(shape)), -1e-6)
    return 0.5 * (forward + backward).reshape(shape)


@pytest.mark.parametrize("r", [0, 1])
def test_statistics_are_the_gradient_of_the_criterion(rng, r):
    problem = Problem(rng)
    _, found = problem.found()
    theta, block, beta = problem.kernels[r], found.blocks[r], problem.criterion.block_weights[r]

    def F(**changed):
        kernels = list(problem.kernels)
        kernels[r] = theta._replace(**changed)
        return problem.F(kernels)

    mass = (block.gained - block.lost).sum(axis=0)
    first, packed = block.sums[:, -2:], block.sums[:, :-2]
    a, b = np.triu_indices(2)
    slopes = derivative(lambda means: F(means=means), theta.means)
    spreads = derivative(
        # A symmetric change of both off-diagonal entries at once.
        lambda P: F(covariances=0.5 * (P + P.swapaxes(1, 2))),
        theta.covariances,
    )
    for k, (mu, P) in enumerate(zip(theta.means, theta.covariances, strict=True)):
        np.testing.assert_allclose(
            slopes[k], beta * np.linalg.solve(P, first[k] - mass[k] * mu), rtol=1e-6, atol=1e-8
        )
        second = np.empty((2, 2))
        second[a, b] = second[b, a] = packed[k]
        about = (
            second - np.outer(first[k], mu) - np.outer(mu, first[k]) + mass[k] * np.outer(mu, mu)
        )
        inverse = np.linalg.inv(P)
        expected = 0.5 * beta * (inverse @ about @ inverse - mass[k] * inverse)
        np.testing.assert_allclose(spreads[k], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(
        derivative(lambda weights: F(weights=weights), theta.weights),
        beta * (block.gained - block.lost) / theta.weights,
        rtol=1e-6,
        atol=1e-8,
    )


# --------------------------------------------------------------------------------------- update


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_step_is_extended_baum_welch_written_out(rng, covariance_type):
    problem = Problem(rng, covariance_type, n=15)
    prepared, found = problem.found()
    theta = problem.kernels[0]
    step = 50.0  # so large that no variance comes near a tenth of what it was
    after = update(step, prepared[0], found.blocks[0], 1e-10)
    X = problem.X[0]
    # The difference of responsibilities, (N, K), from the definition.
    joint = reference_log_densities(X, theta.means, problem.dense(theta))[:, None] + np.log(
        theta.weights
    )
    w = np.exp(joint - logsumexp(joint, axis=2, keepdims=True))  # (N, L, K)
    p = np.exp(problem.log_posterior(problem.kernels))
    more = np.einsum("nj,njk->nk", np.eye(3)[problem.labels] - p, w)
    D = step * np.einsum("nj,njk->k", p, w)
    masses = more.sum(axis=0) + D
    means, scatters = [], []
    for k in range(3):
        mu = theta.means[k]
        means.append((more[:, k] @ X + D[k] * mu) / masses[k])
        second = np.einsum("n,na,nb->ab", more[:, k], X, X) + D[k] * (
            problem.dense(theta)[k] + np.outer(mu, mu)
        )
        scatters.append(second - masses[k] * np.outer(means[k], means[k]))
    scatters = np.array(scatters)
    expected = {
        "full": lambda: scatters / masses[:, None, None],
        "tied": lambda: scatters.sum(axis=0) / masses.sum(),
        "diag": lambda: np.diagonal(scatters, axis1=1, axis2=2) / masses[:, None],
        "spherical": lambda: np.trace(scatters, axis1=1, axis2=2) / 2 / masses,
    }[covariance_type]()
    np.testing.assert_allclose(after.means, means, rtol=1e-9)
    np.testing.assert_allclose(after.covariances, expected, rtol=1e-9, atol=1e-12)


def test_weights_maximise_their_bound(rng):
    """gained / pi - lost / pi_before is the same for all kernels of a class, by Lagrange."""
    problem = Problem(rng, n=15)
    prepared, found = problem.found()
    block, theta = found.blocks[0], problem.kernels[0]
    kernels = update(2.0, prepared[0], block, 1e-10)
    for j in range(3):
        slope = block.lost[j] / theta.weights[j]

        def weights(multiplier, j=j, slope=slope):
            return block.gained[j] / (slope + multiplier)

        low = (block.gained[j] - slope).max()
        multiplier = brentq(
            lambda v: weights(v).sum() - 1.0, max(low, -slope.min() + 1e-9), 1e3, xtol=1e-13
        )
        np.testing.assert_allclose(kernels.weights[j], weights(multiplier), rtol=1e-6)


def test_variances_do_not_fall_below_a_tenth(rng):
    least = []
    for _ in range(30):
        problem = Problem(rng, n=15)
        prepared, found = problem.found()
        theta = problem.kernels[0]
        # A step so small that the plain update has no positive definite covariance.
        after = update(1e-3, prepared[0], found.blocks[0], 1e-10)
        for P, before in zip(after.covariances, theta.covariances, strict=True):
            least.append(np.linalg.eigvals(np.linalg.solve(before, P)).real.min())
        assert np.abs(after.means - theta.means).max() > 1e-3
    assert 0.1 - 1e-9 <= min(least) < 0.2


# --------------------------------------------------------------------------------------- passes


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_criterion_rises_with_every_pass(rng, covariance_type, dtype):
    problem = Problem(rng, covariance_type, CONSTRAINED, n=40, dtype=np.dtype(dtype))
    steps = passes(
        problem.structure, problem.source, problem.kernels, [1e-6] * 2, problem.criterion
    )
    trace, truth = [], []
    for step in islice(steps, 15):
        trace.append(step.criterion)
        truth.append(problem.F(step.kernels))
        for theta, start in zip(step.kernels, problem.kernels, strict=True):
            assert (np.linalg.eigvalsh(problem.dense(theta)) > 0.0).all()
            np.testing.assert_allclose(theta.weights.sum(axis=1), 1.0, rtol=1e-12)
            np.testing.assert_array_equal(theta.weights[start.weights == 0.0], 0.0)
    assert len(trace) == 15
    assert (np.diff(trace) > 0.0).all()
    rounding = 1e-11 if dtype == np.float64 else 1e-4
    np.testing.assert_allclose(trace, truth, rtol=rounding)
    assert truth[-1] - truth[0] > 0.1 * abs(truth[0])


def overlapping(rng, L, n=80):
    """Classes of two features with different spreads that overlap, about standardised."""
    labels = np.repeat(np.arange(L), n)
    scales = np.array([[1.0, 0.7], [0.6, 1.2], [0.9, 0.9]])[labels]
    centres = np.array([[0.0, 0.0], [0.8, 0.8], [1.0, -0.5]])[labels]
    X = scales * rng.standard_normal((L * n, 2)) + centres
    X[labels == 1, 0] += 0.7 * X[labels == 1, 1] ** 2  # not Gaussian: EM's answer is another one
    return (X - X.mean(axis=0)) / X.std(axis=0), labels


@pytest.mark.parametrize(
    ("covariance_type", "degree", "L"), [("tied", 1, 2), ("tied", 1, 3), ("full", 2, 2)]
)
def test_one_kernel_per_class_comes_to_logistic_regression(rng, covariance_type, degree, L):
    """Posteriors of Gaussian classes are logistic in x (tied) or in its monomials (full).

    Both maximise the conditional likelihood of the same family, so neither can be better.
    """
    X, labels = overlapping(rng, L)
    features = PolynomialFeatures(degree, include_bias=False).fit_transform(X)
    logistic = LogisticRegression(C=1e12, solver="newton-cholesky", tol=1e-12, max_iter=1000)
    optimum = -log_loss(labels, logistic.fit(features, labels).predict_proba(features))
    P = np.array([np.cov(X[labels == j].T, bias=True) for j in range(L)])
    start = Kernels(
        np.eye(L),
        np.array([X[labels == j].mean(axis=0) for j in range(L)]),
        P if covariance_type == "full" else P.mean(axis=0),
    )
    steps = passes(
        STRUCTURES[covariance_type],
        as_source([X], labels, L),
        [start],
        [1e-10],
        DecisionRule(np.full(L, -np.log(L)), np.ones(1)),
    )
    trace = np.array([step.criterion for step in islice(steps, 200)]) / len(X)
    assert trace.max() <= optimum + 1e-9
    gap = optimum - trace
    assert gap[0] > 1e-2
    assert gap[-1] < 1e-6


# ------------------------------------------------------------------------- through the estimator


def crossed(rng, n, dtype=np.float64):
    """Three classes in four features that EM's kernels do not separate as well as they might."""
    y = rng.integers(3, size=n)
    X = rng.standard_normal((n, 4)) * (1.0 + y[:, None]) + np.outer(y, [1.0, -0.5, 0.0, 0.5])
    X[:, 3] += 0.5 * X[:, 0] * X[:, 1]
    return X.astype(dtype), y


def classifier(**settings):
    defaults = {"n_components": 4, "n_blocks": 2, "tol": 0, "max_iter": 5, "random_state": 0}
    plain = {"block_weights": None, "early_stopping": False, "discriminative_iter": 6}
    return SharedKernelClassifier(**(defaults | plain | settings))


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_same_bits_for_any_number_of_threads(rng, dtype):
    X, y = crossed(rng, 5000, dtype)
    one, two = (classifier(n_jobs=n, discriminative_iter=3).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.log_posteriors_, two.log_posteriors_)
    for a, b in zip(one.blocks_, two.blocks_, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)
        np.testing.assert_array_equal(a.means, b.means)
        np.testing.assert_array_equal(a.covariances, b.covariances)


@pytest.mark.parametrize("priors", [None, [0.2, 0.5, 0.3]])
@pytest.mark.parametrize("block_weights", [None, [0.5, 1.5]])
def test_the_trace_is_that_of_the_fitted_model(rng, priors, block_weights):
    """In the user's units, from predictions."""
    X, y = crossed(rng, 400)
    model = classifier(priors=priors, block_weights=block_weights).fit(X, y)
    assert model.log_posteriors_.shape == (7,)
    assert model.discriminative_best_iter_ == 6
    assert model.discriminative_scores_.shape == (0,)
    own = model.predict_log_proba(X)[np.arange(len(y)), y]
    assert model.log_posteriors_[-1] == pytest.approx(own.sum(), rel=1e-10)
    before = classifier(priors=priors, block_weights=block_weights, discriminative_iter=0)
    own = before.fit(X, y).predict_log_proba(X)[np.arange(len(y)), y]
    assert model.log_posteriors_[0] == pytest.approx(own.sum(), rel=1e-10)
    assert (np.diff(model.log_posteriors_) > 0.0).all()


def test_a_class_without_prior_does_not_matter(rng):
    X, y = crossed(rng, 400)
    model = classifier(priors=[0.0, 0.6, 0.4]).fit(X, y)
    assert np.isfinite(model.log_posteriors_).all()
    assert (np.diff(model.log_posteriors_) > 0.0).all()
    for block in model.blocks_:
        assert np.isfinite(block.means).all()
        assert (np.linalg.eigvalsh(block.covariances) > 0.0).all()
        np.testing.assert_allclose(block.weights.sum(axis=1), 1.0)
    assert set(model.predict(X)) == {1, 2}
    np.testing.assert_array_equal(model.predict_proba(X)[:, 0], 0.0)


def test_samples_of_a_class_without_prior_do_not_teach(rng):
    """The other classes are told apart at least as well as before, as without such samples."""
    X, y = crossed(rng, 600)
    X_test, y_test = crossed(rng, 3000)
    others = y_test > 0
    em, refined = (
        classifier(priors=[0.0, 0.5, 0.5], discriminative_iter=n).fit(X, y) for n in (0, 6)
    )
    before = em.score(X_test[others], y_test[others])
    assert refined.score(X_test[others], y_test[others]) > before - 0.02


@pytest.mark.parametrize("settings", [{"early_stopping": True}, {"block_weights": "fit"}])
def test_a_class_without_prior_in_the_validation_data(rng, settings):
    X, y = crossed(rng, 600)
    model = classifier(priors=[0.0, 0.5, 0.5], **settings).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert np.isfinite(model.discriminative_scores_).all()


def seen(X, y, X_val, y_val, **settings):
    """A fitted model, and accuracy and log loss on validation data after each pass."""
    model = classifier(discriminative_iter=12, n_iter_no_change=None, **settings)
    watched = []
    model.fit(X, y, X_val=X_val, y_val=y_val, watch=watched.append)
    # EM's passes come first, and the discriminative passes begin with the best of them.
    late = [watched[model.best_iter_ - 1], *watched[model.n_iter_ :]]
    figures = []
    for after in late:
        proba = np.exp(after.log_posterior(X_val))
        figures.append((accuracy_score(y_val, proba.argmax(axis=1)), -log_loss(y_val, proba)))
    return model, figures


def test_validation_keeps_the_best_pass(rng):
    X, y = crossed(rng, 90)
    X_val, y_val = crossed(rng, 300)
    model, figures = seen(X, y, X_val, y_val, early_stopping=True)
    assert len(figures) == len(model.discriminative_scores_) == len(model.log_posteriors_) == 13
    np.testing.assert_allclose(model.discriminative_scores_, [accuracy for accuracy, _ in figures])
    best = max(range(13), key=lambda p: figures[p])  # by accuracy, of equals by log loss
    assert model.discriminative_best_iter_ == best
    assert 0 < best < 12
    assert model.score(X_val, y_val) == figures[best][0]


def test_of_passes_as_accurate_the_better_probabilities_win(rng):
    """So few validation samples that accuracies are often the same."""
    differ = 0
    for _ in range(4):
        (X, y), (X_val, y_val) = crossed(rng, 90), crossed(rng, 12)
        model, figures = seen(X, y, X_val, y_val, early_stopping=True)
        passes = range(len(figures))
        assert model.discriminative_best_iter_ == max(passes, key=lambda p: figures[p])
        differ += model.discriminative_best_iter_ != max(passes, key=lambda p: figures[p][0])
    assert differ > 0


def test_without_early_stopping_the_last_pass_is_kept(rng):
    X, y = crossed(rng, 90)
    X_val, y_val = crossed(rng, 300)
    model, figures = seen(X, y, X_val, y_val, early_stopping=False)
    assert model.discriminative_best_iter_ == 12
    assert max(figures) > figures[-1]
    np.testing.assert_allclose(model.discriminative_scores_, [accuracy for accuracy, _ in figures])
    assert model.score(X_val, y_val) == figures[-1][0]


def test_passes_without_a_better_score_end_the_search(rng):
    X, y = crossed(rng, 90)
    X_val, y_val = crossed(rng, 300)
    model = classifier(discriminative_iter=40, n_iter_no_change=3, early_stopping=True)
    model.fit(X, y, X_val=X_val, y_val=y_val)
    assert len(model.log_posteriors_) == model.discriminative_best_iter_ + 4 < 41


def test_a_watcher_ends_the_discriminative_passes(rng):
    X, y = crossed(rng, 200)
    calls = []

    def watch(seen):
        calls.append(seen)
        return len(calls) == 5 + 2

    model = classifier().fit(X, y, watch=watch)
    assert len(model.log_posteriors_) == 3
    np.testing.assert_array_equal(model.blocks_[0].means, calls[-1].blocks[0].means)


# ---------------------------------------------------------------------------------------- pull


def kl(mean, covariance, other_mean, other_covariance):
    """KL(N || other N), by its formula."""
    inverse = np.linalg.inv(other_covariance)
    off = other_mean - mean
    logs = [np.linalg.slogdet(P)[1] for P in (other_covariance, covariance)]
    spread = np.trace(inverse @ covariance) + off @ inverse @ off - len(mean)
    return 0.5 * (spread + logs[0] - logs[1])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_pull_costs_its_divergence(rng, covariance_type):
    here, there = (Problem(rng, covariance_type) for _ in range(2))
    pull = Pull.toward([here.structure] * 2, there.kernels, 2.5)
    for r in range(2):
        ours, theirs = here.kernels[r], there.kernels[r]
        gaussians = zip(
            theirs.means, there.dense(theirs), ours.means, here.dense(ours), strict=True
        )
        expected = 2.5 * sum(kl(*parts) for parts in gaussians)
        prepared = prepare(here.structure, ours, DOUBLE)
        assert pull.penalty(r, prepared) == pytest.approx(expected, rel=1e-10)
        assert pull.penalty(r, prepare(here.structure, theirs, DOUBLE)) == pytest.approx(0.0)


def test_a_pull_of_categories_costs_its_divergence(rng):
    structure = Categorical((2, 3))
    drawn = [np.hstack([rng.dirichlet(np.ones(n), 2) for n in (2, 3)]) for _ in range(2)]
    own, anchor = (Kernels(np.eye(2), probabilities, np.zeros((2, 0))) for probabilities in drawn)
    pull = Pull.toward([structure], [anchor], 3.0)
    expected = 3.0 * np.sum(anchor.means * np.log(anchor.means / own.means))
    assert pull.penalty(0, prepare(structure, own, DOUBLE)) == pytest.approx(expected)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_pulled_passes_raise_what_is_left_of_the_criterion(rng, covariance_type):
    problem = Problem(rng, covariance_type, n=30)
    structures, floors = [problem.structure] * 2, [1e-6] * 2
    ends = {}
    for samples in (0.5, 50.0, 1e6):
        pull = Pull.toward(structures, problem.kernels, samples)
        arguments = (problem.criterion, serial_map)
        step = assess(structures, problem.source, problem.kernels, *arguments, pull=pull)
        assert step.criterion == pytest.approx(problem.F(problem.kernels))
        for _ in range(30):
            after = discriminative_pass(structures, problem.source, step, floors, *arguments, pull)
            if after is None:
                break
            penalty = sum(
                beta * pull.penalty(r, prepare(problem.structure, theta, DOUBLE))
                for r, (beta, theta) in enumerate(
                    zip(problem.criterion.block_weights, after.kernels, strict=True)
                )
            )
            assert after.criterion == pytest.approx(problem.F(after.kernels) - penalty)
            assert after.criterion > step.criterion
            step = after
        pairs = zip(step.kernels, problem.kernels, strict=True)
        ends[samples] = max(np.abs(a.means - b.means).max() for a, b in pairs)
    assert ends[0.5] > ends[50.0] > ends[1e6]
    assert ends[1e6] < 1e-3
