"""Documents that match the recorded runs."""

import importlib.util
from pathlib import Path

import pytest

from pskem.study import included, parse_study

DOCS = Path(__file__).parents[1] / "docs"


def replication():
    if not (DOCS / "replication.py").exists():
        pytest.skip("the documents are not beside the tests")
    spec = importlib.util.spec_from_file_location("replication", DOCS / "replication.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("page", ["docs/replication.md", "README.md"])
def test_tables_in_documents_are_those_of_the_recorded_runs(page):
    module = replication()
    text = (DOCS.parent / page).read_text(encoding="utf-8")
    assert "<!-- table1:begin -->" in text
    assert module.fill(text, module.sections(module.load())) == text


def test_recorded_runs_are_of_studies_that_can_be_run_again():
    """The record names points that the definitions have: data, features, rows and settings."""
    module = replication()
    defined = {
        (name, entry.point.key)
        for name, text in included().items()
        for entry in parse_study(name, text).entries
    }
    recorded = {(point["study"], point["point"]) for point in module.load()}
    assert recorded
    assert recorded <= defined
