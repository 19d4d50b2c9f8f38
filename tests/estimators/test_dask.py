"""Fits and predictions on a Dask cluster of real processes, some of which are killed."""

import json
import os
import pickle
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from contextlib import contextmanager, suppress
from copy import copy
from logging import CRITICAL
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from pskem import Checkpoint, SharedKernelClassifier, SharedKernelDensity, clusters
from pskem.clusters import ClusterError, DaskPieces, current_client, task_name
from pskem.engine import OwnClass, Summarise, Total, serial_map
from reference import distance

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'pskem[dask]'")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = [
    pytest.mark.plumbing,
    pytest.mark.filterwarnings("ignore"),  # those of other libraries' sockets and processes
    pytest.mark.filterwarnings(f"error::{ConvergenceWarning.__module__}.ConvergenceWarning"),
]

N, M, L = 24_000, 6, 3
NAMES = list("abcdef")
SETTINGS = {"n_components": 9, "n_blocks": 2, "init": "kmeans", "random_state": 0}
PASSES = {"max_iter": 4, "tol": 0.0, "discriminative_iter": 2}


@pytest.fixture(scope="module")
def many():
    rng = np.random.default_rng(0)
    y = rng.integers(L, size=N)
    centres = rng.standard_normal((L, 2, M)) * 1.5
    return centres[y, rng.integers(2, size=N)] + rng.standard_normal((N, M)), y


def classifier(**settings):
    return SharedKernelClassifier(**{**SETTINGS, **PASSES, **settings})


@pytest.fixture(scope="module")
def machines():
    """A cluster that the tests share; it takes seconds to start one."""
    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "processes": True}
    with distributed.LocalCluster(n_workers=1, silence_logs=CRITICAL, **options) as made:
        client = distributed.Client(made, set_as_default=False)
        yield made, client
        client.close()


@pytest.fixture
def cluster(machines):
    """With so many workers, and found by Dask while a block lasts."""
    made, client = machines

    @contextmanager
    def having(n_workers):
        resize(made, client, n_workers)
        with client.as_current():
            yield made, client

    return having


def resize(made, client, n_workers):
    """Ask until so many are there: a cluster may let go of a worker that is being restarted."""
    deadline = time.monotonic() + 60.0
    made.scale(n_workers)
    while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers:
        assert time.monotonic() < deadline, f"there are not {n_workers} workers"
        time.sleep(0.1)
        made.scale(n_workers)


@pytest.fixture(scope="module")
def alone_fitted(many):
    """The fit to Dask's arrays without a cluster."""
    return classifier().fit(*chunked(*many))


def after(n, act):
    """Something to watch a fit with, which acts once after n passes."""
    seen = []

    def watch(model):
        seen.append(model)
        if len(seen) == n:
            act()

    return watch


def chunked(X, y):
    return da.from_array(X, chunks=(2000, 4)), da.from_array(y, chunks=3000)


def test_a_cluster_gives_the_model_of_memory_with_the_same_bits_for_all_numbers_of_workers(
    many, alone_fitted, cluster
):
    X, y = many
    expected = classifier().fit(X, y)
    found = [alone_fitted]
    for n_workers in (1, 2, 4):
        with cluster(n_workers):
            found.append(classifier().fit(*chunked(X, y)))
    assert distance(expected, found[0]) < 1e-9
    for model in found:
        assert distance(found[0], model) == 0.0
        decided = np.r_[model.block_weights_, model.temperature_, model.shares_]
        np.testing.assert_allclose(
            decided, np.r_[expected.block_weights_, expected.temperature_, expected.shares_], 1e-6
        )


def test_default_fits_agree_too(many):
    X, y = many
    expected = SharedKernelClassifier(random_state=0).fit(X, y)
    model = SharedKernelClassifier(random_state=0).fit(*chunked(X, y))
    assert distance(expected, model) < 1e-9
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-9)


@pytest.mark.parametrize("kind", ["weights", "gaps", "unlabelled", "numpy labels"])
def test_all_kinds_of_samples_are_learnt_from(many, kind):
    X, y = many
    rng, weights = np.random.default_rng(1), None
    model = classifier(unlabelled_weight=1.0)
    if kind == "gaps":
        X = np.where(rng.random(X.shape) < 0.05, np.nan, X)
    if kind == "weights":
        weights = rng.choice([0.0, 1.0, 2.0], size=N)
    if kind == "unlabelled":
        y = np.where(rng.random(N) < 0.3, np.nan, y.astype(float))
    expected = classifier(unlabelled_weight=1.0).fit(X, y, weights)
    dX, dy = chunked(X, y)
    dw = None if weights is None else da.from_array(weights, chunks=5000)
    model.fit(dX, y if kind == "numpy labels" else dy, dw)
    assert distance(expected, model) < 1e-9


def test_data_frames_may_have_categories(many):
    X, y = many
    frame = pd.DataFrame(X, columns=NAMES)
    rng = np.random.default_rng(2)
    frame["colour"] = np.array(["red", "green", "blue"])[(y + (rng.random(N) < 0.3)) % 3]
    labels = pd.Series(np.array(["iris", "rose", "tulip"])[y])
    expected = classifier().fit(frame, labels)
    parts, target = dd.from_pandas(frame, npartitions=7), dd.from_pandas(labels, npartitions=7)
    model = classifier().fit(parts, target)
    assert distance(expected, model) < 1e-9
    assert model.classes_.tolist() == ["iris", "rose", "tulip"]
    assert model.feature_names_in_.tolist() == [*NAMES, "colour"]
    answers = model.predict(parts)
    assert isinstance(answers, da.Array)
    np.testing.assert_array_equal(answers.compute(), model.predict(frame))


def test_answers_are_lazy_and_the_same(many):
    X, y = many
    dX, dy = chunked(X, y)
    model = classifier().fit(X, y)
    density = SharedKernelDensity(n_components=3, random_state=0).fit(X[:1000])
    asked = {
        "predict": model.predict,
        "predict_proba": model.predict_proba,
        "predict_log_proba": model.predict_log_proba,
        "score_samples": model.score_samples,
        "class_log_likelihood": model.class_log_likelihood,
        "is_outlier": model.is_outlier,
        "density": density.score_samples,
    }
    for name, ask in asked.items():
        lazy, direct = ask(dX), ask(X)
        assert isinstance(lazy, da.Array), name
        assert lazy.shape == direct.shape, name
        assert lazy.dtype == direct.dtype, name
        np.testing.assert_array_equal(lazy.compute(), direct)
        assert lazy.chunks[0] == (2000,) * 12
    assert model.score(dX, dy) == pytest.approx(model.score(X, y))
    weights = np.arange(N) % 3
    assert model.score(dX, dy, da.from_array(weights, chunks=2000)) == pytest.approx(
        model.score(X, y, weights)
    )


def test_empty_partitions_are_answered_with_nothing(many):
    """As a filter leaves them behind."""
    X, y = (part[:900] for part in many)
    model = classifier().fit(X, np.array(["iris", "rose", "tulip"])[y])
    frame = pd.DataFrame(X, columns=NAMES).assign(part=np.repeat([0, 1, 2], 300))
    parts = dd.from_pandas(frame, npartitions=3)
    parts = parts[parts["part"] != 1][NAMES]
    left = X[frame["part"] != 1]
    assert parts.map_partitions(len).compute().tolist() == [300, 0, 300]
    asked = ("predict", "predict_proba", "score_samples", "is_outlier", "block_log_likelihood")
    model.set_reference(X)
    for name in asked:
        lazy, direct = (getattr(model, name)(given) for given in (parts, left))
        assert lazy.dtype == direct.dtype, name
        np.testing.assert_array_equal(lazy.compute(), direct)
    nothing = da.from_array(X[:0], chunks=(10, M))
    assert model.predict_proba(nothing).compute().shape == (0, L)


def test_scores_of_collections_are_those_of_memory(many):
    X, y = (part[:900] for part in many)
    model = classifier(unlabelled=-1).fit(X, np.where(np.arange(900) % 2, y, -1))
    partly = np.where(np.arange(900) % 3 == 0, -1, y)
    partly[:300] = -1  # a whole partition without a class
    weights = np.arange(900) % 5
    dX, dy, dw = (da.from_array(part, chunks=300) for part in (X, partly, weights))
    assert model.score(dX, dy) == pytest.approx(model.score(X, partly))
    assert model.score(dX, partly, dw) == pytest.approx(model.score(X, partly, weights))
    frame, labels = pd.DataFrame(X, columns=NAMES), pd.Series(y)
    parts = dd.from_pandas(frame, npartitions=3)
    named = classifier().fit(frame, labels)
    found = named.score(parts, dd.from_pandas(labels, npartitions=3))
    assert found == pytest.approx(named.score(frame, labels))
    with pytest.raises(ValueError, match="unknown lengths, and y is not"):
        named.score(parts, y)
    with pytest.raises(ValueError, match="X has 900 samples and y has 800"):
        model.score(dX, dy[:800])
    with pytest.raises(ValueError, match="no sample that has a class"):
        model.score(dX, da.full(900, -1, chunks=300))


def test_what_needs_memory_says_so_and_gathers_nothing(many):
    from pskem import PartitionEnsemble, SharedKernelClassifierCV

    X, y = (part[:300] for part in many)

    def touched(block):
        raise AssertionError("the collection was computed")

    dX = da.from_array(X, chunks=100).map_blocks(touched, dtype=float, meta=np.empty((0, 0)))
    model = classifier().fit(X, y)
    asked = {
        "ensemble": lambda: PartitionEnsemble().fit(dX, y),
        "search": lambda: SharedKernelClassifierCV().fit(dX, y),
        "decide": lambda: model.decide(dX),
        "impute": lambda: model.impute(dX),
        "responsibilities": lambda: model.responsibilities(dX),
        "priors": lambda: model.estimate_priors(dX),
        "reference": lambda: model.set_reference(dX),
        "bic": lambda: model.bic(dX, y),
    }
    for ask in asked.values():
        with pytest.raises(ValueError, match="A collection of Dask's is read piece by piece"):
            ask()


def test_more_answers_are_lazy(many):
    from pskem import PartitionEnsemble

    X, y = (part[:300] for part in many)
    dX = da.from_array(X, chunks=(100, M))
    model = classifier().fit(X, y)
    ensemble = PartitionEnsemble(classifier(), n_estimators=2, random_state=0).fit(X, y)
    ensemble.set_reference(X)
    asked = [
        model.block_log_likelihood,
        model.predict_joint_log_proba,
        model.decision_function,
        ensemble.predict_log_proba,
        ensemble.predict,
        ensemble.block_log_likelihood,
        ensemble.is_outlier,
    ]
    for ask in asked:
        lazy, direct = ask(dX), ask(X)
        assert isinstance(lazy, da.Array)
        assert lazy.shape == direct.shape
        assert lazy.dtype == direct.dtype
        np.testing.assert_allclose(lazy.compute(), direct, atol=1e-12)


def test_a_collection_is_known_by_its_graph():
    """As xarray's objects have one only if they are lazy."""
    from pskem.clusters import is_dask

    class Wrapped:
        def __init__(self, graph):
            self.graph = graph

        def __dask_graph__(self):
            return self.graph

    assert is_dask(da.zeros(3))
    assert is_dask(dd.from_pandas(pd.DataFrame({"a": [1]}), npartitions=1))
    assert is_dask(Wrapped({}))
    assert not is_dask(Wrapped(None))
    assert not is_dask(da.Array)
    assert not is_dask(np.zeros(3))


def test_a_gaussian_mixture_of_a_cluster_is_that_of_scikit_learn(many, tmp_path):
    """From the same means, and one file for all that tables are read from."""
    from sklearn.mixture import GaussianMixture

    from pskem import open_table
    from pskem.starts import Start

    X, _ = many
    means = X[:4]
    start = Start(means=means, covariances=np.tile(np.eye(M), (4, 1, 1)), weights=np.full(4, 0.25))
    passes = {"n_components": 4, "max_iter": 10, "tol": 0.0}
    density = SharedKernelDensity(init=start, reg_covar=0.0, shrinkage=0.0, **passes)
    density.fit(chunked(X, X[:, 0])[0])
    precisions = np.tile(np.eye(M), (4, 1, 1))
    given = {"weights_init": np.full(4, 0.25), "means_init": means, "precisions_init": precisions}
    with pytest.warns(ConvergenceWarning):  # ten passes, whatever comes of them
        theirs = GaussianMixture(reg_covar=0.0, **given, **passes).fit(X)
    np.testing.assert_allclose(density.means_, theirs.means_, atol=1e-8)
    np.testing.assert_allclose(density.covariances_, theirs.covariances_, atol=1e-8)
    pd.DataFrame(X, columns=NAMES).to_parquet(tmp_path / "X.parquet")
    np.save(tmp_path / "X.npy", X)
    for stored in (
        open_table(tmp_path / "X.parquet"),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
    ):
        other = SharedKernelDensity(**density.get_params()).fit(stored)
        assert distance(density, other) < 1e-9


def test_few_rows_are_simply_fetched(many):
    X, y = (part[:600] for part in many)
    expected = SharedKernelClassifier(random_state=0).fit(X, y)
    model = SharedKernelClassifier(random_state=0)
    model.fit(da.from_array(X, chunks=(100, M)), da.from_array(y, chunks=100))
    assert len(model.trials_) > 1
    np.testing.assert_array_equal(model.predict_proba(X), expected.predict_proba(X))


def test_what_cannot_be_is_refused(many):
    X, y = many
    dX, dy = chunked(X, y)
    with pytest.raises(ValueError, match="y is missing"):
        classifier().fit(dX)
    with pytest.raises(ValueError, match="X has 24000 samples and y has 100"):
        classifier().fit(dX, y[:100])
    with pytest.raises(ValueError, match="X has 24000 samples and y has 100"):
        classifier().fit(dX, dy[:100])
    frame = dd.from_pandas(pd.DataFrame(X, columns=NAMES), npartitions=4)
    with pytest.raises(ValueError, match="unknown lengths, and y is not"):
        classifier().fit(frame, y)
    with pytest.raises(ValueError, match=r"X has 4 partition\(s\) and y has 3"):
        classifier().fit(frame, dd.from_pandas(pd.Series(y), npartitions=3))
    with pytest.raises(ValueError, match="infinity"):
        classifier().fit(da.where(dX > 4.0, np.inf, dX), dy)


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


def test_tasks_have_names():
    from functools import partial

    assert task_name(partial(alone, Summarise((), OwnClass()))) == "pass-ownclass"
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
    expected = {"pskem-count", "pskem-survey", "pskem-pass-ownclass", "pskem-pass-Contrast"}
    assert names >= expected | {"pskem-model"}
    assert more >= expected | {"pskem-rows", "pskem-merge"}
    assert any("pskem-predict-proba" in name for name in more), "perhaps fused with others"
    assert not {"pskem", "pskem-pass"} & (names | more), "Dask took a word for a number"
    err = capsys.readouterr().err
    assert "] pass 1/2  log likelihood/sample" in err
    assert "] discriminative pass 1/1  log posterior/sample" in err


def hunt(made, client, pause, done):
    """Kill a worker that is at a pass, after a pause."""
    time.sleep(pause)
    while not done.is_set():
        for address, keys in client.processing().items():
            if any(str(key).startswith("pskem-pass") for key in keys):
                for worker in list(made.workers.values()):
                    if worker.worker_address == address and worker.process is not None:
                        os.kill(worker.process.pid, signal.SIGKILL)
                        return


def test_workers_that_are_killed_in_the_middle_of_a_pass_change_nothing(many, cluster):
    """At random moments of the passes after the first and the fourth."""
    X, y = many
    long = {"max_iter": 12, "n_components": 30, "discriminative_iter": 0, "n_blocks": 1}
    expected = classifier(**long).fit(*chunked(X, y))
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
            model = classifier(**long).fit(*chunked(X, y), watch=watch)
        finally:
            ended = len(seen)
            done.set()
            for thread in threads:
                thread.join()
        resize(made, client, 2)
    assert ended == long["max_iter"]
    assert len(killed) == 2
    assert 1 <= min(killed) <= max(killed) < ended, "before the last pass had ended"
    assert distance(expected, model) == 0.0


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
    assert distance(expected, model) == 0.0


def parquet(folder, X, y, n_files=6):
    """A table of files."""
    from pskem import open_table

    for i, rows in enumerate(np.array_split(np.arange(len(X)), n_files)):
        frame = pd.DataFrame(X[rows], columns=NAMES).assign(kind=y[rows])
        frame.to_parquet(folder / f"part-{i}.parquet")
    return open_table(str(folder / "part-*.parquet"), target="kind")


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


def test_pieces_can_be_pickled_without_their_client(cluster):
    with cluster(1) as (_, client):
        pieces = DaskPieces(list(range(9)), listed)
        assert pieces.client is client
        assert pieces.fold(alone, serial_map).arrays[:2] == (0, 8)
        packed = pickle.dumps(pieces)
    assert pickle.loads(packed).client is None


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
    for piece in _frames((frame, labels, None)):
        high = low + len(piece.X)
        np.testing.assert_array_equal(piece.X, whole[low:high])
        low = high
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert low == n
    assert peak < whole.nbytes / 2.0


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


def test_what_is_not_fitted_says_so(many):
    dX, dy = chunked(*many)
    for name in ("predict", "predict_proba", "score_samples", "is_outlier"):
        with pytest.raises(NotFittedError, match="not fitted yet"):
            getattr(classifier(), name)(dX)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        classifier().score(dX, dy)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        SharedKernelDensity().score_samples(dX)


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
    if how == "hangs":
        monkeypatch.setattr(clusters, "PATIENCE", 4.0)
        monkeypatch.setattr(clusters, "MOMENT", 0.5)
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
    assert distance(alone_fitted, again) == 0.0
