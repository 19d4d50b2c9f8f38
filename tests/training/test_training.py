"""How a fit goes: several starts, validation, stopping, the pass that is kept."""

import dataclasses
import pickle
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_iris

import pskem
from pskem import Model, SharedKernelClassifier
from pskem.engine import serial_map, workers
from pskem.starts import Uniform
from pskem.training import (
    Refined,
    Refinement,
    Refiner,
    Samples,
    Settings,
    State,
    Trainer,
    arrange,
    draw_seeds,
    make_plan,
    refine,
    split,
    train,
)
from reference import COVARIANCE_TYPES, plain


def planned(model, X, y, X_val=None, y_val=None):
    """The plan of a fit, and its samples; y counts from 0."""
    settings = Settings.parse(model.get_params(deep=False))
    counts = np.bincount(y)
    validation = None if X_val is None else (X_val, y_val, None)
    samples = Samples(X, y, np.arange(len(counts)), counts / len(y), validation)
    return make_plan(settings, samples, None, *draw_seeds(model.random_state)), samples


def observed(plan, samples):
    """The outcomes of a training, and the states of all passes in the order they were seen."""
    seen = []
    with workers(1) as parallel_map:  # BLAS rounds by the number of its threads
        data = arrange(plan, samples, parallel_map)
        trainer, refiner = Trainer(plan, data, parallel_map), Refiner(plan, data, parallel_map)
        run = train(trainer, samples.classes, samples.priors, seen.append)
        return run, refine(refiner, run, seen.append), seen


def outcomes(model, X, y, X_val=None, y_val=None):
    """The last states of all starts that a fit makes."""
    _, _, seen = observed(*planned(model, X, y, X_val, y_val))
    return [state for state in seen if isinstance(state, State) and state.ended]


def leaves(value):
    """Whatever arrays and numbers a value is made of, but for what follows from the others."""
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        value = tuple(getattr(value, f.name) for f in fields if not f.metadata.get("derived"))
    if isinstance(value, tuple | list):
        for part in value:
            yield from leaves(part)
    else:
        yield value


def assert_same_bits(one, two):
    for a, b in zip(leaves(one), leaves(two), strict=True):
        assert type(a) is type(b)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a.tobytes() == b.tobytes()
        else:
            assert a == b


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


def test_several_starts_with_early_stopping_keep_the_best_validated(labelled):
    X, y = labelled
    settings = {"n_components": 4, "n_init": 6, "max_iter": 10, "tol": 0, "random_state": 4}
    chosen = set()
    # The likelihood, which sees the same data every time, would always choose the same start.
    # Labels at random choose one at random, on every machine.
    for seed in range(8):
        labels = np.random.default_rng(seed).permutation(y[400:])
        model = plain(early_stopping=True, **settings)
        runs = outcomes(model, X[:400], y[:400], X[400:], labels)
        best = [run.scores.max() for run in runs]
        model.fit(X[:400], y[:400], X_val=X[400:], y_val=labels)
        assert model.validation_scores_.max() == max(best)
        chosen.add(int(np.argmax(best)))
    assert len(chosen) > 1


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
    train, val = split(y, 0.25, 3, seed=0)
    np.testing.assert_array_equal(np.sort(np.append(train, val)), np.arange(len(X)))
    np.testing.assert_array_equal(np.bincount(y[val]), np.round(np.bincount(y) * 0.25))
    train, val = split(np.arange(3), 0.9, 3, seed=0)
    assert len(train) == 3
    assert len(val) == 0


def test_early_stopping_holds_out_the_whole_fraction_of_many_small_classes():
    """A tenth of 4 samples rounds to none; a tenth of 100 such classes is 40 samples."""
    y = np.repeat(np.arange(100), 4)
    train, val = split(y, 0.1, 100, seed=0)
    assert len(val) == 40
    assert np.bincount(y[val]).max() == 1
    assert len(np.unique(y[train])) == 100
    train, val = split(y, 0.9, 100, seed=0)
    np.testing.assert_array_equal(np.bincount(y[val]), 3)


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
def test_several_starts_keep_the_best(labelled):
    X, y = labelled
    start = Uniform(-20, 60, 10.0, reseed=False)
    model = plain(n_components=6, init=start, n_init=5, random_state=0, max_iter=300)
    finals = [run.log_likelihoods[-1].sum() for run in outcomes(model, X, y)]
    assert len(set(finals)) == 5
    assert model.fit(X, y).log_likelihoods_[-1].sum() == max(finals)


def test_no_tolerance_runs_all_passes():
    """Also when the likelihood stands still and rounding makes it fall."""
    X, y = load_iris(return_X_y=True)
    model = plain(n_components=3, tol=0, max_iter=120, random_state=1).fit(X, y)
    assert model.n_iter_ == 120
    assert np.diff(model.log_likelihoods_, axis=0).min() <= 0.0
    assert not model.converged_.any()


def test_identical_starts_are_run_once(labelled):
    X, y = labelled
    model = plain(n_components=2, random_state=0, tol=0, max_iter=2).fit(X, y)
    seen = []
    model.set_params(n_init=5, warm_start=True).fit(X, y, watch=seen.append)
    assert len(seen) == 2


def test_a_watcher_sees_the_blocks_of_every_pass_and_may_stop(labelled):
    X, y = labelled
    model = plain(n_components=4, n_blocks=2, max_iter=6, tol=0, random_state=0)
    seen = []
    model.fit(X, y, watch=seen.append)
    assert len(seen) == model.n_iter_ == 6
    assert all(isinstance(each, Model) for each in seen)
    for last, block in zip(seen[-1].blocks, model.blocks_, strict=True):
        assert (last.means == block.means).all()
        assert (last.weights == block.weights).all()
    means = [each.blocks[0].means for each in seen]
    assert (means[0] != means[1]).any()
    model.fit(X, y, watch=lambda each: np.allclose(each.blocks[0].means, means[2]))
    assert model.n_iter_ == 3


@pytest.mark.parametrize("n_init", [1, 3])
def test_a_watcher_that_ends_em_ends_the_training(labelled, n_init):
    X, y = labelled
    seen = []
    settings = {"init": "k-means++", "max_iter": 6, "tol": 0, "random_state": 0}
    model = SharedKernelClassifier(n_init=n_init, early_stopping=False, **settings)
    model.fit(X, y, watch=lambda each: seen.append(each) or len(seen) == 6 * n_init - 4)
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
    model.fit(X, y, watch=seen.append)
    assert len(seen) == 2


def test_watchers_see_which_weights_are_open(labelled):
    X, y = labelled
    seen = []
    model = SharedKernelClassifier(n_components=6, random_state=0)
    model.fit(X, y, watch=lambda each: seen.append(each.blocks[0].allowed))
    assert 0 < model.blocks_[0].allowed.sum() == 6
    for allowed in seen:
        np.testing.assert_array_equal(allowed, model.blocks_[0].allowed)


def test_where_nothing_can_be_held_out_all_passes_are_made(rng):
    y = np.arange(1000) % 2
    X = rng.standard_normal((1000, 2)) + y[:, None]
    model = SharedKernelClassifier(
        validation_fraction=1e-4,
        discriminative_iter=1,
        max_iter=2,
        tol=0,
        random_state=0,
        warm_start=True,  # nothing is tried
    )
    model.fit(X, y)
    assert len(model.log_posteriors_) == 2
    assert len(model.discriminative_scores_) == 0
    np.testing.assert_array_equal(model.block_weights_, 1.0)


# ------------------------------------------------------------------------- states and observers


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_observers_see_states_in_order(labelled, covariance_type):
    """Each holds the trace so far, and the next one's first news is the likelihood of its model."""
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=5,
        n_blocks=2,
        covariance_type=covariance_type,
        n_init=2,
        max_iter=4,
        tol=0,
        discriminative_iter=3,
        random_state=0,
    )
    run, refined, seen = observed(*planned(model, X, y))
    em, later = seen[:8], seen[8:]
    assert all(type(state) is State and not state.discriminative for state in em)
    assert [(state.start, state.iteration) for state in em] == [
        (start, i) for start in (0, 1) for i in (1, 2, 3, 4)
    ]
    assert [state.ended for state in em] == ["", "", "", "passes"] * 2
    own = np.arange(len(y))
    for one, two in pairwise(em):
        if one.start == two.start:
            np.testing.assert_array_equal(two.log_likelihoods[:-1], one.log_likelihoods)
            expected = one.model.log_likelihood(X)[own, :, y].sum(axis=0)
            np.testing.assert_allclose(two.log_likelihoods[-1], expected, rtol=1e-9)
            assert two.objective == pytest.approx(expected.sum(), rel=1e-9)
    assert run.start == max(em[3::4], key=lambda state: state.objective).start
    assert 1 <= len(later) <= 3
    assert all(type(state) is Refined and state.discriminative for state in later)
    assert [state.iteration for state in later] == list(range(1, len(later) + 1))
    assert {state.start for state in later} == {run.start}
    for state in later:
        expected = state.model.log_posterior(X)[own, y].sum()
        assert state.objective == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert (np.diff(refined.log_posteriors) > 0.0).all()
    # A watcher of a fit sees the models of the same passes.
    watched = []
    model.set_params(early_stopping=False).fit(X, y, watch=watched.append)
    for state, each in zip(seen, watched, strict=True):
        assert_same_bits(state.model, each)
    assert_same_bits(model.model_, refined.best)


def keep(state, how, folder):
    """A state as it comes back from where it was kept."""
    if how == "pickle":
        return pickle.loads(pickle.dumps(state))
    pskem.save(state, folder / "state.pskem")
    return pskem.load(folder / "state.pskem", type(state))


def finish(worker, state):
    """The last state of a training that goes on from here."""
    while not state.ended:
        state = worker.advance(state)
    return state


@pytest.mark.parametrize("how", ["pickle", "file"])
@pytest.mark.parametrize("after", [1, 4])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_resumed_training_is_undisturbed_training(
    labelled, tmp_path, covariance_type, dtype, after, how
):
    """To the bit, with validation, patience and kernels that start anew along the way."""
    X, y = labelled[0].astype(dtype), labelled[1]
    model = plain(
        n_components=9,
        n_blocks=2,
        covariance_type=covariance_type,
        init=Uniform(-20, 120, 3.0),
        early_stopping=True,
        n_iter_no_change=6,
        max_iter=12,
        tol=1e-9,
        random_state=0,
    )
    plan, samples = planned(model, X[:400], y[:400], X[400:], y[400:])
    run, _, seen = observed(plan, samples)
    assert seen[after - 1].iteration == after < run.iteration
    assert min(run.reseedings) < 3, "kernels did run empty"
    kept = keep(seen[after - 1], how, tmp_path)
    assert_same_bits(kept, seen[after - 1])
    with workers(2) as parallel_map:
        trainer = Trainer(plan, arrange(plan, samples, parallel_map), parallel_map)
        assert_same_bits(finish(trainer, kept), run)
    with pytest.raises(AssertionError):
        assert_same_bits(kept.model, run.model)


@pytest.mark.parametrize("how", ["pickle", "file"])
@pytest.mark.parametrize("after", [1, 3])
@pytest.mark.parametrize("pull", [0.0, 5.0])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_resumed_refinement_is_undisturbed_refinement(
    labelled, tmp_path, covariance_type, pull, after, how
):
    X, y = labelled
    model = SharedKernelClassifier(
        n_components=6,
        n_blocks=2,
        covariance_type=covariance_type,
        max_iter=3,
        tol=0,
        discriminative_iter=8,
        n_iter_no_change=None,
        random_state=0,
    )
    plan, samples = planned(model, X[:400], y[:400], X[400:], y[400:])
    assert plan.refinement == Refinement(True, 8, True, growing=False)
    plan = plan._replace(refinement=plan.refinement._replace(pull=pull))
    _, refined, seen = observed(plan, samples)
    state = [each for each in seen if isinstance(each, Refined)][after - 1]
    assert state.iteration == after < refined.iteration
    kept = keep(state, how, tmp_path)
    assert_same_bits(kept, state)
    with workers(2) as parallel_map:
        refiner = Refiner(plan, arrange(plan, samples, parallel_map), parallel_map)
        last = finish(refiner, kept)
        last = last._replace(best=refiner.calibrated(last.best))  # the model that is kept
    assert_same_bits(last, refined)
    with pytest.raises(AssertionError):
        assert_same_bits(kept.model, refined.model)


def test_an_observer_that_asks_for_it_ends_the_refinement(labelled):
    plan, samples = planned(SharedKernelClassifier(max_iter=3, tol=0, random_state=0), *labelled)
    data = arrange(plan, samples, serial_map)
    run = train(
        Trainer(plan, data, serial_map), samples.classes, samples.priors, lambda state: False
    )
    refiner = Refiner(plan, data, serial_map)
    whole = refine(refiner, run, lambda state: False)
    part = refine(refiner, run, lambda state: state.iteration == 2)
    assert part.ended == "asked"
    assert part.iteration == 2 < whole.iteration
    np.testing.assert_array_equal(part.log_posteriors, whole.log_posteriors[:3])
