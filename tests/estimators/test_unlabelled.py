"""Samples without a class: exact semi-supervised EM of the partitioned model."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.base import clone

from pskem import PartitionEnsemble, SharedKernelClassifier, SharedKernelClassifierCV
from pskem.engine import (
    ArraySource,
    Contrast,
    DecisionRule,
    Kernels,
    Posterior,
    Summarise,
    prepare,
    serial_map,
)
from pskem.engine import _targets as targets
from pskem.starts import Start
from pskem.structures import STRUCTURES
from pskem.training import FitTask, make_plan
from reference import COVARIANCE_TYPES, of_type, plain, random_covariances

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
DOUBLE = np.dtype(np.float64)


def two_views(rng, n, m=3, distance=2.5):
    """Two classes of two groups each, in two views that are independent given the class."""
    y = rng.integers(2, size=n)
    views = []
    for _ in range(2):
        centres = distance * rng.standard_normal((2, 2, m))
        views.append(centres[y, rng.integers(2, size=n)] + rng.standard_normal((n, m)))
    return np.hstack(views), y


def hide(y, rng, n_known):
    """Labels as numbers, NaN but for so many of each class."""
    known = np.concatenate(
        [rng.choice(np.flatnonzero(y == c), n_known, replace=False) for c in np.unique(y)]
    )
    hidden = np.full(len(y), np.nan)
    hidden[known] = y[known]
    return hidden


@types
@pytest.mark.parametrize("n_blocks", [1, 2])
def test_the_joint_likelihood_never_falls(rng, covariance_type, n_blocks):
    X, y = two_views(rng, 400)
    model = plain(
        n_components=6,
        n_blocks=n_blocks,
        init="em",
        covariance_type=covariance_type,
        tol=0,
        max_iter=25,
        random_state=0,
    ).fit(X, hide(y, rng, 5))
    trace = model.joint_log_likelihoods_
    assert len(trace) == 25
    assert (np.diff(trace) > -1e-9 * np.abs(trace[1:])).all()
    assert trace[-1] > trace[0] + 1.0
    # By hand, from what the model says of the samples and their classes.
    labels = hide(y, np.random.default_rng(0), 5)
    again = clone(model).set_params(max_iter=1).fit(X, labels)
    begun = clone(model).set_params(max_iter=2).fit(X, labels)
    joint = again.class_log_likelihood(X) + np.log(again.class_prior_)
    known = ~np.isnan(labels)
    own = joint[known, labels[known].astype(int)]
    expected = own.sum() + logsumexp(joint[~known], axis=1).sum()
    assert begun.joint_log_likelihoods_[1] == pytest.approx(expected, rel=1e-10)


@types
def test_a_pass_is_the_sum_over_all_label_assignments(rng, covariance_type):
    """Brute force: complete the labels of 5 samples in all 2^5 ways, by their probabilities."""
    K, m, L = 3, 2, 2
    X, bounds = rng.standard_normal((2, m, 5)), np.array([0, 5, 5])
    kernels = []
    for _ in range(2):
        covariances = of_type(random_covariances(rng, K, m), covariance_type)
        weights, means = rng.dirichlet(np.ones(K), L), rng.standard_normal((K, m))
        kernels.append(Kernels(weights, means, covariances))
    structure = STRUCTURES[covariance_type]
    log_prior = np.log([0.3, 0.7])
    prepared = tuple(prepare(structure, k, DOUBLE) for k in kernels)
    target = Posterior(DecisionRule(log_prior, np.ones(2)))
    found = Summarise(prepared, target)(ArraySource(list(X), bounds, serial_map)._batches[0])

    log_terms = []  # log pi_kc N_k(x_n) of each block, (L, K, n)
    for block, part in zip(kernels, X, strict=True):
        dense = structure.storage.dense(block.covariances, K, m)
        rows = zip(block.means, dense, strict=True)
        log_n = np.array([multivariate_normal(mean, P).logpdf(part.T) for mean, P in rows])
        log_terms.append(np.log(block.weights)[:, :, None] + log_n)
    log_q = [logsumexp(part, axis=1) for part in log_terms]  # (L, n)
    gained = np.zeros((2, L, K))
    log_totals = []
    for labels in product(range(L), repeat=5):
        log_p = sum(log_prior[c] + sum(q[c, n] for q in log_q) for n, c in enumerate(labels))
        log_totals.append(log_p)
    log_evidence = logsumexp(log_totals)
    for labels, log_p in zip(product(range(L), repeat=5), log_totals, strict=True):
        for r, part in enumerate(log_terms):
            for n, c in enumerate(labels):
                share = np.exp(part[c, :, n] - log_q[r][c, n])
                gained[r, c] += np.exp(log_p - log_evidence) * share
    np.testing.assert_allclose(found.value[0], log_evidence, rtol=1e-11)
    for r in range(2):
        np.testing.assert_allclose(found.blocks[r].gained, gained[r], rtol=1e-10)


@types
@pytest.mark.parametrize("target", [Posterior, Contrast])
def test_shared_kernels_through_products_are_as_pair_by_pair(
    rng, covariance_type, target, monkeypatch
):
    """Also for samples that are hopeless for one class, or for all."""
    structure, L, K, m = STRUCTURES[covariance_type], 3, 4, 2
    means = np.concatenate([rng.standard_normal((2, m)), 60.0 + rng.standard_normal((2, m))])
    covariances = of_type(random_covariances(rng, K, m), covariance_type)
    weights = rng.dirichlet(np.ones(K), L)
    weights[0, 2:], weights[1, :2] = 1e-300, 1e-300
    kernels = Kernels(weights / weights.sum(axis=1, keepdims=True), means, covariances)
    X = np.hstack([rng.standard_normal((m, 30)), 60.0 + rng.standard_normal((m, 30))])
    X = np.hstack([X, 500.0 * rng.standard_normal((m, 5))])
    source = ArraySource([X], np.array([0, 20, 40, 65]), serial_map)
    prepared = (prepare(structure, kernels, DOUBLE),)
    rule = DecisionRule(np.log([0.2, 0.3, 0.5]), np.ones(1))
    found = source.fold(Summarise(prepared, target(rule)))
    monkeypatch.setattr(targets, "MANY_SHARED", L)
    expected = source.fold(Summarise(prepared, target(rule)))
    np.testing.assert_allclose(found.value, expected.value, rtol=1e-12)
    for one, other in zip(found.blocks[0][:4], expected.blocks[0][:4], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def test_few_labels_share_kernels_and_blocks_teach_each_other(rng):
    """Two labels a class: kernels that all samples find, and whose they are by two views."""
    gains = []
    for _ in range(6):
        X, y = two_views(rng, 1500)
        labels = hide(y[:1000], rng, 2)
        known = ~np.isnan(labels)
        settings = {"n_blocks": 2, "partition": "sequential", "random_state": 0}
        model = SharedKernelClassifier(n_components=4, **settings).fit(X[:1000], labels)
        assert (model.blocks_[0].allowed).all()
        alone = SharedKernelClassifier(random_state=0).fit(X[:1000][known], labels[known])
        scores = [m.score(X[1000:], y[1000:]) for m in (model, alone)]
        gains.append(scores[0] - scores[1])
    assert np.mean(gains) > 0.05


def test_enough_labels_have_kernels_of_their_own(rng):
    X, y = two_views(rng, 600)
    model = SharedKernelClassifier(unlabelled_weight=1.0, random_state=0)
    model.fit(X, hide(y, rng, 8))
    assert not model.blocks_[0].allowed.all()
    assert len(model.blocks_) == 1  # more samples of a class than features
    many = np.hstack([X, X, X + rng.standard_normal(X.shape)])
    wide = SharedKernelClassifier(unlabelled_weight=1.0, random_state=0).fit(many, hide(y, rng, 8))
    assert [block.features.tolist() for block in wide.blocks_] == [
        list(range(r, 18, 3)) for r in range(3)
    ]
    # No more kernels of a class than samples that say whose they are.
    assert all(len(block.means) <= 16 for block in wide.blocks_)


def test_with_one_block_a_kernel_takes_the_share_of_its_labels(rng):
    """What EM in one block ends at: p(c|k) is the share of labels, however many rows there are."""
    X = np.concatenate([rng.standard_normal((300, 2)), 20.0 + rng.standard_normal((300, 2))])
    labels = np.full(600, np.nan)
    labels[:4], labels[300:304] = [0, 0, 0, 1], [1, 1, 1, 0]
    start = Start(
        weights=np.full((2, 2), 0.5), means=[[0.0, 0.0], [20.0, 20.0]], covariances=[np.eye(2)] * 2
    )
    model = plain(n_components=2, n_blocks=1, init=start, tol=0, max_iter=3000).fit(X, labels)
    joint = model.class_prior_[:, None] * model.blocks_[0].weights
    np.testing.assert_allclose(joint / joint.sum(axis=0), [[0.75, 0.25], [0.25, 0.75]], atol=1e-3)


def across_clusters(rng, n):
    """Two classes that one feature tells apart, across two clusters in five others."""
    y = rng.integers(2, size=n)
    X = rng.standard_normal((n, 6))
    X[:, 0] += 2.0 * y
    X[:, 1:] += 3.0 * rng.integers(2, size=(n, 1))
    return X, y


def test_hidden_labels_tell_whether_other_samples_help(rng):
    X, y = two_views(rng, 800, distance=4.0)
    model = SharedKernelClassifier(random_state=0)
    assert clone(model).fit(X, hide(y, rng, 15)).unlabelled_weight_ == 1.0
    X, y = across_clusters(rng, 800)
    labels = hide(y, rng, 20)
    known = ~np.isnan(labels)
    model.set_params(n_components=2, covariance_type="diag")
    found = clone(model).fit(X, labels)
    assert found.unlabelled_weight_ < 1.0
    exact = clone(model).set_params(unlabelled_weight=1.0).fit(X, labels)
    assert found.score(X, y) > exact.score(X, y) + 0.2
    alone = clone(model).fit(X[known], labels[known])
    assert alone.unlabelled_weight_ is None
    nothing = clone(model).set_params(unlabelled_weight=0.0).fit(X, labels)
    assert nothing.model_.same_kernels(alone.model_)


def test_validation_samples_tell_as_well(rng):
    X, y = across_clusters(rng, 800)
    labels = hide(y, rng, 5)
    far = hide(y, np.random.default_rng(1), 100)
    validating = ~np.isnan(far)
    given = {"X_val": X[validating], "y_val": y[validating]}
    model = SharedKernelClassifier(n_components=2, covariance_type="diag", random_state=0)
    scores = {}
    for weight in ("auto", 1.0, 0.0):
        tried = clone(model).set_params(unlabelled_weight=weight)
        tried.fit(X[~validating], labels[~validating], **given)
        scores[weight] = tried.score(X[validating], y[validating])
    assert scores["auto"] > scores[1.0] + 0.1
    assert scores["auto"] > scores[0.0] - 0.05


def test_a_weight_of_two_is_the_sample_twice(rng):
    X, y = two_views(rng, 300)
    labels = hide(y, rng, 10)
    rows = np.repeat(np.arange(300), np.where(np.isnan(labels), 2, 1))
    model = SharedKernelClassifier(n_blocks=2, max_iter=10, random_state=0)
    one = clone(model).set_params(unlabelled_weight=2.0).fit(X, labels)
    other = clone(model).set_params(unlabelled_weight=1.0).fit(X[rows], labels[rows])
    for a, b in zip(one.blocks_, other.blocks_, strict=True):
        np.testing.assert_allclose(a.means, b.means, rtol=1e-9)
    np.testing.assert_allclose(one.joint_log_likelihoods_, other.joint_log_likelihoods_, rtol=1e-9)
    with pytest.raises(ValueError, match="unlabelled_weight=-1"):
        clone(model).set_params(unlabelled_weight=-1).fit(X, labels)


def test_a_marker_that_stands_for_nothing_is_said(rng):
    X, y = two_views(rng, 60)
    with pytest.warns(UserWarning, match="unlabelled=7 stands for no label"):
        SharedKernelClassifier(unlabelled=7, max_iter=2).fit(X, y)


def test_priors_follow_all_samples_unless_they_are_given(rng):
    X, y = two_views(rng, 2000, distance=4.0)
    rare = (y == 0) | (rng.random(2000) < 0.2)
    X, y = X[rare], y[rare]
    labels = hide(y, rng, 20)
    model = SharedKernelClassifier(
        unlabelled_weight=1.0,
        n_components=4,
        n_blocks=2,
        partition="sequential",
        tol=1e-6,
        random_state=0,
    )
    found = clone(model).fit(X, labels).class_prior_
    np.testing.assert_allclose(found, np.bincount(y) / len(y), atol=0.05)
    given = clone(model).set_params(priors=[0.4, 0.6]).fit(X, labels)
    np.testing.assert_array_equal(given.class_prior_, [0.4, 0.6])


def test_all_spellings_of_an_unknown_class(rng):
    X, y = two_views(rng, 300)
    hidden = rng.random(300) < 0.8
    model = SharedKernelClassifier(n_components=4, max_iter=5, random_state=0)
    names = np.array(["a", "b"])[y]
    spellings = {
        "nan": np.where(hidden, np.nan, y),
        "none": [None if h else int(v) for h, v in zip(hidden, y, strict=True)],
        "texts": np.where(hidden, None, names),
        "pandas": pd.Series(np.where(hidden, None, names)),
        "nullable": pd.Series(y).astype("Int64").mask(hidden),
        "category": pd.Series(np.where(hidden, None, names)).astype("category"),
    }
    fits = {name: clone(model).fit(X, labels) for name, labels in spellings.items()}
    marked = clone(model).set_params(unlabelled=-1).fit(X, np.where(hidden, -1, y))
    named = clone(model).set_params(unlabelled="?").fit(X, np.where(hidden, "?", names))
    for fit in (*fits.values(), marked, named):
        assert fit.model_.same_kernels(marked.model_)
        assert len(fit.classes_) == 2
    assert fits["texts"].classes_.tolist() == ["a", "b"]
    assert fits["nullable"].classes_.dtype.kind == "i"
    # By itself, -1 is a class like any other.
    plain_fit = clone(model).fit(X, np.where(y == 0, -1, 1))
    np.testing.assert_array_equal(plain_fit.classes_, [-1, 1])


def test_polars_labels(rng):
    polars = pytest.importorskip("polars")
    X, y = two_views(rng, 200)
    labels = polars.Series([None if n % 3 else int(v) for n, v in enumerate(y)])
    model = SharedKernelClassifier(n_components=4, max_iter=5, random_state=0).fit(X, labels)
    assert model.classes_.tolist() == [0, 1]


def test_labels_that_are_all_missing_are_refused(rng):
    X, _ = two_views(rng, 20)
    with pytest.raises(ValueError, match="y has no class at all"):
        SharedKernelClassifier().fit(X, np.full(20, np.nan))
    with pytest.raises(ValueError, match="X has 20 samples and y has 3"):
        SharedKernelClassifier().fit(X, [0, 1, None])


def test_weights_and_gaps_among_unlabelled_samples(rng):
    X, y = two_views(rng, 300)
    X = np.where(rng.random(X.shape) < 0.15, np.nan, X)
    labels = hide(y, rng, 10)
    counts = rng.integers(1, 4, 300)
    rows = rng.permutation(np.repeat(np.arange(300), counts))
    model = SharedKernelClassifier(n_components=6, n_blocks=2, max_iter=15, random_state=0)
    one = clone(model).fit(X, labels, counts)
    other = clone(model).fit(X[rows], labels[rows])
    for a, b in zip(one.blocks_, other.blocks_, strict=True):
        np.testing.assert_allclose(a.means, b.means, rtol=1e-9)
    trace = one.joint_log_likelihoods_
    assert np.isfinite(trace).all()


def test_many_labels_are_validated_and_refined(rng):
    X, y = two_views(rng, 4000)
    settings = {"unlabelled_weight": 1.0, "n_components": 8, "n_blocks": 2, "max_iter": 20}
    model = SharedKernelClassifier(**settings, random_state=0)
    found = model.fit(X, hide(y, rng, 600))
    assert len(found.discriminative_scores_) > 1
    few = clone(model).fit(X, hide(y, rng, 10))
    assert len(few.discriminative_scores_) == len(few.log_posteriors_) == 0


@pytest.mark.usefixtures("threaded")
def test_the_same_bits_for_all_threads_and_orders(rng):
    X, y = two_views(rng, 500)
    labels = hide(y, rng, 10)
    model = SharedKernelClassifier(n_components=6, n_blocks=2, max_iter=5, random_state=0)
    order = rng.permutation(500)
    one = clone(model).set_params(n_jobs=1).fit(X, labels)
    for other in (
        clone(model).set_params(n_jobs=3).fit(X, labels),
        clone(model).fit(X[order], labels[order]),
    ):
        assert one.model_.same_kernels(other.model_)


def test_an_ensemble_of_unlabelled_samples(rng):
    X, y = two_views(rng, 600)
    member = SharedKernelClassifier(n_components=6, n_blocks=2, max_iter=15)
    model = PartitionEnsemble(member, 3, random_state=0).fit(X, hide(y, rng, 10))
    assert model.score(X, y) > 0.85


def test_validation_data_without_a_class_validate_nothing(rng):
    X, y = two_views(rng, 400)
    hidden = np.where(np.arange(200) % 2, None, y[:200])
    model = SharedKernelClassifier(n_components=4, max_iter=5, random_state=0)
    one = clone(model).fit(X[200:], y[200:], X_val=X[:200], y_val=hidden)
    other = clone(model).fit(X[200:], y[200:], X_val=X[:200:2], y_val=y[:200:2])
    np.testing.assert_array_equal(one.validation_scores_, other.validation_scores_)
    for method in (one.bic, one.impute, one.responsibilities):
        with pytest.raises(ValueError, match="samples without a class"):
            method(X[:200], hidden)


def test_a_search_learns_from_samples_without_a_class(rng):
    X, y = two_views(rng, 700)
    labels = hide(y[:500], rng, 10)
    known = ~np.isnan(labels)
    settings = {"n_components": [4, 8], "n_blocks": 2, "time_budget": None, "random_state": 0}
    member = SharedKernelClassifier(partition="sequential")
    found = SharedKernelClassifierCV(member, **settings).fit(X[:500], labels)
    alone = SharedKernelClassifierCV(member, **settings).fit(X[:500][known], labels[known])
    assert found.best_estimator_.unlabelled_weight_ == found.best_estimator_.unlabelled_weight > 0
    assert found.score(X[500:], y[500:]) > alone.score(X[500:], y[500:])
    assert (
        found.cv_results_["split0_test_score"].shape == alone.cv_results_["rank_test_score"].shape
    )
    marked = clone(found).set_params(estimator__unlabelled=-1)
    marked.fit(X[:500], np.where(known, labels, -1).astype(int))
    assert marked.model_.same_kernels(found.model_)
    twice = clone(found).fit(np.repeat(X[:500], 2, axis=0), np.repeat(labels, 2))
    weighted = clone(found).fit(X[:500], labels, np.full(500, 2.0))
    np.testing.assert_allclose(weighted.model_.blocks[0].means, twice.model_.blocks[0].means)
    by_bic = clone(found).set_params(selection="bic").fit(X[:500], labels)
    assert np.isfinite(by_bic.cv_results_["bic"]).all()


def test_a_search_takes_folds_over_all_rows_and_weights_of_zero(rng):
    X, y = two_views(rng, 300)
    labels = hide(y, rng, 20)
    known = ~np.isnan(labels)
    search = SharedKernelClassifierCV(
        SharedKernelClassifier(max_iter=5), n_components=[4], n_blocks=2, random_state=0
    )
    halves = [(np.arange(0, 300, 2), np.arange(1, 300, 2))]
    found = clone(search).set_params(cv=halves).fit(X, labels)
    trained = clone(found.best_estimator_).fit(X[::2], labels[::2])
    judged = np.flatnonzero(known[1::2]) * 2 + 1
    alike = found.cv_results_["split0_test_score"][0]
    assert alike == pytest.approx(trained.score(X[judged], y[judged]), abs=0.15)
    # A weight of zero is absence, also of all rows without a class.
    absent = clone(search).fit(X, labels, np.where(known, 1.0, 0.0))
    alone = clone(search).fit(X[known], labels[known])
    assert absent.model_.same_kernels(alone.model_)


def test_early_stopping_with_few_labels(rng):
    X, y = two_views(rng, 200)
    model = SharedKernelClassifier(early_stopping=True, max_iter=5, validation_fraction=0.3)
    assert model.fit(X, hide(y, rng, 3)).unlabelled_weight_ is not None


def test_a_weight_that_is_given_goes_before_that_of_the_last_fit(rng):
    X, y = two_views(rng, 200)
    labels = hide(y, rng, 10)
    settings = {"n_blocks": 1, "n_components": 4, "partition": "sequential", "max_iter": 3}
    model = SharedKernelClassifier(**settings, unlabelled_weight=0.0).fit(X, labels)
    model.set_params(warm_start=True, unlabelled_weight=0.5).fit(X, labels)
    assert model.unlabelled_weight_ == 0.5
    assert model.set_params(unlabelled_weight="auto").fit(X, labels).unlabelled_weight_ == 0.5


@pytest.mark.parametrize("n_known", [10, 40])  # in the trials these are fewer, or as many
def test_as_much_as_the_labels_is_of_all_rows(rng, monkeypatch, n_known):
    monkeypatch.setattr("pskem.training._unlabelled.ENOUGH_TO_CHOOSE", 50)
    X, y = two_views(rng, 280)
    labels = hide(y, rng, n_known)
    expected = [1.0, 2 * n_known / (280 - 2 * n_known), 0.0]
    for place, weight in enumerate(expected):
        monkeypatch.setattr("pskem.training._unlabelled._best", lambda *_, place=place: place)
        model = SharedKernelClassifier(max_iter=2).fit(X, labels)
        assert model.unlabelled_weight_ == pytest.approx(weight)


def test_a_few_samples_without_a_class_do_not_keep_forms_from_being_tried(rng):
    X, y = two_views(rng, 200)
    labels = y.astype(object)
    labels[:5] = None
    few = SharedKernelClassifier(random_state=0).fit(X, labels)
    without = SharedKernelClassifier(random_state=0).fit(X[5:], labels[5:].astype(int))
    assert few.unlabelled_weight_ == 0.0
    assert len(few.trials_) > 1
    np.testing.assert_array_equal(few.predict_proba(X), without.predict_proba(X))


def test_what_is_tried_is_what_the_fit_would_be(rng, monkeypatch):
    """Though it sees fewer labels: where kernels start, the blocks, and what follows EM."""
    plans = []

    def noted(*given):
        plans.append(make_plan(*given))
        return plans[-1]

    monkeypatch.setattr("pskem.training._unlabelled.make_plan", noted)
    X, y = two_views(rng, 2400)
    model = SharedKernelClassifier(max_iter=2, n_views=1, random_state=0)
    for n_known in (8, 525):
        plans.clear()
        fitted = clone(model).fit(X, hide(y, rng, n_known))
        tried = [plan for plan in plans if plan.unlabelled.size]
        assert {type(plan.start).__name__ for plan in tried} == {"ClassKMeans"}
        assert {plan.refinement.choose for plan in plans} == {n_known > 500}
        assert {len(plan.blocks) for plan in tried} == {len(fitted.blocks_)}


@pytest.mark.usefixtures("threaded")
def test_the_choice_does_not_depend_on_order_threads_or_how_rows_repeat(rng):
    X, y = across_clusters(rng, 200)
    labels = hide(y, rng, 12)
    counts = rng.integers(1, 4, 200)
    rows = rng.permutation(np.repeat(np.arange(200), counts))
    model = SharedKernelClassifier(max_iter=10, random_state=0)
    one = clone(model).set_params(n_jobs=1).fit(X, labels, counts)
    other = clone(model).set_params(n_jobs=2).fit(X[rows], labels[rows])
    assert one.unlabelled_weight_ == pytest.approx(other.unlabelled_weight_, rel=1e-12)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-7)


def test_scores_leave_samples_without_a_class_out(rng):
    X, y = two_views(rng, 200)
    labels = hide(y, rng, 10)
    known = ~np.isnan(labels)
    model = SharedKernelClassifier(max_iter=5, random_state=0).fit(X, labels)
    right = model.score(X[known], y[known])
    assert model.score(X, labels) == right
    assert model.score(X, np.where(known, labels, None)) == right
    marked = clone(model).set_params(unlabelled=-1).fit(X, np.where(known, labels, -1))
    assert marked.score(X, np.where(known, y, -1)) == right
    weights = rng.random(200)
    weighted = model.score(X[known], y[known], weights[known])
    assert model.score(X, labels, weights) == weighted
    with pytest.raises(ValueError, match="no class at all"):
        model.score(X, np.full(200, np.nan))


def test_callbacks_see_no_invented_labels(rng, monkeypatch):
    seen = []
    monkeypatch.setattr(
        "pskem.training._observers.FitTask",
        lambda estimator, passes, X, y: seen.append(y) or FitTask(estimator, passes, X, y),
    )
    X, y = two_views(rng, 60)
    SharedKernelClassifier(unlabelled_weight=1.0, max_iter=2, tol=0).fit(X, hide(y, rng, 5))
    assert sum(label is None for label in seen[0]) == 50
