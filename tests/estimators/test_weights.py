"""Weights of samples and classes: a weight of 3 is the row three times, of 0 its absence."""

import numpy as np
import pytest
import sklearn
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.ensemble import AdaBoostClassifier
from sklearn.model_selection import GridSearchCV, LeaveOneGroupOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.blocks import within_class_dependence
from pskem.starts import STARTS
from pskem.training import Rows, distinct, split_rows
from reference import COVARIANCE_TYPES

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def planted(rng, n, L=3):
    """Samples of L overlapping classes with two groups each."""
    y = rng.integers(L, size=n)
    centres = 1.5 * rng.standard_normal((L, 2, 4))
    return centres[y, rng.integers(2, size=n)] + rng.standard_normal((n, 4)), y


def assert_same_model(one, other, tolerance=1e-9):
    np.testing.assert_allclose(one.priors, other.priors, rtol=tolerance)
    np.testing.assert_allclose(one.block_weights, other.block_weights, rtol=tolerance)
    for a, b in zip(one.blocks, other.blocks, strict=True):
        for name in ("weights", "means", "covariances"):
            values = getattr(a, name), getattr(b, name)
            np.testing.assert_allclose(*values, rtol=tolerance, atol=tolerance)


def weighted_and_repeated(rng, n=400):
    """Samples with weights from 0 to 3, and the same as rows, shuffled."""
    X, y = planted(rng, n)
    counts = rng.integers(4, size=n)
    rows = rng.permutation(np.repeat(np.arange(n), counts))
    return (X, y, counts), (X[rows], y[rows])


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
@pytest.mark.parametrize("init", [*STARTS])
def test_a_weight_is_the_row_so_many_times(rng, init, covariance_type):
    weighted, repeated = weighted_and_repeated(rng)
    model = SharedKernelClassifier(
        init=init,
        n_components=6,
        n_blocks=2,
        covariance_type=covariance_type,
        max_iter=10,
        random_state=3,
    )
    one, other = clone(model).fit(*weighted), clone(model).fit(*repeated)
    assert_same_model(one.model_, other.model_)
    np.testing.assert_allclose(one.log_likelihoods_, other.log_likelihoods_, rtol=1e-9)
    ignoring = clone(model).fit(*weighted[:2])
    assert not np.allclose(ignoring.model_.priors, one.model_.priors)


@pytest.mark.parametrize("settings", [{}, {"partition": "dependence"}, {"early_stopping": True}])
def test_what_is_held_out_follows_weights(rng, settings):
    """Some validate, fit block weights and choose passes, at once or in turn."""
    weighted, repeated = weighted_and_repeated(rng, 1600)
    model = SharedKernelClassifier(n_blocks=2, max_iter=8, random_state=0, **settings)
    one, other = clone(model).fit(*weighted), clone(model).fit(*repeated)
    assert (len(one.discriminative_scores_) > 1) == ("early_stopping" in settings)
    assert (one.block_weights_ != 1.0).any()
    assert_same_model(one.model_, other.model_)
    for name in ("discriminative_scores_", "log_posteriors_", "validation_scores_"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-9)


def test_given_validation_data_may_have_weights(rng):
    X, y = planted(rng, 300)
    counts = rng.integers(4, size=150)
    repeated = np.repeat(np.arange(150), counts)
    model = SharedKernelClassifier(n_blocks=2, max_iter=8, random_state=0)
    one = clone(model).fit(X[150:], y[150:], X_val=X[:150], y_val=y[:150], sample_weight_val=counts)
    other = clone(model).fit(X[150:], y[150:], X_val=X[repeated], y_val=y[repeated])
    assert_same_model(one.model_, other.model_)
    np.testing.assert_allclose(one.validation_scores_, other.validation_scores_, rtol=1e-12)


def test_one_kernel_a_class_has_weighted_moments(rng):
    """K = L, nothing shared: the weighted means and covariances of the classes."""
    X, y = planted(rng, 500)
    weights = rng.uniform(0.5, 3.0, 500)
    settings = {"shrinkage": 0.0, "block_weights": None, "discriminative_iter": 0}
    model = SharedKernelClassifier(n_components=3, **settings).fit(X, y, weights)
    (block,) = model.blocks_
    for j in range(3):
        own, w = X[y == j], weights[y == j]
        np.testing.assert_allclose(block.means[j], np.average(own, axis=0, weights=w), rtol=1e-9)
        expected = np.cov(own.T, aweights=w, ddof=0)
        np.testing.assert_allclose(block.covariances[j], expected, rtol=1e-8)
    priors = np.bincount(y, weights) / weights.sum()
    np.testing.assert_allclose(model.class_prior_, priors, rtol=1e-12)
    own = np.stack(
        [multivariate_normal(block.means[j], block.covariances[j]).logpdf(X) for j in range(3)],
        axis=1,
    )[np.arange(500), y]
    np.testing.assert_allclose(model.log_likelihoods_[-1, 0], weights @ own, rtol=1e-9)


def test_a_class_without_weight_is_no_class(rng):
    X, y = planted(rng, 300)
    model = SharedKernelClassifier().fit(X, y, (y != 1).astype(float))
    np.testing.assert_array_equal(model.classes_, [0, 2])


def test_units_of_weights_below_one_do_not_matter(rng):
    X, y = planted(rng, 200)
    weights = rng.uniform(0.1, 1.0, 200)
    one = SharedKernelClassifier(random_state=0).fit(X, y, weights)
    other = SharedKernelClassifier(random_state=0).fit(X, y, weights / weights.sum())
    assert_same_model(one.model_, other.model_)


def test_equal_weights_below_one_are_as_none(rng):
    """Also where rows stand there several times."""
    X, y = rng.integers(3, size=(300, 3)).astype(float), rng.integers(2, size=300)
    plain_fit = SharedKernelClassifier(random_state=0).fit(X, y)
    for weight in (1 / 300, 0.5, 0.9999):
        weighted = SharedKernelClassifier(random_state=0).fit(X, y, np.full(300, weight))
        assert_same_model(weighted.model_, plain_fit.model_)


def test_rows_that_repeat_are_held_out_one_by_one(rng):
    """On a table of few different rows, validation is as good as a test."""
    X = rng.integers(2, size=(12_000, 8)).astype(float)
    p = 1.0 / (1.0 + np.exp(-2.0 * (X - 0.5) @ rng.standard_normal(8)))
    y = (rng.random(12_000) < p).astype(int)
    settings = {"early_stopping": True, "discriminative_iter": 0, "block_weights": None}
    model = SharedKernelClassifier(random_state=0, **settings).fit(X[:8000], y[:8000])
    held_out = model.validation_scores_[model.best_iter_ - 1]
    assert held_out == pytest.approx(model.score(X[8000:], y[8000:]), abs=0.04)
    rows = distinct(X, y)
    kept, taken = split_rows(rows, y[rows.places], 0.1, 2, 0)
    assert taken.total == pytest.approx(1200)
    assert kept.total + taken.total == 12_000
    both = np.intersect1d(kept.places, taken.places)
    assert len(both) > 0.5 * taken.size


def test_rows_are_merged_up_to_rounding(rng):
    X = np.repeat(rng.integers(3, size=(60, 3)).astype(float), 4, axis=0)
    labels = np.repeat(rng.integers(2, size=60), 4)
    different = np.unique(np.column_stack([labels, X]), axis=0)
    for noise in (0.0, 1e-15):
        rows = distinct(X * (1.0 + noise * rng.standard_normal(X.shape)), labels)
        assert rows.size == len(different) < 60
        assert rows.total == len(X)
    assert distinct(X * (1.0 + 1e-10 * rng.standard_normal(X.shape)), labels).size > 60
    alone = distinct(rng.standard_normal((50, 3)), np.zeros(50, dtype=np.intp))
    assert alone.weights is None
    assert alone.total == alone.size == 50
    some = Rows(np.arange(3), np.array([1.0, 2.0, 4.0])).at(np.array([0, 2]))
    assert (some.places.tolist(), some.total) == ([0, 2], 5.0)


def test_dependence_follows_weights(rng):
    X, y = planted(rng, 300)
    counts = rng.integers(1, 4, 300)
    rows = np.repeat(np.arange(300), counts)
    found = within_class_dependence(X, y, counts.astype(float))
    np.testing.assert_allclose(found, within_class_dependence(X[rows], y[rows]), rtol=1e-9)
    assert not np.allclose(found, within_class_dependence(X, y))


# --------------------------------------------------------------------------- weights of classes


def test_balanced_classes_count_alike(rng):
    X, y = planted(rng, 400)
    settings = {"n_components": 3, "random_state": 0}
    balanced = SharedKernelClassifier(class_weight="balanced", **settings).fit(X, y)
    np.testing.assert_allclose(balanced.class_prior_, np.full(3, 1 / 3), rtol=1e-12)
    weights = 400 / (3 * np.bincount(y))
    by_hand = SharedKernelClassifier(**settings).fit(X, y, weights[y])
    given = dict(zip(range(3), weights, strict=True))
    by_class = SharedKernelClassifier(class_weight=given, **settings).fit(X, y)
    for other in (by_hand, by_class):
        assert_same_model(balanced.model_, other.model_)


def test_classes_that_are_not_named_count_as_they_are(rng):
    X, y = planted(rng, 300)
    model = SharedKernelClassifier(class_weight={1: 3.0}).fit(X, y)
    masses = np.bincount(y) * [1.0, 3.0, 1.0]
    np.testing.assert_allclose(model.class_prior_, masses / masses.sum(), rtol=1e-12)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("even", "class_weight='even' is not known"),
        ([1.0, 2.0], r"class_weight=\[1.0, 2.0\] is not accepted"),
        ({7: 1.0}, "class_weight names the class 7"),
        ({0: -1.0}, r"class_weight\[0\]=-1.0"),
        ({0: 0.0}, r"class_weight\[0\]=0.0"),
    ],
)
def test_class_weights_that_mean_nothing_are_refused(value, message):
    iris = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=message):
        SharedKernelClassifier(class_weight=value).fit(*iris)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(3), "sample_weight has 3 entries for 150 samples"),
        (np.full(150, -1.0), r"sample_weight\[0\] is -1"),
        (np.zeros(150), "zero for all samples"),
        (np.full(150, np.nan), "sample_weight holds NaN"),
        (["a"] * 150, "sample_weight="),
    ],
)
def test_weights_that_mean_nothing_are_refused(weights, message):
    iris = load_iris(return_X_y=True)
    for model in (SharedKernelClassifier(), PartitionEnsemble(), SharedKernelDensity()):
        with pytest.raises(ValueError, match=message):
            model.fit(*iris, sample_weight=weights)
    with pytest.raises(ValueError, match="sample_weight_val"):
        SharedKernelClassifier().fit(*iris, sample_weight_val=np.ones(150))


# -------------------------------------------------------------------------- all other estimators


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_density_with_weights(rng, covariance_type):
    (X, _, counts), (repeated, _) = weighted_and_repeated(rng)
    model = SharedKernelDensity(
        n_components=4, covariance_type=covariance_type, max_iter=20, random_state=0
    )
    one, other = clone(model).fit(X, sample_weight=counts), clone(model).fit(repeated)
    assert_same_model(one.model_, other.model_)
    assert one.score(X, sample_weight=counts) == pytest.approx(other.score(repeated), rel=1e-9)
    assert one.bic(X, sample_weight=counts) == pytest.approx(other.bic(repeated), rel=1e-9)
    assert one.aic(X) != pytest.approx(one.aic(X, sample_weight=counts), rel=1e-3)


def test_an_ensemble_with_weights(rng):
    weighted, repeated = weighted_and_repeated(rng)
    model = PartitionEnsemble(SharedKernelClassifier(n_blocks=2), 2, random_state=0)
    one, other = clone(model).fit(*weighted), clone(model).fit(*repeated)
    for a, b in zip(one.estimators_, other.estimators_, strict=True):
        assert_same_model(a.model_, b.model_)


@pytest.mark.parametrize("cv", [3, 0.25])
@pytest.mark.parametrize("selection", ["validation", "bic"])
def test_a_search_with_weights(rng, cv, selection):
    weighted, repeated = weighted_and_repeated(rng)
    model = SharedKernelClassifierCV(
        n_components=[3, 6],
        shrinkage=[2.0],
        cv=cv,
        selection=selection,
        time_budget=None,
        random_state=0,
    )
    one, other = clone(model).fit(*weighted), clone(model).fit(*repeated)
    for name in ("mean_test_score", "mean_log_loss"):
        np.testing.assert_allclose(one.cv_results_[name], other.cv_results_[name], rtol=1e-9)
    assert_same_model(one.model_, other.model_)


def test_folds_of_ones_own_are_of_the_rows_as_they_are(rng):
    X, y = planted(rng, 200)
    groups = np.arange(200) % 3
    weights = rng.integers(0, 3, 200).astype(float)
    model = SharedKernelClassifierCV(
        n_components=[3],
        shrinkage=[2.0],
        cv=list(LeaveOneGroupOut().split(X, y, groups)),
        random_state=0,
    ).fit(X, y, weights)
    expected = []
    for g in range(3):
        kept = groups != g
        alone = clone(model.best_estimator_).fit(X[kept], y[kept], weights[kept])
        expected.append(alone.score(X[~kept], y[~kept], weights[~kept]))
    found = [model.cv_results_[f"split{g}_test_score"][0] for g in range(3)]
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_boosting_uses_weights(rng):
    """The second member of AdaBoost is one with the weights that Zhu et al. (2009) give."""
    X, y = planted(rng, 400)
    alone = SharedKernelClassifier(n_components=3, covariance_type="tied")
    boosted = AdaBoostClassifier(alone, n_estimators=2, random_state=0).fit(X, y)
    first, second = boosted.estimators_
    wrong = first.predict(X) != y
    weights = np.where(wrong, 2.0 * (1.0 - wrong.mean()) / wrong.mean(), 1.0)  # 3 - 1 classes
    by_hand = clone(second).fit(X, y, weights / weights.sum())
    assert_same_model(second.model_, by_hand.model_)
    assert not np.allclose(first.blocks_[0].means, second.blocks_[0].means)


def test_calibration_uses_weights(rng):
    X, y = planted(rng, 300, L=2)
    weights = np.where(y == 1, 5.0, 1.0)
    model = CalibratedClassifierCV(SharedKernelClassifier(random_state=0), cv=3)
    plain_fit, weighted = clone(model).fit(X, y), clone(model).fit(X, y, weights)
    gained = weighted.predict_proba(X)[:, 1] - plain_fit.predict_proba(X)[:, 1]
    assert gained.mean() > 0.02


def test_weights_are_routed(rng):
    X, y = planted(rng, 200)
    weights = rng.uniform(0.2, 2.0, 200)
    with sklearn.config_context(enable_metadata_routing=True):
        model = SharedKernelClassifier(random_state=0)
        model.set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        search = GridSearchCV(
            make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model),
            {"sharedkernelclassifier__n_components": [3, 6]},
            cv=2,
        )
        found = search.fit(X, y, sample_weight=weights).best_estimator_
    direct = clone(found[-1]).fit(found[0].transform(X), y, weights)
    assert_same_model(found[-1].model_, direct.model_)
    ignoring = clone(found[-1]).fit(found[0].transform(X), y)
    assert not np.allclose(ignoring.class_prior_, direct.class_prior_)
