"""The page on large data shows commands and options that exist."""

import re
from pathlib import Path

import pytest

from pskem.cli.app import run

PAGE = Path(__file__).parents[2] / "docs" / "large.md"
if not PAGE.exists():
    pytest.skip("the page is not beside the tests", allow_module_level=True)

pytestmark = pytest.mark.plumbing


def test_the_options_that_are_shown_exist(capsys):
    text = PAGE.read_text(encoding="utf-8")
    shown = re.findall(r"^\$ pskem (\w+) (.*)$", text, re.MULTILINE)
    assert len(shown) == 6
    for command, rest in shown:
        assert run([command, "--help"]) == 0
        known = capsys.readouterr().out
        for option in re.findall(r"--[a-z-]+", rest):
            assert option in known, option


def test_the_task_names_that_are_shown_are_those_of_a_cluster():
    from pskem.clusters import task_name
    from pskem.engine import Contrast, DecisionRule, OwnClass, Summarise

    text = PAGE.read_text(encoding="utf-8")
    for target in (OwnClass(), Contrast(DecisionRule(None, None))):
        assert f"`pskem-{task_name(Summarise((), target))}`" in text
