"""How data are put in order, standardised and cut."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pskem.engine._sources import MIN_TASKS, TASK, canonical_order, cut, measure


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.sampled_from([64, 256, 2048]))
def test_chunks_cover_all_samples_in_order(counts, size):
    bounds = np.append(0, np.cumsum(counts))
    tasks = cut(bounds, size)
    chunks = [chunk for task in tasks for chunk in task]
    edges = [(chunk.start, chunk.stop) for chunk in chunks]
    assert [low for low, _ in edges] == [0, *(high for _, high in edges)][: len(edges)]
    assert sum(high - low for low, high in edges) == bounds[-1]
    labels = np.repeat(np.arange(len(counts)), counts)
    for chunk in chunks:
        assert 0 < chunk.stop - chunk.start <= size
        own = np.repeat(chunk.classes, np.diff(chunk.bounds))
        np.testing.assert_array_equal(own, labels[chunk.start : chunk.stop])
    # Tasks are as large as allowed, but not so large that there are few of them.
    per_task = max(map(len, tasks), default=1)
    assert per_task * size <= TASK
    assert per_task == 1 or len(tasks) >= MIN_TASKS


def test_the_canonical_order_depends_on_values_alone(rng):
    X = rng.integers(3, size=(500, 4)).astype(float)  # short mantissas, many ties
    y = rng.integers(2, size=500)
    shuffled = rng.permutation(500)
    one, two = canonical_order(X, y), canonical_order(X[shuffled], y[shuffled])
    np.testing.assert_array_equal(X[one], X[shuffled][two])
    np.testing.assert_array_equal(y[one], np.sort(y))
    np.testing.assert_array_equal(np.sort(one), np.arange(500))
    negative_zero = np.where(X == 0.0, -0.0, X)
    np.testing.assert_array_equal(canonical_order(negative_zero, y), one)
    # 81 distinct rows fall into 81 runs: no two different rows share a key.
    runs = 1 + np.any(np.diff(X[one][y[one] == 0], axis=0) != 0, axis=1).sum()
    assert runs == len(np.unique(X[y == 0], axis=0))


@pytest.mark.parametrize("n", range(2, 60, 7))
def test_a_constant_feature_is_shifted_to_zero_exactly(n):
    """The mean of n equal numbers may differ from them in the last digit."""
    for value in (0.1, 1e-300, 1e300, 12345.678):
        shift, scale = measure(np.full((1, n), value))
        assert shift[0] == value
        assert scale[0] == 1.0
