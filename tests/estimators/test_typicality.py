"""Log densities of samples with gaps, beside those of samples that lack nothing."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chi2
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from pskem import SharedKernelClassifier, SharedKernelDensity
from pskem.typicality import comparable_log_density
from reference import random_covariances


def test_one_gaussian_against_chi_squared(rng):
    """Distances from the mean are chi-squared, with as many degrees as there are features."""
    m, n = 5, 4000
    (P,) = random_covariances(rng, 1, m, 0.5, 2.0)
    X = rng.multivariate_normal(np.zeros(m), P, size=n)
    model = SharedKernelDensity(n_components=1, shrinkage=0.0).fit(X).model_
    (block,) = model.blocks
    mean, P = block.means[0], block.covariances[0]
    holes = X[:1500].copy()
    holes[:, [1, 3]] = np.nan
    seen = [0, 2, 4]
    apart = holes[:, seen] - mean[seen]
    distances = np.einsum("na,ab,nb->n", apart, np.linalg.inv(P[np.ix_(seen, seen)]), apart)
    constant = -0.5 * (m * np.log(2 * np.pi) + np.linalg.slogdet(P)[1])
    expected = constant - 0.5 * chi2(m).ppf(chi2(len(seen)).cdf(distances))
    found = comparable_log_density(model, holes)
    usual = (expected > np.quantile(expected, 0.02)) & (expected < np.quantile(expected, 0.98))
    np.testing.assert_allclose(found[usual], expected[usual], atol=0.35)
    assert np.abs(found - expected)[usual].mean() < 0.1
    # Rows that lack nothing stay as they are.
    np.testing.assert_array_equal(comparable_log_density(model, X), model.log_density(X))


def test_missing_categories_are_gaps_as_well(rng):
    n = 4000
    y = rng.integers(2, size=n)
    colour = np.where(rng.random(n) < 0.2 + 0.6 * y, "red", rng.choice(["blue", "green"], n))
    frame = pd.DataFrame({"x": rng.standard_normal(n) + 2.0 * y, "colour": colour})
    model = SharedKernelClassifier(random_state=0, discriminative_iter=0)
    model.fit(frame[:2000], y[:2000]).set_reference(frame[2000:3000])
    holes = frame[3000:].copy()
    holes.loc[rng.random(1000) < 0.5, "colour"] = None
    lacking = holes["colour"].isna().to_numpy()
    found = model.is_outlier(holes, 0.1)
    assert found[lacking].mean() == pytest.approx(0.1, abs=0.04)
    assert found[~lacking].mean() == pytest.approx(0.1, abs=0.04)


def test_a_rare_value_is_unusual_also_where_nothing_else_is_there(rng):
    n = 5000
    frame = pd.DataFrame(
        {"x": rng.standard_normal(n), "k": np.where(rng.random(n) < 0.5, "a", "b")}
    )
    frame.loc[:19, "k"] = "rare"
    y = rng.integers(2, size=n)
    model = SharedKernelClassifier(random_state=0, discriminative_iter=0).fit(frame, y)
    model.set_reference(frame)
    alone = pd.DataFrame({"x": [np.nan, np.nan], "k": ["rare", "a"]})
    assert model.is_outlier(alone, 0.01).tolist() == [True, False]


def test_images_with_gaps(rng):
    """Where the model is not exact, rows with gaps are outliers less often, never more."""
    images, y = load_digits(return_X_y=True)
    X = PCA(20, random_state=0).fit_transform(images)
    order = rng.permutation(len(X))
    train, one, two = np.split(order, [900, 1350])
    model = SharedKernelClassifier(random_state=0, discriminative_iter=0)
    model.fit(X[train], y[train]).set_reference(X[one])
    holes = X[two].copy()
    holes[:, rng.choice(20, 6, replace=False)] = np.nan
    assert 0.01 < model.is_outlier(holes, 0.1).mean() < 0.15
    assert model.is_outlier(holes + 500.0, 0.1).mean() > 0.99
