"""Kernels over categories, against naive Bayes, planted latent classes and direct evaluation."""

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.naive_bayes import CategoricalNB

from pskem.engine import (
    ArraySource,
    Contrast,
    DecisionRule,
    Kernels,
    Regulariser,
    Summarise,
    assess,
    discriminative_pass,
    em_pass,
    mix,
    prepare,
    serial_map,
)
from pskem.structures import Categorical

DOUBLE = np.dtype(np.float64)
LEVELS = (3, 2, 4)
STRUCTURE = Categorical(LEVELS)


def indicators(codes):
    """One row for every value of every column, (9, n); nothing for a code of -1."""
    parts = [np.eye(n + 1)[column][:, :n] for n, column in zip(LEVELS, codes.T, strict=True)]
    return np.ascontiguousarray(np.hstack(parts).T)


def random_kernels(rng, K=3, L=2):
    means = np.hstack([rng.dirichlet(np.ones(n), K) for n in LEVELS])
    return Kernels(rng.dirichlet(np.ones(K), L), means, np.empty((K, 0)))


def random_codes(rng, n, gaps=0.0):
    codes = np.column_stack([rng.integers(m, size=n) for m in LEVELS])
    return np.where(rng.random(codes.shape) < gaps, -1, codes)


@pytest.mark.parametrize(("levels", "most"), [((3,), 1), ((2, 2), 2), ((3, 3), 3), ((4, 2, 3), 6)])
def test_so_many_kernels_can_be_any_distribution(rng, levels, most):
    """Each has one combination of the other columns, and what the largest is given them."""
    structure = Categorical(levels)
    assert structure.most_kernels == most
    table = rng.dirichlet(np.ones(np.prod(levels))).reshape(levels)
    largest = int(np.argmax(levels))
    rows = np.moveaxis(table, largest, -1).reshape(-1, levels[largest])
    assert len(rows) == most
    others = [n for i, n in enumerate(levels) if i != largest]
    means = np.zeros((len(rows), sum(levels)))
    for k, place in enumerate(np.ndindex(*others)):
        values = np.insert(np.array(place, dtype=np.intp), largest, 0)
        means[k, structure.starts + values] = 1.0
        own = slice(structure.starts[largest], structure.starts[largest] + levels[largest])
        means[k, own] = rows[k] / rows[k].sum()
    cells = np.array(list(np.ndindex(*levels)))
    places = structure.starts + cells
    found = rows.sum(axis=1) @ np.array([mean[places].prod(axis=1) for mean in means])
    np.testing.assert_allclose(found, table[tuple(cells.T)], rtol=1e-12)


@pytest.mark.parametrize("gaps", [0.0, 0.3])
def test_densities_are_products_of_probabilities(rng, gaps):
    kernels, codes = random_kernels(rng), random_codes(rng, 50, gaps)
    found = prepare(STRUCTURE, kernels, DOUBLE).log_densities(indicators(codes))
    first = np.cumsum((0, *LEVELS))
    for n, row in enumerate(codes):
        seen = [first[a] + value for a, value in enumerate(row) if value >= 0]
        expected = np.log(kernels.means[:, seen]).sum(axis=1)
        np.testing.assert_allclose(found[:, n], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("alpha", [1e-10, 1.0])
def test_one_kernel_a_class_is_naive_bayes(rng, alpha):
    """With smoothing toward even frequencies, as CategoricalNB has it, only where it vanishes."""
    codes, y = random_codes(rng, 400), np.repeat([0, 1], 200)
    X = indicators(codes)
    source = ArraySource([X], np.array([0, 200, 400]), serial_map)
    start = Kernels(np.eye(2), random_kernels(rng, 2).means, np.empty((2, 0)))
    (found,) = em_pass([STRUCTURE], source, [start], [Regulariser(0.0)], serial_map).kernels
    theirs = CategoricalNB(alpha=alpha, force_alpha=True).fit(codes, y)
    expected = np.exp(np.hstack(theirs.feature_log_prob_))
    np.testing.assert_allclose(found.means, expected, atol=1e-8 if alpha < 1e-5 else 0.02)
    # Smoothed, it is the mean of a Dirichlet posterior about the frequencies of all.
    held_back = [Regulariser(0.0, 5.0)]
    (smooth,) = em_pass([STRUCTURE], source, [start], held_back, serial_map).kernels
    counts = np.array([X[:, y == j].sum(axis=1) for j in range(2)])
    shares = counts.sum(axis=0) + 1.0 / np.repeat(LEVELS, LEVELS)
    totals = np.repeat(np.add.reduceat(shares, STRUCTURE.starts), LEVELS)
    np.testing.assert_allclose(smooth.means, (counts + 5.0 * shares / totals) / 205.0, rtol=1e-9)


@pytest.mark.parametrize("gaps", [0.0, 0.2])
def test_planted_latent_classes_are_found_and_the_likelihood_never_falls(rng, gaps):
    truth = Kernels(
        np.array([[0.6, 0.4]]),
        np.array(
            [
                [0.9, 0.05, 0.05, 0.1, 0.9, 0.7, 0.1, 0.1, 0.1],
                [0.1, 0.2, 0.7, 0.8, 0.2, 0.1, 0.1, 0.1, 0.7],
            ]
        ),
        np.empty((2, 0)),
    )
    n = 20_000
    z = (rng.random(n) > 0.6).astype(int)
    parts = np.split(truth.means, np.cumsum(LEVELS)[:-1], axis=1)
    codes = np.column_stack(
        [(rng.random((n, 1)) > np.cumsum(part, axis=1)[z]).sum(axis=1) for part in parts]
    )
    codes = np.where(rng.random(codes.shape) < gaps, -1, codes)
    source = ArraySource([indicators(codes)], np.array([0, n]), serial_map)
    kernels, trace = [random_kernels(rng, 2, 1)], []
    for _ in range(150):
        step = em_pass([STRUCTURE], source, kernels, [Regulariser(0.0)], serial_map)
        trace.append(step.log_likelihoods[0])
        kernels = step.kernels
    assert np.diff(trace).min() > -1e-9 * abs(trace[-1])
    (found,) = kernels
    order = np.argsort(-found.means[:, 0])
    np.testing.assert_allclose(found.means[order], truth.means, atol=0.06)
    np.testing.assert_allclose(found.weights[0, order], truth.weights[0], atol=0.06)


def test_discriminative_passes_raise_the_posteriors(rng):
    codes = random_codes(rng, 600, 0.1)
    codes[:150, 0] = codes[:150, 2] % 3  # something to learn
    source = ArraySource([indicators(codes)], np.array([0, 300, 600]), serial_map)
    kernels = [random_kernels(rng, 4)]
    rule = DecisionRule(np.log([0.5, 0.5]), np.ones(1))
    step = assess([STRUCTURE], source, kernels, rule, serial_map)
    trace = [step.criterion]
    for _ in range(10):
        step = discriminative_pass([STRUCTURE], source, step, [1e-6], rule, serial_map)
        trace.append(step.criterion)
    assert (np.diff(trace) > 0.0).all()
    (after,) = step.kernels
    totals = np.add.reduceat(after.means, STRUCTURE.starts, axis=1)
    np.testing.assert_allclose(totals, 1.0, rtol=1e-12)
    assert (after.means > 0.0).all()


def test_criteria_are_those_of_a_direct_evaluation(rng):
    kernels, codes = random_kernels(rng), random_codes(rng, 100)
    X = indicators(codes)
    source = ArraySource([X], np.array([0, 40, 100]), serial_map)
    prepared = prepare(STRUCTURE, kernels, DOUBLE)
    log_prior = np.log([0.3, 0.7])
    rule = DecisionRule(log_prior, np.ones(1))
    found = source.fold(Summarise((prepared,), Contrast(rule)))
    log_q = mix(np.log(kernels.means) @ X, kernels.weights) + log_prior[:, None]
    log_p = log_q - logsumexp(log_q, axis=0)
    labels = np.repeat([0, 1], [40, 60])
    assert found.value[0] == pytest.approx(log_p[labels, np.arange(100)].sum(), rel=1e-12)


def test_columns_stay_whole():
    part = STRUCTURE.restrict(np.array([True] * 3 + [False] * 2 + [True] * 4))
    assert part == Categorical((3, 4))
    with pytest.raises(ValueError, match="all of its values, or not at all"):
        STRUCTURE.restrict(np.array([True] * 2 + [False] * 7))
    assert STRUCTURE.storage.n_parameters(5, 9) + 5 * 9 == 5 * (2 + 1 + 3)
