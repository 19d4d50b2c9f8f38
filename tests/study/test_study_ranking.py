"""Ranks over tables, against Demšar's tables, SciPy's test and ranks worked out by hand."""

import numpy as np
import pytest
from scipy.stats import friedmanchisquare

from pskem.study.ranking import critical_difference, groups, rank

#: Demšar (2006), Table 5 (a): critical values of the two-tailed Nemenyi test at 0.05, k = 2 to 10.
CRITICAL = [1.960, 2.343, 2.569, 2.728, 2.850, 2.949, 3.031, 3.102, 3.164]
#: Demšar (2006), Table 6: AUC of C4.5 and three variants on 14 data sets. Two are printed alike but
#: ranked 2 and 3, which a further digit tells here.
AUC = """
0.763 0.768 0.771 0.798
0.599 0.591 0.590 0.569
0.954 0.971 0.968 0.967
0.628 0.661 0.654 0.657
0.882 0.888 0.886 0.898
0.936 0.931 0.916 0.931
0.661 0.668 0.609 0.685
0.583 0.583 0.563 0.625
0.775 0.838 0.866 0.875
1.000 1.000 1.000 1.000
0.940 0.962 0.965 0.962
0.619 0.666 0.614 0.669
0.972 0.981 0.9751 0.9750
0.957 0.978 0.946 0.970
"""


@pytest.mark.parametrize(("k", "q"), list(enumerate(CRITICAL, start=2)))
def test_critical_values_are_the_published_ones(k, q):
    N = 17
    found = critical_difference(k, N) / np.sqrt(k * (k + 1) / (6 * N))
    assert found == pytest.approx(q, abs=1.1e-3)


def test_the_example_of_the_paper():
    """Four methods on 14 data sets: mean ranks, and 1.25 as the critical difference."""
    ranking = rank(-np.array([line.split() for line in AUC.split("\n") if line], dtype=float))
    assert ranking.n_tables == 14
    assert ranking.mean == pytest.approx([3.143, 2.000, 2.893, 1.964], abs=5e-4)
    assert ranking.difference == pytest.approx(1.25, abs=5e-3)
    assert ranking.p_value < 0.05


def test_equals_share_their_ranks():
    costs = np.array([[0.1, 0.3, 0.2], [0.5, 0.5, 0.1], [0.4, 0.4, 0.4], [0.2, np.inf, np.inf]])
    # 1 3 2; 2.5 2.5 1; 2 2 2; 1 2.5 2.5
    ranking = rank(costs)
    assert ranking.mean == pytest.approx([6.5 / 4, 10 / 4, 7.5 / 4])
    ours = friedmanchisquare([1, 2.5, 2, 1], [3, 2.5, 2, 2.5], [2, 1, 2, 2.5]).pvalue
    assert ranking.p_value == pytest.approx(ours)


def test_friedmans_test_is_scipys(rng):
    costs = rng.standard_normal((12, 5)) + np.arange(5)
    assert rank(costs).p_value == pytest.approx(friedmanchisquare(*costs.T).pvalue)


def test_what_cannot_be_tested_has_no_p_value():
    assert rank(np.array([[1.0, 2.0], [1.0, 2.0]])).p_value is None  # two methods
    assert rank(np.array([[1.0, 2.0, 3.0]])).p_value is None  # one table
    assert rank(np.ones((4, 3))).p_value is None  # no difference


def test_groups_are_the_longest_stretches():
    mean = np.array([1.0, 1.5, 2.4, 2.6, 4.0])
    assert groups(mean, 1.0) == [(0, 1), (1, 2), (2, 3)]
    assert groups(mean, 1.2) == [(0, 1), (1, 3)]
    assert groups(mean, 9.0) == [(0, 4)]
    assert groups(mean, 0.1) == []
    assert groups(np.array([1.0, 2.0]), 1.0) == []  # at the difference they do differ
