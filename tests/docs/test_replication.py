"""Documents that match the recorded runs."""

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import rankdata

from pskem.study import included, parse_study

pytestmark = pytest.mark.plumbing

DOCS = Path(__file__).parents[2] / "docs"
#: Pages whose tables a module of the same name writes.
PAGES = ["replication", "beyond", "data"]


@pytest.fixture
def writer(monkeypatch):
    """Import what writes the tables of a page."""
    if not DOCS.exists():
        pytest.skip("the documents are not beside the tests")
    monkeypatch.syspath_prepend(str(DOCS.parent))
    return lambda name: importlib.import_module(f"docs.{name}")


@pytest.mark.parametrize("name", PAGES)
def test_tables_in_documents_are_those_of_the_recorded_runs(writer, name):
    module = writer(name)
    text = (DOCS / f"{name}.md").read_text(encoding="utf-8")
    parts = module.sections(module.load())
    assert parts
    # A place without its end would not be filled, and so stay as it is.
    emptied = module.fill(text, dict.fromkeys(parts, ""))
    assert all(f"<!-- {place}:begin -->\n\n<!-- {place}:end -->" in emptied for place in parts)
    assert module.fill(text, parts) == text


@pytest.mark.parametrize("name", PAGES)
def test_recorded_runs_are_of_studies_that_can_be_run_again(writer, name):
    """The record names points that the definitions have: data, features, rows and settings."""
    defined = {
        (study, entry.point.key)
        for study, text in included().items()
        for entry in parse_study(study, text).entries
    }
    recorded = {(point["study"], point["point"]) for point in writer(name).load()}
    assert recorded
    assert recorded <= defined


def test_the_comparison_beyond_the_paper_is_whole(writer):
    """Every point that the studies define has been run as often as they say, or more."""
    recorded = {(p["study"], p["point"]): p["runs"] for p in writer("beyond").load()}
    missing = [
        (name, entry.point.data["source"], entry.point.method)
        for name in ("beyond", "defaults", "steps", "partitions")
        for entry in parse_study(name, included()[name]).entries
        if recorded.get((name, entry.point.key), 0) < entry.experiment.runs
    ]
    assert missing == []


def test_ranks_are_means_of_midranks(writer):
    """Against SciPy, with ties."""
    module = writer("beyond")
    scores = {
        "pskem": [0.9, 0.8, 0.7, 0.6, 0.5],
        "qda": [0.9, 0.7, 0.8, 0.6, 0.4],
        "knn": [0.8, 0.9, 0.7, 0.6, 0.6],
    }
    cells = {
        (name, data): {"honest_mean": score}
        for name, row in scores.items()
        for data, score in zip(module.FIVE, row, strict=True)
    }
    cells["rbf-svm", "mnist"] = {"honest_mean": 1.0}  # not run on all: not ranked
    expected = rankdata(-np.array(list(scores.values())), axis=0).mean(axis=1)
    ranks = module.mean_ranks(cells, module.NAMES)
    assert ranks == pytest.approx(dict(zip(scores, expected, strict=True)))


def test_one_of_ours_does_not_push_another_up_or_down(writer):
    module = writer("beyond")
    order = ("pskem-ensemble", "qda", "pskem", "knn", "pskem-cv")  # on every data set
    cells = {
        (name, data): {"honest_mean": -place}
        for place, name in enumerate(order)
        for data in module.FIVE
    }
    expected = {"pskem-ensemble": 1, "qda": 1, "pskem": 2, "knn": 3, "pskem-cv": 3}
    assert module.fair_ranks(cells) == expected


def test_dependence_between_blocks_is_that_of_gaussians(writer, rng):
    module = writer("independence")
    X = rng.standard_normal((4_000, 3))
    X[:, 2] = 0.6 * X[:, 0] + 0.8 * X[:, 2]
    y = np.repeat([0, 1], [1_000, 3_000])
    X[y == 1] += 5.0  # classes apart do not make blocks dependent
    rho = [np.corrcoef(X[y == label], rowvar=False) for label in (0, 1)]
    expected = [-0.5 * np.log(1.0 - r[0, 2] ** 2) for r in rho]
    pair = module.between_blocks(X[:, [0, 2]], y, [np.array([0]), np.array([1])])
    assert pair == pytest.approx(0.25 * expected[0] + 0.75 * expected[1])
    together = module.between_blocks(X, y, [np.array([0, 2]), np.array([1])])
    assert 0.0 < together < 0.01 < 0.2 < pair


def test_dependence_is_recorded_of_every_partition(writer):
    module = writer("beyond")
    defined = {
        (entry.point.data["source"], entry.point.settings["partition"])
        for entry in parse_study("partitions", included()["partitions"]).entries
    }
    text = (module.TAKEN / "dependence.csv").read_text(encoding="utf-8")
    recorded = {tuple(line.split(",")[:2]) for line in text.splitlines()[1:]}
    assert recorded == defined


@pytest.mark.parametrize("name", PAGES)
def test_records_name_no_places_of_a_machine(writer, name):
    folder = writer(name).TAKEN
    for suffix in ("csv", "json"):
        text = (folder / f"summary.{suffix}").read_text(encoding="utf-8")
        assert re.findall(r"[^\s\",;]*[/\\][^\s\",;]*", text) == []  # no path, of any system
