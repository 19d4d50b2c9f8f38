"""The page about what the defaults choose follows from its record."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_wine

from pskem import SharedKernelClassifier

pytestmark = pytest.mark.plumbing

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def module(monkeypatch):
    """Import what measures, or what writes the page."""
    if not DOCS.exists():
        pytest.skip("the documents are not beside the tests")
    monkeypatch.syspath_prepend(str(DOCS.parent))
    return lambda name: importlib.import_module(f"docs.{name}")


def test_the_page_is_that_of_the_record(module):
    writer = module("choices")
    text = (DOCS / "choices.md").read_text(encoding="utf-8")
    parts = writer.sections(writer.load())
    assert text.count(":begin -->") == len(parts)
    assert writer.fill(text, parts) == text
    assert max(map(len, text.splitlines())) <= 120


def test_a_record_that_is_not_whole_says_so(module):
    writer = module("choices")
    record = writer.load()
    assert ("Provisional" in writer.extent(record)) == (len(record.fits) < writer.WHOLE)
    first = min(record.fits)
    fewer = record._replace(fits={first: record.fits[first]})
    assert f"Provisional: 1 of the {writer.WHOLE} tables" in writer.extent(fewer)


def test_every_table_has_all_that_is_compared(module):
    writer = module("choices")
    record = writer.load()
    keys = {
        *writer.of_model("product", writer.CALIBRATIONS),
        *writer.with_all(writer.VIEWS),
        *writer.with_all(writer.REFITS),
    }
    assert all(keys <= own.keys() for own in record.fits.values())
    assert all(own.keys() == writer.METHODS.keys() for own in record.ensembles.values())


def test_what_is_put_together_is_what_the_model_says(module):
    answers, watching = module("answers"), module("watching")
    X, y = load_wine(return_X_y=True)
    train, test = np.arange(len(y)) % 3 > 0, np.arange(len(y)) % 3 == 0
    model = SharedKernelClassifier(random_state=0)
    watched = watching.watch(model, X[train], y[train], X[test])
    found = answers.answers_of(watched)
    assert np.exp(found["product", "all"]) == pytest.approx(model.predict_proba(X[test]), abs=1e-9)


def test_a_part_of_the_calibration_is_fitted_like_all_of_it(module):
    watching = module("watching")
    X, y = load_wine(return_X_y=True)
    watched = watching.watch(SharedKernelClassifier(random_state=0), X, y, X)
    for view in watched.views:
        found = watching.fit_some(view.asked, watched.rows, weights=True, shares=True)
        shipped = watching.posterior(view.asked, view.calibration, watched.rows.priors)
        again = watching.posterior(view.asked, found, watched.rows.priors)
        assert np.exp(again) == pytest.approx(np.exp(shipped), abs=1e-4)
