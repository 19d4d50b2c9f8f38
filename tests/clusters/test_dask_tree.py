"""What goes to a Dask cluster and what comes back: the tree, names of tasks, bytes, clients."""

import pickle
import socket
import threading
import tracemalloc
import warnings
import weakref
from collections import Counter
from contextlib import contextmanager, suppress
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from clustered import MARKS, NAMES, chunked, classifier, da, dask, distributed
from pskem import SharedKernelClassifier
from pskem.clusters import DaskPieces, current_client, task_name
from pskem.engine import Chain, OwnClass, Summarise, Total, serial_map
from reference import distance

pytestmark = MARKS


class Ends(Total):
    """The first and last number of a row of numbers, and how deep the tree is."""

    def merge(self, other):
        (low, _, depth), (_, high, other_depth) = self.arrays, other.arrays
        assert other.arrays[0] == self.arrays[1] + 1, "in order"
        return Ends((low, high, 1 + max(depth, other_depth)))


def alone(number):
    return Ends((number, number, 0))


def listed(number):
    return [number]


@pytest.mark.parametrize("n", [1, 7, 8, 9, 64, 65, 200])
def test_the_tree_keeps_the_order_and_has_no_end_that_waits(n):
    """Merges within a group come one after the other: at most seven for each level of the tree."""
    found = DaskPieces(list(range(n)), listed).fold(alone, serial_map)
    assert found.arrays[:2] == (0, n - 1)
    levels = int(np.ceil(np.log(max(n, 2)) / np.log(8.0) - 1e-9))
    assert found.arrays[2] <= 7 * levels


class Places(Total):
    """Which workers have computed something, and how often each did."""

    def merge(self, other):
        return Places((self.arrays[0] + other.arrays[0],))


def where(number):
    return Places(([distributed.get_worker().address],))


@pytest.mark.parametrize("n", [2, 3, 4])
def test_few_parts_of_files_are_spread_over_the_workers(n, cluster):
    """Dask would give them to the worker that has the model, and perhaps to others afterwards."""
    with cluster(2):
        for _ in range(10):
            (found,) = DaskPieces(list(range(n)), listed).fold(where, serial_map).arrays
            counts = sorted(Counter(found).values())
            assert counts == [n // 2, n - n // 2]


def test_tasks_have_names():
    from functools import partial

    assert task_name(partial(alone, Summarise((), OwnClass()))) == "pass-ownclass"
    assert task_name(Chain((alone, Summarise((), OwnClass())))) == "pass-ownclass"
    assert task_name(alone) == "alone"


def counted(client):
    """How often tasks were computed, by the name that the dashboard shows."""
    return client.run_on_scheduler(
        lambda dask_scheduler: {
            name: prefix.state_counts["memory"]
            for name, prefix in dask_scheduler.task_prefixes.items()
        }
    )


def new_tasks(client, before):
    found = {name: n - before.get(name, 0) for name, n in counted(client).items()}
    return {name: n for name, n in found.items() if n}


@contextmanager
def relaying(address):
    """Something between a client and its scheduler that counts the bytes which go either way."""
    there = tuple(address.removeprefix("tcp://").rsplit(":", 1))
    counts, threads = Counter(), []

    def pass_on(source, sink, way):
        with suppress(OSError):
            while part := source.recv(2**16):
                counts[way] += len(part)
                sink.sendall(part)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_RDWR)

    def serve(here):
        with here, socket.create_connection(there) as beyond:
            answering = threading.Thread(target=pass_on, args=(beyond, here, "received"))
            answering.start()
            pass_on(here, beyond, "sent")
            answering.join()

    def accept():
        with suppress(OSError):
            while True:
                threads.append(threading.Thread(target=serve, args=(server.accept()[0],)))
                threads[-1].start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept)
        accepting.start()
        try:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}", counts
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for thread in [accepting, *threads]:
                thread.join(timeout=30.0)


def test_nothing_on_the_client_grows_with_the_rows_and_the_model_goes_out_once(cluster):
    """Bytes on the client's connection, those between workers, and what was computed how often.

    The least of several passes: heartbeats, and rows that an idle worker takes over, only add.
    """
    m, partitions = 24, 12
    received = {}
    with (
        cluster(2) as (made, other),
        relaying(made.scheduler_address) as (address, counts),
        distributed.Client(address) as client,
    ):
        for n in (24_000, 96_000):
            X = da.random.default_rng(0).standard_normal((n, m), chunks=(n // partitions, m))
            y = (X[:, 0] > 0.0).astype(int)
            before, marks, models = counted(other), [], []

            def mark(model, marks=marks, models=models):
                marks.append((counts["sent"], counts["received"], transferred(other)))
                models.append(model)

            heavy = {"n_components": 30, "n_blocks": 1, "max_iter": 5, "discriminative_iter": 0}
            classifier(**heavy).fit(X, y, watch=mark)
            assert current_client() is client
            made_now = new_tasks(other, before)
            assert made_now["pskem-pass-ownclass"] == heavy["max_iter"] * partitions
            assert made_now["pskem-rows"] == partitions, "rows are made once"
            size = len(pickle.dumps(models[-1].blocks))
            sent, received[n], moved = np.diff(marks, axis=0).min(axis=0)
            assert 0.4 * size < sent < 2.5 * size, "once, and not for each of the partitions"
            assert moved < (2 + partitions) * size < 8 * n * m / 2.0, "rows stay where they are"
    assert received[96_000] < 1.05 * received[24_000] < 8 * 24_000 * m / 20.0


def test_nothing_of_a_whole_fit_grows_on_the_client_either(cluster):
    """Survey, draw, rows held out, discriminative passes, calibration, and training again."""
    received, most = [], []
    with (
        cluster(2) as (made, _),
        relaying(made.scheduler_address) as (address, counts),
        distributed.Client(address) as client,
    ):
        for n in (240_000, 240_000, 480_000):  # from 200,000 on, no more rows are held out
            X = da.random.default_rng(0).standard_normal((n, 12), chunks=(n // 12, 12))
            y = (X[:, 0] + X[:, 1] > 0.0).astype(int)
            before = counts["received"]
            tracemalloc.start()
            model = SharedKernelClassifier(random_state=0, max_iter=3, discriminative_iter=2)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(X, y)
            most.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
            received.append(counts["received"] - before)
            assert current_client() is client
            assert model.temperature_ != 1.0
    assert received[2] < 1.05 * received[1], received
    assert most[2] < 1.05 * most[1], most


def transferred(client):
    """Bytes that workers have sent to each other."""
    found = client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total)
    return sum(found.values())


def test_the_dashboard_has_names_for_all_and_the_terminal_a_bar(
    many, cluster, tmp_path, monkeypatch, capsys
):
    from pskem.cli.app import run

    X, y = many
    place = str(tmp_path / "table.parquet")
    pd.DataFrame(X, columns=NAMES).assign(kind=y).to_parquet(place, row_group_size=6000)
    settings = ["-k", "6", "--max-iter", "2", "--tol", "0", "--discriminative-iter", "1"]
    monkeypatch.setattr("pskem.cli.fit.on_terminal", lambda: True)
    with cluster(1) as (made, client):
        before = counted(client)
        there = ["--scheduler", made.scheduler_address, "-o", str(tmp_path / "model.pskem")]
        assert run(["fit", place, "-t", "kind", *there, *settings]) == 0
        names = set(new_tasks(client, before))
        before = counted(client)
        classifier().fit(*chunked(X, y)).predict_proba(chunked(X, y)[0]).compute()
        more = set(new_tasks(client, before))
    expected = {"pskem-take-census", "pskem-survey", "pskem-pass-ownclass", "pskem-pass-Contrast"}
    assert names >= expected | {"pskem-model"}
    assert more >= expected | {"pskem-rows", "pskem-merge"}
    assert any("pskem-predict-proba" in name for name in more), "perhaps fused with others"
    assert not {"pskem", "pskem-pass"} & (names | more), "Dask took a word for a number"
    err = capsys.readouterr().err
    assert "] pass 1/2  log likelihood/sample" in err
    assert "] discriminative pass 1/1  log posterior/sample" in err


def test_pieces_can_be_pickled_without_their_client(cluster):
    with cluster(1) as (_, client):
        pieces = DaskPieces(list(range(9)), listed)
        assert pieces.client is client
        assert pieces.fold(alone, serial_map).arrays[:2] == (0, 8)
        packed = pickle.dumps(pieces)
    assert pickle.loads(packed).client is None


class Weighed:
    """Something that is large, and can be counted."""

    alive: ClassVar = weakref.WeakSet()
    most = 0

    def __init__(self, value):
        self.value = value
        Weighed.alive.add(self)
        Weighed.most = max(Weighed.most, len(Weighed.alive))

    def merge(self, other):
        return Weighed([*self.value, *other.value])


def test_pieces_of_a_partition_are_merged_as_they_come():
    with dask.config.set(scheduler="synchronous"):
        found = DaskPieces([50], range).fold(lambda i: Weighed([i]), serial_map)
    assert found.value == list(range(50)), "from left to right"
    assert Weighed.most <= 4


def test_frames_of_several_types_are_not_copied_whole():
    from pskem.estimators._dask import _frames
    from pskem.estimators._stored import Labels

    n = 400_000
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "a": rng.standard_normal(n),
            "b": rng.integers(9, size=n).astype(np.int32),
            "c": pd.array(rng.integers(9, size=n), dtype="Int64"),
            "d": rng.random(n) < 0.5,
        }
    )
    frame.loc[:9, "c"] = pd.NA
    whole = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    labels = Labels.all_alike(n)
    tracemalloc.start()
    low = 0
    for piece in _frames(True, (frame, labels, None)):
        high = low + len(piece.X)
        np.testing.assert_array_equal(piece.X, whole[low:high])
        low = high
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert low == n
    assert peak < whole.nbytes / 2.0


def test_the_client_is_the_one_that_dask_would_use(many, alone_fitted, cluster):
    """Also inside a task of its own, which waits for the tasks of its fit on the only worker."""
    X, y = many
    with cluster(1) as (_, client):
        before = counted(client)
        with dask.config.set(scheduler="threads"):
            assert current_client() is None
            here = classifier().fit(*chunked(X, y))
        assert not any(name.startswith("pskem") for name in new_tasks(client, before))
        assert current_client() is client
        model = classifier()
        there = client.submit(lambda: model.fit(*chunked(X, y))).result(timeout=60)
        assert new_tasks(client, before)["pskem-rows"] == 12
    assert current_client() is None
    for found in (here, there):
        assert distance(alone_fitted, found) == 0.0


def test_the_folder_of_workers_outlives_them_and_no_longer(monkeypatch):
    from pathlib import Path

    from pskem.cli.cluster import _local

    class Made:
        def __init__(self, local_directory, **more):
            self.folder = Path(local_directory)

        def __enter__(self):
            return self

        def __exit__(self, *error):
            assert self.folder.is_dir()

    monkeypatch.setattr(distributed, "LocalCluster", Made)
    with _local(1) as made:
        assert made.folder.is_dir()
        assert vars(made) == {"folder": made.folder}, "nothing of ours"
    assert not made.folder.exists()
