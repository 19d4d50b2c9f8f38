"""A Dask cluster of real processes."""

from contextlib import contextmanager
from logging import CRITICAL

import pytest


@pytest.fixture(scope="session")
def many():
    from clustered import planted

    return planted()


@pytest.fixture(scope="module")
def machines():
    """A cluster that the tests share; it takes seconds to start one."""
    from clustered import distributed

    options = {"threads_per_worker": 1, "dashboard_address": "127.0.0.1:0", "processes": True}
    with distributed.LocalCluster(n_workers=1, silence_logs=CRITICAL, **options) as made:
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
