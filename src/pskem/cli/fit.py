"""pskem fit: from a table to a model file."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pskem.cli.console import facts, on_terminal, percent, print_json, remark
from pskem.cli.options import learning_options, model_options, model_path, target_of

if TYPE_CHECKING:
    from pskem.workflow import Trained

__all__ = ["fit", "training_facts"]


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
    default=0.1,
    show_default=True,
    help="Part of the rows that is held out to measure accuracy after every pass; 0 trains on all.",
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
    from pskem.classifier import SharedKernelClassifier
    from pskem.workflow import Task, check_model_place, train

    target, path = target_of(data, target), model_path(data, output)
    check_model_place(path)
    task = Task.read(
        data,
        target,
        drop=drop,
        categorical=categorical,
        pca=pca,
        subset=subset,
        data_home=data_home,
    )
    for line in task.remarks:
        remark(line, quiet)
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


def training_facts(trained: Trained, seconds: float) -> list[tuple[str, Any]]:
    """What there is to say of a training."""
    model = trained.classifier
    classes = [str(name) for name in model.classes_[:10]] + ["..."] * (len(model.classes_) > 10)
    kernels = ", ".join(str(len(block.means)) for block in model.blocks_)
    validated = trained.validation_accuracy
    return [
        ("rows", f"{trained.n_train:,} to train, {trained.n_validation:,} to validate"),
        ("features", f"{model.n_features_in_} in {len(model.blocks_)} block(s)"),
        ("classes", ", ".join(classes)),
        ("kernels", f"{kernels} ({model.covariance_type})"),
        ("passes", f"{model.n_iter_} in {seconds:.1f} s, {trained.ending}"),
        ("log likelihood per row", f"{trained.log_likelihood:.4f}"),
        ("training accuracy", percent(trained.training_accuracy)),
        *([("validation accuracy", percent(validated))] if validated is not None else []),
    ]
