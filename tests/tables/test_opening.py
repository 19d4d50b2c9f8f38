"""Tables of files when they are opened: what is found, left out, told of and refused."""

import os
import re
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from sklearn.preprocessing import StandardScaler

import pskem
from filed import N, classifier, planted, write
from pskem import open_table
from pskem.engine import _pieces, serial_map
from pskem.tables import TableError
from pskem.workflow.stored import Rows
from reference import distance

pytestmark = pytest.mark.plumbing


@pytest.fixture(scope="module")
def frame():
    return planted()


def test_what_a_killed_process_left_behind_is_removed(frame, tmp_path, monkeypatch):
    from pskem import files

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    host = files.socket.gethostname()
    gone = 2**22 + 1  # no process has such a number
    left = tmp_path / "tmp" / f"pskem.{host}.{gone}.0123abcd"
    ours = tmp_path / "tmp" / f"pskem.{host}.{os.getpid()}.0123abcd"
    theirs = tmp_path / "tmp" / f"pskem.elsewhere.{gone}.0123abcd"
    for folder in (left, ours, theirs):
        folder.mkdir()
        (folder / "table.arrow").write_bytes(b"x")
    beside = tmp_path / f".model.pskem.{host}.{gone}.0123abcd"
    mine = tmp_path / ".model.pskem.notes"
    beside.write_bytes(b"half")
    mine.write_bytes(b"of the user")
    open_table(write(frame.head(50), "csv", tmp_path), "kind")
    files.atomic_write(tmp_path / "model.pskem", b"whole")
    assert not left.exists()
    assert not beside.exists()
    assert ours.exists()
    assert theirs.exists()
    assert mine.exists()


@pytest.mark.parametrize(
    ("asked", "options"),
    [("*.parquet", ""), ("", ""), ("part?1.parquet", "?use_mmap=1"), ("part%20*", "?use_mmap=1")],
)
def test_addresses_keep_their_options_and_may_hold_blanks(frame, tmp_path, asked, options):
    folder = tmp_path / "some parts"
    folder.mkdir()
    for i in range(2):
        frame.to_parquet(folder / f"part {i}.parquet")
    (folder / "notes.txt").write_text("no rows")
    address = f"file://{tmp_path}/some%20parts"
    table = open_table(f"{address}/{asked}{options}".rstrip("/"), "kind")
    wanted = [1] if asked.startswith("part?") else [0, 1]
    assert [file.path for file in table.files] == [
        f"{address}/part%20{i}.parquet{options}" for i in wanted
    ]
    assert table.n_rows == len(wanted) * len(frame)


def test_what_others_left_behind_is_no_obstacle(tmp_path, monkeypatch):
    """In a folder such as /tmp, nobody may remove files of other users."""
    from pathlib import Path

    from pskem import files

    host, gone = files.socket.gethostname(), 2**22 + 1
    theirs = tmp_path / f".model.pskem.{host}.{gone}.0123abcd"
    theirs.write_bytes(b"half")
    unlink = Path.unlink

    def guarded(path, missing_ok=False):
        if path == theirs:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", guarded)
    files.atomic_write(tmp_path / "model.pskem", b"whole")
    assert (tmp_path / "model.pskem").read_bytes() == b"whole"
    assert theirs.exists()


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("Couldn't connect to server.", "s3://x/y cannot be read: Couldn't connect to server."),
        ("Not an Arrow file", "s3://x/y cannot be read: Not an Arrow file. Was it written to its"),
        ("word " * 200, "word word ..."),
    ],
)
def test_reasons_are_whole_words_and_ask_for_the_end_of_truncated_files(reason, said):
    from pskem.tables.batches import readable

    with pytest.raises(TableError) as caught, readable("s3://x/y"):
        raise OSError(reason)
    assert said in str(caught.value)
    assert ("its end?" in str(caught.value)) == reason.startswith("Not an")
    assert len(str(caught.value)) < 400


def test_footers_are_read_once(frame, tmp_path, monkeypatch):
    """But for the first file, which has the first rows."""
    paths = []
    for i in range(3):
        (tmp_path / str(i)).mkdir()
        paths.append(write(frame, "parquet", tmp_path / str(i)))
    opened = []
    begin = pq.ParquetFile.__init__

    def counting(self, source, *more, **options):
        opened.append(str(source))
        begin(self, source, *more, **options)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counting)
    open_table(paths, "kind", weights="count").on_cluster()
    assert sorted(opened) == sorted([str(paths[0]), *map(str, paths)])


def test_a_truncated_part_is_named(frame, tmp_path):
    parts = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path in parts:
        frame.iloc[:9000].to_parquet(path, index=False)
    table = open_table(parts, "kind")
    whole = parts[1].read_bytes()
    parts[1].write_bytes(whole[: len(whole) // 2])
    name = re.escape(str(parts[1]))
    with pytest.raises(TableError, match=f"{name} has changed"):
        classifier().fit(table)
    with pytest.raises(TableError, match=rf"{name} cannot be read: .*its end\?"):
        open_table(parts, "kind")
    damaged = bytearray(whole)
    damaged[4:60] = b"\xff" * 56  # the header of a page
    parts[1].write_bytes(damaged)
    with pytest.raises(TableError, match=name):
        classifier().fit(open_table(parts, "kind"))


def test_a_part_that_vanishes_is_named(frame, tmp_path):
    parts = [tmp_path / f"{i}.parquet" for i in range(3)]
    for path in parts:
        frame.iloc[:9000].to_parquet(path, index=False)
    table = open_table(parts, "kind")
    before = classifier().fit(table)
    model = pskem.SharedKernelClassifier(**before.get_params()).fit(table)
    kept = model.model_
    seen = []

    def remove(now):
        seen.append(now)
        if len(seen) == 2:
            parts[2].unlink()

    with pytest.raises(TableError, match=rf"{re.escape(str(parts[2]))} cannot be read"):
        model.fit(table, watch=remove)
    assert model.model_ is kept, "the old model is intact"
    assert distance(model, before) == 0.0


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("column", ["c", "kind", "count"])
def test_columns_must_be_the_same_in_all_files(frame, tmp_path, kind, column):
    (tmp_path / "two").mkdir()
    one = write(frame.head(300), kind, tmp_path)
    two = write(frame.head(300).drop(columns=column), kind, tmp_path / "two")
    with pytest.raises(TableError, match=rf"{re.escape(str(two))} has no column '{column}'"):
        open_table([one, two], "kind", weights="count")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_part_with_texts_among_numbers_is_named(frame, tmp_path, kind):
    (tmp_path / "two").mkdir()
    one = write(frame.head(300), kind, tmp_path)
    two = write(frame.head(300).assign(c="none at all"), kind, tmp_path / "two")
    with pytest.raises(TableError, match=rf"{re.escape(str(two))}: The column 'c' holds texts"):
        open_table([one, two], "kind")


def test_classes_are_of_one_kind_in_all_files(frame, tmp_path):
    (tmp_path / "two").mkdir()
    one = write(frame.head(300).assign(kind=1), "parquet", tmp_path)
    two = write(frame.head(300).assign(kind="1"), "parquet", tmp_path / "two")
    said = rf"'kind' holds texts in {re.escape(str(two))} and other values in {re.escape(str(one))}"
    with pytest.raises(TableError, match=said):
        open_table([one, two], "kind")


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_parts_without_rows_are_passed_over(frame, tmp_path, kind, empty):
    parts = [frame.iloc[:0] if i == empty else frame.iloc[:400] for i in range(3)]
    paths = []
    for i, part in enumerate(parts):
        (tmp_path / str(i)).mkdir()
        paths.append(write(part, kind, tmp_path / str(i)))
    table = open_table(paths, "kind", weights="count")
    assert table.n_rows == 800
    assert table.names == ["a", "b", "c", "d", "colour"]
    assert classifier().fit(table).classes_.tolist() == ["iris", "rose", "tulip"]
    with pytest.raises(TableError, match="has no rows"):
        open_table([paths[empty], paths[empty]], "kind")


@pytest.mark.parametrize("how", ["texts", "null", "category", "float", "gaps"])
def test_classes_keep_their_type_in_a_copy(frame, tmp_path, how):
    """Columns of texts that are numbers are copied; the classes are those of the file."""
    frame = frame[["a", "c"]].head(600).assign(y=np.arange(600) % 3)
    frame["c"] += frame["y"]
    frame["a"] = frame["a"].astype(str)
    if how == "null":
        (tmp_path / "two").mkdir()
    if how == "category":
        frame["y"] = pd.Categorical(frame["y"])
    if how == "float":
        frame["y"] = frame["y"].astype(float)
    if how == "gaps":
        frame["y"] = frame["y"].astype("Int64").where(np.arange(600) % 5 > 0)
    paths = [write(frame, "parquet", tmp_path)]
    if how == "null":
        paths.append(write(frame.assign(y=None), "parquet", tmp_path / "two"))
    model = classifier().fit(open_table(paths, "y", unlabelled=False))
    assert model.classes_.dtype == np.int64
    assert model.classes_.tolist() == [0, 1, 2]


def test_a_column_may_be_empty_in_one_part(frame, tmp_path):
    (tmp_path / "two").mkdir()
    frame = frame[["a", "c", "kind"]].head(600)
    paths = [write(frame, "parquet", tmp_path)]
    paths.append(write(frame.assign(a=None), "parquet", tmp_path / "two"))
    table = open_table(paths, "kind")
    assert table.scratch is None, "no copy is needed"
    whole = pd.concat([frame, frame.assign(a=np.nan)])
    expected = classifier().fit(whole[["a", "c"]], whole["kind"])
    assert distance(expected, classifier().fit(table)) < 1e-9


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_the_first_rows_may_lie_in_several_files(frame, tmp_path, kind):
    """What a column holds is not decided by one small file."""
    frame = frame[["a", "c", "colour", "kind"]].head(600)
    frame.loc[:99, ["a", "colour"]] = None
    frame.loc[:99, "kind"] = "iris"
    paths = []
    for i in range(6):
        (tmp_path / str(i)).mkdir()
        paths.append(write(frame[100 * i : 100 * (i + 1)], kind, tmp_path / str(i)))
    table = open_table(paths, "kind")
    assert table.used.numeric == ["a", "c"]
    assert table.used.categorical == ["colour"]
    expected = classifier().fit(frame.drop(columns="kind"), frame["kind"])
    assert distance(expected, classifier().fit(table)) < 1e-9


def test_files_are_found_from_every_folder_and_called_as_they_were_given(
    frame, tmp_path, monkeypatch
):
    write(frame, "parquet", tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    table = open_table("table.parquet", "kind")
    monkeypatch.chdir(tmp_path / "elsewhere")
    classifier().fit(table)
    (tmp_path / "table.parquet").write_bytes(b"")
    with pytest.raises(TableError, match=r"^table\.parquet has changed"):
        classifier().fit(table)


def test_a_file_that_is_replaced_in_the_middle_of_a_pass_is_noticed(frame, tmp_path, monkeypatch):
    """One that is open stays readable, and a pass may have read either."""
    monkeypatch.setattr(_pieces, "MOST_ROWS", 1024)
    path = write(frame, "parquet", tmp_path)
    table = open_table(path, "kind")
    (tmp_path / "new").mkdir()
    other = write(frame.assign(a=0.0), "parquet", tmp_path / "new")
    seen = []

    def rows(part):
        seen.append(part)
        if len(seen) == 3:
            os.replace(other, path)
        return Rows((part,))

    with pytest.raises(TableError, match="has changed while it was being read"):
        table.pieces.fold(rows, serial_map)
    assert len(seen) > 3


@pytest.mark.parametrize("value", [1e120, -1e120])
def test_numbers_that_are_too_large_are_refused(frame, tmp_path, value):
    frame = frame.head(900)
    frame.loc[700, "b"] = value
    frame.loc[701, "b"] = np.inf
    with (
        pytest.warns(UserWarning, match="Infinite"),
        pytest.raises(TableError, match=r"'b' holds 1e\+120; values beyond 1e\+100 cannot be"),
    ):
        classifier().fit(open_table(write(frame, "parquet", tmp_path), "kind"))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"source": "nothing.parquet"}, "There is no file nothing.parquet"),
        ({"source": "part-*.parquet"}, r"No file is called part-\*.parquet"),
        ({"source": []}, "the list of files is empty"),
        ({"source": "iris"}, "iris is the name of a data set"),
        ({"target": "species"}, "There is no column 'species'"),
        ({"weights": "mass"}, "There is no column 'mass'"),
        ({"weights": "kind"}, "it has no weights"),
        ({"drop": ["hue"]}, "There is no column 'hue'"),
    ],
)
def test_what_is_wrong_is_said(frame, tmp_path, monkeypatch, how, message):
    monkeypatch.chdir(tmp_path)
    write(frame.head(100), "parquet", tmp_path)
    with pytest.raises(TableError, match=message):
        open_table(**{"source": "table.parquet", "target": "kind", **how})


def test_a_column_that_only_later_files_have_is_told_of(frame, tmp_path):
    (tmp_path / "two").mkdir()
    for kind in ("parquet", "csv"):
        one = write(frame.head(300), kind, tmp_path)
        two = write(frame.head(300).assign(late=1.0), kind, tmp_path / "two")
        dropped = open_table([one, two], "kind").used.dropped
        assert dropped["late"] == f"{two} has it and {one} does not"


def test_slips_are_told_of_once_with_the_numbers_of_all_parts(frame, tmp_path, monkeypatch):
    monkeypatch.setattr("pskem.tables.spooling.rows_at_a_time", lambda width: 100)
    frame = frame.drop(columns="kind").astype({"a": object, "c": object}).head(1000)
    frame.loc[:999:50, "a"], frame.loc[7:999:10, "c"] = "oops", np.inf
    path = write(frame.assign(kind=["x", "y"] * 500), "csv", tmp_path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        open_table(path, "kind", drop=["count"])
    said = sorted(str(each.message) for each in told if "count as missing" in str(each.message))
    assert said == [
        "100 value(s) of the column 'c' are infinite; they count as missing.",
        "20 value(s) of the column 'a' are no numbers, such as 'oops'; they count as missing.",
    ]


@pytest.mark.parametrize("rows", [slice(30_000, 40_000), slice(20_000, 40_000, 2)])
def test_many_texts_in_later_rows_are_refused_wherever_they_lie(frame, tmp_path, monkeypatch, rows):
    """In parts of nothing but texts, or among numbers."""
    monkeypatch.setattr("pskem.tables.spooling.rows_at_a_time", lambda width: 1_000)
    frame = pd.concat([frame, frame])[:40_000].astype({"a": object}).reset_index(drop=True)
    frame.loc[25_000, "a"] = np.inf  # the example is a text all the same
    frame.iloc[rows, frame.columns.get_loc("a")] = "oops"
    path = write(frame, "csv", tmp_path)
    with pytest.raises(
        TableError, match=r"'a' holds numbers in the first rows, but 10,000 texts, .*oops"
    ):
        open_table(path, "kind")


def test_a_table_of_files_is_no_array(frame, tmp_path):
    table = open_table(write(frame.head(300), "parquet", tmp_path), "kind")
    with pytest.raises(TypeError, match="read piece by piece, for fit and score of a classifier"):
        StandardScaler().fit(table)


def test_streams_of_arrow_are_told_from_truncated_files(frame, tmp_path):
    table = pa.Table.from_pandas(frame.head(100), preserve_index=False)
    with pa.ipc.new_stream(tmp_path / "table.arrow", table.schema) as stream:
        stream.write_table(table)
    with pytest.raises(TableError, match="A stream of Arrow's is none: write a file"):
        open_table(tmp_path / "table.arrow", "kind")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names")
def test_what_can_be_read_once_only_is_refused(tmp_path):
    os.mkfifo(tmp_path / "table.csv")
    with pytest.raises(TableError, match=r"table\.csv can be read once only; give a file"):
        open_table(tmp_path / "table.csv", "kind")


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(TableError, match="has no Parquet files"):
        open_table(tmp_path, "kind")


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_bad_weights_are_refused(frame, tmp_path, bad):
    frame = frame.assign(count=frame["count"].astype(float))
    frame.loc[N - 5, "count"] = bad
    table = open_table(write(frame, "parquet", tmp_path), "kind", weights="count")
    with pytest.raises(TableError, match=r"column 'count' has 1 row\(s\) without a weight, or"):
        classifier().fit(table)


def test_weights_may_be_texts_that_are_numbers(frame, tmp_path):
    texts = frame.assign(count=frame["count"].astype(str))
    expected = classifier().fit(
        open_table(write(frame, "parquet", tmp_path), "kind", weights="count")
    )
    path = write(texts, "parquet", tmp_path)
    assert distance(expected, classifier().fit(open_table(path, "kind", weights="count"))) < 1e-9
    path = write(texts.assign(count="many"), "parquet", tmp_path)
    with pytest.raises(TableError, match="column 'count' holds texts, such as 'many'"):
        open_table(path, "kind", weights="count")


def test_a_target_of_measurements_is_refused_at_the_first_piece(frame, tmp_path):
    """In the words that memory has for it, and before they fill the memory."""
    from pskem.estimators import _stored as stored

    X = frame[list("acd")].to_numpy()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(ValueError, match="Unknown label type") as memory:
        classifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match="Unknown label type") as pieces:
        classifier().fit(mapped, X[:, 0])
    assert str(pieces.value) == str(memory.value)
    frames = [stored.Frame(X[:9], stored.Labels.of(X[:9, 0]))]
    with pytest.raises(ValueError, match="Unknown label type"):
        stored.take_census(np.empty(0, dtype=int), None, frames[0])


def test_a_number_of_each_row_is_no_class(frame, tmp_path, monkeypatch):
    monkeypatch.setattr("pskem.estimators._stored.MOST_CLASSES", 15_000)
    np.save(tmp_path / "X.npy", frame[list("acd")].to_numpy())
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    monkeypatch.setattr("pskem.engine._pieces.MOST_ROWS", 8192)
    with pytest.raises(ValueError, match="more than 15,000 different classes"):
        classifier().fit(mapped, np.arange(N))


def test_a_path_is_no_table(tmp_path):
    with pytest.raises(ValueError, match=r"pskem.open_table\(path, target"):
        classifier().fit("big.parquet", "kind")
    with pytest.raises(ValueError, match=r"pskem.open_table\(path, target"):
        classifier().fit(tmp_path, "kind")


def test_classes_of_a_table_are_in_its_column(frame, tmp_path):
    table = open_table(write(frame, "parquet", tmp_path), "kind")
    with pytest.raises(ValueError, match="leave y and sample_weight out"):
        classifier().fit(table, frame["kind"])


def test_a_classifier_needs_a_table_with_classes(frame, tmp_path):
    table = open_table(write(frame, "parquet", tmp_path))
    with pytest.raises(ValueError, match=r"no classes: .*open_table\(path, target=\.\.\.\)"):
        classifier().fit(table)


@pytest.mark.filterwarnings("ignore:1 value.s. of the column 'count' are no numbers")
@pytest.mark.parametrize("wrong", ["three", None, -1])
def test_weights_are_looked_at_when_a_table_is_opened(frame, tmp_path, monkeypatch, wrong):
    counts = frame["count"].astype(object)
    counts[5] = wrong
    path = write(frame.assign(count=counts), "csv", tmp_path)
    monkeypatch.setattr("pskem.tables.stored.spool", None)  # nothing is copied before
    with pytest.raises(TableError, match="without a weight, or with a negative one"):
        open_table(path, "kind", weights="count")


def test_a_row_has_one_class(tmp_path):
    frame = pd.DataFrame({"kind": ["a", "b"] * 50, "x": range(100), "pair": [[1, 2], [3]] * 50})
    frame.to_parquet(tmp_path / "table.parquet")
    with pytest.raises(TableError, match=r"'pair' holds list<.*not one class in each row"):
        open_table(tmp_path / "table.parquet", "pair")
