"""Output of commands: results on stdout, remarks and progress on stderr."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from pskem.display import Table

#: Line width without a terminal.
UNLIMITED = 10_000
#: Cells that are longer may be broken.
LONG = 25
#: Seconds between lines of progress where there is no terminal.
PACE = 30.0

#: Takes what is being done, how much of it is done, and how much there is if that is known.
Tell = Callable[[str, float, float | None], None]


def _print(renderable: Any) -> None:
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False, markup=False)
    if console.is_terminal:
        console.print(renderable)
        return
    console.width = UNLIMITED
    with console.capture() as captured:
        console.print(renderable)
    for line in captured.get().splitlines():
        print(line.rstrip())


def on_terminal() -> bool:
    """Whether stderr is a terminal, so that progress is shown."""
    return sys.stderr.isatty()


def _clean(text: Any) -> str:
    """Replace control characters, with which a file could take over a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def remark(text: str, quiet: bool = False) -> None:
    """Print a remark on stderr."""
    if not quiet:
        print(_clean(text), file=sys.stderr)


def facts(*pairs: tuple[str, Any]) -> None:
    """Print names and values, one pair per line; those without a value are left out."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        if value is not None:
            grid.add_row(Text(_clean(name)), Text(_clean(value)))
    _print(grid)


def show(table: Table, as_json: bool = False) -> None:
    """Print a table, after an empty line, or its rows as JSON."""
    if as_json:
        print_json(table.records())
        return
    from rich import box
    from rich import table as rich_table
    from rich.text import Text

    made = rich_table.Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for i, (heading, *cells) in enumerate(zip(table.headings, *table.rows, strict=True)):
        # Long texts may be broken to fit a terminal; names and numbers must be seen whole.
        long = max((len(str(cell)) for cell in cells), default=0) > LONG
        justify: Any = "left" if i < table.left or long else "right"
        made.add_column(Text(_clean(heading)), justify=justify, overflow="fold", no_wrap=not long)
    for row in table.rows:
        made.add_row(*(Text(_clean(entry)) for entry in row))
    _print("")
    _print(made)


@contextmanager
def progress(quiet: bool) -> Iterator[Tell]:
    """A bar on a terminal, a line now and then elsewhere; nothing if it is to be quiet."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    drawn, last = on_terminal() and not quiet, time.monotonic()
    columns = (BarColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not drawn) as bar:
        task = bar.add_task("beginning", total=None)

        def tell(text: str, done: float, total: float | None) -> None:
            nonlocal last
            bar.update(task, description=_clean(text), completed=done, total=total)
            if not drawn and time.monotonic() - last > PACE:
                last = time.monotonic()
                remark(text, quiet)

        yield tell


def percent(share: float) -> str:
    return f"{100.0 * share:.2f} %"


def print_json(value: Any) -> None:
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if is_dataclass(value):  # a start or another setting that is a value
        return repr(value)
    raise TypeError(f"{type(value).__name__} is not for JSON")
