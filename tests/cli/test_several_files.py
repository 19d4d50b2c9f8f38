"""Folders, names with wildcards and addresses, in the place of one file."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris

from pskem.cli.app import run

pytestmark = pytest.mark.plumbing


@pytest.fixture
def iris(tmp_path, monkeypatch):
    """A model, a whole table, and the table in two kinds of files in folders of their own."""
    monkeypatch.chdir(tmp_path)
    frame = load_iris(as_frame=True).frame.rename(columns={"target": "kind"})
    frame["kind"] = frame["kind"].map({0: "setosa", 1: "versicolor", 2: "NA"})
    frame["row"] = np.arange(len(frame))
    frame.to_csv("whole.csv", index=False)
    for name in ("texts", "columns"):
        Path(name).mkdir()
    for i, rows in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[rows].to_csv(f"texts/{i}.csv", index=False)
        frame.iloc[rows].to_parquet(f"columns/{i}.parquet", index=False)
    frame.iloc[:0].to_csv("texts/0none.csv", index=False)  # a part may have no rows
    fit = ["fit", "whole.csv", "-t", "kind", "-o", "iris.pskem", "-k", "3", "--drop", "row"]
    assert run([*fit, "--quiet"]) == 0
    return frame


@pytest.mark.parametrize("source", ["texts/*.csv", "columns", "columns/*.parquet", "file"])
def test_files_are_answered_about_as_one_table(iris, capsys, source):
    if source == "file":
        source = f"file://{Path('columns').resolve()}/*.parquet"
    assert run(["predict", "iris.pskem", "whole.csv", "--proba", "--keep", "row"]) == 0
    expected = capsys.readouterr().out
    assert run(["predict", "iris.pskem", source, "--proba", "--keep", "row"]) == 0
    assert capsys.readouterr().out == expected
    judged = []
    for data in ("whole.csv", source):
        capsys.readouterr()
        assert run(["evaluate", "iris.pskem", data, "--json"]) == 0
        judged.append(json.loads(capsys.readouterr().out))
    one, two = judged
    assert one.keys() == two.keys()
    for name in one.keys() - {"log_loss", "brier", "calibration_error"}:
        assert one[name] == two[name], name
    for name in ("log_loss", "brier", "calibration_error"):
        assert one[name] == pytest.approx(two[name], rel=1e-12), name
    assert one["n_samples"] == len(iris)


def test_priors_are_estimated_from_all_files(iris, capsys):
    said = []
    for data in ("whole.csv", "texts/*.csv"):
        assert run(["predict", "iris.pskem", data, "--priors", "estimate", "-o", "l.csv"]) == 0
        said.append(capsys.readouterr().err)
    assert "Estimated priors: " in said[0]
    assert said[0] == said[1]


def test_what_is_wrong_is_said_of_the_file(iris, capsys):
    iris.drop(columns="petal width (cm)").to_csv("texts/3.csv", index=False)
    assert run(["predict", "iris.pskem", "texts/*.csv", "-o", "labels.csv"]) == 1
    err = capsys.readouterr().err
    assert "texts/3.csv: The table lacks 1 column(s)" in err
    assert not Path("labels.csv").exists()


def test_what_is_wrong_with_classes_is_said_of_the_file(iris, capsys):
    iris.assign(kind="peony").to_csv("texts/3.csv", index=False)
    assert run(["evaluate", "iris.pskem", "texts/*.csv"]) == 1
    assert "texts/3.csv: The column 'kind' holds class(es) peony" in capsys.readouterr().err


def test_what_is_read_is_not_written(iris, capsys):
    """Nor what the next command would read: predictions would be a part of the table."""
    Path("linked").symlink_to("columns")
    before = {path: path.read_bytes() for path in Path().rglob("*.*")}
    for data, place in (
        ("texts/*.csv", "texts/labels.csv"),
        ("texts/*.csv", "texts/0.csv"),
        ("columns", "columns/labels.parquet"),
        (f"file://{Path('columns').resolve()}/*.parquet", "columns/labels.parquet"),
        (f"file://{Path('columns/0.parquet').resolve()}", "columns/0.parquet"),
        ("whole.csv", "./whole.csv"),
        ("linked", "columns/labels.parquet"),
        ("linked/*.parquet", "columns/0.parquet"),
        ("linked/*.parquet", "columns/labels.parquet"),
        ("col*/*.parquet", "linked/labels.parquet"),
    ):
        assert run(["predict", "iris.pskem", data, "-o", place, "--overwrite"]) == 2
        assert f"{place} is read, or would be by the next" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in Path().rglob("*.*")} == before
    assert run(["predict", "iris.pskem", "columns", "-o", "columns/labels.csv"]) == 0


def test_columns_that_are_kept_have_the_type_of_all_files(iris):
    """As pandas writes whole numbers without gaps and with some; one part has none at all."""
    for i, kept in enumerate(([None] * 50, range(50), [0.5, *[None] * 49])):
        part = pd.read_parquet(f"columns/{i}.parquet").assign(age=kept)
        part.to_parquet(f"columns/{i}.parquet")
    command = ["predict", "iris.pskem", "columns", "--keep", "age", "--keep", "row"]
    assert run([*command, "-o", "labels.parquet"]) == 0
    found = pd.read_parquet("labels.parquet")
    assert found["age"].dropna().tolist() == [*range(50), 0.5]
    assert found["row"].tolist() == iris["row"].tolist()


def test_columns_of_different_kinds_are_refused_at_once(iris, capsys):
    part = pd.read_parquet("columns/1.parquet")
    part.assign(row=[f"r{i}" for i in range(50)]).to_parquet("columns/1.parquet")
    keep = ["predict", "iris.pskem", "columns", "--keep", "row", "-o"]
    assert run([*keep, "labels.parquet"]) == 1
    said = capsys.readouterr().err
    assert "The files of columns hold int64" in said
    assert "in the column 'row', which cannot be one column of a Parquet file" in said
    assert run([*keep, "labels.csv"]) == 0
    assert pd.read_csv("labels.csv")["row"].tolist()[49:51] == ["49", "r0"]


def test_a_data_set_has_its_name_also_beside_a_folder(iris, capsys):
    Path("digits").mkdir()
    assert run(["predict", "iris.pskem", "digits"]) == 1
    assert "The table lacks 4 column(s)" in capsys.readouterr().err


def test_an_empty_file_is_no_part(iris, capsys):
    """It may be what is left of an upload."""
    Path("texts/3.csv").touch()
    assert run(["predict", "iris.pskem", "texts/*.csv"]) == 1
    assert "texts/3.csv is empty." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["predict", "iris.pskem", "none-*.csv"], "No file is called none-*.csv."),
        (["predict", "iris.pskem", "texts"], "The folder texts has no Parquet files."),
        (["evaluate", "iris.pskem", "texts/0n*.csv"], "texts/0n*.csv has no rows."),
        (["evaluate", "iris.pskem", "texts/*", "--subset", "test"], "has no subsets"),
        (["fit", "columns"], "Which column holds the classes?"),
        (["tune", "texts/*.csv", "-t", "kind"], "stands for several files, and one is needed here"),
        (
            ["tune", "s3://bucket/x.parquet", "-t", "kind"],
            "is an address, and a file of this machine",
        ),
    ],
)
def test_wrong_names(iris, capsys, arguments, said):
    assert run(arguments) in (1, 2)
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_one_class_is_refused_wherever_rows_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).standard_normal((21_000, 2))
    pd.DataFrame(X, columns=list("ab")).assign(kind="only").to_parquet("one.parquet")
    for how in ("--in-memory", "--out-of-core"):
        assert run(["fit", "one.parquet", "-t", "kind", how]) == 1
        assert "The column 'kind' holds one class only" in capsys.readouterr().err
    assert not Path("one.pskem").exists()
