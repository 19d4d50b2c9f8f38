"""Tables that are wide, long, no text or no file: read like others, or refused in time."""

import bz2
import gzip
import os
import subprocess
import sys
import threading
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from pskem.tables import (
    Columns,
    TableError,
    align,
    check_unique,
    infer_columns,
    labels_of,
    read_parts,
    read_table,
    text,
)

pytestmark = pytest.mark.plumbing


def peak_of(action):
    tracemalloc.start()
    try:
        action()
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_many_columns_with_long_names_are_an_ordinary_table(tmp_path, rng, separator):
    path = tmp_path / ("genes.tsv" if separator == "\t" else "genes.csv")
    names = [f"expression of the gene number {i:05}" for i in range(4000)]  # 140,000 characters
    values = rng.integers(1000, size=(4, len(names)))
    lines = [names, *values.astype(str).tolist()]
    path.write_text("\n".join(map(separator.join, lines)) + "\n")
    frame = read_table(str(path), verbatim=names[:1])
    assert frame.columns.tolist() == names
    np.testing.assert_array_equal(frame.to_numpy(dtype=np.float64), values)
    columns = infer_columns(frame, names[0])
    assert len(columns.used) == len(names) - 1
    np.testing.assert_array_equal(align(frame, columns), frame[columns.used])


def test_names_of_columns_are_not_compared_with_all_others():
    compared = []

    class Name(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, other):
            compared.append(other)
            return str.__eq__(self, other)

    names = [Name(f"gene {i}") for i in range(2000)]
    check_unique("genes.csv", names)
    assert len(compared) < 2 * len(names)  # each with all others: two million
    with pytest.raises(TableError, match=r"genes\.csv has several columns called 'gene 7'"):
        check_unique("genes.csv", [*names, "gene 8", "gene 7"])


def test_numbers_that_are_looked_at_together_are_what_they_are_alone():
    """The columns that are left out, or need a word, are found among many others."""
    n = 30
    frame = pd.DataFrame(
        {
            "row": np.arange(n) + 2**60,  # floats do not tell them apart
            "far": (np.arange(n) % 7) + 2**60,
            "count": np.arange(n, dtype=np.uint8) % 9,
            "gaps": np.where(np.arange(n) % 2, np.nan, np.arange(n)),
            "empty": np.full(n, np.nan),
            "same": np.where(np.arange(n) % 2, np.nan, 3.0),
            "infinite": np.where(np.arange(n) == 4, -np.inf, np.arange(n) % 5),
            "y": np.arange(n) % 2,
        }
    )
    columns = infer_columns(frame, "y", categorical=["count"])
    assert columns.numeric == ["far", "gaps", "infinite"]
    assert columns.categorical == ["count"]
    assert columns.dropped == {
        "row": "it numbers the rows",
        "empty": "it is empty",
        "same": "it has one value only",
    }


def test_align_keeps_its_order_and_types(rng):
    frame = pd.DataFrame({"b": [1, 2, 3], "t": ["x", "y", "x"], "a": ["1", "2", "?"]})
    aligned = align(frame, Columns(["a", "b"], ["t"], {}))
    assert aligned.columns.tolist() == ["a", "b", "t"]
    np.testing.assert_array_equal(aligned[["a", "b"]], [[1.0, 1.0], [2.0, 2.0], [np.nan, 3.0]])
    with pytest.raises(TableError, match=r"'b' holds 1e\+200; values beyond"):
        align(frame.assign(b=[1.0, -1e200, 2.0]), Columns(["b"], [], {}))


def test_a_long_text_is_no_class():
    labels = ["x" * 20_000, *("ab" * 5000)]

    def refused():
        with pytest.raises(
            TableError, match=r"a text of 20,000 characters; the name of a class has"
        ):
            labels_of(pd.DataFrame({"y": labels}), "y")

    assert peak_of(refused) < 20e6  # an array as wide as the longest takes 800 MB
    longest = "x" * 256
    assert labels_of(pd.DataFrame({"y": [longest, "a"]}), "y")[0].tolist() == [longest, "a"]


@pytest.mark.parametrize("start", [b"", b"a,b\n" + b"1,2\n" * 1000])
@pytest.mark.parametrize("rows", [None, 100])
@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("bz2", bz2.compress)])
def test_a_small_file_of_nothing_does_not_fill_the_memory(tmp_path, start, rows, suffix, compress):
    path = tmp_path / f"bomb.csv.{suffix}"
    path.write_bytes(compress(start + bytes(200_000_000), 1))
    assert path.stat().st_size < 2_000_000

    def refused():
        with pytest.raises(TableError, match=r"bomb\.csv.* is not text in UTF-8: it holds NUL"):
            list(read_parts(str(path), rows=rows))

    assert peak_of(refused) < 20e6


@pytest.mark.parametrize("start", [b"", b"a,b\n" + b"1,2\n" * 1000])
@pytest.mark.parametrize("rows", [None, 100])
def test_a_line_without_end_is_not_read(tmp_path, start, rows, monkeypatch):
    monkeypatch.setattr(text, "LONGEST_LINE", 1_000_000)
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(start + b"1" * 100_000_000, 1))

    def refused():
        with pytest.raises(TableError, match="has a line of more than 1,000,000 characters"):
            list(read_parts(str(path), rows=rows))

    assert peak_of(refused) < 20e6


@pytest.mark.parametrize("rows", [None, 100])
@pytest.mark.parametrize("signalled", [KeyboardInterrupt, SystemExit(143)])
def test_an_interrupt_of_the_reading_is_one(tmp_path, rows, signalled, monkeypatch):
    (tmp_path / "t.csv").write_text("a,b\n" + "1,2\n" * 500_000)
    original, calls = text._Stream.read, []

    def interrupted(self, size=-1):
        calls.append(size)
        if len(calls) == 3:
            raise signalled
        return original(self, size)

    monkeypatch.setattr(text._Stream, "read", interrupted)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        list(read_parts(str(tmp_path / "t.csv"), rows=rows))


@pytest.mark.skipif(sys.platform == "win32", reason="devices and pipes are for Unix")
def test_devices_are_not_read_and_pipes_of_text_are(tmp_path):
    os.symlink("/dev/zero", tmp_path / "zero.csv")
    os.mkfifo(tmp_path / "pipe.parquet")
    for name in ("zero.csv", "pipe.parquet"):
        with pytest.raises(TableError, match="is a device or a pipe; name a file, or - for CSV"):
            read_table(str(tmp_path / name))
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    content = "a,b\n" + "1,2\n" * 100_000
    writer = threading.Thread(target=pipe.write_text, args=[content])
    writer.start()
    assert sum(len(part) for part in read_parts(str(pipe))) == 100_000
    writer.join()


@pytest.mark.skipif(sys.platform == "win32", reason="devices are for Unix")
def test_the_command_line_does_not_wait_for_a_device():
    for command in (["inspect", "/dev/zero"], ["fit", "/dev/zero", "-t", "y"]):
        done = subprocess.run(
            [sys.executable, "-m", "pskem", *command], capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 1
        assert "/dev/zero is" in done.stderr
