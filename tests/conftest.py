"""Data that several tests use."""

import os
from contextlib import contextmanager
from logging import CRITICAL

# scikit-learn's checks of array-API input skip without this; it must stand before scipy's import.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pandas as pd
import pytest
from hypothesis import settings
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_info

from pskem import SharedKernelClassifier
from pskem.cli.app import run
from pskem.datasets import CATALOGUE
from pskem.workflow import Task, train
from published import publish
from reference import plain

# How long a test takes depends on what else the machine does.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


def pytest_report_header():
    """For whom BLAS rounds, and what NumPy must do without."""
    blas = {lib.get("architecture") for lib in threadpool_info() if lib["user_api"] == "blas"}
    without = os.environ.get("NPY_DISABLE_CPU_FEATURES") or "nothing"
    return f"BLAS for {', '.join(map(str, blas))}; NumPy without {without}"


@pytest.fixture
def rng():
    return np.random.default_rng(20220321)


@pytest.fixture
def threaded(monkeypatch):
    """Threads also where samples are so few that a fit would do without."""
    monkeypatch.setattr("pskem.training._fitting.FEW_CELLS", 0)


@pytest.fixture
def labelled(rng):
    """600 samples of 3 classes with 5 correlated features at different scales, not centred."""
    y = rng.integers(3, size=600)
    centres = rng.standard_normal((3, 2, 5)) * 2.0
    X = centres[y, rng.integers(2, size=600)] + rng.standard_normal((600, 5))
    return (X @ rng.standard_normal((5, 5))) * [1.0, 10.0, 0.1, 3.0, 1.0] + [0, 50, -1, 2, 7], y


@pytest.fixture
def fitted(labelled):
    X, y = labelled
    return plain(n_components=5, n_blocks=2, random_state=0).fit(X, y)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A data folder with small data sets, and what is in them; the catalogue knows their sizes."""
    sizes = {"rice": 2, "ionosphere": 3, "cifar-10": 2}
    for name, entry in CATALOGUE.items():
        files = tuple(
            file._replace(
                checksum=None, rows=sizes.get(name, 6 if file.path.startswith("train") else 4)
            )
            for file in entry.files
        )
        monkeypatch.setitem(CATALOGUE, name, entry._replace(files=files))
    return tmp_path / "home", publish(tmp_path / "home")


@pytest.fixture
def iris_folder(tmp_path, monkeypatch):
    """A folder to work in, with a table to train on and one to predict."""
    monkeypatch.chdir(tmp_path)
    iris = load_iris(as_frame=True)
    frame = iris.data.assign(species=iris.target_names[iris.target])
    rng = np.random.default_rng(0)
    frame["site"] = rng.choice(["north", "south"], len(frame))
    frame = frame.sample(frac=1.0, random_state=0)
    frame[:100].to_csv("train.csv", index=False)
    frame[100:].to_csv("test.csv", index=False)
    return tmp_path


@pytest.fixture
def iris_model(iris_folder):
    assert run(["fit", "train.csv", "--target", "species", "-o", "model.pskem", "-q"]) == 0
    return iris_folder / "model.pskem"


@pytest.fixture
def table(tmp_path, rng):
    """A messy table: gaps, categories, truth values, an identifier, rows without a class."""
    n = 400
    y = rng.integers(3, size=n)
    frame = pd.DataFrame(
        {
            "id": [f"row {i}" for i in range(n)],
            "length": np.where(rng.random(n) < 0.05, np.nan, rng.standard_normal(n) + 3 * y),
            "width": rng.standard_normal(n) * (1 + y),
            "colour": np.array(["red", "green", "blue"])[np.where(rng.random(n) < 0.5, y, 0)],
            "fresh": np.where(rng.random(n) < 0.5, "true", "false"),
            "species": np.array(["a", "b", "c"])[y],
        }
    )
    frame.loc[[3, 7], "species"] = None
    frame.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


@pytest.fixture
def trained(table):
    task = Task.read(str(table), "species")
    return train(task, SharedKernelClassifier(covariance_type="full", random_state=0), 0.2)


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "length": [1.5, np.nan, 3.25, -4.0],
            "count": [1, 2, 3, 4],
            "colour": ["red", "blué", None, "red"],
            "species": ["a", "b", "a", "b"],
        }
    )


@pytest.fixture
def overlapping(rng):
    """Three overlapping classes of two Gaussians each: X, y, and more of the same."""
    centres = rng.standard_normal((3, 2, 4)) * 2.0

    def draw(n):
        y = rng.integers(3, size=n)
        return centres[y, rng.integers(2, size=n)] + rng.standard_normal((n, 4)), y

    return *draw(3000), *draw(3000)


@pytest.fixture(scope="session")
def many():
    from clustered import planted

    return planted()


@pytest.fixture(scope="module")
def machines():
    """A cluster that the tests share; it takes seconds to start one."""
    from clustered import dask, distributed
    from pskem.cli.cluster import FAITHFUL

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "processes": True}
    with (
        dask.config.set(FAITHFUL),  # workers that a test has killed come back
        distributed.LocalCluster(n_workers=1, silence_logs=CRITICAL, **options) as made,
    ):
        client = distributed.Client(made, set_as_default=False)
        yield made, client
        client.close()


@pytest.fixture
def cluster(machines):
    """With so many workers, and found by Dask while a block lasts."""
    from clustered import resize

    made, client = machines

    @contextmanager
    def having(n_workers):
        resize(made, client, n_workers)
        with client.as_current():
            yield made, client

    return having


@pytest.fixture(scope="session")
def alone_fitted(many):
    """The fit to Dask's arrays without a cluster."""
    from clustered import chunked, classifier

    return classifier().fit(*chunked(*many))
