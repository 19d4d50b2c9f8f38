"""Independent components before the blocks: partition="ica"."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.exceptions import ConvergenceWarning

import pskem
from pskem import SharedKernelClassifier
from pskem.unmixing import Unmixing, fit_unmixing, representative

SETTINGS = {
    "partition": "ica",
    "n_components": 4,
    "n_blocks": 2,
    "block_weights": None,
    "discriminative_iter": 0,
    "early_stopping": False,
    "random_state": 0,
}


@pytest.fixture
def mixed(rng):
    """Four independent sources that are far from Gaussian, mixed: X (N, 4), sources, mixing."""
    N = 4000
    sources = np.stack(
        [
            rng.uniform(-1.0, 1.0, N),
            rng.laplace(size=N),
            rng.choice([-1.0, 1.0], N) + 0.1 * rng.standard_normal(N),
            rng.exponential(size=N),
        ],
        axis=1,
    )
    mixing = rng.standard_normal((4, 4)) * [[10.0], [1.0], [0.1], [1.0]]
    return sources @ mixing.T + [0.0, 100.0, 1.0, -5.0], sources, mixing


def test_sources_are_recovered_up_to_order_sign_and_scale(mixed):
    X, sources, _ = mixed
    components = fit_unmixing(X, 0).components(X)
    agreement = np.abs(np.corrcoef(components.T, sources.T)[:4, 4:])
    found, source = linear_sum_assignment(-agreement)
    assert agreement[found, source].min() > 0.995
    np.testing.assert_allclose(components.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(components.std(axis=0), 1.0, rtol=1e-3)


def test_features_and_components_are_inverse(mixed):
    X = mixed[0]
    unmixing = fit_unmixing(X, 0)
    assert unmixing.n_components == 4
    back = unmixing.features(unmixing.components(X))
    np.testing.assert_allclose(back, X, atol=1e-9, rtol=1e-9)
    np.testing.assert_allclose(unmixing.unmixing @ unmixing.mixing, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(unmixing.log_det, -np.linalg.slogdet(unmixing.mixing)[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_rank_does_not_depend_on_units_or_constants(mixed, dtype):
    X = mixed[0]
    scaled = X / X.std(axis=0) * [1e-6, 1.0, 1e6, 1e3]
    total = scaled[:, :1] * 1e6 - scaled[:, 1:2]
    X = np.hstack([scaled, np.full((len(X), 1), 7.1), total]).astype(dtype)
    unmixing = fit_unmixing(X, 0)
    assert unmixing.unmixing.shape == (4, 6)
    assert unmixing.log_det == 0.0
    components = unmixing.components(X)
    assert components.dtype == dtype
    back = unmixing.features(components)
    np.testing.assert_allclose((back - X) / np.maximum(X.std(axis=0), 1.0), 0.0, atol=1e-4)


def test_far_values_stay_finite(mixed):
    unmixing = fit_unmixing(mixed[0], 0)
    for dtype in (np.float64, np.float32):
        far = np.array([[1.0, -1.0, 1.0, -1.0]], dtype=dtype) * np.finfo(dtype).max
        assert not np.isnan(unmixing.components(far)).any()


def test_an_unmixing_is_a_value(mixed):
    unmixing = fit_unmixing(mixed[0], 0)
    for one in (unmixing, pickle.loads(pickle.dumps(unmixing)), copy.deepcopy(unmixing)):
        np.testing.assert_array_equal(one.unmixing, unmixing.unmixing)
        with pytest.raises(ValueError, match="read-only"):
            one.mean[0] = 1.0
    assert repr(unmixing) == "Unmixing(n_features=4, n_components=4)"


def test_representative_samples_are_evenly_spread():
    np.testing.assert_array_equal(representative(7), np.arange(7))
    rows = representative(60_000)
    assert len(np.unique(rows)) == 20_000
    assert set(np.diff(rows)) <= {2, 3, 4}


# The classifier


@pytest.fixture
def classes(mixed, rng):
    """The same with two classes that differ in one source."""
    _, sources, mixing = mixed
    y = rng.integers(2, size=len(sources))
    sources = sources + np.outer(y, [0.0, 0.0, 0.0, 3.0])
    return sources @ mixing.T + [0.0, 100.0, 1.0, -5.0], np.array(["a", "b"])[y]


def test_densities_are_those_of_the_features(classes):
    """Each block is a mixture of the components; its image under the mixing, computed at length."""
    X, y = classes
    model = SharedKernelClassifier(**SETTINGS, init="k-means++").fit(X, y)  # all weights are free
    flat = model.expand()  # one mixture of all components
    A, mean = model.unmixing_.mixing, model.unmixing_.mean
    densities = np.stack(
        [
            multivariate_normal(A @ mu + mean, A @ P @ A.T).logpdf(X[:50])
            for mu, P in zip(flat.means, flat.dense_covariances, strict=True)
        ],
        axis=1,
    )  # (n, K)
    with np.errstate(divide="ignore"):
        terms = densities[:, None, :] + np.log(flat.weights)
    expected = logsumexp(terms, axis=2)
    np.testing.assert_allclose(model.class_log_likelihood(X[:50]), expected, rtol=1e-8)
    joint = expected + np.log(model.class_prior_)
    np.testing.assert_allclose(model.predict_joint_log_proba(X[:50]), joint, rtol=1e-8)
    np.testing.assert_allclose(model.score_samples(X[:50]), logsumexp(joint, axis=1), rtol=1e-8)
    own = expected[np.arange(50), (y[:50] == "b").astype(int)].sum()
    K, M, free = 4, 4, 2 * (2 * 3 + 4 * 2 + 4 * 3)  # two blocks of two components, two classes
    assert flat.means.shape == (K**2, M)
    np.testing.assert_allclose(model.aic(X[:50], y[:50]), 2 * free - 2 * own, rtol=1e-8)
    np.testing.assert_allclose(model.bic(X[:50], y[:50]), free * np.log(50) - 2 * own, rtol=1e-8)


def test_independent_components_fit_better_than_the_features(classes):
    X, y = classes
    settings = {**SETTINGS, "n_blocks": 4}
    ica = SharedKernelClassifier(**settings).fit(X, y)
    plain = SharedKernelClassifier(**{**settings, "partition": "dependence"}).fit(X, y)
    assert ica.score_samples(X).mean() > plain.score_samples(X).mean() + 0.3
    assert ica.score(X, y) > plain.score(X, y) + 0.02


def test_samples_have_the_units_of_the_features(classes):
    X, y = classes
    model = SharedKernelClassifier(**SETTINGS).fit(X, y)
    for label in "ab":
        own = X[y == label]
        drawn, labels = model.sample(20_000, classes=label, random_state=0)
        assert (labels == label).all()
        sd = own.std(axis=0)
        np.testing.assert_allclose(drawn.mean(axis=0) / sd, own.mean(axis=0) / sd, atol=0.1)
        np.testing.assert_allclose(np.corrcoef(drawn.T), np.corrcoef(own.T), atol=0.1)
        np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.1)


def test_validation_data_are_unmixed_too(classes):
    X, y = classes
    model = SharedKernelClassifier(**SETTINGS, max_iter=5, tol=0.0)
    model.fit(X[:3000], y[:3000], X_val=X[3000:], y_val=y[3000:])
    assert model.validation_scores_[-1] == model.score(X[3000:], y[3000:])


def test_float32(classes):
    X, y = classes
    one = SharedKernelClassifier(**SETTINGS).fit(X, y)
    two = SharedKernelClassifier(**SETTINGS).fit(X.astype(np.float32), y)
    assert two.unmixing_.components(X.astype(np.float32)).dtype == np.float32
    agreement = np.mean(one.predict(X) == two.predict(X.astype(np.float32)))
    assert agreement > 0.99


def test_linearly_dependent_features(classes):
    """The density is that of the components, and nothing that is predicted changes."""
    X, y = classes
    wide = np.hstack([X, X[:, :1] - X[:, 1:2], np.ones((len(X), 1))])
    model = SharedKernelClassifier(**SETTINGS).fit(wide, y)
    assert model.unmixing_.unmixing.shape == (4, 6)
    np.testing.assert_array_equal(
        model.class_log_likelihood(wide), model.block_log_likelihood(wide).sum(axis=1)
    )
    plain = SharedKernelClassifier(**SETTINGS).fit(X, y)
    assert model.score(wide, y) > plain.score(X, y) - 0.01
    drawn, _ = model.sample(100, random_state=0)
    np.testing.assert_allclose(drawn[:, 4], drawn[:, 0] - drawn[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(drawn[:, 5], 1.0)
    with pytest.raises(ValueError, match=r"n_blocks=5 is more than the 4 component\(s\)"):
        SharedKernelClassifier(**{**SETTINGS, "n_blocks": 5}).fit(wide, y)


def test_constant_features_are_refused():
    with pytest.raises(ValueError, match="partition='ica' needs features that vary"):
        SharedKernelClassifier(**SETTINGS).fit(np.ones((10, 3)), np.repeat([0, 1], 5))


def test_fewer_samples_than_features(rng):
    X, y = rng.standard_normal((12, 30)), np.repeat([0, 1], 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = SharedKernelClassifier(**{**SETTINGS, "n_components": 1}).fit(X, y)
    assert model.unmixing_.n_components == 11
    assert np.isfinite(model.predict_proba(X)).all()


def test_neither_the_order_of_rows_nor_threads_change_the_model(classes, rng):
    X, y = classes
    order = rng.permutation(len(X))
    one = SharedKernelClassifier(**SETTINGS, n_jobs=1).fit(X, y)
    two = SharedKernelClassifier(**SETTINGS, n_jobs=2).fit(X[order], y[order])
    np.testing.assert_array_equal(one.unmixing_.unmixing, two.unmixing_.unmixing)
    np.testing.assert_array_equal(one.blocks_[0].means, two.blocks_[0].means)
    np.testing.assert_array_equal(one.log_likelihoods_, two.log_likelihoods_)


def test_a_warning_of_fastica_is_passed_on(rng):
    """Among Gaussians no direction is better than another."""
    X, y = rng.standard_normal((3000, 10)), np.repeat([0, 1], 1500)
    with pytest.warns(ConvergenceWarning, match="FastICA did not converge"):
        SharedKernelClassifier(**{**SETTINGS, "n_components": 1}).fit(X, y)


def test_a_model_without_the_attribute_still_predicts(fitted, labelled):
    X = labelled[0]
    before = fitted.predict_proba(X), fitted.score_samples(X), fitted.sample(3, random_state=0)[0]
    del fitted.unmixing_
    after = fitted.predict_proba(X), fitted.score_samples(X), fitted.sample(3, random_state=0)[0]
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, two)


def test_warm_start_keeps_the_unmixing(classes):
    X, y = classes
    whole = SharedKernelClassifier(**SETTINGS, max_iter=8, tol=0.0).fit(X, y)
    model = SharedKernelClassifier(**SETTINGS, max_iter=4, tol=0.0, warm_start=True).fit(X, y)
    unmixing = model.unmixing_
    model.fit(X, y)
    assert model.unmixing_ is unmixing
    np.testing.assert_allclose(model.blocks_[0].means, whole.blocks_[0].means, atol=1e-6)
    with pytest.raises(ValueError, match="which was 'ica', but partition='sequential'"):
        model.set_params(partition="sequential").fit(X, y)
    assert model.unmixing_ is unmixing


def test_warm_start_of_features_cannot_go_on_with_components(fitted, labelled):
    with pytest.raises(ValueError, match="which was not 'ica', but partition='ica'"):
        fitted.set_params(warm_start=True, partition="ica").fit(*labelled)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_model_files_and_pickles_hold_it_bit_by_bit(classes, tmp_path, dtype):
    X, y = classes[0].astype(dtype), classes[1]
    model = SharedKernelClassifier(**SETTINGS).fit(X, y)
    pskem.save(model, tmp_path / "model.pskem")
    for loaded in (pskem.load(tmp_path / "model.pskem"), pickle.loads(pickle.dumps(model))):
        assert type(loaded.unmixing_) is Unmixing
        for name in ("mean", "unmixing", "mixing"):
            one, two = getattr(loaded.unmixing_, name), getattr(model.unmixing_, name)
            assert one.tobytes() == two.tobytes()
            assert not one.flags.writeable
        assert loaded.unmixing_.log_det == model.unmixing_.log_det
        for method in ("predict", "predict_proba", "class_log_likelihood", "score_samples"):
            assert getattr(loaded, method)(X).tobytes() == getattr(model, method)(X).tobytes()
