"""The study of every table of a folder: what it finds, measures and reports."""

import csv
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

from pskem import SharedKernelClassifier
from pskem.cli.app import run
from pskem.study import Place, RunSpec, Store, StudyError, conduct, included, parse_study
from pskem.study.comparison import (
    Cell,
    cells_of,
    compare,
    duels,
    rank_table,
    read_record,
    record,
    table_by_table,
    wins,
)
from pskem.study.execution import PartResult, perform
from pskem.study.folders import tables_in
from pskem.study.materials import file_digest
from pskem.study.methods import CLASSIFIERS
from pskem.study.splits import make_parts
from pskem.study.tabular import column_encoder, judge

pytestmark = pytest.mark.plumbing


@pytest.fixture
def tables(tmp_path, rng):
    """Numbers with the classes in the last column; gaps and texts with `class` first."""
    folder = tmp_path / "some tables"
    folder.mkdir()
    X, y = load_iris(return_X_y=True)
    frame = pd.DataFrame(X[::2], columns=list("abcd")).assign(
        kind=np.array(["s", "t", "u"])[y[::2]]
    )
    frame.to_csv(folder / "flowers.csv", index=False)
    n = 80
    label = np.repeat(["no", "yes"], n // 2)
    mixed = pd.DataFrame({"class": label, "x": rng.standard_normal(n) + 2 * (label == "yes")})
    mixed["colour"] = np.where(rng.random(n) < 0.8, label == "yes", label == "no")
    mixed["colour"] = mixed["colour"].map({True: "red", False: "blue"})
    mixed.loc[::7, "x"] = np.nan
    mixed.loc[::9, "colour"] = None
    mixed.to_csv(folder / "mixed.csv.gz", index=False)
    (folder / "README.md").write_text("not a table")
    return folder


def study_of(folder, methods='["naive-bayes", "knn"]'):
    text = included()["tables"]
    return parse_study(
        "tables", re.sub(r"method = \[.*\]", f"method = {methods}", text, flags=re.S), tables=folder
    )


def test_tables_are_found_by_name_with_the_column_of_their_classes(tables):
    found = tables_in(tables)
    assert [(t.name, t.path.name, t.target) for t in found] == [
        ("flowers", "flowers.csv", "kind"),
        ("mixed", "mixed.csv.gz", "class"),
    ]
    (tables / "mixed.csv").write_text("a,b\n1,2\n")
    with pytest.raises(StudyError, match="two tables 'mixed'"):
        tables_in(tables)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a,class\n1,x\n2,x\n3,\n", "odd.csv .* fewer than two classes in its column 'class'"),
        ("a,b\n" + "".join(f"1,{i + 0.5}\n" for i in range(200)), "odd.csv .* 'b' .*fractions"),
    ],
)
def test_a_table_without_classes_is_refused_before_anything_runs(tables, text, told):
    (tables / "odd.csv").write_text(text)
    with pytest.raises(StudyError, match=told):
        tables_in(tables)


def test_a_study_has_an_experiment_for_every_table(tables):
    study = parse_study("tables", included()["tables"], tables=tables)
    assert [experiment.name for experiment in study.experiments] == ["flowers", "mixed"]
    methods = [point.method for point in study.experiments[0].points]
    assert methods[0] == "pskem"
    assert len(methods) + len(study.left_out) == len(set(methods)) + len(study.left_out) == 14
    assert len(study.runs()) == 2 * 5 * len(methods)
    digest = file_digest(tables / "flowers.csv")
    data = {"source": "flowers.csv", "target": "kind", "digest": digest}
    assert study.experiments[0].points[0].data == data


def test_without_a_folder_there_is_an_outline_that_can_be_listed():
    study = parse_study("tables", included()["tables"])
    assert study.runs() == []
    assert study.entries == []


def test_ones_own_study_may_name_a_folder_beside_it(tables):
    text = """
    data = { folder = "some tables" }
    features = { frame = true }
    split = { folds = 3, single = true }
    [[experiment]]
    name = "A"
    method = ["lda", "knn"]
    """
    study = parse_study("s", text, tables.parent)
    assert [experiment.name for experiment in study.experiments] == ["A: flowers", "A: mixed"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('method = ["shared-kernels"]', "for classifiers with probabilities"),
        ('method = ["linear-svm"]', "for classifiers with probabilities"),
        ('method = ["tuned-knn"]', "for classifiers with probabilities"),
        ('method = ["lda"]\nfeatures = { scale = "none" }', "columns stay as they are"),
        ('method = ["lda"]\nsplit = { fixed = true }', "all runs would be of one fold"),
        ('method = ["lda"]\ndata = { folder = "a", target = "b" }', "has 'target'"),
    ],
)
def test_what_cannot_be_is_refused(tables, change, message):
    above = included()["tables"].split("[[experiment]]")[0]
    with pytest.raises(StudyError, match=message):
        parse_study("s", f"{above}[[experiment]]\n{change}", tables=tables)


def test_single_folds_need_folds():
    text = 'data = { source = "iris" }\nsplit = { single = true }\n[[experiment]]\nmethod = "lda"'
    with pytest.raises(StudyError, match="single folds, but no folds"):
        parse_study("s", text)


def test_runs_are_the_folds_of_one_shuffle_then_of_the_next():
    y = np.repeat([0, 1, 2], [30, 50, 3])  # a class of fewer rows than folds
    split = {"folds": 5, "single": True}
    tests = []
    for seed in range(10):
        (part,) = make_parts(y, None, split, {}, seed)
        assert np.array_equal(np.setdiff1d(np.arange(83), part.test), part.train)
        tests.append(part.test.tolist())
    for five in (tests[:5], tests[5:]):
        assert sorted(i for rows in five for i in rows) == list(range(83))
    assert tests[:5] != tests[5:]
    with pytest.raises(StudyError, match="the largest class has 3 rows"):
        make_parts(np.repeat([0, 1], 3), None, split, {}, 0)


def test_a_run_measures_what_scikit_learn_measures(tables, tmp_path):
    point = study_of(tables, '["logistic", "knn"]').experiments[0].points[0]
    path = str(tables / "flowers.csv")
    result = perform(RunSpec(point, 2, path), Place(tmp_path))
    frame = pd.read_csv(path)
    X, y = frame[list("abcd")].to_numpy(), frame["kind"].to_numpy(dtype=str)
    train, test = list(StratifiedKFold(5, shuffle=True, random_state=0).split(X, y))[2]
    scale = StandardScaler().fit(X[train])
    model = LogisticRegression(max_iter=2000).fit(scale.transform(X[train]), y[train])
    (part,) = result.parts
    inputs = scale.transform(X[test])
    assert part.honest == model.score(inputs, y[test])
    assert part.log_loss == pytest.approx(log_loss(y[test], model.predict_proba(inputs)))
    assert (part.n_train, part.n_test) == (len(train), len(test))


def test_ours_gets_the_frame_as_it_is(tables, tmp_path):
    point = study_of(tables, '["pskem", "knn"]').experiments[1].points[0]
    path = str(tables / "mixed.csv.gz")
    (part,) = perform(RunSpec(point, 1, path), Place(tmp_path)).parts
    frame = pd.read_csv(path)
    y = (frame.pop("class") == "yes").to_numpy(dtype=int)
    train, test = list(StratifiedKFold(5, shuffle=True, random_state=0).split(frame, y))[1]
    model = SharedKernelClassifier(random_state=1).fit(frame.iloc[train], y[train])
    proba = model.predict_proba(frame.iloc[test])
    assert part.honest == model.score(frame.iloc[test], y[test])
    assert part.log_loss == pytest.approx(log_loss(y[test], proba), rel=1e-6)


def test_a_class_that_training_lacks_has_the_probability_zero():
    X = pd.DataFrame({"x": [0.0, 0.1, 1.0, 1.1]})
    y = np.array(["a", "a", "c", "c"])
    test = X.iloc[[0, 2]], np.array(["a", "b"])
    trace = judge(GaussianNB(), (X, y), test)
    assert trace.accuracies == [[0.5]]
    # The first is all but certain; the other counts as 1e-15.
    assert trace.log_loss == pytest.approx(-np.log(1e-15) / 2, abs=1e-6)
    assert trace.calibration_error == pytest.approx(0.5, abs=1e-6)


def test_a_peer_that_refuses_counts_as_the_frequencies_of_the_classes():
    class Refuses(GaussianNB):
        def fit(self, X, y):
            raise np.linalg.LinAlgError("not of full rank")

    X = pd.DataFrame({"x": np.arange(8.0)})
    y = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    with pytest.warns(UserWarning, match="Refuses refuses the training rows"):
        trace = judge(Refuses(), (X, y), (X, y))
    assert trace.accuracies == [[0.75]]
    assert trace.log_loss == pytest.approx(-0.75 * np.log(0.75) - 0.25 * np.log(0.25))


def test_columns_of_peers():
    X = pd.DataFrame({"x": [1.0, np.nan, 3.0, 8.0], "t": ["a", None, "b", "a"], "b": [True] * 4})
    filled = column_encoder(X, gaps=False).fit_transform(X)
    x = np.array([1.0, 3.0, 3.0, 8.0])
    assert filled[:, 0] == pytest.approx((x - x.mean()) / x.std())
    assert filled[:, 2:].sum(axis=1).tolist() == [1.0] * 4  # one of a, b, missing
    assert filled.shape == (4, 5)
    kept = column_encoder(X, gaps=True).fit_transform(X)
    assert np.isnan(kept[:, 0]).tolist() == [False, True, False, False]


@pytest.mark.parametrize("name", ["searched-rbf-svm", "searched-knn"])
def test_searched_peers_take_classes_of_few_rows(name, rng):
    X = rng.standard_normal((40, 3)) + np.repeat([[0], [4], [8]], [20, 18, 2], axis=0)
    y = np.repeat(["a", "b", "c"], [20, 18, 2])
    model = CLASSIFIERS[name].make({}, 0, 1).fit(X, y)
    assert model.score(X[:38], y[:38]) > 0.9
    assert model.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(40))


def test_a_library_that_is_not_there_is_left_out_and_told_of(tables, tmp_path, monkeypatch):
    real = sys.modules["pskem.study.methods"].find_spec
    missing = lambda name: None if name == "lightgbm" else real(name)  # noqa: E731
    monkeypatch.setattr("pskem.study.methods.find_spec", missing)
    study = study_of(tables, '["naive-bayes", "lightgbm", "knn"]')
    assert list(study.left_out) == ["lightgbm"]
    assert [p.method for p in study.experiments[0].points] == ["naive-bayes", "knn"]
    session = conduct([study], tmp_path / "out", runs=1, jobs=1, only=["flowers"])
    page = session.written.page.read_text()
    assert "not installed: lightgbm" in page
    assert "pip install lightgbm" in page


def test_the_better_of_two_is_bold_on_the_page(tables, tmp_path):
    study = study_of(tables, '["pskem", "knn"]')
    session = conduct([study], tmp_path / "out", jobs=1, only=["flowers"])
    with Store(tmp_path / "out" / "runs.sqlite", create=False) as store:
        ours, peer = cells_of(study, store)
    losses = [f"{cell.log_loss:.3f}" for cell in (ours, peer)]
    better = int(peer.log_loss < ours.log_loss)
    page = session.written.page.read_text()
    assert f"<strong>{losses[better]}</strong>" in page
    assert f"<strong>{losses[1 - better]}</strong>" not in page
    assert "**" not in page


def test_a_page_without_ranks_says_why(tables, tmp_path):
    study = study_of(tables, '["knn", "logistic"]')
    pages = [
        conduct([study], tmp_path / "out", jobs=1, **options).written.page.read_text()
        for options in ({"runs": 1}, {"only": ["knn"]}, {})
    ]
    assert "no ranks yet: they need all 5 runs of a method" in pages[0]
    assert "no ranks yet: they need two methods" in pages[1]
    assert "no ranks yet" not in pages[2]


def test_from_the_command_to_the_record(tables, tmp_path, capsys):
    out = tmp_path / "out"
    command = ["reproduce", "tables", "--data", str(tables), "--out", str(out), "--jobs", "1"]
    command += ["--only", "naive-bayes", "--only", "knn", "--only", "logistic"]
    assert run(command) == 0
    assert "30 run(s) performed, 0 were there already." in capsys.readouterr().err
    assert run(command) == 0
    assert "0 run(s) performed, 30 were there already." in capsys.readouterr().err
    made = {path.name for path in out.iterdir()}
    assert {"tables.csv", "tables-ranks.png", "tables-ranks.svg", "report.html"} <= made
    text = (out / "tables.csv").read_text()
    cells = read_record(text)
    assert [(cell.table, cell.folds) for cell in cells] == [("flowers", 5)] * 3 + [("mixed", 5)] * 3
    assert record(cells) == text
    page = (out / "report.html").read_text()
    assert "Mean ranks by log loss of 3 methods over 2 tables" in page
    # The record against the rows of the file.
    with Store(out / "runs.sqlite", create=False) as store:
        (study,) = store.studies()
        assert cells_of(study, store) == cells
        parts = [part for r in store.records() for part in r.result.parts]
    assert np.mean([c.log_loss for c in cells]) == pytest.approx(
        np.mean([part.log_loss for part in parts]), abs=1e-6
    )


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_without_tables_says_what_to_put_there(tmp_path, monkeypatch, capsys, there):
    monkeypatch.setenv("PSKEM_DATA", str(tmp_path))
    if there:
        (tmp_path / "tables").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", "tables"]) != 0
    err = capsys.readouterr().err
    assert str(Path("tables")) in err
    assert "NAME.csv.gz" in " ".join(err.split())
    assert "Traceback" not in err
    assert not (tmp_path / "pskem-results").exists()


def test_a_folder_for_a_study_that_takes_none_is_refused(tables, capsys):
    assert run(["reproduce", "digits", "--data", str(tables)]) != 0
    assert "no study here takes one" in capsys.readouterr().err


def cell(table, method, accuracy, loss, error=0.1):
    return Cell(table, method, 5, accuracy, loss, error, 1.0)


CELLS = [
    *(
        cell("one", m, a, b)
        for m, a, b in [("pskem", 0.9, 0.3), ("knn", 0.8, 0.5), ("lda", 0.9, 0.2)]
    ),
    *(
        cell("two", m, a, b)
        for m, a, b in [("pskem", 0.7, 0.6), ("knn", 0.6, 0.9), ("lda", 0.5, 0.7)]
    ),
    cell("three", "pskem", 0.6, 0.6),
    cell("three", "knn", 0.7, 0.7),
]


def test_wins_and_losses_are_counted_alike():
    comparison = compare(CELLS, failed=[("three", "lda")])
    assert comparison.tables == ["one", "two", "three"]
    assert wins(comparison, "accuracy") == (1, 1, 1)
    assert wins(comparison, "log loss") == (2, 0, 1)
    rows = {row[0]: row[1:] for row in duels(comparison).rows}
    assert rows == {"knn": ["2 - 0 - 1", "3 - 0 - 0"], "lda": ["2 - 1 - 0", "2 - 0 - 1"]}
    # Ranks by hand: pskem 1.5 1 2, knn 3 2 1, lda 1.5 3 3.
    shown = {row[0]: row[1:3] for row in rank_table(comparison).rows}
    assert shown["pskem"] == ["1.50", "1.33"]
    assert shown["knn"][0] == "2.00"
    assert shown["lda (failed on 1)"] == ["2.50", "2.00"]
    by_table = {row[0]: row[1:] for row in table_by_table(comparison).rows}
    assert by_table["one"][:4] == ["90.0", "90.0 lda", "0.300", "**0.200** lda"]
    assert by_table["three"][:4] == ["60.0", "**70.0** knn", "**0.600**", "0.700 knn"]


def test_a_table_that_is_not_done_does_not_count():
    assert compare(CELLS).tables == ["one", "two"]
    assert compare(CELLS[:1]) is None


def test_a_method_that_fails_everywhere_is_the_last_everywhere():
    failed = [(table, "qda") for table in ("one", "two")]
    comparison = compare(CELLS, failed=failed)
    rows = {row[0]: row[1:] for row in rank_table(comparison).rows}
    assert rows["qda (failed on 2)"] == ["4.00", "4.00", "", "", "", ""]


def test_a_record_is_read_as_it_was_written():
    text = record(CELLS)
    assert read_record(text) == CELLS
    assert next(csv.reader(text.splitlines())) == [
        *("table", "method", "folds", "accuracy", "log loss", "ece", "fit seconds")
    ]


def test_old_rows_have_no_probabilities():
    """Results that were stored before they were measured are read as before."""
    old = PartResult(600, 100, 200, [0.5], [], 1, [], [], 6.0)._asdict()
    del old["log_loss"], old["calibration_error"]
    assert PartResult(**old).log_loss is None
