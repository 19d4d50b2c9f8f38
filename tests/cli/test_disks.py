"""Folders that cannot be written to and disks that are full: one clear line, nothing lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

pytestmark = [
    pytest.mark.plumbing,
    pytest.mark.skipif(os.name != "posix", reason="permissions and limits of Unix"),
]

#: Takes from root what permissions would not bind: CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH. The
#: next program has only what is left in the bounding set (PR_CAPBSET_DROP).
ORDINARY = """
import ctypes, os, sys
if os.geteuid() == 0:
    for capability in (1, 2):
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
#: Runs several commands, each with a limit to the size of files, and tells how each ended.
SEVERAL = """
import contextlib, io, json, os, resource, sys
import numpy as np
from pskem.cli.app import run
from pskem.persistence import checkpoints
checkpoints.SHARE = np.inf
found = {}
for name, (limit, arguments) in json.load(sys.stdin).items():
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit or hard, hard))
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(arguments)
    found[name] = code, out.getvalue(), err.getvalue()
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
json.dump(found, sys.stdout)
"""


def several(commands, ordinary=False):
    """How commands end, by name: the exit code, stdout and stderr.

    commands : by name, the largest file that each may write (0 for any), and its arguments
    """
    program = [sys.executable, *(["-c", ORDINARY] if ordinary else []), "-c", SEVERAL]
    done = subprocess.run(
        program, input=json.dumps(commands), capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return json.loads(done.stdout)


def one_line(found, *parts):
    code, out, err = found
    assert code == 1
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


@pytest.fixture
def table(tmp_path, monkeypatch):
    """A folder with a table, an old model and a folder for temporary files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=400)
    frame = pd.DataFrame(rng.standard_normal((400, 2)) + 3.0 * y[:, None], columns=["a", "b"])
    frame.assign(kind=y).to_csv("table.csv", index=False)
    pd.concat([frame.assign(kind=y)] * 20).to_csv("long.csv", index=False)
    return tmp_path


FIT = ["fit", "table.csv", "-t", "kind", "-k", "4", "--max-iter", "5", "--tol", "0", "-q"]


def content():
    """Every file with what it holds."""
    return {path: path.read_bytes() for path in sorted(Path().rglob("*")) if path.is_file()}


@pytest.fixture
def bound():
    """Skip where nothing would bind root."""
    if os.geteuid() == 0:
        binding = "import os, sys; sys.exit(os.access('locked', os.W_OK))"
        os.mkdir("locked", 0o555)
        if subprocess.run([sys.executable, "-c", ORDINARY, "-c", binding]).returncode:
            pytest.skip("root may write into every folder, and its rights cannot be taken here")
        os.rmdir("locked")


def test_a_folder_that_is_read_only(table, bound):
    """For the model, a checkpoint that is new and one that goes on, and predictions."""
    old = several({"fit": (0, [*FIT, "-o", "model.pskem"])})
    assert old["fit"][0] == 0
    os.mkdir("locked")
    kept = [*FIT, "-o", "other.pskem", "--checkpoint", "locked/old.checkpoint"]
    stop = f"""
import json, sys
from pskem.persistence import Checkpoint
Checkpoint.remove = lambda self: None
{SEVERAL}"""
    made = subprocess.run(
        [sys.executable, "-c", stop], input=json.dumps({"fit": (0, kept)}), text=True, check=True,
        capture_output=True,
    )  # fmt: skip
    assert json.loads(made.stdout)["fit"][0] == 0
    os.replace("model.pskem", "locked/model.pskem")
    os.unlink("other.pskem")
    os.chmod("locked", 0o555)
    before = content()
    try:
        found = several(
            {
                "model": (0, [*FIT, "-o", "locked/model.pskem"]),
                "new model": (0, [*FIT, "-o", "locked/new.pskem"]),
                "checkpoint": (0, [*FIT, "-o", "m.pskem", "--checkpoint", "locked/c"]),
                "old checkpoint": (0, kept),
                "tune": (
                    0,
                    ["tune", "table.csv", "-t", "kind", "-q", "--checkpoint", "locked/c"],
                ),
                "predictions": (
                    0,
                    ["predict", "locked/model.pskem", "table.csv", "-o", "locked/out.csv"],
                ),
            },
            ordinary=True,
        )
    finally:
        os.chmod("locked", 0o755)
    for end in found.values():
        one_line(end, "You may not write into the folder", "locked")
    assert content() == before


def test_the_api_refuses_a_folder_that_is_read_only_before_it_works(table, bound):
    os.mkdir("locked", 0o555)
    code = """
import numpy as np
import pskem
X, y = np.random.default_rng(0).standard_normal((60, 2)), np.arange(60) % 2
def never(model):
    raise AssertionError("work was done for it")
model = pskem.SharedKernelClassifier(n_components=2, random_state=0)
try:
    model.fit(X, y, checkpoint=pskem.Checkpoint("locked/run"), watch=never)
except PermissionError as error:
    print(error)
assert not hasattr(model, "model_")
try:
    pskem.save(model.fit(X, y), "locked/model.pskem")
except PermissionError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", ORDINARY, "-c", code], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = [line.split(str(table))[0] for line in done.stdout.splitlines()]
    assert len(said) == 2
    assert all(line.startswith("You may not write into the folder ") for line in said)
    os.chmod("locked", 0o755)
    assert not os.listdir("locked")


def test_a_disk_that_is_full(table):
    """The kernel refuses to write more than so many bytes to a file; the model needs more."""
    found = several({"fit": (0, [*FIT, "-o", "model.pskem"])})
    assert found["fit"][0] == 0
    before = content()
    stored = [
        "fit",
        "long.csv",
        "-t",
        "kind",
        "-k",
        "4",
        "-q",
        "--out-of-core",
        "-o",
        "model.pskem",
    ]
    predict = ["predict", "model.pskem", "long.csv", "-o"]
    found = several(
        {
            "model": (2000, [*FIT, "-o", "model.pskem"]),
            "new model": (2000, [*FIT, "-o", "new.pskem"]),
            "checkpoint": (2000, [*FIT, "-o", "model.pskem", "--checkpoint", "run.checkpoint"]),
            "copy": (20_000, stored),
            "predictions": (2000, [*predict, "out.csv"]),
            "columns": (200, [*predict, "out.parquet"]),
        }
    )
    one_line(found["model"], "There is no room for model.pskem", "Make room there, or name a file")
    one_line(found["new model"], "There is no room for new.pskem")
    one_line(found["checkpoint"], "There is no room for run.checkpoint")
    one_line(found["copy"], "long.csv cannot be copied into", "Parquet")
    one_line(found["predictions"], "There is no room for out.csv")
    one_line(found["columns"], "There is no room for out.parquet")
    assert content() == before, "old files are whole, and nothing half-written is left"
    assert not os.listdir("tmp")
