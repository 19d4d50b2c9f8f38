"""The file of results: claims, whole rows, several processes, other files."""

import os
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pytest

import pskem.study.store as store_module
from pskem.files import is_alive
from pskem.study import Place, Store, StudyError, parse_study, summarise, work
from pskem.study.execution import PartResult, Result, perform
from pskem.study.runner import WorkProgress

pytestmark = pytest.mark.plumbing

STUDY = parse_study(
    "tiny",
    """
runs = 3
data = { source = "iris" }
split = { test = 0.3 }
validation = { fraction = 0.3 }
[[experiment]]
name = "ours"
grid = { n_components = [2, 3], max_iter = [3] }
[[experiment]]
name = "lda"
method = "lda"
""",
)
RUNS = STUDY.runs()
KEYS = [run.key for run in RUNS]
PART = PartResult(70, 30, 45, [0.5, 0.75, 0.625], [0.5, 0.5, 1.0], 3, [-9.0, -8.5], [0.5], 1.5)
RESULT = Result([PART, PART], 4.0, {"Careful.": 2})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        yield opened


def test_what_goes_in_comes_out(store, tmp_path):
    store.add(RUNS[0], RESULT, threads=2)
    with Store(tmp_path / "runs.sqlite") as other:
        (record,) = other.records()
    assert record.result == RESULT
    assert (record.point, record.seed, record.threads) == (RUNS[0].point.key, 0, 2)
    assert record.versions["pskem"] == __import__("pskem").__version__
    assert {"numpy", "scipy", "scikit-learn", "python"} <= set(record.versions)


def test_a_row_can_be_read_without_pskem(store, tmp_path):
    """The file is for researchers too: plain columns, plain JSON."""
    store.add(RUNS[0], RESULT)
    rows = sqlite3.connect(tmp_path / "runs.sqlite").execute(
        "SELECT seed, peak, honest, last, shared, seconds, json_extract(configuration,"
        " '$.data.source'), json_extract(parts, '$[0].log_likelihoods[1]'), warnings FROM runs"
    )
    assert rows.fetchall() == [(0, 0.75, 0.625, 0.625, 0.5, 4.0, "iris", -8.5, '{"Careful.": 2}')]


def test_the_first_result_stays(store):
    store.add(RUNS[0], RESULT)
    store.add(RUNS[0], RESULT._replace(seconds=1.0))
    assert [record.result.seconds for record in store.records()] == [4.0]


def test_a_claimed_run_is_left_to_its_claimant(store, tmp_path):
    with Store(tmp_path / "runs.sqlite") as other:
        assert store.claim(KEYS[:2]).key == KEYS[0]
        assert other.claim(KEYS[:2]).key == KEYS[1]
        assert other.claim(KEYS[:2]).key is None
        store.add(RUNS[0], RESULT)
        assert other.claim(KEYS[:2]) == (None, {KEYS[0]})
        other.fail(RUNS[1], "no luck")
        assert other.failures() == {KEYS[1]: (RUNS[1].point.key, RUNS[1].seed, "no luck")}
        assert store.claim(KEYS[:2]).key == KEYS[1]
        store.add(RUNS[1], RESULT)
        assert other.failures() == {}
    assert store.done(KEYS) == set(KEYS[:2])


def test_claims_end_with_the_store(store, tmp_path):
    with Store(tmp_path / "runs.sqlite") as other:
        other.claim(KEYS)
        assert store.claim(KEYS[:1]).key is None
    assert store.claim(KEYS[:1]).key == KEYS[0]


def test_a_claim_of_a_process_that_was_killed_is_free_at_once(store, tmp_path):
    code = (
        "import sys, os, signal; from pskem.study import Store;"
        f"print(Store({str(tmp_path / 'runs.sqlite')!r}).claim(['a']).key, flush=True);"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "a\n"
    assert store.claim(["a"]).key == "a"


def test_a_claim_from_another_machine_ends_unless_it_is_renewed(store, tmp_path, monkeypatch):
    with Store(tmp_path / "runs.sqlite") as other:
        monkeypatch.setattr(store_module.socket, "gethostname", lambda: "elsewhere")
        other.claim(["a"])
        monkeypatch.undo()
        assert store.claim(["a"]).key is None
        now = time.time()
        monkeypatch.setattr(store_module.time, "time", lambda: now + 290)
        other.renew()
        monkeypatch.setattr(store_module.time, "time", lambda: now + 580)
        assert store.claim(["a"]).key is None
        monkeypatch.setattr(store_module.time, "time", lambda: now + 591)
        assert store.claim(["a"]).key == "a"


def test_other_files_are_refused_and_not_touched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database " * 100)
    with pytest.raises(StudyError, match="is not a file of results"):
        Store(path)
    assert path.read_text() == "not a database " * 100
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    before = other.read_bytes()
    with pytest.raises(StudyError, match="is not a file of results"):
        Store(other)
    assert other.read_bytes() == before
    with pytest.raises(StudyError, match="no file of results"):
        Store(tmp_path / "none", create=False)
    assert not (tmp_path / "none").exists()
    with pytest.raises(StudyError, match="cannot be opened"):
        Store(tmp_path / "no" / "folder")


def test_files_of_a_later_layout_are_refused(tmp_path):
    path = tmp_path / "runs.sqlite"
    Store(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StudyError, match="another version of pskem"):
        Store(path)


def perform_all(store, tmp_path, runs=RUNS, **options):
    with ThreadPoolExecutor(1) as executor:
        return work(runs, store, Place(tmp_path / "prepared"), executor, **options)


def test_all_runs_are_performed_once(store, tmp_path):
    seen = []
    summary = perform_all(store, tmp_path, observe=seen.append)
    assert summary == (9, 0, [])
    first = store.records()
    assert len(first) == 9
    assert perform_all(store, tmp_path) == (0, 9, [])
    assert store.records() == first
    assert seen[-1] == WorkProgress(9, 9, 0, "done", 0.0)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert any(p.left is not None and p.left > 0.0 for p in seen)
    assert {p.total for p in seen} == {9}
    for record, run in zip(first, sorted(RUNS, key=lambda r: (r.point.key, r.seed)), strict=True):
        alone = perform(run, Place(tmp_path))
        assert [p._replace(seconds=0) for p in record.result.parts] == [
            p._replace(seconds=0) for p in alone.parts
        ]


def test_more_runs_are_added_to_those_that_are_there(store, tmp_path):
    perform_all(store, tmp_path, STUDY.runs(1))
    assert perform_all(store, tmp_path, STUDY.runs(2)) == (3, 3, [])
    assert [s.n_runs for s in summarise(STUDY, store)] == [2, 2, 2]


def test_a_run_that_fails_does_not_stop_the_others(store, tmp_path):
    point = RUNS[0].point
    bad = RUNS[0]._replace(point=point._replace(settings={"n_components": -1}))
    summary = perform_all(store, tmp_path, [bad, *RUNS[1:3]])
    assert summary.performed == 2
    ((run, message),) = summary.failures
    assert run == bad
    assert message.startswith("n_components")
    assert store.failures() == {bad.key: (bad.point.key, bad.seed, message)}
    assert store.claim([bad.key]).key == bad.key  # it may be tried again


def test_data_that_cannot_be_had_fail_their_runs_alone(store, tmp_path):
    point = RUNS[0].point._replace(data={"source": "gone.csv", "target": "c", "digest": "0"})
    bad = [run._replace(point=point, path=str(tmp_path / "gone.csv")) for run in RUNS[:3]]
    summary = perform_all(store, tmp_path, [*bad, RUNS[2]])
    assert summary.performed == 1
    assert len(summary.failures) == 1  # three times the same run
    assert "gone.csv" in summary.failures[0][1]


def test_what_others_are_doing_is_waited_for(store, tmp_path, monkeypatch):
    monkeypatch.setattr("pskem.study.runner.BEAT", 0.05)
    with Store(tmp_path / "runs.sqlite") as other:
        assert other.claim(KEYS[:1]).key == KEYS[0]
        seen = []

        def observe(progress):
            seen.append(progress.now)
            if progress.now == "others at work" and seen.count("others at work") == 3:
                other.add(RUNS[0], RESULT)

        summary = perform_all(store, tmp_path, RUNS[:2], observe=observe)
    assert summary == (1, 1, [])
    assert seen.count("others at work") == 3


def test_an_interrupted_write_leaves_nothing(store, monkeypatch):
    def stop(value, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(store_module.json, "dumps", stop)
    with pytest.raises(KeyboardInterrupt):
        store.add(RUNS[0], RESULT)
    monkeypatch.undo()
    assert store.records() == []
    store.add(RUNS[0], RESULT)
    assert len(store.records()) == 1


def test_a_process_that_has_ended_is_gone():
    assert is_alive(os.getpid())
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert not is_alive(child.pid)


def test_a_full_disk_is_told_and_leaves_the_file_as_it_was(store):
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    big = RESULT._replace(warnings={"x" * 100_000: 1})
    with pytest.raises(sqlite3.OperationalError, match="full"):
        store.add(RUNS[0], big)
    store._connection.execute("PRAGMA max_page_count = 1000000")
    assert store.records() == []
    store.add(RUNS[0], big)
    assert len(store.records()) == 1


class Broken(ThreadPoolExecutor):
    """A pool whose worker dies at the second run."""

    def submit(self, function, /, *arguments, **options):
        if function is perform and arguments[0] == RUNS[1]:
            future = Future()
            future.set_exception(BrokenProcessPool("gone"))
            return future
        return super().submit(function, *arguments, **options)


def test_a_dead_worker_ends_the_work_and_its_run_comes_last_next_time(store, tmp_path):
    with Broken(1) as executor, pytest.raises(StudyError, match="ended all of a sudden"):
        work(RUNS, store, Place(tmp_path), executor, jobs=2)
    assert store.done(KEYS) <= {KEYS[0]}
    assert set(store.failures()) == {KEYS[1]}
    order = []
    perform_all(store, tmp_path, observe=lambda p: order.append((p.done, set(store.failures()))))
    assert store.done(KEYS) == set(KEYS)
    # It was still among the failures when all others were done.
    assert (len(KEYS) - 1, {KEYS[1]}) in order


def test_a_result_that_is_not_finite_is_a_failure(store, tmp_path, monkeypatch):
    def spoilt(run, place, threads):
        part = PART._replace(log_likelihoods=[float("-inf")])
        return RESULT._replace(parts=[part])

    monkeypatch.setattr("pskem.study.runner.perform", spoilt)
    summary = perform_all(store, tmp_path, RUNS[:1])
    assert summary.performed == 0
    assert summary.failures == [(RUNS[0], "The result is not finite")]
    assert store.records() == []


def test_a_file_that_changes_meanwhile_is_noticed(store, tmp_path):
    (tmp_path / "t.csv").write_text("a,c\n" + "1,x\n2,y\n" * 9)
    text = """
data = { source = "t.csv", target = "c" }
[[experiment]]
method = "lda"
"""
    study = parse_study("s", text, tmp_path)
    (tmp_path / "t.csv").write_text("a,c\n" + "1,y\n2,x\n" * 9)
    summary = perform_all(store, tmp_path, study.runs())
    assert summary.performed == 0
    assert "has changed since the study began" in summary.failures[0][1]
