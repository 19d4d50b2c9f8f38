"""pskem predict: apply a model to a table, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pskem.cli.options import model_argument, overwrite_option, set_options


@click.command(
    epilog="""\b
Examples:
  pskem predict flowers.pskem new.csv -o labels.csv
  pskem predict flowers.pskem new.parquet -o labels.parquet --proba --keep id
  cat new.csv | pskem predict flowers.pskem - > labels.csv"""
)
@model_argument
@click.argument("data")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    help="CSV, TSV or Parquet file, by its suffix.  [default: CSV on stdout]",
)
@overwrite_option
@click.option("--proba", is_flag=True, help="A column of probabilities for every class, too.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of DATA; repeatable.")
@set_options
def predict(
    model: str,
    data: str,
    output: str | None,
    overwrite: bool,
    proba: bool,
    keep: tuple[str, ...],
    **reading: Any,
) -> None:
    """Predict the classes of the rows of DATA.

    The file is read and written part by part, so it may be larger than memory. The output file
    appears when it is complete, or not at all. It replaces earlier predictions, but no other file.
    """
    from pskem.tables import write_parts
    from pskem.workflow import Predictor, check_predictions_place

    if output is not None:
        inputs = [given for given in map(Path, (model, data)) if given.exists()]
        if Path(output).exists() and any(given.samefile(output) for given in inputs):
            raise click.UsageError(f"{output} is read and cannot be written; name another file.")
        check_predictions_place(output, overwrite)
    predictor = Predictor.load(model)
    write_parts(predictor.predictions(data, proba, keep, **reading), output)
