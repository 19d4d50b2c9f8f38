"""Where a command runs: here, or on a Dask cluster."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click

from pskem.cli.console import remark

#: Seconds to wait for a scheduler.
PATIENCE = 20
#: Seconds that a scheduler may take to greet whoever is connected.
MOMENT = 5
#: Characters of what Dask says of an address.
LONGEST_REASON = 120

#: A worker that dies is started again by itself. A cluster that waits for it only for a while may
#: give it up meanwhile, and has one less for good.
FAITHFUL = {"distributed.deploy.lost-worker-timeout": "365 days"}

cluster_options = (
    click.option(
        "--scheduler",
        metavar="ADDRESS",
        help="Train on the Dask cluster with this scheduler, such as tcp://host:8786. Its workers"
        " must see the files of DATA. TLS is set up in Dask's own configuration.",
    ),
    click.option(
        "--workers",
        type=click.IntRange(1),
        help="Train on so many processes of this machine, as a Dask cluster.",
    ),
)


@contextmanager
def cluster(scheduler: str | None, n_workers: int | None, quiet: bool) -> Iterator[bool]:
    """A cluster for the length of a command; whether there is one."""
    if scheduler is None and n_workers is None:
        yield False
        return
    if scheduler is not None and n_workers is not None:
        raise click.UsageError("--scheduler names a cluster and --workers makes one: give one.")
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise click.UsageError(
            "--scheduler and --workers need Dask: pip install 'pskem[dask]'."
        ) from None
    from pskem.clusters import count_workers

    # What goes wrong reaches this process as an error, which is said in one line.
    for name in ("distributed", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
    with ExitStack() as stack:
        address = scheduler
        if address is None:
            address = stack.enter_context(_local(n_workers)).scheduler_address
        client = stack.enter_context(_client(address))
        stack.enter_context(client.as_current())
        found = count_workers(client)
        waits = "" if found else ", so the training waits for one"
        remark(f"{found} worker(s){waits}; dashboard: {client.dashboard_link}", quiet)
        yield True


def _client(address: str) -> Any:
    """A client of the scheduler at an address.

    It is not made the default one: if it cannot connect, it would stay that for good.
    """
    import asyncio

    from distributed import Client

    try:  # of the whole time that it may take, connecting has all but a moment
        asyncio.run(asyncio.wait_for(_knock(address), PATIENCE + MOMENT))
        return Client(address, timeout=PATIENCE, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise click.ClickException(
            f"There is no Dask scheduler at {address}: {_reason(error)}"
        ) from None
    except ValueError as error:
        raise click.UsageError(
            f"--scheduler {address!r} is no address of a Dask scheduler, such as tcp://host:8786"
            f" ({_reason(error)})."
        ) from None
    except (TypeError, RuntimeError) as error:
        if isinstance(error, TypeError) and not address.startswith("tls"):
            raise
        raise click.ClickException(
            f"{address} cannot be reached: {_reason(error)}. TLS needs certificates, which Dask's"
            " configuration names, and addresses with tls://."
        ) from None


async def _knock(address: str) -> None:
    """Connect for a moment: a client that cannot, or that meets another program, ends slowly."""
    from distributed import Security
    from distributed.comm import connect

    arguments = Security().get_connection_args("client")
    comm = await connect(address, timeout=PATIENCE, **arguments)
    await comm.close()


def _reason(error: Exception) -> str:
    """What Dask says, on one line."""
    return (
        " ".join(str(error).split())[:LONGEST_REASON] or f"no answer within {PATIENCE + MOMENT} s"
    )


@contextmanager
def _local(n_workers: int | None) -> Iterator[Any]:
    """A cluster of processes of this machine, and a folder that is removed after it."""
    import dask
    from distributed import LocalCluster

    from pskem.files import Scratch

    scratch = Scratch()
    with _deaf_to_interrupts():
        made = LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",
            local_directory=str(scratch.folder),
            silence_logs=logging.CRITICAL,
        )
    with made, dask.config.set(FAITHFUL):
        yield made


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C goes to all processes of a terminal; those that are started here do not see it.

    They inherit what their thread holds back. When this process ends, however it does, they end.
    """
    from multiprocessing import resource_tracker

    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # started later, it would let signals through again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
