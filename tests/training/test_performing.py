"""All samples are trained on after a choice by some that were held out."""

from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import pytest

from pskem import SharedKernelClassifier
from pskem.engine import workers
from pskem.starts import Start
from pskem.training import Samples, Settings, make_plan, unwatched
from pskem.training._performing import better, perform, perform_again, plan_again

N = 20_000  # from here on samples are held out


@pytest.fixture(scope="module")
def many():
    """Three Gaussian classes that overlap: soon there is nothing left for passes to gain."""
    rng = np.random.default_rng(4)
    y = rng.integers(3, size=N)
    centres = rng.standard_normal((3, 3)) * 1.2
    X = centres[y] + rng.standard_normal((N, 3))
    return X @ rng.standard_normal((3, 3)) + [0.0, 5.0, -1.0], y


def single(**settings):
    """One kernel a class, in which EM has a closed form."""
    given = {"n_components": 3, "shrinkage": 0.0, "random_state": 0, **settings}
    return SharedKernelClassifier(**given)


def decisions(model):
    return np.r_[model.block_weights_, model.temperature_, model.shares_]


def test_kernels_are_of_all_samples_and_calibration_of_those_held_out(many):
    X, y = many
    watched = single(discriminative_iter=0, block_weights="fit", early_stopping=True).fit(X, y)
    model = single(discriminative_iter=0, block_weights="fit").fit(X, y)
    (block,), (before,) = model.blocks_, watched.blocks_
    for j, row in enumerate(block.weights):
        own, k = X[y == j], row.argmax()
        np.testing.assert_allclose(block.means[k], own.mean(axis=0), atol=1e-9)
        np.testing.assert_allclose(block.covariances[k], np.cov(own.T, bias=True), atol=1e-9)
        assert not np.allclose(before.means[k], own.mean(axis=0), atol=1e-4)
    np.testing.assert_allclose(decisions(model), decisions(watched), rtol=1e-6)
    # What is unusual is told by samples that were not trained on.
    references = watched.reference_log_densities_
    np.testing.assert_allclose(model.reference_log_densities_, references, rtol=1e-6)


def test_passes_are_those_that_validation_kept(many):
    X, y = many
    watched = single(early_stopping=True).fit(X, y)
    model = single().fit(X, y)
    kept = watched.discriminative_best_iter_
    assert 0 < kept < len(watched.log_posteriors_) - 1, "validation must have something to choose"
    assert model.discriminative_best_iter_ == kept
    assert len(model.log_posteriors_) == kept + 1
    scores = model.discriminative_scores_
    np.testing.assert_allclose(scores, watched.discriminative_scores_, atol=1e-12)
    # The trace is of all samples: with the rule of the passes, which is not that of the answers.
    assert (np.diff(model.log_posteriors_) > 0.0).all()
    assert model.log_posteriors_[-1] / watched.log_posteriors_[kept] == pytest.approx(
        N / (N - 2000), rel=0.02
    )
    np.testing.assert_allclose(decisions(model), decisions(watched), rtol=1e-6)
    assert np.abs(model.blocks_[0].means - watched.blocks_[0].means).max() > 1e-4


def test_all_samples_gain(many):
    """Where half of them had been held out, beyond chance over several draws."""
    X, y = many
    asked, answers = X[N // 2 :], y[N // 2 :]
    model = single(n_components=6, shrinkage="auto", validation_fraction=0.5)
    settings = Settings.parse(model.get_params(deep=False))._replace(enough_to_validate=True)
    gains = []
    for draw in range(12):
        own = slice(400 * draw, 400 * (draw + 1))
        samples = Samples(X[own], y[own], np.arange(3), np.bincount(y[own]) / 400)
        plan = make_plan(settings, samples, None, draw)
        with workers(1) as parallel_map:
            _, first = perform(plan, samples, parallel_map, unwatched)
            again = plan_again(settings, samples, first, draw, None)
            _, second = perform_again(again, samples, first, parallel_map, unwatched)
        assert (plan.rows.size, plan.held_out.size, again.rows.size) == (200, 200, 400)
        assert first.to_repeat
        assert not second.to_repeat
        before, after = (
            one.refined.best.log_posterior(asked)[np.arange(N // 2), answers].mean()
            for one in (first, second)
        )
        gains.append(after - before)
    assert np.mean(gains) > 2.0 * np.std(gains) / np.sqrt(len(gains))


def test_em_goes_on_from_its_kernels(many):
    """As if somebody had taken them for the start of a plain EM of all samples."""
    X, y = many
    seen = []
    given = {"max_iter": 4, "tol": 0.0}
    model = single(**given, n_components=9).fit(X, y, watch=seen.append)
    tried = len(model.discriminative_scores_) - 1
    assert model.discriminative_best_iter_ > 0
    (found,), (one,) = seen[3].blocks, seen[4 + tried + 3].blocks
    start = Start(found.weights, found.means, found.covariances)
    plain = single(
        **given, n_components="auto", init=start, early_stopping=False, discriminative_iter=0
    )
    (other,) = plain.fit(X, y).blocks_
    np.testing.assert_allclose(one.means, other.means, atol=1e-8)
    np.testing.assert_allclose(one.covariances, other.covariances, atol=1e-8)
    np.testing.assert_allclose(model.log_likelihoods_, plain.log_likelihoods_, rtol=1e-12)
    # EM would still move them: another start would show.
    assert np.abs(one.means - found.means).max() > 1e-3


@pytest.mark.parametrize("chosen", [True, False])
def test_steps_are_of_the_same_kind(many, chosen):
    """Small ones where validation chose among them; else they grow in both trainings."""
    X, y = many[0][:900], many[1][:900]
    model = single(block_weights="fit", discriminative_iter=4)
    settings = Settings.parse(model.get_params(deep=False))._replace(enough_to_validate=chosen)
    samples = Samples(X, y, np.arange(3), np.bincount(y) / len(y))
    plan = make_plan(settings, samples, None, 0)
    with workers(1) as parallel_map:
        _, first = perform(plan, samples, parallel_map, unwatched)
    assert first.to_repeat
    again = plan_again(settings, samples, first, 0, None)
    assert again.refinement.growing == plan.refinement.growing == (not chosen)


def test_given_block_weights_stay(many):
    X, y = many
    seen = []
    model = single(n_blocks=2, block_weights=[0.5, 2.0]).fit(X, y, watch=seen.append)
    assert len(seen) > len(model.discriminative_scores_) + model.n_iter_
    for now in seen:
        np.testing.assert_array_equal(now.block_weights, [0.5, 2.0])
    np.testing.assert_array_equal(model.block_weights_, [0.5, 2.0])


def test_what_has_lost_is_not_kept(many):
    """Judged by the samples that were held out, which a better model cannot answer worse about."""
    X, y = many
    settings = Settings.parse(single().get_params(deep=False))
    samples = Samples(X, y, np.arange(3), np.bincount(y) / N)
    plan = make_plan(settings, samples, None, 0)
    with workers(1) as parallel_map:
        _, first = perform(plan, samples, parallel_map, unwatched)
        again = plan_again(settings, samples, first, 0, None)
        _, second = perform_again(again, samples, first, parallel_map, unwatched)
        assert better(first, second, samples, parallel_map) is second
        confused = second.refined.best.weighed(np.array([-1.0]), 1.0)
        worse = second._replace(refined=second.refined._replace(best=confused))
        assert better(first, worse, samples, parallel_map) is first
        assert better(worse, second, samples, parallel_map) is second


@pytest.mark.parametrize("how", ["asked for", "given", "warm"])
def test_whoever_asks_for_validation_gets_the_training_that_it_watched(many, how):
    X, y = many
    model = single(early_stopping=how == "asked for" or "auto", warm_start=how == "warm")
    given = {"X_val": X[:2000], "y_val": y[:2000]} if how == "given" else {}
    model.fit(X[2000:] if given else X, y[2000:] if given else y, **given)
    assert len(model.log_posteriors_) == len(model.discriminative_scores_)
    assert len(model.log_posteriors_) > model.discriminative_best_iter_ + 1


def test_a_stop_on_the_way_keeps_what_validation_chose(many, capsys):
    """The watcher sees the passes of both trainings; the second is not kept by halves."""
    X, y = many
    seen = []
    model = single(random_state=1).fit(X, y, watch=seen.append)
    assert model.discriminative_best_iter_ > 1, "there must be a half to stop at"
    watched = single(random_state=1, early_stopping=True)
    first = []
    watched.fit(X, y, watch=first.append)
    n_first = len(first)
    assert len(seen) == n_first + model.n_iter_ + model.discriminative_best_iter_

    def stopped_at(number):
        left = iter(range(number - 1))
        return single(random_state=1, verbose=1).fit(
            X, y, watch=lambda now: next(left, None) is None
        )

    for number in (n_first + 1, n_first + model.n_iter_ + 1):  # in EM, and after it
        stopped = stopped_at(number)
        (one,), (other,) = stopped.blocks_, watched.blocks_
        np.testing.assert_allclose(one.means, other.means, atol=1e-9)
        np.testing.assert_allclose(decisions(stopped), decisions(watched), rtol=1e-6)
        assert len(stopped.log_posteriors_) == len(stopped.discriminative_scores_)
        assert capsys.readouterr().err.endswith("; the training before it is kept\n")
    whole = stopped_at(len(seen))  # when all is done
    np.testing.assert_array_equal(whole.blocks_[0].means, model.blocks_[0].means)


def test_the_bits_do_not_hang_on_threads_or_on_the_order_of_rows(many, threaded):
    X, y = many
    order = np.random.default_rng(2).permutation(N)
    one = single(n_components=6, n_jobs=1).fit(X, y)
    two = single(n_components=6, n_jobs=2).fit(X[order], y[order])
    for a, b in zip(one.blocks_, two.blocks_, strict=True):
        for left, right in zip(a.kernels, b.kernels, strict=True):
            np.testing.assert_array_equal(left, right)
    np.testing.assert_array_equal(decisions(one), decisions(two))


def test_samples_without_a_class_are_trained_on_again_too(many):
    """1,500 labels are enough to hold some out; the others stay in the training."""
    X, y = many
    labels = y.astype(float)
    labels[1500:5000] = np.nan
    model = single(unlabelled_weight=1.0).fit(X[:5000], labels[:5000])
    assert len(model.discriminative_scores_) > 0
    assert len(model.log_posteriors_) == model.discriminative_best_iter_ + 1
    gains = np.diff(model.joint_log_likelihoods_)
    assert (gains > -1e-9 * np.abs(model.joint_log_likelihoods_[:-1])).all()


@pytest.mark.parametrize("verbose", [0, 1])
def test_the_bar_says_that_all_samples_follow(many, capsys, verbose):
    X, y = many
    model = single(verbose=verbose).fit(X, y)
    lines = capsys.readouterr().err.splitlines()
    endings = [line for line in lines if line.startswith("converged")]
    assert len(endings) == 2 * verbose
    if verbose:
        assert endings[0].endswith("; now on all samples")
        assert f"discriminative pass {model.discriminative_best_iter_}/" in lines[-2]


@pytest.mark.skipif(find_spec("sklearn.callback") is None, reason="scikit-learn has no callbacks")
def test_callbacks_see_both_trainings(many):
    X, y = many

    class Counter:
        max_propagation_depth = 0
        names: ClassVar[list[str]] = []
        most = 0

        def setup(self, estimator, context): ...
        def teardown(self, estimator, context): ...

        def on_fit_task_begin(self, estimator, context):
            if context.parent is None:
                self.most = context.max_subtasks

        def on_fit_task_end(self, estimator, context, *, X=None, y=None, fitted_estimator=None):
            self.names.append(context.task_name)

    counter = Counter()
    model = single().set_callbacks(counter).fit(X, y)
    later = counter.names.count("discriminative pass")
    tried = len(model.discriminative_scores_) - 1
    assert later == tried + model.discriminative_best_iter_
    assert counter.names.count("EM pass") > model.n_iter_
    assert len(counter.names) - 1 <= counter.most
