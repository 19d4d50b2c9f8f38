"""pskem demo: a comparison on data that need no download."""

from __future__ import annotations

import click

from pskem.cli.console import print_json, progress, say, show
from pskem.cli.options import as_json, overwrite_option, quiet_option


@click.command(epilog="\b\nExamples:\n  pskem demo\n  pskem demo -o digits.html")
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False),
    default="pskem-demo.html",
    help="Page to write.",
)
@overwrite_option
@quiet_option
@as_json
def demo(output: str, overwrite: bool, quiet: bool, as_json: bool) -> None:
    """Compare pskem with LDA, QDA, kNN and RBF-SVM on handwritten digits.

    All classifiers have the same split and are tuned by cross-validation on the training part.
    The command prints a table and writes a page with plots.
    """
    import matplotlib

    from pskem.demo import compare, make_page
    from pskem.display import check_page_place

    check_page_place(output, overwrite)
    matplotlib.use("agg")  # no window is needed, and on many machines none can be had
    with progress(quiet) as tell:
        result = compare(lambda contestant: tell(f"training {contestant.name}", 0, None))
    make_page(result).write(output, overwrite)
    if as_json:
        print_json({"entries": [entry._asdict() for entry in result.entries], "page": output})
        return
    show(result.table)
    say()
    say(f"{result.n_train} digits to train on, {result.n_test} to test on.")
    say("Log loss: lower is better.")
    say(f"Plots: {output}")
