"""Workers, clients and schedulers that are killed, closed or lost, with real processes."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import clustered
from clustered import (
    MARKS,
    PASSES,
    M,
    N,
    after,
    check_same_bits,
    chunked,
    classifier,
    da,
    dask,
    distributed,
    parquet,
    resize,
)
from pskem import Checkpoint, clusters
from pskem.clusters import ClusterError

pytestmark = MARKS


def hunt(made, client, pause, done):
    """Kill a worker that is at a pass, after a pause."""
    time.sleep(pause)
    while not done.is_set():
        time.sleep(0.005)  # the scheduler has other things to do
        for address, keys in client.processing().items():
            if any(str(key).startswith("pskem-pass") for key in keys):
                for worker in list(made.workers.values()):
                    if worker.worker_address == address and worker.process is not None:
                        os.kill(worker.process.pid, signal.SIGKILL)
                        return


@pytest.mark.parametrize("kind", ["arrays", "files", "few files"])
def test_workers_that_are_killed_in_the_middle_of_a_pass_change_nothing(
    many, cluster, tmp_path, kind
):
    """At random moments of the passes after the first and the fourth.

    Few files have places, which may be workers that are gone.
    """
    X, y = many
    n_files = 4 if kind == "few files" else 6
    long = {"max_iter": 30, "n_components": 30, "discriminative_iter": 0, "n_blocks": 1}
    if kind == "files":  # the second kill hits a discriminative pass
        long |= {"max_iter": 4, "discriminative_iter": 26}
    table = parquet(tmp_path, X, y, n_files).on_cluster()
    given = chunked(X, y) if kind == "arrays" else (table,)
    with dask.config.set(scheduler="threads"):
        expected = classifier(**long).fit(*given)
    rng, done, seen, killed = random.Random(16), threading.Event(), [], []

    def strike():
        hunt(made, client, rng.uniform(0.0, 0.2), done)
        killed.append(len(seen))

    def watch(model):
        seen.append(model)
        if len(seen) in (1, 5):
            threads.append(threading.Thread(target=strike))
            threads[-1].start()

    threads = []
    with cluster(2) as (made, client):
        try:
            model = classifier(**long).fit(*given, watch=watch)
        finally:
            ended = len(seen)
            done.set()
            for thread in threads:
                thread.join()
        resize(made, client, 2)
    assert len(killed) == 2
    assert 1 <= min(killed) <= max(killed) < ended, "before the last pass had ended"
    check_same_bits(expected, model)


def test_workers_that_die_again_and_again_are_said(many, cluster, monkeypatch):
    X, y = many

    def die(block):
        os._exit(3)

    deadly = da.from_array(X, chunks=(12_000, M)).map_blocks(die, dtype=float, meta=X[:0])
    with cluster(1) as (made, client):
        monkeypatch.setattr(made.scheduler, "allowed_failures", 1)
        with pytest.raises(ClusterError, match="does not fit into their memory"):
            classifier().fit(deadly, da.from_array(y, chunks=12_000))
        resize(made, client, 1)


def test_a_worker_may_come_late_and_takes_its_share(many, cluster, tmp_path):
    """Files are read wherever there is room; whether rows in memory move, Dask decides."""
    X, y = many
    work = {"n_components": 60, "n_blocks": 1, "max_iter": 60, "discriminative_iter": 0}
    table = parquet(tmp_path, X, y).on_cluster()
    seen, late = [], []
    with cluster(1) as (made, client):
        first = set(client.scheduler_info()["workers"])

        def watch(model):
            """Let a worker come after two passes, and go on until it has done something."""
            seen.append(model)
            if len(seen) == 2:
                resize(made, client, 2)
            late[:] = [
                task["key"]
                for task in client.get_task_stream()
                if task["worker"] not in first and str(task["key"]).startswith("pskem-pass")
            ]
            return bool(late)

        client.get_task_stream()  # from now on it is kept
        model = classifier(**work).fit(table, watch=watch)
    assert late, "the new worker had nothing to do"
    counting = []
    with dask.config.set(scheduler="threads"):
        expected = classifier(**work).fit(
            table, watch=lambda now: counting.append(now) or len(counting) == len(seen)
        )
    assert len(counting) == len(seen)
    check_same_bits(expected, model)


def test_a_cluster_without_workers_is_said_and_waited_for(many, cluster, monkeypatch):
    none, ask_workers, enough = [], clusters._ask_workers, threading.Event()
    moment = clusters.MOMENT

    def ask(client):
        with monkeypatch.context() as patch:  # to wait is cut short, and not the time for an answer
            patch.setattr(clusters, "MOMENT", moment)
            n_workers = ask_workers(client)
        if n_workers == 0:
            none.append(n_workers)
        assert len(none) < 300, "no worker has come, and the fit would wait for ever"
        if len(none) > clusters.DESERTED + 2:  # once is enough
            enough.set()
        return n_workers

    monkeypatch.setattr(clusters, "MOMENT", 0.3)
    monkeypatch.setattr(clusters, "_ask_workers", ask)
    expected = classifier().fit(*chunked(*many))
    said = "has no workers; its work waits until one comes"
    with cluster(0) as (made, client):
        come = threading.Thread(
            target=lambda: enough.wait() and resize(made, client, 1), daemon=True
        )
        come.start()
        with pytest.warns(UserWarning, match=said) as told:
            model = classifier().fit(*chunked(*many))
        come.join()
    assert len([each for each in told if said in str(each.message)]) == 1
    check_same_bits(expected, model)


@pytest.mark.parametrize(("kind", "n"), [("arrays", 2), ("files", PASSES["max_iter"] + 1)])
def test_a_client_that_is_killed_leaves_a_checkpoint_from_which_the_fit_goes_on(
    many, cluster, tmp_path, kind, n
):
    """After a pass of EM, and after a discriminative one; the cluster stays."""
    X, y = many
    table, place = parquet(tmp_path, X, y).on_cluster(), str(tmp_path / "run")
    files = str(tmp_path / "part-*.parquet") if kind == "files" else ""
    given, whole, left = (table,) if files else chunked(X, y), [], []
    with dask.config.set(scheduler="threads"):
        expected = classifier().fit(*given, watch=whole.append)
    code = "import sys, clustered; clustered.end_in_a_fit(*sys.argv[1:])"
    with cluster(2) as (made, _):
        ended = subprocess.run(
            [sys.executable, "-c", code, made.scheduler_address, str(n), place, files],
            cwd=Path(clustered.__file__).parent,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        model = classifier().fit(*given, watch=left.append, checkpoint=place)
    assert len(left) == len(whole) - n, "no pass was lost, and none made again"
    check_same_bits(expected, model)


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_a_client_that_is_closed_ends_the_fit(many, cluster, kind, tmp_path):
    """Dask closes it if the scheduler is away for long, and would go on in this process."""
    X, y = many
    given = chunked(X, y) if kind == "arrays" else (parquet(tmp_path, X, y).on_cluster(),)
    with cluster(1) as (made, _):
        pass
    model, seen = classifier(), []
    client = distributed.Client(made)  # the default one
    close = after(2, client.close)
    with pytest.raises(ClusterError, match="is gone"):
        model.fit(*given, watch=lambda now: seen.append(now) or close(now))
    assert client.status == "closed"
    assert len(seen) == 2
    assert not hasattr(model, "model_")


@pytest.mark.parametrize("kind", ["arrays", "files"])
def test_a_client_that_was_closed_before_the_fit_is_told_of(many, cluster, kind, tmp_path):
    X, y = many
    given = chunked(X, y) if kind == "arrays" else (parquet(tmp_path, X, y).on_cluster(),)
    with cluster(1) as (made, _):
        pass
    client = distributed.Client(made, set_as_default=False)
    with client.as_current():
        client.close()
        with pytest.raises(ClusterError, match="is gone or does not answer, or its client was"):
            classifier().fit(*given)


def test_tables_that_are_meant_for_a_cluster_need_one(many, tmp_path):
    X, y = (part[:900] for part in many)
    table = parquet(tmp_path, X, y, n_files=1).on_cluster()
    with pytest.raises(ClusterError, match="There is no Dask client"):
        classifier().fit(table)
    with (
        dask.config.set(scheduler="distributed"),
        pytest.raises(ClusterError, match="There is no Dask client"),
    ):
        classifier().fit(table)


@pytest.mark.parametrize("how", ["cancelled", "worker killed", "connection broken"])
def test_rows_that_are_lost_are_not_taken_for_a_lost_scheduler(many, cluster, how):
    X, y = many
    with cluster(1) as (made, client):
        parts = client.scatter([X[low : low + 6000] for low in range(0, N, 6000)])
        lazy = [da.from_delayed(dask.delayed(part), (6000, M), dtype=float) for part in parts]

        def lose():
            if how == "cancelled":
                client.cancel([distributed.Future(key, client) for key in list(client.futures)])
            elif how == "connection broken":
                broken = client.scheduler_comm.comm
                client.loop.add_callback(broken.abort)
                while not broken.closed():
                    time.sleep(0.01)
            else:
                os.kill(made.workers[next(iter(made.workers))].process.pid, signal.SIGKILL)

        with pytest.raises(ClusterError, match="has lost rows or work") as caught:
            classifier().fit(
                da.concatenate(lazy), da.from_array(y, chunks=6000), watch=after(2, lose)
            )
        assert "is gone" not in str(caught.value)
        assert made.scheduler_address in str(caught.value)
        resize(made, client, 1)


@pytest.mark.parametrize("remote", [False, True])
def test_files_that_change_are_refused(many, cluster, tmp_path, monkeypatch, remote):
    """Those that lie elsewhere by the workers: the client would have to ask for thousands."""
    from pskem import open_table
    from pskem.tables import TableError, batches

    X, y = many
    table = parquet(tmp_path, X, y)
    if remote:
        table = open_table(f"file://{tmp_path}/part-*.parquet", target="kind")
    table = table.on_cluster()
    asked = []
    state = batches._state
    monkeypatch.setattr(batches, "_state", lambda path: asked.append(path) or state(path))
    with cluster(2):
        classifier().fit(table)
        assert bool(asked) != remote
        changed = str(tmp_path / "part-3.parquet")
        frame = pd.read_parquet(changed)
        touch = after(2, lambda: frame.iloc[::-1].to_parquet(changed))
        with pytest.raises(
            TableError, match=r"part-3\.parquet has changed while it was being read"
        ):
            classifier().fit(table, watch=touch)
        os.remove(changed)
        with pytest.raises(TableError, match=r"part-3\.parquet cannot be read: .*o such file"):
            classifier().fit(table)


@contextmanager
def processes_apart(folder):
    """A scheduler and a worker, each a process; the scheduler's, and its address."""
    place = folder / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    about = ["--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(place)]
    scheduler = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_scheduler", *about,
         "--dashboard-address", "127.0.0.1:0"], **quiet
    )  # fmt: skip
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(place),
         "--nthreads", "1", "--no-nanny", "--no-dashboard", "--local-directory", str(folder)],
        **quiet,
    )  # fmt: skip
    try:
        deadline, address = time.monotonic() + 60.0, None
        while address is None:
            assert time.monotonic() < deadline, "the scheduler does not start"
            with suppress(OSError, ValueError):
                address = json.loads(place.read_text())["address"]
            time.sleep(0.05)
        yield scheduler, address
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.wait()


@pytest.mark.parametrize("how", ["gone", "gone for long", "hangs"])
def test_a_scheduler_that_fails_is_said_and_the_checkpoint_is_intact(
    many, alone_fitted, tmp_path, monkeypatch, how
):
    X, y = many
    monkeypatch.setattr("pskem.persistence.checkpoints.SHARE", np.inf)
    assert clusters.PATIENCE + clusters.MOMENT + clusters.RETURN < 60.0, "of silence, at most"
    kept, model = Checkpoint(tmp_path / "run"), copy(alone_fitted)
    before, began = model.model_, []
    with (
        processes_apart(tmp_path) as (scheduler, address),
        distributed.Client(address, timeout="30s") as client,
    ):
        client.wait_for_workers(1, timeout=60)
        monkeypatch.setattr(client, "_timeout", 2.0)  # to come back in

        def strike():
            os.kill(scheduler.pid, signal.SIGSTOP if how == "hangs" else signal.SIGKILL)
            while how == "gone for long" and client.status != "closed":
                time.sleep(0.05)
            began.append(time.monotonic())

        with pytest.raises(
            ClusterError, match=r"The Dask scheduler.* is gone or does not"
        ) as caught:
            model.fit(*chunked(X, y), watch=after(2, strike), checkpoint=kept)
        assert time.monotonic() - began[0] < 60.0, "which is promised"
        assert how == "gone for long" or address in str(caught.value)
        assert model.model_ is before
        os.kill(scheduler.pid, signal.SIGCONT)
    # The checkpoint is intact: elsewhere the fit goes on, with the same bits at the end.
    left = []
    again = classifier().fit(*chunked(X, y), watch=left.append, checkpoint=kept)
    assert len(left) == again.n_iter_ + 2 * PASSES["discriminative_iter"] + again.n_iter_ - 2
    check_same_bits(alone_fitted, again)
