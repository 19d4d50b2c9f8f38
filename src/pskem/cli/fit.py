"""pskem fit: from a table to a model file."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import click

from pskem.cli.cluster import cluster, cluster_options
from pskem.cli.console import facts, on_terminal, print_json, remark
from pskem.cli.options import finite, learning_options, model_options, stack
from pskem.cli.task import (
    BY_WORKERS,
    IN_MEMORY,
    PIECE_BY_PIECE,
    keeping,
    open_task,
    read_task,
    reading_before,
    training_facts,
)


@click.command(
    epilog="""\b
Examples:
  pskem fit flowers.csv --target species -o flowers.pskem
  pskem fit patients.parquet -t outcome -k 8 --covariance-type tied --drop patient_id
  pskem fit digits -o digits.pskem --early-stopping
  pskem fit mnist --n-blocks 3 -k 60 -o mnist.pskem"""
)
@click.argument("data")
@model_options
@click.option(
    "--validation-fraction",
    type=click.FloatRange(0.0, 0.9),
    callback=finite,
    default=0.1,
    help="Fraction of the rows to hold out, to measure accuracy and, with --early-stopping, to"
    " choose the pass; 0 trains on all rows.",
)
@click.option(
    "--out-of-core/--in-memory",
    default=None,
    help="Read the table piece by piece in every pass, or at once.  [default: piece by piece if it"
    " would take more than half of the memory that is free, or is several files]",
)
@stack(*cluster_options)
@learning_options
def fit(
    data: str,
    output: str | None,
    overwrite: bool,
    checkpoint: str | None,
    validation_fraction: float,
    out_of_core: bool | None,
    scheduler: str | None,
    workers: int | None,
    priors: str,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Train a classifier on DATA and save it.

    DATA is a CSV, TSV, Parquet, Arrow or ARFF file, - for CSV on stdin, or the name of a data set
    (pskem datasets list). A folder or a name with wildcards, in quotes, stands for several files,
    and Parquet files may have addresses, such as 's3://bucket/part-*.parquet'.
    Missing values stay gaps, and texts are categories. The named image sets get the paper's
    features. Text columns that look like identifiers are dropped, with a remark. The model file
    holds these steps as well.
    """
    from pskem.estimators import SharedKernelClassifier
    from pskem.workflow import classifier_settings, train, train_stored

    shared = scheduler is not None or workers is not None
    if shared and out_of_core is False:
        raise click.UsageError("--in-memory is for this process; leave out --scheduler, --workers.")
    before = reading_before(checkpoint)
    if out_of_core is None and not shared and before in (IN_MEMORY, PIECE_BY_PIECE):
        out_of_core = before == PIECE_BY_PIECE
    if before == BY_WORKERS and not shared:
        raise click.UsageError(
            f"The training in {checkpoint} was begun by workers, and goes on with them: add"
            " --workers or --scheduler. Remove the file to start anew."
        )
    stored = shared or _is_stored(data, out_of_core, quiet)
    make = open_task if stored else read_task
    task: Any
    task, path = make(data, output, overwrite, quiet, parameters)
    if scheduler is not None and task.table.scratch is not None:
        raise click.ClickException(
            f"{data} had to be copied, to be read in parts, and workers elsewhere do not see the"
            " copy. Give --scheduler Parquet files whose numbers are numbers, not texts. --workers"
            " trains on this machine."
        )
    if parameters["early_stopping"] is None:
        parameters["early_stopping"] = "auto"
    classifier = SharedKernelClassifier(
        **classifier_settings(parameters),
        priors=None if priors == "frequencies" else priors,
        verbose=int(on_terminal() and not quiet),
    )
    start = time.perf_counter()
    learn: Any = train
    if stored:
        learn = partial(train_stored, tell=partial(remark, quiet=quiet))
    reading = (BY_WORKERS if shared else PIECE_BY_PIECE) if stored else IN_MEMORY
    with (
        cluster(scheduler, workers, quiet) as there,
        keeping(checkpoint, path, quiet, reading) as kept,
    ):
        task = task.on_cluster() if there else task
        trained = learn(task, classifier, validation_fraction, kept)
        seconds = time.perf_counter() - start
        trained.save(path, overwrite=overwrite)
    if as_json:
        print_json({**trained.summary(), "seconds": seconds, "model": str(path)})
    else:
        facts(*training_facts(trained, seconds), ("saved", path))


def _is_stored(data: str, asked: bool | None, quiet: bool) -> bool:
    """Whether the table is read piece by piece."""
    from pskem.tables import several
    from pskem.workflow import exceeds_memory

    if asked is not None:
        if several(data) and not asked:
            raise click.UsageError("--in-memory reads one file, and DATA stands for several.")
        return asked
    if several(data):
        return True
    needed = exceeds_memory(data)
    if needed:
        remark(
            f"{data} would take about {needed / 1e9:.1f} GB of memory, so it is read piece by piece"
            " in every pass. --in-memory reads it at once.",
            quiet,
        )
    return needed > 0
