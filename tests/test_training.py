"""How a fit goes: starts, stopping, validation, going on, and what it tells."""

import io

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.fixes import parse_version

from pskem import SharedKernelClassifier, training
from pskem.progress import PassBar
from pskem.training import Progress
from reference import COVARIANCE_TYPES


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


@pytest.mark.filterwarnings("ignore:Kernels ran empty")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("far", [1e4, 1e12, 1e20, 1e60])
def test_masks_hold_when_the_allowed_kernels_are_far_away(labelled, far, dtype):
    X, y = labelled
    X = X.astype(dtype)
    weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.0, 0.5, 0.5]])
    means = np.vstack([X[:2], np.full(5, far)])  # all that class 1 may use is far away
    model = SharedKernelClassifier(
        n_components=3,
        n_blocks=1,
        weights_init=weights,
        means_init=means,
        covariances_init=[np.eye(5)] * 3,
        max_iter=1,
        tol=0,
    ).fit(X, y)
    (block,) = model.blocks_
    np.testing.assert_array_equal(block.weights[1], [0.0, 0.0, 1.0])
    assert (block.weights[weights == 0.0] == 0.0).all()
    np.testing.assert_array_equal(block.allowed, weights > 0.0)


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


def test_several_starts_with_early_stopping_keep_the_best_validated(labelled, runs):
    X, y = labelled
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
    model = SharedKernelClassifier(n_init=5, random_state=0, max_iter=300, **settings).fit(X, y)
    finals = [outcome.log_likelihoods[-1].sum() for outcome in runs]
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


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_warm_start_revives_weights_that_underflowed(rng, dtype):
    """On new data a class may need a kernel that was out of its reach before."""
    where = np.repeat([0, 1], 50)
    X = (rng.standard_normal((100, 2)) + 60.0 * where[:, None]).astype(dtype)
    model = SharedKernelClassifier(n_components=2, random_state=0, warm_start=True).fit(X, where)
    np.testing.assert_array_equal(np.sort(model.blocks_[0].weights), [[0.0, 1.0]] * 2)
    model.fit(X, np.tile([0, 1], 50))
    np.testing.assert_allclose(model.blocks_[0].weights, 0.5, atol=1e-6)


def test_warm_start_on_data_of_another_scale(rng):
    X, y = rng.standard_normal((40, 2)), np.repeat([0, 1], 20)
    model = SharedKernelClassifier(n_components=1, random_state=0, warm_start=True)
    model.fit(1e60 * X, y)
    with pytest.raises(ValueError, match="The last fit, from which warm_start=True goes on, puts"):
        model.fit(1e-100 * X, y)


def test_warm_start_with_other_columns_is_refused(labelled):
    X, y = labelled
    table = pd.DataFrame(X, columns=list("abcde"))
    model = SharedKernelClassifier(n_components=3, random_state=0, warm_start=True).fit(table, y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(table.rename(columns={"a": "z"}), y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(table.drop(columns="e"), y)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))


def test_warm_start_with_other_classes_is_refused(fitted, labelled):
    X, y = labelled
    with pytest.raises(ValueError, match=r"needs the classes of the last fit, \[0, 1, 2\]"):
        fitted.set_params(warm_start=True).fit(X, y + 1)


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


def test_identical_starts_are_run_once(labelled, runs):
    X, y = labelled
    model = SharedKernelClassifier(n_components=2, random_state=0, tol=0, max_iter=2).fit(X, y)
    runs.clear()
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
