"""pskem reproduce and pskem study: from a file of text to a report, through interruptions."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest

from pskem.cli.app import run
from pskem.study import LEGEND, conduct, load_study
from pskem.study.runner import in_words

pytestmark = pytest.mark.plumbing

STUDY = """
title = "Flowers"
runs = 2
data = { source = "train.csv", target = "species" }
split = { folds = 2 }
validation = { folds = 2 }
settings = { max_iter = 5 }
[[experiment]]
name = "ours"
grid = { n_components = [3, 6], n_blocks = [1, 2] }
[[experiment]]
name = "others"
method = ["lda", { name = "knn", n_neighbors = 5 }]
paper = { accuracy = 97.5 }
[[figure]]
name = "flowers"
x = "n_components"
line = "n_blocks"
y = ["accuracy", "shared", "seconds"]
experiments = ["ours"]
"""


@pytest.fixture
def folder(iris_folder):
    Path("flowers.toml").write_text(STUDY)
    return iris_folder


def rows(path="pskem-results/runs.sqlite"):
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT key, finished, parts FROM runs ORDER BY key").fetchall()
    connection.close()
    return found


def heed_interrupts():
    """Shells start what runs in the background with SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "pskem", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=heed_interrupts,
        **options,
    )


def wait_for_rows(n, path="pskem-results/runs.sqlite"):
    for _ in range(1200):
        try:
            if len(rows(path)) >= n:
                return
        except sqlite3.OperationalError:
            pass
        time.sleep(0.05)
    raise AssertionError("no rows came")


def test_a_study_of_ones_own(folder, capsys):
    assert run(["study", "flowers.toml", "--jobs", "2"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("\nflowers: Flowers\n")
    shown = re.split(r"\s{2,}", out.splitlines()[3])
    assert "best pass by TEST accuracy" in err
    for heading, meaning in LEGEND.items():  # what is shown is explained, and nothing else
        assert (meaning in err) == (heading in shown)
    assert "pass*" not in shown
    assert out.count("\nours, ") == 4
    assert "97.5" in out
    assert "12 run(s) performed, 0 were there already." in err
    results = Path("pskem-results")
    made = {"report.html", "summary.csv", "summary.json", "flowers.png", "flowers.svg"}
    assert {path.name for path in results.iterdir()} == {*made, "runs.sqlite"}
    frame = pd.read_csv(results / "summary.csv")
    assert frame["runs"].tolist() == [2] * 6
    ours, theirs = frame[:4], frame[4:]
    assert (ours["peak_mean"] >= ours["honest_mean"]).all()
    assert (ours["optimism_mean"] - ours["peak_mean"] + ours["honest_mean"]).abs().max() < 3e-6
    assert theirs["peak_mean"].isna().all()
    assert frame["honest_mean"].min() > 0.5
    plain = json.loads((results / "summary.json").read_text())
    assert len(plain["points"]) == 6
    page = (results / "report.html").read_text()
    assert "<img" in page
    # Nothing from elsewhere; the text of a picture may hold any four letters by chance.
    text = re.sub(r"base64,[^\"]*", "", page).replace("http://www.w3.org", "")
    assert "http" not in text
    # The same again: nothing is run, the same report is written.
    before = rows()
    picture = (results / "flowers.svg").read_bytes()
    assert run(["study", "flowers.toml", "--json"]) == 0
    out, err = capsys.readouterr()
    assert "0 run(s) performed, 12 were there already." in err
    assert json.loads(out) == plain["points"]
    assert rows() == before
    assert (results / "flowers.svg").read_bytes() == picture
    assert (results / "report.html").read_text() == page


def test_a_study_in_python(folder):
    study = load_study("flowers.toml")
    seen = []
    session = conduct([study], "out", runs=1, only=["others"], jobs=1, observe=seen.append)
    assert (session.outcome.performed, session.outcome.failures) == (2, [])
    assert seen[-1].text == "2 of 2 runs, 0 s left, done"
    ((same, points),) = session.points
    assert same.name == "flowers"
    assert [point.entry.label["method"] for point in points] == ["lda", "knn, n_neighbors=5"]
    assert session.written.page == Path("out/report.html")
    report = conduct([], "out")
    assert report.outcome is None
    assert [len(group) for _, group in report.points] == [2]

    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        conduct([study], "out", runs=1, jobs=1, observe=interrupt)
    (note,) = stopped.value.__notes__
    assert note.startswith("Stopped: 2 of 6 runs are kept in out/runs.sqlite")


def test_a_page_of_someone_else_is_kept_and_told_of_before_the_work(folder, capsys):
    mine = Path("out/report.html")
    mine.parent.mkdir()
    mine.write_text("my own")
    assert run(["study", "flowers.toml", "--out", "out"]) == 1
    assert "out/report.html exists and is not a report of pskem. Move it" in capsys.readouterr().err
    assert mine.read_text() == "my own"
    assert list(mine.parent.iterdir()) == [mine]


def test_a_title_cannot_take_over_the_terminal(folder, capsys):
    Path("flowers.toml").write_text(STUDY.replace('"Flowers"', r'"Flo\u001b[2Jwers\u009b"'))
    assert run(["study", "flowers.toml", "--jobs", "1", "-n", "1", "--only", "others"]) == 0
    out, err = capsys.readouterr()
    assert "flowers: Flo\N{REPLACEMENT CHARACTER}[2Jwers" in out
    assert not set(out + err) & set("\x1b\x9b")


def test_the_report_needs_the_file_alone(folder, capsys):
    assert run(["study", "flowers.toml", "--jobs", "1", "-n", "1", "-q"]) == 0
    page = Path("pskem-results/report.html").read_text()
    Path("elsewhere").mkdir()
    Path("pskem-results/runs.sqlite").rename("elsewhere/runs.sqlite")
    for name in ("flowers.toml", "train.csv"):
        Path(name).unlink()
    assert run(["reproduce", "report", "--out", "elsewhere"]) == 0
    assert Path("elsewhere/report.html").read_text() == page
    assert Path("elsewhere/flowers.svg").is_file()
    capsys.readouterr()
    assert run(["reproduce", "report", "--out", "elsewhere", "--only", "mda"]) == 1
    assert "Nothing here is called 'mda'" in capsys.readouterr().err


def test_a_killed_study_goes_on_where_it_was(folder):
    arguments = ["study", "flowers.toml", "--jobs", "1", "-n", "3"]
    first = start(*arguments)
    wait_for_rows(3)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    kept = rows()
    assert 3 <= len(kept) < 18
    again = start(*arguments, "--json")
    out, err = again.communicate(timeout=300)
    assert again.returncode == 0, err
    after = rows()
    assert len(after) == 18
    assert set(kept) <= set(after)
    assert f"{18 - len(kept)} run(s) performed, {len(kept)} were there already." in err
    assert [point["runs"] for point in json.loads(out)] == [3] * 6


def test_an_interrupted_study_says_what_it_kept(folder):
    process = start("study", "flowers.toml", "--jobs", "1", "-n", "50")
    wait_for_rows(2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert f"Stopped: {len(rows())} of 300 runs are kept" in err
    assert err.endswith("Interrupted.\n")
    assert "Traceback" not in err
    claims = sqlite3.connect("pskem-results/runs.sqlite").execute("SELECT * FROM claims")
    assert claims.fetchall() == []


def test_several_processes_share_the_work(folder):
    processes = [start("study", "flowers.toml", "--jobs", "1", "-n", "4") for _ in range(2)]
    performed = 0
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        line = next(line for line in err.splitlines() if "performed" in line)
        done, found = (int(part.split()[0]) for part in line.split(", "))
        assert done + found == 24
        performed += done
    assert performed == len(rows()) == 24


def test_an_interrupt_of_the_whole_group_leaves_no_traceback(folder):
    """A terminal sends Ctrl-C to the workers as well, also while they begin."""
    command = ["study", "flowers.toml", "-n", "50", "--jobs", "2"]
    for delay in (0.1, 0.6):
        process = start(*command, "-o", f"out{delay}", process_group=0)
        while not Path(f"out{delay}/runs.sqlite").exists():
            time.sleep(0.02)
        time.sleep(delay)
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=60)
        assert process.returncode == 130, err
        assert "Traceback" not in err
        assert err.endswith("Interrupted.\n")


def test_workers_end_with_their_parent(folder):
    process = start("study", "flowers.toml", "--jobs", "1", "-n", "500")
    wait_for_rows(1)
    children = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True
    ).stdout.split()
    assert children
    process.kill()
    process.communicate()
    for _ in range(200):
        if not any(Path(f"/proc/{pid}").exists() for pid in children):
            return
        time.sleep(0.1)
    raise AssertionError("a worker is still there")


def test_digits_need_no_data(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PSKEM_DATA", str(tmp_path / "none"))
    command = ["reproduce", "digits", "--runs", "1", "--only", "MDA", "--only", "lda", "-o", "out"]
    assert run([*command, "--json"]) == 0
    points = json.loads(capsys.readouterr().out)
    assert [point["experiment"] for point in points] == ["MDA"] * 3 + ["conventional"]
    assert all(point["honest_mean"] > 0.8 for point in points)
    assert Path("out/report.html").is_file()


def test_the_list_of_experiments(capsys):
    assert run(["reproduce", "--list"]) == 0
    out = capsys.readouterr().out
    for name in ("table1", "fig1", "fig2", "fig3", "fig4", "fig5", "mda", "ionosphere", "quick"):
        assert f"\n{name} " in out
    assert run(["reproduce", "--list", "--json"]) == 0
    listed = {entry["name"]: entry["runs"] for entry in json.loads(capsys.readouterr().out)}
    assert listed["fig2"] == 1000  # 50 points, 20 runs each
    assert listed["mda"] == 400


def test_nothing_is_run_before_it_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce"]) == 2
    out, err = capsys.readouterr()
    assert "\nfig2 " in out
    assert err.startswith("Error: Which experiments? Name some of these, or ask for --all.")
    assert os.listdir() == []
    asked = []
    module = "pskem.cli.reproduce.run_studies"
    monkeypatch.setattr(module, lambda studies, **options: asked.extend(studies) or 0)
    assert run(["reproduce", "--all"]) == 0
    names = {study.name for study in asked}
    assert {"table1", "fig2", "mda"} <= names
    assert not {"quick", "digits", "starts"} & names


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["reproduce", "fig9"],
            2,
            "There is no experiment 'fig9'. Known: beyond, defaults",
        ),
        (["reproduce", "report"], 1, "There is no file of results pskem-results/runs.sqlite"),
        (["reproduce", "report", "digits"], 2, "it stands alone"),
        (["reproduce", "digits", "--only", "svm"], 1, "Nothing here is called 'svm'"),
        (["reproduce", "digits", "--runs", "0"], 2, "--runs"),
        (["reproduce", "digits", "--jobs", "0"], 2, "--jobs"),
        (["study", "none.toml"], 1, "none.toml cannot be read: No such file"),
        (["reproduce", "report", "--runs", "3"], 2, "leave --runs out"),
        (["study", "flowers.toml", "--out", "train.csv/x"], 1, "cannot be made: Not a directory"),
        (["study"], 2, "Missing argument 'DEFINITION'"),
        (["study", "flowers.toml", "--out", "train.csv"], 2, "train.csv"),
    ],
)
def test_wrong_usage_is_told_in_a_line(folder, capsys, arguments, code, said):
    assert run(arguments) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert not Path("pskem-results").exists()


def test_a_wrong_target_fails_its_runs_and_says_why_once(folder, capsys):
    Path("flowers.toml").write_text(STUDY.replace('"species"', '"spices"'))
    assert run(["study", "flowers.toml", "--jobs", "1"]) == 1
    err = capsys.readouterr().err
    assert err.count("spices") == 1
    assert "12 run(s) on train.csv failed: " in err
    assert "(The first: shared-kernels with max_iter=5, n_components=3, n_blocks=1, seed 0.)" in err
    assert not Path("pskem-results/report.html").exists()


def test_data_sets_that_are_not_there_do_not_stop_the_others(folder, capsys, monkeypatch):
    def refuse(*arguments, **options):
        raise OSError("no network here")

    monkeypatch.setenv("PSKEM_DATA", str(folder / "none"))
    monkeypatch.setattr("pskem.study.materials.fetch", refuse)
    text = STUDY + '\n[[experiment]]\nname = "far"\ndata = { source = "mnist" }\n'
    Path("flowers.toml").write_text(text.replace("split = { folds = 2 }\n", ""))
    assert run(["study", "flowers.toml", "--jobs", "1", "-n", "1", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "1 run(s) on mnist failed: no network here" in err
    assert len(json.loads(out)) == 6


def test_lengths_of_time_are_for_people():
    assert [in_words(s) for s in (5.4, 89, 90, 3600, 5400, 9000)] == [
        "5 s",
        "89 s",
        "2 min",
        "60 min",
        "1 h 30 min",
        "2 h 30 min",
    ]
