"""Tables that are read piece by piece, on the command line."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from pskem import load, open_table, save
from pskem.cli.app import run
from pskem.clusters import current_client
from pskem.tables.batches import Stored
from pskem.training._loop import Trainer
from pskem.training._piecewise import PieceSource
from pskem.workflow import stored

pytestmark = [
    pytest.mark.plumbing,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of sockets of a cluster
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

#: Without those that are held out still more than are read at once.
N = 23_000
QUICK = ["-k", "6", "--max-iter", "4", "--tol", "0", "--discriminative-iter", "2", "--json"]


@pytest.fixture
def frame(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    X = (rng.standard_normal((3, 4)) * 1.5)[y] + rng.standard_normal((N, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[::50, "b"] = np.nan
    frame["colour"] = np.array(["red", "green", "blue"])[(y + (rng.random(N) < 0.3)) % 3]
    frame["row"] = np.arange(N)
    frame["kind"] = np.array(["iris", "rose", "tulip"])[y]
    return frame


def fitted(capsys, *arguments):
    code = run(["fit", *arguments, "-t", "kind", *QUICK])
    out, err = capsys.readouterr()
    assert code == 0, err
    return json.loads(out), err


@pytest.mark.parametrize("name", ["table.parquet", "table.csv", "table.arrow"])
def test_the_model_is_that_of_the_table_in_memory(frame, capsys, name):
    if name.endswith("csv"):
        frame.to_csv(name, index=False)
    else:
        (frame.to_parquet if name.endswith("parquet") else frame.to_feather)(name)
    plain, _ = fitted(capsys, name, "-o", "plain.pskem")
    made, err = fitted(capsys, name, "-o", "made.pskem", "--out-of-core")
    assert "Column 'row' is left out: it numbers the rows" in err
    assert made["n_validation"] > 0.09 * N
    for key in ("n_train", "n_validation", "classes", "n_features", "n_components", "n_iter"):
        assert made[key] == plain[key], key
    for key in ("training_accuracy", "validation_accuracy", "log_likelihood_per_row"):
        assert made[key] == pytest.approx(plain[key], abs=1e-9), key
    X = frame.drop(columns=["kind", "row"])
    one, two = (load(path).predict_proba(X) for path in ("plain.pskem", "made.pskem"))
    np.testing.assert_allclose(one, two, atol=1e-9)
    assert run(["evaluate", "made.pskem", name]) == 0
    assert run(["predict", "made.pskem", name, "-o", "labels.csv"]) == 0


@pytest.mark.parametrize("how", ["plain", "early", "weights", "unlabelled"])
def test_few_rows_are_held_out_as_in_memory(frame, capsys, how):
    frame = frame.head(900).drop(columns="row").assign(count=np.arange(900) % 3)
    options = {"early": ["--early-stopping"], "weights": ["--weights", "count"]}.get(how, [])
    if how == "unlabelled":
        frame.loc[::4, "kind"] = None
        options = ["--unlabelled"]
    (frame if how == "weights" else frame.drop(columns="count")).to_parquet("table.parquet")
    plain, _ = fitted(capsys, "table.parquet", "-o", "plain.pskem", *options)
    made, _ = fitted(capsys, "table.parquet", "-o", "made.pskem", "--out-of-core", *options)
    other = {"seconds", "model"}
    assert {key: made[key] for key in made.keys() - other} == {
        key: plain[key] for key in plain.keys() - other
    }
    X = frame.drop(columns="kind")
    one, two = (load(path).predict_proba(X) for path in ("plain.pskem", "made.pskem"))
    np.testing.assert_array_equal(one, two)


def test_rows_that_are_held_out_measure_accuracy(frame, capsys):
    frame.to_parquet("table.parquet")
    made, _ = fitted(capsys, "table.parquet", "--out-of-core", "--validation-fraction", "0.2")
    assert abs(made["n_validation"] / N - 0.2) < 0.01
    assert made["n_train"] + made["n_validation"] == N
    assert abs(made["validation_accuracy"] - made["training_accuracy"]) < 0.03


def test_rows_without_a_class_are_left_out_unless_they_are_asked_for(frame, capsys):
    frame.loc[::3, "kind"] = None
    frame.to_parquet("table.parquet")
    with_class, err = fitted(capsys, "table.parquet", "--out-of-core")
    assert with_class["unlabelled_weight"] is None
    known = int(frame["kind"].notna().sum())
    assert f"{N - known:,} row(s) without a class are left out." in err
    assert with_class["n_train"] + with_class["n_validation"] == known
    both, err = fitted(
        capsys, "table.parquet", "--out-of-core", "--unlabelled", "--unlabelled-weight", "1",
        "--overwrite",
    )  # fmt: skip
    assert f"{N - known:,} row(s) without a class are there to learn from." in err
    assert both["remarks"][-1] in err
    assert both["unlabelled_weight"] == 1.0
    assert both["n_train"] + both["n_validation"] == N


@pytest.mark.parametrize("unlabelled", [False, True])
def test_rows_of_weight_zero_are_as_if_they_were_not_there(frame, capsys, unlabelled):
    """Neither the scale of the numbers nor any count knows them, and their class is none."""
    options = ["--out-of-core", "--drop", "row"]
    if unlabelled:
        frame.loc[::3, "kind"] = None
        options += ["--unlabelled", "--unlabelled-weight", "1"]
    counted = frame.assign(count=1 + np.arange(N) % 2)
    counted.to_parquet("plain.parquet")
    absurd = counted.head(700).assign(count=0, a=1e6, b=-1e6, kind="weed")
    mixed = pd.concat([absurd, counted, absurd], ignore_index=True)
    mixed.sample(frac=1.0, random_state=0).to_parquet("mixed.parquet")
    options += ["--weights", "count"]
    plain, _ = fitted(capsys, "plain.parquet", *options)
    found, _ = fitted(capsys, "mixed.parquet", *options)
    other = {"seconds", "model"}
    for key in plain.keys() - other:
        close = isinstance(plain[key], float)
        assert found[key] == (pytest.approx(plain[key], abs=1e-9) if close else plain[key]), key
    X = frame.drop(columns=["kind", "row"])
    one, two = (load(f"{name}.pskem").predict_proba(X) for name in ("plain", "mixed"))
    np.testing.assert_allclose(one, two, atol=1e-9)


def test_rows_that_are_left_out_need_no_weight(frame, capsys):
    frame.loc[::3, "kind"] = None
    frame.assign(count=np.where(frame["kind"].isna(), np.nan, 1.0)).to_parquet("table.parquet")
    options = ["--weights", "count", "--out-of-core"]
    found, _ = fitted(capsys, "table.parquet", *options)
    assert found["n_train"] + found["n_validation"] == frame["kind"].notna().sum()
    assert run(["fit", "table.parquet", "-t", "kind", "--unlabelled", *options]) == 1
    assert "without a weight" in capsys.readouterr().err


def test_some_rows_must_count(frame, capsys):
    frame.assign(w=0.0).to_parquet("table.parquet")
    command = ["fit", "table.parquet", "-t", "kind", "--weights", "w"]
    for how in ("--in-memory", "--out-of-core"):
        assert run([*command, how]) == 1
        assert "All weights in the column 'w' are 0; at least one" in capsys.readouterr().err
    frame.loc[:99, "kind"] = None
    frame.assign(w=1.0 * frame["kind"].isna()).to_parquet("table.parquet")
    for how in ("--in-memory", "--out-of-core"):
        assert run([*command, how, "--unlabelled"]) == 1
        assert "The column 'kind' holds no class" in capsys.readouterr().err


def test_a_class_of_a_single_row_is_refused_as_in_memory(frame, capsys):
    frame.loc[9, "kind"] = "weed"
    frame.to_parquet("table.parquet")
    said = []
    for how in ("--in-memory", "--out-of-core"):
        assert run(["fit", "table.parquet", "-t", "kind", how]) == 1
        said.append(capsys.readouterr().err.splitlines()[-1])
    assert "1 class(es) with a single row: weed" in said[0]
    assert said[0] == said[1]


def test_early_stopping_holds_rows_of_its_own_out(frame, capsys):
    frame.to_parquet("table.parquet")
    made, _ = fitted(capsys, "table.parquet", "--out-of-core", "--early-stopping")
    assert 0 < made["best_iter"] <= made["n_iter"] == 4
    assert len(load("table.pskem")[-1].validation_scores_) == 4


def test_several_files_are_read_piece_by_piece(frame, capsys, tmp_path):
    (tmp_path / "parts").mkdir()
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        frame.iloc[part].to_parquet(f"parts/{i}.parquet")
    one, _ = fitted(capsys, "parts", "-o", "one.pskem")
    two, _ = fitted(capsys, "parts/*.parquet", "-o", "two.pskem")
    assert one["n_train"] + one["n_validation"] == N
    assert {**one, "seconds": 0, "model": 0} == {**two, "seconds": 0, "model": 0}
    assert run(["fit", "parts", "-t", "kind", "--in-memory"]) == 2
    assert "--in-memory reads one file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("most", "free"), [("max", np.inf), ("1000000", 1_000_000 - 600_000 + 250_000)]
)
def test_files_that_were_read_count_as_free_in_a_container(tmp_path, most, free):
    (tmp_path / "memory.max").write_text(f"{most}\n")
    (tmp_path / "memory.current").write_text("600000\n")
    (tmp_path / "memory.stat").write_text("anon 350000\ninactive_file 250000\nactive_file 0\n")
    assert stored._free_in_container(tmp_path) == free
    assert stored._free_in_container(tmp_path / "none") == np.inf


def test_what_does_not_fit_is_read_piece_by_piece(frame, capsys, monkeypatch):
    frame.to_parquet("table.parquet")
    monkeypatch.setattr(stored, "_free_memory", lambda: 8.0 * N * 7)
    _, err = fitted(capsys, "table.parquet")
    assert "would take about 0.0 GB of memory, so it is read piece by piece" in err
    assert "--in-memory reads it at once" in err
    _, err = fitted(capsys, "table.parquet", "--in-memory", "--overwrite")
    assert "piece by piece" not in err
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["table.parquet", "--pca", "2"], "--pca needs the whole table in memory"),
        (["table.parquet", "--ica"], "--ica needs the whole table in memory"),
        (["-"], "Standard input can be read once only"),
        (["iris"], "iris is the name of a data set"),
        (["part*.csv"], "No file is called part*.csv"),
    ],
)
def test_what_cannot_be_is_refused(frame, capsys, arguments, message):
    frame.to_parquet("table.parquet")
    assert run(["fit", *arguments, "-t", "kind", "--out-of-core"]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") <= 2
    assert "Traceback" not in err


def test_a_cluster_gives_the_same_model(frame, capsys, tmp_path):
    pytest.importorskip("distributed", reason="distributed is not installed")
    (tmp_path / "parts").mkdir()
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        frame.iloc[part].to_parquet(f"parts/{i}.parquet")
    one, _ = fitted(capsys, "parts", "-o", "one.pskem")
    two, err = fitted(capsys, "parts/*.parquet", "-o", "two.pskem", "--workers", "2")
    three, _ = fitted(capsys, f"file://{tmp_path}/parts/*.parquet", "-o", "three.pskem")
    assert "2 worker(s); dashboard: http://127.0.0.1" in err
    for other in (two, three):
        assert other["n_train"] == one["n_train"]
        assert other["validation_accuracy"] == one["validation_accuracy"]
    X = frame.drop(columns=["kind", "row"])
    expected, *found = (load(f"{name}.pskem").predict_proba(X) for name in ("one", "two", "three"))
    for proba in found:
        np.testing.assert_allclose(proba, expected, atol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "2", "--scheduler", "tcp://127.0.0.1:9"], "give one"),
        (["--workers", "2", "--in-memory"], "leave out --scheduler, --workers"),
        (["--scheduler", "tcp://127.0.0.1:9"], "There is no Dask scheduler at tcp://127.0.0.1:9"),
        (["--scheduler", "8786"], "--scheduler '8786' is no address of a Dask scheduler, such as"),
        (["--scheduler", "http://127.0.0.1:9"], "is no address of a Dask scheduler, such as"),
        (["--scheduler", "tls://127.0.0.1:9"], "TLS needs certificates, which Dask's config"),
    ],
)
def test_clusters_that_cannot_be_are_refused(frame, capsys, monkeypatch, arguments, message):
    pytest.importorskip("distributed", reason="distributed is not installed")
    monkeypatch.setattr("pskem.cli.cluster.PATIENCE", 1)
    frame.to_parquet("table.parquet")
    assert run(["fit", "table.parquet", "-t", "kind", "-q", *arguments]) in (1, 2)
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert current_client() is None, "none stays behind"


def test_another_program_is_no_scheduler(frame, capsys, monkeypatch):
    """It accepts connections, and waits for a question that it understands."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    monkeypatch.setattr("pskem.cli.cluster.PATIENCE", 1)
    monkeypatch.setattr("pskem.cli.cluster.MOMENT", 1)
    frame.to_parquet("table.parquet")
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"tcp://127.0.0.1:{other.getsockname()[1]}"
        assert run(["fit", "table.parquet", "-t", "kind", "-q", "--scheduler", address]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said == f"Error: There is no Dask scheduler at {address}: no answer within 2 s"


def test_an_address_that_is_none_leaves_no_client_behind(frame, tmp_path):
    """Which would be said at the end of the process, after a while."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    frame.to_parquet("table.parquet")
    command = [sys.executable, "-m", "pskem", "fit", "table.parquet", "-t", "kind", "-q"]
    for address in ("foo://bar", ""):
        command_to = [*command, "--scheduler", address]
        done = subprocess.run(command_to, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        (said,) = done.stderr.splitlines()
        assert f"--scheduler {address!r} is no address of a Dask scheduler" in said


def test_a_cluster_that_fails_is_said_like_a_file_that_does(frame, capsys, monkeypatch):
    from pskem import ClusterError

    def fail(*given):
        raise ClusterError("The Dask scheduler is gone.")

    frame.to_parquet("table.parquet")
    monkeypatch.setattr("pskem.workflow.stored.measure_table", fail)
    assert run(["fit", "table.parquet", "-t", "kind", "--out-of-core", "--max-iter", "2"]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == "Error: The Dask scheduler is gone."


def test_a_cluster_of_our_own_never_gives_a_worker_up(frame, capsys, monkeypatch):
    """One that dies is started again; given up meanwhile, it would be waited for in vain."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    dask = pytest.importorskip("dask")
    asked = []

    def train(*given, **more):
        asked.append(dask.config.get("distributed.deploy.lost-worker-timeout"))
        assert len(distributed.get_client().nthreads()) == 1
        raise ValueError("enough")

    before = dask.config.get("distributed.deploy.lost-worker-timeout")
    monkeypatch.setattr("pskem.workflow.train_stored", train)
    frame.to_parquet("table.parquet")
    assert run(["fit", "table.parquet", "-t", "kind", "--workers", "1"]) == 1
    assert asked == ["365 days"]
    assert dask.config.get("distributed.deploy.lost-worker-timeout") == before


def test_a_cluster_without_workers_is_waited_for(frame, capsys, monkeypatch):
    """It is not refused: workers may come."""
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    asked = []

    def train(*given, **more):
        asked.append(len(distributed.get_client().nthreads()))
        raise ValueError("enough")

    monkeypatch.setattr("pskem.workflow.train_stored", train)
    frame.to_parquet("table.parquet")
    with distributed.LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as made:
        command = ["fit", "table.parquet", "-t", "kind", "--scheduler", made.scheduler_address]
        assert run(command) == 1
    assert asked == [0]
    assert "0 worker(s), so the training waits for one; dashboard:" in capsys.readouterr().err


def test_workers_may_run_in_another_folder(frame, capsys, tmp_path):
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    frame.to_parquet("table.parquet", row_group_size=7000)
    plain, _ = fitted(capsys, "table.parquet", "-o", "plain.pskem", "--out-of-core")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "processes": True}
    with (
        distributed.LocalCluster(n_workers=1, **options) as made,
        distributed.Client(made) as client,
    ):
        client.run(os.chdir, str(elsewhere))
        address = made.scheduler_address
        there, _ = fitted(capsys, "table.parquet", "-o", "there.pskem", "--scheduler", address)
    assert there["validation_accuracy"] == plain["validation_accuracy"]
    (part,) = open_table("table.parquet", "kind").on_cluster().parts
    assert part.named == "table.parquet", "which messages say"


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("options", [["--out-of-core"], ["--workers", "1"]])
@pytest.mark.parametrize("harm", [truncate, Path.unlink])
@pytest.mark.parametrize("when", ["between passes", "in a pass"])
def test_a_part_that_is_lost_in_the_middle_of_a_fit(
    frame, capsys, tmp_path, monkeypatch, options, harm, when
):
    """Files are looked at before each pass; what happens after that is found by reading."""
    if "--workers" in options:
        pytest.importorskip("distributed", reason="distributed is not installed")
    (tmp_path / "parts").mkdir()
    parts = [tmp_path / "parts" / f"{i}.parquet" for i in range(3)]
    for path, rows in zip(parts, np.array_split(np.arange(N), 3), strict=True):
        frame.iloc[rows].to_parquet(path)
    command = ["fit", "parts", "-t", "kind", *QUICK, "-o", "model.pskem"]
    assert run(command) == 0
    capsys.readouterr()
    old = Path("model.pskem").read_bytes()
    passes, advance, check = [], Trainer.advance, Stored.check

    def lose():
        if len(passes) == 2 and len(lost) == 0:
            lost.append(parts[1])
            harm(parts[1])

    lost = []

    def advancing(self, state):
        assert isinstance(self.data.source, PieceSource), "the file is read in every pass"
        passes.append(state)
        if when == "between passes":
            lose()
        return advance(self, state)

    def checking(self):
        check(self)
        if when == "in a pass" and self.path.endswith("2.parquet"):
            lose()

    monkeypatch.setattr(Trainer, "advance", advancing)
    monkeypatch.setattr(Stored, "check", checking)
    assert run([*command, *options]) == 1
    out, err = capsys.readouterr()
    assert lost
    assert out == ""
    *remarks, line = err.splitlines()
    assert all("worker(s)" in text or "Column 'row'" in text for text in remarks)
    assert line.startswith("Error: ")
    assert "1.parquet" in line
    assert "has changed" in line or "cannot be read" in line
    assert "Traceback" not in err
    assert Path("model.pskem").read_bytes() == old
    assert sorted(os.listdir()) == ["model.pskem", "parts"]


@pytest.mark.skipif(os.name != "posix", reason="signals of Unix")
@pytest.mark.parametrize("when", ["copying", "training"])
def test_an_interrupt_leaves_the_old_model_and_nothing_else(frame, tmp_path, monkeypatch, when):
    """While a text is copied to columns that can be read piece by piece, and in the passes."""
    n = 20 if when == "copying" else 1
    pd.concat([frame.drop(columns="row")] * n).to_csv("table.csv", index=False)
    save(StandardScaler().fit(frame[["a"]]), "model.pskem")
    old = Path("model.pskem").read_bytes()
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    long = ["-k", "60", "--max-iter", "100000", "--tol", "0", "--out-of-core"]
    kept = ["--checkpoint", "run.checkpoint", "-o", "model.pskem"]
    sign = {"copying": "tmp/pskem.*/table.arrow", "training": "run.checkpoint"}[when]
    code = (
        "from pskem.persistence import checkpoints\n"
        "checkpoints.SHARE = float('inf')\n"
        "from pskem.cli import main\n"
        f"main({['fit', 'table.csv', '-t', 'kind', *long, *kept]!r})\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60.0
        while not list(tmp_path.glob(sign)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.decode().split() == ["Interrupted."]
    assert Path("model.pskem").read_bytes() == old
    assert not os.listdir("tmp")
    expected = {"model.pskem", "table.csv", "tmp"} | ({"run.checkpoint"} & {sign})
    assert set(os.listdir()) == expected


@pytest.fixture
def training(frame):
    """A command with two workers that takes long, in a process group of its own."""
    pytest.importorskip("distributed", reason="distributed is not installed")
    if os.name != "posix":
        pytest.skip("there are no process groups here")
    frame.drop(columns="row").to_parquet("table.parquet")
    command = [sys.executable, "-m", "pskem", "fit", "table.parquet", "-t", "kind"]
    long = ["-k", "60", "--max-iter", "100000", "--tol", "0", "--discriminative-iter", "0"]
    with subprocess.Popen(
        [*command, *long, "--workers", "2"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert "2 worker(s)" in process.stderr.readline()
            time.sleep(1.0)
            assert process.poll() is None
            yield process
            assert _is_gone(process.pid), "some processes have outlived the command"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _is_gone(group, seconds=20.0):
    """Whether all processes of a group end in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_an_interrupt_ends_all_with_one_line(training):
    """A terminal sends it to every process of the group, workers too."""
    os.killpg(training.pid, signal.SIGINT)
    _, err = training.communicate(timeout=60)
    assert training.returncode == 130
    assert err.split() == ["Interrupted."]


def test_workers_end_with_a_command_that_is_killed(training):
    training.kill()
    training.communicate(timeout=60)


def test_addresses_that_lead_nowhere_are_named(frame, capsys, tmp_path):
    for name in ("none.parquet", "part-*.parquet"):
        assert run(["fit", f"file://{tmp_path}/{name}", "-t", "kind"]) == 1
        err = capsys.readouterr().err
        assert f"No Parquet file is called file://{tmp_path}/{name}." in err


def test_workers_elsewhere_do_not_see_copies(frame, capsys):
    """Which is said before anything is trained, or anybody asked."""
    frame.head(200).to_csv("table.csv", index=False)
    assert run(["fit", "table.csv", "-t", "kind", "--scheduler", "tcp://127.0.0.1:9"]) == 1
    assert "Give --scheduler Parquet files" in capsys.readouterr().err
