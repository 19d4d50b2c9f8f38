"""A structure may have parameters: one that is not in the package, put through the engine."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from scipy.stats import multivariate_normal

from pskem.engine import (
    ArraySource,
    Kernels,
    OwnClass,
    Regulariser,
    em_pass,
    prepare,
    serial_map,
    summarise,
)
from pskem.structures import STRUCTURES, Continuous, Gaussians, SecondMoments, conditional, marginal

SPHERICAL = STRUCTURES["spherical"]


@dataclass(frozen=True)
class ShapedVariance:
    """v_k of each kernel, (K,), which stands for v_k diag(shape)."""

    ratios: tuple[float, ...]
    per_kernel: ClassVar[bool] = True

    def shape(self, K, m):
        return (K,)

    def dense(self, covariances, K, m):
        return covariances[:, None, None] * np.diag(self.ratios)

    def compact(self, covariances):
        return np.mean(np.diagonal(covariances, axis1=1, axis2=2) / self.ratios, axis=1)

    def select(self, covariances, features):
        return covariances


@dataclass(frozen=True)
class Shaped(Continuous):
    """Kernels with covariance v_k diag(shape): spherical after a division by sqrt(shape)."""

    shape: tuple[float, ...]
    name: ClassVar[str] = "shaped"
    common_scale: ClassVar[bool] = True
    without_phi: ClassVar[None] = None
    separable: ClassVar[None] = None

    @property
    def storage(self):
        return ShapedVariance(self.shape)

    def restrict(self, observed):
        return Shaped(tuple(np.array(self.shape)[observed].tolist()))

    @property
    def root(self):
        return np.sqrt(self.shape)

    def n_rows(self, m):
        return m + 1

    def natural(self, means, covariances):
        found = SPHERICAL.natural(means / self.root, covariances)
        theta = found.theta.copy()
        theta[:, 1:] /= self.root
        return found._replace(theta=theta, constant=found.constant - np.log(self.root).sum())

    def features(self, natural, X, out):
        out[0] = np.square(X / self.root[:, None]).sum(axis=0)
        out[1:] = X

    def products(self, counts, a, b):
        own = counts * (a * b / np.array(self.shape)).sum(axis=1)
        return SecondMoments(own[:, None], np.zeros(()))

    def spread(self, counts, covariances, m):
        return SPHERICAL.spread(counts, covariances, m)

    def gather(self, counts, moments, m):
        return SPHERICAL.gather(counts, moments, m)

    def floor(self, covariances, floor):
        return SPHERICAL.floor(covariances, floor)

    def settle(self, means, masses, pseudo):
        return means


def test_em_is_that_of_spherical_kernels_in_other_coordinates(rng):
    shape = (4.0, 0.25, 9.0)
    structure = Shaped(shape)
    root = structure.root[:, None]
    X = root * rng.standard_normal((3, 400)) + np.repeat([-1.0, 2.0], 200)
    bounds = np.array([0, 200, 400])
    weights = np.full((2, 4), 0.25)
    means = X[:, ::100].T.copy()
    variances = np.ones(4)
    ours = Kernels(weights, means, variances)
    theirs = Kernels(weights, means / structure.root, variances)
    source, scaled = (ArraySource([part], bounds, serial_map) for part in (X, X / root))
    volume = X.shape[1] * np.log(root).sum()
    for _ in range(5):
        a = em_pass([structure], source, [ours], [Regulariser(1e-6)], serial_map)
        b = em_pass([SPHERICAL], scaled, [theirs], [Regulariser(1e-6)], serial_map)
        assert a.log_likelihoods[0] == pytest.approx(b.log_likelihoods[0] - volume, rel=1e-12)
        (ours,), (theirs,) = a.kernels, b.kernels
    np.testing.assert_allclose(ours.means, theirs.means * structure.root, rtol=1e-9)
    np.testing.assert_allclose(ours.covariances, theirs.covariances, rtol=1e-9)


def test_another_parameter_is_another_density(rng):
    X = rng.standard_normal((2, 5))
    kernels = Kernels(np.ones((1, 1)), np.zeros((1, 2)), np.ones(1))
    one, other = (
        prepare(Shaped(shape), kernels, np.dtype(np.float64)).log_densities(X)
        for shape in ((1.0, 1.0), (1.0, 2.0))
    )
    assert Shaped((1.0, 1.0)) != Shaped((1.0, 2.0))
    expected = -0.5 * np.log(2.0) + 0.25 * X[1] ** 2
    np.testing.assert_allclose(other[0] - one[0], expected, rtol=1e-12)


def test_marginals_and_conditionals_know_the_parameter(rng):
    structure = Shaped((4.0, 0.25, 9.0))
    kernels = Gaussians(rng.standard_normal((2, 3)), np.array([0.5, 2.0]))
    observed = np.array([True, False, True])
    found, part = marginal(structure, kernels, observed)
    assert found == Shaped((4.0, 9.0))
    X = rng.standard_normal((2, 20))
    prepared = prepare(found, Kernels(np.ones((1, 2)) / 2, *part), np.dtype(np.float64))
    for k, v in enumerate(kernels.covariances):
        theirs = multivariate_normal(part.means[k], v * np.diag([4.0, 9.0])).logpdf(X.T)
        np.testing.assert_allclose(prepared.log_densities(X)[k], theirs, rtol=1e-12)
    slope, offset, left = conditional(structure, kernels, observed)
    assert not slope.any()  # features are independent
    np.testing.assert_allclose(offset, kernels.means[:, [1]])
    np.testing.assert_allclose(left, 0.25 * kernels.covariances[:, None, None])


def test_a_batch_with_gaps_knows_the_parameter(rng):
    """As spherical kernels in other coordinates do."""
    shape = (4.0, 0.25, 9.0)
    X = rng.standard_normal((3, 30))
    X[1, :20] = np.nan
    means, variances = rng.standard_normal((2, 3)), np.array([0.5, 2.0])
    root = Shaped(shape).root
    sums = []
    for structure, unit in ((Shaped(shape), np.ones(3)), (SPHERICAL, root)):
        kernels = Kernels(np.full((1, 2), 0.5), means / unit, variances)
        source = ArraySource([X / unit[:, None]], np.array([0, 30]), serial_map)
        ready = prepare(structure, kernels, np.dtype(np.float64), source.patterns[0])
        sums.append(summarise(source, (ready,), OwnClass(), serial_map).blocks[0])
    ours, theirs = sums
    np.testing.assert_allclose(ours.gained, theirs.gained, rtol=1e-12)
    np.testing.assert_allclose(ours.sums, theirs.sums * np.append(1.0, root), rtol=1e-10)
