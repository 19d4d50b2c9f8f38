"""Rows with fewer fields than the header are told of, whatever lines look like."""

import gzip
import warnings

import pytest

from pskem.cli.app import run
from pskem.tables import read_parts, read_table
from pskem.tables.short import ShortRows

pytestmark = pytest.mark.plumbing

#: Texts of a table with three columns, how many rows are short, and the line of the first.
TEXTS = {
    "none": ("a,b,c\n1,2,3\n4,5,6\n", 0, 0),
    "one": ("a,b,c\n1,2,3\n4,5\n7,8,9\n", 1, 3),
    "the last, without an end": ("a,b,c\n1,2,3\n4", 1, 3),
    "the last, whole, without an end": ("a,b,c\n1,2,3\n4,5,6", 0, 0),
    "Windows": ("a,b,c\r\n1,2,3\r\n4,5\r\n7\r\n", 2, 3),
    "an old Mac": ("a,b,c\r1,2,3\r4,5\r", 1, 3),
    "empty lines": ("a,b,c\n\n1,2,3\n  \n4,5\n\n", 1, 5),
    "commas in quotes": ('a,b,c\n"x,y",2,3\n"1,2,3",4\n', 1, 3),
    "quotes in quotes": ('a,b,c\n"x""y",2,3\n1,""\n', 1, 3),
    "lines in quotes": ('a,b,c\n"x\ny\nz",2,3\n4,5\n', 1, 5),
    "gaps": ("a,b,c\n1,,\n,,3\n,,\n", 0, 0),
}


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_short_rows_are_counted_in_pieces_of_any_size(case, size):
    content, count, first = TEXTS[case]
    rows = ShortRows(",", 3)
    for low in range(0, len(content), size):
        rows.feed(content[low : low + size])
    rows.feed("")
    assert (rows.count, rows.first) == (count, first)


@pytest.mark.parametrize("case", TEXTS)
@pytest.mark.parametrize("rows", [None, 1])
def test_short_rows_of_a_file_give_a_warning(tmp_path, case, rows):
    content, count, first = TEXTS[case]
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(content.encode()))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        list(read_parts(str(path), rows=rows))
    found = [str(warning.message) for warning in told]
    assert len(found) == bool(count)
    if count:
        said = f"t.csv.gz has {count} row(s) with fewer fields than the 3 of its first line"
        assert said in found[0]
        assert f"the first of them in line {first}." in found[0]


def test_a_long_file_is_counted_to_its_end(tmp_path):
    path = tmp_path / "t.tsv"
    lines = ["a\tb\tc", *["1\t2\t3"] * 300_000]
    lines[200_000] = lines[250_000] = "1\t2"
    path.write_text("\n".join(lines) + "\n")
    with pytest.warns(UserWarning, match=r"has 2 row\(s\).* in line 200,001\."):
        frame = read_table(str(path))
    assert frame["c"].isna().sum() == 2


def test_the_command_line_tells_of_short_rows(iris_folder, capsys):
    with open("train.csv", "a") as stream:
        stream.write("1,2,3\n")
    assert run(["fit", "train.csv", "-t", "species", "-k", "6", "-q"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("Warning: train.csv has 1 row(s) with fewer fields than the 6 of its")
    assert "in line 102." in err
