"""pskem fit: from a table to a model file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import click

from pskem.cli.console import facts, on_terminal, print_json
from pskem.cli.learning import read_task, training_facts
from pskem.cli.options import finite, learning_options, model_options

__all__ = ["fit"]


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
    show_default=True,
    help="Part of the rows that is held out to measure accuracy and, with --early-stopping, to"
    " choose the pass; 0 trains on all.",
)
@learning_options
def fit(
    data: str,
    target: str | None,
    output: str | None,
    drop: Sequence[str],
    categorical: Sequence[str],
    pca: int | None,
    validation_fraction: float,
    priors: str,
    subset: str | None,
    data_home: str | None,
    quiet: bool,
    as_json: bool,
    **parameters: Any,
) -> None:
    """Train a classifier on DATA and save it.

    DATA is a CSV, TSV, Parquet or ARFF file, - for CSV on stdin, or a data set by name (pskem
    datasets list). Numbers are scaled, gaps filled with the median, texts become categories, images
    of the named sets become the paper's features; the model file holds all of that. Text columns
    that look like identifiers are left out, with a remark.
    """
    from pskem.estimators._classifier import SharedKernelClassifier
    from pskem.workflow import train

    task, path = read_task(
        data,
        target,
        output,
        quiet,
        drop=drop,
        categorical=categorical,
        pca=pca,
        subset=subset,
        data_home=data_home,
    )
    if parameters["early_stopping"] is None:
        parameters["early_stopping"] = "auto"
    classifier = SharedKernelClassifier(
        **parameters,
        priors=None if priors == "frequencies" else priors,
        verbose=int(on_terminal() and not quiet),
    )
    start = time.perf_counter()
    trained = train(task, classifier, validation_fraction)
    seconds = time.perf_counter() - start
    trained.save(path)
    if as_json:
        print_json({**trained.summary(), "seconds": seconds, "model": str(path)})
    else:
        facts([*training_facts(trained, seconds), ("saved", path)])
