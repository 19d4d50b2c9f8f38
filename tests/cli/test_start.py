"""How the command starts and ends: at once, without a traceback, and with its streams closed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from pskem.blocks import ARRANGEMENTS
from pskem.cli import console
from pskem.cli.app import COMMANDS, run
from pskem.cli.app import pskem as group
from pskem.cli.options import CHOICES, DEFAULTS
from pskem.estimators import SharedKernelClassifier
from pskem.starts import STARTS
from pskem.structures import STRUCTURES
from pskem.training import Shrinkage
from pskem.workflow import FLAT_SETTINGS

pytestmark = pytest.mark.plumbing

#: What takes most of a second to import.
HEAVY = ("numpy", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "rich", "joblib")


def python(code, **options):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, **options
    )


def test_help_does_not_wait_for_what_is_heavy():
    calls = [["--help"], ["--version"], *([name, "--help"] for name in COMMANDS)]
    calls += [["datasets", "list", "--help"], ["fit"], ["fit", "--speed", "9"], ["nonsense"]]
    code = (
        "import json, sys\n"
        "from pskem.cli.app import run\n"
        f"for arguments in {calls!r}:\n"
        "    run(arguments)\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)\n"
    )
    done = python(code)
    assert done.returncode == 0
    assert done.stdout.count("Usage: pskem") == len(calls) - 4
    loaded = {name.split(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert not loaded & set(HEAVY)


def test_options_have_the_defaults_of_the_classifier():
    known = {**SharedKernelClassifier().get_params(), **FLAT_SETTINGS}
    assert {name: known[name] for name in DEFAULTS} == DEFAULTS
    options = {option.name: option for option in group.get_command(None, "fit").params}
    for name in DEFAULTS:
        assert options[name].default == known[name]
    for name in ("random_state", "class_weight", "priors", "early_stopping", "margins"):
        assert name not in DEFAULTS  # these have words, or a default, of their own
    assert known["validation_fraction"] == options["validation_fraction"].default


def test_options_have_the_choices_of_the_classifier():
    assert CHOICES["partition"] == ["auto", *ARRANGEMENTS]
    assert CHOICES["covariance_type"] == ["auto", *STRUCTURES]
    assert CHOICES["init"] == ["auto", *STARTS]
    for target in CHOICES["shrinkage_target"]:
        assert Shrinkage(target=target).target == target
    with pytest.raises(ValueError, match="Accepted") as refused:
        Shrinkage(target="other")
    assert str(refused.value).count(",") == len(CHOICES["shrinkage_target"]) - 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_a_destructor_is_heard(number):
    """Python only writes of exceptions that are raised there; archives have one, for example."""
    code = (
        "import io, os, time, zipfile\n"
        "import pskem.cli.app\n"
        "from pskem.cli import main\n"
        "class Archive(zipfile.ZipFile):\n"
        "    def __del__(self):\n"
        f"        os.kill(os.getpid(), {int(number)})\n"
        "        super().__del__()\n"
        "def run(arguments):\n"
        "    Archive(io.BytesIO(), 'w')\n"
        "    time.sleep(30.0)\n"
        "pskem.cli.app.run = run\n"
        "main([])\n"
    )
    done = python(code)
    interrupted = number == signal.SIGINT
    assert done.returncode == (130 if interrupted else 128 + number)
    assert done.stderr.split() == (["Interrupted."] if interrupted else [])


@pytest.mark.parametrize("module", ["click", "pskem.cli.app", "pskem.cli.fit", "numpy", "pandas"])
def test_an_interrupt_while_it_starts_is_one_line(module):
    code = (
        "import sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupting())\n"
        "from pskem.cli import main\n"
        "main(['fit', 'iris'])\n"
    )
    done = python(code)
    assert done.returncode == 130
    assert done.stderr.strip() == "Interrupted."


@pytest.mark.skipif(sys.platform == "win32", reason="a shell of Unix closes the streams")
@pytest.mark.parametrize(
    ("command", "where", "code", "message"),
    [
        ("--help", ">&-", 1, "Standard output is closed"),
        ("datasets list", ">&-", 1, "Standard output is closed"),
        ("predict model.pskem test.csv", ">&-", 1, "Standard output is closed"),
        ("predict model.pskem test.csv -o out.csv", ">&-", 0, ""),
        ("predict model.pskem -", "<&-", 1, "Standard input is closed"),
        ("predict model.pskem nowhere.csv", "2>&-", 1, ""),
        ("inspect model.pskem", ">/dev/full", 1, "No space left on device"),
    ],
)
def test_closed_streams_are_told(iris_model, command, where, code, message):
    line = f"{sys.executable} -m pskem {command} {where}"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=60)
    assert done.returncode == code
    assert done.stdout == ""
    assert done.stderr.count("\n") == bool(message)
    assert message in done.stderr
    if code == 0:
        assert Path("out.csv").read_text().startswith("prediction\n")


def test_messages_have_an_end(iris_folder, capsys):
    text = "x" * 5_000_000
    for arguments in (["fit", text, "-t", "y"], ["fit", "train.csv", "-t", text], [text]):
        assert run(arguments) in (1, 2)
        err = capsys.readouterr().err
        assert err.startswith("Error: ")
        assert err.count("\n") == 1
        assert len(err) < 2 * console.LONGEST
        assert "characters more" in err
    console.facts(("name", text))
    assert len(capsys.readouterr().out) < 2 * console.LONGEST


def test_json_holds_no_control_characters(capsys):
    value = {"name": "\x1b[2J\x9b2J\x7f é 日本"}
    console.print_json(value)
    out = capsys.readouterr().out
    assert not set(out) & set("\x1b\x9b\x7f")
    assert "é 日本" in out
    assert json.loads(out) == value


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are for Unix")
def test_predictions_cannot_take_over_a_terminal(iris_folder):
    import pty

    frame = pd.read_csv("train.csv").replace("setosa", "\x1b[2Jsetosa\x9b2J")
    frame.to_csv("evil.csv", index=False)
    assert run(["fit", "evil.csv", "-t", "species", "-k", "6", "-q"]) == 0
    command = [sys.executable, "-m", "pskem", "predict", "evil.pskem", "evil.csv"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "\x1b[2Jsetosa\x9b2J" in piped  # a file holds what is
    master, slave = pty.openpty()
    subprocess.run(command, stdout=slave, check=True)
    os.close(slave)
    shown = os.read(master, 100_000).decode()
    os.close(master)
    assert "[2Jsetosa" in shown
    assert not set(shown) & set("\x1b\x9b")
    assert len(shown.splitlines()) == len(piped.splitlines())
