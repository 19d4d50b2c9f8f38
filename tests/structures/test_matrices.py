"""Matrices of kernels."""

import numpy as np
import pytest

from pskem.structures import invert_lower


@pytest.mark.parametrize("shape", [(3,), (40,), (5, 3), (4, 20)])
def test_inverses_of_triangular_matrices(rng, shape):
    *stack, m = shape
    factors = np.tril(rng.standard_normal((*stack, m, m))) / m + np.eye(m)
    found = invert_lower(factors)
    np.testing.assert_allclose(found, np.linalg.inv(factors), atol=1e-12)
    assert not np.triu(found, 1).any()
