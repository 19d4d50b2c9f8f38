"""A table as a value, written as Markdown or HTML; ``pskem.cli.console`` prints it."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Table"]


class Table(NamedTuple):
    """Headings and rows of equal length.

    left : this many columns hold text and are aligned left; the others hold numbers
    """

    headings: Sequence[Any]
    rows: Sequence[Sequence[Any]]
    left: int = 1

    def records(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for JSON."""
        return [dict(zip(self.headings, row, strict=True)) for row in self.rows]

    def markdown(self, aligned: bool = False) -> str:
        """Markdown; aligned, the columns also line up as plain text."""
        lines = [[str(c).replace("|", "\\|") for c in line] for line in (self.headings, *self.rows)]
        columns = [
            _column(cells, i < self.left, aligned)
            for i, cells in enumerate(zip(*lines, strict=True))
        ]
        return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))

    def html(self, ours: int | None = None, mark: str | None = None) -> str:
        """A ``<table>``; ``ours`` is the row to set off, and text between two marks is bold."""
        body = "".join(
            f"<tr{' class=ours' if i == ours else ''}>{self._cells(row, 'td', mark=mark)}</tr>"
            for i, row in enumerate(self.rows)
        )
        head = self._cells(self.headings, "th", ' scope="col"')
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _cells(self, line: Sequence[Any], tag: str, more: str = "", mark: str | None = None) -> str:
        kinds = [more + " class=text" * (i < self.left) for i in range(len(line))]
        return "".join(
            f"<{tag}{kind}>{_bold(html.escape(str(cell)), mark)}</{tag}>"
            for kind, cell in zip(kinds, line, strict=True)
        )


def _bold(text: str, mark: str | None) -> str:
    """Escaped text with the parts between two marks in bold."""
    if mark is None:
        return text
    between = re.escape(html.escape(mark))
    return re.sub(f"{between}(.+?){between}", r"<strong>\1</strong>", text)


def _column(cells: Sequence[str], text: bool, aligned: bool) -> list[str]:
    """A column of Markdown, with the rule below its heading."""
    width = max(3, *map(len, cells)) if aligned else 0
    rule = "-" * (width or 3) if text else "-" * ((width or 4) - 1) + ":"
    padded = [cell.ljust(width) if text else cell.rjust(width) for cell in cells]
    return [padded[0], rule, *padded[1:]]
