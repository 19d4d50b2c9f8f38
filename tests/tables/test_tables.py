"""Tables: the same from every kind of file, whole or in parts, and to files again."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.datasets import load_iris

from pskem.tables import (
    Columns,
    TableError,
    align,
    check_output,
    labels_of,
    read_parts,
    read_table,
    write_parts,
)

pytestmark = pytest.mark.plumbing


def cells(frame):
    """Values without their types, None where there is none."""
    return frame.astype(object).where(frame.notna(), None).to_numpy().tolist()


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".arff":
        names = "@ATTRIBUTE length Real\n@ATTRIBUTE count Integer\n"
        nominal = "@ATTRIBUTE colour {red,blue}\n@ATTRIBUTE species {a,b}\n"
        text = frame.to_csv(index=False, header=False, na_rep="?")
        path.write_text(f"@RELATION t\n{names}{nominal}@DATA\n{text}", encoding="utf-8")
    else:
        frame.to_csv(path, sep="\t" if ".tsv" in path.suffixes else ",", index=False)
    return str(path)


KINDS = ["t.csv", "t.tsv", "t.csv.gz", "t.tsv.xz", "t.parquet", "t.arff"]


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_gives_the_same_table(frame, tmp_path, name):
    if name == "t.arff":  # SciPy's reader takes ASCII names of categories only
        frame = frame.replace("blué", "blue")
    read = read_table(write(frame, tmp_path / name))
    assert list(read.columns) == list(frame.columns)
    np.testing.assert_array_equal(read["length"], frame["length"])
    np.testing.assert_array_equal(read["count"], frame["count"])
    assert read["colour"].isna().tolist() == [False, False, True, False]
    assert read["species"].tolist() == ["a", "b", "a", "b"]


@pytest.mark.parametrize("name", KINDS[:-1])
def test_parts_make_up_the_whole(frame, tmp_path, name):
    path = write(pd.concat([frame] * 5, ignore_index=True), tmp_path / name)
    parts = list(read_parts(path, rows=7))
    assert [len(part) for part in parts] == [7, 7, 6]
    whole = read_table(path)
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole, check_dtype=False)


def test_stdin_is_csv_of_any_kind(frame, monkeypatch):
    for separator, decimal, start in ((",", ".", ""), (";", ",", "\ufeff")):
        long = pd.concat([frame] * 200)
        text = start + long.to_csv(index=False, sep=separator, decimal=decimal)
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        parts = list(read_parts("-", rows=300))
        assert [len(part) for part in parts] == [300, 300, 200]
        assert cells(pd.concat(parts)) == cells(long)
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    with pytest.raises(TableError, match="Standard input is empty"):
        read_table("-")


def test_headers_may_be_quoted_over_lines_and_hold_commas(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text('"a\nb",c\n1,2\n')
    assert read_table(str(path)).columns.tolist() == ["a\nb", "c"]
    path.write_text('"a, cm";b;c\n1,5;2;x\n')
    assert cells(read_table(str(path))) == [[1.5, 2, "x"]]


def test_parquet_keeps_whole_numbers_whole_and_a_named_index(tmp_path):
    whole = pd.array([2**60 + 1, None, 3], dtype="Int64")
    frame = pd.DataFrame({"n": [5, 9, 6], "i": whole})
    frame.set_index("n").to_parquet(tmp_path / "named.parquet")
    read = read_table(str(tmp_path / "named.parquet"))
    assert set(read.columns) == {"n", "i"}
    assert int(read["i"][0]) == 2**60 + 1
    frame[::-1].to_parquet(tmp_path / "unnamed.parquet")
    assert list(read_table(str(tmp_path / "unnamed.parquet")).columns) == ["n", "i"]
    aligned = align(read, Columns(["i"], ["n"], {}))
    np.testing.assert_array_equal(aligned["i"], [2.0**60, np.nan, 3.0])
    assert aligned["n"].tolist() == ["5", "9", "6"]


def test_named_data_sets_have_a_class_column(tiny):
    iris = read_table("iris")
    expected = load_iris()
    np.testing.assert_array_equal(iris.iloc[:, :4], expected.data)
    assert iris["class"].tolist() == expected.target_names[expected.target].tolist()
    home, made = tiny
    test = read_table("mnist", "test", home)
    assert test["class"].tolist() == [str(label) for label in made["mnist", "t10k"][1]]
    np.testing.assert_array_equal(test.iloc[:, :-1], made["mnist", "t10k"][0].reshape(4, -1))
    assert len(read_table("mnist", data_home=home)) == 6


def test_a_file_goes_before_a_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "iris").mkdir()  # a data folder may be the place to work in
    assert len(read_table("iris")) == 150
    (tmp_path / "iris").rmdir()
    (tmp_path / "iris").write_text("x")
    with pytest.raises(TableError, match="not of a known kind"):
        read_table("iris")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(TableError, match="is a folder"):
        read_table("folder.csv")


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("x.csv", b"", "is empty"),
        ("x.csv", b"a,b\n", "has no rows"),
        ("x.csv", b"a,b\n1,2\n1,2,3\n", "3 fields in line 3, more than its first line.* quotes"),
        ("x.csv", bytes(range(256)), "is not text in UTF-8"),
        ("x.csv", "a,b\n1,é\n".encode("latin1"), "Save it as UTF-8"),
        ("x.csv", b"a,b,a\n1,2,3\n", "several columns called 'a'"),
        ("x.csv", b"a,b\n1,2,3\n4,5,6\n", "more fields than its first line"),
        ("x.arff.gz", b"", "not of a known kind"),
        ("x.csv.zst", b"", "not of a known kind"),
        ("x.csv.gz", b"a,b\n1,2\n", "cannot be read"),
        ("x.parquet", b"a,b\n1,2\n", "cannot be read"),
        ("x.parquet", b"", "cannot be read"),
        ("x.arff", b"a,b\n1,2\n", "ARFF"),
        ("x.xlsx", b"", "not of a known kind. Accepted: .csv, .tsv, .tab, .parquet"),
        ("x", b"", "not of a known kind"),
    ],
)
def test_files_that_cannot_be_read_are_named(tmp_path, name, content, match):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TableError, match=match) as error:
        list(read_parts(str(path)))
    assert name in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("source", "options", "match"),
    [
        ("nowhere.csv", {}, r"There is no file nowhere\.csv\.$"),
        ("flowers", {}, "no data set of that name: digits, iris"),
        ("iris", {"subset": "test"}, "iris has no subsets"),
        ("rice", {"subset": "test"}, "rice has no subsets"),
        ("x.csv", {"subset": "test"}, "only the named image sets do"),
    ],
)
def test_sources_that_do_not_exist_are_named(source, options, match):
    with pytest.raises(TableError, match=match):
        read_table(source, **options)


def test_classes_are_read_as_they_are_written(tmp_path):
    (tmp_path / "t.csv").write_text("x,c\n1,NA\n2,None\n3,01\n4,\n5,1.50\n")
    frame = read_table(str(tmp_path / "t.csv"), verbatim=["c"])
    labels, present = labels_of(frame, "c")
    assert labels.tolist() == ["NA", "None", "01", "1.50"]
    assert present.tolist() == [True, True, True, False, True]


def test_semicolons_and_decimal_commas_are_told_from_the_file(tmp_path):
    (tmp_path / "t.csv").write_text("a; b;c\n1,5;2;x\n-2,25;3;y, z\n")
    frame = read_table(str(tmp_path / "t.csv"))
    assert cells(frame) == [[1.5, 2, "x"], [-2.25, 3, "y, z"]]
    (tmp_path / "t.csv").write_text("a;b\n1.5;2\n")
    assert cells(read_table(str(tmp_path / "t.csv"))) == [[1.5, 2]]
    (tmp_path / "t.csv").write_text('"a;b",c\n1.5,2\n')
    assert read_table(str(tmp_path / "t.csv")).columns.tolist() == ["a;b", "c"]


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.parquet"])
def test_written_parts_can_be_read_again(frame, tmp_path, name):
    path = str(tmp_path / name)
    write_parts(iter([frame, frame]), path)
    expected = pd.concat([frame, frame], ignore_index=True)
    assert cells(read_table(path)) == cells(expected)


@pytest.mark.parametrize("name", ["o.csv", "o.parquet"])
def test_nothing_is_left_of_a_failed_write(frame, tmp_path, name):
    def parts():
        yield frame
        raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        write_parts(parts(), str(tmp_path / name))
    assert not list(tmp_path.iterdir())


def test_without_a_path_csv_goes_to_stdout(frame, capsys):
    write_parts([frame, frame], None)
    assert capsys.readouterr().out.splitlines()[0] == "length,count,colour,species"


def test_unknown_kinds_of_output_are_refused():
    for name in ("o.xlsx", "o", "o.arff", "o.csv.gz"):
        with pytest.raises(TableError, match="kind of file is not known"):
            check_output(name)


@pytest.mark.parametrize("name", ["o.csv", "o.tsv"])
def test_formulas_are_texts_if_asked_for(tmp_path, name):
    texts = ["=1+1", "+cmd", "-2", "-x", "@SUM(A1)", "\tx", "\rx", "a\r=b", None, "+1.5e3", ""]
    frame = pd.DataFrame({"-label": texts, "n": -np.arange(float(len(texts)))})
    write_parts([frame], str(tmp_path / name))
    plain = pd.read_csv(tmp_path / name, sep=None, engine="python", keep_default_na=False)
    assert plain["-label"].tolist()[:5] == texts[:5]
    write_parts([frame, frame], str(tmp_path / name), safe=True)
    separator = "\t" if name.endswith("tsv") else ","
    read = pd.read_csv(tmp_path / name, sep=separator, dtype=str, keep_default_na=False)
    escaped = [
        "'=1+1",
        "'+cmd",
        "-2",
        "'-x",
        "'@SUM(A1)",
        "'\tx",
        "'\rx",
        "a\r=b",
        "",
        "+1.5e3",
        "",
    ]
    assert read["'-label"].tolist() == escaped * 2
    np.testing.assert_array_equal(read["n"].astype(float)[: len(texts)], frame["n"])
    with pytest.raises(TableError, match=r"o\.parquet is no CSV or TSV file"):
        write_parts([frame], str(tmp_path / "o.parquet"), safe=True)


def test_a_column_of_parquet_has_one_type_in_all_parts(tmp_path):
    path = str(tmp_path / "o.parquet")
    first = pd.DataFrame({"why": [None, None], "n": [1, 2]}, dtype=object)
    later = pd.DataFrame({"why": ["outlier", None], "n": [3, None]}, dtype=object)
    write_parts([first, later], path)
    read = pd.read_parquet(path)
    assert cells(read) == [[None, 1], [None, 2], ["outlier", 3], [None, None]]
    with pytest.raises(TableError, match=r"'n' holds int64 in the first rows and (large_)?str"):
        write_parts([first, later.assign(n=["three", "four"])], path)
    for n in (["007", "010"], [1.5, 2.0], [True, False], [2.0**60, np.inf]):
        with pytest.raises(TableError, match="'n' holds int64 in the first rows and"):
            write_parts([first, later.assign(n=n)], path)
    assert cells(pd.read_parquet(path)) == cells(read), "the old file is still there"
    write_parts([first.assign(n=[0.5, 2.0]), later], path)
    assert pd.read_parquet(path)["n"].fillna(-1.0).tolist() == [0.5, 2.0, 3.0, -1.0]


def test_columns_of_parquet_have_room_for_all_parts(tmp_path):
    """Types of other widths, and categories of which others come later."""
    path = str(tmp_path / "o.parquet")
    first = pd.DataFrame({"n": np.float32([0.5, 2.0]), "c": pd.Categorical(["a", "b"])})
    later = pd.DataFrame({"n": [1.25, np.nan], "c": pd.Categorical(["c", None])})
    write_parts([first, later, later.assign(n=[3, 4])], path)
    read = pd.read_parquet(path)
    assert read["n"].dtype == np.float32
    assert read["n"].fillna(-1.0).tolist() == [0.5, 2.0, 1.25, -1.0, 3.0, 4.0]
    assert read["c"].dtype == "category"
    assert read["c"].astype(object).tolist()[:3] == ["a", "b", "c"]
    with pytest.raises(TableError, match="'n' holds float in the first rows and double"):
        write_parts([first, later.assign(n=[0.1, 0.2])], path)
    write_parts([first, later.assign(n=[0.1, 0.2])], path, kinds={"n": pa.float64()})
    assert pd.read_parquet(path)["n"].tolist() == [0.5, 2.0, 0.1, 0.2]
