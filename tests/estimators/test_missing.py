"""Gaps in X: exact in training and in prediction, for every structure and every estimator."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import get_tags

import pskem
from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.blocks import within_class_dependence
from pskem.starts import STARTS
from reference import COVARIANCE_TYPES, plain, random_covariances

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def planted(rng, n, m=6, L=3, distance=2.0):
    """Samples of L Gaussian classes with correlated features, and the truth."""
    covariances = random_covariances(rng, L, m, 0.05, 2.0)
    means = distance * rng.standard_normal((L, m)) / np.sqrt(m)
    y = rng.integers(L, size=n)
    roots = np.linalg.cholesky(covariances)
    X = means[y] + np.einsum("nab,nb->na", roots[y], rng.standard_normal((n, m)))
    return X, y, means, covariances


def with_gaps(rng, X, share=0.3):
    return np.where(rng.random(X.shape) < share, np.nan, X)


@pytest.fixture
def gapped(labelled, rng):
    X, y = labelled
    return with_gaps(rng, X, 0.2), y


# ------------------------------------------------------------------------------------ training


def test_planted_parameters_are_recovered(rng):
    X, y, means, covariances = planted(rng, 20_000)
    model = plain(n_components=3, init="class-kmeans", tol=1e-7).fit(with_gaps(rng, X), y)
    (block,) = model.blocks_
    np.testing.assert_allclose(block.means, means, atol=0.05)
    np.testing.assert_allclose(block.covariances, covariances, atol=0.08)


def test_better_than_filling_gaps_in(rng):
    """30 % of cells missing, in training and in prediction: mean accuracy over four tables."""
    model = SharedKernelClassifier(n_components=3, random_state=0)
    others = {
        "median": make_pipeline(SimpleImputer(strategy="median"), clone(model)),
        "neighbours": make_pipeline(KNNImputer(), clone(model)),
        "iterative": make_pipeline(IterativeImputer(random_state=0), clone(model)),
        "boosting": HistGradientBoostingClassifier(max_iter=50, random_state=0),
    }
    accuracies = {name: [] for name in ("gaps", *others)}
    for _ in range(4):
        X, y, _, _ = planted(rng, 3000)
        X = with_gaps(rng, X)
        for name, classifier in {"gaps": model, **others}.items():
            fitted = clone(classifier).fit(X[:1000], y[:1000])
            accuracies[name].append(fitted.score(X[1000:], y[1000:]))
    ours = np.mean(accuracies.pop("gaps"))
    assert all(ours > np.mean(theirs) + 0.01 for theirs in accuracies.values())


def observed_log_likelihood(X, mean, covariance):
    total = 0.0
    for x in X:
        seen = ~np.isnan(x)
        if seen.any():
            part = covariance[np.ix_(seen, seen)]
            total += multivariate_normal(mean[seen], part).logpdf(x[seen])
    return total


def test_em_ends_where_a_numerical_maximisation_does(rng):
    X = with_gaps(rng, rng.standard_normal((40, 2)) @ [[1.0, 0.8], [0.0, 0.5]] + [1.0, -2.0])
    model = SharedKernelDensity(n_components=1, tol=0, max_iter=400).fit(X)

    def loss(p):
        root = np.array([[np.exp(p[2]), 0.0], [p[3], np.exp(p[4])]])
        return -observed_log_likelihood(X, p[:2], root @ root.T)

    found = minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-7})
    root = np.array([[np.exp(found.x[2]), 0.0], [found.x[3], np.exp(found.x[4])]])
    np.testing.assert_allclose(model.means_[0], found.x[:2], atol=1e-5)
    np.testing.assert_allclose(model.covariances_[0], root @ root.T, atol=1e-5)
    ours = observed_log_likelihood(X, model.means_[0], model.covariances_[0])
    assert model.log_likelihoods_[-1] == pytest.approx(ours, rel=1e-10)
    assert model.score_samples(X).sum() == pytest.approx(ours, rel=1e-10)


@types
@pytest.mark.parametrize("init", [*STARTS])
def test_likelihoods_never_fall(gapped, init, covariance_type):
    model = plain(
        n_components=6,
        n_blocks=2,
        init=STARTS[init],
        covariance_type=covariance_type,
        tol=0,
        max_iter=15,
        random_state=0,
    ).fit(*gapped)
    trace = model.log_likelihoods_
    assert np.isfinite(trace).all()
    assert (np.diff(trace, axis=0) > -1e-8 * np.abs(trace[:-1])).all()
    own = model.block_log_likelihood(gapped[0])[np.arange(600), :, gapped[1]]
    assert (own.sum(axis=0) >= trace[-1] - 1e-8 * np.abs(trace[-1])).all()


@types
def test_everything_after_em_copes(rng, covariance_type):
    X, y, _, _ = planted(rng, 1500)
    model = SharedKernelClassifier(
        n_blocks=2,
        partition="dependence",
        covariance_type=covariance_type,
        early_stopping=True,
        random_state=0,
    ).fit(with_gaps(rng, X, 0.1), y)
    assert (np.diff(model.log_posteriors_) > 0.0).all()
    assert len(model.discriminative_scores_) > 1
    assert (model.block_weights_ != 1.0).any()


@pytest.mark.usefixtures("threaded")
@types
def test_the_same_bits_in_whatever_order_and_for_all_threads(gapped, rng, covariance_type):
    X, y = gapped
    model = SharedKernelClassifier(
        n_components=6, n_blocks=2, covariance_type=covariance_type, max_iter=5, random_state=0
    )
    shuffled = rng.permutation(len(y))
    fits = [
        clone(model).set_params(n_jobs=1).fit(X, y),
        clone(model).set_params(n_jobs=4).fit(X, y),
        clone(model).fit(X[shuffled], y[shuffled]),
    ]
    for other in fits[1:]:
        assert fits[0].model_.same_kernels(other.model_)


def test_weights_and_gaps(gapped, rng):
    X, y = gapped
    counts = rng.integers(4, size=len(y))
    rows = np.repeat(np.arange(len(y)), counts)
    model = SharedKernelClassifier(n_components=6, n_blocks=2, random_state=0)
    one, other = clone(model).fit(X, y, counts), clone(model).fit(X[rows], y[rows])
    assert one.model_.same_kernels(other.model_)


@types
def test_without_gaps_in_a_block_nothing_changes(labelled, covariance_type):
    X, y = labelled
    settings = {"n_components": 3, "init": "class-kmeans", "partition": [[0, 1], [2, 3, 4]]}
    model = plain(covariance_type=covariance_type, **settings)
    holes = X.copy()
    holes[::7, 3] = np.nan
    one, other = clone(model).fit(X, y), clone(model).fit(holes, y)
    np.testing.assert_allclose(one.blocks_[0].means, other.blocks_[0].means, rtol=1e-6)
    assert not np.allclose(one.blocks_[1].means, other.blocks_[1].means, rtol=1e-6)


@types
def test_columns_and_rows_without_any_value(labelled, covariance_type):
    X, y = labelled
    X = np.column_stack([X, np.full(len(X), np.nan)])
    X[:3] = np.nan
    settings = {"n_components": 6, "covariance_type": covariance_type, "random_state": 0}
    model = SharedKernelClassifier(**settings, early_stopping=False).fit(X, y)
    posterior = model.predict_proba(X)
    np.testing.assert_allclose(posterior[:3], np.tile(model.class_prior_, (3, 1)), rtol=1e-9)
    assert np.isfinite(model.score_samples(X)).all()
    np.testing.assert_array_equal(model.score_samples(X)[:3], 0.0)  # nothing seen, nothing said
    assert model.score(X[3:], y[3:]) > 0.7
    density = SharedKernelDensity(**{**settings, "n_components": 2}).fit(X)
    assert np.isfinite(density.score_samples(X)).all()


@types
def test_a_column_that_nobody_has_seen_changes_nothing(labelled, covariance_type):
    X, y = labelled
    more = np.insert(X, 2, np.nan, axis=1)
    settings = {"covariance_type": covariance_type, "max_iter": 200, "tol": 1e-12}
    model = plain(n_components=3, init="class-kmeans", **settings)  # where chance decides nothing
    one, other = clone(model).fit(X, y), clone(model).fit(more, y)
    np.testing.assert_allclose(other.score_samples(more), one.score_samples(X), rtol=1e-6)
    later = np.insert(X, 2, 1e6, axis=1)  # which it now has, and means nothing
    np.testing.assert_array_equal(other.predict_proba(later), other.predict_proba(more))
    np.testing.assert_array_equal(other.impute(later), later)
    assert np.isnan(other.impute(more)[:, 2]).all()
    assert np.isnan(other.blocks_[0].means[:, 2]).all()
    # It begins to count once a training sees it.
    other.set_params(warm_start=True, max_iter=3).fit(np.insert(X, 2, X[:, 0], axis=1), y)
    assert np.isfinite(other.blocks_[0].means).all()


def test_a_block_that_nobody_has_seen(labelled, tmp_path):
    X, y = labelled
    X = X.copy()
    X[:, 2] = np.nan
    n_blocks = X.shape[1]
    for covariance_type in COVARIANCE_TYPES:
        settings = {"covariance_type": covariance_type, "n_components": 3, "n_blocks": n_blocks}
        model = SharedKernelClassifier(**settings, random_state=0).fit(X, y)
        pskem.save(model, tmp_path / "m.pskem", overwrite=True)
        again = pskem.load(tmp_path / "m.pskem")
        later = np.nan_to_num(X)
        np.testing.assert_array_equal(again.predict_proba(later), model.predict_proba(X))
        drawn, _ = again.sample(5, random_state=0)
        assert np.isnan(drawn[:, 2]).all()
        assert np.isfinite(np.delete(drawn, 2, axis=1)).all()
    seen = SharedKernelClassifier(n_components=3).fit(np.delete(X, 2, axis=1), y)
    unseen = SharedKernelClassifier(n_components=3).fit(X, y)
    assert unseen.model_.n_parameters == seen.model_.n_parameters


def test_single_precision(gapped):
    X, y = gapped
    model = SharedKernelClassifier(n_components=6, random_state=0, max_iter=20)
    one, other = clone(model).fit(X, y), clone(model).fit(X.astype(np.float32), y)
    assert other.score(X.astype(np.float32), y) == pytest.approx(one.score(X, y), abs=0.02)


# ---------------------------------------------------------------------------------- prediction


@types
def test_gaps_that_only_prediction_sees_are_marginals(fitted, labelled, rng, covariance_type):
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=5, n_blocks=2, covariance_type=covariance_type, random_state=0
    ).fit(X, y)
    holes = with_gaps(rng, X)
    posterior, density = model.predict_log_proba(holes), model.score_samples(holes)
    for n in range(40):
        seen = np.flatnonzero(~np.isnan(holes[n]))
        if not len(seen):
            continue
        part = model.model_.marginal(seen)
        np.testing.assert_allclose(part.log_posterior(X[n : n + 1])[0], posterior[n], atol=1e-8)
        np.testing.assert_allclose(part.log_density(X[n : n + 1])[0], density[n], atol=1e-8)


def test_a_mixture_with_gaps_against_scipy(fitted, labelled, rng):
    X, y = labelled
    holes = with_gaps(rng, X)[:50]
    (block,) = plain(n_components=4, random_state=0).fit(X, y).blocks_
    model = plain(n_components=4, random_state=0).fit(X, y)
    for x, found in zip(holes, model.class_log_likelihood(holes), strict=True):
        seen = ~np.isnan(x)
        terms = [
            multivariate_normal(mean[seen], P[np.ix_(seen, seen)]).logpdf(x[seen])
            if seen.any()
            else 0.0
            for mean, P in zip(block.means, block.covariances, strict=True)
        ]
        with np.errstate(divide="ignore"):
            expected = logsumexp(np.array(terms) + np.log(block.weights), axis=1)
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_data_frames_with_their_own_kind_of_gaps(gapped):
    X, y = gapped
    names = list("abcde")
    model = SharedKernelClassifier(n_components=4, random_state=0)
    expected = clone(model).fit(X, y).predict_proba(X)
    frame = pd.DataFrame(X, columns=names)
    nullable = frame.astype("Float64")
    objects = frame.astype(object).where(frame.notna(), None)
    nulls = frame.astype(object).where(frame.notna(), pd.NA)
    for table in (frame, nullable, objects, nulls):
        found = clone(model).fit(table, y).predict_proba(table)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    integers = pd.DataFrame({"a": pd.array([1, None, 3, 4] * 10, dtype="Int64"), "b": range(40)})
    clone(model).fit(integers, np.arange(40) % 2).predict(integers)


def test_polars_nulls(gapped):
    polars = pytest.importorskip("polars")
    X, y = gapped
    names = list("abcde")
    model = SharedKernelClassifier(n_components=4, random_state=0)
    expected = clone(model).fit(X, y).predict_proba(X)
    rows = [[None if np.isnan(value) else value for value in row] for row in X.tolist()]
    table = polars.DataFrame(rows, schema=names, orient="row")
    assert table.null_count().to_numpy().sum() == np.isnan(X).sum()
    found = clone(model).fit(table, y).predict_proba(table)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


# ---------------------------------------------------------------------------------- imputation


@types
def test_imputed_means_are_conditional_means(gapped, covariance_type):
    X, y = gapped
    settings = {"n_components": 4, "covariance_type": covariance_type, "random_state": 0}
    model = plain(**settings).fit(X, y)
    (block,) = model.blocks_
    filled, own = model.impute(X), model.impute(X, y)
    assert not np.isnan(filled).any()
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    dense = block.dense_covariances
    for n in range(60):
        seen = ~np.isnan(X[n])
        if seen.all():
            continue
        terms, means = [], []
        for mean, P in zip(block.means, dense, strict=True):
            inner, across = P[np.ix_(seen, seen)], P[np.ix_(~seen, seen)]
            density = multivariate_normal(mean[seen], inner) if seen.any() else None
            terms.append(0.0 if density is None else density.logpdf(X[n, seen]))
            means.append(mean[~seen] + across @ np.linalg.solve(inner, X[n, seen] - mean[seen]))
        with np.errstate(divide="ignore"):
            joint = np.array(terms) + np.log(block.weights)  # (L, K)
        together = softmax((joint + np.log(model.class_prior_)[:, None]).ravel())
        shares = together.reshape(joint.shape).sum(axis=0)
        np.testing.assert_allclose(filled[n, ~seen], shares @ means, rtol=1e-7)
        np.testing.assert_allclose(own[n, ~seen], softmax(joint[y[n]]) @ means, rtol=1e-7)


def test_draws_vary_as_the_model_does(rng):
    X, y, _, _ = planted(rng, 2000, m=3)
    model = plain(n_components=3, init="class-kmeans", n_blocks=2).fit(X, y)
    asked = np.tile([0.5, np.nan, np.nan], (40_000, 1))
    drawn = model.impute(asked, method="draw", random_state=0)
    again = model.impute(asked, method="draw", random_state=0)
    np.testing.assert_array_equal(drawn, again)
    assert np.ptp(drawn[:, 0]) == 0.0
    mean = model.impute(asked[:1])[0]
    np.testing.assert_allclose(drawn.mean(axis=0), mean, atol=0.03)
    # Against samples of the model that come close to what was seen.
    samples, _ = model.sample(400_000, random_state=1)
    near = samples[np.abs(samples[:, 0] - 0.5) < 0.05]
    np.testing.assert_allclose(np.cov(drawn[:, 1:].T), np.cov(near[:, 1:].T), atol=0.1)
    classes = np.zeros(len(asked), dtype=int)
    own = model.impute(asked, classes, method="draw", random_state=0)
    np.testing.assert_allclose(own.mean(axis=0), model.impute(asked[:1], [0])[0], atol=0.03)


def test_columns_of_no_block_keep_their_gaps(gapped):
    X, y = gapped
    model = plain(n_components=4, partition=[[0, 1], [3]], random_state=0).fit(X, y)
    left = np.isnan(model.impute(X)).sum(axis=0)
    np.testing.assert_array_equal(left > 0, [False, False, True, False, True])
    with pytest.raises(ValueError, match="method='median'"):
        model.impute(X, method="median")


def test_a_density_imputes(gapped):
    X, _ = gapped
    model = SharedKernelDensity(n_components=3, random_state=0).fit(X)
    assert not np.isnan(model.impute(X)).any()


# ------------------------------------------------------------------------ the other estimators


def test_all_estimators_take_gaps(gapped):
    X, y = gapped
    base = SharedKernelClassifier(max_iter=10, tol=0)
    search = SharedKernelClassifierCV(base, n_components=[3], shrinkage=[2.0], cv=3, random_state=0)
    ensemble = PartitionEnsemble(SharedKernelClassifier(n_blocks=2), 2, random_state=0)
    for model in (base, search, ensemble, SharedKernelDensity()):
        assert get_tags(model).input_tags.allow_nan
    for model in (search, ensemble):
        assert np.isfinite(model.fit(X, y).predict_log_proba(X)).all()
        assert model.score(X, y) > 0.7
    assert cross_val_score(base, X, y, cv=3).mean() > 0.7


def test_dependence_of_pairs_that_have_both(rng):
    X, y, _, _ = planted(rng, 4000)
    whole = within_class_dependence(X, y)
    holes = with_gaps(rng, X)
    found = within_class_dependence(holes, y)
    np.testing.assert_allclose(found, whole, atol=0.05)
    both = ~np.isnan(holes[:, 0]) & ~np.isnan(holes[:, 1])
    pair = within_class_dependence(X[both][:, :2], y[both])[0, 1]
    assert found[0, 1] == pytest.approx(pair, abs=0.02)
    assert np.isfinite(within_class_dependence(np.full((60, 2), np.nan), y[:60])).all()
