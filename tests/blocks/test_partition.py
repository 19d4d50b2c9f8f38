import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pskem import partition_features

sizes = st.integers(1, 60).flatmap(lambda M: st.tuples(st.just(M), st.integers(1, M)))


@given(sizes, st.sampled_from(["sequential", "interleaved", "random"]))
def test_blocks_cover_all_features_once_in_nearly_equal_sizes(size, arrangement):
    M, R = size
    blocks = partition_features(M, R, arrangement, 0)
    assert len(blocks) == R
    np.testing.assert_array_equal(np.sort(np.concatenate(blocks)), np.arange(M))
    lengths = [len(block) for block in blocks]
    assert max(lengths) - min(lengths) <= 1


def test_arrangements_are_those_of_the_paper():
    listed = [block.tolist() for block in partition_features(9, 3, "interleaved")]
    assert listed == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]
    listed = [block.tolist() for block in partition_features(9, 3, "sequential")]
    assert listed == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    one, two = (partition_features(40, 4, "random", seed) for seed in (0, 1))
    assert any(set(a) != set(b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize(("M", "R"), [(1, 1), (100, 1), (101, 2), (784, 8), (1000, 10)])
def test_auto_makes_blocks_of_at_most_100(M, R):
    blocks = partition_features(M)
    assert len(blocks) == R
    assert max(map(len, blocks)) <= 100


def test_explicit_blocks_by_index_and_by_name():
    blocks = partition_features(5, partition=[[4, 0], np.array([2])])
    assert [block.tolist() for block in blocks] == [[4, 0], [2]]
    named = partition_features(3, partition=[["c"], ["a", "b"]], feature_names=["a", "b", "c"])
    assert [block.tolist() for block in named] == [[2], [0, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_blocks": 0}, "n_blocks=0 must be 'auto' or an integer of at least 1"),
        ({"n_blocks": 2.0}, "n_blocks=2.0 must be"),
        ({"n_blocks": "many"}, "n_blocks='many' must be"),
        ({"n_blocks": 6}, "n_blocks=6 is more than the 5 feature"),
        ({"partition": "shuffled"}, "partition='shuffled' is not known. Accepted: 'sequential'"),
        ({"partition": [[0, 1], [1, 2]]}, "feature.s. 1 more than once"),
        ({"partition": [[0, 0]]}, "feature.s. 0 more than once"),
        ({"partition": [[0, 5]]}, r"partition\[0\] holds 5, but X has 5 feature"),
        ({"partition": [[-1]]}, r"partition\[0\] holds -1"),
        ({"partition": [[]]}, r"partition\[0\]=\[\] must be a non-empty"),
        ({"partition": ["a", "b"]}, "a partition is a list of such lists, one per block"),
        ({"partition": 3}, "partition=3 must be one of"),
        ({"partition": []}, "empty list"),
        ({"partition": [[0.5]]}, "integer column indices"),
        ({"partition": [[0]], "n_blocks": 2}, "n_blocks=2 does not match partition"),
        ({"partition": [["a"]]}, "X has no column names"),
        (
            {"partition": [["z"]], "feature_names": list("abcde")},
            "names column.s. z .*it has a, b, c",
        ),
    ],
)
def test_bad_partitions_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        partition_features(5, **arguments)


@pytest.mark.parametrize("n_features", [0, 4.5, "a", True])
def test_a_bad_number_of_features_is_refused(n_features):
    with pytest.raises(ValueError, match=r"n_features=.* must be an integer of at least 1"):
        partition_features(n_features)
