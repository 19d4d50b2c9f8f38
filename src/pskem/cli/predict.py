"""pskem predict: apply a model to a table, part by part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pskem.cli.console import remark, results
from pskem.cli.options import model_argument, overwrite_option, set_options


@click.command(
    epilog="""\b
Examples:
  pskem predict flowers.pskem new.csv -o labels.csv
  pskem predict flowers.pskem new.parquet -o labels.parquet --proba --keep id
  cat new.csv | pskem predict flowers.pskem - > labels.csv
  pskem predict flowers.pskem 'parts/*.parquet' -o labels.parquet
  pskem predict patients.pskem new.csv --priors estimate --reject 0.9 -o labels.csv"""
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
@click.option(
    "--priors",
    metavar="uniform|estimate|FILE",
    help="How frequent the classes are in DATA: all alike, estimated from its rows, or as a table"
    " with the columns class and prior says, in proportion.  [default: as in the training]",
)
@click.option(
    "--reject",
    type=click.FloatRange(0.0, 1.0),
    metavar="PROBABILITY",
    help="Name no class that is less probable; a column says why.",
)
@click.option(
    "--outliers",
    type=click.FloatRange(0.0, 1.0),
    metavar="SHARE",
    help="Name no class for rows that are less probable than this share of the rows that the"
    " training held out.",
)
@click.option(
    "--safe-csv",
    is_flag=True,
    help="Put an apostrophe before texts that a spreadsheet would take for formulas.",
)
@click.option("--keep", multiple=True, metavar="COLUMN", help="Copy a column of DATA; repeatable.")
@set_options
def predict(
    model: str,
    data: str,
    output: str | None,
    overwrite: bool,
    proba: bool,
    priors: str | None,
    reject: float | None,
    outliers: float | None,
    safe_csv: bool,
    keep: tuple[str, ...],
    **reading: Any,
) -> None:
    """Predict the classes of the rows of DATA.

    DATA is a file, - for CSV on stdin, the name of a data set, or several files as for pskem fit: a
    folder, a name with wildcards in quotes, an address. It is read and written part by part, so it
    may be larger than memory. The output file appears when it is complete, or not at all. It
    replaces earlier predictions, but no other file.
    """
    from pskem.tables import PARQUET, includes, kinds_of, priors_of, read_table, write_parts
    from pskem.workflow import Caution, Predictor, check_predictions_place

    if output is not None:
        if any(includes(given, output) for given in (model, data)):
            raise click.UsageError(
                f"{output} is read, or would be by the next command; name a file elsewhere."
            )
        check_predictions_place(output, overwrite)
    predictor = Predictor.load(model)
    if priors == "estimate":
        if data == "-" or Path(data).is_fifo():
            raise click.UsageError(
                "--priors estimate reads DATA twice, which stdin and pipes cannot be: name a file."
            )
        found = predictor.estimate_priors(data, **reading)
        names = map(str, predictor.classes)
        remark(f"Estimated priors: {', '.join(map('{} {:.3g}'.format, names, found))}.")
        predictor = predictor.with_priors(found)
    elif priors is not None:
        if priors != "uniform" and not Path(priors).exists():
            raise click.UsageError(
                f"--priors {priors} is neither uniform nor estimate, and there is no such file."
            )
        given = "uniform" if priors == "uniform" else priors_of(read_table(priors, text=["class"]))
        try:
            predictor = predictor.with_priors(given)
        except ValueError as error:
            raise click.UsageError(f"--priors {priors}: {error}") from None
    caution = None
    if reject is not None or outliers is not None:
        caution = Caution(reject or 0.0, outliers)
    keep = tuple(dict.fromkeys(keep))
    parts = predictor.predictions(data, proba, keep, caution, **reading)
    columns = output is not None and Path(output).suffix.lower() in PARQUET
    kinds = kinds_of(data, keep) if columns else {}
    with results():
        write_parts(parts, output, safe_csv, kinds)
