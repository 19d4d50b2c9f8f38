"""What tests of Dask clusters share: planted rows, a quick training, and where to interfere."""

import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

from pskem import Checkpoint, SharedKernelClassifier, open_table
from reference import distance

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


def parquet(folder, X, y, n_files=6):
    """A table of files."""
    for i, rows in enumerate(np.array_split(np.arange(len(X)), n_files)):
        frame = pd.DataFrame(X[rows], columns=NAMES).assign(kind=y[rows])
        frame.to_parquet(folder / f"part-{i}.parquet")
    return open_table(str(folder / "part-*.parquet"), target="kind")


def decided(model):
    """What decisions follow from beside the kernels: block weights, temperature, shares, priors."""
    return np.r_[model.block_weights_, model.temperature_, model.shares_, model.class_prior_]


def check_same_bits(one, other):
    gap = distance(one, other)
    assert gap == 0.0, f"kernels differ by {gap}"
    np.testing.assert_array_equal(decided(one), decided(other), strict=True)


def after(n, act):
    """Something to watch a fit with, which acts once after n passes."""
    seen = []

    def watch(model):
        seen.append(model)
        if len(seen) == n:
            act()

    return watch


def end_in_a_fit(address, n, place, files=""):
    """Fit to the planted rows, or to files of them, and after n passes write and be killed."""
    kept = Checkpoint(place)

    def end():
        kept.write()
        os.kill(os.getpid(), signal.SIGKILL)

    with distributed.Client(address):
        given = (open_table(files, target="kind").on_cluster(),) if files else chunked(*planted())
        classifier().fit(*given, watch=after(int(n), end), checkpoint=kept)


def resize(made, client, n_workers):
    """Ask until so many are there: a cluster may let go of a worker that is being restarted."""
    deadline = time.monotonic() + 60.0
    made.scale(n_workers)
    while len(client.scheduler_info(n_workers=-1)["workers"]) != n_workers:
        assert time.monotonic() < deadline, f"there are not {n_workers} workers"
        time.sleep(0.1)
        made.scale(n_workers)
