"""Data that several tests use."""

import os

# scikit-learn's checks of array-API input skip without this; it must stand before scipy's import.
os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import pytest

from pskem import SharedKernelClassifier


@pytest.fixture
def rng():
    return np.random.default_rng(20220321)


@pytest.fixture
def labelled(rng):
    """600 samples of 3 classes with 5 correlated features at different scales, not centred."""
    y = rng.integers(3, size=600)
    centres = rng.standard_normal((3, 2, 5)) * 2.0
    X = centres[y, rng.integers(2, size=600)] + rng.standard_normal((600, 5))
    return (X @ rng.standard_normal((5, 5))) * [1.0, 10.0, 0.1, 3.0, 1.0] + [0, 50, -1, 2, 7], y


@pytest.fixture
def fitted(labelled):
    X, y = labelled
    return SharedKernelClassifier(n_components=5, n_blocks=2, random_state=0).fit(X, y)
