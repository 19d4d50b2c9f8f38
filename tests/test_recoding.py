"""Columns as other numbers: by hand, and marginals against those of other libraries."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal

import pskem
from pskem import SharedKernelClassifier
from pskem.engine import Coordinates, Kernels, mix
from pskem.margins import Margins, Power
from pskem.model import Block
from pskem.recoding import Indicators, Mapped, Recoding, Steps, Turn, fit_parts, fit_turn
from pskem.structures import STRUCTURES

NAN = np.nan


def test_steps_by_hand():
    x = np.array([[0.5], [1.5], [NAN], [9.0]])
    edges = np.array([1.0, 2.0])
    np.testing.assert_array_equal(
        Steps(edges, False).forward(x), [[0, 0], [1, 0], [NAN, NAN], [1, 1]]
    )
    np.testing.assert_array_equal(
        Steps(edges, True).forward(x), [[0, 0, 0], [1, 0, 0], [0, 0, 1], [1, 1, 0]]
    )


def test_categories_by_hand():
    values = np.array([[1.0, 0, 0], [0, 0, 1], [0, 0, 0]])
    np.testing.assert_array_equal(
        Indicators(3, False).forward(values), [[0, 0], [0, 1], [NAN, NAN]]
    )
    np.testing.assert_array_equal(Indicators(3, True).forward(values), values)


def test_parts_follow_from_the_samples(rng):
    X = np.column_stack(
        [
            rng.integers(3, size=200).astype(float),
            rng.standard_normal(200),
            np.full(200, 7.0),
            np.eye(3)[rng.integers(3, size=200)],
            np.eye(2)[rng.integers(2, size=200)],
        ]
    )
    X[5, 1], X[6, 6:] = NAN, 0.0
    few, many, same, whole, gapped = fit_parts(X, None, (3, 2), None, 4)
    np.testing.assert_array_equal(few.edges, [0.5, 1.5])
    assert (few.gaps_tell, many.gaps_tell, same.width) == (False, True, 0)
    shares = np.diff(np.searchsorted(np.sort(X[~np.isnan(X[:, 1]), 1]), [-9.0, *many.edges, 9.0]))
    assert shares.min() >= 39
    assert shares.max() <= 41
    assert (whole, gapped) == (Indicators(3, False), Indicators(2, True))
    # A weight of three is the row three times.
    weights = np.where(X[:, 1] > 1.0, 9.0, 1.0)
    again = fit_parts(np.repeat(X, weights.astype(int), axis=0), None, (3, 2), None, 4)
    weighted, plain = (fit_parts(X, each, (3, 2), None, 4)[1].edges for each in (weights, None))
    np.testing.assert_allclose(weighted, again[1].edges, atol=0.05)
    assert np.abs(weighted - plain).min() > 0.2
    mapped = fit_parts(X[:, :3], None, (), Margins((None, Power(0.0, 1.0, 0.5), None)), None)
    assert mapped[0] == Mapped()
    mean = np.nanmean(Power(0.0, 1.0, 0.5).forward(X[:, 1]))
    assert mapped[1].margin == Power(0.0, 1.0, 0.5)
    np.testing.assert_allclose(mapped[1].forward(X[4:6, 1:2])[1], [mean, 1.0])


def test_an_edge_does_not_hang_on_rounding(rng):
    x = rng.integers(40, size=500) / 7.0
    (part,) = fit_parts(x[:, None], None, (), None, 6)
    distance = np.abs(x[:, None] - part.edges).min()
    assert distance > 0.01


def test_a_turn_whitens_within_classes(rng):
    labels = rng.integers(3, size=20_000)
    root = 0.5 * rng.standard_normal((4, 4)) + 2.0 * np.eye(4)
    numbers = labels[:, None] + rng.standard_normal((20_000, 4)) @ root.T
    turned = fit_turn(numbers, labels, None).forward(numbers)
    within = np.mean([np.cov(turned[labels == j].T) for j in range(3)], axis=0)
    np.testing.assert_allclose(within, np.eye(4), atol=0.1)
    times = rng.integers(1, 4, 20_000)
    one = fit_turn(numbers, labels, times.astype(float))
    other = fit_turn(np.repeat(numbers, times, axis=0), np.repeat(labels, times), None)
    np.testing.assert_allclose(one.matrix, other.matrix, rtol=1e-9)


def test_the_marginal_of_a_turned_block_is_that_of_its_gaussians(rng):
    """Spherical kernels of turned numbers are Gaussians of the numbers with one shape."""
    root = rng.standard_normal((3, 3))
    covariance = root @ root.T + 0.5 * np.eye(3)
    matrix = np.linalg.inv(np.linalg.cholesky(covariance)).T
    reading = Recoding((Mapped(), Mapped(), Mapped()), Turn(rng.standard_normal(3), matrix))
    weights = rng.dirichlet(np.ones(4), size=2)
    means, variances = rng.standard_normal((4, 3)), rng.uniform(0.2, 2.0, 4)
    shift, scale = rng.standard_normal(3), np.full(3, 1.7)
    block = Block(
        np.arange(3),
        Kernels(weights, (means - shift) / scale, variances / 1.7**2),
        Coordinates(shift, scale),
        STRUCTURES["spherical"],
        weights > 0.0,
        reading,
    )
    X = rng.standard_normal((6, 3))
    centres = means @ np.linalg.inv(matrix) + reading.turn.centre
    for kept in ([0, 1, 2], [0, 2], [1]):
        part = block.marginal(np.isin(np.arange(3), kept))
        np.testing.assert_array_equal(part.features, kept)
        found = part.log_densities(part.prepared(np.dtype(np.float64)), X)
        volume = np.linalg.slogdet(part.reading.turn.matrix)[1]
        for k in range(4):
            own = multivariate_normal(
                centres[k, kept], variances[k] * covariance[np.ix_(kept, kept)]
            )
            np.testing.assert_allclose(found[k] + volume, own.logpdf(X[:, kept]), rtol=1e-9)


def test_the_marginal_of_steps(rng):
    reading = Recoding((Steps(np.array([0.0, 1.0]), False), Indicators(3, True), Mapped()))
    np.testing.assert_array_equal(reading.sources, [0, 0, 1, 1, 1, 4])
    kept = reading.at(np.array([0, 4]))
    assert [part.width for part in kept.parts] == [2, 1]
    X = rng.standard_normal((5, 5))
    np.testing.assert_array_equal(kept.forward(X[:, [0, 4]])[:, 2], X[:, 4])


@pytest.fixture
def mixed(rng):
    y = rng.integers(2, size=400)
    frame = pd.DataFrame(
        {
            "x": rng.standard_normal(400) + y,
            "colour": np.where(rng.random(400) < 0.2 + 0.6 * y, "red", "blue"),
            "shape": rng.choice(["round", "square", "long"], 400),
        }
    )
    return frame, y


def test_an_unknown_category_is_a_gap_in_every_view(mixed):
    """It says as little as if the column were not there, whatever the view."""
    frame, y = mixed
    model = SharedKernelClassifier(random_state=0).fit(frame, y)
    assert any(trial["categories_as_numbers"] and trial["exponent"] for trial in model.trials_)
    missing = frame.assign(colour=None)
    unknown = frame.assign(colour="green")
    np.testing.assert_array_equal(model.predict_proba(missing), model.predict_proba(unknown))
    red, blue = (model.predict_proba(frame.assign(colour=c))[:, 1] for c in ("red", "blue"))
    neither = model.predict_proba(missing)[:, 1]
    assert (neither < np.maximum(red, blue)).all()
    assert (neither > np.minimum(red, blue)).all()


def test_a_gap_tells_where_it_did_in_the_training(rng):
    """Values are missing in one class only."""
    y = rng.integers(2, size=400)
    X = rng.standard_normal((400, 2))
    X[(y == 1) & (rng.random(400) < 0.7), 0] = NAN
    model = SharedKernelClassifier(random_state=0).fit(X, y)
    gapped = model.predict_proba([[NAN, 0.0]])[0, 1]
    exact = SharedKernelClassifier(covariance_type="full", random_state=0).fit(X, y)
    assert gapped > 0.8
    assert exact.predict_proba([[NAN, 0.0]])[0, 1] < 0.7


def test_a_model_with_recoded_views_is_saved(mixed, tmp_path):
    frame, y = mixed
    model = SharedKernelClassifier(random_state=0).fit(frame, y)
    kinds = {type(block.reading) for block in model.blocks_}
    assert Recoding in kinds
    pskem.save(model, tmp_path / "m")
    again = pskem.load(tmp_path / "m")
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_a_constant_table_is_no_trouble(rng):
    X, y = np.full((60, 3), 2.0), rng.integers(2, size=60)
    proba = SharedKernelClassifier(random_state=0).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(proba[:, 1], y.mean(), atol=0.1)


def test_densities_of_one_class_mix_over_its_kernels(rng):
    """What ``mix`` sums for a class that is far behind, kernel by kernel."""
    logs = rng.standard_normal((5, 7)) - np.array([0.0, 2e3, 2e3, 5e3, 0.0])[:, None]
    weights = np.array([[0.5, 0, 0, 0, 0.5], [0, 0.3, 0.7, 0, 0], [0, 0, 0, 1.0, 0]])
    with np.errstate(divide="ignore"):
        expected = logsumexp(logs[None] + np.log(weights)[:, :, None], axis=1)
    np.testing.assert_allclose(mix(logs, weights), expected, rtol=1e-12)
