"""k-means, which comes to the same clusters on every processor."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

from pskem.starts._lloyd import lloyd, nearest


@pytest.mark.parametrize(("n", "m", "K"), [(700, 2, 9), (2500, 7, 30), (40, 3, 35)])
def test_clusters_are_those_of_scikit_learn(rng, n, m, K):
    points = rng.standard_normal((n, m)) + 2.0 * rng.standard_normal((5, m))[np.arange(n) % 5]
    theirs = KMeans(K, init=points[:K], n_init=1).fit(points)
    assert theirs.n_iter_ > 1
    np.testing.assert_allclose(lloyd(points, points[:K]), theirs.cluster_centers_, rtol=1e-9)
    np.testing.assert_array_equal(nearest(points, theirs.cluster_centers_), theirs.labels_)


def test_the_first_of_equally_near_means_is_taken_whatever_the_last_bits(rng):
    """On a grid, where many points have several nearest means; noise stands for a processor."""
    points = rng.integers(-1, 2, size=(3000, 6)) / 3.0
    means = np.unique(points, axis=0)[rng.permutation(3**6)[:20]]
    exact = (9.0 * (points[:, None] - means) ** 2).round().sum(axis=2)  # whole numbers
    n_nearest = (exact == exact.min(axis=1, keepdims=True)).sum(axis=1)
    assert np.count_nonzero(n_nearest > 1) > 100
    np.testing.assert_array_equal(nearest(points, means), exact.argmin(axis=1))
    centres = lloyd(points, means)
    for _ in range(3):
        noisy = points * (1.0 + 1e-15 * rng.standard_normal(points.shape))
        start = means * (1.0 + 1e-15 * rng.standard_normal(means.shape))
        np.testing.assert_array_equal(nearest(noisy, start), exact.argmin(axis=1))
        np.testing.assert_allclose(lloyd(noisy, start), centres, rtol=1e-12, atol=1e-12)


def test_no_centre_is_left_without_points(rng):
    points = np.concatenate([rng.standard_normal((50, 2)), [[9.0, 0.0], [0.0, 8.0]]])
    far = np.array([[1e3, 1e3], [-1e3, 1e3], [1e3, -1e3]])  # nearer to none than the first two
    centres = lloyd(points, np.concatenate([[[0.0, 0.0]], far]))
    counts = np.bincount(nearest(points, centres), minlength=4)
    assert counts.min() > 0
    # The outlying points have a centre each, as from any sensible start.
    for outlier in points[50:]:
        assert (centres == outlier).all(axis=1).any()


def test_a_point_with_a_weight_counts_as_often(rng):
    points = rng.standard_normal((60, 3)) + 4.0 * rng.integers(3, size=(60, 1))
    counts = rng.integers(1, 5, 60)
    weighted = lloyd(points, points[:3], counts.astype(float))
    repeated = lloyd(np.repeat(points, counts, axis=0), points[:3])
    np.testing.assert_allclose(weighted, repeated, rtol=1e-12, atol=1e-12)
    assert not np.allclose(weighted, lloyd(points, points[:3]))
