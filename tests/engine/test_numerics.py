"""How much the product form loses against a direct evaluation, and that it is bounded."""

import numpy as np
import pytest
from scipy.special import logsumexp

from pskem import SharedKernelClassifier, SharedKernelDensity
from pskem.engine import (
    ArraySource,
    Frame,
    Kernels,
    OwnClass,
    Summarise,
    _kernels,
    mix,
    prepare,
    serial_map,
)
from pskem.engine._evaluators import KernelByKernel, Product, Scratch
from pskem.starts import Start
from pskem.structures import STRUCTURES
from reference import (
    COVARIANCE_TYPES,
    of_type,
    plain,
    random_covariances,
    reference_log_densities,
    reference_log_likelihood,
)


def check_against_reference(model, X, tolerance):
    (block,) = model.blocks_
    expected = reference_log_likelihood(X, block.weights, block.means, block.dense_covariances)
    error = np.abs(model.class_log_likelihood(X) - expected)
    assert (error <= tolerance * np.maximum(1.0, np.abs(expected))).all(), error.max()


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_ordinary_data(labelled, covariance_type):
    X, y = labelled
    model = plain(n_components=6, covariance_type=covariance_type, n_blocks=1, random_state=0).fit(
        X, y
    )
    check_against_reference(model, X, 1e-11)


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_features_at_very_different_scales_and_offsets(labelled, covariance_type):
    X, y = labelled
    X = X * [1e6, 1e-6, 1.0, 1e3, 1e-3] + [1e9, 0.0, 400.0, -1e6, 1e-2]
    model = plain(n_components=6, covariance_type=covariance_type, n_blocks=1, random_state=0).fit(
        X, y
    )
    check_against_reference(model, X, 1e-9)


@pytest.mark.parametrize("reg_covar", [0.0, 1e-6])
@pytest.mark.parametrize("correlation", [0.9999, 0.9999999])
@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_nearly_collinear_features(rng, covariance_type, correlation, reg_covar):
    y = rng.integers(2, size=800)
    base = rng.standard_normal((800, 1)) + 3.0 * y[:, None]
    X = correlation * base + np.sqrt(1 - correlation**2) * rng.standard_normal((800, 4))
    model = plain(
        n_components=3,
        covariance_type=covariance_type,
        n_blocks=1,
        reg_covar=reg_covar,
        tol=0,
        max_iter=10,
        random_state=0,
    ).fit(X, y)
    check_against_reference(model, X, 1e-8)


def needles(rng, K=5, m=3, width=1e-9):
    """Kernels with one very small variance, far from the origin, and samples close to them."""
    covariances = random_covariances(rng, K, m, 0.1, 0.5)
    for P in covariances:
        values, vectors = np.linalg.eigh(P)
        values[0] = width
        P[:] = (vectors * values) @ vectors.T
    means = rng.standard_normal((K, m)) * 3.0
    noise = rng.standard_normal((K, 40, m))
    factors = np.linalg.cholesky(covariances)
    X = (means[:, None] + np.einsum("kab,knb->kna", factors, noise)).reshape(-1, m)
    return Kernels(np.full((1, K), 1.0 / K), means, covariances), X


def test_needles_are_evaluated_about_their_own_mean(rng):
    structure = STRUCTURES["full"]
    kernels, X = needles(rng)
    expected = reference_log_densities(X, kernels.means, kernels.covariances).T
    prepared = prepare(structure, kernels, np.dtype(np.float64))
    assert prepared.centred.all()
    own = np.repeat(np.arange(5), 40)
    n = np.arange(200)
    values = prepared.log_densities(X.T)
    np.testing.assert_allclose(values[own, n], expected[own, n], atol=1e-6)
    np.testing.assert_allclose(values, expected, rtol=1e-6)
    # The plain product form would be off by far more: the safeguard is what makes this pass.
    plain = prepared._replace(
        natural=structure.natural(kernels.means, kernels.covariances),
        centred=np.zeros(5, dtype=bool),
        frame=Frame(np.zeros_like(kernels.means), None),
    )
    lost = np.abs(plain.log_densities(X.T) - expected)[own, n]
    assert lost.max() > 10 * np.abs(values - expected)[own, n].max()


def test_cancellation_is_seen_where_signs_hide_it():
    """Along the long axis of a thin kernel the form is small, but its terms are not."""
    P = np.array([[[1.0, 1.0 - 1e-9], [1.0 - 1e-9, 1.0]]])
    kernels = Kernels(np.ones((1, 1)), np.array([[3.0, 3.0]]), P)
    structure = STRUCTURES["full"]
    prepared = prepare(structure, kernels, np.dtype(np.float64))
    assert prepared.centred.tolist() == [True]
    X = np.array([[3.0, 3.0], [2.5, 2.5], [3.00001, 3.0]])
    expected = reference_log_densities(X, kernels.means, P).T
    np.testing.assert_allclose(prepared.log_densities(X.T), expected, atol=1e-6)


def test_training_stays_exact_with_needles(rng):
    """Without a floor, passes through centred kernels equal passes written out in full."""
    kernels, X = needles(rng, width=1e-8)
    K = len(kernels.means)
    means, covariances, weights = kernels.means, kernels.covariances, kernels.weights[0]
    model = SharedKernelDensity(
        n_components=K,
        init=Start(weights, means, covariances),
        reg_covar=0,
        max_iter=3,
        tol=0,
    ).fit(X)
    for _ in range(3):
        log_joint = reference_log_densities(X, means, covariances) + np.log(weights)
        w = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
        weights = w.mean(axis=0)
        means = np.array([np.average(X, axis=0, weights=w[:, k]) for k in range(K)])
        covariances = np.array(
            [((X - means[k]).T * w[:, k]) @ (X - means[k]) / w[:, k].sum() for k in range(K)]
        )
    smallest = np.linalg.eigvalsh(covariances)[:, 0]
    np.testing.assert_allclose(np.linalg.eigvalsh(model.covariances_)[:, 0], smallest, rtol=1e-5)
    np.testing.assert_allclose(model.means_, means, rtol=1e-8)
    np.testing.assert_allclose(model.weights_, weights, rtol=1e-8)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_float32_is_close_to_float64(labelled, covariance_type):
    X, y = labelled
    X32 = X.astype(np.float32)
    settings = {"n_components": 6, "covariance_type": covariance_type, "random_state": 0}
    single = plain(**settings, tol=0, max_iter=15).fit(X32, y)
    double = plain(**settings, tol=0, max_iter=15).fit(X32.astype(float), y)
    np.testing.assert_allclose(single.log_likelihoods_, double.log_likelihoods_, rtol=1e-4)
    assert np.mean(single.predict(X32) == double.predict(X32)) > 0.99


def test_sums_over_chunks_are_taken_in_double_precision():
    """One large chunk, then many small ones that single precision would lose beside it."""
    n, repeats = 4096, 200
    X = np.full((1, n * repeats), 0.7, dtype=np.float32)
    X[:, :n] = 2048.0
    bounds = np.array([0, X.size])
    source = ArraySource([X], bounds, serial_map)
    kernels = Kernels(np.ones((1, 1)), np.zeros((1, 1)), np.ones((1, 1, 1)))
    structure = STRUCTURES["full"]
    prepared = prepare(structure, kernels, X.dtype)
    assert prepared.dtype == np.float32
    (statistics,), (value,) = source.fold(Summarise((prepared,), OwnClass()))
    squares, total = np.square(X, dtype=np.float64).sum(), X.sum(dtype=np.float64)
    # What one float32 chunk may lose; float32 sums of all chunks would lose 20 times as much.
    assert statistics.sums[0] == pytest.approx([squares, total], abs=400)
    log_likelihood = -0.5 * (squares + X.size * np.log(2 * np.pi))
    assert value == pytest.approx(log_likelihood, abs=1000)


@pytest.mark.parametrize("reg_covar", [0.0, 1e-6])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_float32_with_clusters_far_apart(rng, covariance_type, reg_covar):
    """A thousand standard deviations between clusters: the same fit as in float64."""
    centres = rng.standard_normal((4, 3)) * 1e3
    X = (centres[rng.integers(4, size=2000)] + rng.standard_normal((2000, 3))).astype(np.float32)
    settings = {
        "n_components": 4,
        "covariance_type": covariance_type,
        "init": Start(means=centres),
        "reg_covar": reg_covar,
        "random_state": 0,
    }
    single = SharedKernelDensity(**settings).fit(X)
    double = SharedKernelDensity(**settings).fit(X.astype(np.float64))
    assert single.converged_
    assert single.score(X.astype(float)) == pytest.approx(double.score(X.astype(float)), abs=1e-2)
    np.testing.assert_allclose(
        single.blocks_[0].dense_covariances, double.blocks_[0].dense_covariances, atol=0.05
    )


def test_float32_at_a_large_offset(labelled):
    """400 standard deviations from zero, where raw float32 moments would be indefinite."""
    X, y = labelled
    X32 = (X / X.std(axis=0) + 400.0).astype(np.float32)
    single = plain(n_components=4, random_state=0, tol=0, max_iter=10)
    single.fit(X32, y)
    double = plain(n_components=4, random_state=0, tol=0, max_iter=10)
    double.fit(X32.astype(np.float64), y)
    np.testing.assert_allclose(single.log_likelihoods_, double.log_likelihoods_, rtol=1e-3)


def test_float32_turns_to_float64_where_it_would_lose_too_much(rng):
    structure = STRUCTURES["full"]
    kernels, X = needles(rng, width=1e-5)
    prepared = prepare(structure, kernels, np.dtype(np.float32))
    assert prepared.dtype == np.float64
    values = prepared.log_densities(X.T.astype(np.float32))
    expected = reference_log_densities(
        X.astype(np.float32).astype(float), kernels.means, kernels.covariances
    ).T
    np.testing.assert_allclose(values, expected, rtol=1e-6, atol=1e-6)
    mild = kernels._replace(covariances=random_covariances(rng, 5, 3))
    assert prepare(structure, mild, np.dtype(np.float32)).dtype == np.float32


def test_float32_turns_to_float64_for_thin_kernels_at_the_origin():
    """Their mean cancels nothing, but correlated features do."""
    P = np.array([[[1.0, 1.0 - 1e-6], [1.0 - 1e-6, 1.0]]])
    kernels = Kernels(np.ones((1, 1)), np.zeros((1, 2)), P)
    structure = STRUCTURES["full"]
    prepared = prepare(structure, kernels, np.dtype(np.float32))
    assert prepared.dtype == np.float64
    X = np.linspace(-2.0, 2.0, 40).reshape(20, 2).astype(np.float32)
    X[:, 1] = X[:, 0]
    expected = reference_log_densities(X.astype(float), kernels.means, P).T
    np.testing.assert_allclose(prepared.log_densities(X.T), expected, atol=1e-8)


def test_a_start_far_outside_the_data_loses_no_digits():
    """From 1e11 standard deviations away, one pass must find the moments of the data."""
    Z = np.random.default_rng(0).standard_normal((27, 3)) * [1e-7, 1e7, 1e-11]
    settings = {"n_components": 1, "init": "random", "reg_covar": 0.0, "tol": 0, "random_state": 0}
    model = SharedKernelDensity(max_iter=1, **settings).fit(Z)
    unit = Z.std(axis=0)
    expected = np.cov(Z.T / unit[:, None], bias=True)
    np.testing.assert_allclose(model.covariances_[0] / np.outer(unit, unit), expected, atol=1e-7)
    trace = SharedKernelDensity(max_iter=3, **settings).fit(Z).log_likelihoods_
    assert (np.diff(trace) >= -1e-9 * np.abs(trace[1:])).all()


def test_mix_is_logsumexp_even_where_classes_underflow(rng):
    log_densities = rng.uniform(-5000.0, 0.0, size=(6, 300))
    log_densities[:, :20] -= 1e6
    weights = rng.dirichlet(np.full(6, 0.3), size=4)
    weights[0] = [0, 0, 0, 0, 0, 1]
    with np.errstate(divide="ignore"):
        terms = np.log(weights)[:, :, None] + log_densities
    np.testing.assert_allclose(mix(log_densities, weights), logsumexp(terms, axis=1), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_far_away_samples_get_finite_answers(labelled, covariance_type, dtype):
    X, y = labelled
    model = plain(n_components=3, covariance_type=covariance_type, random_state=0)
    model.fit(X, y)
    far = np.array([[1e30] * 5, [-1e30, 1e30, 0, 0, 0], [1e4] * 5], dtype=dtype)
    if dtype is np.float64:
        far = np.vstack([far, [[1e300] * 5, [-1e300, 1e300, 1, 1, 1]]])
    proba = model.predict_proba(far)
    assert np.isfinite(proba).all()
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_the_floor_holds_in_units_of_the_data(labelled, covariance_type):
    X, y = labelled
    model = plain(
        n_components=8,
        n_blocks=1,
        covariance_type=covariance_type,
        reg_covar=0.3,
        tol=0,
        max_iter=30,
        random_state=0,
    ).fit(X, y)
    (block,) = model.blocks_
    standardised = block.dense_covariances / np.outer(block.scale, block.scale)
    lowest = np.linalg.eigvalsh(standardised).min()
    assert lowest == pytest.approx(0.3, rel=1e-9)
    if covariance_type != "spherical":
        np.testing.assert_allclose(block.scale, X.std(axis=0), rtol=1e-10)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_structures_convert_to_dense_and_back(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    compact = of_type(random_covariances(rng, 4, 3), covariance_type)
    dense = structure.storage.dense(compact, 4, 3)
    assert dense.shape == (4, 3, 3)
    np.testing.assert_allclose(structure.storage.compact(dense), compact)
    assert structure.storage.shape(4, 3) == compact.shape


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_kernels_one_by_one_are_the_products_with_phi(rng, dtype):
    full = STRUCTURES["full"]
    X = rng.standard_normal((50, 30)).astype(dtype)
    phi = np.empty((full.n_rows(50), 30), dtype=dtype)
    full.features(full.natural(np.zeros((1, 50)), np.eye(50)[None]), X, phi)
    theta = rng.standard_normal((3, len(phi))).astype(dtype)
    W = rng.random((3, 30)).astype(dtype)
    forms = full.without_phi
    values = np.empty((3, 30), dtype=dtype)
    forms.evaluate(theta, X, values)
    tolerance = 1e-12 if dtype == np.float64 else 2e-4
    np.testing.assert_allclose(values, theta @ phi, rtol=tolerance, atol=100 * tolerance)
    np.testing.assert_allclose(forms.collect(W, X), W @ phi.T, rtol=tolerance, atol=10 * tolerance)
    for K, m, expected in [(3, 50, KernelByKernel), (3, 20, Product), (40, 50, Product)]:
        kernels = Kernels(np.full((1, K), 1.0 / K), np.zeros((K, m)), np.array([np.eye(m)] * K))
        prepared = prepare(full, kernels, np.dtype(dtype))
        assert type(prepared.evaluator(prepared.log_weights)) is expected


def test_a_fit_in_many_features_does_not_depend_on_how_kernels_are_evaluated(rng, monkeypatch):
    y = np.arange(900) % 3
    X = rng.standard_normal((900, 50)) + 0.3 * y[:, None]
    settings = {"n_components": 3, "max_iter": 4, "tol": 0, "random_state": 0, "n_blocks": 1}
    fits = []
    for features in (48, 10**6):
        monkeypatch.setattr(_kernels, "MANY_FEATURES", features)
        fits.append(SharedKernelClassifier(**settings).fit(X, y))
    one, other = fits
    np.testing.assert_allclose(one.log_likelihoods_, other.log_likelihoods_, rtol=1e-10)
    np.testing.assert_allclose(one.blocks_[0].means, other.blocks_[0].means, atol=1e-8)
    np.testing.assert_allclose(one.blocks_[0].covariances, other.blocks_[0].covariances, atol=1e-8)


def pairs_of_clusters(rng, m, n, width=1e-5):
    """Two places far apart, with two clusters each that overlap: of one class and of the other."""
    far = rng.standard_normal((2, m))
    centres = np.repeat(far, 2, axis=0) + 2.0 * width * rng.standard_normal((4, m))
    X = np.repeat(centres, n, axis=0) + width * rng.standard_normal((4 * n, m))
    return X, np.repeat([0, 1, 0, 1], n)


@pytest.mark.parametrize("m", [2, 17])
def test_narrow_kernels_with_one_covariance_are_evaluated_by_distances(rng, m):
    X, _ = pairs_of_clusters(rng, m, 20)
    means = np.stack([X[low : low + 20].mean(axis=0) for low in range(0, 80, 20)])
    P = np.cov((X - np.repeat(means, 20, axis=0)).T) + 1e-12 * np.eye(m)
    kernels = Kernels(np.full((1, 4), 0.25), means, P)
    expected = reference_log_densities(X, means, np.array([P] * 4)).T
    prepared = prepare(STRUCTURES["tied"], kernels, np.dtype(np.float64))
    own, n = np.repeat(np.arange(4), 20), np.arange(80)
    error = np.abs(prepared.log_densities(X.T) - expected)[own, n]
    assert error.max() < 1e-8
    product = prepared.evaluator(np.zeros((1, 4))).inner  # what would be lost without
    terms = product.evaluate(X.T, np.array([0, 80]), Scratch())
    assert np.abs(terms.values + terms.common - expected)[own, n].max() > 100 * error.max()


@pytest.mark.parametrize("reg_covar", [0.0, 1e-9])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_size_of_a_batch_changes_less_than_the_last_bit_of_a_sample(rng, reg_covar):
    X, y = pairs_of_clusters(rng, 3, 10)
    settings = {"covariance_type": "tied", "shrinkage": 0.0, "reg_covar": reg_covar}
    model = plain(n_components=4, n_blocks=1, random_state=0, **settings).fit(X, y)
    new, _ = pairs_of_clusters(np.random.default_rng(20220321), 3, 50)  # the same centres
    whole = model.predict_proba(new)
    assert ((whole > 0.01) & (whole < 0.99)).any()
    for rows in (1, 2, 13, 50):
        parts = [model.predict_proba(new[low : low + rows]) for low in range(0, 200, rows)]
        np.testing.assert_allclose(np.vstack(parts), whole, atol=1e-9)
    bits = np.finfo(np.float64).eps * rng.choice([-1.0, 1.0], size=new.shape)
    assert np.abs(model.predict_proba(new * (1.0 + bits)) - whole).max() < 1e-8


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("K", [1, 3, 6])
@pytest.mark.parametrize("init", ["class-kmeans", "random"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_classes_that_are_points_hardly_lower_the_likelihood(seed, K, init):
    """With one covariance, which is at the floor in some directions, and perhaps large in others.

    A matrix with entries of 1 holds eigenvalues of 1e-10 to 2e-6 of themselves: while it changes,
    they do, and no pass can tell. It comes to less than half of that, and to nothing where each
    point has its kernel from the start.
    """
    apart = init == "class-kmeans" and (K > 1 or seed < 6)  # six of those that do not fall at all
    bound = 1e-9 if apart else 0.5 * np.finfo(np.float64).eps / 1e-10
    rng = np.random.default_rng(seed)
    m = int(rng.integers(3, 6))
    points = rng.standard_normal((3, m)) * 10.0 ** rng.uniform(-3.0, 3.0)
    X, y = np.repeat(points, 5, axis=0) + 1e3 * (seed % 2), np.repeat(np.arange(3), 5)
    model = plain(
        n_components=K,
        n_blocks=1,
        covariance_type="tied",
        init=init,
        shrinkage=0.0,
        reg_covar=0.0,
        tol=0.0,
        max_iter=30,
        random_state=0,
    ).fit(X, y)
    passes = model.log_likelihoods_[:, 0]
    assert (np.diff(passes) >= -bound * np.maximum(1.0, np.abs(passes[:-1]))).all()
