"""Output of commands: results on stdout, remarks and progress on stderr."""

from __future__ import annotations

import io
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pskem.display import Table

#: Line width without a terminal.
UNLIMITED = 10_000
#: Cells that are longer may be broken.
LONG = 25
#: Characters of a message or a cell at most: a file, or an argument, may have chosen them.
LONGEST = 2000
#: Seconds between lines of progress where there is no terminal.
PACE = 30.0
CONTROL = re.compile("[\x7f-\x9f]")

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


def brief(text: str) -> str:
    """The text, or its beginning and how much is left out."""
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}... ({len(text) - LONGEST:,} characters more)"


def _printable(text: str, others: str = "") -> str:
    """Replace control characters, with which a file could take over a terminal."""
    return "".join(c if c.isprintable() or c in others else "\ufffd" for c in text)


def _clean(text: Any) -> str:
    return _printable(brief(str(text)))


class _Terminal(io.TextIOBase):
    """A terminal that shows lines of text and obeys nothing that is in them."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        return self._stream.write(_printable(text, "\r\n"))


@contextmanager
def results() -> Iterator[None]:
    """Tables on stdout: as they are, unless it is a terminal."""
    with redirect_stdout(_Terminal(sys.stdout)) if sys.stdout.isatty() else nullcontext():
        yield


def remark(text: str, quiet: bool = False) -> None:
    """Print a remark on stderr."""
    if not quiet:
        print(_clean(text), file=sys.stderr)


def say(text: str = "") -> None:
    """Print a line on stdout."""
    print(_clean(text))


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
    text = json.dumps(value, default=_plain, indent=2, ensure_ascii=False, allow_nan=False)
    # JSON itself writes only the older control characters as numbers.
    print(CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if is_dataclass(value):  # a start or another setting that is a value
        return repr(value)
    raise TypeError(f"{type(value).__name__} is not for JSON")
