"""How data are put in order, standardised, cut and folded over; and that all of it travels."""

import pickle
from dataclasses import replace
from time import sleep
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits

from pskem.engine import (
    ArraySource,
    Batch,
    Contrast,
    DecisionRule,
    Gathered,
    Kernels,
    OwnClass,
    Summarise,
    _sources,
    measure,
    prepare,
    serial_map,
    workers,
)
from pskem.engine._sources import BATCH, MIN_BATCHES, cut, repeats, tile_size
from pskem.structures import STRUCTURES
from reference import COVARIANCE_TYPES, of_type, random_covariances

DOUBLE = np.dtype(np.float64)
CRITERIA = {
    "all": DecisionRule(np.log([0.2, 0.5, 0.3]), np.array([0.7, 1.6])),
    "one class without prior": DecisionRule(np.array([0.0, -np.inf, -1.0]), np.array([0.7, 1.6])),
}
TARGETS = {"own class": OwnClass(), **{f"contrast, {k}": Contrast(v) for k, v in CRITERIA.items()}}


@given(st.lists(st.integers(0, 3000), min_size=1, max_size=12), st.sampled_from([64, 256, 2048]))
def test_chunks_cover_all_samples_in_order(counts, size):
    bounds = np.append(0, np.cumsum(counts))
    tiles = cut(bounds, size)
    edges = [(tile.start, tile.stop) for tile in tiles]
    assert [low for low, _ in edges] == [0, *(high for _, high in edges)][: len(edges)]
    assert sum(high - low for low, high in edges) == bounds[-1]
    labels = np.repeat(np.arange(len(counts)), counts)
    for tile in tiles:
        assert 0 < tile.stop - tile.start <= size
        own = np.repeat(tile.classes, np.diff(tile.bounds))
        np.testing.assert_array_equal(own, labels[tile.rows])


class Seen(NamedTuple):
    """The batches of a source, in the order in which they were merged."""

    batches: tuple[Batch, ...]

    def merge(self, other):
        return Seen(self.batches + other.batches)


def see(batch):
    return Seen((batch,))


@given(
    st.lists(st.integers(0, 30_000), min_size=1, max_size=12).filter(any),
    st.sampled_from([1, 20, 60, 200]),
)
def test_batches_cover_all_samples_in_order(counts, m):
    bounds = np.append(0, np.cumsum(counts))
    N = bounds[-1]
    places = np.broadcast_to(np.arange(N, dtype=np.float64), (m, N))  # takes no memory
    batches = ArraySource([places], bounds, serial_map).fold(see).batches
    np.testing.assert_array_equal(np.concatenate([b.X[0][0] for b in batches]), np.arange(N))
    labels = np.concatenate([batch.labels for batch in batches])
    np.testing.assert_array_equal(labels, np.repeat(np.arange(len(counts)), counts))
    for batch in batches:
        assert batch.first == batch.X[0][0, 0]
        assert batch.n_samples == batch.X[0].shape[1]
        assert batch.weights is None
    # Batches are as large as allowed, but not so large that there are few of them.
    largest = max(batch.n_samples for batch in batches)
    assert largest <= BATCH
    assert largest <= tile_size(m) or len(batches) >= MIN_BATCHES


def sorted_samples(rng, counts=(400, 150, 300), m=(2, 3)):
    """Samples of three classes in two blocks, (m, N) each, and where classes begin."""
    labels = np.repeat(np.arange(len(counts)), counts)
    centres = [rng.standard_normal((size, len(counts))) for size in m]
    X = [c[:, labels] + rng.standard_normal((len(c), len(labels))) for c in centres]
    return X, np.append(0, np.cumsum(counts))


def blocks_of_kernels(rng, covariance_type, dtype=DOUBLE, m=(2, 3)):
    """Two blocks made ready: a weight of zero in one, a kernel about its own mean in the other."""
    made = []
    for size in m:
        covariances = random_covariances(rng, 4, size)
        weights = rng.dirichlet(np.ones(4), size=3)
        means = rng.standard_normal((4, size))
        if size == m[0]:
            weights[1] = [0.0, 0.5, 0.5, 0.0]
        elif covariance_type != "tied":
            covariances[2] = 1e-9 * np.eye(size)
            means[2] = 2.0
        kernels = Kernels(weights, means, of_type(covariances, covariance_type))
        made.append(prepare(STRUCTURES[covariance_type], kernels, np.dtype(dtype)))
    assert made[1].centred.any() == (covariance_type != "tied")
    return tuple(made)


def slowest_first(batch):
    """The last batch is done first, if threads work on several."""
    sleep(0.02 / (1.0 + batch.first / 5000))
    return Gathered(((*batch.X, batch.labels, batch.first + np.arange(batch.n_samples)),))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_fold_visits_every_sample_once_and_in_order(rng, threads):
    X, bounds = sorted_samples(rng, (20_000, 9, 30_000))
    with workers(threads) as parallel_map:
        found = ArraySource(X, bounds, parallel_map).fold(slowest_first)
    assert len(found.parts) > threads
    *blocks, labels, places = found.arrays
    for ours, theirs in zip(blocks, X, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(labels, np.repeat([0, 1, 2], [20_000, 9, 30_000]))
    np.testing.assert_array_equal(places, np.arange(50_009))


def backwards(function, *iterables):
    return [function(*task) for task in list(zip(*iterables, strict=True))[::-1]][::-1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_fold_has_the_same_bits_for_any_number_of_threads(rng, dtype, target):
    """Batches, and the order in which sums are merged, depend on the data alone."""
    X, bounds = sorted_samples(rng, (20_000, 9, 30_000))
    X = [part.astype(dtype) for part in X]
    summarise = Summarise(blocks_of_kernels(rng, "full", dtype), TARGETS[target])
    assert len(ArraySource(X, bounds, serial_map).fold(see).batches) > 5
    found = []
    for threads in (1, 2, 5):
        with workers(threads) as parallel_map:
            found.append(ArraySource(X, bounds, parallel_map).fold(summarise))
    with threadpool_limits(1, "blas"):
        found.append(ArraySource(X, bounds, backwards).fold(summarise))
    for other in found[1:]:
        assert_same(found[0], other)


def leaves(value):
    """The arrays and numbers in nested tuples."""
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in leaves(part)]
    return [] if value is None else [value]


def assert_same(one, other):
    """Equal to the last bit."""
    assert type(one) is type(other)
    pairs = list(zip(leaves(one), leaves(other), strict=True))
    assert len(pairs) > 1
    for a, b in pairs:
        np.testing.assert_array_equal(a, b)


def round_trip(value):
    return pickle.loads(pickle.dumps(value))


# -------------------------------------------------------------------------------------- pickles


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_can_be_pickled(rng, weighted):
    X, bounds = sorted_samples(rng)
    weights = rng.random(bounds[-1]) if weighted else None
    for batch in ArraySource(X, bounds, serial_map, weights).fold(see).batches:
        copy = round_trip(batch)
        assert_same(batch, copy)
        assert copy.n_samples == batch.n_samples
        np.testing.assert_array_equal(copy.labels, batch.labels)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_prepared_kernels_can_be_pickled(rng, covariance_type, dtype):
    X, _ = sorted_samples(rng)
    prepared = blocks_of_kernels(rng, covariance_type, dtype)
    for block, part in zip(prepared, X, strict=True):
        copy = round_trip(block)
        assert (copy.structure, copy.dtype) == (block.structure, block.dtype)
        np.testing.assert_array_equal(copy.log_densities(part), block.log_densities(part))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_a_pass_can_be_pickled_and_so_can_its_result(rng, covariance_type, target):
    """What another machine needs to take part: the function, a batch, and what comes back."""
    X, bounds = sorted_samples(rng)
    (batch,) = (
        ArraySource([part[:, :800] for part in X], bounds.clip(max=800), serial_map)
        .fold(see)
        .batches
    )
    summarise = Summarise(blocks_of_kernels(rng, covariance_type), TARGETS[target])
    expected = summarise(batch)
    found = round_trip(round_trip(summarise)(round_trip(batch)))
    assert_same(expected, found)
    for block, statistics in zip(summarise.blocks, found.blocks, strict=True):
        moments = statistics.moments(block)
        assert_same(moments.second, round_trip(moments).second)


def test_a_model_can_be_pickled(fitted, labelled):
    X, _ = labelled
    model = replace(fitted.model_, block_weights=np.array([0.5, 1.5]), temperature=2.5)
    copy = round_trip(model)
    assert copy is not model
    np.testing.assert_array_equal(copy.log_likelihood(X), model.log_likelihood(X))
    np.testing.assert_array_equal(copy.log_posterior(X), model.log_posterior(X))
    np.testing.assert_array_equal(copy.classes, model.classes)
    assert copy.n_parameters == model.n_parameters
    # A copy is as immutable as what it was made of.
    with pytest.raises(ValueError, match="read-only"):
        copy.priors[0] = 1.0
    for block in copy.blocks:
        with pytest.raises(ValueError, match="read-only"):
            block.kernels.means[0] = 0.0


# -------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize("counts", [(60, 40, 50), (9000, 30, 6000)])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_weights_count_samples(rng, covariance_type, target, counts):
    """A weight of 3 is the row three times, a weight of 0 its absence."""
    X, bounds = sorted_samples(rng, counts)
    weights = rng.choice([0, 1, 3], size=bounds[-1])
    summarise = Summarise(blocks_of_kernels(rng, covariance_type), TARGETS[target])
    weighted = ArraySource(X, bounds, serial_map, weights.astype(np.float64)).fold(summarise)
    repeated = [np.repeat(part, weights, axis=1) for part in X]
    sizes = [part.sum() for part in np.split(weights, bounds[1:-1])]
    plain = ArraySource(repeated, np.append(0, np.cumsum(sizes)), serial_map).fold(summarise)
    np.testing.assert_allclose(weighted.value, plain.value, rtol=1e-9)
    for ours, theirs in zip(weighted.blocks, plain.blocks, strict=True):
        for a, b in zip(leaves(ours), leaves(theirs), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)
    # Weights do matter here.
    unweighted = ArraySource(X, bounds, serial_map).fold(summarise)
    assert (np.abs(unweighted.value / plain.value - 1.0) > 1e-3).all()


@pytest.mark.parametrize("target", TARGETS)
def test_a_sample_without_weight_may_be_anywhere(rng, target):
    """Even where no kernel reaches."""
    X, bounds = sorted_samples(rng)
    weights = np.ones(bounds[-1])
    weights[7] = 0.0
    summarise = Summarise(blocks_of_kernels(rng, "full"), TARGETS[target])
    expected = ArraySource(X, bounds, serial_map, weights).fold(summarise)
    for part in X:
        part[:, 7] = 1e3
    found = ArraySource(X, bounds, serial_map, weights).fold(summarise)
    for a, b in zip(leaves(expected), leaves(found), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


# ----------------------------------------------------------------------- coordinates, empty batches


@pytest.mark.parametrize("n", range(2, 60, 7))
def test_a_constant_feature_is_shifted_to_zero_exactly(n):
    """The mean of n equal numbers may differ from them in the last digit."""
    for value in (0.1, 1e-300, 1e300, 12345.678):
        source = ArraySource([np.full((1, n), value)], np.array([0, n]), serial_map)
        ((shift, scale),) = measure(source)
        assert shift[0] == value
        assert scale[0] == 1.0


@pytest.mark.parametrize(
    "target", [OwnClass(), Contrast(DecisionRule(np.log([0.5, 0.5]), np.ones(1)))]
)
def test_a_batch_without_samples_adds_nothing(rng, target):
    kernels = Kernels(
        np.full((2, 3), 1 / 3), rng.standard_normal((3, 2)), np.array([np.eye(2)] * 3)
    )
    prepared = prepare(STRUCTURES["full"], kernels, np.dtype(np.float64))
    found = Summarise((prepared,), target)(Batch((np.empty((2, 0)),), np.zeros(3, dtype=np.intp)))
    assert not found.value.any()
    assert not any(part.any() for part in leaves(found.blocks[0]))
    whole = Batch((rng.standard_normal((2, 5)),), np.array([0, 2, 5]))
    some = Summarise((prepared,), target)(whole)
    for a, b in zip(leaves(some.merge(found)), leaves(some), strict=True):
        np.testing.assert_array_equal(a, b)


def test_blocks_that_nothing_couples_are_summed_up_apart(rng):
    """Threads work on blocks of the same batch, and the whole is as if they had not."""
    parts = [rng.standard_normal((m, 300)) for m in (2, 3)]
    kernels = [
        Kernels(np.full((2, 3), 1 / 3), X[:, :3].T, np.array([np.eye(len(X))] * 3)) for X in parts
    ]
    prepared = tuple(prepare(STRUCTURES["full"], k, np.dtype(np.float64)) for k in kernels)
    seen = []

    def recorded(function, *iterables):
        seen.append(list(zip(*iterables, strict=True)))
        return [function(*task) for task in seen[-1]]

    source = ArraySource(parts, np.array([0, 100, 300]), recorded)
    found = source.fold(Summarise(prepared, OwnClass()))
    assert len(seen[0]) == 2  # one batch, two blocks
    whole = Summarise(prepared, OwnClass())(Batch(tuple(parts), np.array([0, 100, 300])))
    for one, other in zip(found.blocks, whole.blocks, strict=True):
        for a, b in zip(one[:4], other[:4], strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(found.value, whole.value)
    source.fold(Summarise(prepared, Contrast(DecisionRule(np.log([0.5, 0.5]), np.ones(2)))))
    assert len(seen[1]) == 1  # a contrast couples the blocks


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_merged_in_order_however_many_wait(rng, monkeypatch, target):
    """Batch by batch or all at once: the same bits."""
    X, bounds = sorted_samples(rng, (30_000, 9, 20_000))
    summarise = Summarise(blocks_of_kernels(rng, "full"), TARGETS[target])
    source = ArraySource(X, bounds, serial_map)
    assert len(source._batches) > 7
    found = []
    for waiting in (1, 3, 10_000):
        monkeypatch.setattr(_sources, "AT_A_TIME", waiting)
        found.append(leaves(source.fold(summarise)))
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize(
    ("weights", "times"),
    [
        ([1, 2, 5], [1, 2, 5]),
        ([97, 4, 6], [97, 4, 6]),
        ([3, 3, 3], [1, 1, 1]),
        ([2, 4, 6], [1, 2, 3]),
        ([0.5, 1.5, 0.5], [1, 3, 1]),
        ([1.0, 1.01, 2.0], [1, 1, 1]),
        ([], []),
    ],
)
def test_whole_weights_are_repeats(weights, times):
    np.testing.assert_array_equal(repeats(np.array(weights, dtype=float)), times)
