"""partial_fit: against closed forms, the whole at once, and itself."""

import copy
import os

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.naive_bayes import GaussianNB

import pskem
from pskem import SharedKernelClassifier, Stepwise
from pskem.datasets import is_present, load_mnist
from pskem.preprocessing import paper_features
from pskem.starts import KMeans, Start
from reference import COVARIANCE_TYPES
from streams import assert_same_bits, bits, gaussians, in_parts

# ---------------------------------------------------------------------------------- closed forms


@pytest.mark.parametrize("sizes", [[600], [200] * 3, [7, 93, 450, 50], 37])
def test_one_gaussian_a_class_is_that_of_all_rows(labelled, sizes):
    X, y = labelled
    model = in_parts(gaussians(), X, y, sizes)
    (block,) = model.blocks_
    for j, row in enumerate(block.weights):
        own, k = X[y == j], row.argmax()
        np.testing.assert_allclose(block.means[k], own.mean(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(block.covariances[k], np.cov(own.T, bias=True), rtol=1e-9)
    joint = np.stack(
        [
            multivariate_normal(X[y == j].mean(axis=0), np.cov(X[y == j].T, bias=True)).logpdf(X)
            + np.log((y == j).mean())
            for j in range(3)
        ],
        axis=1,
    )
    posterior = np.exp(joint - np.logaddexp.reduce(joint, axis=1, keepdims=True))
    np.testing.assert_allclose(model.predict_proba(X), posterior, rtol=1e-7, atol=1e-12)


def test_blocks_of_one_feature_are_naive_bayes(labelled):
    X, y = labelled
    model = in_parts(gaussians(n_blocks=5), X, y, 50)
    other = GaussianNB(var_smoothing=0.0)
    for low in range(0, 600, 50):
        other.partial_fit(X[low : low + 50], y[low : low + 50], classes=[0, 1, 2])
    np.testing.assert_allclose(model.class_prior_, other.class_prior_, rtol=1e-12)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), rtol=1e-7)
    for j in range(3):
        means = [block.means[block.weights[j].argmax(), 0] for block in model.blocks_]
        np.testing.assert_allclose(means, other.theta_[j], rtol=1e-9)
        spread = [block.covariances[block.weights[j].argmax(), 0, 0] for block in model.blocks_]
        np.testing.assert_allclose(spread, other.var_[j], rtol=1e-9)


def test_it_goes_on_from_a_fit(labelled):
    """A fit of the first rows, and parts after it, are all rows."""
    X, y = labelled
    model = gaussians().fit(X[:300], y[:300])
    np.testing.assert_array_equal(model.class_count_, np.bincount(y[:300]))
    for low in (300, 500):
        model.partial_fit(X[low : low + 200], y[low : low + 200])
    expected = in_parts(gaussians(), X, y, [600])
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-6)
    np.testing.assert_array_equal(model.class_count_, np.bincount(y))


def test_memory_weighs_rows_by_their_age(rng):
    """With parts of 100 and a memory of 300, a part is worth 3/4 of the next, once it is full."""
    y = np.tile([0, 1], 500)
    X = rng.standard_normal((1000, 2)) + y[:, None] + np.arange(1000)[:, None] / 100
    model = in_parts(gaussians(n_components=2, stepwise=300.0), X, y, 100)
    worth = np.ones(10)
    total = 100.0
    for i in range(1, 10):
        kept = min(1.0, 300.0 / total)
        worth[:i] *= kept
        total = kept * total + 100.0
    weights = np.repeat(worth, 100)
    (block,) = model.blocks_
    for j, row in enumerate(block.weights):
        expected = np.average(X[y == j], axis=0, weights=weights[y == j])
        np.testing.assert_allclose(block.means[row.argmax()], expected, rtol=1e-9)


# ------------------------------------------------------------------------------------- accuracy


@pytest.mark.parametrize("size", [30, 300, 1500])
def test_a_stream_is_as_accurate_as_a_fit_of_the_whole(overlapping, size):
    X, y, X_new, y_new = overlapping
    whole = SharedKernelClassifier(n_views=1, random_state=0).fit(X, y)
    model = in_parts(SharedKernelClassifier(random_state=0), X, y, size)
    assert model.score(X_new, y_new) > whole.score(X_new, y_new) - 0.01
    loss, least = (log_loss(y_new, one.predict_proba(X_new)) for one in (model, whole))
    assert loss < least + 0.03


def test_discriminative_parts_decide_better_than_em(rng):
    """Far samples of its own class draw the Gaussian of a class away from the others.

    Linear discriminant analysis errs where classes meet; logistic regression does not.
    """
    y = rng.integers(2, size=4000)
    far = (rng.random(4000) < 0.2) & (y == 1)
    X = rng.standard_normal((4000, 2)) + np.where(far, 20.0, 3.0 * y)[:, None] * [1.0, 0.0]
    scores = []
    for settings in ({}, {"discriminative_iter": 0}, {"stepwise": Stepwise(contrast=0.0)}):
        model = SharedKernelClassifier(
            n_components=2, covariance_type="tied", random_state=0, **settings
        )
        scores.append(in_parts(model, X[:3000], y[:3000], 100).score(X[3000:], y[3000:]))
    logistic = LogisticRegression().fit(X[:3000], y[:3000]).score(X[3000:], y[3000:])
    assert scores[0] > logistic - 0.02
    assert scores[1] < scores[0] - 0.05


def test_mnist_after_one_epoch():
    """Within half a point of the fit of all images at once, in parts of 5,000."""
    home = os.environ.get("PSKEM_DATA")
    if not home or not is_present("mnist", home):
        pytest.skip("PSKEM_DATA names no folder that holds mnist")
    images, y = load_mnist(data_home=home, return_X_y=True)
    tests, y_test = load_mnist(data_home=home, subset="test", return_X_y=True)
    encoder = paper_features(40).fit(images)
    X, X_test = encoder.transform(images), encoder.transform(tests)
    model = in_parts(SharedKernelClassifier(random_state=0), X, y, 5000)
    whole = SharedKernelClassifier(random_state=0).fit(X, y)
    assert model.score(X_test, y_test) > whole.score(X_test, y_test) - 0.005
    assert log_loss(y_test, model.predict_proba(X_test)) < 0.05


def moving(rng, n, time):
    """Three classes on a circle that turns by half: class means move to where others were."""
    y = rng.integers(3, size=n)
    angle = 2.0 * np.pi * y / 3.0 + np.pi * time
    return 3.0 * np.stack([np.cos(angle), np.sin(angle)], axis=1) + rng.standard_normal((n, 2)), y


@pytest.mark.parametrize("settings", [{}, {"stepwise": 500.0}, {"discriminative_iter": 0}])
def test_a_drifting_stream_is_followed(rng, settings):
    model = SharedKernelClassifier(random_state=0, **settings)
    steady = SharedKernelClassifier(random_state=0, **{**settings, "stepwise": np.inf})
    scores, behind = [], []
    for time in np.linspace(0.0, 1.0, 40):
        X, y = moving(rng, 100, time)
        if time:
            scores.append(model.score(X, y))
            behind.append(steady.score(X, y))
        model.partial_fit(X, y, classes=[0, 1, 2])
        steady.partial_fit(X, y, classes=[0, 1, 2])
    assert np.mean(scores[-10:]) > 0.95
    assert np.mean(behind[-10:]) < 0.93
    assert model.class_count_.sum() < 1000.0
    assert steady.class_count_.sum() == pytest.approx(4000.0)


def test_an_abrupt_change_is_followed(overlapping):
    """Two classes change places; once a short memory is right, the others are forgotten."""
    X, y, X_new, y_new = overlapping
    model = in_parts(SharedKernelClassifier(random_state=0), X, y, 500)
    steady = SharedKernelClassifier(random_state=0, stepwise=np.inf)
    in_parts(steady, X, y, 500)
    before, swapped = model.class_count_.sum(), np.array([1, 0, 2])
    for low in range(0, 1500, 500):
        rows = slice(low, low + 500)
        model.partial_fit(X_new[rows], swapped[y_new[rows]])
        steady.partial_fit(X_new[rows], swapped[y_new[rows]])
    assert model.class_count_.sum() < before
    rest = X_new[1500:], swapped[y_new[1500:]]
    assert model.score(*rest) > steady.score(*rest) + 0.1


def test_answers_before_learning_calibrate(rng):
    """Blocks that say the same twice are too sure of themselves, unless answers tell."""
    y = rng.integers(2, size=6000)
    x = rng.standard_normal((6000, 1)) + y[:, None]
    X = np.hstack([x, x + 0.01 * rng.standard_normal((6000, 1))])
    model = SharedKernelClassifier(
        n_components=2, n_blocks=2, discriminative_iter=0, random_state=0
    )
    in_parts(model, X[:3000], y[:3000], 250)
    blind = clone(model).set_params(block_weights=None)
    in_parts(blind, X[:3000], y[:3000], 250)
    losses = [log_loss(y[3000:], one.predict_proba(X[3000:])) for one in (model, blind)]
    truth = 1.0 / (1.0 + np.exp(0.5 - x[3000:, 0]))  # of two unit Gaussians at 0 and 1
    assert losses[0] < log_loss(y[3000:], truth) + 0.01
    assert losses[0] < losses[1] - 0.02
    np.testing.assert_array_equal(blind.block_weights_, [1.0, 1.0])


def test_answers_before_learning_tell_outliers(overlapping):
    X, y, X_new, _ = overlapping
    model = in_parts(SharedKernelClassifier(random_state=0), X, y, 300)
    assert 100 < len(model.reference_log_densities_) <= 1001
    assert model.is_outlier(X_new, 0.05).mean() == pytest.approx(0.05, abs=0.03)
    assert model.is_outlier(X_new + 50.0).all()


# ---------------------------------------------------------------------------- classes and labels


def test_classes_may_come_later(overlapping):
    X, y, X_new, y_new = overlapping
    order = np.argsort(y, kind="stable")
    model = SharedKernelClassifier(random_state=0)
    first = order[:300]
    model.partial_fit(X[first], y[first], classes=[0, 1, 2])
    assert model.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(model.class_prior_, [1.0, 0.0, 0.0])
    np.testing.assert_array_equal(model.predict_proba(X_new[:5]), [[1.0, 0.0, 0.0]] * 5)
    for low in range(300, len(X), 300):
        part = order[low : low + 300]
        model.partial_fit(X[part], y[part])
    whole = SharedKernelClassifier(n_views=1, random_state=0).fit(X, y)
    np.testing.assert_allclose(model.class_prior_, np.bincount(y) / len(y))
    assert model.score(X_new, y_new) > whole.score(X_new, y_new) - 0.03


@pytest.mark.parametrize("settings", [{"init": KMeans(), "n_components": 6}, {"n_components": 9}])
def test_classes_may_come_later_whatever_the_kernels(overlapping, settings):
    """Shared kernels take in a class as they are; else it brings as many as others have."""
    X, y, X_new, y_new = overlapping
    model = SharedKernelClassifier(random_state=0, **settings)
    first = np.flatnonzero(y[:400] != 2)
    model.partial_fit(X[first], y[first], classes=[0, 1, 2])
    assert model.class_prior_[2] == 0.0
    for low in range(400, len(X), 200):
        model.partial_fit(X[low : low + 200], y[low : low + 200])
    shared = isinstance(model.init, KMeans)
    assert len(model.blocks_[0].means) == (6 if shared else 13)
    assert model.score(X_new, y_new) > 0.8


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("covariance_type", ["auto", *COVARIANCE_TYPES])
def test_tiny_parts(size, covariance_type):
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(150)
    X, y = X[order] * [1e-5, 1.0, 1e5, 1.0] + [0.0, 1e4, 0.0, -3.0], y[order]
    model = SharedKernelClassifier(covariance_type=covariance_type, random_state=0)
    least = 0.8 if covariance_type == "spherical" else 0.93
    assert in_parts(model, X, y, size).score(X, y) > least


def test_units_do_not_matter_where_features_begin_constant(overlapping):
    """The coordinates of the first part, in which a feature did not vary, are no fate."""
    X, y, X_new, y_new = overlapping
    X = X.copy()
    X[:50, 1] = 0.0
    scores = []
    for unit in (1e-8, 1.0, 1e8):
        units = np.array([1.0, unit, 1.0, 1.0])
        model = in_parts(SharedKernelClassifier(random_state=0), X * units, y, [50, *[295] * 10])
        scores.append(model.score(X_new * units, y_new))
    assert min(scores) > max(scores) - 0.02
    assert min(scores) > 0.8


def test_labels_and_classes_are_checked(labelled):
    X, y = labelled
    model = SharedKernelClassifier(random_state=0)
    with pytest.raises(ValueError, match=r"class\(es\) \[2\] that are not among .* \[0, 1\]"):
        model.partial_fit(X, y, classes=[0, 1])
    model.partial_fit(X, y)
    assert model.classes_.tolist() == [0, 1, 2]
    model.partial_fit(X, y, classes=[2, 1, 0])
    with pytest.raises(ValueError, match=r"classes=\[0, 1, 2, 3\] are not those of the first call"):
        model.partial_fit(X, y, classes=[0, 1, 2, 3])
    with pytest.raises(ValueError, match=r"class\(es\) \[5\] that are not among"):
        model.partial_fit(X, np.full(len(y), 5))
    with pytest.raises(ValueError, match="5 features as input"):
        model.partial_fit(X[:, :4], y)
    with pytest.raises(ValueError, match="'balanced' needs all samples at once"):
        SharedKernelClassifier(class_weight="balanced").partial_fit(X, y)
    given = Start(weights=np.full((3, 6), 1 / 6))
    with pytest.raises(ValueError, match=r"all classes must be in the first part; \[2\] are not"):
        SharedKernelClassifier(init=given, n_components=6).partial_fit(
            X[y < 2], y[y < 2], classes=[0, 1, 2]
        )


def test_a_class_may_stay_away_for_long(rng):
    """Until nothing is left of what its samples count."""

    def draw(classes):
        y = rng.choice(classes, 60)
        return rng.standard_normal((60, 4)) + 1.5 * y[:, None], y

    model = SharedKernelClassifier(random_state=0, stepwise=1.0, covariance_type="full")
    model.partial_fit(*draw([0, 1, 2]))
    for _ in range(200):
        model.partial_fit(*draw([0, 1]))
    assert 0.0 < model.class_count_[2] < 1e-90
    for _ in range(3):
        model.partial_fit(*draw([0, 1, 2]))
    assert model.score(*draw([0, 1, 2])) > 0.85
    assert ((model.blocks_[0].weights > 0.0).sum(axis=0) == 1).all(), "its kernels are its own"


def test_values_that_cannot_be_squared_are_refused(overlapping):
    X, y, X_new, y_new = overlapping
    model = SharedKernelClassifier(random_state=0).partial_fit(X[:500], y[:500])
    for size in (1e200, 1e160):
        strange = X[500:1000].copy()
        strange[7, 2] = size
        with pytest.raises(ValueError, match=r"leave the range of floating point: .* in feature 2"):
            model.partial_fit(strange, y[500:1000])
    model.partial_fit(X[500:1000], y[500:1000])
    assert model.score(X_new, y_new) > 0.7
    strange[7, 2] = 1e100
    model.partial_fit(strange, y[500:1000])
    assert np.isfinite(model.predict_log_proba(X_new)).all()
    model.partial_fit(X[1000:], y[1000:])


def test_parts_are_in_memory(labelled, tmp_path):
    X, y = labelled
    path = tmp_path / "table.csv"
    pd.DataFrame(X).add_prefix("x").assign(y=y).to_csv(path, index=False)
    stored = pskem.open_table(path, target="y")
    for wrong, name in ((stored, "FileTable"), (path, type(path).__name__), (str(path), "str")):
        with pytest.raises(ValueError, match=f"X is a {name}.*read one part at a time"):
            SharedKernelClassifier().partial_fit(wrong, y)


def test_a_first_part_of_many_rows_decides_by_lots(rng):
    """As a fit of as many: what is held out does not hang on the order of rows."""
    y = rng.integers(2, size=20_500)
    X = rng.standard_normal((20_500, 3)) + y[:, None]
    order = rng.permutation(len(X))
    settings = {"n_components": 4, "max_iter": 5, "random_state": 0}
    one = SharedKernelClassifier(**settings).partial_fit(X, y)
    two = SharedKernelClassifier(**settings).partial_fit(X[order], y[order])
    assert_same_bits(bits(one), bits(two))
    np.testing.assert_allclose(one.class_count_, np.bincount(y), rtol=1e-12)
    fitted = SharedKernelClassifier(**settings).fit(X, y)
    np.testing.assert_allclose(fitted.class_count_, np.bincount(y), rtol=1e-12)
    np.testing.assert_array_equal(one.predict_proba(X), fitted.predict_proba(X))


def test_a_part_that_is_refused_changes_nothing(labelled):
    X, y = labelled
    model = SharedKernelClassifier(random_state=0).partial_fit(X, y)
    before, stream = model.model_, model.stream_
    for bad in ((X[:, :4], y), (X, y + 1), (np.full_like(X, np.inf), y)):
        with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
            model.partial_fit(*bad)
    assert model.model_ is before
    assert model.stream_ is stream
    assert model.n_features_in_ == 5


def test_priors_are_those_of_the_stream_or_given_ones(labelled):
    X, y = labelled
    few = np.flatnonzero((y > 0) | (np.arange(600) % 5 == 0))
    X, y = X[few], y[few]
    model = in_parts(SharedKernelClassifier(random_state=0), X, y, 100)
    np.testing.assert_allclose(model.class_prior_, np.bincount(y) / len(y))
    for priors in ("uniform", {0: 0.2, 1: 0.3, 2: 0.5}):
        model = in_parts(SharedKernelClassifier(priors=priors, random_state=0), X, y, 100)
        expected = np.full(3, 1 / 3) if priors == "uniform" else [0.2, 0.3, 0.5]
        np.testing.assert_allclose(model.class_prior_, expected)
    weighted = SharedKernelClassifier(class_weight={0: 3.0}, random_state=0)
    masses = np.bincount(y) * [3.0, 1.0, 1.0]
    found = in_parts(weighted, X, y, 100).class_prior_
    np.testing.assert_allclose(found, masses / masses.sum())


# ------------------------------------------------------------------------------ data as they come


def test_weights_are_repeats_and_zero_is_absent(labelled, rng):
    X, y = labelled
    times = rng.integers(0, 3, 600)
    weighted = in_parts(SharedKernelClassifier(random_state=0), X, y, 150, times)
    repeated = SharedKernelClassifier(random_state=0)
    for low in range(0, 600, 150):
        rows = np.repeat(np.arange(low, low + 150), times[low : low + 150])
        repeated.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
    found, expected = weighted.predict_proba(X), repeated.predict_proba(X)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_weights_have_one_unit_in_all_parts(labelled):
    """Those of the first part, below one, are scaled up; later ones alike."""
    X, y = labelled
    weights = np.where(np.arange(600) < 300, 0.5, 0.25)
    small = in_parts(gaussians(), X, y, 300, weights)
    usual = in_parts(gaussians(), X, y, 300, 2.0 * weights)
    np.testing.assert_allclose(small.predict_proba(X), usual.predict_proba(X), rtol=1e-9)
    assert small.class_count_.sum() == pytest.approx(450.0)


@pytest.mark.parametrize("covariance_type", ["auto", "diag"])
def test_gaps(overlapping, rng, covariance_type):
    X, y, X_new, y_new = overlapping
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    new = np.where(rng.random(X_new.shape) < 0.2, np.nan, X_new)
    settings = {"covariance_type": covariance_type, "random_state": 0}
    model = in_parts(SharedKernelClassifier(**settings), holes, y, 300)
    whole = SharedKernelClassifier(n_views=1, random_state=0).fit(holes, y)
    if covariance_type == "auto":
        assert model.score(new, y_new) > whole.score(new, y_new) - 0.02
    assert np.isfinite(model.predict_log_proba(new)).all()


def test_rows_without_a_class_count_by_their_posteriors(rng):
    """Classes that lie far apart: posteriors are the classes, and rows count as if these were told.

    Where they are not learnt from, as if they were not there.
    """
    y = rng.integers(3, size=900)
    X = rng.standard_normal((900, 2)) + 20.0 * np.eye(3, 2)[y]
    hidden = rng.random(900) < 0.8
    labels = np.where(hidden, None, y)
    for weight, told in ((1.0, y >= 0), (0.0, ~hidden)):
        model = gaussians(unlabelled_weight=weight)
        for low in range(0, 900, 100):
            model.partial_fit(X[low : low + 100], labels[low : low + 100], classes=[0, 1, 2])
        (block,) = model.blocks_
        np.testing.assert_allclose(model.class_count_, np.bincount(y[told]), rtol=1e-9)
        for j, row in enumerate(block.weights):
            expected = X[told & (y == j)].mean(axis=0)
            np.testing.assert_allclose(block.means[row.argmax()], expected, rtol=1e-7, atol=1e-7)


def test_how_much_rows_without_a_class_count_is_settled_once(overlapping):
    X, y, _, _ = overlapping
    labels = y.astype(object)
    labels[300:550] = None
    model = SharedKernelClassifier(random_state=0).partial_fit(X[:300], labels[:300])
    assert model.unlabelled_weight_ is None
    model.partial_fit(X[300:600], labels[300:600])
    settled = model.unlabelled_weight_
    assert settled is not None
    model.partial_fit(X[600:900], labels[600:900])
    assert model.unlabelled_weight_ == settled
    with pytest.raises(ValueError, match="y has no class at all"):
        model.partial_fit(X[:5], [None] * 5)


@pytest.fixture
def mixed(rng):
    """Numbers and texts, and classes that follow from both."""
    y = rng.integers(2, size=900)
    colour = np.array(["red", "green", "blue"])[(y + (rng.random(900) < 0.3)) % 3]
    shape = np.array(["round", "square"])[(y + (rng.random(900) < 0.4)) % 2]
    size = rng.standard_normal(900) + y
    return pd.DataFrame({"colour": colour, "size": size, "shape": shape}), y


def test_categories_are_learnt_in_the_first_part(mixed):
    table, y = mixed
    model = in_parts(SharedKernelClassifier(random_state=0), table[:600], y[:600], 100)
    whole = SharedKernelClassifier(n_views=1, random_state=0).fit(table[:600], y[:600])
    assert model.score(table[600:], y[600:]) > whole.score(table[600:], y[600:]) - 0.03
    strange, gap = table[:50].assign(colour="pink"), table[:50].assign(colour=None)
    one, two = (copy.deepcopy(model).partial_fit(part, y[:50]) for part in (strange, gap))
    found, expected = one.predict_proba(table), two.predict_proba(table)
    np.testing.assert_array_equal(found, expected)


def test_single_precision(overlapping):
    X, y, X_new, y_new = overlapping
    single = in_parts(SharedKernelClassifier(random_state=0), X.astype(np.float32), y, 300)
    double = in_parts(SharedKernelClassifier(random_state=0), X, y, 300)
    assert abs(single.score(X_new, y_new) - double.score(X_new, y_new)) < 0.02
    assert single.stream_.statistics[0].moments.first.dtype == np.float64


# --------------------------------------------------------------------- same bits, and no surprises


@pytest.mark.usefixtures("threaded")
def test_same_bits_for_every_number_of_threads_and_order_of_rows(overlapping, rng):
    X, y, _, _ = overlapping
    order = np.concatenate([low + rng.permutation(500) for low in range(0, 3000, 500)])
    expected = bits(in_parts(SharedKernelClassifier(random_state=0, n_jobs=1), X, y, 500))
    threads = in_parts(SharedKernelClassifier(random_state=0, n_jobs=3), X, y, 500)
    assert_same_bits(bits(threads), expected)
    shuffled = in_parts(SharedKernelClassifier(random_state=0), X[order], y[order], 500)
    assert_same_bits(bits(shuffled), expected)


def test_what_was_taken_before_keeps_its_bits(overlapping):
    X, y, X_new, _ = overlapping
    model = in_parts(SharedKernelClassifier(random_state=0), X[:1500], y[:1500], 300)
    shallow, deep, value, stream = (
        copy.copy(model),
        copy.deepcopy(model),
        model.model_,
        model.stream_,
    )
    before, answers = bits(model), model.predict_proba(X_new)
    held = value.log_posterior(X_new)
    sums = [np.copy(part) for one in stream.statistics for part in one.moments[:2]]
    in_parts(model, X[1500:], y[1500:], 300)
    assert not np.array_equal(model.predict_proba(X_new), answers)
    for taken in (shallow, deep):
        assert_same_bits(bits(taken), before)
        np.testing.assert_array_equal(taken.predict_proba(X_new), answers)
    np.testing.assert_array_equal(value.log_posterior(X_new), held)
    assert_same_bits([part for one in stream.statistics for part in one.moments[:2]], sums)
    in_parts(deep, X[1500:], y[1500:], 300)
    assert_same_bits(bits(deep), bits(model))
    with pytest.raises(ValueError, match="read-only"):
        model.stream_.statistics[0].masses[:] = 0.0


def test_a_loaded_model_goes_on_with_the_same_bits(mixed, tmp_path):
    table, y = mixed
    table = table.assign(size=table["size"].where(np.arange(900) % 7 > 0))
    model = in_parts(SharedKernelClassifier(random_state=0), table[:600], y[:600], 200)
    pskem.save(model, tmp_path / "stream.pskem")
    loaded = pskem.load(tmp_path / "stream.pskem", SharedKernelClassifier)
    for one in (model, loaded):
        one.partial_fit(table[600:], y[600:])
    assert_same_bits(bits(loaded), bits(model))
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    assert loaded.stream_.origin == model.stream_.origin


def test_fit_begins_anew(labelled):
    X, y = labelled
    model = in_parts(SharedKernelClassifier(random_state=0, n_views=1), X, y, 200)
    model.fit(X, y)
    assert not hasattr(model, "stream_")
    expected = SharedKernelClassifier(random_state=0, n_views=1).fit(X, y)
    assert_same_bits(bits(model), bits(expected))


def test_a_product_of_several_views_goes_on(overlapping):
    """Views that read numbers otherwise stay; the others learn, and answers weigh them anew."""
    X, y, X_new, y_new = overlapping
    model = SharedKernelClassifier(random_state=0).fit(X[:150], y[:150])
    before = model.score(X_new, y_new)
    views = model.n_views_
    assert views > 1
    stays = [one is None for one in model.partial_fit(X[150:300], y[150:300]).stream_.statistics]
    assert any(stays)
    assert not all(stays)
    for low in range(300, 3000, 150):
        model.partial_fit(X[low : low + 150], y[low : low + 150])
    assert model.n_views_ == views
    assert model.score(X_new, y_new) > before


def test_what_a_stream_has_is_told(overlapping):
    X, y, _, _ = overlapping
    model = in_parts(SharedKernelClassifier(random_state=0), X, y, 300)
    assert model.stream_.n_parts == 10
    assert model.stream_.seen == 3000.0
    np.testing.assert_allclose(model.class_count_, np.bincount(y))
    assert model.n_iter_ > 0
    assert model.trials_ == []
