"""What goes wrong on the command line: one clear line, an exit code, nothing left behind."""

import os
import re
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.preprocessing import StandardScaler

import pskem
from pskem import SharedKernelClassifier
from pskem.cli import main
from pskem.cli.app import pskem as group
from pskem.cli.app import run
from pskem.cli.wording import in_options

pytestmark = pytest.mark.plumbing


def files():
    return sorted(os.listdir())


WRONG = {
    "no such file": (["fit", "nowhere.csv", "-t", "y"], 1, r"There is no file nowhere\.csv"),
    "misspelt": (["fit", "iriss"], 1, "no file iriss, and no data set of that name: digits, iris"),
    "a form and views": (["fit", "iris", "--n-views", "2", "-k", "6"], 1, "-components auto, or"),
    "no target": (["fit", "train.csv"], 2, "Name it with --target"),
    "wrong target": (["fit", "train.csv", "-t", "kind"], 1, "There is no column 'kind'"),
    "measurements": (["fit", "train.csv", "-t", "sepal length (cm)"], 1, "with a single row: 4.3"),
    "nothing to drop": (["fit", "train.csv", "-t", "species", "--drop", "x"], 1, "no column 'x'"),
    "wrong setting": (["fit", "train.csv", "-t", "species", "--tol", "-1"], 1, ": --tol -1.0 must"),
    "too many blocks": (["fit", "train.csv", "-t", "species", "-r", "9"], 1, ": --n-blocks 9 is"),
    "no number": (["fit", "train.csv", "-t", "species", "-k", "many"], 2, "'many' is neither"),
    "no blocks": (["fit", "train.csv", "-t", "species", "-r", "x"], 2, "'x' is neither a whole"),
    "wrong choice": (["fit", "train.csv", "-t", "species", "--init", "x"], 2, "'x' is not one of"),
    "unknown option": (["fit", "train.csv", "--speed", "9"], 2, "No such option"),
    "unknown command": (["train"], 2, "No such command 'train'"),
    "no folder": (["fit", "train.csv", "-t", "species", "-o", "no/m"], 1, "There is no folder no"),
    "precious": (["fit", "train.csv", "-t", "species", "-o", "test.csv"], 1, "is not a model file"),
    "too many pcs": (["fit", "iris", "--pca", "99"], 1, "Ask for fewer"),
    "no model": (["predict", "nowhere.pskem", "test.csv"], 1, "There is no model file nowhere"),
    "folder as model": (["inspect", "."], 1, "is a folder, not a model file"),
    "own column": (["predict", "model.pskem", "iris", "--keep", "prediction"], 1, "cannot be kept"),
    "class dropped": (["fit", "train.csv", "-t", "species", "--drop", "species"], 1, "no feature"),
    "too few weights": (
        ["fit", "iris", "-k", "6", "-r", "3", "--block-weights", "1,2"],
        1,
        r"--block-weights 1.0,2.0 has 2 number\(s\) for 3 block\(s\).* equal \(all blocks alike\)",
    ),
    "no threads": (
        ["fit", "iris", "--n-jobs", "0"],
        1,
        r"--n-jobs 0 must be left out \(all cores\), or a positive number of threads, or negative",
    ),
    "no fraction": (["fit", "train.csv", "--validation-fraction", "nan"], 2, "not a finite number"),
    "no time": (["tune", "train.csv", "--seconds", "nan"], 2, "not a finite number"),
    "negative seed": (["fit", "train.csv", "-t", "species", "--seed", "-1"], 2, "--random-state"),
    "foreign model": (["predict", "train.csv", "test.csv"], 1, "is not a model file of pskem"),
    "other columns": (["predict", "model.pskem", "iris.tsv"], 1, "There is no file"),
    "lacking columns": (["predict", "model.pskem", "wine"], 1, "lacks 5 column"),
    "nothing to keep": (["predict", "model.pskem", "test.csv", "--keep", "id"], 1, "'id' to keep"),
    "unknown output": (["predict", "model.pskem", "test.csv", "-o", "o.xls"], 1, "kind of file"),
    "own input": (["predict", "model.pskem", "test.csv", "-o", "test.csv"], 2, "is read"),
    "other classes": (["evaluate", "model.pskem", "test.csv", "-t", "site"], 1, "not trained on"),
    "unknown set": (["datasets", "fetch", "cats"], 2, "There is no data set 'cats'"),
    "no set": (["datasets", "fetch"], 2, "Which data set"),
    "no such subset": (["fit", "iris", "--subset", "test"], 1, "iris has no subsets"),
    "a page in place of data": (
        ["demo", "-o", "train.csv"],
        1,
        "is not a page of pskem. Remove it, name another file, or set --overwrite",
    ),
    "no place for a page": (["demo", "-o", "no/page.html"], 1, "There is no folder no"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_errors_are_one_clear_line_on_stderr(iris_model, case, capsys):
    command, code, match = WRONG[case]
    before = files()
    assert run(command) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("Error: ")
    assert err.count("\n") == 1
    assert re.search(match, err)
    assert files() == before


def test_outliers_are_for_densities(iris_folder, capsys):
    X, y = load_iris(return_X_y=True, as_frame=True)
    pskem.save(LinearDiscriminantAnalysis().fit(X, y), "lda.pskem")
    assert run(["predict", "lda.pskem", "test.csv", "--outliers", "0.1"]) == 1
    said = capsys.readouterr().err
    assert "holds a LinearDiscriminantAnalysis" in said
    assert said.endswith("--priors and --outliers are for pskem's classifiers.\n")
    assert run(["predict", "lda.pskem", "test.csv", "--reject", "0.9"]) == 0


def test_only_models_are_replaced_unless_asked(iris_folder, capsys):
    command = ["fit", "train.csv", "-t", "species", "-q", "-o"]
    assert run([*command, "test.csv"]) == 1
    said = capsys.readouterr().err
    with pytest.raises(FileExistsError) as refused:
        pskem.save(StandardScaler(), "test.csv")
    assert "is not a model file. Remove it, name another file, or set" in str(refused.value)
    assert said == f"Error: {refused.value}\n".replace("overwrite=True", "--overwrite")
    assert run([*command, "test.csv", "--overwrite"]) == 0
    assert run([*command, "test.csv"]) == 0  # a model by now


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_only_predictions_are_replaced_unless_asked(iris_model, suffix, capsys):
    command = ["predict", "model.pskem", "test.csv", "--keep", "site", "-o", f"out.{suffix}"]
    open(f"out.{suffix}", "w").close()  # as mktemp leaves it
    for options in ([], ["--proba"], []):
        assert run([*command, *options]) == 0
    read = pd.read_parquet if suffix == "parquet" else pd.read_csv
    frame = pd.read_csv("test.csv")
    if suffix == "parquet":
        frame.assign(prediction=1, weight=2).to_parquet("out.parquet")
    else:
        frame.assign(prediction=1, weight=2).to_csv(f"out.{suffix}", index=False)
    before = read(f"out.{suffix}")
    assert run(command) == 1
    assert f"out.{suffix} exists and is not a table of predictions" in capsys.readouterr().err
    pd.testing.assert_frame_equal(read(f"out.{suffix}"), before)
    assert run([*command, "--overwrite"]) == 0
    assert run(command) == 0
    assert run(["predict", "model.pskem", "test.csv", "-o", "test.csv", "--overwrite"]) == 2


def test_debug_shows_where_an_error_came_from(iris_folder):
    with pytest.raises(ValueError, match="There is no file"):
        run(["fit", "nowhere.csv", "-t", "y", "--debug"])


def test_surprises_are_one_line_too(iris_model, monkeypatch, capsys):
    def surprise(path):
        raise RuntimeError("out\nof order")

    monkeypatch.setattr("pskem.workflow.predictor.load_with_header", surprise)
    assert run(["predict", "model.pskem", "test.csv"]) == 1
    err = capsys.readouterr().err
    assert err == "Error: out of order (RuntimeError; --debug shows where)\n"


def test_warnings_are_one_line_without_a_place(iris_folder, capsys):
    options = ["-k", "30", "--shrinkage", "0", "-q"]
    assert run(["fit", "train.csv", "-t", "species", *options]) == 0
    err = capsys.readouterr().err
    assert err.startswith("Warning: ")
    assert ".py" not in err
    options = ["--max-iter", "1", "--tol", "1e-9", "-q"]
    assert run(["fit", "train.csv", "-t", "species", *options]) == 0
    assert capsys.readouterr().err.startswith("Warning: --max-iter 1 ended the training")


SAID = {
    "n_blocks=9 is more.": "--n-blocks 9 is more.",
    "Use n_blocks='auto'.": "Use --n-blocks auto.",
    "tol=-1.0, n_init=0.": "--tol -1.0, --n-init 0.",
    "n_components=[4, 5] has 2": "--n-components 4,5 has 2",
    "n_components[1]=0 must": "--n-components[1]=0 must",
    "early_stopping=False and block_weights=None": "--no-early-stopping and --block-weights equal",
    "set early_stopping=True, early_stopping": "set --early-stopping, --early-stopping",
    "set overwrite=True.": "set --overwrite.",
    "priors=None, random_state=3": "--priors frequencies, --random-state 3",
    "a folder: data_home=..., or": "a folder: --data-home ..., or",
    "the partition and init and drop of it": "the partition and init and drop of it",
    "no column 'n_blocks' in n_blocks.csv": "no column 'n_blocks' in n_blocks.csv",
    "my_n_blocks=3, n_blocks_=3": "my_n_blocks=3, n_blocks_=3",
    "give X_val, or warm_start=False": "give X_val, or warm_start=False",
}


@pytest.mark.parametrize(("text", "said"), SAID.items())
def test_messages_speak_of_options(text, said):
    assert in_options(text, group.get_command(None, "fit")) == said


def test_study_files_have_the_parameters_names():
    for command in (group, group.get_command(None, "study"), group.get_command(None, "datasets")):
        assert in_options("n_blocks=9 is more.", command) == "n_blocks=9 is more."


def test_every_parameter_of_fit_has_its_option():
    command = group.get_command(None, "fit")
    for option in command.params:
        if option.name in SharedKernelClassifier().get_params():
            said = in_options(f"{option.name}=3 or", command)
            flags = [*option.opts, f"{option.name}=3"]
            assert said.removesuffix(" or").removesuffix(" 3") in flags


def test_an_interrupt_leaves_nothing_behind(iris_model, monkeypatch, capsys):
    def interrupted(self, X):
        raise KeyboardInterrupt

    monkeypatch.setattr("sklearn.pipeline.Pipeline.predict_proba", interrupted)
    before = files()
    assert run(["predict", "model.pskem", "test.csv", "-o", "out.csv"]) == 130
    assert capsys.readouterr().err.strip() == "Interrupted."
    assert files() == before


def test_a_bad_row_far_down_leaves_no_output(iris_model, capsys):
    frame = pd.read_csv("test.csv")
    long = pd.concat([frame] * 1000)
    long.to_csv("long.csv", index=False)
    with open("long.csv", "a") as stream:
        stream.write("1,1,1,1,setosa,north,and,more\n")
    before = files()
    assert run(["predict", "model.pskem", "long.csv", "-o", "out.csv"]) == 1
    assert "8 fields in line 50002, more than its first line" in capsys.readouterr().err
    assert files() == before


def test_without_the_extra_the_command_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "click", None)
    for name in [name for name in sys.modules if name.startswith("pskem.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(SystemExit) as stop:
        main(["demo"])
    assert stop.value.code == 1
    assert "pip install 'pskem[cli]'" in capsys.readouterr().err


def test_main_exits_with_the_code(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["train"])
    assert stop.value.code == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals are for Unix")
def test_an_end_from_outside_leaves_nothing_behind(iris_model):
    frame = pd.read_csv("test.csv")
    pd.concat([frame] * 60_000).to_csv("long.csv", index=False)
    before = files()
    command = [sys.executable, "-m", "pskem", "predict", "model.pskem", "long.csv", "-o", "out.csv"]
    running = subprocess.Popen(command, stderr=subprocess.PIPE)
    while running.poll() is None and not any(".out.csv." in name for name in files()):
        time.sleep(0.05)
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate()
    assert running.returncode == 128 + signal.SIGTERM
    assert err == b""
    assert files() == before


def test_a_file_cannot_take_over_the_terminal(iris_folder, capsys):
    frame = pd.read_csv("train.csv").replace("setosa", "\x1b[2Jsetosa\x07")
    frame.to_csv("evil.csv", index=False)
    assert run(["fit", "evil.csv", "-t", "species"]) == 0
    assert run(["inspect", "evil.pskem"]) == 0
    assert run(["evaluate", "evil.pskem", "evil.csv"]) == 0
    out, err = capsys.readouterr()
    assert "[2Jsetosa" in out
    assert "\x1b" not in out + err
    assert "\x07" not in out + err


def test_links_are_followed_and_devices_left_alone(iris_model, capsys):
    os.mkfifo("pipe")
    assert run(["predict", "model.pskem", "test.csv", "-o", "pipe.csv"]) == 0
    os.symlink("pipe.csv", "link.csv")
    assert run(["predict", "model.pskem", "test.csv", "-o", "link.csv", "--proba"]) == 0
    assert os.path.islink("link.csv")
    assert len(pd.read_csv("pipe.csv").columns) == 4
    assert run(["demo", "-o", "pipe"]) == 1
    assert "name a file" in capsys.readouterr().err


def test_unknown_categories_are_named_once(iris_model, capsys):
    frame = pd.read_csv("test.csv").assign(site="west")
    pd.concat([frame] * 1000).to_csv("west.csv", index=False)
    assert run(["predict", "model.pskem", "west.csv", "-o", "out.csv"]) == 0
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert err.startswith("Warning: The column 'site' holds 'west', which the training did not see")


def test_many_classes_are_not_printed_as_a_matrix(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    y = [f"c{i % 40}" for i in range(400)]
    pd.DataFrame({"x": range(0, 800, 2), "y": y}).to_csv("many.csv", index=False)
    assert run(["fit", "many.csv", "-t", "y", "-q"]) == 0
    capsys.readouterr()
    assert run(["evaluate", "many.pskem", "many.csv"]) == 0
    out = capsys.readouterr().out
    assert "The confusion matrix of 40 classes is in the output of --json." in out
    assert "predicted" not in out
