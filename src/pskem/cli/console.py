"""What commands print: tables and facts on stdout, remarks and progress on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = [
    "complain",
    "facts",
    "on_terminal",
    "percent",
    "print_json",
    "remark",
    "table",
]

#: Columns of a line where there is no terminal to fit into.
UNLIMITED = 10_000


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
    """Whether somebody watches: progress is shown only then."""
    return sys.stderr.isatty()


def complain(text: str) -> None:
    print(_clean(text), file=sys.stderr)


def _clean(text: Any) -> str:
    """A text without control characters, with which a file could take over a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(text))


def remark(text: str, quiet: bool = False) -> None:
    """A remark beside the result, on stderr."""
    if not quiet:
        complain(text)


def facts(pairs: Iterable[tuple[str, Any]]) -> None:
    """Facts, one a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in pairs:
        grid.add_row(Text(_clean(name)), Text(_clean(value)))
    _print(grid)


def table(headings: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> None:
    """A table whose first columns are text and whose others are numbers, after an empty line."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    made = Table(box=box.SIMPLE, show_edge=False, pad_edge=False)
    for i, heading in enumerate(headings):
        # Words may be broken to fit a terminal; numbers must be seen whole.
        text: Any = {"overflow": "fold"} if i < left else {"justify": "right", "no_wrap": True}
        made.add_column(Text(_clean(heading)), **text)
    for row in rows:
        made.add_row(*(Text(_clean(entry)) for entry in row))
    _print("")
    _print(made)


def percent(share: float) -> str:
    return f"{100.0 * share:.2f} %"


def print_json(value: Any) -> None:
    print(json.dumps(value, default=_plain, indent=2, ensure_ascii=False, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not for JSON")
