"""What must not change a result: threads, the order of rows, the order of blocks."""

import os
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pskem import SharedKernelDensity
from pskem.engine import ArraySource, Summarise, n_threads, workers
from pskem.engine import _parallel as parallel
from pskem.starts import KMeans, Uniform
from reference import COVARIANCE_TYPES, plain

SEEDS = KMeans(refine=False, reseed=False)
REFINED = KMeans(reseed=False)


@pytest.fixture(scope="module")
def large():
    """Enough samples for several tasks per block."""
    rng = np.random.default_rng(5)
    y = rng.integers(4, size=30_000)
    return rng.standard_normal((30_000, 6)) + rng.standard_normal((4, 6))[y], y


def arrays(model):
    yield model.log_likelihoods_
    for block in model.blocks_:
        yield from (block.features, block.weights, block.means, block.covariances)


def assert_same_bits(one, two):
    for a, b in zip(arrays(one), arrays(two), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.usefixtures("threaded")
@pytest.mark.parametrize("init", [SEEDS, REFINED], ids=["k-means++", "kmeans"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_same_bits_for_every_number_of_threads(large, covariance_type, dtype, init):
    X, y = large[0].astype(dtype), large[1]
    settings = {
        "n_components": 7,
        "n_blocks": 2,
        "init": init,
        "covariance_type": covariance_type,
        "max_iter": 4,
        "tol": 0,
        "random_state": 0,
    }
    one = plain(**settings, n_jobs=1).fit(X, y)
    for n_jobs in (2, 3, None):
        other = plain(**settings, n_jobs=n_jobs).fit(X, y)
        assert_same_bits(one, other)
        np.testing.assert_array_equal(one.predict_log_proba(X), other.predict_log_proba(X))


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
@pytest.mark.parametrize(
    "init",
    [SEEDS, REFINED, Uniform(-10, 10, 10.0, reseed=False)],
    ids=["k-means++", "kmeans", "random"],
)
@pytest.mark.parametrize("early_stopping", [False, True])
def test_same_bits_for_every_order_of_rows(labelled, rng, init, early_stopping):
    X, y = labelled
    order = rng.permutation(len(X))
    settings = {
        "n_components": 6,
        "init": init,
        "max_iter": 10,
        "tol": 0,
        "early_stopping": early_stopping,
        "random_state": 0,
    }
    one = plain(**settings).fit(X, y)
    two = plain(**settings).fit(X[order], y[order])
    assert_same_bits(one, two)
    assert one.best_iter_ == two.best_iter_


@pytest.mark.filterwarnings("ignore:Kernels collapsed")
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("init", ["class-kmeans", "k-means++", "kmeans", "kdtree", "em", "random"])
@pytest.mark.parametrize("data", ["continuous", "few values"])
def test_last_bits_of_the_data_do_not_decide_the_fit(labelled, rng, data, init, early_stopping):
    """Features that a matrix product made have other last bits on another processor.

    With few values many samples are equally far from two means, and values lie on the cuts of the
    tree.
    """
    X, y = labelled
    if data == "few values":
        X = np.round(2.0 * (X - X.mean(axis=0)) / X.std(axis=0))
    settings = {
        "n_components": 9,
        "init": init,
        "max_iter": 5,
        "tol": 0,
        "early_stopping": early_stopping,
        "random_state": 0,
    }
    one = plain(**settings).fit(X, y)
    two = plain(**settings).fit(X * (1.0 + 1e-15 * rng.standard_normal(X.shape)), y)
    np.testing.assert_allclose(one.log_likelihoods_, two.log_likelihoods_, rtol=1e-9)
    assert one.best_iter_ == two.best_iter_


def test_permuted_blocks_give_the_same_result(labelled):
    X, y = labelled
    partition = [[0, 3], [1], [2, 4]]
    for init in (SEEDS, Uniform(reseed=False)):
        settings = {"n_components": 4, "init": init, "max_iter": 8, "tol": 0, "random_state": 1}
        one = plain(partition=partition, **settings).fit(X, y)
        two = plain(partition=partition[::-1], **settings).fit(X, y)
        np.testing.assert_allclose(
            one.class_log_likelihood(X), two.class_log_likelihood(X), rtol=1e-12
        )
        for a, b in zip(one.blocks_, two.blocks_[::-1], strict=True):
            np.testing.assert_array_equal(a.means, b.means)
            np.testing.assert_array_equal(a.covariances, b.covariances)


def test_random_state_decides(labelled):
    X, y = labelled
    same = [plain(n_components=5, partition="random", n_blocks=2, random_state=4) for _ in range(2)]
    assert_same_bits(*(model.fit(X, y) for model in same))
    starts = {
        SharedKernelDensity(n_components=5, random_state=s, tol=0, max_iter=1).fit(X).means_[0, 0]
        for s in range(5)
    }
    assert len(starts) > 1


def test_n_threads(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert n_threads(3) == 3
    assert n_threads(None) == n_threads(-1) >= 1
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert n_threads(None) == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
    assert n_threads(None) == n_threads(-1)


def blas_threads():
    return {lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"}


@pytest.fixture
def two_blas_threads():
    """Whatever earlier tests left behind, and however many cores there are."""
    with threadpool_limits(2, user_api="blas"):
        assert blas_threads() == {2}
        yield
    # What a test left wrong shows in the test itself.


def test_blas_is_held_to_one_thread_inside(two_blas_threads):
    with workers(2) as parallel_map:
        assert blas_threads() == {1}
        assert parallel_map(lambda task: blas_threads(), range(4)) == [{1}] * 4
    assert blas_threads() == {2}


class PerThread:
    """A BLAS on OpenMP: every calling thread has a limit of its own."""

    def __init__(self):
        self.local = threading.local()

    def n_threads(self):
        return getattr(self.local, "n", 2)

    def select(self, **which):
        return self

    def limit(self, limits):
        before, self.local.n = self.n_threads(), limits
        return Restore(lambda: setattr(self.local, "n", before))


class Restore:
    def __init__(self, restore_original_limits):
        self.restore_original_limits = restore_original_limits

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.restore_original_limits()


def test_blas_with_a_limit_per_thread(monkeypatch):
    blas = PerThread()
    monkeypatch.setattr(parallel, "_controller", lambda: blas)
    monkeypatch.setattr(parallel, "_per_thread_blas", lambda: blas)
    with workers(2) as parallel_map:
        assert parallel_map(lambda task: blas.n_threads(), range(4)) == [1] * 4
    assert blas.n_threads() == 2
    # Two fits that overlap in two threads: each is limited, and each has its own limit back.
    entered, left = threading.Event(), threading.Event()
    seen = []

    def other():
        with workers(1):
            entered.set()
            left.wait(timeout=30)
            seen.append(blas.n_threads())
        seen.append(blas.n_threads())

    thread = threading.Thread(target=other)
    with workers(1):
        thread.start()
        entered.wait(timeout=30)
        assert blas.n_threads() == 1
    assert blas.n_threads() == 2
    left.set()
    thread.join()
    assert seen == [1, 2]


def test_fits_that_overlap_leave_blas_as_it_was(two_blas_threads):
    first, second = workers(1), workers(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert blas_threads() == {1}, "the second is still at work"
    second.__exit__(None, None, None)
    assert blas_threads() == {2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_forked_during_a_fit_can_work():
    with parallel._one_blas_thread._lock:
        child = os.fork()
        if child == 0:
            with workers(1):
                os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7


def test_an_error_in_a_worker_reaches_the_caller_and_frees_blas(two_blas_threads):
    def fail(task):
        raise RuntimeError(f"task {task}")

    with pytest.raises(RuntimeError, match="task 0"), workers(2) as parallel_map:
        parallel_map(fail, range(3))
    assert blas_threads() == {2}


def test_work_is_done_at_the_same_time():
    barrier = threading.Barrier(2)  # opens when two tasks have arrived; alone, one would wait
    with workers(2) as parallel_map:
        parallel_map(lambda task: barrier.wait(timeout=30), range(4))


@pytest.mark.usefixtures("threaded")
def test_a_fit_with_one_block_works_in_several_threads(large, monkeypatch):
    X, y = large
    names = set()
    barrier = threading.Barrier(2)
    fold = ArraySource.fold

    def recorded(source, function):
        def noted(batch):
            names.add(threading.current_thread().name)
            if len(names) < 2:
                barrier.wait(timeout=30)  # until a second thread has come
            elif barrier.n_waiting:
                barrier.wait(timeout=30)
            return function(batch)

        return fold(source, noted if isinstance(function, Summarise) else function)

    monkeypatch.setattr(ArraySource, "fold", recorded)
    model = plain(n_components=3, tol=0, max_iter=1, n_jobs=2, random_state=0)
    model.fit(X, y)
    assert names == {"pskem_0", "pskem_1"}
