"""Importing pskem is light: the benchmark measures seconds, this names the modules."""

import json
import subprocess
import sys

import pytest

import pskem

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


def test_the_classifier_brings_nothing_heavy_that_scikit_learn_base_does_not():
    code = (
        "import sys, json, sklearn.base; before = set(sys.modules); import pskem;"
        "pskem.SharedKernelClassifier; print(json.dumps(sorted(set(sys.modules) - before)))"
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


def test_importing_pskem_imports_nothing_else():
    code = (
        "import sys; before = set(sys.modules); import pskem;"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "pskem", "pskem.version"]


def test_names_are_there_all_the_same():
    names = [name for name in pskem.__all__ if name != "__version__"]
    code = (
        "import sys; from pskem import *; import pskem;"
        f"print(*({', '.join(names)}), sep='\\n', file=sys.stderr);"
        "print(set(pskem.__all__) <= set(dir(pskem)), pskem.starts.ClassKMeans.__name__,"
        " pskem.ModelFileError.__name__, hasattr(pskem, 'nonsense'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "ClassKMeans", "ModelFileError", "False"]
    assert pskem.ModelFileError is pskem.persistence.ModelFileError
