"""What a fit tells: convergence, kernels in trouble, progress, callbacks."""

import io

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.fixes import parse_version

from pskem import SharedKernelClassifier, Shrinkage
from pskem.starts import ClassKMeans, Start
from pskem.training import State
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
        init=Start(means=means, covariances=[np.eye(5)] * 4, reseed=False),
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
            init=Start(np.full((3, K), 1 / K), far[:K], [np.eye(5) * 9.0] * K, reseed=False),
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


@pytest.fixture
def flat(rng):
    """Two classes; the third of five features is theirs alone but for a trace of noise."""
    y = np.repeat([0, 1], [120, 180])
    X = rng.standard_normal((300, 5)) + y[:, None]
    X[:, 2] = 3.0 * y + 1e-7 * rng.standard_normal(300)
    return X, y


def collapse(model, X, y):
    """What the fit says of collapsed kernels."""
    with pytest.warns(ConvergenceWarning, match="^Kernels collapsed in some direction") as seen:
        model.fit(X, y)
    (text,) = [str(each.message) for each in seen if "collapsed" in str(each.message)]
    return text


@pytest.mark.parametrize("partition", [[[0, 1, 2, 3, 4]], [[4, 3], [0, 2, 1]]])
@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag"])
def test_features_that_make_kernels_collapse_are_named(flat, covariance_type, partition):
    X, y = flat
    settings = {
        "n_components": 4,
        "covariance_type": covariance_type,
        "max_iter": 5,
        "tol": 0,
        "random_state": 0,
    }
    text = collapse(plain(partition=partition, **settings), X, y)
    assert "Remove feature(s) that hardly vary within a class (2), use fewer components" in text
    assert ("(block 1: " in text) == (len(partition) == 2)
    # A data frame has names.
    frame = pd.DataFrame(X, columns=["length", "width", "code", "height", "weight"])
    text = collapse(plain(partition=partition, **settings), frame, y)
    assert "Remove feature(s) that hardly vary within a class ('code'), use fewer" in text
    # Without the feature there is no trouble.
    others = [[f for f in block if f != 2] for block in partition]
    plain(partition=others, **settings).fit(X, y)


def test_features_that_vary_are_not_named(rng):
    """A class in a plane that is aslant: no feature alone is at fault."""
    y = np.repeat([0, 1], [200, 100])
    X = rng.standard_normal((300, 3))
    X[y == 1, 2] = -X[y == 1, 0] - X[y == 1, 1]
    text = collapse(plain(n_components=2, init=ClassKMeans(), random_state=0), X, y)
    assert "Remove" not in text
    assert "stands in. Use fewer components, a larger reg_covar such as 0.01," in text


def test_of_many_features_a_warning_names_a_few(rng):
    y = np.arange(300) % 2
    X = np.hstack([rng.standard_normal((300, 1)), np.repeat(y[:, None], 9, axis=1)])
    X[:, 1:] *= rng.choice([-1.0, 1.0], 9)
    model = plain(n_components=2, covariance_type="diag", tol=0, max_iter=3, random_state=0)
    text = collapse(model, X, y)
    assert "within a class (1, 2, 3, 4, 5, ...)" in text


@pytest.mark.parametrize(
    ("shrinkage", "on"),
    [(0.0, False), (Shrinkage(0.0, "pooled"), False), ("auto", True), (2, True)],
)
def test_shrinkage_is_advised_where_there_is_none(flat, shrinkage, on):
    model = plain(n_components=4, shrinkage=shrinkage, tol=0, max_iter=3, random_state=0)
    text = collapse(model, *flat)
    assert ("shrinkage='auto'" in text) == (not on)
    assert ("more shrinkage" in text) == on


@pytest.mark.parametrize(
    ("covariance_type", "advice"),
    [
        ("full", "or covariance_type='tied' or 'diag'."),
        ("tied", "or covariance_type='diag'."),
        ("diag", "or covariance_type='tied' or 'spherical'."),
    ],
)
def test_no_remedy_is_what_there_is_already(flat, covariance_type, advice):
    settings = {"n_components": 4, "tol": 0, "max_iter": 3, "random_state": 0}
    model = plain(covariance_type=covariance_type, **settings)
    assert collapse(model, *flat).endswith(advice)


def test_spherical_kernels_have_no_simpler_form(flat):
    X, y = flat
    model = plain(covariance_type="spherical", partition=[[2]], n_components=4, random_state=0)
    text = collapse(model, X, y)
    assert "covariance_type" not in text
    assert text.endswith("or shrinkage='auto'.")


def test_a_block_of_one_feature_names_it(flat):
    model = plain(partition=[[0, 1], [2]], n_components=4, random_state=0)
    assert "within a class (2)" in collapse(model, *flat)


def test_reaching_a_floor_that_is_meant_to_be_felt_is_no_trouble(rng):
    X = np.vstack([rng.standard_normal((200, 2)), np.full((50, 2), 3.0)])
    y = np.repeat([0, 1], [200, 50])
    model = plain(n_components=4, reg_covar=0.01, random_state=0).fit(X, y)
    smallest = np.linalg.eigvalsh(model.blocks_[0].covariances / np.outer(X.std(0), X.std(0)))
    assert np.isclose(smallest.min(), 0.01)
    n = int((np.abs(smallest.min(axis=1) - 0.01) < 1e-9).sum())
    assert model.model_.count_at_floor(0.01) == n >= 1
    assert model.model_.count_at_floor(0.001) == 0


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
    SharedKernelClassifier(verbose=2, early_stopping=False, random_state=0).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    assert f"converged after {len(lines) - 6} passes; 5 discriminative" == lines[-1]
    assert "] discriminative pass 5/5  log posterior/sample" in lines[-2]


def test_progress_bar_on_a_terminal(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def state(passes):
        """The second start after so many passes, with two blocks."""
        trace = np.tile([-10.0, -20.0], (passes, 1))
        scores, converged = np.full(passes, 0.875), np.zeros(2, dtype=bool)
        made = trace, trace.sum(axis=1), scores, converged
        return State(1, None, (), (), *made, None, (), passes, "")

    monkeypatch.setenv("COLUMNS", "120")
    stream = Terminal()
    bar = PassBar(max_iter=4, n_init=2, n_samples=10, every=10, stream=stream)
    assert bar(state(2)) is False
    bar.close("done")
    text = stream.getvalue()
    assert text.startswith("\r")
    assert text.endswith("\ndone\n")
    assert "start 2/2 [########........] pass 2/4" in text
    assert "log likelihood/sample -3.0000" in text
    assert "validation 0.8750" in text
    monkeypatch.setenv("COLUMNS", "30")
    bar(state(3))
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
    model = SharedKernelClassifier(n_components=3, discriminative_iter=5, random_state=0)
    pipeline = make_pipeline(StandardScaler(), model)
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


@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical"])
def test_kernels_that_collapse_to_points_blame_no_feature(rng, covariance_type):
    X = np.concatenate([rng.standard_normal((60, 3)), np.full((20, 3), 5.0)])
    y = np.repeat([0, 1], [60, 20])
    model = SharedKernelClassifier(
        n_components=2, covariance_type=covariance_type, shrinkage=0.0, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="Kernels collapsed") as told:
        model.fit(X, y)
    assert not [w for w in told if "Remove feature" in str(w.message)]
