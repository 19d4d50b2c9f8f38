"""pskem reproduce: the paper's experiments."""

from __future__ import annotations

from typing import Any

import click

from pskem.cli.studying import carry_out, study_options

__all__ = ["reproduce"]

#: Studies that are no experiments of the paper, or parts of others.
BESIDE = ("quick", "digits", "starts")
REPORT = "report"


@click.command(
    epilog="""\b
Examples:
  pskem reproduce digits
  pskem reproduce quick
  pskem reproduce table1 --runs 1 --only shared-kernels
  pskem reproduce fig2 fig5 --runs 5 --jobs 2 --out results
  pskem reproduce report --out results"""
)
@click.argument("names", nargs=-1)
@click.option("--list", "list_", is_flag=True, help="List the experiments and end.")
@study_options
def reproduce(names: tuple[str, ...], list_: bool, as_json: bool, **options: Any) -> int:
    """Run the paper's experiments NAMES, or all of them, and write a report.

    Accuracy is reported by two protocols side by side: the paper's, which keeps the pass that is
    best on the test data, and an honest one, whose pass is chosen without them. Runs are kept one
    by one in a file: a command that was stopped goes on where it was, nothing is run twice, and
    several commands may work on one file. The name "report" writes the report anew and runs
    nothing.

    digits needs no download; quick is a part of everything, in a few minutes.
    """
    from pskem.cli.console import print_json, table
    from pskem.study import included, parse_study

    texts = included()
    if list_:
        studies = [parse_study(name, text) for name, text in texts.items()]
        rows = [(study.name, len(study.runs()), study.title) for study in studies]
        if as_json:
            print_json([dict(zip(("name", "runs", "title"), row, strict=True)) for row in rows])
        else:
            table(["name", "runs", "title"], [(a, f"{n:,}", b) for a, n, b in rows], left=1)
        return 0
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
    chosen = names or tuple(name for name in texts if name not in BESIDE)
    studies = [parse_study(name, texts[name]) for name in chosen if name != REPORT]
    return carry_out(studies, as_json=as_json, **options)
