"""Transformers of images against SciPy, scikit-learn, loops over pixels and planted slants."""

import numpy as np
import pytest
from scipy import ndimage
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from pskem.preprocessing import Deskew, Downsample, ImageNormalizer, paper_features
from pskem.preprocessing.geometry import measure_slant, straighten


# The checks' data are no images: one row of whatever width will do.
@parametrize_with_checks(
    [
        Deskew(shape=(1, -1)),
        Downsample(factor=1, shape=(1, -1)),
        *(
            ImageNormalizer(scale=scale, standardize=standardize)
            for scale, standardize in [
                ("global", "global"),
                ("image", "pixel"),
                (None, "image"),
                ("global", None),
            ]
        ),
    ]
)
def test_estimator_contract(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)[0]


def moments(image):
    """Centre, and slant mu_11 / mu_02, pixel by pixel."""
    h, w = image.shape
    points = [(i, j, image[i, j]) for i in range(h) for j in range(w)]
    mass = sum(v for _, _, v in points)
    row = sum(i * v for i, _, v in points) / mass
    column = sum(j * v for _, j, v in points) / mass
    mixed = sum((i - row) * (j - column) * v for i, j, v in points)
    return row, column, mixed / sum((i - row) ** 2 * v for i, _, v in points)


def test_slant_is_that_of_a_loop_over_pixels(rng):
    images = rng.random((5, 7, 9))
    slant = measure_slant(images)
    for i, image in enumerate(images):
        expected = moments(image)
        np.testing.assert_allclose([part[i] for part in slant], expected, rtol=1e-10)


def blob(size, shear, centre):
    """A Gaussian blob on a grid, leaning by so many columns per row, far from the border."""
    i, j = np.mgrid[:size, :size] - np.reshape(centre, (2, 1, 1))
    return np.exp(-0.5 * (i**2 / 9.0 + (j - shear * i) ** 2 / 2.0))


@pytest.mark.parametrize("shear", [-0.8, 0.0, 0.35])
def test_a_planted_slant_is_found_and_removed(shear):
    image = blob(41, shear, (17.0, 22.5))
    slant = measure_slant(image[None])
    np.testing.assert_allclose(np.ravel(slant), [17.0, 22.5, shear], atol=1e-3)
    upright = Deskew().fit_transform(image.reshape(1, -1)).reshape(41, 41)
    np.testing.assert_allclose(np.ravel(measure_slant(upright[None])), [20, 20, 0], atol=1e-3)
    # Linear interpolation blurs a little; shape and place are those of the upright blob.
    assert np.abs(upright - blob(41, 0.0, (20.0, 20.0))).max() < 0.08


def test_deskew_is_scipys_affine_transform(digits):
    images = digits[:200].reshape(-1, 8, 8)
    result = Deskew().fit_transform(digits[:200]).reshape(-1, 8, 8)
    for image, upright in zip(images, result, strict=True):
        row, column, shear = moments(image)
        matrix = np.array([[1.0, 0.0], [shear, 1.0]])
        offset = np.array([row, column]) - matrix @ [3.5, 3.5]
        expected = ndimage.affine_transform(image, matrix, offset, order=1, mode="grid-constant")
        np.testing.assert_allclose(upright, expected, atol=1e-10)


def test_planes_of_a_colour_image_move_together(rng):
    image = rng.random((3, 6, 8))
    result = Deskew(shape=(3, 6, 8)).fit_transform(image.reshape(1, -1)).reshape(3, 6, 8)
    slant = measure_slant(image.sum(axis=0)[None])
    for plane in range(3):
        expected = straighten(image[None, plane][:, None], slant)[0, 0]
        np.testing.assert_array_equal(result[plane], expected)


@pytest.mark.parametrize(
    "image",
    [np.zeros((6, 6)), np.eye(6)[[0]].T @ np.ones((1, 6)), -np.ones((6, 6))],
    ids=["empty", "one row", "negative"],
)
def test_images_without_mass_or_height_stay_finite(image):
    result = Deskew().fit_transform(image.reshape(1, -1))
    assert np.isfinite(result).all()
    assert (result == 0).all() == (image == 0).all()


def test_results_do_not_depend_on_what_else_is_transformed(digits):
    model = Deskew().fit(digits)
    np.testing.assert_array_equal(
        model.transform(digits)[700:703], model.transform(digits[700:703])
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept_and_bytes_become_floats(digits, dtype):
    for model in (Deskew(), ImageNormalizer(), Downsample()):
        assert model.fit_transform(digits.astype(dtype)).dtype == dtype
        exact = model.fit_transform(digits)
        np.testing.assert_array_equal(model.fit_transform(digits.astype(np.uint8)), exact)
        np.testing.assert_allclose(model.fit_transform(digits.astype(dtype)), exact, atol=1e-4)


def test_scaling_is_scikit_learns(digits):
    whole = MinMaxScaler().fit_transform(digits.reshape(-1, 1)).reshape(digits.shape)
    each = MinMaxScaler().fit_transform(digits.T).T
    for scale, expected in (("global", whole), ("image", each), (None, digits)):
        result = ImageNormalizer(scale=scale, standardize=None).fit_transform(digits)
        np.testing.assert_allclose(result, expected, atol=1e-12)


def test_standardising_is_scikit_learns(digits):
    scaled = digits / 16.0
    whole = StandardScaler().fit_transform(scaled.reshape(-1, 1)).reshape(digits.shape)
    pixel = StandardScaler().fit_transform(scaled)
    image = StandardScaler().fit_transform(scaled.T).T
    for standardize, expected in (("global", whole), ("pixel", pixel), ("image", image)):
        result = ImageNormalizer(standardize=standardize).fit_transform(digits)
        np.testing.assert_allclose(result, expected, atol=1e-10)


def test_new_images_are_scaled_by_the_training_images(digits):
    train, test = digits[:1000], 3.0 * digits[1000:]
    model = ImageNormalizer(standardize="pixel").fit(train)
    scaler = StandardScaler().fit(train / 16.0)
    np.testing.assert_allclose(model.transform(test), scaler.transform(test / 16.0), atol=1e-9)


def test_constant_images_and_pixels_become_zero():
    X = np.full((4, 9), 7.0)
    for standardize in ("global", "pixel", "image"):
        assert not ImageNormalizer(standardize=standardize).fit_transform(X).any()
    X = np.vstack([np.full((1, 784), 0.3), np.linspace(0, 1, 784)])
    for dtype in (np.float32, np.float64):
        model = ImageNormalizer(scale=None, standardize="image")
        assert np.abs(model.fit_transform(X.astype(dtype))[0]).max() < 1e-5


def test_downsample_is_the_mean_of_squares_of_pixels(rng):
    images = rng.random((4, 2, 6, 9))
    result = Downsample(3, shape=(2, 6, 9)).fit_transform(images.reshape(4, -1))
    result = result.reshape(4, 2, 2, 3)
    for i in range(2):
        for j in range(3):
            cell = images[:, :, 3 * i : 3 * i + 3, 3 * j : 3 * j + 3]
            np.testing.assert_allclose(result[:, :, i, j], cell.mean(axis=(2, 3)))


def test_names_of_features(digits):
    assert Downsample().fit(digits).get_feature_names_out().tolist()[:2] == [
        "downsample0",
        "downsample1",
    ]
    assert len(Downsample().fit(digits).get_feature_names_out()) == 16
    assert Deskew().fit(digits).get_feature_names_out()[0] == "x0"


@pytest.mark.parametrize(
    ("model", "match"),
    [
        (Deskew(), "10 features, which make no square image"),
        (Deskew(shape=(3, 3)), "does not make the 10 features"),
        (Deskew(shape=28), "shape=28 must be"),
        (Deskew(shape=(2.5, 4)), "must be"),
        (Deskew(shape=(-1, -1)), "of which one may be -1"),
        (Deskew(shape=(1, 1, 1, 10)), "must be"),
        (Downsample(2, shape=(2, 5)), "does not divide"),
        (Downsample(0, shape=(2, 5)), "factor=0"),
        (ImageNormalizer(scale="pixel"), "Accepted: 'global', 'image' or None"),
        (ImageNormalizer(standardize="all"), "Accepted: 'global', 'pixel', 'image' or None"),
    ],
)
def test_errors_name_what_was_given_and_what_is_accepted(model, match):
    with pytest.raises(ValueError, match=match):
        model.fit(np.ones((3, 10)))


def test_paper_features_are_their_steps(digits):
    X = ImageNormalizer().fit_transform(Deskew().fit_transform(digits))
    covariance = np.cov(X.T)
    values, vectors = np.linalg.eigh(covariance)
    expected = (X - X.mean(axis=0)) @ vectors[:, ::-1][:, :12]
    result = paper_features(12).fit_transform(digits)
    signs = np.sign((result * expected).sum(axis=0))
    np.testing.assert_allclose(result, expected * signs, atol=1e-8)
    np.testing.assert_allclose(result.var(axis=0, ddof=1), values[::-1][:12])


def test_paper_features_reach_every_reading(digits):
    pipeline = paper_features(5, deskew=False, half_size=True, scale="image", standardize="pixel")
    assert list(pipeline.named_steps) == ["downsample", "normalize", "pca"]
    assert isinstance(pipeline["pca"], PCA)
    X = MinMaxScaler().fit_transform(Downsample().fit_transform(digits).T).T
    expected = PCA(5).fit_transform(StandardScaler().fit_transform(X))
    np.testing.assert_allclose(np.abs(pipeline.fit_transform(digits)), np.abs(expected), atol=1e-8)
    assert list(paper_features(5).named_steps) == ["deskew", "normalize", "pca"]
