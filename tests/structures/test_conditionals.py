"""Marginal and conditional kernels of every structure against scipy and dense formulas."""

import pickle
from dataclasses import FrozenInstanceError, is_dataclass

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pskem.engine import Kernels, prepare
from pskem.structures import STRUCTURES, Gaussians, conditional, marginal
from reference import COVARIANCE_TYPES, of_type, random_covariances

DOUBLE = np.dtype(np.float64)
K = 3
#: Which features are observed: p = 1 or more of them, and q = 1 or more that are not.
MASKS = {
    "p=1, q=1": [False, True],
    "p=1, q=3": [False, False, True, False],
    "p=3, q=1": [True, False, True, True],
    "p=3, q=2": [True, False, False, True, True],
}
masks = pytest.mark.parametrize("observed", [np.array(m) for m in MASKS.values()], ids=list(MASKS))
types = pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)


def random_kernels(rng, covariance_type, m):
    """Kernels, and their covariances as (K, m, m)."""
    covariances = of_type(random_covariances(rng, K, m), covariance_type)
    dense = {
        "full": lambda: covariances,
        "tied": lambda: np.array([covariances] * K),
        "diag": lambda: np.array([np.diag(v) for v in covariances]),
        "spherical": lambda: np.array([v * np.eye(m) for v in covariances]),
    }[covariance_type]()
    return Gaussians(2.0 * rng.standard_normal((K, m)), covariances), dense


@masks
@types
def test_marginals_are_those_of_scipy(rng, covariance_type, observed):
    structure = STRUCTURES[covariance_type]
    kernels, dense = random_kernels(rng, covariance_type, len(observed))
    p = int(observed.sum())
    same, part = marginal(structure, kernels, observed)
    assert same == structure
    assert part.means.shape == (K, p)
    assert part.covariances.shape == structure.storage.shape(K, p)
    X = 3.0 * rng.standard_normal((20, p))
    # The marginal is of the same structure, which can evaluate it.
    prepared = prepare(structure, Kernels(np.full((1, K), 1.0 / K), *part), DOUBLE)
    found = prepared.log_densities(np.ascontiguousarray(X.T))
    for k in range(K):
        theirs = multivariate_normal(
            kernels.means[k][observed], dense[k][np.ix_(observed, observed)]
        )
        np.testing.assert_allclose(found[k], theirs.logpdf(X), rtol=1e-10)


@types
def test_the_marginal_of_all_features_is_the_kernel_itself(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    kernels, _ = random_kernels(rng, covariance_type, 4)
    _, (means, covariances) = marginal(structure, kernels, np.ones(4, dtype=bool))
    np.testing.assert_array_equal(means, kernels.means)
    np.testing.assert_array_equal(covariances, kernels.covariances)


@masks
@types
def test_the_joint_density_is_the_marginal_times_the_conditional(rng, covariance_type, observed):
    structure = STRUCTURES[covariance_type]
    kernels, dense = random_kernels(rng, covariance_type, len(observed))
    _, (means, covariances) = marginal(structure, kernels, observed)
    compact = structure.storage.dense(covariances, *means.shape)
    found = conditional(structure, kernels, observed)
    for k in range(K):
        for x in 3.0 * rng.standard_normal((20, len(observed))):
            seen, missing = x[observed], x[~observed]
            joint = multivariate_normal(kernels.means[k], dense[k]).logpdf(x)
            given = found.slope[k] @ seen + found.offset[k]
            parts = multivariate_normal(means[k], compact[k]).logpdf(seen)
            parts += multivariate_normal(given, found.covariances[k]).logpdf(missing)
            assert parts == pytest.approx(joint, rel=1e-9, abs=1e-9)


@masks
@types
def test_the_conditional_is_that_of_the_precision_matrix(rng, covariance_type, observed):
    """The missing features given the others have the precision L_QQ, with L = P^-1."""
    structure = STRUCTURES[covariance_type]
    kernels, dense = random_kernels(rng, covariance_type, len(observed))
    found = conditional(structure, kernels, observed)
    p, q = int(observed.sum()), int((~observed).sum())
    assert found.slope.shape == (K, q, p)
    assert found.offset.shape == (K, q)
    assert found.covariances.shape == (K, q, q)
    for k in range(K):
        precision = np.linalg.inv(dense[k])
        covariance = np.linalg.inv(precision[np.ix_(~observed, ~observed)])
        slope = -covariance @ precision[np.ix_(~observed, observed)]
        mu = kernels.means[k]
        for seen in 3.0 * rng.standard_normal((5, p)):
            expected = mu[~observed] + slope @ (seen - mu[observed])
            np.testing.assert_allclose(
                found.slope[k] @ seen + found.offset[k], expected, rtol=1e-9, atol=1e-10
            )
        np.testing.assert_allclose(found.covariances[k], covariance, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(found.covariances[k], found.covariances[k].T)


@types
def test_without_observed_features_the_conditional_is_the_kernel(rng, covariance_type):
    kernels, dense = random_kernels(rng, covariance_type, 3)
    found = conditional(STRUCTURES[covariance_type], kernels, np.zeros(3, dtype=bool))
    assert found.slope.shape == (K, 3, 0)
    np.testing.assert_allclose(found.offset, kernels.means, rtol=1e-14)
    np.testing.assert_allclose(found.covariances, dense, rtol=1e-14)


@types
def test_without_missing_features_there_is_nothing_to_say(rng, covariance_type):
    kernels, _ = random_kernels(rng, covariance_type, 3)
    found = conditional(STRUCTURES[covariance_type], kernels, np.ones(3, dtype=bool))
    assert found.slope.shape == (K, 0, 3)
    assert found.offset.shape == (K, 0)
    assert found.covariances.shape == (K, 0, 0)


@types
def test_a_structure_is_a_frozen_value_that_pickles(rng, covariance_type):
    structure = STRUCTURES[covariance_type]
    assert structure.name == covariance_type
    assert is_dataclass(structure)
    with pytest.raises(FrozenInstanceError):
        structure.name = "other"
    copy = pickle.loads(pickle.dumps(structure))
    assert copy == structure
    assert hash(copy) == hash(structure)
    assert all(copy != other for name, other in STRUCTURES.items() if name != covariance_type)
    kernels, _ = random_kernels(rng, covariance_type, 3)
    for ours, theirs in zip(copy.natural(*kernels), structure.natural(*kernels), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    observed = np.array([True, False, True])
    pairs = zip(
        conditional(copy, kernels, observed), conditional(structure, kernels, observed), strict=True
    )
    for ours, theirs in pairs:
        np.testing.assert_array_equal(ours, theirs)
