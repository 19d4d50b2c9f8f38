"""Priors that change, outliers, and the choice not to decide."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.metrics import roc_auc_score

import pskem
from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def planted(rng, n, priors, distance=1.5):
    """Three unit Gaussians at the corners of a triangle, as frequent as given."""
    y = rng.choice(3, size=n, p=priors)
    corners = distance * np.array([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    return corners[y] + rng.standard_normal((n, 2)), y


@pytest.fixture
def model(rng):
    X, y = planted(rng, 3000, [0.5, 0.3, 0.2])
    return SharedKernelClassifier(early_stopping=True, random_state=0).fit(X, y)


# ---------------------------------------------------------------------------------------- priors


def test_posteriors_change_by_the_ratio_of_the_priors(model, rng):
    X, _ = planted(rng, 200, [1 / 3] * 3)
    priors = np.array([0.1, 0.2, 0.7])
    other = model.with_priors(priors)
    expected = model.predict_proba(X) * priors / model.class_prior_
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(other.predict_proba(X), expected, rtol=1e-10)
    np.testing.assert_array_equal(other.class_prior_, priors)
    assert model.temperature_ != 1.0  # which the ratio must not feel
    # The density is that of the new mixture, and the old model is as it was.
    log_q = model.class_log_likelihood(X)
    expected = logsumexp(log_q + np.log(priors), axis=1)
    np.testing.assert_allclose(other.score_samples(X), expected, rtol=1e-12)
    again = other.with_priors(model.class_prior_)
    np.testing.assert_allclose(again.predict_proba(X), model.predict_proba(X), rtol=1e-10)
    joint = other.predict_joint_log_proba(X)
    np.testing.assert_array_equal(joint.argmax(axis=1), other.predict_proba(X).argmax(axis=1))


def test_priors_by_class(model):
    names = {0: 0.1, 1: 0.2, 2: 0.7}
    for given in (names, dict(reversed(names.items())), pd.Series(names)[[2, 0, 1]]):
        np.testing.assert_allclose(model.with_priors(given).class_prior_, [0.1, 0.2, 0.7])
    with pytest.raises(ValueError, match=r"priors lacks 2; the classes are \[0, 1, 2\]"):
        model.with_priors({0: 0.5, 1: 0.5})
    with pytest.raises(ValueError, match="priors names 'x'"):
        model.with_priors({"x": 1.0})


def test_uniform_priors_and_classes_without_any(model, rng):
    X, _ = planted(rng, 50, [1 / 3] * 3)
    np.testing.assert_allclose(model.with_priors("uniform").class_prior_, np.full(3, 1 / 3))
    without = model.with_priors([0.5, 0.5, 0.0])
    assert (without.predict_proba(X)[:, 2] == 0.0).all()
    assert np.isfinite(without.predict_proba(X)).all()
    back = without.with_priors("uniform")  # a class that had none keeps none
    np.testing.assert_allclose(back.class_prior_, [0.5, 0.5, 0.0])


@pytest.mark.parametrize("shift", [[0.2, 0.2, 0.6], [0.9, 0.05, 0.05], [0.0, 0.5, 0.5]])
def test_planted_shifts_are_recovered(model, rng, shift):
    X, y = planted(rng, 5000, shift)
    found = model.estimate_priors(X)
    np.testing.assert_allclose(found, shift, atol=0.04)
    adjusted = model.with_priors(found)
    assert adjusted.score(X, y) >= model.score(X, y)


def test_estimated_priors_maximise_the_likelihood(model, rng):
    X, _ = planted(rng, 400, [0.2, 0.2, 0.6])
    found = model.estimate_priors(X)
    ratios = model.predict_proba(X) / model.class_prior_

    def loss(p):
        shares = np.exp(p - logsumexp(p))
        return -np.log(ratios @ shares).sum()

    best = minimize(loss, np.zeros(3), method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose(found, np.exp(best - logsumexp(best)), atol=1e-4)


def test_members_may_have_priors_of_their_own(rng):
    X, y = planted(rng, 400, [0.5, 0.3, 0.2])
    labels = np.where(rng.random(400) < 0.7, None, y)
    member = SharedKernelClassifier(unlabelled_weight=1.0, n_blocks=2, n_components=6, max_iter=5)
    model = PartitionEnsemble(member, 3, random_state=0).fit(X, labels)
    assert len({tuple(m.class_prior_) for m in model.estimators_}) > 1
    priors = np.array([0.1, 0.2, 0.7])
    expected = model.predict_proba(X) * priors / model.class_prior_
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.with_priors(priors).predict_proba(X), expected, rtol=1e-9)


def test_all_classifiers_change_their_priors(rng, tmp_path):
    X, y = planted(rng, 600, [0.5, 0.3, 0.2])
    new, _ = planted(rng, 3000, [0.1, 0.2, 0.7])
    search = SharedKernelClassifierCV(n_components=[3], shrinkage=[2.0], cv=2, random_state=0)
    ensemble = PartitionEnsemble(SharedKernelClassifier(n_blocks=2), 2, random_state=0)
    for made in (search.fit(X, y), ensemble.fit(X, y)):
        found = made.estimate_priors(new)
        np.testing.assert_allclose(found, [0.1, 0.2, 0.7], atol=0.06)
        other = made.with_priors(found)
        np.testing.assert_allclose(other.class_prior_, found)
        best = getattr(other, "best_estimator_", other)
        np.testing.assert_array_equal(best.predict_proba(X), other.predict_proba(X))
        pskem.save(other, tmp_path / "model.pskem", overwrite=True)
        for loaded in (pskem.load(tmp_path / "model.pskem"), pickle.loads(pickle.dumps(other))):
            np.testing.assert_array_equal(loaded.predict_proba(X), other.predict_proba(X))


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ("even", "priors='even' is not known"),
        ([0.5, 0.5], r"priors has shape \(2,\)"),
        ([0.5, 0.6, -0.1], "holds negative values"),
        (None, "priors=None"),
    ],
)
def test_priors_that_mean_nothing_are_refused(model, priors, message):
    with pytest.raises(ValueError, match=message):
        model.with_priors(priors)


# -------------------------------------------------------------------------------------- outliers


def test_scores_are_log_densities_in_the_units_of_x(rng):
    X = rng.standard_normal((4000, 2)) * [100.0, 0.01]
    y = np.zeros(4000, dtype=int)
    y[:2000] = 1
    model = SharedKernelClassifier(n_components=2, discriminative_iter=0).fit(X, y)
    expected = multivariate_normal(np.zeros(2), np.diag([1e4, 1e-4])).logpdf(X)
    np.testing.assert_allclose(model.score_samples(X), expected, atol=0.6)
    assert abs(np.mean(model.score_samples(X) - expected)) < 0.01


def test_so_many_samples_are_called_outliers(model, rng):
    X, _ = planted(rng, 20_000, [0.5, 0.3, 0.2])
    for share in (0.05, 0.2):
        assert model.is_outlier(X, share).mean() == pytest.approx(share, abs=0.04)
    far = X + 15.0
    assert model.is_outlier(far).all()
    assert len(model.reference_log_densities_) == 300  # a tenth was held out
    labels = np.r_[np.zeros(len(X)), np.ones(len(far))]
    assert roc_auc_score(labels, -model.score_samples(np.vstack([X, far]))) > 0.99


def test_samples_that_were_asked_about_tell_outliers_too(rng):
    X, y = planted(rng, 1000, [0.5, 0.3, 0.2])
    model = SharedKernelClassifier(random_state=0).fit(X, y)
    assert len(model.reference_log_densities_) == 1000
    others, _ = planted(np.random.default_rng(1), 5000, [0.5, 0.3, 0.2])
    for share in (0.05, 0.2):
        assert model.is_outlier(others, share).mean() == pytest.approx(share, abs=0.04)
    assert model.is_outlier(others + 15.0).all()


def test_without_samples_that_were_held_out_they_are_asked_for(rng):
    X, y = planted(rng, 400, [0.5, 0.3, 0.2])
    small = SharedKernelClassifier(early_stopping=False, random_state=0).fit(X[:200], y[:200])
    density = SharedKernelDensity(n_components=3, random_state=0).fit(X[:200])
    for model in (small, density):
        with pytest.raises(ValueError, match=r"set_reference\(X\)"):
            model.is_outlier(X)
        found = model.set_reference(X[200:]).is_outlier(X[200:], 0.1)
        assert found.mean() == pytest.approx(0.1, abs=0.006)
    with pytest.raises(ValueError, match=r"share=2\.0"):
        small.is_outlier(X, 2.0)


def test_under_other_priors_nothing_is_compared(model, rng):
    X, _ = planted(rng, 50, [0.5, 0.3, 0.2])
    with pytest.raises(ValueError, match="the priors have changed"):
        model.with_priors("uniform").is_outlier(X)


@pytest.mark.parametrize("where", ["in the rows", "in the reference", "in both"])
def test_rows_with_gaps_are_outliers_as_often_as_others(model, rng, where):
    X, _ = planted(rng, 12_000, [0.5, 0.3, 0.2])
    holes = np.where(rng.random(X.shape) < 0.3, np.nan, X)
    holes[np.isnan(holes).all(axis=1)] = X[np.isnan(holes).all(axis=1)]
    reference = X if where == "in the rows" else holes
    rows = X if where == "in the reference" else holes
    model.set_reference(reference[:6000])
    for share in (0.02, 0.1):
        found = model.is_outlier(rows[6000:], share)
        assert found.mean() == pytest.approx(share, rel=0.2)
        some = np.isnan(rows[6000:]).any(axis=1)
        if some.any():
            assert found[some].mean() == pytest.approx(share, rel=0.25)
    assert not model.is_outlier(np.full((1, X.shape[1]), np.nan), 0.1).any()
    far = np.where(np.isnan(holes[6000:]), np.nan, holes[6000:] + 50.0)
    assert model.is_outlier(far, 0.1).all()


def test_few_reference_samples_cannot_tell_a_small_share(model, rng):
    X, _ = planted(rng, 40, [0.5, 0.3, 0.2])
    with pytest.warns(UserWarning, match=r"share=0\.01 cannot be told by 30 .* use 100 at least"):
        model.set_reference(X[:30]).is_outlier(X, 0.01)


def test_a_weight_is_so_many_reference_samples(model, rng):
    X, _ = planted(rng, 300, [0.5, 0.3, 0.2])
    times = rng.integers(0, 4, 300)
    one = model.set_reference(X, times).is_outlier(X, 0.1)
    other = model.set_reference(np.repeat(X, times, axis=0)).is_outlier(X, 0.1)
    np.testing.assert_array_equal(one, other)


def test_a_second_fit_forgets_the_reference(rng):
    X, _ = planted(rng, 100, [0.5, 0.3, 0.2])
    density = SharedKernelDensity(n_components=2).fit(X).set_reference(X)
    with pytest.raises(ValueError, match="no reference samples"):
        density.fit(1000.0 * X).is_outlier(1000.0 * X)


def test_rows_that_repeat_count_as_often_among_the_reference(rng):
    X = rng.integers(2, size=(12_000, 8)).astype(float)
    X = np.where(rng.random(X.shape) < 0.6, X, 0.0)  # some rows are far more frequent
    y = (X.sum(axis=1) + rng.standard_normal(12_000) > 2.4).astype(int)
    model = SharedKernelClassifier(discriminative_iter=5, early_stopping=True, random_state=0)
    model.fit(X[:8000], y[:8000])
    for share in (0.1, 0.3):
        assert model.is_outlier(X[8000:], share).mean() == pytest.approx(share, abs=0.06)


def test_an_ensemble_votes_on_outliers(rng):
    X, y = planted(rng, 1500, [0.5, 0.3, 0.2])
    model = PartitionEnsemble(SharedKernelClassifier(n_blocks=2), 3, random_state=0).fit(X, y)
    assert model.is_outlier(X + 20.0).all()
    assert model.is_outlier(X, 0.05).mean() < 0.2


# ------------------------------------------------------------------------------------- rejection


def test_uncertain_samples_get_no_class(model, rng):
    X, y = planted(rng, 2000, [0.5, 0.3, 0.2])
    sure = model.predict_proba(X).max(axis=1)
    found = model.decide(X, min_proba=0.8)
    np.testing.assert_array_equal(found.accepted, sure >= 0.8)
    np.testing.assert_array_equal(found.labels[found.accepted], model.predict(X)[found.accepted])
    assert all(label is None for label in found.labels[~found.accepted])
    assert set(found.reasons[~found.accepted]) == {"uncertain"}
    right = found.labels[found.accepted] == y[found.accepted]
    assert right.mean() > (model.predict(X) == y).mean() + 0.05
    everything = model.decide(X)
    np.testing.assert_array_equal(everything.labels, model.predict(X))


@pytest.mark.parametrize("cost", [0.1, 0.3])
def test_no_threshold_is_cheaper_than_that_of_the_cost(model, rng, cost):
    """Chow's rule, by the model's own probabilities of being wrong."""
    X, _ = planted(rng, 3000, [0.5, 0.3, 0.2])
    wrong = 1.0 - model.predict_proba(X).max(axis=1)
    price = [np.where(wrong > 1.0 - t, cost, wrong).mean() for t in np.linspace(0.0, 1.0, 101)]
    found = model.decide(X, cost=cost)
    ours = np.where(found.accepted, wrong, cost).mean()
    assert ours <= min(price) + 1e-12


def test_outliers_get_no_class(model, rng):
    X, _ = planted(rng, 100, [0.5, 0.3, 0.2])
    X[:10] += 30.0
    found = model.decide(X, outlier_share=0.01, rejected="?")
    assert set(found.reasons[:10]) == {"outlier"}
    assert set(found.labels[:10]) == {"?"}
    assert found.accepted[10:].mean() > 0.9


@pytest.mark.parametrize("settings", [{"min_proba": 1.5}, {"cost": -0.1}, {"outlier_share": 2.0}])
def test_settings_that_mean_nothing_are_refused(model, settings):
    (name,) = settings
    with pytest.raises(ValueError, match="share" if name == "outlier_share" else name):
        model.decide(np.zeros((1, 2)), **settings)


def test_conformal_sets_of_mapie_cover(rng):
    classification = pytest.importorskip("mapie.classification")
    X, y = planted(rng, 4000, [0.5, 0.3, 0.2])
    model = SharedKernelClassifier(random_state=0).fit(X[:2000], y[:2000])
    sets = classification.SplitConformalClassifier(model, confidence_level=0.9, prefit=True)
    sets.conformalize(X[2000:3000], y[2000:3000])
    _, found = sets.predict_set(X[3000:])
    covered = found[np.arange(1000), y[3000:], 0]
    assert covered.mean() == pytest.approx(0.9, abs=0.035)
    assert found.sum(axis=1).mean() < 2.5
