"""pskem evaluate: measure a model on a table with classes."""

from __future__ import annotations

from typing import Any

import click

from pskem.cli.console import facts, percent, print_json, remark, show
from pskem.cli.options import as_json, model_argument, set_options, target_option

#: Classes of a confusion matrix that is printed, at most.
MOST_CLASSES = 30


@click.command(
    epilog="""\b
Examples:
  pskem evaluate flowers.pskem test.csv
  pskem evaluate mnist.pskem mnist --subset test --json"""
)
@model_argument
@click.argument("data")
@target_option
@set_options
@as_json
def evaluate(model: str, data: str, target: str | None, as_json: bool, **reading: Any) -> None:
    """Measure how well a model predicts the classes of DATA, one file or several as for pskem fit.

    Prints accuracy, balanced accuracy, log loss, Brier score, expected calibration error, precision
    and recall per class, and the confusion matrix (rows are the true classes).
    """
    from pskem.display import Table
    from pskem.evaluation import Tally
    from pskem.workflow import Predictor

    predictor = Predictor.load(model)
    target = target or predictor.target_for(data)
    names = [str(name) for name in predictor.classes]
    tally, n_without = Tally.empty(len(names)), 0
    for labels, proba, without in predictor.judged(data, target, **reading):
        tally, n_without = tally.merge(Tally.of(labels, proba)), n_without + without
    result = tally.evaluation(names)
    if as_json:
        print_json({**result.as_dict(), "n_without_class": n_without})
        return
    if n_without:
        remark(f"{n_without:,} row(s) without a class are left out.")
    facts(
        ("rows", f"{result.n_samples:,}"),
        ("accuracy", percent(result.accuracy)),
        ("balanced accuracy", percent(result.balanced_accuracy)),
        ("log loss", f"{result.log_loss:.4f}"),
        ("Brier score", f"{result.brier:.4f}"),
        ("calibration error (ECE)", percent(result.calibration_error)),
    )
    rows = [
        (c.name, percent(c.precision), percent(c.recall), percent(c.f1), c.support)
        for c in result.classes
    ]
    show(Table(["class", "precision", "recall", "F1", "rows"], rows))
    if len(names) > MOST_CLASSES:
        print(f"\nThe confusion matrix of {len(names)} classes is in the output of --json.")
        return
    counts = [(name, *row) for name, row in zip(names, result.confusion.tolist(), strict=True)]
    show(Table(["true \\ predicted", *names], counts))
