"""Independent components before a classifier."""

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

import pskem
from pskem import SharedKernelClassifier
from pskem.preprocessing import IndependentComponents

SETTINGS = {
    "partition": "dependence",
    "n_components": 4,
    "n_blocks": 2,
    "block_weights": None,
    "discriminative_iter": 0,
    "early_stopping": False,
    "random_state": 0,
}
ATTRIBUTES = ("mean_", "components_", "mixing_", "log_det_")


def unmix(X):
    return IndependentComponents(random_state=0).fit(X)


def unmixed(**settings):
    """A classifier of independent components."""
    classifier = SharedKernelClassifier(**{**SETTINGS, **settings})
    return make_pipeline(IndependentComponents(random_state=0), classifier)


def agreement(components, sources):
    """The least correlation of a source with the component that is its own; signs are free."""
    C = components.shape[1]
    correlations = np.abs(np.corrcoef(components.T, sources.T)[:C, C:])
    return correlations[linear_sum_assignment(-correlations)].min()


# The checks have few samples, of which some are Gaussian.
@pytest.mark.filterwarnings("ignore:FastICA did not converge")
@parametrize_with_checks([IndependentComponents()])
def test_estimator_contract(estimator, check):
    check(estimator)


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
    components = unmix(X).transform(X)
    assert agreement(components, sources) > 0.995
    np.testing.assert_allclose(components.mean(axis=0), 0.0, atol=1e-9)
    np.testing.assert_allclose(components.std(axis=0), 1.0, rtol=1e-3)


def test_features_and_components_are_inverse(mixed):
    X = mixed[0]
    steps = unmix(X)
    assert steps.components_.shape == (4, 4)
    components = steps.transform(X)
    np.testing.assert_allclose(components, (X - steps.mean_) @ steps.components_.T, atol=1e-9)
    np.testing.assert_allclose(steps.inverse_transform(components), X, atol=1e-9, rtol=1e-9)
    np.testing.assert_allclose(steps.components_ @ steps.mixing_, np.eye(4), atol=1e-9)
    np.testing.assert_allclose(steps.log_det_, -np.linalg.slogdet(steps.mixing_)[1])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_rank_does_not_depend_on_units_or_constants(mixed, dtype):
    X = mixed[0]
    scaled = X / X.std(axis=0) * [1e-6, 1.0, 1e6, 1e3]
    total = scaled[:, :1] * 1e6 - scaled[:, 1:2]
    X = np.hstack([scaled, np.full((len(X), 1), 7.1), total]).astype(dtype)
    steps = unmix(X)
    assert steps.components_.shape == (4, 6)
    assert np.isnan(steps.log_det_)
    components = steps.transform(X)
    assert components.dtype == dtype
    back = steps.inverse_transform(components)
    np.testing.assert_allclose((back - X) / np.maximum(X.std(axis=0), 1.0), 0.0, atol=1e-4)


def test_far_values_stay_finite(mixed):
    steps = unmix(mixed[0])
    far = np.array([[1.0, -1.0, 1.0, -1.0]]) * np.finfo(np.float64).max
    assert np.isfinite(steps.transform(far)).all()
    far = np.array([[1.0, -1.0, 1.0, -1.0]], dtype=np.float32) * np.finfo(np.float32).max
    assert not np.isnan(steps.transform(far)).any()


@pytest.mark.parametrize("factor", [1e140, 1e-140])
def test_huge_and_tiny_values_are_unmixed_as_any(mixed, factor):
    X, sources, _ = mixed
    steps = unmix(X * factor)
    components = steps.transform(X * factor)
    assert agreement(components, sources) > 0.995
    np.testing.assert_allclose(components.std(axis=0), 1.0, rtol=1e-3)
    back = steps.inverse_transform(components) / factor
    np.testing.assert_allclose(back, X, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-320, 1e-308, 1e-250, 1e250])
@pytest.mark.parametrize("places", [[2], [0, 1, 2, 3]])
def test_what_cannot_be_scaled_is_told(mixed, factor, places):
    X = mixed[0].copy()
    X[:, places] *= factor
    named = ", ".join(map(str, places))
    match = rf"Feature\(s\) {named} of X vary by .*; between 1e-200 and 1e\+200 is accepted"
    with pytest.raises(ValueError, match=match):
        IndependentComponents(random_state=0).fit(X)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("far", [1e1, 1e3, 1e5])
def test_rounding_is_no_dimension(mixed, dtype, far):
    """Copies of features at an offset differ from them by rounding, and by nothing else."""
    X = mixed[0].astype(dtype)
    two = X[:, :2] / X[:, :2].std(axis=0)
    copies = np.hstack([two, two + dtype(far), dtype(far) - two])
    assert len(IndependentComponents(random_state=0).fit(copies).components_) == 2
    moved = X / X.std(axis=0) + dtype(far)
    if dtype == np.float64:  # other features keep their dimensions there
        assert len(IndependentComponents(random_state=0).fit(moved).components_) == 4


def test_many_samples_of_few_classes_are_unmixed_as_well(mixed, rng):
    """20,000 of 50,000 samples are looked at; classes say which, and do no harm."""
    _, _, mixing = mixed
    sources = rng.laplace(size=(50_000, 4))
    X, y = sources @ mixing.T, np.repeat(["a", "b"], [40_000, 10_000])
    for labels in (None, y):
        components = IndependentComponents(random_state=0).fit(X, labels).transform(X)
        assert agreement(components, sources) > 0.995


def test_names_of_components_and_features(mixed):
    frame = pd.DataFrame(mixed[0], columns=list("abcd"))
    steps = unmix(frame)
    np.testing.assert_array_equal(steps.feature_names_in_, list("abcd"))
    names = [f"independentcomponents{i}" for i in range(4)]
    np.testing.assert_array_equal(steps.get_feature_names_out(), names)
    with pytest.raises(ValueError, match="feature names"):
        steps.transform(frame[list("dcba")])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"max_iter": 0}, "max_iter=0 must be an integer of at least 1"),
        ({"tol": 0.0}, r"tol=0\.0 must be a finite number above 0"),
        ({"random_state": "x"}, "random_state='x' is not accepted"),
    ],
)
def test_bad_parameters(mixed, parameters, message):
    with pytest.raises(ValueError, match=message):
        IndependentComponents(**parameters).fit(mixed[0])


@pytest.mark.parametrize("method", ["transform", "inverse_transform"])
def test_it_has_to_be_fitted(mixed, method):
    with pytest.raises(NotFittedError):
        getattr(IndependentComponents(), method)(mixed[0])


def test_constant_features_are_refused():
    with pytest.raises(
        ValueError, match=r"IndependentComponents needs features that vary.* same 3"
    ):
        unmix(np.ones((10, 3)))


def test_a_warning_of_fastica_is_passed_on(rng):
    """Among Gaussians no direction is better than another."""
    X, y = rng.standard_normal((3000, 10)), np.repeat([0, 1], 1500)
    with pytest.warns(ConvergenceWarning, match="FastICA did not converge"):
        unmixed(n_components=1).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="FastICA did not converge"):
        IndependentComponents(max_iter=1, random_state=0).fit(rng.laplace(size=(3000, 4)))


# Before a classifier


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
    steps, model = unmixed(init="k-means++").fit(X, y)  # all weights are free
    flat = model.expand()  # one mixture of all components
    A, mean = steps.mixing_, steps.mean_
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
    components, log_det = steps.transform(X[:50]), steps.log_det_
    ours = model.class_log_likelihood(components) + log_det
    np.testing.assert_allclose(ours, expected, rtol=1e-8)
    joint = expected + np.log(model.class_prior_)
    ours = model.predict_joint_log_proba(components) + log_det
    np.testing.assert_allclose(ours, joint, rtol=1e-8)
    ours = model.score_samples(components) + log_det
    np.testing.assert_allclose(ours, logsumexp(joint, axis=1), rtol=1e-8)
    own = expected[np.arange(50), (y[:50] == "b").astype(int)].sum()
    K, M, free = 4, 4, 2 * (2 * 3 + 4 * 2 + 4 * 3)  # two blocks of two components, two classes
    assert flat.means.shape == (K**2, M)
    aic, bic = model.aic(components, y[:50]), model.bic(components, y[:50])
    np.testing.assert_allclose(aic - 100 * log_det, 2 * free - 2 * own, rtol=1e-8)
    np.testing.assert_allclose(bic - 100 * log_det, free * np.log(50) - 2 * own, rtol=1e-8)


def test_independent_components_fit_better_than_the_features(classes):
    X, y = classes
    ica = unmixed(n_blocks=4).fit(X, y)
    plain = SharedKernelClassifier(**{**SETTINGS, "n_blocks": 4}).fit(X, y)
    ours = ica[-1].score_samples(ica[0].transform(X)).mean() + ica[0].log_det_
    assert ours > plain.score_samples(X).mean() + 0.3
    assert ica.score(X, y) > plain.score(X, y) + 0.02


def test_samples_have_the_units_of_the_features(classes):
    X, y = classes
    steps, model = unmixed().fit(X, y)
    for label in "ab":
        own = X[y == label]
        drawn, labels = model.sample(20_000, classes=label, random_state=0)
        drawn = steps.inverse_transform(drawn)
        assert (labels == label).all()
        sd = own.std(axis=0)
        np.testing.assert_allclose(drawn.mean(axis=0) / sd, own.mean(axis=0) / sd, atol=0.1)
        np.testing.assert_allclose(np.corrcoef(drawn.T), np.corrcoef(own.T), atol=0.1)
        np.testing.assert_allclose(drawn.std(axis=0), sd, rtol=0.1)


def test_validation_data_are_unmixed_too(classes):
    """By whoever gives them to a step of a pipeline."""
    X, y = classes
    pipeline = unmixed(max_iter=5, tol=0.0)
    X_val = pipeline[0].fit(X[:3000], y[:3000]).transform(X[3000:])
    pipeline.fit(
        X[:3000],
        y[:3000],
        sharedkernelclassifier__X_val=X_val,
        sharedkernelclassifier__y_val=y[3000:],
    )
    scores = pipeline[-1].validation_scores_
    assert len(scores) == 5
    assert scores[-1] == pipeline.score(X[3000:], y[3000:])


def test_float32(classes):
    X, y = classes
    one = unmixed().fit(X, y)
    two = unmixed().fit(X.astype(np.float32), y)
    assert two[0].transform(X.astype(np.float32)).dtype == np.float32
    assert np.mean(one.predict(X) == two.predict(X.astype(np.float32))) > 0.99


def test_linearly_dependent_features(classes):
    """There are as many components as dimensions, and nothing that is predicted changes."""
    X, y = classes
    wide = np.hstack([X, X[:, :1] - X[:, 1:2], np.ones((len(X), 1))])
    model = unmixed().fit(wide, y)
    assert model[0].components_.shape == (4, 6)
    assert np.isnan(model[0].log_det_)
    plain = unmixed().fit(X, y)
    assert model.score(wide, y) > plain.score(X, y) - 0.01
    drawn, _ = model[-1].sample(100, random_state=0)
    drawn = model[0].inverse_transform(drawn)
    np.testing.assert_allclose(drawn[:, 4], drawn[:, 0] - drawn[:, 1], rtol=1e-6)
    np.testing.assert_array_equal(drawn[:, 5], 1.0)
    with pytest.raises(ValueError, match=r"n_blocks=5 is more than the 4 feature\(s\)"):
        unmixed(n_blocks=5).fit(wide, y)


def test_fewer_samples_than_features(rng):
    X, y = rng.standard_normal((12, 30)), np.repeat([0, 1], 6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = unmixed(n_components=1).fit(X, y)
    assert len(model[0].components_) == 11
    assert np.isfinite(model.predict_proba(X)).all()


def test_neither_the_order_of_rows_nor_threads_change_the_model(classes, rng):
    X, y = classes
    order = rng.permutation(len(X))
    with threadpool_limits(1, user_api="blas"):
        one = unmixed(n_jobs=1).fit(X, y)
    with threadpool_limits(2, user_api="blas"):
        two = unmixed(n_jobs=2).fit(X[order], y[order])
    for name in ATTRIBUTES:
        np.testing.assert_array_equal(getattr(one[0], name), getattr(two[0], name))
    np.testing.assert_array_equal(one[-1].blocks_[0].means, two[-1].blocks_[0].means)
    np.testing.assert_array_equal(one[-1].log_likelihoods_, two[-1].log_likelihoods_)


@pytest.mark.parametrize("M", [4, 64])
def test_the_place_of_a_row_does_not_change_its_components(rng, M):
    """Not even in the last bit: the classifier's own order of the rows would be another one."""
    X = rng.laplace(size=(2049, M)) @ rng.standard_normal((M, M))  # one more than a chunk
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        steps = IndependentComponents(max_iter=3, random_state=0).fit(X)
    components = steps.transform(X)
    np.testing.assert_array_equal(steps.transform(X[::-1])[::-1], components)
    alone = np.vstack([steps.transform(row[None]) for row in X[:20]])
    np.testing.assert_array_equal(alone, components[:20])


def test_rows_of_no_new_dimension_are_told_alike_alone_and_together(classes):
    """Columns that repeat at an offset add no dimension, but rounding, which batches round anew."""
    X, y = classes
    two = X[:, :2]
    wide = np.hstack([two, two + 1e3, 1e3 - two])
    model = unmixed().fit(wide, y)
    assert len(model[0].components_) == 2
    whole = model.predict_proba(wide)[:100]
    assert ((whole > 0.01) & (whole < 0.99)).any()
    for rows in (1, 7, 50):
        parts = [model.predict_proba(wide[low:100][:rows]) for low in range(0, 100, rows)]
        np.testing.assert_allclose(np.vstack(parts), whole, atol=1e-9)


def test_a_random_state_decides(mixed):
    X = mixed[0]
    one, two, other = (IndependentComponents(random_state=s).fit(X) for s in (0, 0, 1))
    np.testing.assert_array_equal(one.components_, two.components_)
    assert not np.array_equal(one.components_, other.components_)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_model_files_and_pickles_hold_it_bit_by_bit(classes, tmp_path, dtype):
    X, y = classes[0].astype(dtype), classes[1]
    model = unmixed().fit(X, y)
    pskem.save(model, tmp_path / "model.pskem")
    copies = (
        pskem.load(tmp_path / "model.pskem"),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    )
    for loaded in copies:
        assert type(loaded[0]) is IndependentComponents
        for name in ATTRIBUTES:
            one, two = getattr(loaded[0], name), getattr(model[0], name)
            assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
        assert loaded[0].get_params() == model[0].get_params()
        components = loaded[0].transform(X)
        assert components.tobytes() == model[0].transform(X).tobytes()
        for method in ("predict", "predict_proba", "predict_log_proba"):
            assert getattr(loaded, method)(X).tobytes() == getattr(model, method)(X).tobytes()
    assert not hasattr(clone(model)[0], "components_")
