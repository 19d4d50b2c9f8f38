"""Trainings that are killed go on from their checkpoint, and end with the same bits."""

import os
import random
import shutil
import signal
import time
from copy import deepcopy
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

import pskem
from pskem import Checkpoint, SharedKernelClassifier, SharedKernelDensity
from pskem.engine import ArrayPieces
from pskem.estimators import Candidate, configured
from pskem.persistence import CheckpointError, ModelFileError, checkpoints, read_header
from pskem.training import _fitting
from pskem.workflow import Task, last_fit, train, tune
from reference import distance

pytestmark = pytest.mark.plumbing

N = 20_500


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    centres = rng.standard_normal((3, 2, 3)) * 1.5
    return centres[y, rng.integers(2, size=N)] + rng.standard_normal((N, 3)), y


@pytest.fixture
def eager(monkeypatch):
    """Write after every pass."""
    monkeypatch.setattr(checkpoints, "SHARE", np.inf)


FITS = {
    "defaults": SharedKernelClassifier(random_state=0, n_jobs=1),
    "starts": SharedKernelClassifier(
        n_components=8, init="kmeans", n_init=3, max_iter=8, tol=0.0, random_state=0, n_jobs=1
    ),
    "blocks": SharedKernelClassifier(n_components=9, n_blocks=2, random_state=0, n_jobs=1),
}


def in_child(work):
    """Do some work in a process of its own; its number."""
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return process


def telling(work):
    """Do some work in a process, with a function that tells names of what is done.

    Its number, and the names as they come.
    """
    names, pipe = os.pipe()
    process = in_child(lambda: work(lambda name: os.write(pipe, f"{name}\n".encode())))
    os.close(pipe)
    return process, os.fdopen(names)


def tell_what_is_put(tell):
    """Let checkpoints of this process tell what is put there, before they write it down."""
    put = Checkpoint.put

    def told(self, name, value):
        tell(f"{name}, {getattr(value, 'iteration', 0)}")
        put(self, name, value)

    Checkpoint.put = told


class Killing:
    """A training that is killed and begun again until it ends, again and again.

    work : the training, which writes a model to the path that it is given, and tells what it does
    place : its checkpoint
    kinds : words for what it does, among which it is to be killed
    names : what it tells; each name is there once, as passes are numbered
    after : of each process that was killed when there was a checkpoint, what it had told last
    """

    def __init__(self, work, place, kinds=("EM", "discriminative")):
        self.work, self.place, self.kinds, self.after = work, place, kinds, []
        expected, times = place.with_name("undisturbed.pskem"), [time.monotonic()]
        self.names, code = self._run(expected, times=times)
        assert code == 0
        assert len(set(self.names)) == len(self.names)
        self.pauses = np.diff([*times, time.monotonic()])
        self.expected = expected.read_bytes()

    def kill(self, times, of_each, rng):
        """Kill so many processes, so many of each training, two among each kind of its passes."""
        kills, i = 0, 0
        passes = [
            [place for place, name in enumerate(self.names) if place and kind in name]
            for kind in self.kinds
        ]
        while kills < times:
            assert i < times, f"{kills} of {times} kills: trainings end before them"
            self.place.unlink(missing_ok=True)
            result = self.place.with_name(f"result {(i := i + 1)}.pskem")
            moments = [moment for places in passes for moment in rng.sample(places, 2)]
            moments += rng.choices(range(-1, len(self.names)), k=of_each - len(moments))
            for moment in sorted(moments):
                names, code = self._run(result, moment, rng.random() * self.pauses[moment + 1])
                if code == 0:  # it was faster
                    break
                assert code == -signal.SIGKILL
                kills += 1
                self.after += names[-1:] if self.place.exists() else []
            else:
                _, code = self._run(result)
            assert code == 0
            assert result.read_bytes() == self.expected
        assert not list(self.place.parent.glob(".*")), "nothing half-written is left"

    def _run(self, result, moment=None, delay=0.0, times=None):
        """What a process puts, and how it ends: killed, if this or a later name has been put."""
        due = set() if moment is None else set(self.names[max(moment, 0) :])
        process, pipe = telling(partial(self.work, result))
        names = []
        with pipe:
            while moment != -1 and (name := pipe.readline().strip()):
                names.append(name)
                if times is not None:
                    times.append(time.monotonic())
                if name in due:
                    break
            if moment is not None:
                time.sleep(delay)
                os.kill(process, signal.SIGKILL)
            names += map(str.strip, pipe)
        _, status = os.waitpid(process, 0)
        return names, os.waitstatus_to_exitcode(status)

    def hits(self, kind):
        """How many were killed among such passes, or trials, when there was a checkpoint."""
        return sum(kind in name for name in self.after)


needs_fork = pytest.mark.skipif(
    not hasattr(os, "fork"), reason="needs processes that can be forked"
)
in_threads = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12


@needs_fork
@in_threads
@pytest.mark.parametrize(("name", "kills"), [("defaults", 20), ("starts", 15), ("blocks", 15)])
def test_killed_at_any_moment_it_ends_with_the_same_bits(many, tmp_path, eager, name, kills):
    """Fifty random moments; what is compared are model files, byte by byte."""
    X, y = many
    place = tmp_path / "run.checkpoint"

    def work(path, tell):
        tell_what_is_put(tell)
        model = clone(FITS[name]).fit(X, y, checkpoint=Checkpoint(place))
        pskem.save(model, path)

    killing = Killing(work, place)
    killing.kill(kills, 5, random.Random(name))
    assert killing.hits("EM") >= 3
    assert killing.hits("discriminative") >= 3


@needs_fork
@in_threads
def test_a_search_that_is_killed_at_any_moment_ends_with_the_same_bits(tmp_path, eager):
    """As the command tune does it: trials, then a training of the best."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=40)
    X = rng.standard_normal((2, 3))[y] + rng.standard_normal((40, 3))
    pd.DataFrame(X, columns=list("abc")).assign(kind=y).to_csv(tmp_path / "table.csv", index=False)
    place = tmp_path / "run.checkpoint"
    passes = {"max_iter": 5, "tol": 0.0, "discriminative_iter": 5}
    model = SharedKernelClassifier(covariance_type="full", random_state=0, n_jobs=1, **passes)

    def work(path, tell):
        tell_what_is_put(tell)
        task, kept = Task.read(str(tmp_path / "table.csv"), "kind"), Checkpoint(place)
        best = tune(task, model, 2, 1e6, journal=kept).trials[0].candidate
        train(task, configured(model, best), checkpoint=last_fit(kept, best)).save(path)

    killing = Killing(work, place)
    killing.kill(50, 10, random.Random("tune"))
    assert killing.hits("trial") >= 10
    assert killing.hits("EM") >= 5
    assert killing.hits("discriminative") >= 5


def test_the_training_of_another_candidate_begins_anew(tmp_path):
    """A search with more time may find a better one than that which was being trained."""
    few, many = Candidate(3, 1, "full", 1.0), Candidate(6, 1, "full", 1.0)
    kept = Checkpoint(tmp_path / "run")
    kept.begin({}, 0)
    last_fit(kept, few).put("pass", 7)
    assert last_fit(kept, few).get("pass") == 7
    assert last_fit(kept, many).get("pass") is None
    assert last_fit(None, few) is None


def test_a_search_does_not_repeat_its_trials(tmp_path, eager):
    load_iris(as_frame=True).frame.to_csv(tmp_path / "table.csv", index=False)
    task, place = Task.read(str(tmp_path / "table.csv"), "target"), tmp_path / "run"
    model = SharedKernelClassifier(covariance_type="full", random_state=0, max_iter=5)
    begun = []

    def search(most):
        """Until so many trials have been made; the fits that this took."""
        made = []

        def observe(trial, done, left):
            if done == most:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch:
            fit = SharedKernelClassifier.fit
            patch.setattr(
                SharedKernelClassifier, "fit", lambda *a, **b: made.append(a) or fit(*a, **b)
            )
            try:
                return tune(task, model, 2, 1e6, observe, Checkpoint(place)).trials
            except KeyboardInterrupt:
                return None
            finally:
                begun.append(len(made))

    assert search(4) is None
    resumed = search(10**6)
    n_first, n_rest = begun
    place.unlink()
    whole = search(10**6)
    assert n_first > 0
    assert n_first + n_rest == begun[-1]
    assert [trial.candidate for trial in resumed] == [trial.candidate for trial in whole]


@pytest.mark.parametrize("seed", [None, np.random.RandomState(0)], ids=["none", "generator"])
def test_a_search_without_a_seed_goes_on_with_the_folds_that_it_had(tmp_path, eager, seed):
    load_iris(as_frame=True).frame.to_csv(tmp_path / "table.csv", index=False)
    task = Task.read(str(tmp_path / "table.csv"), "target")
    kept = tmp_path / "run"

    def found(place, most=10**6, seed=None):
        model = SharedKernelClassifier(covariance_type="full", max_iter=3, random_state=seed)

        def observe(trial, done, left):
            if done == most:
                raise KeyboardInterrupt

        trials = tune(task, model, 2, 1e6, observe, Checkpoint(place)).trials
        return {trial.candidate: trial.accuracies.tolist() for trial in trials}

    with pytest.raises(KeyboardInterrupt):
        found(kept, 3, seed)
    copy = tmp_path / "copy"
    copy.write_bytes(kept.read_bytes())
    again = found(kept, seed=seed)
    assert again == found(copy, seed=seed), "what is left has the same folds, too"
    assert found(tmp_path / "other", seed=seed) != again, "others have other ones"


def test_a_search_with_other_features_or_columns_is_refused(tmp_path, eager):
    frame = load_iris(as_frame=True).frame
    frame.iloc[:, 0] = (10 * frame.iloc[:, 0]).astype(int)
    frame.to_csv(tmp_path / "table.csv", index=False)
    source, place = str(tmp_path / "table.csv"), tmp_path / "run"
    model = SharedKernelClassifier(covariance_type="full", random_state=0, max_iter=3)

    def search(**options):
        tune(Task.read(source, "target", **options), model, 2, 0.0, journal=Checkpoint(place))

    search()
    search()
    with pytest.raises(CheckpointError, match="with features="):
        search(pca=2)
    with pytest.raises(CheckpointError, match="on other data"):
        search(categorical=[frame.columns[0]])


@needs_fork
@in_threads
def test_a_stream_that_is_killed_at_any_moment_ends_with_the_same_bits(many, tmp_path):
    """The model is saved after every part, and knows how many it has seen."""
    X, y = many
    place = tmp_path / "stream.pskem"

    def work(path, tell):
        begun = place.exists()
        model = pskem.load(place) if begun else SharedKernelClassifier(random_state=0, n_jobs=1)
        for i in range(model.stream_.n_parts if begun else 0, 30):
            rows = slice(250 * i, 250 * (i + 1))
            tell(f"part {i}")
            model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
            tell(f"save {i}")
            pskem.save(model, place)
        shutil.copy(place, path)

    killing = Killing(work, place, ("part", "save"))
    killing.kill(50, 5, random.Random("stream"))
    assert killing.hits("part") >= 5
    assert killing.hits("save") >= 5


def test_a_fit_goes_on_where_it_was_left(many, tmp_path, eager):
    """The passes that were made are not made again."""
    X, y = many
    model, seen = clone(FITS["starts"]), []

    class Stopped(Exception):
        pass

    def stop(now):
        seen.append(now)
        if len(seen) == 11:
            raise Stopped

    with pytest.raises(Stopped):
        model.fit(X, y, watch=stop, checkpoint=Checkpoint(tmp_path / "run"))
    first = len(seen)
    again = clone(FITS["starts"])
    again.fit(
        X, y, watch=lambda now: seen.append(now) and None, checkpoint=Checkpoint(tmp_path / "run")
    )
    undisturbed = []
    expected = clone(FITS["starts"]).fit(X, y, watch=lambda now: undisturbed.append(now) and None)
    assert len(seen) == len(undisturbed)
    assert first == 11
    np.testing.assert_array_equal(again.log_likelihoods_, expected.log_likelihoods_)
    np.testing.assert_array_equal(again.predict_proba(X), expected.predict_proba(X))
    # Once it is done, the same call has nothing left to do.
    nothing = []
    clone(FITS["starts"]).fit(X, y, watch=nothing.append, checkpoint=Checkpoint(tmp_path / "run"))
    assert not nothing


def test_a_density_goes_on_where_it_was_left(many, tmp_path, eager):
    X, _ = many
    model = SharedKernelDensity(n_components=5, max_iter=12, tol=0.0, random_state=0)
    place, expected = tmp_path / "run", clone(model).fit(X)
    kept = Checkpoint(place)
    whole = kept.put

    def stop(name, value):
        whole(name, value)
        if getattr(value, "iteration", 0) == 7:
            raise KeyboardInterrupt

    kept.put = stop
    with pytest.raises(KeyboardInterrupt):
        clone(model).fit(X, checkpoint=kept)
    again = clone(model).fit(X, checkpoint=Checkpoint(place))
    np.testing.assert_array_equal(again.log_likelihoods_, expected.log_likelihoods_)
    np.testing.assert_array_equal(again.score_samples(X), expected.score_samples(X))
    with pytest.raises(CheckpointError, match="with n_components=5, not 6"):
        clone(model).set_params(n_components=6).fit(X, checkpoint=Checkpoint(place))


def test_a_seed_that_was_drawn_is_kept(tmp_path, eager):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, init="kmeans")
    one = clone(model).fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))
    two = clone(model).fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))
    given = model.set_params(random_state=np.random.RandomState(3))
    with_state = given.fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))
    np.testing.assert_array_equal(one.predict_proba(X), with_state.predict_proba(X))


def test_other_data_and_settings_are_refused(tmp_path, eager):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0)
    place = tmp_path / "run"
    model.fit(X, y, checkpoint=Checkpoint(place))
    before = place.read_bytes()

    def refused(match, X=X, y=y, weights=None, **settings):
        with pytest.raises(CheckpointError, match=match):
            clone(model).set_params(**settings).fit(X, y, weights, checkpoint=Checkpoint(place))
        assert place.read_bytes() == before

    refused("with n_components=6, not 7. It goes on", n_components=7)
    refused("with random_state=0, not 1", random_state=1)
    refused(r"on other data \(as many samples, 150, with other values", X=X + 1e-9)
    refused(r"on other data \(150 samples, not 149\)", X=X[:-1], y=y[:-1])
    refused("on other data", y=np.roll(y, 1))
    refused("on other data", weights=np.arange(150.0))
    refused("on other data", y=np.array(["p", "q", "r"])[y])
    refused("on other data", X=pd.DataFrame(X, columns=list("abcd")))
    # What does not change the model may change.
    clone(model).set_params(n_jobs=2, verbose=0).fit(X, y, checkpoint=Checkpoint(place))
    order = np.random.default_rng(0).permutation(150)
    clone(model).fit(X[order], y[order], checkpoint=Checkpoint(place))


def test_a_warm_start_from_another_model_is_refused(tmp_path, eager):
    X, y = load_iris(return_X_y=True)
    settings = {"n_components": 6, "discriminative_iter": 0, "n_views": 1, "tol": 0.0}
    model = SharedKernelClassifier(**settings, max_iter=2, random_state=0, warm_start=True)
    one, two = clone(model).fit(X, y), clone(model).fit(X[::2], y[::2])
    place = tmp_path / "run"
    kept = deepcopy(one).fit(X, y, checkpoint=place)
    assert distance(kept, deepcopy(one).fit(X, y, checkpoint=place)) == 0.0
    with pytest.raises(CheckpointError, match="with warm_start=True from the model"):
        two.fit(X, y, checkpoint=place)


def test_a_checkpoint_of_another_version_is_refused(tmp_path, eager, monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0)
    model.fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))
    monkeypatch.setattr(checkpoints, "__version__", "99.0")
    with pytest.raises(CheckpointError, match=r"not 99\.0"):
        model.fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))


def test_a_path_is_enough(tmp_path, eager):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0).fit(
        X, y, checkpoint=tmp_path / "run"
    )
    assert (tmp_path / "run").exists()
    with pytest.raises(ModelFileError, match=r"run is the checkpoint of a training, not a model\."):
        pskem.load(tmp_path / "run")
    again = clone(model).fit(X, y, checkpoint=str(tmp_path / "run"))
    assert distance(model, again) == 0.0
    with pytest.raises(CheckpointError, match="n_components"):
        clone(model).set_params(n_components=5).fit(X, y, checkpoint=tmp_path / "run")


def test_what_is_no_checkpoint_stays_as_it_is(tmp_path):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0)
    model.fit(X, y)
    pskem.save(model, tmp_path / "model")
    (tmp_path / "notes").write_text("of the user")
    for name, error in (("model", CheckpointError), ("notes", ModelFileError)):
        content = (tmp_path / name).read_bytes()
        with pytest.raises(error):
            model.fit(X, y, checkpoint=Checkpoint(tmp_path / name))
        assert (tmp_path / name).read_bytes() == content
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        model.fit(X, y, checkpoint=Checkpoint(tmp_path / "none" / "run"))
    with pytest.raises(FileNotFoundError, match="There is no folder"):
        model.fit(X, y, checkpoint=str(tmp_path / "none" / "run"))
    with pytest.raises(TypeError, match="give a path, or a Checkpoint"):
        model.fit(X, y, checkpoint=3)


def test_a_damaged_checkpoint_is_refused(tmp_path, eager):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0)
    place = tmp_path / "run"
    model.fit(X, y, checkpoint=Checkpoint(place))
    place.write_bytes(place.read_bytes()[:-200])
    with pytest.raises(CheckpointError, match=r"damaged\. Name another file, or remove it"):
        model.fit(X, y, checkpoint=Checkpoint(place))


def test_a_full_disk_ends_the_fit_and_keeps_the_old_model(tmp_path, eager, monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0).fit(X, y)
    before = model.model_

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pskem.files.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        model.fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))
    assert model.model_ is before
    assert not list(tmp_path.iterdir())


class Clock:
    """A clock of our own: passes, writing, reading and marking take the times that are given."""

    def __init__(self, monkeypatch, a_pass=30.0, mark=0.0, write=1.0, read=0.5):
        self.now, self.spent, self.writes = 0.0, 0.0, 0
        self.a_pass = a_pass
        monkeypatch.setattr(checkpoints.time, "monotonic", lambda: self.now)
        for name, cost in (("save", write), ("load", read), ("read_header", read)):
            monkeypatch.setattr(checkpoints, name, self.spending(getattr(checkpoints, name), cost))
        monkeypatch.setattr(_fitting, "mark_of", self.spending(_fitting.mark_of, mark))

    def spending(self, function, cost):
        def slow(*arguments, **options):
            self.now += cost
            self.spent += cost
            self.writes += function.__name__ == "save"
            return function(*arguments, **options)

        return slow

    def tick(self, model):
        self.now += self.a_pass


@pytest.mark.parametrize("mark", [0.0, 8.0, 20.0])
def test_a_checkpoint_takes_a_small_share_of_the_time(many, tmp_path, monkeypatch, mark):
    """All that it does: marking the data, writing, and reading when the training goes on."""
    X, y = many
    place, begun = tmp_path / "run", []
    clock = Clock(monkeypatch, mark=mark)

    class Stopped(Exception):
        pass

    def stop(model):
        clock.tick(model)
        begun.append(clock.now)
        if len(begun) == 60:
            raise Stopped

    with pytest.raises(Stopped):
        clone(FITS["starts"]).fit(X, y, watch=stop, checkpoint=Checkpoint(place))
    assert clock.writes >= 3
    assert clock.spent < 0.02 * clock.now
    first, clock.now, clock.spent, clock.writes = begun, 0.0, 0.0, 0
    clock.a_pass = 300.0  # few passes are left
    model = clone(FITS["starts"]).fit(X, y, watch=clock.tick, checkpoint=Checkpoint(place))
    assert len(model.log_likelihoods_) == 8
    assert clock.now < 300.0 * len(first), "it went on"
    assert clock.writes >= 1
    assert clock.spent < 0.02 * clock.now


def test_data_that_take_long_to_read_do_not_delay_the_first_writing(many, tmp_path, monkeypatch):
    """The mark is paid for once; nothing is safer for waiting longer."""
    X, y = many
    clock = Clock(monkeypatch, mark=40.0)
    clone(FITS["starts"]).fit(X, y, watch=clock.tick, checkpoint=Checkpoint(tmp_path / "run"))
    assert clock.writes >= 1
    assert clock.spent - 40.0 <= 0.01 * clock.now


def test_the_mark_reads_the_data_once(many, tmp_path, eager, monkeypatch):
    """By counting: stored samples are read once more, of many times."""
    X, y = many
    np.save(tmp_path / "X.npy", X)
    stored, read, fold = np.load(tmp_path / "X.npy", mmap_mode="r"), [0], ArrayPieces.fold

    def counting(self, function, parallel_map):
        read[0] += 1
        return fold(self, function, parallel_map)

    monkeypatch.setattr(ArrayPieces, "fold", counting)
    counts = []
    for checkpoint in (None, Checkpoint(tmp_path / "run")):
        read[0] = 0
        clone(FITS["blocks"]).fit(stored, y, checkpoint=checkpoint)
        counts.append(read[0])
    assert counts[1] == counts[0] + 1
    assert counts[0] > 50


def test_what_is_no_checkpoint_is_not_removed(tmp_path):
    table, model = tmp_path / "table.csv", tmp_path / "iris.pskem"
    table.write_text("a,b\n1,2\n")
    pskem.save(SharedKernelDensity(n_components=3, random_state=0).fit(load_iris().data), model)
    for path, said in ((table, "is no checkpoint"), (model, "holds a model")):
        with pytest.raises(CheckpointError, match=rf"{path.name} {said}.* not removed"):
            Checkpoint(path).remove()
        assert path.stat().st_size
    (tmp_path / "empty").touch()
    Checkpoint(tmp_path / "empty").remove()
    assert not (tmp_path / "empty").exists()


def test_it_can_be_a_callback(many, tmp_path, eager):
    pytest.importorskip("sklearn.callback", reason="callbacks come with scikit-learn 1.9")
    X, y = load_iris(return_X_y=True)
    checkpoint = Checkpoint(tmp_path / "run")
    model = SharedKernelClassifier(n_components=6, random_state=0).set_callbacks(checkpoint)
    model.fit(X, y)
    assert read_header(tmp_path / "run").metadata["settings"]["n_components"] == "6"
    checkpoint.remove()
    checkpoint.remove()
    assert not (tmp_path / "run").exists()
