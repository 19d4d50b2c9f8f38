"""What tests of Dask clusters share: planted rows, a quick training, and where to interfere."""

import time

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from pskem import SharedKernelClassifier

dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'pskem[dask]'")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

MARKS = [
    pytest.mark.plumbing,
    pytest.mark.filterwarnings("ignore"),  # those of other libraries' sockets and processes
    pytest.mark.filterwarnings(f"error::{ConvergenceWarning.__module__}.ConvergenceWarning"),
]

N, M, L = 24_000, 6, 3
NAMES = list("abcdef")
SETTINGS = {"n_components": 9, "n_blocks": 2, "init": "kmeans", "random_state": 0}
PASSES = {"max_iter": 4, "tol": 0.0, "discriminative_iter": 2}


def planted():
    rng = np.random.default_rng(0)
    y = rng.integers(L, size=N)
    centres = rng.standard_normal((L, 2, M)) * 1.5
    return centres[y, rng.integers(2, size=N)] + rng.standard_normal((N, M)), y


def classifier(**settings):
    return SharedKernelClassifier(**{**SETTINGS, **PASSES, **settings})


def chunked(X, y):
    return da.from_array(X, chunks=(2000, 4)), da.from_array(y, chunks=3000)


def after(n, act):
    """Something to watch a fit with, which acts once after n passes."""
    seen = []

    def watch(model):
        seen.append(model)
        if len(seen) == n:
            act()

    return watch


def resize(made, client, n_workers):
    """Ask until so many are there: a cluster may let go of a worker that is being restarted."""
    deadline = time.monotonic() + 60.0
    made.scale(n_workers)
    while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers:
        assert time.monotonic() < deadline, f"there are not {n_workers} workers"
        time.sleep(0.1)
        made.scale(n_workers)
