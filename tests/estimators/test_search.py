"""The search for settings: against scikit-learn's cross-validation, and on planted data."""

import time
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from threadpoolctl import threadpool_limits

from pskem import SharedKernelClassifier, SharedKernelClassifierCV, Shrinkage
from pskem.estimators._selection import (
    AUTO,
    Candidate,
    Fold,
    Trial,
    in_time,
    make_candidates,
    search,
    tries_several,
)
from pskem.preprocessing import IndependentComponents

SMALL = {
    "n_components": [3, 6],
    "n_blocks": [1, 2],
    "shrinkage": [5.0],
    "time_budget": None,
    "n_jobs": 1,
}


@pytest.fixture(autouse=True)
def _one_thread():
    """Matrices are tiny here, and threads of BLAS would only wait for one another."""
    with threadpool_limits(1, "blas"):
        yield


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        SharedKernelClassifierCV(
            SharedKernelClassifier(max_iter=10, discriminative_iter=2),
            shrinkage=["auto"],
            time_budget=0.0,
            cv=2,
            n_jobs=1,
        ),
    ]
)
def test_estimator_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def iris():
    return load_iris(return_X_y=True)


@pytest.fixture(scope="module")
def searched(iris):
    base = SharedKernelClassifier(random_state=3, max_iter=10, tol=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=1)
    return SharedKernelClassifierCV(base, cv=folds, random_state=0, **SMALL).fit(*iris)


# ---------------------------------------------------------------------------------- candidates


def test_the_first_candidate_is_the_classifiers_own_choice():
    counts = np.array([600, 900, 300])
    first, *others = make_candidates(counts, 5)
    # 30 m samples for a kernel, m + 1 pseudo-samples, one block of at most 100 features.
    assert first == Candidate(4 + 6 + 2, 1, "full", 6.0)
    assert first not in others


def test_candidates_are_a_grid_of_what_suits():
    counts = np.array([100, 100])
    candidates = make_candidates(counts, 40, covariance_type=["full", "diag"])
    assert len(set(candidates)) == len(candidates)
    assert {c.n_blocks for c in candidates} == {1, 2, 3}  # at most 100, 32 and 16 features
    assert {c.covariance_type for c in candidates} == {"full", "diag"}
    # 1, 2, 4 and 8 for every class; 16 would leave fewer than 10 samples to a kernel.
    assert {c.n_components for c in candidates} == {2, 4, 8, 16}
    for c in candidates:
        m = -(-40 // c.n_blocks)
        assert any(c.shrinkage == pytest.approx(f * (m + 1)) for f in (1.0, 5.0, 0.2))
    assert len(candidates) == 3 * 2 * 4 * 3


def test_given_values_are_tried_as_given():
    candidates = make_candidates(np.array([50, 50]), 6, [7], [2, 3], ["tied"], [0.0, 2.0])
    expected = {Candidate(7, R, "tied", s) for R in (2, 3) for s in (0.0, 2.0)}
    assert set(candidates) == expected


# -------------------------------------------------------------------------------------- search


def test_the_best_comes_first_and_ties_go_to_the_better_probabilities():
    candidates = [Candidate(K, 1, "full", 0.0) for K in (1, 2, 3, 4)]
    losses = {1: 0.5, 2: 0.9, 3: 0.1, 4: 0.3}
    accuracies = {1: 0.8, 2: 0.9, 3: 0.7, 4: 0.9}

    def attempt(candidate):
        K = candidate.n_components
        return Trial(candidate, np.array([accuracies[K]]), np.array([losses[K]]), np.nan, 0.0)

    trials = search(candidates, lambda c: 1.0, attempt, np.inf)
    assert [trial.candidate.n_components for trial in trials] == [4, 2, 1, 3]


def test_what_would_take_too_long_is_left_out():
    """One unit of cost takes a second, it says; ten seconds are there."""
    candidates = [Candidate(K, 1, "full", 0.0) for K in (2, 50, 3, 8)]
    seen = []

    def attempt(candidate):
        seconds = float(candidate.n_components)
        return Trial(candidate, np.array([0.5]), np.array([1.0]), np.nan, seconds)

    search(
        candidates,
        lambda c: c.n_components,
        attempt,
        time.monotonic() + 10.0,
        lambda t, i, left: seen.append((t, i, left)),
    )
    assert [trial.candidate.n_components for trial, _, _ in seen] == [2, 3, 8]
    assert [(done, left) for _, done, left in seen] == [(1, 3), (3, 1), (4, 0)]


@pytest.mark.parametrize(
    "settings", [{"selection": "bic"}, {"covariance_type": "full"}, {"shrinkage": ["auto", 1.0]}]
)
def test_without_time_one_candidate_is_tried(iris, settings):
    model = SharedKernelClassifierCV(time_budget=0.0, random_state=0, **settings)
    model.fit(*iris)
    assert len(model.cv_results_["params"]) == 1
    assert model.n_candidates_ > 1
    # It is what the classifier would take by itself: 50 samples of 4 features in each class.
    assert model.best_params_ == {
        "n_components": 3,
        "n_blocks": 1,
        "covariance_type": "full",
        "shrinkage": 5.0,
    }


# --------------------------------------------------------------------------- defaults of a fit


def test_the_defaults_of_the_classifier_are_tried_first(iris):
    X, y = iris
    base = SharedKernelClassifier(random_state=3, max_iter=10)
    folds = StratifiedKFold(3, shuffle=True, random_state=1)
    search = SharedKernelClassifierCV(base, cv=folds, time_budget=None, random_state=0, n_jobs=1)
    seen = []
    search._report = lambda trial, done, left: seen.append(trial.candidate)
    search.fit(X, y)
    assert seen[0] == AUTO
    assert AUTO not in seen[1:]
    results = search.cv_results_
    assert search.n_candidates_ == len(results["params"]) == len(seen)
    (i,) = np.flatnonzero(results["param_n_components"] == "auto")
    assert results["params"][i] == dict.fromkeys(Candidate._fields, "auto")
    # As honest as the others: each fold chooses its forms and their exponents by itself.
    np.testing.assert_array_equal(
        [results[f"split{fold}_test_score"][i] for fold in range(3)],
        cross_val_score(base, X, y, cv=folds),
    )
    losses = -cross_val_score(base, X, y, cv=folds, scoring="neg_log_loss")
    assert results["mean_log_loss"][i] == pytest.approx(losses.mean(), rel=1e-9)
    others = [K for K in results["param_n_components"] if K != "auto"]
    assert all(isinstance(K, int) for K in others)  # no texts because of one of them


def test_without_time_the_search_gives_the_default_fit(iris):
    X, y = iris
    search = SharedKernelClassifierCV(
        SharedKernelClassifier(random_state=0), time_budget=0.0, random_state=0
    ).fit(X, y)
    assert search.best_params_ == dict.fromkeys(Candidate._fields, "auto")
    assert search.best_estimator_.n_views_ > 1
    alone = SharedKernelClassifier(random_state=0).fit(X, y)
    np.testing.assert_array_equal(search.predict_proba(X), alone.predict_proba(X))
    assert "split1_test_score" in search.cv_results_
    assert "split2_test_score" not in search.cv_results_


@pytest.mark.parametrize(
    ("settings", "base"),
    [
        ({"n_components": [3]}, {}),
        ({"covariance_type": "full"}, {}),
        ({"selection": "bic"}, {}),
        ({}, {"init": "k-means++"}),
        ({}, {"shrinkage": Shrinkage(target="pooled")}),
        ({}, {"early_stopping": False}),
        ({}, {"partition": [[0, 1], [2, 3]]}),
    ],
    ids=str,
)
def test_the_defaults_are_not_tried_where_something_else_is_said(iris, settings, base):
    search = SharedKernelClassifierCV(
        SharedKernelClassifier(max_iter=3, tol=0, **base),
        cv=2,
        time_budget=0.0,
        random_state=0,
        **settings,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search.fit(*iris)
    assert "auto" not in search.cv_results_["params"][0].values()


def test_a_fit_says_whether_it_tries_several_forms(rng):
    """As the classifier itself does, by the number of samples that have a class."""
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] > 0).astype(int)
    for n, weights in [(60, None), (20, None), (18, None), (10, np.full(10, 3.0))]:
        model = SharedKernelClassifier(random_state=0, max_iter=3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X[:n], y[:n], weights)
        tried = len(model.trials_) > 1
        assert tries_several(model, np.ones(n, dtype=bool), weights) == tried
    many = np.ones(20_000, dtype=bool)
    assert not tries_several(SharedKernelClassifier(), many, None)
    assert tries_several(SharedKernelClassifier(), many[1:], None)


def test_only_the_defaults_may_run_out_of_time():
    folds = [Fold(*[np.empty(0)] * 4) for _ in range(5)]
    later, earlier = time.monotonic() + 1e6, time.monotonic() - 1.0
    single = Candidate(3, 1, "full", 5.0)
    for candidate, deadline, n in [(AUTO, later, 5), (AUTO, earlier, 2), (single, earlier, 5)]:
        assert len(list(in_time(candidate, folds, deadline))) == n


def test_a_number_of_views_is_for_the_defaults_alone(iris):
    """Other candidates give a form, of which there is one view."""
    X, y = iris
    base = SharedKernelClassifier(n_views=2, random_state=0, max_iter=5)
    first = SharedKernelClassifierCV(base, cv=2, time_budget=0.0).fit(X, y)
    assert 1 < first.best_estimator_.n_views_ <= 2
    grid = SharedKernelClassifierCV(base, cv=2, n_components=[3], time_budget=0.0).fit(X, y)
    assert grid.best_estimator_.n_views_ == 1


# ------------------------------------------------------------------------------------- results


def test_scores_are_those_of_scikit_learn(searched, iris):
    X, y = iris
    results = searched.cv_results_
    for i, params in enumerate(results["params"]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = clone(searched.estimator).set_params(**params)
            accuracies = cross_val_score(model, X, y, cv=searched.cv)
            losses = -cross_val_score(model, X, y, cv=searched.cv, scoring="neg_log_loss")
        ours = [results[f"split{fold}_test_score"][i] for fold in range(3)]
        np.testing.assert_allclose(ours, accuracies)
        assert results["mean_test_score"][i] == pytest.approx(accuracies.mean())
        assert results["std_test_score"][i] == pytest.approx(accuracies.std())
        assert results["mean_log_loss"][i] == pytest.approx(losses.mean(), rel=1e-9)


def test_results_have_scikit_learns_form(searched):
    results = searched.cv_results_
    assert searched.n_candidates_ == 4
    assert {len(column) for column in results.values()} == {4}
    for name in ("n_components", "n_blocks", "covariance_type", "shrinkage"):
        column = results[f"param_{name}"]
        assert list(column) == [params[name] for params in results["params"]]
    np.testing.assert_array_equal(results["rank_test_score"], [1, 2, 3, 4])
    assert np.isnan(results["bic"]).all()
    assert (results["seconds"] > 0.0).all()
    keys = list(zip(-results["mean_test_score"], results["mean_log_loss"], strict=True))
    assert keys == sorted(keys)
    assert len(pd.DataFrame(results)) == 4


def test_the_best_wins_and_is_fitted_to_all_samples(searched, iris):
    X, y = iris
    best = int(np.argmax(searched.cv_results_["mean_test_score"]))
    assert searched.best_score_ == searched.cv_results_["mean_test_score"].max()
    assert searched.cv_results_["mean_test_score"][best] == searched.best_score_
    assert searched.best_params_ == searched.cv_results_["params"][0]
    alone = clone(searched.estimator).set_params(**searched.best_params_).fit(X, y)
    np.testing.assert_array_equal(alone.predict_proba(X), searched.predict_proba(X))


def test_predictions_are_the_best_estimators(searched, iris):
    X, y = iris
    best = searched.best_estimator_
    for method in (
        "predict",
        "predict_proba",
        "predict_log_proba",
        "predict_joint_log_proba",
        "decision_function",
        "class_log_likelihood",
        "score_samples",
    ):
        np.testing.assert_array_equal(getattr(searched, method)(X), getattr(best, method)(X))
    assert searched.score(X, y) == best.score(X, y)
    assert searched.bic(X, y) == best.bic(X, y)
    np.testing.assert_array_equal(searched.classes_, best.classes_)


def test_components_of_an_unmixing_are_passed_on(iris):
    X, y = iris
    base = SharedKernelClassifier(partition="dependence", max_iter=10, tol=0)
    search = SharedKernelClassifierCV(base, random_state=0, cv=2, **SMALL)
    model = make_pipeline(IndependentComponents(random_state=0), search).fit(X, y)
    best, components = search.best_estimator_, model[0].transform(X)
    np.testing.assert_array_equal(model.predict_proba(X), best.predict_proba(components))
    np.testing.assert_array_equal(model.score_samples(X), best.score_samples(components))


def test_the_estimator_given_is_left_alone(iris):
    base = SharedKernelClassifier(n_components=17, max_iter=10, tol=0)
    before = base.get_params()
    model = SharedKernelClassifierCV(base, cv=2, random_state=0, **SMALL).fit(*iris)
    assert base.get_params() == before
    assert not hasattr(base, "blocks_")
    assert model.best_estimator_.max_iter == 10


def test_the_target_of_the_shrinkage_stays(iris):
    """Amounts are tried; what covariances are shrunk to is the estimator's own choice."""
    X, y = iris
    base = SharedKernelClassifier(
        shrinkage=Shrinkage(99.0, "pooled"), max_iter=10, tol=0, random_state=3
    )
    search = SharedKernelClassifierCV(base, cv=2, random_state=0, **SMALL).fit(X, y)
    best = search.best_estimator_
    assert best.shrinkage == Shrinkage(5.0, "pooled")
    assert search.best_params_["shrinkage"] == 5.0
    other = clone(best).set_params(shrinkage=5.0).fit(X, y)
    assert not np.allclose(best.blocks_[0].covariances, other.blocks_[0].covariances)


def test_the_same_seed_gives_the_same_search(iris):
    X, y = iris
    base = SharedKernelClassifier(max_iter=10, tol=0)
    one, two = (
        SharedKernelClassifierCV(base, cv=2, random_state=5, **SMALL).fit(X, y) for _ in range(2)
    )
    assert one.best_params_ == two.best_params_
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_at_most_so_many_samples_are_searched(rng):
    y = np.repeat([0, 1], [900, 300])
    X = rng.standard_normal((1200, 2)) + 4.0 * y[:, None]
    sizes = []

    class Watched(SharedKernelClassifier):
        def fit(self, X, y, **settings):
            sizes.append(len(y))
            return super().fit(X, y, **settings)

    model = SharedKernelClassifierCV(
        Watched(max_iter=5, tol=0), n_components=[2], shrinkage=[1.0], cv=2, max_samples=200
    )
    model.fit(X, y)
    assert sizes == [100, 100, 1200]  # two folds of 200 samples, then all


def test_columns_of_a_frame(iris):
    frame = load_iris(as_frame=True).data
    model = SharedKernelClassifierCV(
        SharedKernelClassifier(max_iter=5, tol=0), cv=2, random_state=0, **SMALL
    ).fit(frame, iris[1])
    np.testing.assert_array_equal(model.feature_names_in_, frame.columns)
    np.testing.assert_array_equal(model.best_estimator_.feature_names_in_, frame.columns)
    model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


# ----------------------------------------------------------------------------------------- BIC


def planted(rng, n=600):
    """Two classes of two and three groups, well apart."""
    y = np.repeat([0, 1], n)
    centres = np.array([[0, 0], [30, 0], [0, 30], [30, 30], [60, 0]], dtype=float)
    group = np.where(y == 0, rng.integers(2, size=2 * n), 2 + rng.integers(3, size=2 * n))
    return centres[group] + rng.standard_normal((2 * n, 2)), y


def test_the_information_criterion_finds_the_planted_number(rng):
    X, y = planted(rng)
    model = SharedKernelClassifierCV(
        SharedKernelClassifier(init="kmeans", n_init=5),
        n_components=[2, 3, 4, 5, 6, 8],
        n_blocks=[1],
        shrinkage=[0.1],
        selection="bic",
        time_budget=None,
        random_state=0,
    ).fit(X, y)
    assert model.best_params_["n_components"] == 5
    results = model.cv_results_
    np.testing.assert_array_equal(results["mean_test_score"], -results["bic"])
    assert "split0_test_score" not in results
    for params, bic in zip(results["params"], results["bic"], strict=True):
        alone = clone(model.estimator).set_params(
            **params, discriminative_iter=0, block_weights=None, random_state=model_seed(model)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            alone.fit(X, y)
        own = alone.class_log_likelihood(X)[np.arange(len(y)), y].sum()
        K = params["n_components"]
        free = 2 * (K - 1) + 2 * K + 3 * K  # weights of two classes, means, covariances
        assert bic == pytest.approx(free * np.log(len(y)) - 2.0 * own, rel=1e-9)


def model_seed(model):
    """The classifier draws its seed from the search's."""
    return model.best_estimator_.random_state


# -------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"selection": "aic"}, "aic"),
        ({"time_budget": -1.0}, r"time_budget=-1\.0"),
        ({"max_samples": 1}, "max_samples=1"),
        ({"n_components": [3, 0]}, "n_components=0"),
        ({"n_components": []}, r"n_components=\[\] is empty"),
        ({"n_components": "many"}, "n_components='many'"),
        ({"n_blocks": [1.5]}, r"n_blocks=1\.5"),
        ({"n_blocks": [9]}, "9"),
        ({"covariance_type": "round"}, "covariance_type='round'"),
        ({"covariance_type": ["full", "round"]}, "covariance_type='round'"),
        ({"covariance_type": ["auto"]}, "covariance_type='auto'"),
        ({"shrinkage": [-2.0]}, r"shrinkage=-2\.0"),
        ({"estimator": "svm"}, "estimator='svm'"),
        ({"cv": 1}, "cv=1"),
        ({"n_jobs": 0}, "n_jobs=0"),
        ({"verbose": -1}, "verbose=-1"),
        ({"random_state": "x"}, "random_state='x'"),
    ],
    ids=str,
)
def test_errors_name_what_was_given(iris, settings, message):
    model = SharedKernelClassifierCV(**settings)
    with pytest.raises(ValueError, match=message):
        model.fit(*iris)
    assert not hasattr(model, "n_features_in_")


def test_a_class_with_one_sample_is_named_as_the_cause(iris):
    X, y = iris
    y = np.append(y[:-1], 3)
    with pytest.raises(ValueError, match="two samples of every class at least"):
        SharedKernelClassifierCV(time_budget=0.0).fit(X, y)


def test_small_classes_make_fewer_folds(iris):
    X, y = iris
    keep = np.r_[0:50, 50:53, 100:150]
    model = SharedKernelClassifierCV(
        SharedKernelClassifier(max_iter=5, tol=0),
        shrinkage=["auto"],
        time_budget=0.0,
        cv=5,
        random_state=0,
    ).fit(X[keep], y[keep])
    assert sum(name.startswith("split") for name in model.cv_results_) == 3


def test_a_fraction_holds_out_one_part(iris):
    X, y = iris
    X = X + 1e-3 * np.arange(150)[:, None]  # no two rows are the same
    base = SharedKernelClassifier(max_iter=5, tol=0)
    model = SharedKernelClassifierCV(base, cv=0.2, random_state=0, **SMALL).fit(X, y)
    scores = model.cv_results_["split0_test_score"]
    np.testing.assert_array_equal(scores, model.cv_results_["mean_test_score"])
    np.testing.assert_allclose(scores * 30, np.round(scores * 30), atol=1e-9)  # of 30 samples
    assert "split1_test_score" not in model.cv_results_


def test_folds_without_some_class_score_as_in_scikit_learn(iris):
    """Iris is sorted: each of the three training parts lacks a class, and all answers are wrong."""
    base = SharedKernelClassifier(max_iter=5, tol=0, random_state=0)
    model = SharedKernelClassifierCV(
        base, n_components=[3], n_blocks=[1], shrinkage=[5.0], cv=KFold(3), n_jobs=1
    ).fit(*iris)
    np.testing.assert_array_equal(model.cv_results_["mean_test_score"], 0.0)
    assert model.cv_results_["mean_log_loss"][0] > 10.0


def test_a_partition_by_column_names(iris):
    frame = load_iris(as_frame=True).data
    names = list(frame.columns)
    base = SharedKernelClassifier(max_iter=5, tol=0, partition=[names[:2], names[2:]])
    model = SharedKernelClassifierCV(base, cv=2, random_state=0, **SMALL).fit(frame, iris[1])
    assert [block.features.tolist() for block in model.blocks_] == [[0, 1], [2, 3]]


def test_verbose_prints_a_line_for_every_trial(iris, capsys):
    SharedKernelClassifierCV(
        SharedKernelClassifier(max_iter=5, tol=0), cv=2, verbose=1, random_state=0, **SMALL
    ).fit(*iris)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all("n_components=" in line and "left" in line for line in lines)


def test_bic_does_not_choose_the_shrinkage(iris):
    """Its penalty does not know of it, and would always take the least."""
    model = SharedKernelClassifierCV(selection="bic", n_components=[3], random_state=0).fit(*iris)
    assert set(model.cv_results_["param_shrinkage"]) == {5.0}
    some = SharedKernelClassifierCV(
        selection="bic", n_components=[3], shrinkage=["auto", 2.0], random_state=0
    ).fit(*iris)
    assert set(some.cv_results_["param_shrinkage"]) == {5.0, 2.0}


def test_rare_classes_take_part_in_a_search_on_a_part_of_the_samples(rng):
    y = np.repeat([0, 1, 2], [500, 500, 3])
    X = rng.standard_normal((1003, 2)) + 3.0 * y[:, None]
    model = SharedKernelClassifierCV(
        n_components=[3], n_blocks=[1], shrinkage=[3.0], max_samples=300, cv=3, random_state=0
    ).fit(X, y)
    assert len(model.classes_) == 3


def test_no_more_blocks_than_independent_components(rng):
    X = rng.uniform(-1.0, 1.0, (120, 3))
    X = np.hstack([X, X])
    y = (X[:, 0] > 0).astype(int)
    base = SharedKernelClassifier(partition="dependence", max_iter=3, tol=0)
    search = SharedKernelClassifierCV(base, n_components=[2], cv=2, random_state=0)
    model = make_pipeline(IndependentComponents(random_state=0), search).fit(X, y)
    features = np.concatenate([block.features for block in search.blocks_])
    np.testing.assert_array_equal(np.sort(features), np.arange(3))
    with pytest.raises(ValueError, match=r"n_blocks=4 is more than the 3 feature\(s\)"):
        model.set_params(sharedkernelclassifiercv__n_blocks=[4]).fit(X, y)
