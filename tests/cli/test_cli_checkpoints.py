"""Commands that are killed go on from their checkpoint."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from pskem import load
from pskem.cli.app import run
from pskem.cli.task import BY_WORKERS, READING
from pskem.persistence import Checkpoint

pytestmark = pytest.mark.plumbing

#: Without those that are held out still more than are read at once.
N = 23_000
#: The command with checkpoints after every pass and every trial; after so many it waits.
CODE = """
import sys, time
from pskem.cli import main
from pskem.persistence import checkpoints

write, left = checkpoints.Checkpoint.write, int(sys.argv[1])

def waiting(self):
    global left
    if left == 0:
        time.sleep(600.0)
    left -= 1
    write(self)

checkpoints.SHARE, checkpoints.Checkpoint.write = float("inf"), waiting
main(sys.argv[2:])
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pskem.persistence.checkpoints.SHARE", np.inf)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    X = (rng.standard_normal((3, 4)) * 1.5)[y] + rng.standard_normal((N, 4))
    pd.DataFrame(X, columns=list("abcd")).assign(kind=y).to_parquet("large.parquet")
    load_iris(as_frame=True).frame.to_csv("small.csv", index=False)


COMMANDS = {
    "fit": ["fit", "large.parquet", "-t", "kind", "-k", "9", "--max-iter", "30", "--tol", "0"],
    "out of core": ["fit", "large.parquet", "-t", "kind", "-k", "9", "--tol", "0", "--max-iter",
                    "12", "--out-of-core"],
    "tune": ["tune", "small.csv", "-t", "target", "--seconds", "1000", "--folds", "2"],
}  # fmt: skip


@contextmanager
def begun(arguments, most):
    """The process of a command that has written its checkpoint; it waits after so many times."""
    command = [sys.executable, "-c", CODE, str(most), *arguments]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **quiet) as process:
        try:
            deadline = time.monotonic() + 120.0
            while not os.path.exists("run.checkpoint"):
                assert process.poll() is None, process.stderr.read().decode()
                assert time.monotonic() < deadline, "there is no checkpoint"
                time.sleep(0.01)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_that_is_killed_ends_with_the_same_model(name, capsys, monkeypatch):
    """At a random moment of its first half, which is not made again."""
    command = [*COMMANDS[name], "--checkpoint", "run.checkpoint", "--n-jobs", "1"]
    made, put = [], Checkpoint.put
    monkeypatch.setattr(Checkpoint, "put", lambda *given: made.append(given[1]) or put(*given))
    start = time.monotonic()
    assert run([*command, "-o", "undisturbed.pskem"]) == 0
    whole, n_whole = time.monotonic() - start, len(made)
    assert not os.path.exists("run.checkpoint")
    rng, most = random.Random(name), n_whole // 2
    with begun([*command, "-o", "killed.pskem"], most) as process:
        time.sleep(rng.uniform(0.0, 0.5 * whole))
        process.send_signal(signal.SIGKILL)
        _, err = process.communicate()
    assert process.returncode == -signal.SIGKILL, err.decode()
    assert os.path.exists("run.checkpoint")
    assert not os.path.exists("killed.pskem")
    capsys.readouterr()
    made.clear()
    assert run([*command, "-o", "killed.pskem"]) == 0
    assert "The training goes on from run.checkpoint." in capsys.readouterr().err
    assert n_whole - most <= len(made) < n_whole
    assert not os.path.exists("run.checkpoint")
    one, two = (load(f"{name}.pskem") for name in ("undisturbed", "killed"))
    frame = pd.read_parquet("large.parquet").drop(columns="kind")
    if name == "tune":
        frame = load_iris(as_frame=True).data
    np.testing.assert_array_equal(one.predict_proba(frame), two.predict_proba(frame))


def test_a_checkpoint_of_another_command_is_refused(capsys, monkeypatch):
    command = [*COMMANDS["fit"], "--checkpoint", "run.checkpoint"]
    monkeypatch.setattr("pskem.persistence.checkpoints.Checkpoint.remove", lambda self: None)
    assert run([*command, "-o", "model.pskem"]) == 0
    kept = Path("run.checkpoint").read_bytes()
    for changed in (
        ["-k", "8"],
        ["--seed", "3"],
        ["--drop", "a"],
        ["--validation-fraction", "0.3"],
    ):
        assert run([*command, *changed, "-o", "other.pskem"]) == 1
        err = capsys.readouterr().err
        assert "The checkpoint run.checkpoint is of a training" in err
        assert err.splitlines()[-1].startswith("Error: ")
    assert run([*COMMANDS["tune"], "--checkpoint", "run.checkpoint"]) == 1
    assert Path("run.checkpoint").read_bytes() == kept
    assert not os.path.exists("other.pskem")


def test_a_table_is_to_be_read_as_before(capsys, monkeypatch):
    """Which is told by the option that says how."""
    command = [*COMMANDS["fit"], "--checkpoint", "run.checkpoint", "-o", "model.pskem"]
    monkeypatch.setattr("pskem.persistence.checkpoints.Checkpoint.remove", lambda self: None)
    assert run([*command, "--out-of-core"]) == 0
    capsys.readouterr()
    assert run([*command, "--in-memory", "--overwrite"]) == 1
    err = capsys.readouterr().err
    assert "with table=read piece by piece (--out-of-core), not read at once (--in-memory)" in err
    assert "The training goes on" not in err


@pytest.mark.parametrize("how", ["--out-of-core", "--in-memory"])
def test_a_table_is_read_as_before_whatever_memory_is_free(capsys, monkeypatch, how):
    command = [*COMMANDS["fit"], "--checkpoint", "run.checkpoint", "-o", "model.pskem"]
    with monkeypatch.context() as kept:
        kept.setattr("pskem.persistence.checkpoints.Checkpoint.remove", lambda self: None)
        assert run([*command, how]) == 0
    needed = 0 if how == "--out-of-core" else 10**9
    monkeypatch.setattr("pskem.workflow.exceeds_memory", lambda source: needed)
    capsys.readouterr()
    assert run([*command, "--overwrite"]) == 0
    assert "The training goes on from run.checkpoint." in capsys.readouterr().err


def test_a_training_by_workers_goes_on_with_workers(capsys):
    before = Checkpoint("run.checkpoint", {READING: BY_WORKERS})
    before.begin({}, 0)
    before.write()
    command = [*COMMANDS["fit"], "--checkpoint", "run.checkpoint", "-o", "model.pskem"]
    assert run(command) == 2
    assert "was begun by workers, and goes on with them: add --workers" in capsys.readouterr().err
    assert os.path.exists("run.checkpoint")


def test_what_is_no_checkpoint_is_not_gone_on_from(capsys):
    before = Path("small.csv").read_bytes()
    assert run([*COMMANDS["fit"], "--checkpoint", "small.csv", "-o", "model.pskem"]) == 1
    assert capsys.readouterr().err.startswith("Error: small.csv is no checkpoint")
    assert Path("small.csv").read_bytes() == before


def test_the_interrupted_say_so_and_keep_the_old_model(capsys):
    assert run([*COMMANDS["fit"], "-o", "model.pskem", "--json"]) == 0
    json.loads(capsys.readouterr().out)
    before = Path("model.pskem").read_bytes()
    long = [*COMMANDS["fit"], "-o", "model.pskem", "--checkpoint", "run.checkpoint"]
    with begun(long, 3) as process:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=120.0)
    assert process.returncode == 130
    assert err.decode().splitlines()[-1] == "Interrupted."
    assert Path("model.pskem").read_bytes() == before
    assert os.path.exists("run.checkpoint")


def test_a_file_that_is_empty_is_no_training_that_goes_on(capsys):
    """As `mktemp` makes one."""
    Path("run.checkpoint").touch()
    options = ["-t", "target", "-o", "model.pskem", "--checkpoint", "run.checkpoint"]
    assert run(["fit", "small.csv", *options]) == 0
    assert "goes on" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["fit", "tune"])
def test_the_checkpoint_is_not_where_the_model_goes(command, capsys):
    for place in ("model.pskem", "./model.pskem"):
        options = ["-t", "target", "-o", "model.pskem", "--checkpoint", place]
        assert run([command, "small.csv", *options]) == 2
        assert "is where the model goes, too. Name another file" in capsys.readouterr().err
    assert not os.path.exists("model.pskem")
