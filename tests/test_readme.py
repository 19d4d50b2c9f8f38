"""What the README shows does what it says."""

import re
from pathlib import Path

import pytest

from pskem.cli.app import run

README = Path(__file__).parents[1] / "README.md"
if not README.exists():
    pytest.skip("the README is not beside the tests", allow_module_level=True)


def block(heading, language):
    section = README.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.search(rf"```{language}\n(.*?)```", section, re.DOTALL).group(1)


def test_the_python_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(block("In Python", "python"), {})
    assert float(capsys.readouterr().out) > 0.95
    assert (tmp_path / "digits.pskem").exists()


def test_the_shell_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [line.split("#")[0].split() for line in block("In a shell", "bash").splitlines()]
    assert all(command == "pskem" for command, *_ in lines)
    # MNIST may not be here, and pipes are for a shell.
    here = [line[1:] for line in lines if "mnist" not in line and "|" not in line]
    assert len(here) == 6
    for arguments in here:
        assert run(arguments) == 0, arguments
    assert (tmp_path / "labels.csv").read_text().startswith("prediction,p(class_0)")


PAGES = [README, *sorted((README.parent / "docs").glob("*.md"))]
LINKS = [
    (page, path)
    for page in PAGES
    for path in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8"))
]


@pytest.mark.parametrize(("page", "path"), LINKS, ids=lambda value: Path(value).name)
def test_links_lead_somewhere(page, path):
    assert (page.parent / path).exists()
