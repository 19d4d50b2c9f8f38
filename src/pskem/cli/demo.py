"""pskem demo: see it work, without any data of one's own."""

from __future__ import annotations

from typing import Any

import click

from pskem.cli.console import on_terminal, print_json, remark, table
from pskem.cli.options import as_json, debug_option, quiet_option

__all__ = ["demo"]


@click.command(epilog="\b\nExamples:\n  pskem demo\n  pskem demo -o digits.html")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="pskem-demo.html",
    show_default=True,
    help="The page to write.",
)
@quiet_option
@as_json
@debug_option
def demo(output: str, quiet: bool, as_json: bool) -> None:
    """Train on embedded digits and compare with LDA, QDA, kNN and RBF-SVM on the same split.

    The settings of every classifier are chosen by cross-validation on the training part. Prints a
    table and writes a page with plots.
    """
    import matplotlib

    from pskem.demo import compare, make_page, table_row
    from pskem.files import check_place

    check_place(output)
    matplotlib.use("agg")  # no window is needed, and on many machines none can be had

    def observe(contestant: Any) -> None:
        if on_terminal():
            remark(f"training {contestant.name} ...", quiet)

    result = compare(observe)
    make_page(result).write(output)
    if as_json:
        print_json({"entries": [entry._asdict() for entry in result.entries], "page": output})
        return
    table(
        ["classifier", "accuracy", "log loss", "in validation", "seconds", "settings"],
        [
            (*table_row(entry)[:4], f"{entry.seconds:.1f}", table_row(entry)[4])
            for entry in result.entries
        ],
    )
    print(
        f"\n{result.n_train} digits to train on, {result.n_test} to test on. Log loss: lower is"
        f" better.\nPlots: {output}"
    )
