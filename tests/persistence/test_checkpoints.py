"""Trainings that are killed go on from their checkpoint, and end with the same bits."""

import os
import random
import signal
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris

import pskem
from pskem import Checkpoint, SharedKernelClassifier, SharedKernelDensity
from pskem.persistence import CheckpointError, ModelFileError, checkpoints, read_header

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


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # in Python 3.12
@pytest.mark.parametrize(("name", "kills"), [("defaults", 20), ("starts", 15), ("blocks", 15)])
def test_killed_at_any_moment_it_ends_with_the_same_bits(many, tmp_path, eager, name, kills):
    """The fifty moments are random; what is compared are model files, byte by byte."""
    X, y = many
    place = tmp_path / "run.checkpoint"

    def work(path):
        model = clone(FITS[name]).fit(X, y, checkpoint=Checkpoint(place))
        pskem.save(model, path)

    start = time.monotonic()
    os.waitpid(in_child(lambda: work(tmp_path / "undisturbed.pskem")), 0)
    whole = time.monotonic() - start
    expected = (tmp_path / "undisturbed.pskem").read_bytes()
    rng = random.Random(os.urandom(8))
    met = set()
    for i in range(kills):
        place.unlink(missing_ok=True)
        result = tmp_path / f"{i}.pskem"
        process = in_child(lambda path=result: work(path))
        time.sleep(rng.uniform(0.0, whole))
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        if place.exists():
            met.add(len(pskem.load(place, pskem.training.Pages).entries))
        result.unlink(missing_ok=True)
        _, code = os.waitpid(in_child(lambda path=result: work(path)), 0)
        assert code == 0
        assert result.read_bytes() == expected
    assert met, "some were killed after they had begun to write"
    assert not list(tmp_path.glob(".run.checkpoint.*")), "nothing half-written is left"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # in Python 3.12
def test_a_stream_that_is_killed_at_any_moment_ends_with_the_same_bits(many, tmp_path):
    """The model is saved after every part, and knows how many it has seen."""
    X, y = many

    def work(place):
        begun = place.exists()
        model = pskem.load(place) if begun else SharedKernelClassifier(random_state=0, n_jobs=1)
        for i in range(model.stream_.n_parts if begun else 0, 30):
            rows = slice(250 * i, 250 * (i + 1))
            pskem.save(model.partial_fit(X[rows], y[rows], classes=[0, 1, 2]), place)

    work(tmp_path / "imports.pskem")  # which take longer than a few parts
    start = time.monotonic()
    work(tmp_path / "undisturbed.pskem")
    whole = time.monotonic() - start
    expected = (tmp_path / "undisturbed.pskem").read_bytes()
    rng = random.Random(os.urandom(8))
    met, kills = set(), 0
    while kills < 50:
        place = tmp_path / f"{kills}.pskem"
        for _ in range(5):  # each run is killed several times
            process = in_child(lambda path=place: work(path))
            time.sleep(rng.uniform(0.0, 0.4 * whole))
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            kills += 1
            if place.exists():
                met.add(pskem.load(place).stream_.n_parts)
        _, code = os.waitpid(in_child(lambda path=place: work(path)), 0)
        assert code == 0
        assert place.read_bytes() == expected
    assert len(met) > 1, "some were killed between the first part and the last"
    assert not list(tmp_path.glob(".*.pskem.*")), "nothing half-written is left"


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

    refused("with n_components=6, not 7. Remove it", n_components=7)
    refused("with random_state=0, not 1", random_state=1)
    refused(r"on other data \(150 samples\)", X=X + 1e-9)
    refused("on other data", X=X[:-1], y=y[:-1])
    refused("on other data", y=np.roll(y, 1))
    refused("on other data", weights=np.arange(150.0))
    refused("on other data", y=np.array(["p", "q", "r"])[y])
    refused("on other data", X=pd.DataFrame(X, columns=list("abcd")))
    # What does not change the model may change.
    clone(model).set_params(n_jobs=2, verbose=0).fit(X, y, checkpoint=Checkpoint(place))
    order = np.random.default_rng(0).permutation(150)
    clone(model).fit(X[order], y[order], checkpoint=Checkpoint(place))


def test_a_checkpoint_of_another_version_is_refused(tmp_path, eager, monkeypatch):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=6, random_state=0)
    model.fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))
    monkeypatch.setattr(checkpoints, "__version__", "99.0")
    with pytest.raises(CheckpointError, match=r"not 99\.0"):
        model.fit(X, y, checkpoint=Checkpoint(tmp_path / "run"))


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
    with pytest.raises(TypeError, match=r"give pskem.Checkpoint\(path\)"):
        model.fit(X, y, checkpoint=str(tmp_path / "run"))


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


def test_writing_takes_a_small_share_of_the_time(many, tmp_path, monkeypatch):
    """Whatever a writing costs, the next one waits a hundred times as long. By our own clock."""
    X, y = many
    clock = [0.0]
    monkeypatch.setattr(checkpoints.time, "monotonic", lambda: clock[0])
    spent = []

    def slow(*arguments, **options):
        spent.append(1.0)
        clock[0] += 1.0

    monkeypatch.setattr(checkpoints, "save", slow)

    def tick(now):
        clock[0] += 30.0

    model = clone(FITS["starts"]).fit(X, y, watch=tick, checkpoint=Checkpoint(tmp_path / "run"))
    assert len(model.log_likelihoods_) == 8
    assert spent
    assert sum(spent) < 0.02 * clock[0]


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
