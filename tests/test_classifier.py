"""The classifier's parameters, attributes and methods."""

import dataclasses
import io
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from scipy.special import logsumexp
from sklearn.datasets import load_digits, load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from pskem import Block, SharedKernelClassifier, training
from pskem.progress import PassBar
from pskem.training import Progress
from reference import COVARIANCE_TYPES, reference_log_densities, reference_log_likelihood


@pytest.fixture
def fitted(labelled):
    X, y = labelled
    return SharedKernelClassifier(n_components=5, n_blocks=2, random_state=0).fit(X, y)


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
    for r, block in enumerate(fitted.blocks_):
        expected = reference_log_likelihood(
            X[:, block.features], block.weights, block.means, block.covariances
        )
        np.testing.assert_allclose(blocks[:, r], expected, rtol=1e-9, atol=1e-9)
    likelihood = fitted.class_log_likelihood(X)
    np.testing.assert_allclose(likelihood, blocks.sum(axis=1), rtol=1e-12)
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
    plain = SharedKernelClassifier(partition=[[1, 3], [0]], **settings).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(table), plain.predict_proba(X))


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


def test_components_per_block(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=[2, 7], n_blocks=2, random_state=0).fit(X, y)
    assert [len(block.means) for block in model.blocks_] == [2, 7]


def test_priors(labelled):
    X, y = labelled
    X, y = np.vstack([X, X[y == 1]]), np.append(y, y[y == 1])
    settings = {"n_components": 4, "random_state": 0}
    frequencies = SharedKernelClassifier(**settings).fit(X, y)
    uniform = SharedKernelClassifier(priors="uniform", **settings).fit(X, y)
    given = SharedKernelClassifier(priors=[0.7, 0.2, 0.1], **settings).fit(X, y)
    np.testing.assert_allclose(frequencies.class_prior_, np.bincount(y) / len(y))
    np.testing.assert_allclose(uniform.class_prior_, 1 / 3)
    np.testing.assert_allclose(given.class_prior_, [0.7, 0.2, 0.1])
    np.testing.assert_array_equal(
        frequencies.class_log_likelihood(X), given.class_log_likelihood(X)
    )
    excluded = SharedKernelClassifier(priors=[0.0, 0.5, 0.5], **settings).fit(X, y)
    assert (excluded.predict_proba(X)[:, 0] == 0.0).all()


def test_constrained_sharing(labelled, rng):
    """Zeros stay zero; a model in which nothing is shared is one mixture per class."""
    X, y = labelled
    K = 2
    weights = np.kron(np.eye(3), np.full((1, K), 1.0 / K))
    means = np.concatenate([X[y == j][:K] for j in range(3)])
    settings = {"n_blocks": 1, "reg_covar": 0, "tol": 0, "max_iter": 15}
    covariances = np.array([np.cov(X.T)] * 3 * K)
    model = SharedKernelClassifier(
        n_components=3 * K,
        weights_init=weights,
        means_init=means,
        covariances_init=covariances,
        **settings,
    ).fit(X, y)
    (block,) = model.blocks_
    np.testing.assert_array_equal(block.weights == 0.0, weights == 0.0)
    assert model.shared_proportion() == 0.0
    for j in range(3):
        own = slice(j * K, (j + 1) * K)
        alone = SharedKernelClassifier(
            n_components=K,
            means_init=means[own],
            covariances_init=covariances[own],
            weights_init=np.full((1, K), 1.0 / K),
            **settings,
        ).fit(X[y == j], y[y == j])
        shift = np.abs(alone.blocks_[0].means - block.means[own]).max()
        assert shift < 1e-8 * np.abs(X).max()
        np.testing.assert_allclose(
            alone.class_log_likelihood(X)[:, 0], model.class_log_likelihood(X)[:, j], rtol=1e-8
        )


def test_partial_masks_hold_in_chunks_of_several_classes(labelled):
    X, y = labelled
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [0.4, 0.3, 0.3]])
    model = SharedKernelClassifier(
        n_components=3, n_blocks=1, weights_init=weights, max_iter=20, tol=0, random_state=0
    ).fit(X, y)
    np.testing.assert_array_equal(model.blocks_[0].weights == 0.0, weights == 0.0)


def test_shared_proportion_by_hand(fitted):
    weights = np.array([[0.98, 0.02, 0.0, 0.0, 0.0], [0.5, 0.0, 0.495, 0.005, 0.0]] * 1)
    block = dataclasses.replace(fitted.blocks_[0], weights=weights)
    fitted.blocks_ = [block]
    # kernel 0 is held by both classes, 1 and 2 by one each, 3 is below the threshold.
    assert fitted.shared_proportion() == pytest.approx(2 / 4)
    assert fitted.shared_proportion(threshold=0.005) == pytest.approx(2 / 5)
    other = dataclasses.replace(block, weights=np.array([[1.0, 0, 0, 0, 0], [0, 1.0, 0, 0, 0]]))
    fitted.blocks_ = [block, other]
    assert fitted.shared_proportion() == pytest.approx(2 / 6)


def test_early_stopping_keeps_the_best_pass(labelled):
    X, y = labelled
    train, val = slice(0, 400), slice(400, 600)
    settings = {"n_components": 10, "random_state": 0, "tol": 0, "max_iter": 25}
    kept = SharedKernelClassifier(early_stopping=True, n_iter_no_change=None, **settings)
    kept.fit(X[train], y[train], X_val=X[val], y_val=y[val])
    scores = kept.validation_scores_
    assert len(scores) == kept.n_iter_ == 25
    assert kept.best_iter_ == np.argmax(scores) + 1
    assert kept.score(X[val], y[val]) == pytest.approx(scores.max())
    again = SharedKernelClassifier(**{**settings, "max_iter": kept.best_iter_})
    again.fit(X[train], y[train])
    np.testing.assert_array_equal(again.blocks_[0].means, kept.blocks_[0].means)
    # Without early stopping the scores are recorded and the last pass is kept.
    watched = SharedKernelClassifier(**settings)
    watched.fit(X[train], y[train], X_val=X[val], y_val=y[val])
    np.testing.assert_array_equal(watched.validation_scores_, scores)
    assert watched.best_iter_ == 25
    assert watched.score(X[val], y[val]) == pytest.approx(scores[-1])


def test_early_stopping_keeps_the_first_of_equal_passes(labelled):
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=3,
        early_stopping=True,
        n_iter_no_change=None,
        tol=0,
        max_iter=30,
        random_state=0,
    ).fit(X[:400], y[:400], X_val=X[400:410], y_val=y[400:410])
    scores = model.validation_scores_
    assert (scores == scores.max()).sum() > 1
    assert model.best_iter_ == np.argmax(scores) + 1


def test_several_starts_with_early_stopping_keep_the_best_validated(labelled, monkeypatch):
    X, y = labelled
    runs = []
    run = training._run

    def recorded(*arguments):
        runs.append(run(*arguments))
        return runs[-1]

    monkeypatch.setattr(training, "_run", recorded)
    model = SharedKernelClassifier(
        n_components=4, n_init=6, early_stopping=True, max_iter=10, tol=0, random_state=4
    ).fit(X, y)
    best = [outcome.validation_scores.max() for outcome in runs]
    likelihoods = [outcome.log_likelihoods[-1].sum() for outcome in runs]
    assert np.argmax(best) != np.argmax(likelihoods), "these data tell the two criteria apart"
    assert model.validation_scores_.max() == max(best)


def test_validation_data_that_are_only_watched_choose_no_start(labelled):
    X, y = labelled
    settings = {"n_components": 4, "n_init": 6, "max_iter": 10, "tol": 0, "random_state": 4}
    alone = SharedKernelClassifier(**settings).fit(X[:400], y[:400])
    # Labels at random would choose a start at random.
    for seed in range(6):
        labels = np.random.default_rng(seed).permutation(y[400:])
        watched = SharedKernelClassifier(**settings)
        watched.fit(X[:400], y[:400], X_val=X[400:], y_val=labels)
        np.testing.assert_array_equal(watched.blocks_[0].means, alone.blocks_[0].means)


def test_early_stopping_waits_so_many_passes(labelled):
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=10, early_stopping=True, n_iter_no_change=3, tol=0, random_state=0
    ).fit(X, y)
    assert model.n_iter_ == model.best_iter_ + 3
    assert model.validation_scores_[model.best_iter_ - 1] == model.validation_scores_.max()


def test_early_stopping_holds_out_a_part_of_every_class(labelled):
    X, y = labelled
    train, val = training.split(X, y, 0.25, 3, seed=0)
    np.testing.assert_array_equal(np.sort(np.append(train, val)), np.arange(len(X)))
    np.testing.assert_array_equal(np.bincount(y[val]), np.round(np.bincount(y) * 0.25))
    train, val = training.split(X[:3], np.arange(3), 0.9, 3, seed=0)
    assert len(train) == 3
    assert len(val) == 0


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
def test_several_starts_keep_the_best(labelled, monkeypatch):
    X, y = labelled
    settings = {"n_components": 6, "init": "random", "init_range": (-20, 60), "init_scale": 10.0}
    merits = []
    run = training._run

    def recorded(*arguments):
        merits.append(run(*arguments))
        return merits[-1]

    monkeypatch.setattr(training, "_run", recorded)
    model = SharedKernelClassifier(n_init=5, random_state=0, max_iter=300, **settings).fit(X, y)
    finals = [outcome.log_likelihoods[-1].sum() for outcome in merits]
    assert len(set(finals)) == 5
    assert model.log_likelihoods_[-1].sum() == max(finals)


def test_random_start_is_the_papers(labelled):
    """Uniform weights, means in the range, isotropic covariances: seen through one pass of EM."""
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=50,
        n_blocks=1,
        init="random",
        init_range=(3.0, 4.0),
        init_scale=1e5,
        max_iter=1,
        tol=0,
        random_state=0,
    )
    model.fit(X, y)
    (block,) = model.blocks_
    # Kernels that wide see all samples alike: weights stay uniform, moments are the data's.
    np.testing.assert_allclose(block.weights, 1 / 50, rtol=1e-2)
    np.testing.assert_allclose(block.means, np.broadcast_to(X.mean(axis=0), (50, 5)), rtol=1e-2)
    np.testing.assert_allclose(block.covariances[0], np.cov(X.T, bias=True), rtol=1e-2, atol=1e-3)


def test_warm_start_goes_on(labelled):
    X, y = labelled
    settings = {"n_components": 6, "n_blocks": 2, "partition": "random", "tol": 0}
    whole = SharedKernelClassifier(max_iter=12, random_state=0, **settings).fit(X, y)
    parts = SharedKernelClassifier(max_iter=5, random_state=0, warm_start=True, **settings)
    parts.fit(X, y)
    first = parts.log_likelihoods_
    parts.set_params(max_iter=7).fit(X, y)
    trace = np.vstack([first, parts.log_likelihoods_])
    np.testing.assert_allclose(trace, whole.log_likelihoods_, rtol=1e-9)
    np.testing.assert_allclose(parts.blocks_[0].means, whole.blocks_[0].means, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 7}, r"n_components of the last fit, \[5, 5\], not \[7, 7\]"),
        ({"covariance_type": "diag"}, "covariance_type of the last fit, 'full', not 'diag'"),
        ({"n_blocks": 1}, r"blocks of the last fit, \[\[0, 1, 2\], \[3, 4\]\], not"),
        ({"partition": "interleaved"}, "blocks of the last fit"),
        ({"partition": "random", "n_blocks": 3}, "blocks of the last fit"),
    ],
)
def test_warm_start_with_other_settings_is_refused(fitted, labelled, change, message):
    X, y = labelled
    fitted.set_params(warm_start=True, **change)
    with pytest.raises(ValueError, match=message):
        fitted.fit(X, y)


def test_warm_start_with_other_classes_is_refused(fitted, labelled):
    X, y = labelled
    with pytest.raises(ValueError, match=r"needs the classes of the last fit, \[0, 1, 2\]"):
        fitted.set_params(warm_start=True).fit(X, y + 1)


def test_samples_come_from_the_model(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=3, n_blocks=2, random_state=0).fit(X, y)
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
    model = SharedKernelClassifier(
        n_components=5, n_blocks=2, covariance_type=covariance_type, random_state=0
    ).fit(X, y)
    n = 2 * 3 * (5 - 1) + 5 * 3 + 5 * 2 + n_covariance
    log_likelihood = model.class_log_likelihood(X)[np.arange(len(X)), y].sum()
    assert model.aic(X, y) == pytest.approx(2 * n - 2 * log_likelihood)
    assert model.bic(X, y) == pytest.approx(n * np.log(len(X)) - 2 * log_likelihood)


def test_weights_fixed_at_zero_are_no_parameters(labelled):
    X, y = labelled
    weights = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5], [0.2, 0.4, 0.4]])
    model = SharedKernelClassifier(
        n_components=3, n_blocks=1, weights_init=weights, tol=0, max_iter=3, random_state=0
    ).fit(X, y)
    free = (1 - 1) + (2 - 1) + (3 - 1) + 3 * 5 + 3 * 15
    log_likelihood = model.class_log_likelihood(X)[np.arange(len(X)), y].sum()
    assert model.aic(X, y) == pytest.approx(2 * free - 2 * log_likelihood)


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
def test_expansion_has_a_limit(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=11, n_blocks=4, max_iter=1, tol=0, random_state=0)
    model.fit(X, y)
    with pytest.raises(ValueError, match=r"11 x 11 x 11 x 11 = 1.46e\+04 components; at most"):
        model.expand()


def test_truth_about_convergence(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=8, n_blocks=2, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 ended the training before") as seen:
        model.fit(X, y)
    assert seen[0].filename == __file__, "a warning points to the caller"
    assert not model.converged_.any()
    # tol=0 asks for a number of passes; that is no failure, and no convergence either.
    model.set_params(tol=0).fit(X, y)
    assert not model.converged_.any()


def test_no_tolerance_runs_all_passes():
    """Also when the likelihood stands still and rounding makes it fall."""
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=3, tol=0, max_iter=120, random_state=1).fit(X, y)
    assert model.n_iter_ == 120
    assert np.diff(model.log_likelihoods_, axis=0).min() <= 0.0
    assert not model.converged_.any()


def test_no_warning_for_the_frame_that_was_fitted(labelled):
    X, y = labelled
    table = pd.DataFrame(X, columns=list("abcde"))
    model = SharedKernelClassifier(n_components=2, random_state=0).fit(table, y)
    for method in (model.aic, model.bic, model.responsibilities):
        method(table, y)


def test_identical_starts_are_run_once(labelled, monkeypatch):
    X, y = labelled
    model = SharedKernelClassifier(n_components=2, random_state=0, tol=0, max_iter=2).fit(X, y)
    runs = []
    run = training._run
    monkeypatch.setattr(training, "_run", lambda *a: runs.append(1) or run(*a))
    model.set_params(n_init=5, warm_start=True).fit(X, y)
    assert len(runs) == 1


def test_empty_kernels_are_reported_and_harmless(labelled):
    X, y = labelled
    means = np.vstack([X[:3], np.full((1, 5), 1e4)])
    model = SharedKernelClassifier(
        n_components=4,
        n_blocks=1,
        means_init=means,
        covariances_init=[np.eye(5)] * 4,
        tol=0,
        max_iter=5,
    )
    with pytest.warns(ConvergenceWarning, match="ran empty .1 of them: 3.*Use fewer components"):
        model.fit(X, y)
    (block,) = model.blocks_
    np.testing.assert_allclose(block.means[3], 1e4)
    np.testing.assert_allclose(block.weights[:, 3], 0.0, atol=1e-12)
    assert np.isfinite(model.predict_proba(X)).all()


@pytest.mark.filterwarnings("ignore:Kernels ran empty")
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_empty_kernels_change_nothing_for_the_others(labelled, covariance_type):
    """They must not count in what the kernels share, such as a tied covariance."""
    X, y = labelled
    X, y = X[:60], y[:60]
    far = np.vstack([X[:2], np.full((5, 5), 1e5)])
    results = [
        SharedKernelClassifier(
            n_components=K,
            n_blocks=1,
            covariance_type=covariance_type,
            means_init=far[:K],
            covariances_init=[np.eye(5) * 9.0] * K,
            weights_init=np.full((3, K), 1 / K),
            tol=0,
            max_iter=10,
        ).fit(X, y)
        for K in (2, 7)
    ]
    few, many = (model.blocks_[0] for model in results)
    np.testing.assert_allclose(many.means[:2], few.means, rtol=1e-9)
    own = slice(None) if covariance_type == "tied" else slice(2)
    np.testing.assert_allclose(many.covariances[own], few.covariances, rtol=1e-8, atol=1e-10)
    gains = np.diff(results[1].log_likelihoods_, axis=0)
    assert (gains >= -1e-10 * np.abs(results[1].log_likelihoods_[1:])).all()


def test_collapsing_kernels_are_reported(rng):
    X = np.vstack([rng.standard_normal((200, 2)), np.full((50, 2), 3.0)])
    y = np.repeat([0, 1], [200, 50])
    with pytest.warns(ConvergenceWarning, match="collapsed.*1e-06 times the variance"):
        model = SharedKernelClassifier(n_components=4, random_state=0).fit(X, y)
    assert np.isfinite(model.class_log_likelihood(X)).all()


def test_constant_features_are_no_collapse(labelled):
    X, y = labelled
    X = np.hstack([X, np.full((len(X), 2), [[1e9, 0.0]])])
    model = SharedKernelClassifier(n_components=3, n_blocks=1, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8


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


def test_verbose_prints_to_stderr(labelled, capsys):
    X, y = labelled
    SharedKernelClassifier(n_components=3, max_iter=12, tol=0, verbose=1, random_state=0).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 4
    assert "pass 1/12" in lines[0]
    assert "log likelihood/sample" in lines[0]
    assert "pass 10/12" in lines[1]
    assert "pass 12/12" in lines[2]
    assert lines[3] == "done after 12 passes"
    SharedKernelClassifier(n_components=2, verbose=2, random_state=0).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert f"converged after {len(lines) - 1} passes" == lines[-1]


def test_progress_bar_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    bar = PassBar(max_iter=4, n_init=2, n_samples=10, every=10, stream=stream)
    assert bar(Progress(1, 2, [], -30.0, 0.875)) is False
    bar.close("done")
    text = stream.getvalue()
    assert text.startswith("\r")
    assert text.endswith("\ndone\n")
    assert "start 2/2 [########........] pass 2/4" in text
    assert "log likelihood/sample -3.0000" in text
    monkeypatch.setenv("COLUMNS", "30")
    bar(Progress(1, 3, [], -30.0, 0.875))
    assert len(stream.getvalue().split("\x1b[K")[-1]) == 29


@pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.9"), reason="callbacks came with 1.9"
)
def test_scikit_learn_callbacks(labelled):
    from sklearn.callback import ScoringMonitor

    class StopAfter:
        def __init__(self, passes):
            self.passes, self.seen = passes, []

        def setup(self, estimator, context):
            pass

        def teardown(self, estimator, context):
            self.torn_down = True

        def on_fit_task_begin(self, estimator, context):
            pass

        def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
            score = fitted_estimator.score(X, y)
            if context.task_name == "EM pass":
                self.seen.append(score)
            else:
                self.final = score
            return len(self.seen) >= self.passes

    X, y = labelled
    stopper, monitor = StopAfter(4), ScoringMonitor(scoring="accuracy")
    model = SharedKernelClassifier(n_components=4, tol=0, random_state=0)
    model.set_callbacks(stopper, monitor)
    model.fit(X, y)
    assert model.n_iter_ == 4
    assert stopper.torn_down
    assert stopper.seen[-1] == stopper.final == model.score(X, y)
    many = StopAfter(3)
    model.set_params(n_init=5).set_callbacks(many).fit(X, y)
    assert len(many.seen) == 3, "a stop ends the fit, not one start"
    model.set_params(n_init=1)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "EM pass"]
    assert [row["accuracy"] for row in rows] == stopper.seen


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_explicit_starts_in_every_accepted_shape(labelled, covariance_type):
    X, y = labelled
    K = 3
    dense = np.array([np.eye(5) * 4.0] * K)
    compact = {
        "full": dense,
        "tied": dense[0],
        "diag": np.full((K, 5), 4.0),
        "spherical": np.full(K, 4.0),
    }[covariance_type]
    results = [
        SharedKernelClassifier(
            n_components=K,
            n_blocks=1,
            covariance_type=covariance_type,
            means_init=means,
            covariances_init=covariances,
            weights_init=weights,
            max_iter=3,
            tol=0,
        )
        .fit(X, y)
        .log_likelihoods_
        for means, covariances, weights in [
            (X[:K], dense, np.full((3, K), 1 / K)),
            (X[:K].tolist(), compact, [np.full((3, K), 1 / K)]),
            ([X[:K]], [compact], np.full((3, K), 1 / K).tolist()),
        ]
    ]
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])
