"""What changes about a process while anyone is inside, and is undone by the last to leave."""

import os
import threading
import warnings
from multiprocessing import get_context

import pytest

from pskem.engine._parallel import Shared, n_threads

pytestmark = pytest.mark.plumbing

#: Seconds after which something is taken never to come.
NEVER = 30.0


class Change:
    """How often it was made and undone."""

    def __init__(self):
        self.made = self.undone = 0
        self.over = threading.Event()

    def __call__(self):
        self.made += 1
        return self.undo

    def undo(self):
        self.undone += 1
        self.over.set()


@pytest.fixture
def timers():
    """Those that were started and still wait, beside those of other tests."""
    before = set(threading.enumerate())

    def waiting():
        return [each for each in threading.enumerate() if each.name == "pskem-undo"]

    return lambda: [each for each in waiting() if each not in before and not each.finished.is_set()]


def test_the_last_to_leave_undoes_it(timers):
    change = Change()
    shared = Shared(change)
    with shared:
        with shared:
            pass
        assert (change.made, change.undone) == (1, 0)
    assert (change.made, change.undone) == (1, 1)
    with shared:
        assert (change.made, change.undone) == (2, 1)
    assert not timers()


def test_who_comes_back_in_time_finds_it_as_it_was(timers):
    change = Change()
    shared = Shared(change, linger=NEVER)
    for _ in range(3):
        with shared:
            pass
    assert (change.made, change.undone) == (1, 0)
    (last,) = timers()  # those before were called off
    last.cancel()


def test_after_a_moment_it_is_undone():
    change = Change()
    shared = Shared(change, linger=0.01)
    with shared:
        assert not change.over.wait(0.1), "not while somebody is inside"
    assert change.over.wait(NEVER)
    with shared:
        assert change.made == 2


def test_where_nothing_is_undone_nobody_waits(timers):
    shared = Shared(lambda: None, linger=NEVER)
    with shared:
        pass
    assert not timers()


def test_an_undo_that_fails_is_not_taken_for_one_that_is_to_come():
    made = []

    def change():
        made.append(1)
        return lambda: 1 / 0

    shared = Shared(change)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), shared:
            pass
    assert len(made) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_is_outside():
    change = Change()
    shared = Shared(change)
    with shared:
        child = os.fork()
        if child == 0:
            with shared:
                inside = change.made
            os._exit(0 if (inside, change.undone) == (2, 1) else 1)
        assert os.waitpid(child, 0)[1] == 0
    assert (change.made, change.undone) == (1, 1)


def _threads_and_warnings():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return n_threads(None), [str(each.message) for each in caught]


def test_a_worker_of_a_pool_has_one_thread_without_a_word():
    with get_context("spawn").Pool(1) as pool:  # a daemon, as Dask's workers are
        assert pool.apply(_threads_and_warnings) == (1, [])
