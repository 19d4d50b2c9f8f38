"""Numbers at the ends of floating point: a model as good as of the same numbers in other units,
or one clear error."""

import numpy as np
import pytest

from pskem import SharedKernelClassifier, SharedKernelDensity

REFUSED = r"feature\(s\) {} vary by .* Between 1e-130 and 1e\+130 is accepted; rescale the features"

FORMS = {
    "defaults": {},
    "full": {"n_components": 4},
    "tied": {"n_components": 4, "covariance_type": "tied"},
    "diag": {"n_components": 4, "covariance_type": "diag"},
    "spherical": {"n_components": 4, "covariance_type": "spherical"},
    "blocks": {"n_components": 4, "n_blocks": 2, "partition": "dependence"},
}


@pytest.fixture
def usual(rng):
    """Two classes that an ordinary model tells apart."""
    y = rng.integers(2, size=200)
    return rng.standard_normal((200, 3)) + 4.0 * y[:, None], y


def make(form):
    return SharedKernelClassifier(random_state=0, **FORMS[form])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1e-308, 1e-310, 5e-324, 1e-200, 1e300])
def test_what_cannot_be_squared_is_refused_in_one_sentence(usual, form, size):
    X, y = usual
    with pytest.raises(ValueError, match=REFUSED.format("0.*")) as refused:
        make(form).fit(X * size, y)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("form", [form for form in FORMS if form != "spherical"])
def test_the_feature_is_named(usual, form):
    """Spherical kernels have one scale for all, beside which such a feature is a constant."""
    X, y = usual
    with pytest.raises(ValueError, match=REFUSED.format("2")):
        make(form).fit(X * [1.0, 1.0, 1e-308], y)


@pytest.mark.parametrize("form", FORMS)
def test_small_numbers_among_usual_ones_do_no_harm(usual, form):
    """Near 1e-308 or 0 is the same, beside a spread of one."""
    X, y = usual
    X[::7, 1] = 1e-308 * np.sign(X[::7, 0])
    zeros = np.where(np.abs(X) < 1e-300, 0.0, X)
    one, other = (make(form).fit(values, y) for values in (X, zeros))
    # Samples draw lots by their values, so that other folds may calibrate.
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(zeros), atol=1e-3)
    assert one.score(X, y) > 0.95
    # Nor where a model is asked about them that has seen none.
    plain = make(form).fit(usual[0], y)
    asked = np.full((4, 3), 1e-308)
    np.testing.assert_allclose(
        plain.predict_proba(asked), plain.predict_proba(np.zeros((4, 3))), rtol=1e-9
    )


@pytest.mark.parametrize("size", [1e-120, 1e120])
def test_what_can_be_squared_is_told_apart_as_usual(usual, size):
    X, y = usual
    expected, found = make("full").fit(X, y), make("full").fit(X * size, y)
    np.testing.assert_allclose(found.predict_proba(X * size), expected.predict_proba(X), atol=1e-2)


def test_stored_samples_and_densities_are_refused_too(tmp_path, rng):
    y = rng.integers(2, size=21_000)
    np.save(tmp_path / "X.npy", (rng.standard_normal((21_000, 2)) + 4.0 * y[:, None]) * 1e-308)
    stored = np.load(tmp_path / "X.npy", mmap_mode="r")
    with pytest.raises(ValueError, match=REFUSED.format("0, 1")):
        SharedKernelClassifier(random_state=0).fit(stored, y)
    with pytest.raises(ValueError, match=REFUSED.format("0, 1")):
        SharedKernelDensity(n_components=2, random_state=0).fit(stored)


def test_a_part_of_a_stream_is_refused_too(usual):
    X, y = usual
    with pytest.raises(ValueError, match=REFUSED.format("0, 1, 2")):
        SharedKernelClassifier(random_state=0).partial_fit(X * 1e-308, y, classes=[0, 1])
