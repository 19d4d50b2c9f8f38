"""An order of samples that their values alone decide."""

import numpy as np

from pskem.training import canonical_order, representative


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


def test_the_canonical_order_does_not_hang_on_last_bits(rng):
    X = rng.standard_normal((3000, 8)) * 10.0 ** rng.integers(-5, 6, 8)
    X[:, 3] = 0.0
    y = rng.integers(2, size=3000)
    one = canonical_order(X, y)
    # As another processor might round, also what should be zero.
    noise = 1e-15 * rng.standard_normal(X.shape)
    noisy = X * (1.0 + noise)
    noisy[:, 3] = noise[:, 3] * X[:, 0]
    np.testing.assert_array_equal(canonical_order(noisy, y), one)
    # Where rows have all but their last bits in common, these decide, in whatever order they come.
    close = np.repeat(X[:1], 200, axis=0) * (1.0 + 1e-15 * rng.integers(100, size=(200, 1)))
    assert len(np.unique(close, axis=0)) > 1
    same = np.zeros(200, dtype=np.intp)
    expected = close[canonical_order(close, same)]
    shuffled = close[rng.permutation(200)]
    np.testing.assert_array_equal(shuffled[canonical_order(shuffled, same)], expected)


def test_representative_samples_are_evenly_spread():
    np.testing.assert_array_equal(representative(np.arange(7), 20_000), np.arange(7))
    rows = representative(np.arange(60_000), 20_000)
    assert len(np.unique(rows)) == 20_000
    assert set(np.diff(rows)) <= {2, 3, 4}
