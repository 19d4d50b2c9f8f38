"""The page on large data shows code that runs, and commands and options that exist."""

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pskem
from pskem.cli.app import run

PAGE = Path(__file__).parents[2] / "docs" / "large.md"
if not PAGE.exists():
    pytest.skip("the page is not beside the tests", allow_module_level=True)

pytestmark = pytest.mark.plumbing


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_python_runs(tmp_path, monkeypatch):
    """All but the example that needs a cluster, on few rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pskem.persistence.checkpoints.SHARE", np.inf)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    opening, keeping, streaming = (block for block in blocks if "tcp://" not in block)
    assert len(blocks) == 4
    rng = np.random.default_rng(0)
    y = np.arange(300) % 3
    X = rng.standard_normal((len(y), 2)) + 3.0 * y[:, None]
    frame = pd.DataFrame(X, columns=list("ab")).assign(outcome=y, count=1 + y)
    os.mkdir("parts")
    for i, part in enumerate(np.array_split(np.arange(len(y)), 2)):
        frame.iloc[part].to_parquet(f"parts/{i}.parquet", index=False)
    names = {"pskem": pskem, "SharedKernelClassifier": pskem.SharedKernelClassifier}
    exec(opening, names)
    assert (names["table"].n_rows, names["table"].names) == (300, ["a", "b"])
    score = names["model"].score(names["table"])
    assert score > 0.9
    exec(keeping, names)
    assert pskem.load("big.pskem").score(names["table"]) == score, "the same fit once more"
    assert not os.path.exists("big.checkpoint")
    for n_parts in (2, 3):  # the second time it goes on
        parts = [(X[rows], y[rows]) for rows in np.split(np.arange(len(y)), 3)[:n_parts]]
        exec(streaming, {**names, "parts": lambda parts=parts: iter(parts)})
        assert pskem.load("stream.pskem").stream_.n_parts == n_parts


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
