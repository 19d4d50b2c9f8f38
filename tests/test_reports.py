"""What a fit tells: convergence, kernels in trouble, progress, callbacks."""

import io

import numpy as np
import pytest
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from pskem import SharedKernelClassifier
from pskem.model import count_at_floor
from pskem.training._loop import Progress
from pskem.training._progress import PassBar
from reference import COVARIANCE_TYPES, plain


def test_truth_about_convergence(labelled):
    X, y = labelled
    model = plain(n_components=8, n_blocks=2, max_iter=3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 ended the training before") as seen:
        model.fit(X, y)
    assert seen[0].filename == __file__, "a warning points to the caller"
    assert not model.converged_.any()
    # tol=0 asks for a number of passes; that is no failure, and no convergence either.
    model.set_params(tol=0).fit(X, y)
    assert not model.converged_.any()


def test_empty_kernels_are_reported_and_harmless(labelled):
    X, y = labelled
    means = np.vstack([X[:3], np.full((1, 5), 1e4)])
    model = plain(
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
        plain(
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
        model = plain(n_components=4, random_state=0).fit(X, y)
    assert np.isfinite(model.class_log_likelihood(X)).all()


def test_reaching_a_floor_that_is_meant_to_be_felt_is_no_trouble(rng):
    X = np.vstack([rng.standard_normal((200, 2)), np.full((50, 2), 3.0)])
    y = np.repeat([0, 1], [200, 50])
    model = plain(n_components=4, reg_covar=0.01, random_state=0).fit(X, y)
    smallest = np.linalg.eigvalsh(model.blocks_[0].covariances / np.outer(X.std(0), X.std(0)))
    assert np.isclose(smallest.min(), 0.01)
    n = int((np.abs(smallest.min(axis=1) - 0.01) < 1e-9).sum())
    assert count_at_floor(model.blocks_, 0.01) == n >= 1
    assert count_at_floor(model.blocks_, 0.001) == 0


def test_constant_features_are_no_collapse(labelled):
    X, y = labelled
    X = np.hstack([X, np.full((len(X), 2), [[1e9, 0.0]])])
    model = SharedKernelClassifier(n_components=3, n_blocks=1, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8


def test_verbose_prints_to_stderr(labelled, capsys):
    X, y = labelled
    plain(n_components=3, max_iter=12, tol=0, verbose=1, random_state=0).fit(X, y)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert len(lines) == 4
    assert "pass 1/12" in lines[0]
    assert "log likelihood/sample" in lines[0]
    assert "pass 10/12" in lines[1]
    assert "pass 12/12" in lines[2]
    assert lines[3] == "done after 12 passes"
    plain(n_components=2, verbose=2, random_state=0).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert f"converged after {len(lines) - 1} passes" == lines[-1]
    SharedKernelClassifier(verbose=2, random_state=0).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert f"converged after {len(lines) - 6} passes; 5 discriminative" == lines[-1]
    assert "] discriminative pass 5/5  log posterior/sample" in lines[-2]


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


needs_callbacks = pytest.mark.skipif(
    parse_version(sklearn.__version__) < parse_version("1.9"), reason="callbacks came with 1.9"
)


class StopAfter:
    """A callback that scores the model after every pass, and asks to stop after so many."""

    def __init__(self, passes):
        self.passes, self.seen, self.later, self.torn_down = passes, [], [], False

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
        if isinstance(estimator, SharedKernelClassifier):
            score = fitted_estimator.score(X, y)
            if context.task_name == "EM pass":
                self.seen.append(score)
            elif context.task_name == "discriminative pass":
                self.later.append(score)
            else:
                self.final = score
        return len(self.seen) >= self.passes


@needs_callbacks
def test_callbacks_see_every_pass_and_may_stop(labelled):
    from sklearn.callback import ScoringMonitor

    X, y = labelled
    stopper, monitor = StopAfter(4), ScoringMonitor(scoring="accuracy")
    model = SharedKernelClassifier(n_components=4, tol=0, random_state=0)
    model.set_callbacks(stopper, monitor).fit(X, y)
    assert model.n_iter_ == 4
    assert stopper.torn_down
    assert stopper.seen[-1] == stopper.final == model.score(X, y)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "EM pass"]
    assert [row["accuracy"] for row in rows] == stopper.seen
    names = [row["task_name"] for row in monitor.get_logs().data]
    assert "discriminative pass" not in names, "a stop ends the fit, not EM alone"
    many = StopAfter(3)
    model.set_params(n_init=5).set_callbacks(many).fit(X, y)
    assert len(many.seen) == 3, "a stop ends the fit, not one start"
    model.set_params(n_init=1, max_iter=6).set_callbacks().fit(X, y)
    assert model.n_iter_ == 6, "no callbacks are left"


@needs_callbacks
def test_the_last_callback_sees_the_fitted_model(rng):
    """With its block weights and its temperature, also if there were others before."""
    X, y = rng.standard_normal((1200, 6)), np.arange(1200) % 3
    X[:, 0] += y

    class Last:
        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...
        def on_fit_task_begin(self, estimator, context): ...

        def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
            self.proba = fitted_estimator.predict_proba(X)

    last = Last()
    for n_blocks in (2, 3):
        model = SharedKernelClassifier(n_blocks=n_blocks, max_iter=5, tol=0, random_state=0)
        model.set_callbacks(last).fit(X, y)
        assert (model.block_weights_ != 1.0).all()
        np.testing.assert_array_equal(last.proba, model.predict_proba(X))


@needs_callbacks
def test_a_pipeline_hands_on_callbacks_that_ask_for_it(labelled):
    X, y = labelled
    everywhere = StopAfter(99)
    everywhere.max_propagation_depth = None
    pipeline = make_pipeline(StandardScaler(), SharedKernelClassifier(n_components=3))
    pipeline.set_callbacks(everywhere).fit(X, y)
    assert len(everywhere.seen) == pipeline[-1].n_iter_
    assert len(everywhere.later) == len(pipeline[-1].log_posteriors_) - 1 == 5


@needs_callbacks
def test_warnings_point_to_the_caller_with_callbacks_too(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=4, max_iter=3, tol=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match="max_iter=3 ended") as seen:
        model.set_callbacks(StopAfter(9)).fit(X, y)
    assert seen[0].filename == __file__
