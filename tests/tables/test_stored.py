"""Tables that are read piece by piece: the same model as from memory, and what can go wrong."""

import io
import os
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import sklearn.exceptions
from numpy.testing import assert_array_equal
from sklearn.preprocessing import StandardScaler

import pskem
from pskem import SharedKernelClassifier, open_table
from pskem.engine import _pieces, serial_map
from pskem.tables import TableError, batches
from pskem.tables.columns import labels_of
from pskem.tables.reading import read_table
from pskem.workflow.stored import Rows
from reference import distance

pytestmark = pytest.mark.plumbing

N = 21_000


@pytest.fixture(scope="module")
def frame():
    """Numbers with gaps, a category with gaps, weights, and rows without a class."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    centres = rng.standard_normal((3, 4)) * 1.5
    X = centres[y] + rng.standard_normal((N, 4))
    frame = pd.DataFrame(X, columns=list("abcd"))
    frame.loc[rng.random(N) < 0.02, "b"] = np.nan
    frame["colour"] = np.array(["red", "green", "blue"])[(y + (rng.random(N) < 0.3)) % 3]
    frame.loc[rng.random(N) < 0.01, "colour"] = None
    frame["count"] = rng.integers(1, 4, size=N)
    frame["kind"] = np.array(["iris", "rose", "tulip"])[y]
    return frame


def write(frame, kind, folder):
    path = folder / f"table.{kind}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=7000)
    elif kind == "arrow":
        table = pa.Table.from_pandas(frame, preserve_index=False)
        pyarrow.feather.write_feather(table, path, compression="uncompressed")
    else:
        frame.to_csv(path, index=False, sep="\t" if "tsv" in kind else ",")
    return path


def classifier():
    passes = {"max_iter": 4, "tol": 0.0, "discriminative_iter": 2}
    return SharedKernelClassifier(n_components=6, random_state=0, **passes)


@pytest.mark.parametrize("kind", ["parquet", "arrow", "csv", "tsv.gz"])
@pytest.mark.parametrize("weighed", [False, True])
def test_a_file_gives_the_model_of_the_data_frame(frame, tmp_path, kind, weighed):
    path = write(frame, kind, tmp_path)
    features, y = frame.drop(columns=["kind", "count"]), frame["kind"]
    expected = classifier().fit(features, y, frame["count"] if weighed else None)
    options = {"weights": "count"} if weighed else {"drop": ["count"]}
    table = open_table(path, "kind", **options)
    assert table.n_rows == N
    assert table.names == list(features.columns)
    model = classifier().fit(table)
    assert distance(expected, model) < 1e-9
    assert model.classes_.tolist() == expected.classes_.tolist()
    assert model.feature_names_in_.tolist() == list(features.columns)
    np.testing.assert_allclose(
        model.predict_proba(features), expected.predict_proba(features), atol=1e-9
    )


def test_rows_without_a_class_are_learnt_from(frame, tmp_path):
    partly = frame.drop(columns="count")
    partly.loc[::2, "kind"] = None
    path = write(partly, "parquet", tmp_path)
    model = classifier().set_params(unlabelled_weight=1.0)
    expected = pskem.SharedKernelClassifier(**model.get_params())
    expected.fit(partly.drop(columns="kind"), partly["kind"])
    assert distance(expected, model.fit(open_table(path, "kind"))) < 1e-9
    assert model.unlabelled_weight_ == 1.0


def test_several_files_are_one_table(frame, tmp_path):
    whole = classifier().fit(open_table(write(frame, "parquet", tmp_path), "kind"))
    parts = tmp_path / "parts"
    parts.mkdir()
    for i, part in enumerate(np.array_split(np.arange(N), 3)):
        frame.iloc[part].to_parquet(parts / f"{i}.parquet", index=False)
    sources = [parts, parts / "*.parquet", [parts / f"{i}.parquet" for i in range(3)]]
    for source in sources:
        table = open_table(source, "kind")
        assert table.n_rows == N
        assert distance(whole, classifier().fit(table)) < 1e-9


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16])
def test_mapped_arrays_are_read_piece_by_piece(frame, tmp_path, dtype):
    X, y = frame[list("acd")].to_numpy(), frame["kind"].to_numpy().astype(str)
    X = (100 * X).astype(dtype) if dtype is np.int16 else X.astype(dtype)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    expected, model = classifier().fit(X, y), classifier().fit(mapped, y)
    assert distance(expected, model) < (1e-2 if dtype is np.float32 else 1e-9)
    weighed = classifier().fit(mapped, y, np.full(N, 0.25))  # the same in other units
    assert distance(model, weighed) < 1e-9
    few = classifier().fit(mapped[:500], y[:500])
    assert distance(few, classifier().fit(X[:500], y[:500])) == 0.0
    copied = np.load(tmp_path / "X.npy", mmap_mode="c")
    copied[0] += 1
    classifier().fit(copied, y)
    assert (copied[0] == X[0] + 1).all(), "what was written to a copy is still there"


def test_few_rows_are_read_at_once_and_forms_are_tried(frame, tmp_path):
    few = frame.iloc[:400].drop(columns="count")
    path = write(few, "parquet", tmp_path)
    model = SharedKernelClassifier(random_state=0).fit(open_table(path, "kind"))
    expected = SharedKernelClassifier(random_state=0).fit(few.drop(columns="kind"), few["kind"])
    assert len(model.trials_) > 1
    np.testing.assert_array_equal(
        model.predict_proba(few.drop(columns="kind")),
        expected.predict_proba(few.drop(columns="kind")),
    )


def test_copies_of_texts_go_with_the_table(frame, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()
    table = open_table(write(frame, "csv", tmp_path), "kind")
    (folder,) = (tmp_path / "tmp").iterdir()
    assert oct(folder.stat().st_mode & 0o777) == "0o700"
    del table
    assert not list((tmp_path / "tmp").iterdir())
    monkeypatch.setattr("tempfile.tempdir", None)


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


def test_from_an_address_columns_come_in_few_readings(tmp_path, monkeypatch):
    """Each takes as long as an answer of a store elsewhere does."""
    columns, sizes = 5, []
    X = np.random.default_rng(0).standard_normal((100_000, columns))
    table = pa.table({f"x{i}": column for i, column in enumerate(X.T)})
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=50_000)

    class Counted(io.BytesIO):
        def read(self, size=-1):
            sizes.append(size)
            return super().read(size)

    path = str(tmp_path / "rows.parquet")
    content = (tmp_path / "rows.parquet").read_bytes()
    monkeypatch.setattr(batches, "input_of", lambda _: pa.PythonFile(Counted(content), "r"))
    found = {}
    for name in (path, f"file://{path}"):
        sizes.clear()
        with batches.open_parquet(name) as file:
            assert sum(batch.num_rows for batch in file.iter_batches(1000)) == len(X)
        found[name] = len(sizes)
    n_chunks = 2 * columns
    assert found[path] > 3 * n_chunks
    assert found[f"file://{path}"] <= n_chunks + 5, "and the footer"


def test_classes_are_the_same_in_all_pieces_whatever_comes_first(tmp_path, monkeypatch):
    """Texts, numbers, truth values and categories, with gaps; beside the table in memory."""
    monkeypatch.setattr(_pieces, "MOST_ROWS", 1024)
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=5000)
    codes[:1024] = 2  # a piece without the other classes
    kinds = {"text": ["b", "a", ""], "number": [7, -1, 3], "truth": [True, False, None]}
    columns = {name: np.array(values, dtype=object)[codes] for name, values in kinds.items()}
    columns["factor"] = pd.Categorical.from_codes(codes, ["x", "y", "z"])
    frame = pd.DataFrame({"a": np.arange(5000.0), **columns})
    frame.to_parquet(tmp_path / "table.parquet")
    for name in columns:
        others = [other for other in columns if other != name]
        table = open_table(tmp_path / "table.parquet", name, drop=others)
        frames = table.pieces.fold(lambda part: Rows((part,)), serial_map).frames
        found = np.concatenate([part.labels.each() for part in frames])
        labels, known = labels_of(read_table(str(tmp_path / "table.parquet")), name)
        wanted = np.full(len(frame), None, dtype=object)
        wanted[known] = labels
        assert len(frames) > 4
        assert_array_equal(found, wanted)


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


def bytes_read():
    with open("/proc/self/io") as about:
        return int(about.read().split("rchar:")[1].split()[0])


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="nothing counts bytes here")
@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
def test_a_pass_reads_the_columns_of_an_arrow_file_once(tmp_path, compression):
    from pskem.engine import Total, serial_map

    rng = np.random.default_rng(0)
    path = tmp_path / "table.arrow"
    frame = pd.DataFrame(rng.standard_normal((300_000, 4)), columns=list("abcd"))
    frame["kind"] = np.where(frame["a"] > 0, "x", "y")
    pyarrow.feather.write_feather(frame, path, compression=compression)
    size = path.stat().st_size
    before = bytes_read()
    table = open_table(path, "kind", drop=["c", "d"])
    assert bytes_read() - before < 0.3 * size
    before = bytes_read()
    (rows,) = table.pieces.fold(lambda piece: Total((len(piece.X),)), serial_map).arrays
    assert rows == 300_000
    assert bytes_read() - before < 0.7 * size


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


def test_columns_keep_their_order(frame, tmp_path):
    """A model of a file answers about the data frame of that file."""
    frame = frame[["colour", "a", "kind", "b"]].head(2000)
    table = open_table(write(frame, "parquet", tmp_path), "kind")
    assert table.names == ["colour", "a", "b"]
    model, X = classifier().fit(table), frame.drop(columns="kind")
    assert model.feature_names_in_.tolist() == table.names
    assert_array_equal(model.predict(X), classifier().fit(X, frame["kind"]).predict(X))
    assert model.score(table) == model.score(X, frame["kind"])


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


def test_weights_of_arrays_are_called_by_their_name(frame, tmp_path):
    X, y = frame[list("acd")].to_numpy(), frame["kind"].to_numpy().astype(str)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    weights = np.ones(N)
    weights[-5] = -1.0
    with pytest.raises(ValueError, match="sample_weight holds -1; weights must not be negative"):
        classifier().fit(mapped, y, weights)
    with pytest.raises(ValueError, match="sample_weight holds NaN"):
        classifier().fit(mapped, y, np.full(N, np.nan))
    with pytest.raises(ValueError, match="known have the weight zero; at least one must count"):
        classifier().fit(mapped, y, np.zeros(N))


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


def test_validation_data_may_lie_in_memory(frame, tmp_path):
    table = open_table(write(frame.drop(columns="count"), "parquet", tmp_path), "kind")
    X, y = frame.drop(columns=["kind", "count"]).head(500), frame["kind"].head(500)
    model = classifier().fit(table, X_val=X, y_val=y)
    assert len(model.validation_scores_) == model.n_iter_


def test_a_density_knows_no_classes_and_others_read_tables_at_once(frame, tmp_path):
    table = open_table(write(frame.drop(columns="colour"), "parquet", tmp_path), "kind")
    with pytest.raises(ValueError, match="A density knows no classes"):
        pskem.SharedKernelDensity(n_components=2).fit(table)
    with pytest.raises(ValueError, match="A FileTable is read piece by piece"):
        pskem.PartitionEnsemble().fit(table, frame["kind"])
    model = classifier().fit(table)
    with pytest.raises(ValueError, match="A FileTable is read piece by piece"):
        model.predict(table)
    bare = open_table(write(frame, "csv", tmp_path), drop=["kind", "colour", "count"])
    assert bare.names == list("abcd")
    density = pskem.SharedKernelDensity(n_components=2, random_state=0).fit(bare)
    expected = pskem.SharedKernelDensity(n_components=2, random_state=0).fit(frame[list("abcd")])
    np.testing.assert_allclose(density.means_, expected.means_, atol=1e-9)


PEAK = """
import re, sys
from pathlib import Path
import pskem
table = pskem.open_table(sys.argv[1], target="y")
settings = {"n_components": 6, "max_iter": 2, "discriminative_iter": 1, "n_jobs": 1}
pskem.SharedKernelClassifier(random_state=0, **settings).fit(table)
print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux tells peaks of memory")
@pytest.mark.filterwarnings("ignore")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """From 8 MB of rows to 100 MB; some are always drawn and held out."""
    rng = np.random.default_rng(0)
    peaks = []
    for n in (50_000, 600_000):
        path = tmp_path / f"{n}.parquet"
        y = rng.integers(3, size=n)
        X = rng.standard_normal((n, 20)) + y[:, None]
        pd.DataFrame(X).add_prefix("x").assign(y=y).to_parquet(path, row_group_size=50_000)
        command = [sys.executable, "-W", "ignore", "-c", PEAK, str(path)]
        peaks.append(int(subprocess.run(command, capture_output=True, check=True).stdout) / 1024)
    assert peaks[1] - peaks[0] < 40.0, "MB, of 88 more"


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_accuracy_on_a_table_is_that_on_its_rows(frame, tmp_path, kind):
    features, y = frame.drop(columns=["kind", "count"]), frame["kind"].astype(object)
    model = classifier().fit(features.head(600), y.head(600))
    y[::7], y[::11] = None, "peony"  # a class that the model does not know
    path = write(frame.assign(kind=y), kind, tmp_path)
    table = open_table(path, "kind", weights="count")
    score = model.score(table)
    assert score == pytest.approx(model.score(features, y, frame["count"]), abs=1e-12)
    known = y.notna()
    right = model.predict(features[known]) == y[known]
    assert score == pytest.approx(np.average(right, weights=frame["count"][known]), abs=1e-12)
    with pytest.raises(ValueError, match=r"name\s+them when you open it"):
        model.score(table, y)
    with pytest.raises(ValueError, match="The table has no classes"):
        model.score(open_table(path, drop=["kind", "count"]))
    with pytest.raises(ValueError, match=r"X is the path .*Give the rows themselves"):
        model.score(path)
    with pytest.raises(ValueError, match="y is missing"):
        model.score(features)


def test_classes_of_another_kind_are_no_wrong_answers(frame, tmp_path):
    """In files they may be texts, where they are truth values in memory."""
    y = frame["kind"] == "rose"
    model = classifier().fit(frame[list("abcd")].head(600), y.head(600))
    features = frame[[*"abcd"]]
    path = write(features.assign(kind=y.astype(str)), "parquet", tmp_path)
    with pytest.raises(ValueError, match=r"such as '(True|False)', and those of the model are"):
        model.score(open_table(path, "kind"))
    whole = y.astype(int)
    model = classifier().fit(features.head(600), whole.head(600))
    path = write(features.assign(kind=whole), "parquet", tmp_path)
    assert model.score(open_table(path, "kind")) == pytest.approx(model.score(features, whole))


def test_files_are_read_in_the_order_of_their_numbers(tmp_path):
    from pskem.tables.places import files_of

    for i in (10, 9, 2, 1, 100):
        (tmp_path / f"part.{i}.parquet").touch()
    for source in (tmp_path, tmp_path / "*.parquet", f"file://{tmp_path}"):
        found = [path.rpartition("/")[2] for path in files_of(source)]
        assert found == [f"part.{i}.parquet" for i in (1, 2, 9, 10, 100)]


def test_ensembles_are_scored_on_tables(frame, tmp_path):
    few = frame.head(400).drop(columns=["count", "colour"])
    X, y = few.drop(columns="kind"), few["kind"]
    path = write(few, "parquet", tmp_path)
    base = classifier().set_params(n_components=3)
    settings = {"n_estimators": 2, "bootstrap": True, "random_state": 0}
    ensemble = pskem.PartitionEnsemble(base, **settings).fit(X, y)
    table = open_table(path, "kind")
    assert ensemble.score(table) == pytest.approx(ensemble.score(X, y), abs=1e-12)
    with pytest.raises(ValueError, match="The table has no column 'a', which the model was"):
        ensemble.score(open_table(path, "kind", drop=["a"]))


def test_columns_of_a_table_are_found_by_their_names(frame, tmp_path):
    """Wherever they are, and beside others."""
    few = frame.head(900)
    columns = ["a", "colour", "b", "c", "d"]
    model = classifier().fit(few[columns], few["kind"])
    path = write(few.assign(more=np.arange(900) % 7), "parquet", tmp_path)
    expected = model.score(few[columns], few["kind"])
    assert model.score(open_table(path, "kind")) == pytest.approx(expected, abs=1e-12)
    bare = classifier().fit(few[list("acd")].to_numpy(), few["kind"])
    table = open_table(path, "kind", drop=["b", "colour", "count", "more"])
    expected = bare.score(few[list("acd")].to_numpy(), few["kind"])
    assert bare.score(table) == pytest.approx(expected, abs=1e-12)


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


def test_classes_of_mapped_rows_may_stand_in_a_column(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=N)
    np.save(tmp_path / "X.npy", rng.standard_normal((N, 2)) + y[:, None])
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.warns(sklearn.exceptions.DataConversionWarning):
        one = classifier().fit(X, y[:, None])
    assert distance(one, classifier().fit(X, y)) == 0.0
