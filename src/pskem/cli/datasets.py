"""pskem datasets: list and download the named data sets."""

from __future__ import annotations

import click

from pskem.cli.console import on_terminal, say, show
from pskem.cli.options import as_json, home_option


@click.group(epilog="\b\nExamples:\n  pskem datasets list\n  pskem datasets fetch mnist rice")
def datasets() -> None:
    """List and download the data sets that have names."""


@datasets.command(
    "list", epilog="\b\nExamples:\n  pskem datasets list\n  pskem datasets list --json"
)
@home_option
@as_json
def list_(data_home: str | None, as_json: bool) -> None:
    """List the data sets, and whether they are on this machine."""
    from pskem.datasets import CATALOGUE, is_present
    from pskem.display import Table
    from pskem.tables import EMBEDDED

    rows = [(name, "comes with scikit-learn", "", "here") for name in EMBEDDED] + [
        (name, entry.shape, entry.size, "here" if is_present(name, data_home) else "to be fetched")
        for name, entry in CATALOGUE.items()
    ]
    show(Table(["name", "shape", "download", "state"], rows, left=4), as_json)


@datasets.command(
    epilog="\b\nExamples:\n  pskem datasets fetch mnist\n  pskem datasets fetch --all"
)
@click.argument("names", nargs=-1)
@click.option("--all", "all_", is_flag=True, help="Download all data sets.")
@home_option
def fetch(names: tuple[str, ...], all_: bool, data_home: str | None) -> None:
    """Download data sets to the data folder, unless they are there already."""
    from pskem.datasets import CATALOGUE
    from pskem.datasets import fetch as fetch_files

    unknown = [name for name in names if name not in CATALOGUE]
    if unknown or not (names or all_):
        raise click.UsageError(
            (f"There is no data set {unknown[0]!r}. " if unknown else "Which data set? ")
            + f"Known: {', '.join(CATALOGUE)}; --all fetches them all."
        )
    for name in CATALOGUE if all_ else names:
        paths = fetch_files(name, data_home, progress=on_terminal())
        say(f"{name}: {len(paths)} file(s) in {paths[0].parent}")


@datasets.command(epilog="\b\nExamples:\n  pskem datasets where")
@home_option
def where(data_home: str | None) -> None:
    """Print the data folder."""
    from pskem.datasets import data_folder

    print(data_folder(data_home))
