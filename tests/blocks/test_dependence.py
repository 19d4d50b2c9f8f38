"""Dependence within classes, and the blocks that follow from it."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pskem import SharedKernelClassifier, partition_features
from pskem.blocks._dependence import _grow, group_by_dependence, within_class_dependence

sizes = st.integers(1, 24).flatmap(lambda M: st.tuples(st.just(M), st.integers(1, M)))


def inside(D, blocks):
    """The sum of D over pairs in the same block."""
    return sum(D[np.ix_(block, block)].sum() / 2.0 for block in map(list, blocks))


def balanced_partitions(items, lengths):
    """All partitions of the items into blocks of these lengths."""
    if not lengths:
        yield []
        return
    first, *others = items
    for length in set(lengths):
        left = list(lengths)
        left.remove(length)
        for chosen in combinations(others, length - 1):
            rest = [i for i in others if i not in chosen]
            for partition in balanced_partitions(rest, left):
                yield [[first, *chosen], *partition]


def random_dependence(rng, M):
    D = rng.exponential(size=(M, M)) ** 2
    D = D + D.T
    np.fill_diagonal(D, 0.0)
    return D


def correlated_groups(rng, n, n_groups, size, between=0.0):
    """Samples (n, n_groups * size): features of a group have correlation 0.8."""
    common = rng.standard_normal((n, n_groups))
    noise = rng.standard_normal((n, n_groups, size))
    X = np.sqrt(0.8) * common[:, :, None] + np.sqrt(0.2) * noise
    return X.reshape(n, -1) + between * rng.standard_normal((n, 1))


# The matrix


@pytest.mark.parametrize("rho", [0.0, 0.5, -0.9])
def test_a_gaussian_pair_has_its_mutual_information(rng, rho):
    X = rng.multivariate_normal([3.0, -1.0], [[1.0, rho], [rho, 1.0]], size=40_000)
    D = within_class_dependence(X * [1e6, 1e-3], np.zeros(40_000, dtype=np.intp))
    # The standard error of an estimated correlation is (1 - rho^2) / sqrt(n).
    np.testing.assert_allclose(D[0, 1], -0.5 * np.log(1.0 - rho**2), atol=0.02)


def test_it_is_that_of_correlations_averaged_over_classes(rng):
    sizes = [50, 80, 200]
    labels = np.repeat([0, 1, 2], sizes)
    X = rng.standard_normal((330, 4)) @ rng.standard_normal((4, 4)) + 10.0 * labels[:, None]
    with np.errstate(divide="ignore"):
        each = [-0.5 * np.log(1.0 - np.corrcoef(X[labels == j].T) ** 2) for j in range(3)]
    expected = np.average(each, axis=0, weights=sizes)
    off = ~np.eye(4, dtype=bool)
    D = within_class_dependence(X, labels)
    np.testing.assert_allclose(D[off], expected[off], rtol=1e-10)
    np.testing.assert_array_equal(np.diag(D), 0.0)
    np.testing.assert_array_equal(D, D.T)


def test_classes_that_differ_in_mean_only_make_no_dependence(rng):
    labels = np.repeat([0, 1], 20_000)
    X = rng.standard_normal((40_000, 2)) + 5.0 * labels[:, None]
    assert np.corrcoef(X.T)[0, 1] > 0.8
    assert within_class_dependence(X, labels)[0, 1] < 1e-3


def test_small_classes_share_the_pooled_correlations(rng):
    """Of two samples alone, every correlation is 1 or -1."""
    labels = np.repeat(np.arange(500), 2)
    X = rng.standard_normal((1000, 3)) + 100.0 * labels[:, None]
    X[:, 1] += X[:, 0]
    D = within_class_dependence(X, labels)
    np.testing.assert_allclose(D[0, 1], 0.5 * np.log(2.0), atol=0.08)  # rho^2 = 1/2
    assert D[0, 2] < 0.02


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_constant_and_identical_features(rng, dtype):
    labels = np.repeat([0, 1], 50)
    x = rng.standard_normal(100)
    one_class = np.where(labels == 0, x, 0.1)
    X = np.stack([x, x, np.full(100, 1e7), 0.1 * labels, one_class], axis=1).astype(dtype)
    D = within_class_dependence(X, labels)
    assert np.isfinite(D).all()
    assert D[0, 1] > 7.0
    np.testing.assert_array_equal(D[2:4], 0.0)
    np.testing.assert_allclose(D[0, 4], D[0, 1] / 2.0, rtol=0.2)


def test_huge_and_tiny_values(rng):
    X = correlated_groups(rng, 500, 2, 2)
    labels = np.repeat([0, 1], 250)
    D = within_class_dependence(X * [1e200, 1e-200, 1.0, 1e-30], labels)
    np.testing.assert_allclose(D, within_class_dependence(X, labels), rtol=1e-9)


def test_the_order_of_rows_does_not_matter(rng):
    X = correlated_groups(rng, 10_000, 3, 2) + 100.0
    labels = rng.choice(4, p=[0.6, 0.3, 0.0995, 0.0005], size=10_000)
    order = rng.permutation(10_000)
    one = within_class_dependence(X, labels)
    two = within_class_dependence(X[order], labels[order])
    np.testing.assert_allclose(one, two, rtol=1e-9, atol=1e-14)


# The blocks


@given(sizes, st.integers(0, 5))
def test_blocks_cover_all_features_once_in_nearly_equal_sizes(size, seed):
    M, R = size
    D = random_dependence(np.random.default_rng(seed), M)
    blocks = group_by_dependence(D, R)
    assert len(blocks) == R
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(M))
    lengths = [len(block) for block in blocks]
    assert max(lengths) - min(lengths) <= 1
    assert all((np.diff(block) > 0).all() for block in blocks)
    for arrangement in ("sequential", "interleaved"):
        assert inside(D, blocks) >= inside(D, partition_features(M, R, arrangement)) - 1e-9


@pytest.mark.parametrize(
    ("M", "R"), [(5, 2), (6, 2), (6, 3), (7, 2), (7, 3), (8, 2), (8, 3), (8, 4)]
)
def test_blocks_against_all_partitions(rng, M, R):
    """Local search finds the best in most cases, and what it finds no swap or move improves."""
    lengths = [len(part) for part in np.array_split(np.arange(M), R)]
    found = []
    for _ in range(20):
        D = random_dependence(rng, M)
        everything = [(inside(D, p), p) for p in balanced_partitions(list(range(M)), lengths)]
        best = max(value for value, _ in everything)
        blocks = group_by_dependence(D, R)
        value = inside(D, blocks)
        greedy = _grow(D, np.array(lengths))
        assert value >= inside(D, [np.flatnonzero(greedy == r) for r in range(R)]) - 1e-12
        member = np.empty(M, dtype=int)
        for r, block in enumerate(blocks):
            member[block] = r
        for other, partition in everything:
            moved = np.empty(M, dtype=int)
            for block in partition:
                # Blocks have no names: take those under which the fewest features move.
                moved[block] = np.bincount(member[block]).argmax()
            if (moved != member).sum() <= 2 and len(set(moved)) == R:
                assert other <= value + 1e-9
        assert value > 0.85 * best
        found.append(value > best - 1e-9)
    assert np.mean(found) >= 0.8


@pytest.mark.parametrize(("n_groups", "size"), [(2, 4), (5, 3), (12, 16)])
def test_planted_groups_are_found(rng, n_groups, size):
    """Although the groups' means, which differ by class, correlate all features."""
    M = n_groups * size
    labels = np.repeat([0, 1, 2], [600, 600, 8])
    X = correlated_groups(rng, len(labels), n_groups, size) + 4.0 * labels[:, None]
    columns = rng.permutation(M)
    blocks = group_by_dependence(within_class_dependence(X[:, columns], labels), n_groups)
    found = {frozenset((columns[block] // size).tolist()) for block in blocks}
    assert found == {frozenset([group]) for group in range(n_groups)}


def test_without_any_dependence_blocks_are_sequential():
    blocks = group_by_dependence(np.zeros((5, 5)), 2)
    assert [block.tolist() for block in blocks] == [[0, 1, 2], [3, 4]]


# The seams


def test_partition_features_takes_the_matrix(rng):
    D = random_dependence(rng, 9)
    blocks = partition_features(9, 4, "dependence", dependence=D)
    for one, two in zip(blocks, group_by_dependence(D, 4), strict=True):
        np.testing.assert_array_equal(one, two)
    M = 300
    blocks = partition_features(M, "auto", "dependence", dependence=np.ones((M, M)))
    assert len(blocks) == len(partition_features(M, "auto")) > 1


@pytest.mark.parametrize(
    ("dependence", "message"),
    [
        (None, r"dependence is missing. Give an array of shape \(3, 3\)"),
        (np.zeros((2, 2)), r"dependence has shape \(2, 2\); it must be an array of shape \(3, 3\)"),
        (np.triu(np.ones((3, 3))), "must be symmetric"),
        (np.full((3, 3), np.nan), "finite"),
        (-np.ones((3, 3)), "of at least 0"),
    ],
)
def test_a_bad_matrix_is_refused(dependence, message):
    with pytest.raises(ValueError, match=message):
        partition_features(3, 2, "dependence", dependence=dependence)


@pytest.fixture
def shuffled_groups(rng):
    """Samples of two classes, whose four features are two groups of two: 0 and 2, 1 and 3."""
    y = np.repeat(["a", "b"], 300)
    X = correlated_groups(rng, 600, 2, 2) + 2.0 * (y == "b")[:, None]
    return X[:, [0, 2, 1, 3]], y


def test_the_classifier_finds_planted_groups(shuffled_groups):
    X, y = shuffled_groups
    settings = {"n_components": 2, "n_blocks": 2, "random_state": 0}
    model = SharedKernelClassifier(partition="dependence", **settings).fit(X, y)
    assert [block.features.tolist() for block in model.blocks_] == [[0, 2], [1, 3]]
    explicit = SharedKernelClassifier(partition=[[0, 2], [1, 3]], **settings).fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), explicit.predict_proba(X))
    other = SharedKernelClassifier(partition="sequential", **settings).fit(X, y)
    assert model.score_samples(X).mean() > other.score_samples(X).mean() + 0.5


def test_the_order_of_rows_does_not_change_the_model(shuffled_groups, rng):
    X, y = shuffled_groups
    order = rng.permutation(len(X))
    settings = {"partition": "dependence", "n_components": 2, "n_blocks": 2, "random_state": 0}
    one = SharedKernelClassifier(**settings).fit(X, y)
    two = SharedKernelClassifier(**settings).fit(X[order], y[order])
    np.testing.assert_array_equal(one.predict_proba(X), two.predict_proba(X))


def test_warm_start_keeps_the_blocks(shuffled_groups, rng):
    X, y = shuffled_groups
    model = SharedKernelClassifier(
        partition="dependence", n_components=2, n_blocks=2, random_state=0, warm_start=True
    ).fit(X, y)
    model.fit(X[:, [0, 2, 1, 3]], y)  # of which other blocks would be made
    assert [block.features.tolist() for block in model.blocks_] == [[0, 2], [1, 3]]
    with pytest.raises(ValueError, match="number of blocks of the last fit, 2, not 3"):
        model.set_params(n_blocks=3).fit(X, y)
