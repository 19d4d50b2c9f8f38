"""The page about public tables follows from its record."""

import importlib
import tomllib
from pathlib import Path

import pytest

from pskem.study import included

pytestmark = pytest.mark.plumbing

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def writer(monkeypatch):
    """Import what writes the page."""
    if not DOCS.exists():
        pytest.skip("the documents are not beside the tests")
    monkeypatch.syspath_prepend(str(DOCS.parent))
    return importlib.import_module("docs.tables")


def test_the_page_is_that_of_the_record(writer):
    text = (DOCS / "tables.md").read_text(encoding="utf-8")
    parts = writer.sections(writer.load())
    assert set(parts) == {"ranks", "duels", "tables", "seconds"}
    assert writer.fill(text, parts) == text
    assert (writer.TAKEN / f"{writer.FIGURE}.png").exists()


def test_the_record_is_of_the_methods_of_the_study(writer):
    (experiment,) = tomllib.loads(included()["tables"])["experiment"]
    methods = {m if isinstance(m, str) else m["name"] for m in experiment["method"]}
    cells = writer.load()
    assert {cell.method for cell in cells} == methods
    assert {cell.folds for cell in cells} == {5}


def test_a_record_that_is_not_whole_says_so(writer):
    cells = writer.load()
    tables = {cell.table for cell in cells}
    provisional = "Provisional" in writer.sections(cells)["ranks"]
    assert provisional == (len(tables) < writer.WHOLE)
    first = min(tables)
    shown = writer.sections([cell for cell in cells if cell.table == first])["ranks"]
    assert f"Provisional: 1 of the {writer.WHOLE} tables" in shown


def test_what_failed_is_shown(writer):
    """A method without a result on a table is ranked last there, and the table stays."""
    cells = writer.load()
    first = next(cell for cell in cells if cell.method == "qda")
    comparison = writer.compared([cell for cell in cells if cell != first])
    assert first.table in comparison.tables
    assert "qda (failed on 1)" in writer.ranks(comparison)
