"""Maps of features: inverses, slopes, planted shapes, and models exact in the user's units."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.interpolate import CubicHermiteSpline
from scipy.stats import norm, yeojohnson

from pskem import SharedKernelClassifier
from pskem.margins import Margins, Power, Quantiles, fit_margins

MAPS = {
    "log to the right": Power(1.0, 2.0, 0.0),
    "root": Power(-3.0, 0.5, 0.4),
    "nothing": Power(0.0, 1.0, 1.0),
    "to the left": Power(2.0, 1.0, 2.0),
    "quantiles": Quantiles(np.array([-5.0, -1.0, 0.0, 0.2, 8.0]), np.array([-2, -1, 0, 1, 2.0])),
}


@pytest.mark.parametrize("margin", MAPS.values(), ids=MAPS)
def test_a_map_is_one_of_the_whole_line(margin):
    x = np.linspace(-50.0, 50.0, 4001)
    z = margin.forward(x)
    assert (np.diff(z) > 0.0).all()
    np.testing.assert_allclose(margin.inverse(z), x, atol=1e-9)
    far = np.array([-100.0, 100.0])
    np.testing.assert_allclose(margin.forward(margin.inverse(far)), far, rtol=1e-8)
    step = 1e-5
    slope = (margin.forward(x + step) - margin.forward(x - step)) / (2.0 * step)
    smooth = np.abs(x[:, None] - getattr(margin, "values", np.zeros(1))).min(axis=1) > 1e-3
    np.testing.assert_allclose(np.exp(margin.log_slope(x))[smooth], slope[smooth], rtol=1e-5)
    assert np.isnan(margin.forward(np.array([np.nan]))).all()
    assert np.isnan(margin.inverse(np.array([np.nan]))).all()


def test_yeo_and_johnsons_formula():
    u, p = np.array([-3.0, -0.5, 0.0, 0.5, 3.0]), 0.3
    size = 1.0 + np.abs(u)
    expected = np.where(u < 0.0, -(size ** (2 - p) - 1) / (2 - p), (size**p - 1) / p)
    np.testing.assert_allclose(Power(0.0, 1.0, p).forward(u), expected, rtol=1e-12)


def test_between_knots_a_quantile_map_is_the_spline_of_scipy():
    margin = MAPS["quantiles"]
    spline = CubicHermiteSpline(margin.values, margin.scores, margin.slopes)
    x = np.linspace(-5.0, 8.0, 1000)
    np.testing.assert_allclose(margin.forward(x), spline(x), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.exp(margin.log_slope(x)), spline.derivative()(x), rtol=1e-10)


@pytest.mark.parametrize("power", [0.2, 0.7, 1.6])
def test_the_exponent_is_that_of_scipy(rng, power):
    """One class, and a power about the median: scipy has the same likelihood of one Gaussian."""
    x = Power(0.0, 1.0, power).inverse(rng.standard_normal(4000))
    (margin,) = fit_margins(x[:, None], np.zeros(4000, dtype=int), None).maps
    assert isinstance(margin, Power)
    _, expected = yeojohnson((x - margin.centre) / margin.spread)
    assert margin.exponent == pytest.approx(expected, abs=0.01)


def test_features_are_mapped_each_by_itself(rng):
    """Gaps and other features change nothing."""
    y = rng.integers(2, size=400)
    X = np.exp(rng.standard_normal((400, 3)) + y[:, None])
    X[rng.random(X.shape) < 0.2] = np.nan
    together = fit_margins(X, y, None).maps
    for i in range(3):
        seen = ~np.isnan(X[:, i])
        (alone,) = fit_margins(X[seen, i : i + 1], y[seen], None).maps
        assert alone == together[i] or np.allclose(
            alone.forward(X[seen, i]), together[i].forward(X[seen, i]), rtol=1e-9
        )


def test_what_is_gaussian_stays_as_it_is(rng):
    y = rng.integers(3, size=600)
    X = rng.standard_normal((600, 2)) + y[:, None]
    assert fit_margins(X, y, None).maps == (None, None)
    few = rng.integers(4, size=(600, 1)).astype(float)
    assert fit_margins(few, y, None).maps == (None,)


@pytest.mark.parametrize("side", [1.0, -1.0])
def test_planted_skew_is_taken_out(rng, side):
    y = rng.integers(2, size=2000)
    x = side * np.exp(rng.standard_normal(2000) + y)
    (margin,) = fit_margins(x[:, None], y, None).maps
    z = margin.forward(x)
    for j in range(2):
        own = z[y == j]
        own = (own - own.mean()) / own.std()
        assert abs((own**3).mean()) < 0.25


def test_heavy_tails_are_drawn_in_by_quantiles(rng):
    y = np.zeros(3000, dtype=int)
    x = rng.standard_t(1.5, size=3000)
    (margin,) = fit_margins(x[:, None], y, None).maps
    assert isinstance(margin, Quantiles)
    z = margin.forward(x)
    assert abs(((z - z.mean()) ** 4).mean() / z.var() ** 2 - 3.0) < 0.5


def test_units_do_not_matter(rng):
    y = rng.integers(2, size=500)
    x = np.exp(rng.standard_normal(500) + 0.5 * y)
    (one,) = fit_margins(x[:, None], y, None).maps
    (other,) = fit_margins(100.0 + 1e3 * x[:, None], y, None).maps
    np.testing.assert_allclose(other.forward(100.0 + 1e3 * x), one.forward(x), rtol=1e-6)


def test_weights_are_repetitions(rng):
    y = rng.integers(2, size=300)
    x = np.exp(rng.standard_normal(300))
    times = rng.integers(1, 4, size=300)
    (one,) = fit_margins(x[:, None], y, times.astype(float)).maps
    rows = np.repeat(np.arange(300), times)
    (other,) = fit_margins(x[rows, None], y[rows], None).maps
    grid = np.linspace(0.05, 10.0, 50)
    np.testing.assert_allclose(one.forward(grid), other.forward(grid), rtol=0.05)


@pytest.mark.parametrize("far", [1e129, -1e129, 1e300])
def test_a_value_that_is_far_off_is_no_trouble(rng, far):
    x, y = rng.standard_normal(100), np.arange(100) % 2
    x[0] = far
    (margin,) = fit_margins(x[:, None], y, None).maps
    assert margin is None or np.isfinite(margin.forward(x)).all()


@pytest.fixture
def skewed(rng):
    y = rng.integers(2, size=600)
    x = np.exp(0.8 * rng.standard_normal(600) + y)
    return np.column_stack([x, rng.standard_normal(600) + 0.5 * np.log(x)]), y


@pytest.fixture
def mapped(skewed):
    return SharedKernelClassifier(
        margins=True, n_components=2, early_stopping=False, discriminative_iter=0, random_state=0
    ).fit(*skewed)


def test_the_density_is_in_the_units_of_the_data(mapped, skewed):
    X, _ = skewed
    block = mapped.blocks_[0]
    assert block.reading is not None
    Z = block.reading.forward(X)
    by_hand = SharedKernelClassifier(
        n_components=2, early_stopping=False, discriminative_iter=0, random_state=0
    ).fit(Z, skewed[1])
    expected = by_hand.score_samples(Z) + block.reading.log_slopes(X)
    np.testing.assert_allclose(mapped.score_samples(X), expected, rtol=1e-8)
    np.testing.assert_allclose(mapped.predict_proba(X), by_hand.predict_proba(Z), atol=1e-8)


def test_the_density_of_a_feature_integrates_to_one(mapped):
    alone = mapped.model_.marginal([0])
    total, _ = quad(
        lambda x: float(np.exp(alone.log_density(np.array([[x, np.nan]]))[0])),
        -30.0,
        400.0,
        limit=400,
        points=[0.0, 0.5, 1.0, 3.0, 10.0, 40.0],
    )
    assert total == pytest.approx(1.0, abs=2e-3)


def test_traces_are_log_likelihoods_in_the_units_of_the_data(mapped, skewed):
    X, y = skewed
    own = mapped.class_log_likelihood(X)[np.arange(len(y)), y].sum()
    trace = mapped.log_likelihoods_.sum(axis=1)
    assert (np.diff(trace) > -1e-6 * np.abs(trace[1:])).all()
    assert own == pytest.approx(trace[-1], rel=1e-2)


def test_samples_look_like_the_data(mapped, skewed):
    X, y = skewed
    drawn, labels = mapped.sample(20_000, random_state=0)
    for j in range(2):
        ours, theirs = (np.median(part[:, 0]) for part in (drawn[labels == j], X[y == j]))
        assert ours == pytest.approx(theirs, rel=0.1)
    assert np.quantile(drawn[:, 0], 0.001) > -0.5  # hardly anything where there is nothing


def test_imputed_means_are_means(mapped, skewed):
    """Gauss-Hermite against draws of the same model."""
    X, y = skewed
    holes = X[:5].copy()
    holes[:, 0] = np.nan
    found = mapped.impute(holes, y[:5])
    draws = []
    for i in range(5):
        rows, labels = np.repeat(holes[i : i + 1], 20_000, axis=0), np.repeat(y[i], 20_000)
        filled = mapped.impute(rows, labels, method="draw", random_state=i)
        draws.append(filled[:, 0].mean())
    np.testing.assert_allclose(found[:, 0], draws, rtol=0.05)
    np.testing.assert_array_equal(found[:, 1], X[:5, 1])


def test_gaps_are_exact(mapped, skewed):
    X, _ = skewed
    holes = X.copy()
    holes[:, 0] = np.nan
    alone = mapped.model_.marginal([1])
    np.testing.assert_allclose(mapped.score_samples(holes), alone.log_density(X), rtol=1e-9)


def test_maps_help_where_features_are_skewed(rng):
    n = 6000
    y = rng.integers(2, size=n)
    X = np.exp(1.2 * rng.standard_normal((n, 4)) + 0.8 * y[:, None])
    scores = [
        SharedKernelClassifier(covariance_type="full", margins=margins, random_state=0)
        .fit(X[:400], y[:400])
        .score(X[400:], y[400:])
        for margins in (False, True)
    ]
    best = norm.cdf(0.5 * np.sqrt(4 * 0.8**2) / 1.2)
    assert scores[1] > scores[0]
    assert scores[1] > best - 0.04


def test_margins_of_some_features():
    margins = Margins((None, Power(0.0, 1.0, 0.5), None))
    assert margins.at(np.array([0, 2])) is None
    assert margins.at(np.array([1])).maps == (Power(0.0, 1.0, 0.5),)
