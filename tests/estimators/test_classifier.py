"""The classifier's parameters, attributes and methods."""

import dataclasses
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy.special import logsumexp
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import get_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pskem import Block, Model, SharedKernelClassifier
from pskem.starts import ClassKMeans, Start
from reference import plain, reference_log_densities, reference_log_likelihood


def test_fitted_attributes(fitted, labelled):
    X, y = labelled
    P = fitted.n_iter_
    np.testing.assert_array_equal(fitted.classes_, [0, 1, 2])
    np.testing.assert_allclose(fitted.class_prior_, np.bincount(y) / len(y))
    assert fitted.n_features_in_ == 5
    assert fitted.log_likelihoods_.shape == (P, 2)
    assert fitted.validation_scores_.shape == (0,)
    assert fitted.best_iter_ == P
    assert fitted.converged_.all()
    gains = np.diff(fitted.log_likelihoods_, axis=0) / len(X)
    assert (gains[-1] < 1e-3).all()
    assert not (gains[:-1] < 1e-3).all(axis=1).any(), "it should have stopped earlier"
    assert [block.features.tolist() for block in fitted.blocks_] == [[0, 1, 2], [3, 4]]
    for block, m in zip(fitted.blocks_, (3, 2), strict=True):
        assert isinstance(block, Block)
        assert block.weights.shape == (3, 5)
        np.testing.assert_allclose(block.weights.sum(axis=1), 1.0)
        assert block.means.shape == (5, m)
        assert block.covariances.shape == (5, m, m)


VIEWS = {
    "blocks_": "blocks",
    "classes_": "classes",
    "class_prior_": "priors",
    "block_weights_": "block_weights",
    "temperature_": "temperature",
}


def test_fitted_attributes_are_views_of_the_model(labelled):
    X, y = labelled
    model = plain(n_components=3, n_blocks=2, random_state=0)
    for name in ("model_", *VIEWS):
        assert not hasattr(model, name)
    model.fit(X, y)
    assert isinstance(model.model_, Model)
    assert not VIEWS.keys() & vars(model).keys()
    for view, name in VIEWS.items():
        held = getattr(model.model_, name)
        if view == "blocks_":
            assert isinstance(model.blocks_, list)
            assert all(a is b for a, b in zip(model.blocks_, held, strict=True))
        else:
            assert getattr(model, view) is held
        with pytest.raises(AttributeError):
            setattr(model, view, held)
    # Nothing but the model decides: another one in its place speaks through every attribute.
    joint = model.block_log_likelihood(X)
    priors, weights, T = np.array([0.2, 0.3, 0.5]), np.array([0.5, 2.0]), 4.0
    model.model_ = dataclasses.replace(
        model.model_,
        classes=np.array(["a", "b", "c"]),
        priors=priors,
        block_weights=weights,
        temperature=T,
    )
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c"])
    np.testing.assert_array_equal(model.class_prior_, priors)
    np.testing.assert_array_equal(model.block_weights_, weights)
    assert model.temperature_ == T
    scores = (np.einsum("nrj,r->nj", joint, weights) + np.log(priors)) / T
    expected = scores - logsumexp(scores, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_log_proba(X), expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(model.predict(X), np.array(list("abc"))[scores.argmax(axis=1)])


def test_blocks_are_immutable(fitted):
    (block, _) = fitted.blocks_
    with pytest.raises(ValueError, match="read-only"):
        block.means[0] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        block.means = np.zeros(3)
    assert "n_features=3" in repr(block)
    assert "n_components=5" in repr(block)


def test_predictions_follow_from_the_class_log_likelihood(fitted, labelled):
    X, y = labelled
    blocks = fitted.block_log_likelihood(X)
    assert blocks.shape == (len(X), 2, 3)
    likelihood = np.zeros((len(X), 3))
    for r, block in enumerate(fitted.blocks_):
        expected = reference_log_likelihood(
            X[:, block.features], block.weights, block.means, block.covariances
        )
        np.testing.assert_allclose(blocks[:, r], expected, rtol=1e-9, atol=1e-9)
        likelihood += expected
    np.testing.assert_allclose(fitted.class_log_likelihood(X), likelihood, rtol=1e-9, atol=1e-9)
    joint = fitted.predict_joint_log_proba(X)
    np.testing.assert_allclose(joint, likelihood + np.log(np.bincount(y) / len(y)))
    evidence = logsumexp(joint, axis=1)
    np.testing.assert_allclose(fitted.score_samples(X), evidence)
    np.testing.assert_allclose(
        fitted.predict_log_proba(X), joint - evidence[:, None], rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        fitted.predict_proba(X), np.exp(joint - evidence[:, None]), atol=1e-12
    )
    np.testing.assert_array_equal(fitted.predict(X), joint.argmax(axis=1))


def reference_joint(model, X):
    """log p(c=j) + log p(x|c=j), (n, L)."""
    return np.log(model.class_prior_) + sum(
        reference_log_likelihood(X[:, b.features], b.weights, b.means, b.covariances)
        for b in model.blocks_
    )


def test_the_decision_function_of_two_classes_is_the_log_odds(labelled):
    X, y = labelled
    names = np.array(["no", "yes"])[(y == 1).astype(int)]
    model = plain(n_components=4, n_blocks=2, random_state=0).fit(X, names)
    odds = model.decision_function(X)
    assert odds.shape == (len(X),)
    joint = reference_joint(model, X)
    np.testing.assert_allclose(odds, joint[:, 1] - joint[:, 0], rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(model.predict(X), np.where(odds > 0.0, "yes", "no"))
    # Every pair of a yes and a no, of which the yes should have the higher odds.
    pairs = odds[names == "yes"][:, None] - odds[names == "no"]
    area = np.mean(pairs > 0.0) + 0.5 * np.mean(pairs == 0.0)
    assert get_scorer("roc_auc")(model, X, names) == pytest.approx(area, abs=1e-12)
    assert cross_val_score(model, X, names, scoring="roc_auc", cv=3).min() > 0.7


def test_log_odds_tell_samples_apart_whose_probabilities_are_one(rng):
    y = np.repeat([0, 1], 100)
    X = rng.standard_normal((200, 1)) + 20.0 * y[:, None]
    model = plain(n_components=2, init=ClassKMeans(), random_state=0).fit(X, y)
    far = np.array([[100.0], [110.0], [120.0]])
    np.testing.assert_array_equal(model.predict_proba(far)[:, 1], 1.0)
    joint = reference_joint(model, far)
    odds = model.decision_function(far)
    np.testing.assert_allclose(odds, joint[:, 1] - joint[:, 0], rtol=1e-9)
    assert len(set(odds)) == 3


def test_the_decision_function_of_more_classes_is_the_log_posterior(fitted, labelled):
    X, y = labelled
    decision = fitted.decision_function(X)
    joint = reference_joint(fitted, X)
    expected = joint - logsumexp(joint, axis=1, keepdims=True)
    np.testing.assert_allclose(decision, expected, rtol=1e-8, atol=1e-8)
    assert get_scorer("roc_auc_ovr")(fitted, X, y) > 0.9
    alone = plain(n_components=2, random_state=0).fit(X, np.zeros(len(X)))
    np.testing.assert_array_equal(alone.decision_function(X), np.zeros((len(X), 1)))


def test_responsibilities(fitted, labelled):
    X, y = labelled
    for r, w in enumerate(fitted.responsibilities(X, y)):
        block = fitted.blocks_[r]
        log_joint = reference_log_densities_of(block, X) + np.log(block.weights[y])
        expected = np.exp(log_joint - logsumexp(log_joint, axis=1, keepdims=True))
        np.testing.assert_allclose(w, expected, atol=1e-9)
    # Without classes: the mean over the model's posterior of the class.
    posterior = fitted.predict_proba(X)
    given_class = [fitted.responsibilities(X, np.full(len(X), j)) for j in range(3)]
    for r, w in enumerate(fitted.responsibilities(X)):
        expected = sum(posterior[:, [j]] * given_class[j][r] for j in range(3))
        np.testing.assert_allclose(w, expected, atol=1e-12)
        np.testing.assert_allclose(w.sum(axis=1), 1.0)
    # Far from all kernels, where log densities have lost their digits after the point, too.
    for w in fitted.responsibilities(X + 1e8 * np.abs(X).max()):
        np.testing.assert_allclose(w.sum(axis=1), 1.0, rtol=1e-12)


def reference_log_densities_of(block, X):
    return reference_log_densities(X[:, block.features], block.means, block.dense_covariances)


def test_labels_of_any_kind(labelled):
    X, y = labelled
    names = np.array(["rose", "iris", "lily"])
    model = SharedKernelClassifier(n_components=4, random_state=0).fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, ["iris", "lily", "rose"])
    assert set(model.predict(X)) <= set(names)
    numbers = SharedKernelClassifier(n_components=4, random_state=0).fit(X, 10 * y - 5)
    np.testing.assert_array_equal(numbers.classes_, [-5, 5, 15])
    one = SharedKernelClassifier(n_components=4, random_state=0).fit(X, np.zeros(len(X)))
    np.testing.assert_array_equal(one.predict_proba(X), np.ones((len(X), 1)))


@pytest.mark.filterwarnings("ignore:Support for the dataframe interchange")  # scikit-learn < 1.9
@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_data_frames_in(labelled, frame):
    X, y = labelled
    names = list("abcde")
    table = frame(dict(zip(names, X.T, strict=True)))
    settings = {"n_components": 3, "random_state": 0}
    model = SharedKernelClassifier(partition=[["b", "d"], ["a"]], **settings).fit(table, y)
    np.testing.assert_array_equal(model.feature_names_in_, names)
    assert [block.features.tolist() for block in model.blocks_] == [[1, 3], [0]]
    by_number = SharedKernelClassifier(partition=[[1, 3], [0]], **settings).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(table), by_number.predict_proba(X))


def test_features_left_out_are_not_used(labelled, rng):
    X, y = labelled
    model = SharedKernelClassifier(n_components=3, partition=[[0, 2], [4]], random_state=0)
    model.fit(X, y)
    noisy = X.copy()
    noisy[:, [1, 3]] = rng.standard_normal((len(X), 2)) * 1e6
    np.testing.assert_array_equal(model.predict_proba(X), model.predict_proba(noisy))
    drawn, _ = model.sample(5, random_state=0)
    assert np.isnan(drawn[:, [1, 3]]).all()
    assert np.isfinite(drawn[:, [0, 2, 4]]).all()
    np.testing.assert_array_equal(model.expand().features, [0, 2, 4])


def test_expansion_knows_which_weights_were_free(labelled):
    X, y = labelled
    open_ = np.array([[1, 0], [1, 1], [0, 1]])
    weights = [open_ / open_.sum(axis=1, keepdims=True), np.full((3, 2), 0.5)]
    start = Start(weights=weights, reseed=False)
    model = plain(n_components=2, n_blocks=2, init=start, tol=0, max_iter=1, random_state=0).fit(
        X, y
    )
    np.testing.assert_array_equal(model.expand().allowed, np.repeat(open_, 2, axis=1))


def test_components_per_block(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=[2, 7], n_blocks=2, random_state=0).fit(X, y)
    assert [len(block.means) for block in model.blocks_] == [2, 7]


def test_priors(labelled):
    X, y = labelled
    X, y = np.vstack([X, X[y == 1]]), np.append(y, y[y == 1])
    settings = {"n_components": 4, "random_state": 0}
    frequencies = plain(**settings).fit(X, y)
    uniform = plain(priors="uniform", **settings).fit(X, y)
    given = plain(priors=[0.7, 0.2, 0.1], **settings).fit(X, y)
    np.testing.assert_allclose(frequencies.class_prior_, np.bincount(y) / len(y))
    np.testing.assert_allclose(uniform.class_prior_, 1 / 3)
    np.testing.assert_allclose(given.class_prior_, [0.7, 0.2, 0.1])
    np.testing.assert_array_equal(
        frequencies.class_log_likelihood(X), given.class_log_likelihood(X)
    )
    nearly = plain(priors=[0.3, 0.3, 0.4 + 9e-7], **settings).fit(X, y)
    assert nearly.class_prior_.sum() == pytest.approx(1.0, abs=1e-15)
    excluded = plain(priors=[0.0, 0.5, 0.5], **settings).fit(X, y)
    assert (excluded.predict_proba(X)[:, 0] == 0.0).all()


def test_shared_proportion_by_hand(fitted):
    def hold(*weights):
        """Blocks with these weights, two classes by five kernels each."""
        blocks = [
            dataclasses.replace(block, kernels=block.kernels._replace(weights=np.array(part)))
            for block, part in zip(fitted.blocks_, weights, strict=False)
        ]
        fitted.model_ = dataclasses.replace(fitted.model_, blocks=blocks)

    one = [[0.98, 0.02, 0.0, 0.0, 0.0], [0.5, 0.0, 0.495, 0.005, 0.0]]
    two = [[1.0, 0.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0, 0.0]]
    hold(one, two)
    # kernel 0 is held by both classes, 1 and 2 by one each, 3 is below the threshold.
    assert fitted.shared_proportion() == pytest.approx(2 / 6)
    hold(one)
    assert fitted.shared_proportion() == pytest.approx(2 / 4)
    assert fitted.shared_proportion(threshold=0.005) == pytest.approx(2 / 5)


def test_samples_come_from_the_model(labelled):
    X, y = labelled
    model = plain(n_components=3, n_blocks=2, random_state=0).fit(X, y)
    drawn, labels = model.sample(60_000, random_state=0)
    share = np.bincount(labels) / len(labels)
    np.testing.assert_allclose(share, model.class_prior_, atol=5 * 0.5 / np.sqrt(60_000))
    for j in range(3):
        own = drawn[labels == j]
        for block in model.blocks_:
            pi = block.weights[j]
            mean = pi @ block.means
            second = np.einsum("k,kab->ab", pi, block.covariances) + np.einsum(
                "k,ka,kb->ab", pi, block.means - mean, block.means - mean
            )
            error = 5 * np.sqrt(np.diag(second) / len(own))
            assert (np.abs(own[:, block.features].mean(axis=0) - mean) < error).all()
            spread = own[:, block.features].var(axis=0)
            np.testing.assert_allclose(spread, np.diag(second), rtol=0.1)
    one_class, labels = model.sample(7, classes=2, random_state=0)
    assert one_class.shape == (7, 5)
    np.testing.assert_array_equal(labels, 2)
    _, labels = model.sample(3, classes=[2, 0, 1])
    np.testing.assert_array_equal(labels, [2, 0, 1])
    again, _ = model.sample(7, classes=2, random_state=0)
    np.testing.assert_array_equal(one_class, again)


@pytest.mark.parametrize(
    ("covariance_type", "n_covariance"),
    [("full", 5 * 6 + 5 * 3), ("tied", 6 + 3), ("diag", 5 * 5), ("spherical", 5 * 2)],
)
def test_information_criteria(labelled, covariance_type, n_covariance):
    X, y = labelled
    model = plain(n_components=5, n_blocks=2, covariance_type=covariance_type, random_state=0).fit(
        X, y
    )
    n = 2 * 3 * (5 - 1) + 5 * 3 + 5 * 2 + n_covariance
    log_likelihood = model.class_log_likelihood(X)[np.arange(len(X)), y].sum()
    assert model.aic(X, y) == pytest.approx(2 * n - 2 * log_likelihood)
    assert model.bic(X, y) == pytest.approx(n * np.log(len(X)) - 2 * log_likelihood)


def test_weights_fixed_at_zero_are_no_parameters(labelled):
    X, y = labelled
    weights = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.4, 0.4]])
    start = Start(weights=weights, reseed=False)
    model = plain(n_components=3, n_blocks=1, init=start, tol=0, max_iter=3, random_state=0).fit(
        X, y
    )
    free = (1 - 1) + (2 - 1) + (3 - 1) + 3 * 5 + 3 * 15
    log_likelihood = model.class_log_likelihood(X)[np.arange(len(X)), y].sum()
    assert model.aic(X, y) == pytest.approx(2 * free - 2 * log_likelihood)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_weights_that_vanish_stay_parameters(rng, dtype):
    """Whether a weight underflows is a matter of precision; the criteria must not depend on it."""
    y = np.repeat([0, 1], 50)
    X = (rng.standard_normal((100, 2)) + 60.0 * y[:, None]).astype(dtype)
    model = plain(n_components=2, random_state=0).fit(X, y)
    (block,) = model.blocks_
    assert (block.weights == 0.0).any(), "the kernels of the other class are out of reach"
    free = 2 * (2 - 1) + 2 * 2 + 2 * 3
    log_likelihood = model.class_log_likelihood(X)[np.arange(100), y].sum()
    assert model.aic(X, y) == pytest.approx(2 * free - 2 * log_likelihood)
    # ... and after going on from there.
    model.set_params(warm_start=True).fit(X, y)
    log_likelihood = model.class_log_likelihood(X)[np.arange(100), y].sum()
    assert model.aic(X, y) == pytest.approx(2 * free - 2 * log_likelihood)


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
def test_expansion_has_a_limit(labelled):
    X, y = labelled
    model = plain(n_components=11, n_blocks=4, max_iter=1, tol=0, random_state=0)
    model.fit(X, y)
    with pytest.raises(ValueError, match=r"11 x 11 x 11 x 11 = 1.46e\+04 components; at most"):
        model.expand()


def test_no_warning_for_the_frame_that_was_fitted(labelled):
    X, y = labelled
    table = pd.DataFrame(X, columns=list("abcde"))
    model = SharedKernelClassifier(n_components=2, random_state=0).fit(table, y)
    for method in (model.aic, model.bic, model.responsibilities):
        method(table, y)


def test_pipelines_searches_and_pickles(labelled):
    X, y = labelled
    pipeline = make_pipeline(StandardScaler(), SharedKernelClassifier(random_state=0, tol=0.01))
    search = GridSearchCV(
        pipeline,
        {
            "sharedkernelclassifier__n_components": [2, 4],
            "sharedkernelclassifier__covariance_type": ["tied", "diag"],
        },
        cv=3,
    ).fit(X, y)
    assert search.best_score_ > 0.8
    copy = pickle.loads(pickle.dumps(search.best_estimator_))
    assert not copy[-1].blocks_[0].means.flags.writeable
    np.testing.assert_array_equal(copy.predict_proba(X), search.predict_proba(X))


def test_accuracy_on_known_data():
    X, y = make_blobs(n_samples=400, centers=8, cluster_std=0.5, random_state=0)
    # Classes of four blobs each: no single Gaussian per class can tell them apart.
    scores = cross_val_score(SharedKernelClassifier(n_components=8, random_state=0), X, y % 2)
    assert scores.mean() > 0.9
    X, y = load_iris(return_X_y=True)
    assert (
        cross_val_score(SharedKernelClassifier(n_components=3, random_state=0), X, y).mean() > 0.93
    )
    X, y = load_digits(return_X_y=True)
    model = SharedKernelClassifier(n_components=40, covariance_type="tied", random_state=0)
    with pytest.warns(ConvergenceWarning):
        assert model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.9
