"""What is freed inside a task stays with the process, and is given back some time afterwards."""

import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.plumbing

SCRIPT = """
import resource
import time
from contextlib import nullcontext
from threading import Thread
import numpy as np
from pskem.engine import kept_memory

def faults(inside):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    with inside:
        for _ in range(50):
            np.ones(2**18)  # 2 MB: 512 pages
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def tell():
    before = faults(nullcontext())
    with kept_memory:
        with kept_memory:  # whoever leaves first does not end it for the others
            pass
        inside = faults(nullcontext())
    soon, deadline = faults(nullcontext()), time.monotonic() + 30
    while (later := faults(nullcontext())) < 50 * 500 and time.monotonic() < deadline:
        time.sleep(0.1)
    print(before, inside, soon, later)

thread = Thread(target=tell)  # Dask's tasks run in threads, which have heaps of their own
thread.start()
thread.join()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator has no such limit")
def test_pages_are_made_once_inside_and_anew_outside():
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    run = [sys.executable, "-c", SCRIPT]
    told = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout
    before, inside, soon, later = map(int, told.split())
    assert before > 50 * 500
    assert inside < 5 * 512
    assert soon < 5 * 512, "the next task comes soon"
    assert later > 50 * 500


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator has no such limit")
def test_an_allocator_that_nobody_told_anything_learns_to_keep():
    """By itself it keeps twice the largest array that was freed: less than a pass needs."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
    script = SCRIPT.replace("np.ones(2**18)", "[np.ones(2**18) for _ in range(10)]")
    script = script.replace("< 50 * 500 and", "< 0 and").partition("thread = ")[0]
    run = [sys.executable, "-c", script + "tell()"]
    told = subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout
    before, inside, *_ = map(int, told.split())
    assert before > 50 * 10 * 250
    assert inside < 2 * 10 * 512


def test_an_allocator_that_nobody_told_anything_is_given_no_limits(monkeypatch):
    from pskem.engine import _allocation

    calls = []
    library = SimpleNamespace(
        mallopt=lambda *limit: calls.append(limit), malloc_trim=lambda pad: calls.append("given")
    )
    monkeypatch.setattr(_allocation, "_allocator", lambda: library)
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    assert _allocation._keep() is None
    assert calls == []
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "65536")
    monkeypatch.delenv("MALLOC_MMAP_THRESHOLD_", raising=False)
    undo = _allocation._keep()
    kept = list(calls)
    undo()
    trim, mmap = _allocation.TRIM_THRESHOLD, _allocation.MMAP_THRESHOLD
    assert kept == [(trim, _allocation.KEPT), (mmap, _allocation.LARGEST_MMAP)]
    assert calls[2:] == [(trim, 65536), (mmap, 2**17), "given"]


def test_memory_is_given_back_after_long_work_alone(monkeypatch):
    from pskem.engine import _allocation

    given = []
    monkeypatch.setattr(
        _allocation, "_allocator", lambda: SimpleNamespace(malloc_trim=given.append)
    )
    clock = iter([0.0, 0.9 * _allocation.LONG, 10.0, 10.0 + 1.1 * _allocation.LONG])
    monkeypatch.setattr(_allocation, "monotonic", lambda: next(clock))
    with _allocation.given_back():
        pass
    assert given == []
    with _allocation.given_back():
        pass
    assert given == [0]


def test_what_arrow_keeps_is_given_back_too_if_it_is_there(monkeypatch):
    from pskem.engine import _allocation, give_back

    given = []
    pool = SimpleNamespace(release_unused=lambda: given.append("arrow"))
    monkeypatch.setattr(_allocation, "_allocator", lambda: None)
    monkeypatch.setitem(sys.modules, "pyarrow", SimpleNamespace(default_memory_pool=lambda: pool))
    give_back()
    assert given == ["arrow"]
    monkeypatch.delitem(sys.modules, "pyarrow")
    give_back()
    assert "pyarrow" not in sys.modules
