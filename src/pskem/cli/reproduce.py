"""pskem reproduce: the paper's experiments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pskem.cli.console import show
from pskem.cli.run_studies import run_studies, study_options

#: Studies that are not the paper's, or are parts of others.
BESIDE = ("quick", "digits", "starts", "tables")
REPORT = "report"


@click.command(
    epilog="""\b
Examples:
  pskem reproduce digits
  pskem reproduce quick
  pskem reproduce table1 --runs 1 --only shared-kernels
  pskem reproduce --list
  pskem reproduce fig2 fig5 --runs 5 --jobs 2 --out results
  pskem reproduce tables --data FOLDER
  pskem reproduce report --out results"""
)
@click.argument("names", nargs=-1)
@click.option("--list", "list_", is_flag=True, help="List the experiments and exit.")
@click.option("--all", "all_", is_flag=True, help=f"All but {', '.join(BESIDE)}.")
@click.option(
    "--data",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help='Folder with the tables of "tables".  [default: $PSKEM_DATA/tables]',
)
@study_options
def reproduce(
    names: tuple[str, ...],
    list_: bool,
    all_: bool,
    data: str | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Run the paper's experiments NAMES, and write a report.

    "digits" needs no download. "quick" runs a part of everything in a few minutes. "report" runs
    nothing and writes the report of the recorded runs. "tables" compares classifiers on every table
    of a folder.

    Accuracy is reported by two protocols: the paper's keeps the pass that is best on the test data,
    and the honest one keeps a pass that was chosen without them. Every run is recorded in a file.
    If you stop the command, run it again to continue; no run is made twice. Several commands can
    work on one file.
    """
    from pskem.datasets import data_folder
    from pskem.display import Table
    from pskem.study import included, parse_study

    texts = included()
    if list_ or not (names or all_):
        studies = [parse_study(name, text) for name, text in texts.items()]
        rows = [(study.name, study.title, len(study.runs()) or "by table") for study in studies]
        show(Table(["name", "title", "runs"], rows, left=2), as_json)
        if list_:
            return 0
        raise click.UsageError("Which experiments? Name some of these, or ask for --all.")
    unknown = [name for name in names if name not in texts and name != REPORT]
    if unknown:
        raise click.UsageError(
            f"There is no experiment {unknown[0]!r}. Known: {', '.join([*texts, REPORT])}."
        )
    if REPORT in names and len(names) > 1:
        raise click.UsageError(
            f"{REPORT!r} writes the report and runs nothing; it stands alone. Every other command"
            " writes the report at its end."
        )
    chosen = [name for name in texts if name not in BESIDE] if all_ else names
    studies = [parse_study(name, texts[name]) for name in chosen if name != REPORT]
    of_tables = [study.name for study in studies if not study.runs()]
    if data is not None and not of_tables:
        raise click.UsageError("--data is the folder of tables; no study here takes one.")
    for name in of_tables:
        folder = Path(data) if data is not None else data_folder(options["data_home"]) / "tables"
        opened = parse_study(name, texts[name], tables=folder)
        studies = [opened if study.name == name else study for study in studies]
    return run_studies(studies, as_json=as_json, **options)
