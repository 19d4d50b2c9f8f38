"""Tables: the same from every kind of file, whole or in parts, and what becomes of columns."""

import io

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.pipeline import Pipeline

from pskem.tables import (
    Columns,
    TableError,
    align,
    category_features,
    check_output,
    labels_of,
    make_encoder,
    read_parts,
    read_table,
    sort_columns,
    unknown_categories,
    write_parts,
)

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "length": [1.5, np.nan, 3.25, -4.0],
            "count": [1, 2, 3, 4],
            "colour": ["red", "blué", None, "red"],
            "species": ["a", "b", "a", "b"],
        }
    )


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
    with pytest.raises(TableError, match="What came on stdin is empty"):
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
        ("x.csv", b"a,b\n1,2\n1,2,3\n", "line 3"),
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


# Columns


def test_columns_are_sorted_by_what_they_hold():
    n = 200
    frame = pd.DataFrame(
        {
            "id": [f"patient {i}" for i in range(n)],
            "age": np.arange(n) % 60,
            "dose": np.linspace(0, 1, n),
            "smoker": np.arange(n) % 3 == 0,
            "ward": np.array(["north", "south"])[np.arange(n) % 2],
            "zip": np.arange(n) % 7 + 1000,
            "seen": pd.date_range("2020-01-01", periods=n),
            "gap": np.nan,
            "same": 1.0,
            "note": ["x"] * n,
            "day": [f"{i % 28 + 1}.{i % 12 + 1}.2020" for i in range(n)],
            "time": [f"2020-{i % 12 + 1:02}-01 12:00" for i in range(n)],
            "number": np.arange(n) + 17,
            "Unnamed: 0": np.arange(n)[::-1],
            "list": [[1, 2]] * n,
            "price": ["1.5", "n/a?"] + ["2.5"] * (n - 2),
            "outcome": np.arange(n) % 2,
        }
    )
    columns = sort_columns(frame, "outcome", drop=["dose"], categorical=["zip"])
    assert columns.numeric == ["age", "price"]
    assert columns.categorical == ["smoker", "ward", "zip"]
    assert columns.dropped == {
        "id": "it holds 200 different texts in 200 rows",
        "dose": "as asked",
        "seen": "it holds dates",
        "gap": "it is empty",
        "same": "it has one value only",
        "note": "it has one value only",
        "day": "it holds dates",
        "time": "it holds dates",
        "number": "it numbers the rows",
        "Unnamed: 0": "it has no name and a different number in every row",
        "list": "it holds lists or the like",
    }


def test_wrong_names_of_columns_are_told(frame):
    for options in ({"drop": ["weight"]}, {"categorical": ["weight"]}):
        match = r"no column 'weight'.*It has 4 column.*'length', 'count'"
        with pytest.raises(TableError, match=match):
            sort_columns(frame, "species", **options)
    for options in ({"drop": ["species"]}, {"categorical": ["species"]}):
        with pytest.raises(TableError, match="'species' holds the classes"):
            sort_columns(frame, "species", **options)
    with pytest.raises(TableError, match="No column is left"):
        sort_columns(frame[["species"]], "species")
    twice = pd.concat([frame, frame[["count"]]], axis=1)
    with pytest.raises(TableError, match="several columns called 'count'"):
        sort_columns(twice, "species")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", None, "b"], ["a", "b"]),
        ([1, 2, 1], [1, 2, 1]),
        ([1.0, np.nan, 2.0], [1, 2]),
        ([0.5, 1.5, 2.0], ["0.5", "1.5", "2"]),
        ([2**53, 2**53 + 1, 2**53 + 2], [2**53, 2**53 + 1, 2**53 + 2]),
        (pd.array([1, None, 2**60 + 1], dtype="Int64"), [1, 2**60 + 1]),
        ([np.inf, 1.0, 2.0], ["inf", "1", "2"]),
        ([True, False, True], ["True", "False", "True"]),
        (["true", "FALSE", None], ["True", "False"]),
        (pd.Categorical(["x", "y", "x"]), ["x", "y", "x"]),
    ],
)
def test_labels_of_every_type(values, expected):
    labels, present = labels_of(pd.DataFrame({"c": values}), "c")
    assert labels.tolist() == expected
    assert present.sum() == len(expected)


def test_whole_numbers_are_one_category_whatever_stands_beside_them():
    columns = Columns([], ["c"], {})
    for values in ([3, 7, 3], [3.0, 7.0, np.nan], ["3", "7", None], pd.array([3, 7, None])):
        texts = align(pd.DataFrame({"c": values}), columns)["c"].tolist()
        assert texts[:2] == ["3", "7"]
    halves = align(pd.DataFrame({"c": [0.5, 2.0, np.nan]}), columns)["c"].tolist()
    assert halves[:2] == ["0.5", "2"]


def test_slips_among_numbers_count_as_missing_and_are_told():
    frame = pd.DataFrame({"x": [str(i) for i in range(30)] + ["n/a?", " ", " 7 "]})
    with pytest.warns(UserWarning, match=r"1 value.*of the column 'x' are no numbers.*'n/a\?'"):
        numbers = align(frame, Columns(["x"], [], {}))["x"]
    np.testing.assert_array_equal(numbers, [*range(30), np.nan, np.nan, 7.0])


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


def test_measurements_are_no_classes():
    with pytest.raises(TableError, match="98 different numbers with fractions: measurements"):
        labels_of(pd.DataFrame({"c": np.linspace(0, 1, 100)}), "c")
    with pytest.raises(TableError, match="no column 'd' to take the classes from"):
        labels_of(pd.DataFrame({"c": [1]}), "d")


def test_align_gives_the_columns_of_the_training_in_their_order(frame):
    columns = Columns(["count", "length"], ["colour"], {})
    aligned = align(frame[["colour", "length", "species", "count"]], columns)
    assert list(aligned.columns) == ["count", "length", "colour"]
    assert aligned["colour"].isna().tolist() == [False, False, True, False]
    text = frame.assign(count=["1", "2", "3", "4"])
    np.testing.assert_array_equal(align(text, columns)["count"], [1.0, 2.0, 3.0, 4.0])
    infinite = align(frame.assign(length=[np.inf, 1.0, -np.inf, 2.0]), columns)
    np.testing.assert_array_equal(infinite["length"], [np.nan, 1.0, np.nan, 2.0])


def test_align_tells_what_is_wrong(frame):
    with pytest.raises(TableError, match=r"lacks 1 column.*: 'weight'\. It has 4"):
        align(frame, Columns(["count", "weight"], [], {}))
    with pytest.raises(TableError, match="'colour' holds texts, such as 'red', where the model"):
        align(frame, Columns(["colour"], [], {}))
    with pytest.raises(TableError, match=r"'length' holds 1e\+200; values beyond"):
        align(frame.assign(length=1e200), Columns(["length"], [], {}))


# Encoding


def test_encoded_numbers_are_filled_and_scaled_and_categories_indicated(frame):
    columns = Columns(["length", "count"], ["colour"], {})
    encoder = make_encoder(columns)
    assert isinstance(encoder, Pipeline)
    X = encoder.fit_transform(align(frame, columns))
    filled = np.array([1.5, 1.5, 3.25, -4.0])  # the median stands in
    np.testing.assert_allclose(X[:, 0], (filled - filled.mean()) / filled.std())
    np.testing.assert_allclose(X[:, 1], (frame["count"] - 2.5) / np.std([1, 2, 3, 4]))
    assert X.shape == (4, 4)  # missing, blué, red: two indicators
    np.testing.assert_allclose(X.mean(axis=0), 0.0, atol=1e-12)
    assert list(encoder.get_feature_names_out()[2:]) == ["colour_blué", "colour_red"]


def test_each_category_has_its_own_features(frame):
    columns = Columns(["count"], ["colour", "species"], {})
    encoder = make_encoder(columns).fit(align(frame, columns))
    assert [part.tolist() for part in category_features(encoder)] == [[1, 2], [3]]
    assert category_features(make_encoder(columns, pca=2).fit(align(frame, columns))) == []
    # A category of one value, as a part of the rows may have, has none.
    same = align(frame.assign(colour="red"), columns)
    encoder = make_encoder(columns).fit(same)
    assert [part.tolist() for part in category_features(encoder)] == [[1]]
    assert encoder.transform(same).shape == (4, 2)


def test_unknown_categories_are_found_by_column(frame):
    columns = Columns(["count"], ["colour", "species"], {})
    encoder = make_encoder(columns).fit(align(frame, columns))
    assert unknown_categories(encoder, align(frame, columns)) == {}
    new = frame.assign(colour=["red", "mauve", None, "beige"])
    assert unknown_categories(encoder, align(new, columns)) == {"colour": ["beige", "mauve"]}


def test_unknown_categories_do_not_stop_a_prediction(frame):
    columns = Columns(["count"], ["colour"], {})
    encoder = make_encoder(columns).fit(align(frame, columns))
    with pytest.warns(UserWarning, match="unknown categories"):
        X = encoder.transform(align(frame.assign(colour="mauve"), columns))
    assert np.isfinite(X).all()


def test_pca_and_the_papers_features():
    columns = Columns(["a", "b", "c"], [], {})
    assert list(make_encoder(columns, pca=2).named_steps) == ["columns", "scale", "pca"]
    assert make_encoder(columns, "mnist")["pca"].n_components == 39
    assert list(make_encoder(columns, "mnist").named_steps) == ["deskew", "normalize", "pca"]
    assert make_encoder(columns, "mnist", pca=7)["pca"].n_components == 7
    assert list(make_encoder(columns, "cifar-10").named_steps) == ["normalize", "pca"]


# Writing


@pytest.mark.parametrize("name", ["o.csv", "o.tsv", "o.parquet"])
def test_written_parts_can_be_read_again(frame, tmp_path, name):
    path = str(tmp_path / name)
    assert write_parts(iter([frame, frame]), path) == 8
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
