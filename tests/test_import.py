"""Importing pskem is light: the benchmark measures seconds, this names the modules."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.plumbing

HEAVY = (
    "sklearn.callback",  # imports rich, where it is installed
    "sklearn.cluster",
    "sklearn.mixture",
    "sklearn.model_selection",
    "click",
    "matplotlib",
    "pandas",
    "pooch",
    "pyarrow",
    "rich",
)


def test_import_brings_nothing_heavy_that_scikit_learn_base_does_not():
    code = (
        "import sys, json, sklearn.base; before = set(sys.modules); import pskem;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    added = json.loads(done.stdout)
    assert "pskem.estimators._classifier" in added
    assert not [name for name in added if name.startswith(HEAVY)]


def test_packages_come_when_they_are_asked_for():
    code = (
        "import sys, pskem; before = 'pskem.evaluation' in sys.modules;"
        "print(before, pskem.evaluation.evaluate.__name__, 'study' in dir(pskem))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "evaluate", "True"]
