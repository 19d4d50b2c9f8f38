"""How a fit goes: several starts, validation, stopping, the pass that is kept."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

from pskem import SharedKernelClassifier
from pskem.training import _loop as training
from reference import plain


@pytest.fixture
def runs(monkeypatch):
    """The outcomes of all starts, as they are trained."""
    outcomes = []
    run = training._run

    def recorded(*arguments):
        outcomes.append(run(*arguments))
        return outcomes[-1]

    monkeypatch.setattr(training, "_run", recorded)
    return outcomes


def test_early_stopping_keeps_the_best_pass(labelled):
    X, y = labelled
    train, val = slice(0, 400), slice(400, 600)
    settings = {"n_components": 10, "random_state": 0, "tol": 0, "max_iter": 25}
    kept = plain(early_stopping=True, n_iter_no_change=None, **settings)
    kept.fit(X[train], y[train], X_val=X[val], y_val=y[val])
    scores = kept.validation_scores_
    assert len(scores) == kept.n_iter_ == 25
    assert kept.best_iter_ == np.argmax(scores) + 1
    assert kept.score(X[val], y[val]) == pytest.approx(scores.max())
    again = plain(**{**settings, "max_iter": kept.best_iter_})
    again.fit(X[train], y[train])
    np.testing.assert_array_equal(again.blocks_[0].means, kept.blocks_[0].means)
    # Without early stopping the scores are recorded and the last pass is kept.
    watched = plain(**settings)
    watched.fit(X[train], y[train], X_val=X[val], y_val=y[val])
    np.testing.assert_array_equal(watched.validation_scores_, scores)
    assert watched.best_iter_ == 25
    assert watched.score(X[val], y[val]) == pytest.approx(scores[-1])


def test_early_stopping_keeps_the_first_of_equal_passes(labelled):
    X, y = labelled
    model = plain(
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


def test_several_starts_with_early_stopping_keep_the_best_validated(labelled, runs):
    X, y = labelled
    model = plain(
        n_components=4, n_init=6, early_stopping=True, max_iter=10, tol=0, random_state=4
    ).fit(X, y)
    best = [outcome.validation_scores.max() for outcome in runs]
    likelihoods = [outcome.log_likelihoods[-1].sum() for outcome in runs]
    assert np.argmax(best) != np.argmax(likelihoods), "these data tell the two criteria apart"
    assert model.validation_scores_.max() == max(best)


def test_validation_data_that_are_only_watched_choose_no_start(labelled):
    X, y = labelled
    settings = {"n_components": 4, "n_init": 6, "max_iter": 10, "tol": 0, "random_state": 4}
    alone = plain(**settings).fit(X[:400], y[:400])
    # Labels at random would choose a start at random.
    for seed in range(6):
        labels = np.random.default_rng(seed).permutation(y[400:])
        watched = plain(**settings)
        watched.fit(X[:400], y[:400], X_val=X[400:], y_val=labels)
        np.testing.assert_array_equal(watched.blocks_[0].means, alone.blocks_[0].means)


def test_early_stopping_waits_so_many_passes(labelled):
    X, y = labelled
    model = plain(
        n_components=6, early_stopping=True, n_iter_no_change=3, tol=0, random_state=0
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


def test_early_stopping_holds_out_the_whole_fraction_of_many_small_classes(rng):
    """A tenth of 4 samples rounds to none; a tenth of 100 such classes is 40 samples."""
    y = np.repeat(np.arange(100), 4)
    train, val = training.split(rng.standard_normal((400, 2)), y, 0.1, 100, seed=0)
    assert len(val) == 40
    assert np.bincount(y[val]).max() == 1
    assert len(np.unique(y[train])) == 100
    train, val = training.split(rng.standard_normal((400, 2)), y, 0.9, 100, seed=0)
    np.testing.assert_array_equal(np.bincount(y[val]), 3)


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
def test_several_starts_keep_the_best(labelled, runs):
    X, y = labelled
    settings = {"n_components": 6, "init": "random", "init_range": (-20, 60), "init_scale": 10.0}
    model = plain(n_init=5, random_state=0, max_iter=300, **settings).fit(X, y)
    finals = [outcome.log_likelihoods[-1].sum() for outcome in runs]
    assert len(set(finals)) == 5
    assert model.log_likelihoods_[-1].sum() == max(finals)


def test_no_tolerance_runs_all_passes():
    """Also when the likelihood stands still and rounding makes it fall."""
    X, y = load_iris(return_X_y=True)
    model = plain(n_components=3, tol=0, max_iter=120, random_state=1).fit(X, y)
    assert model.n_iter_ == 120
    assert np.diff(model.log_likelihoods_, axis=0).min() <= 0.0
    assert not model.converged_.any()


def test_identical_starts_are_run_once(labelled, runs):
    X, y = labelled
    model = plain(n_components=2, random_state=0, tol=0, max_iter=2).fit(X, y)
    runs.clear()
    model.set_params(n_init=5, warm_start=True).fit(X, y)
    assert len(runs) == 1


def test_a_watcher_sees_the_blocks_of_every_pass_and_may_stop(labelled):
    X, y = labelled
    model = plain(n_components=4, n_blocks=2, max_iter=6, tol=0, random_state=0)
    seen = []
    model.fit(X, y, watch=seen.append)
    assert len(seen) == model.n_iter_ == 6
    for last, block in zip(seen[-1], model.blocks_, strict=True):
        assert (last.means == block.means).all()
        assert (last.weights == block.weights).all()
    assert (seen[0][0].means != seen[1][0].means).any()
    model.fit(X, y, watch=lambda blocks: np.allclose(blocks[0].means, seen[2][0].means))
    assert model.n_iter_ == 3


@pytest.mark.parametrize("n_init", [1, 3])
def test_a_watcher_that_ends_em_ends_the_training(labelled, n_init):
    X, y = labelled
    seen = []
    settings = {"init": "k-means++", "max_iter": 6, "tol": 0, "random_state": 0}
    model = SharedKernelClassifier(n_init=n_init, **settings)
    model.fit(X, y, watch=lambda blocks: seen.append(blocks) or len(seen) == 6 * n_init - 4)
    assert len(seen) == 6 * n_init - 4
    assert len(model.log_posteriors_) == 0
    seen.clear()
    model.fit(X, y, watch=seen.append)
    assert len(seen) == 6 * n_init + 5, "discriminative passes follow"


def test_given_block_weights_count_during_em_too(rng):
    """Validation scores are those of the classifier with its weights, whatever they are."""
    y = np.arange(400) % 2
    X = rng.standard_normal((400, 2))
    X[:, 0] += 2.0 * y
    model = plain(
        n_components=2, n_blocks=2, block_weights=[0.0, 1.0], early_stopping=True, random_state=0
    )
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    assert model.validation_scores_[model.best_iter_ - 1] == model.score(X[300:], y[300:])
    np.testing.assert_array_equal(model.block_weights_, [0.0, 1.0])


def test_numpys_truth_is_truth(rng):
    X, y = rng.standard_normal((300, 2)), np.arange(300) % 2
    traces = [
        plain(n_components=2, early_stopping=stop, random_state=0).fit(X, y).validation_scores_
        for stop in (True, np.True_, np.False_)
    ]
    np.testing.assert_array_equal(traces[0], traces[1])
    assert len(traces[0])
    assert not len(traces[2])


@pytest.mark.parametrize("settings", [{"init": "kdtree", "n_components": 7}, {"n_components": 3}])
def test_starts_that_are_all_the_same_are_made_once(labelled, settings):
    """A k-d tree, and one kernel for each class."""
    X, y = labelled
    seen = []
    model = SharedKernelClassifier(
        **settings, n_init=4, max_iter=2, tol=0, discriminative_iter=0, random_state=0
    )
    model.fit(X, y, watch=lambda blocks: seen.append(blocks))
    assert len(seen) == 2


def test_watchers_see_which_weights_are_open(labelled):
    X, y = labelled
    seen = []
    model = SharedKernelClassifier(n_components=6, random_state=0)
    model.fit(X, y, watch=lambda blocks: seen.append(blocks[0].allowed))
    assert 0 < model.blocks_[0].allowed.sum() == 6
    for allowed in seen:
        np.testing.assert_array_equal(allowed, model.blocks_[0].allowed)


def test_where_nothing_can_be_held_out_all_passes_are_made(rng):
    y = np.arange(1000) % 2
    X = rng.standard_normal((1000, 2)) + y[:, None]
    model = SharedKernelClassifier(
        validation_fraction=1e-4, discriminative_iter=1, max_iter=2, tol=0, random_state=0
    )
    model.fit(X, y)
    assert len(model.log_posteriors_) == 2
    assert len(model.discriminative_scores_) == 0
    np.testing.assert_array_equal(model.block_weights_, 1.0)
