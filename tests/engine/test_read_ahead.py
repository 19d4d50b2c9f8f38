"""The next piece is read while this one is computed; few are in memory, and readers end.

Nothing here goes by a clock: who must not go on waits for the other, and what never comes is a
failure after a long time.
"""

import gc
import threading
import weakref
from concurrent.futures import Future

import numpy as np
import pytest

from pskem.engine import ArrayPieces, Chain, Total, _parallel, fold_stream, workers
from pskem.engine._parallel import AHEAD

pytestmark = pytest.mark.plumbing

#: Seconds after which something is taken never to come.
NEVER = 30.0
N = 12


@pytest.fixture(params=[1, 2, 3])
def mapper(request):
    """A mapper, and the number of its threads."""
    with workers(request.param) as parallel_map:
        yield parallel_map, request.param


def readers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("pskem-reader")]


class Reading:
    """Items 0, 1, ... in order, who reads them, and when they have been read."""

    def __init__(self, n=N, fails=None):
        self.n, self.fails = n, fails
        self.done = [threading.Event() for _ in range(n)]
        self.threads = set()

    def __iter__(self):
        for i in range(self.n):
            self.threads.add(threading.current_thread().name)
            if i == self.fails:
                raise OSError("the disk is gone")
            self.done[i].set()
            yield i

    def wait_for(self, i):
        assert self.done[min(i, self.n - 1)].wait(NEVER), f"item {i} was never read"


def test_the_next_item_is_read_while_one_is_computed(mapper):
    """No computation ends before the next item has been read, so without reading ahead none would.

    With several threads, more are on their way: every thread has one, and one waits.
    """
    parallel_map, count = mapper
    reading = Reading()
    ahead = AHEAD if count == 1 else AHEAD + count

    def compute(i):
        if i == 0:
            reading.wait_for(ahead)
        reading.wait_for(i + AHEAD)
        return threading.current_thread().name, i * i

    found = list(parallel_map.stream(compute, reading))
    assert [square for _, square in found] == [i * i for i in range(N)]
    computing = {name for name, _ in found}
    assert len(reading.threads) == 1
    assert not reading.threads & computing, "a thread of its own reads"
    assert not readers()


def test_no_more_is_read_than_is_needed(mapper):
    """Items whose reading has begun and whose computation has not ended, at most."""
    parallel_map, count = mapper
    most = AHEAD + 1 if count == 1 else AHEAD + count + 1
    lock, full = threading.Lock(), threading.Event()
    begun, ended, seen = set(), set(), []

    def items():
        for i in range(N):
            with lock:
                begun.add(i)
                seen.append(len(begun - ended))
            if len(begun) == most:
                full.set()
            yield i

    def compute(i):
        assert full.wait(NEVER), "fewer are read than may be"
        with lock:
            ended.add(i)
        return i

    assert list(parallel_map.stream(compute, items())) == list(range(N))
    assert max(seen) == most


class AtOnce:
    """An executor that works when it is asked to, so that there is no chance in who is first."""

    def __init__(self, *_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, function, *arguments):
        done = Future()
        done.set_result(function(*arguments))
        return done


def test_one_item_is_in_memory_beside_the_one_that_is_read(monkeypatch):
    """Items themselves, not what is known of them: those before have been let go of."""
    monkeypatch.setattr(_parallel, "ThreadPoolExecutor", AtOnce)

    class Item:
        pass

    made, held = [], []

    def items():
        for _ in range(N):
            gc.collect()
            held.append(sum(one() is not None for one in made))
            item = Item()
            made.append(weakref.ref(item))
            yield item
            del item

    assert list(_parallel.serial_map.stream(lambda item: 1, items())) == [1] * N
    assert max(held) == AHEAD
    gc.collect()
    assert not any(one() is not None for one in made)


def test_what_an_item_was_before_is_let_go_of_while_it_is_computed(mapper):
    """In a pass the batch alone is in memory: not what was read, nor what was made of it before."""
    parallel_map, _ = mapper

    class Made:
        def __init__(self, *origins):
            self.origins = origins  # weak references to what it was made of

    def make(item):
        return Made(*item.origins, weakref.ref(item))

    def compute(batch):
        return [origin() is None for origin in batch.origins]

    found = list(parallel_map.stream(Chain((make, make, compute)), (Made() for _ in range(N))))
    assert found == [[True, True]] * N


def test_an_error_of_the_reader_reaches_the_caller(mapper):
    parallel_map, _ = mapper
    found = []
    with pytest.raises(OSError, match="the disk is gone"):
        found.extend(parallel_map.stream(lambda i: i * i, Reading(fails=5)))
    assert found == [i * i for i in range(len(found))]
    assert len(found) <= 5
    assert not readers()
    # The next pass reads again, with the same threads to compute.
    assert list(parallel_map.stream(lambda i: i, Reading())) == list(range(N))
    with pytest.raises(OSError, match="the disk is gone"):
        fold_stream(lambda i: Total((np.ones(1),)), Reading(fails=0), parallel_map)
    assert not readers()


def test_an_error_of_the_computation_ends_the_reader(mapper):
    parallel_map, _ = mapper
    reading = Reading(1000)

    def compute(i):
        if i == 3:
            raise FloatingPointError("no number")
        return i

    with pytest.raises(FloatingPointError, match="no number"):
        list(parallel_map.stream(compute, reading))
    assert not readers()
    assert not reading.done[-1].is_set(), "the rest is not read for nothing"


def test_a_stream_that_nobody_ends_is_not_read_on(mapper):
    parallel_map, count = mapper
    reading = Reading(1000)
    stream = parallel_map.stream(lambda i: i, reading)
    assert next(stream) == 0
    stream.close()
    assert not readers()
    assert sum(event.is_set() for event in reading.done) <= AHEAD + count + 2


def test_arrays_are_folded_the_same_way(mapper):
    """The sum that NumPy has, whoever reads."""
    parallel_map, _ = mapper
    X = np.arange(300_000.0).reshape(-1, 3)
    found = ArrayPieces((X, None)).fold(lambda piece: Total((piece[0].sum(axis=0),)), parallel_map)
    np.testing.assert_allclose(found.arrays[0], X.sum(axis=0), rtol=1e-13)
