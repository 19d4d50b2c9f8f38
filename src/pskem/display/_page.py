"""One page of HTML that needs nothing else: texts, tables and pictures."""

from __future__ import annotations

import base64
import html
import io
from typing import Any

from pskem.display._table import Table
from pskem.files import atomic_write, check_kind, check_place

__all__ = ["Page", "check_page_place"]

#: Tells our pages from other files.
MARK = b'<meta name="generator" content="pskem">'

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; color: #222; }
h1, h2 { font-weight: 600; line-height: 1.2; }
h2 { margin-top: 2em; }
.wide { overflow-x: auto; margin: 1em 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: 0.2em 0.8em; text-align: right; border-bottom: 1px solid #ddd; }
.text { text-align: left; }
tr.ours td { font-weight: 600; }
figure { margin: 1em 0; }
img { max-width: 100%; }
figcaption { color: #555; font-size: 0.9em; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1b; color: #ddd; }
  th, td { border-color: #444; }
  img { background: white; }
  figcaption { color: #aaa; }
}
"""  # noqa: E501


class Page:
    """A page that is filled from top to bottom and then written at once."""

    def __init__(self, title: str) -> None:
        self.title = title
        self._parts: list[str] = [f"<h1>{html.escape(title)}</h1>"]

    def heading(self, text: str) -> None:
        self._parts.append(f"<h2>{html.escape(text)}</h2>")

    def text(self, text: str) -> None:
        self._parts.append(f"<p>{html.escape(text)}</p>")

    def table(
        self,
        table: Table,
        ours: int | None = None,
        folded: str | None = None,
        mark: str | None = None,
    ) -> None:
        """``ours`` is the row to set off; ``folded`` stands for the table until it is unfolded.

        Text between two marks is bold.
        """
        made = f'<div class="wide">{table.html(ours, mark)}</div>'
        if folded is not None:
            made = f"<details><summary>{html.escape(folded)}</summary>{made}</details>"
        self._parts.append(made)

    def figure(self, figure: Any, caption: str) -> None:
        """A matplotlib figure, which is closed afterwards."""
        import matplotlib.pyplot as plt

        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=130)
        plt.close(figure)
        data = base64.b64encode(buffer.getvalue()).decode()
        text = html.escape(caption)
        self._parts.append(
            f'<figure><img alt="{text}" src="data:image/png;base64,{data}">'
            f"<figcaption>{text}</figcaption></figure>"
        )

    def render(self) -> str:
        """The whole page."""
        body = "\n".join(self._parts)
        return (
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"{MARK.decode()}\n<title>{html.escape(self.title)}</title>\n"
            f"<style>{STYLE}</style>\n</head>\n"
            f"<body>\n{body}\n</body>\n</html>\n"
        )

    def write(self, path: Any, overwrite: bool = False) -> None:
        """Write the page; it appears whole or not at all."""
        check_page_place(path, overwrite)
        atomic_write(path, self.render().encode())


def check_page_place(path: Any, overwrite: bool = False) -> None:
    """Refuse a path where no page can be written, or where another file would be lost."""
    check_place(path)
    if not overwrite:
        check_kind(path, "a page of pskem", lambda file: MARK in file.read_bytes()[:1000])
