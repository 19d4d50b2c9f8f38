"""The record of the benchmarks, its pages, and what it says of classifiers."""

import importlib
import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not beside the tests", allow_module_level=True)


@pytest.fixture
def module(monkeypatch):
    """Import a module of the benchmarks."""
    monkeypatch.syspath_prepend(str(ROOT))
    return lambda name: importlib.import_module(f"benchmarks.{name}")


@pytest.mark.parametrize("page", ["README.md", "benchmarks/README.md"])
def test_pages_are_those_of_the_record(module, page):
    report, markdown = module("report"), module("markdown")
    record = json.loads((report.RESULTS / "benchmark.json").read_text(encoding="utf-8"))
    places = report.pages(record)[page]
    assert "fits" in places
    text = (ROOT / page).read_text(encoding="utf-8")
    assert markdown.fill(text, places) == text


def test_a_page_without_its_markers_is_told_of(module):
    fill = module("markdown").fill
    assert fill("<!-- a:begin -->\nold\n<!-- a:end -->", {"a": "new"}).count("new") == 1
    for page in ("", "<!-- a:end -->\n<!-- a:begin -->", "<!-- a:begin -->"):
        with pytest.raises(ValueError, match="needs one line <!-- a:begin -->"):
            fill(page, {"a": "new"})


def test_a_missing_peer_says_how_to_install_it(module):
    candidate = module("fits").CANDIDATES[0]
    assert candidate.missing() is None
    absent = candidate._replace(package="no-such-peer", module="no_such_peer.part")
    assert "pip install no-such-peer" in absent.missing()


def test_a_missing_set_is_skipped_with_a_reason(module, monkeypatch, tmp_path):
    monkeypatch.setenv("PSKEM_DATA", str(tmp_path))
    found = module("fits")._prepare("mnist", str(tmp_path / "mnist.npz"), None)
    assert "pskem datasets fetch mnist" in found["skipped"]
    assert not list(tmp_path.iterdir())


def test_classifiers_are_judged_on_the_test_rows(module, tmp_path):
    """Against scikit-learn's own score; a classifier without probabilities has no log loss."""
    from sklearn.svm import SVC

    fits, path = module("fits"), tmp_path / "digits.npz"
    shape = fits._prepare("digits", str(path), 300)
    assert (shape["n_train"], shape["n_test"], shape["n_features"]) == (300, 300, 40)
    request = {"path": str(path), "n_threads": 1, "rounds": 2, "seconds": 60.0}
    found = fits._fit("SVM, RBF kernel", **request)
    with np.load(path) as data:
        model = SVC(C=5, gamma="scale").fit(data["X"], data["y"])
        assert found["accuracy"] == model.score(data["X_test"], data["y_test"])
    assert len(found["fits"]) == 2
    assert "log_loss" not in found


def test_log_loss_of_float32_and_of_impossible_classes(module):
    proba = np.array([[0.5, 0.25, 0.25], [0.75, 0.25, 0.0]], dtype=np.float32)
    classes, judge = np.array([2, 5, 7]), module("fits")._probabilities
    found = judge(proba, classes, np.array([5, 2]))
    assert found["log_loss"] == pytest.approx(-0.5 * np.log(0.25 * 0.75))
    assert found["impossible"] == 0
    assert judge(proba, classes, np.array([5, 7]))["impossible"] == 1


@pytest.mark.parametrize(("sections", "kept"), [("fits", "import"), ("import", "fits")])
def test_a_run_replaces_what_it_measures_and_keeps_the_rest(
    module, monkeypatch, tmp_path, sections, kept
):
    main = module("__main__")
    old = json.loads((module("report").RESULTS / "benchmark.json").read_text(encoding="utf-8"))
    (tmp_path / "benchmark.json").write_text(json.dumps(old))
    new = {"fits": {**old["fits"], "rounds": 9}, "import": {**old["import"], "rounds": 9}}
    monkeypatch.setattr(main.fits, "measure", lambda *_: new["fits"])
    monkeypatch.setattr(main.imports, "measure", lambda rounds: new["import"])
    arguments = ["benchmarks", "--quick", "--only", sections, "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", arguments)
    main.main()
    record = json.loads((tmp_path / "benchmark.json").read_text())
    assert record[sections]["rounds"] == 9
    assert record[kept] == old[kept]
    assert record["quick"] is (sections == "import")
    assert ("passes" in record) is (sections == "fits")
