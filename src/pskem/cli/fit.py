"""pskem fit: from a table to a model file."""

from __future__ import annotations

import time
from typing import Any

import click

from pskem.cli.console import facts, on_terminal, print_json
from pskem.cli.options import finite, learning_options, model_options
from pskem.cli.task import read_task, training_facts


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
@learning_options
def fit(
    data: str,
    output: str | None,
    overwrite: bool,
    validation_fraction: float,
    priors: str,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Train a classifier on DATA and save it.

    DATA is a CSV, TSV, Parquet or ARFF file, - for CSV on stdin, or the name of a data set (pskem
    datasets list). Missing values stay gaps, and texts are categories. The named image sets get the
    paper's features. Text columns that look like identifiers are dropped, with a remark. The model
    file holds these steps as well.
    """
    from pskem.estimators import SharedKernelClassifier
    from pskem.workflow import classifier_settings, train

    task, path = read_task(data, output, overwrite, quiet, parameters)
    if parameters["early_stopping"] is None:
        parameters["early_stopping"] = "auto"
    classifier = SharedKernelClassifier(
        **classifier_settings(parameters),
        priors=None if priors == "frequencies" else priors,
        verbose=int(on_terminal() and not quiet),
    )
    start = time.perf_counter()
    trained = train(task, classifier, validation_fraction)
    seconds = time.perf_counter() - start
    trained.save(path, overwrite=overwrite)
    if as_json:
        print_json({**trained.summary(), "seconds": seconds, "model": str(path)})
    else:
        facts(*training_facts(trained, seconds), ("saved", path))
