"""Tables and paragraphs in Markdown, and places in a page that are generated."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

from pskem.display import Table

__all__ = ["Record", "fill", "heading", "paragraph", "table", "yes_no"]

#: The longest line of a page.
WIDTH = 120

Record = dict[str, Any]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns also line up in a terminal; all but the first align to the right."""
    return Table(header, rows).markdown(aligned=True)


def paragraph(text: str, indent: str = "") -> str:
    """Text in lines of a page's width."""
    return textwrap.fill(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def yes_no(met: bool) -> str:
    return "yes" if met else "no"


def heading(run: Record) -> str:
    """On what, with what and when a run was made."""
    machine = run["machine"]
    vectors = "with" if machine["avx512"] else "without"
    text = (
        f"pskem {machine['pskem']}, scikit-learn {machine['scikit-learn']}, NumPy"
        f" {machine['numpy']} with {', '.join(machine['blas'])}; {machine['processor']},"
        f" {machine['cores']} cores, {vectors} AVX512; {run['date']}."
    )
    if run["quick"]:
        text += " **A quick run, too short to be quoted.**"
    return paragraph(text)


def fill(page: str, places: dict[str, str]) -> str:
    """A page with other texts between the markers of its places.

    Raises
    ------
    ValueError
        If the page does not have each place once.
    """
    for name, content in places.items():
        begin, end = (f"<!-- {name}:{which} -->" for which in ("begin", "end"))
        if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
            raise ValueError(
                f"The page needs one line {begin} and, below it, one line {end}: the tables go"
                " between them."
            )
        before, rest = page.split(begin)
        _, after = rest.split(end)
        page = f"{before}{begin}\n{content}\n{end}{after}"
    return page
