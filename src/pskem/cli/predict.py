"""pskem predict: a model file and a table to labels, part by part."""

from __future__ import annotations

from pathlib import Path

import click

from pskem.cli.options import debug_option, home_option, model_argument, subset_option

__all__ = ["predict"]


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
@click.option("--proba", is_flag=True, help="A column of probabilities for every class, too.")
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of DATA; repeatable.")
@subset_option
@home_option
@debug_option
def predict(
    model: str,
    data: str,
    output: str | None,
    proba: bool,
    keep: tuple[str, ...],
    subset: str | None,
    data_home: str | None,
) -> None:
    """Predict the classes of the rows of DATA.

    The file is read and written part by part, so it may be larger than memory. The output file
    appears when it is complete, or not at all.
    """
    from pskem.tables import check_output, write_parts
    from pskem.workflow import Predictor

    check_output(output)
    if output is not None and Path(output).exists():
        inputs = [Path(given) for given in (model, data) if Path(given).exists()]
        if any(path.samefile(output) for path in inputs):
            raise click.UsageError(f"{output} is read and cannot be written; name another file.")
    predictor = Predictor.load(model)
    write_parts(predictor.predictions(data, proba, keep, subset, data_home), output)
