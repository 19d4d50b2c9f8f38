"""Going on from the last fit."""

import numpy as np
import pandas as pd
import pytest

from reference import plain


def test_warm_start_goes_on(labelled):
    X, y = labelled
    settings = {"n_components": 6, "n_blocks": 2, "partition": "random", "tol": 0}
    whole = plain(max_iter=12, random_state=0, **settings).fit(X, y)
    parts = plain(max_iter=5, random_state=0, warm_start=True, **settings)
    parts.fit(X, y)
    first = parts.log_likelihoods_
    parts.set_params(max_iter=7).fit(X, y)
    trace = np.vstack([first, parts.log_likelihoods_])
    np.testing.assert_allclose(trace, whole.log_likelihoods_, rtol=1e-9)
    np.testing.assert_allclose(parts.blocks_[0].means, whole.blocks_[0].means, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n_components": 7}, r"n_components of the last fit, \[5, 5\], not \[7, 7\]"),
        ({"covariance_type": "diag"}, "covariance_type of the last fit, 'full', not 'diag'"),
        ({"n_blocks": 1}, "number of blocks of the last fit, 2, not 1"),
        (
            {"partition": "interleaved"},
            r"the blocks of the last fit, \[\[0, 1, 2\],",
        ),
        ({"partition": "random", "n_blocks": 3}, "number of blocks of the last fit, 2, not 3"),
    ],
)
def test_warm_start_with_other_settings_is_refused(fitted, labelled, change, message):
    X, y = labelled
    fitted.set_params(warm_start=True, **change)
    with pytest.raises(ValueError, match=message):
        fitted.fit(X, y)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_warm_start_revives_weights_that_underflowed(rng, dtype):
    """On new data a class may need a kernel that was out of its reach before."""
    where = np.repeat([0, 1], 50)
    X = (rng.standard_normal((100, 2)) + 60.0 * where[:, None]).astype(dtype)
    model = plain(n_components=2, random_state=0, warm_start=True).fit(X, where)
    np.testing.assert_array_equal(np.sort(model.blocks_[0].weights), [[0.0, 1.0]] * 2)
    model.fit(X, np.tile([0, 1], 50))
    np.testing.assert_allclose(model.blocks_[0].weights, 0.5, atol=1e-6)


def test_warm_start_on_data_of_another_scale(rng):
    X, y = rng.standard_normal((40, 2)), np.repeat([0, 1], 20)
    model = plain(n_components=1, random_state=0, warm_start=True)
    model.fit(1e60 * X, y)
    with pytest.raises(ValueError, match="The last fit, from which warm_start=True goes on, puts"):
        model.fit(1e-100 * X, y)


def test_warm_start_with_other_columns_is_refused(labelled):
    X, y = labelled
    table = pd.DataFrame(X, columns=list("abcde"))
    model = plain(n_components=3, random_state=0, warm_start=True).fit(table, y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(table.rename(columns={"a": "z"}), y)
    with pytest.raises(ValueError, match="feature names should match"):
        model.fit(table.drop(columns="e"), y)
    np.testing.assert_array_equal(model.feature_names_in_, list("abcde"))


def test_warm_start_with_other_classes_is_refused(fitted, labelled):
    X, y = labelled
    with pytest.raises(ValueError, match=r"needs the classes of the last fit, \[0, 1, 2\]"):
        fitted.set_params(warm_start=True).fit(X, y + 1)
