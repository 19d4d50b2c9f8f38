"""Steps that the commands fit and tune share: read the table, describe the training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from glob import has_magic
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pskem.cli.console import percent, remark

if TYPE_CHECKING:
    from pskem.persistence import Checkpoint
    from pskem.workflow import StoredTask, Task, Trained

#: How a table is read, and what a checkpoint calls that.
READING = "table"
IN_MEMORY, PIECE_BY_PIECE, BY_WORKERS = (
    "read at once (--in-memory)",
    "read piece by piece (--out-of-core)",
    "read by workers (--scheduler, --workers)",
)
TABLE_OPTIONS = (
    "weights",
    "unlabelled",
    "drop",
    "categorical",
    "pca",
    "ica",
    "subset",
    "data_home",
)


def read_task(
    data: str, output: str | None, overwrite: bool, quiet: bool, given: dict[str, Any]
) -> tuple[Task, Path]:
    """Read the task, print remarks about its table, and choose the path of the model file.

    The options of the table are taken out of ``given``; the classifier's are left there.
    """
    from pskem.workflow import Task

    target, path, options = _about_table(data, output, overwrite, given)
    task = Task.read(data, target, **options, random_state=given["random_state"])
    for line in task.remarks:
        remark(line, quiet)
    return task, path


def open_task(
    data: str, output: str | None, overwrite: bool, quiet: bool, given: dict[str, Any]
) -> tuple[StoredTask, Path]:
    """The same for a table that is read piece by piece."""
    from pskem.workflow import StoredTask

    target, path, options = _about_table(data, output, overwrite, given)
    for name in ("pca", "ica", "subset"):
        if options.pop(name):
            raise click.UsageError(
                f"--{name} needs the whole table in memory: leave it out, or use --in-memory."
            )
    options.pop("data_home")
    task = StoredTask.open(data, target, **options)
    for line in task.remarks:
        remark(line, quiet)
    return task, path


@contextmanager
def keeping(
    path: str | None, model: Path, quiet: bool, reading: str = IN_MEMORY
) -> Iterator[Checkpoint | None]:
    """The checkpoint of a training, which is removed when its model is saved.

    reading : how the table is read, which has to stay the same: the last digits depend on it
    """
    from pskem.persistence import Checkpoint

    if path is None:
        yield None
        return
    if Path(path).resolve() == model.resolve():
        raise click.UsageError(
            f"--checkpoint {path} is where the model goes, too. Name another file for one of them."
        )
    kept = Checkpoint(path, {READING: reading}, partial(remark, quiet=quiet))
    yield kept
    kept.remove()


def reading_before(checkpoint: str | None) -> str | None:
    """How the table of an interrupted training was read; None if there was none."""
    from pskem.persistence import Checkpoint

    return None if checkpoint is None else Checkpoint(checkpoint).before(READING)


def _about_table(
    data: str, output: str | None, overwrite: bool, given: dict[str, Any]
) -> tuple[str, Path, dict[str, Any]]:
    """The target, the path of the model file, and the options of the table."""
    from pskem.persistence import check_model_place
    from pskem.tables import TARGET, find_reader, is_named, several

    if given["unlabelled_weight"] != "auto" and not given["unlabelled"]:
        raise click.UsageError("--unlabelled-weight is for rows without a class: add --unlabelled.")
    target = given.pop("target")
    options = {name: given.pop(name) for name in TABLE_OPTIONS}
    if target is None and not is_named(data):
        if not several(data):
            find_reader(data)  # a name that is misspelt has no columns
        raise click.UsageError("Which column holds the classes? Name it with --target COLUMN.")
    stem = "model" if data == "-" or has_magic(data) else Path(data).name.split(".")[0]
    path = Path(f"{stem}.pskem" if output is None else output)
    check_model_place(path, overwrite)
    return target or TARGET, path, options


def training_facts(trained: Trained, seconds: float) -> list[tuple[str, Any]]:
    """Names and values that describe a training."""
    model = trained.classifier
    classes = [str(name) for name in model.classes_[:10]] + ["..."] * (len(model.classes_) > 10)
    kernels = describe_kernels(model)
    low = trained.n_at_floor
    floor = f", {low} at the floor of reg-covar {model.reg_covar:g}" if low else ""
    validated = trained.validation_accuracy
    return [
        ("rows", f"{trained.n_train:,} to train, {trained.n_validation:,} to validate"),
        ("rows without a class", _counted(model.unlabelled_weight_)),
        ("features", f"{model.n_features_in_} in {len(model.blocks_)} block(s)"),
        ("views", _views(model)),
        ("classes", ", ".join(classes)),
        ("kernels", f"{kernels}{floor}"),
        ("passes", f"{model.n_iter_} in {seconds:.1f} s, {trained.ending}"),
        ("log likelihood per row", f"{trained.log_likelihood:.4f}"),
        ("training accuracy", percent(trained.training_accuracy)),
        ("validation accuracy", None if validated is None else percent(validated)),
    ]


def _views(model: Any) -> str | None:
    """How many models are multiplied, if several were tried."""
    tried = len(model.trials_)
    return f"{model.n_views_} of {tried} that were tried" if tried > 1 else None


def _counted(weight: float | None) -> str | None:
    """What rows without a class count, if there were any."""
    if not weight:
        return None if weight is None else "are left out"
    return "count fully" if weight == 1.0 else f"count {weight:.2g} each"


def describe_kernels(model: Any) -> str:
    """How many kernels there are, and of which form."""
    sizes: dict[str, list[int]] = {}
    for block in model.blocks_:
        sizes.setdefault(block.covariance_type, []).append(len(block.means))
    parts = []
    for kind, numbers in sizes.items():
        listed = ", ".join(map(str, numbers))
        if len(set(numbers)) == 1 and len(numbers) > 1:
            listed = f"{len(numbers)} x {numbers[0]}"
        parts.append(f"{listed} ({kind})")
    return ", ".join(parts)
