"""What the README shows does what it says."""

import re
from pathlib import Path

import pytest

from pskem.cli.app import run

README = Path(__file__).parents[2] / "README.md"
if not README.exists():
    pytest.skip("the README is not beside the tests", allow_module_level=True)


def block(heading, language):
    section = README.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.DOTALL).group(1)


def test_the_python_prints_what_is_shown(capsys):
    exec(block("In Python", "python"), {})
    printed = capsys.readouterr().out.splitlines()
    shown = block("In Python", "text").splitlines()
    assert printed[1:] == shown[1:]
    # Another processor may decide otherwise on a few of the 450 test images.
    here, there = (float(re.search(r"\d\.\d+", lines[0])[0]) for lines in (printed, shown))
    assert here == pytest.approx(there, abs=0.015)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_examples_of_data_run():
    page = (README.parent / "docs" / "data.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 8
    assert max(block.count("\n") for block in blocks) <= 12
    names = {}
    for block in blocks:
        exec(block, names)
    assert set(names["found"].reasons) <= {"", "uncertain", "outlier"}
    assert names["priors"][2] > 0.5


def test_the_shell_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [line.split("#")[0].split() for line in block("In a shell", "bash").splitlines()]
    assert all(command == "pskem" for command, *_ in lines)
    assert len(lines) == 3
    for _, *arguments in lines:
        assert run(arguments) == 0, arguments
    assert (tmp_path / "labels.csv").read_text().startswith("prediction,p(setosa)")


BENCHMARKS = README.parent / "benchmarks" / "README.md"
PAGES = [*README.parent.glob("*.md"), BENCHMARKS, *(README.parent / "docs").glob("*.md")]
PAGES.sort()
LINKS = [
    (page, path)
    for page in PAGES
    for path in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "path"), LINKS, ids=lambda value: Path(value).name)
def test_links_lead_somewhere(page, path):
    assert (page.parent / path).exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_lines_are_no_longer_than_120_characters(page):
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


@pytest.mark.parametrize("page", [README, BENCHMARKS], ids=["README", "benchmarks"])
def test_tables_fit_on_a_page(page):
    rules = re.findall(r"^\|[ :|-]+\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert rules
    assert max(rule.count("|") - 1 for rule in rules) <= 7
