"""The schedule of a stream, what tells how much to remember, and how models grow."""

import numpy as np
import pytest

from pskem import SharedKernelClassifier, Stepwise
from pskem.engine import Coordinates, Kernels, Regulariser, remembered, serial_map
from pskem.model import Block
from pskem.structures import STRUCTURES, Categorical
from pskem.training import (
    MEMORIES,
    Samples,
    Settings,
    Watch,
    Window,
    advance,
    ask,
    open_stream,
)
from pskem.training._growing import moved_to, split_kernels, suitable_coordinates
from pskem.training._layout import grown_kernels
from reference import COVARIANCE_TYPES, of_type, random_covariances

# --------------------------------------------------------------------------------- the schedule


def steps(stepwise, sizes, memory=np.inf):
    """The step eta of every part, and what all samples count at last."""
    total = seen = 0.0
    found = []
    for n in sizes:
        kept = stepwise.kept(total, seen, memory)
        found.append(n / (n + kept * total))
        total, seen = kept * total + n, seen + n
    return np.array(found), total


def test_all_samples_count_alike_in_whatever_parts():
    for sizes in ([100] * 30, [1000, 500, 1500], [7, 93, 900, 2000]):
        found, total = steps(Stepwise(memory=np.inf), sizes)
        np.testing.assert_allclose(found, sizes / np.cumsum(sizes), rtol=1e-12)
        assert total == pytest.approx(3000.0)


def test_a_memory_is_a_floor_of_the_step():
    found, total = steps(Stepwise(memory=500.0), [100] * 50)
    np.testing.assert_allclose(found[:6], 1.0 / np.arange(1, 7))
    np.testing.assert_allclose(found[6:], 100 / 600, rtol=1e-12)
    assert total == pytest.approx(600.0)


def test_steps_fall_by_a_power():
    """From a thousand samples on, eta = 1 / (1 + t ** kappa) where parts have a thousand each."""
    found, _ = steps(Stepwise(memory=np.inf, kappa=0.6), [1000] * 40)
    t = np.arange(1.0, 40.0)
    np.testing.assert_allclose(found[1:], 1.0 / (1.0 + t**0.6), rtol=1e-12)


def test_the_stream_tells_the_memory_if_nobody_else_does():
    assert steps(Stepwise(), [100] * 50, memory=250.0)[1] == pytest.approx(350.0)
    assert steps(Stepwise(memory=1000.0), [100] * 50, memory=250.0)[1] == pytest.approx(1100.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"memory": 0.0}, "memory=0.0 is not accepted: give a number of samples above 0"),
        ({"memory": "long"}, "memory='long'"),
        ({"kappa": 0.4}, "kappa=0.4 must be a finite number of at least 0.5 and at most 1"),
        ({"contrast": -1.0}, "contrast=-1.0"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Stepwise(**settings)


# --------------------------------------------------------------------------- how much to remember


def seen_in_parts(X, y, size):
    watch = Watch.nobody(int(y.max()) + 1, X.shape[1])
    for low in range(0, len(X), size):
        part = slice(low, low + size)
        watch = watch.seen(X[part], y[part], np.ones(len(y[part])))
    return watch


def test_a_long_memory_has_means_and_variances_of_all(rng):
    y = rng.integers(3, size=1000)
    X = 1e6 + rng.standard_normal((1000, 4)) * [1.0, 2.0, 0.1, 5.0] + y[:, None]
    X[rng.random(X.shape) < 0.1] = np.nan
    watch = seen_in_parts(X, y, 130)
    for j in range(3):
        np.testing.assert_allclose(watch.means[-1, j], np.nanmean(X[y == j], axis=0), rtol=1e-12)
        np.testing.assert_allclose(watch.variances[-1, j], np.nanvar(X[y == j], axis=0), rtol=1e-7)
    mean, variance = watch.spread
    np.testing.assert_allclose(mean, np.nanmean(X, axis=0), rtol=1e-12)
    np.testing.assert_allclose(variance, np.nanvar(X, axis=0), rtol=1e-6)


@pytest.mark.parametrize("size", [20, 200, 1000])
@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_forgotten_where_nothing_moves(size, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=6000)
    X = rng.standard_t(5, (6000, 3)) + y[:, None]
    assert seen_in_parts(X, y, size).memory(n_parameters=24) == MEMORIES[-1]


@pytest.mark.parametrize("size", [20, 200, 1000])
def test_a_shorter_memory_is_better_where_classes_move(rng, size):
    y = rng.integers(2, size=6000)
    X = rng.standard_normal((6000, 3)) + y[:, None]
    X[:, 0] += np.linspace(0.0, 6.0, 6000)
    watch = seen_in_parts(X, y, size)
    assert watch.memory(n_parameters=24) < 2000.0
    # A model that has many parameters would lose by that.
    assert watch.memory(n_parameters=100_000) == MEMORIES[-1]


def test_a_memory_grows_again_when_all_is_still(rng):
    y = rng.integers(2, size=40_000)
    X = rng.standard_normal((40_000, 3)) + y[:, None]
    X[:3000] += np.linspace(-6.0, 0.0, 3000)[:, None]
    short = seen_in_parts(X[:3000], y[:3000], 100).memory(24)
    assert short < seen_in_parts(X, y, 100).memory(24)


# ------------------------------------------------------------------------------------- answers


def test_the_latest_answers_stay_and_classes_leave_alike(rng):
    X, y = rng.standard_normal((9000, 2)), np.sort(rng.integers(3, size=9000))
    model = SharedKernelClassifier(n_components=3, early_stopping=False).fit(X, y).model_
    window = Window.nobody(1, 3)
    for part in (slice(0, 9000), slice(4500, 9000)):
        asked = ask(model, X[part], y[part], np.ones(len(y[part])), serial_map)
        window = window.followed_by(asked, 20_000.0)
    assert len(window.labels) == 5000
    shares = np.bincount(window.labels[:500], minlength=3) / 500
    np.testing.assert_allclose(shares, 1 / 3, atol=0.1)
    assert len(window.densities) <= 1001


# ------------------------------------------------------------------------------------- growing


def block_of(rng, covariance_type, K=2, m=2, L=2):
    covariances = of_type(random_covariances(rng, K, m), covariance_type)
    kernels = Kernels(np.eye(L, K), rng.standard_normal((K, m)), covariances)
    coordinates = Coordinates(np.zeros(m), np.ones(m))
    features = np.arange(m)
    return Block(features, kernels, coordinates, STRUCTURES[covariance_type], np.eye(L, K) > 0)


def test_kernels_grow_with_their_class():
    found = grown_kernels(np.array([10.0, 60.0, 179.0, 480.0, 2400.0, 3000.0, 1e6]), 10)
    assert found.tolist() == [1, 2, 5, 8, 8, 10, 20]
    assert grown_kernels(np.array([1e6]), 10, most=3).tolist() == [3]


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_split_kernels_have_the_mean_and_spread_that_their_class_had(rng, covariance_type):
    block = block_of(rng, covariance_type)
    running = [remembered(block.structure, block.kernels, np.array([24.0, 6.0]))] * 2
    grown, (sums, _), parents = split_kernels(block, running, Regulariser(1e-10))
    assert parents.tolist() == [0, 1, 0, 0, 0]
    assert grown.allowed.sum(axis=1).tolist() == [4, 1]
    np.testing.assert_allclose(sums.totals, [24.0, 6.0])
    weights, means, covariances = grown.kernels
    np.testing.assert_allclose(weights @ means, block.kernels.means, atol=1e-12)
    if covariance_type == "full":
        within = np.einsum("k,kab->ab", weights[0], covariances)
        offsets = means - block.kernels.means[0]
        total = within + np.einsum("k,ka,kb->ab", weights[0], offsets, offsets)
        np.testing.assert_allclose(total, block.kernels.covariances[0], rtol=1e-9)


def test_kernels_of_categories_grow_too(rng):
    structure = Categorical((3, 4))
    means = np.hstack([rng.dirichlet(np.ones(3), 1), rng.dirichlet(np.ones(4), 1)])
    kernels = Kernels(np.ones((1, 1)), means, np.empty((1, 0)))
    coordinates = Coordinates(np.zeros(7), np.ones(7))
    block = Block(np.arange(7), kernels, coordinates, structure, np.ones((1, 1), dtype=bool))
    running = [remembered(structure, kernels, np.array([60.0]))] * 2
    grown, _, _ = split_kernels(block, running, Regulariser(1e-10))
    found = grown.kernels
    assert len(found.means) == 2
    assert (found.means > 0.0).all()
    np.testing.assert_allclose(found.weights @ found.means, means, rtol=1e-9)


@pytest.mark.parametrize("covariance_type", COVARIANCE_TYPES)
def test_other_coordinates_are_the_same_model(rng, covariance_type):
    block = block_of(rng, covariance_type)
    running = [remembered(block.structure, block.kernels, np.array([30.0, 6.0]))]
    mean, variance = np.array([100.0, -3.0]), np.array([25.0, 400.0])
    coordinates = suitable_coordinates(block, mean, variance)
    np.testing.assert_array_equal(coordinates.shift, mean)
    if covariance_type != "spherical":
        np.testing.assert_allclose(coordinates.scale**2, variance)
    moved, (sums,) = moved_to(block, running, coordinates)
    np.testing.assert_allclose(moved.means, block.means, rtol=1e-10)
    np.testing.assert_allclose(moved.covariances, block.covariances, rtol=1e-10)
    _, (back,) = moved_to(moved, [sums], block.coordinates)
    back = back.about(block.structure, running[0].moments.frame.origins)
    np.testing.assert_allclose(back.moments.first, running[0].moments.first, atol=1e-9)
    np.testing.assert_allclose(back.moments.second.own, running[0].moments.second.own, rtol=1e-9)


def test_coordinates_stay_where_features_have_hardly_changed(rng):
    block = block_of(rng, "full")
    for mean, variance in (([0.5, -2.0], [2.0, 9.0]), ([np.nan, 0.0], [np.nan, 0.0])):
        found = suitable_coordinates(block, np.array(mean), np.array(variance))
        assert found is block.coordinates


# --------------------------------------------------------------------------- the state is a value


def test_a_part_makes_a_new_stream_and_leaves_the_old_one(rng):
    y = rng.integers(2, size=400)
    X = rng.standard_normal((400, 3)) + y[:, None]
    settings = Settings.parse(SharedKernelClassifier().get_params(deep=False))

    def samples(rows):
        labels = y[rows].astype(np.intp)
        return Samples(X[rows], labels, np.arange(2), np.full(2, 0.5), learn_priors=True)

    opened = open_stream(settings, samples(slice(0, 200)), 0, serial_map)
    before = [one.moments.first.copy() for one in opened.stream.statistics]
    states = [
        advance(opened.model, opened.stream, samples(slice(200, 400)), settings, 0, serial_map)
        for _ in range(2)
    ]
    for one, copy in zip(opened.stream.statistics, before, strict=True):
        np.testing.assert_array_equal(one.moments.first, copy)
    (first, one), (second, two) = states
    assert first.same_kernels(second)
    for a, b in zip(one.statistics, two.statistics, strict=True):
        np.testing.assert_array_equal(a.moments.first, b.moments.first)
    assert one.n_parts == 2
    assert one.seen == 400.0
