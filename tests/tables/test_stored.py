"""Tables that are read piece by piece: the same model as from memory, and no more memory."""

import io
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import sklearn.exceptions
from numpy.testing import assert_array_equal

import pskem
from filed import N, classifier, planted, write
from pskem import SharedKernelClassifier, open_table
from pskem.engine import _pieces, serial_map
from pskem.tables import batches
from pskem.tables.columns import labels_of
from pskem.tables.reading import read_table
from pskem.workflow.stored import Rows
from reference import distance

pytestmark = pytest.mark.plumbing


@pytest.fixture(scope="module")
def frame():
    return planted()


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


def test_columns_keep_their_order(frame, tmp_path):
    """A model of a file answers about the data frame of that file."""
    frame = frame[["colour", "a", "kind", "b"]].head(2000)
    table = open_table(write(frame, "parquet", tmp_path), "kind")
    assert table.names == ["colour", "a", "b"]
    model, X = classifier().fit(table), frame.drop(columns="kind")
    assert model.feature_names_in_.tolist() == table.names
    assert_array_equal(model.predict(X), classifier().fit(X, frame["kind"]).predict(X))
    assert model.score(table) == model.score(X, frame["kind"])


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


def test_classes_of_mapped_rows_may_stand_in_a_column(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=N)
    np.save(tmp_path / "X.npy", rng.standard_normal((N, 2)) + y[:, None])
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.warns(sklearn.exceptions.DataConversionWarning):
        one = classifier().fit(X, y[:, None])
    assert distance(one, classifier().fit(X, y)) == 0.0
