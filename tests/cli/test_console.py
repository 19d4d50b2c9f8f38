"""One table value in three forms, and one progress bar for the command line."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from pskem.cli import console
from pskem.display import Table

TABLE = Table(["name", "n", "x"], [["a|b", 1, "2.50"], ["<i>long</i>", 20, "±3"]])


def cells(line):
    """A line of a Markdown table taken apart, as a reader of Markdown does it."""
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("aligned", [False, True])
def test_markdown_holds_every_cell_and_the_alignment(aligned):
    heading, rule, *rows = TABLE.markdown(aligned).splitlines()
    assert cells(heading) == list(TABLE.headings)
    assert [cells(row) for row in rows] == [[str(cell) for cell in row] for row in TABLE.rows]
    assert [re.fullmatch(r"-{2,}(:?)", cell)[1] for cell in cells(rule)] == ["", ":", ":"]
    assert (len({len(line) for line in (heading, rule, *rows)}) == 1) == aligned
    assert [":" in cell for cell in cells(TABLE._replace(left=3).markdown().splitlines()[1])] == [
        False
    ] * 3


class Cells(HTMLParser):
    """Cells of HTML tables, with whether each is text."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append(["", dict(attributes).get("class") == "text"])
        else:
            assert tag in ("table", "thead", "tbody")

    def handle_data(self, data):
        self.rows[-1][-1][0] += data


def test_html_holds_every_cell_and_the_alignment():
    parser = Cells()
    parser.feed(TABLE._replace(left=2).html())
    assert [[text for text, _ in row] for row in parser.rows] == [
        [str(cell) for cell in line] for line in (TABLE.headings, *TABLE.rows)
    ]
    assert {tuple(is_text for _, is_text in row) for row in parser.rows} == {(True, True, False)}


def test_html_is_bold_between_marks_alone():
    table = Table(["a"], [["**1.5** <b>, **2**"], ["2**3"], ["plain"]])
    made = table.html(mark="**")
    assert "<strong>1.5</strong> &lt;b&gt;, <strong>2</strong>" in made
    assert ">2**3<" in made
    assert "<strong>" not in table.html()


def test_the_terminal_gets_every_cell(capsys):
    console.show(TABLE)
    first, heading, _, *rows = capsys.readouterr().out.splitlines()
    assert first == ""
    assert heading.split() == list(TABLE.headings)
    assert [row.split() for row in rows] == [[str(cell) for cell in row] for row in TABLE.rows]
    assert len({len(row) for row in rows}) == 1  # numbers end in one column


def test_records_are_for_json():
    assert TABLE.records()[1] == {"name": "<i>long</i>", "n": 20, "x": "±3"}


def test_progress_is_a_line_now_and_then_without_a_terminal(monkeypatch, capsys):
    clock = [1000.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: clock[0])
    for quiet, expected in ((False, ["31 of 90", "62 of 90"]), (True, [])):
        with console.progress(quiet) as tell:
            for second in range(90):
                tell(f"{second} of 90", second, 90)
                clock[0] += 1.0
        assert capsys.readouterr().err.splitlines() == expected


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are for Unix")
def test_progress_is_a_bar_on_a_terminal():
    import pty

    code = (
        "from pskem.cli.console import progress\n"
        "with progress(False) as tell:\n"
        "    tell('[b]half\\x07 of it[/b]', 5, 10)\n"
    )
    master, slave = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    subprocess.run([sys.executable, "-c", code], stderr=slave, env=environment, check=True)
    os.close(slave)
    drawn = os.read(master, 100_000).decode()
    os.close(master)
    assert "[b]half\N{REPLACEMENT CHARACTER} of it[/b]" in drawn  # what a file names is no markup
    assert "━" in drawn
