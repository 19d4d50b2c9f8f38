"""Displays show what the model holds; the page needs nothing else."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from pskem import (
    PartitionEnsemble,
    SharedKernelClassifier,
    SharedKernelClassifierCV,
    SharedKernelDensity,
)
from pskem.display import (
    KernelImagesDisplay,
    Page,
    Table,
    TraceDisplay,
    WeightsDisplay,
    order_kernels,
)
from pskem.recoding import Recoding

plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _no_window():
    backend = plt.get_backend()
    plt.switch_backend("agg")
    yield
    plt.close("all")
    plt.switch_backend(backend)


def test_traces_are_the_log_likelihoods(fitted):
    display = TraceDisplay.from_estimator(fitted)
    for line, trace in zip(display.ax_.get_lines(), fitted.log_likelihoods_.T, strict=False):
        np.testing.assert_array_equal(line.get_ydata(), trace)
    assert display.ax_.get_legend() is not None
    assert len(display.figure_.axes) == 1


def test_traces_show_validation_and_the_pass_that_was_kept(labelled):
    X, y = labelled
    model = SharedKernelClassifier(n_components=4, early_stopping=True, random_state=0).fit(X, y)
    _, ax = plt.subplots()
    display = TraceDisplay.from_estimator(model, ax=ax)
    assert display.ax_ is ax
    right = display.figure_.axes[1]
    np.testing.assert_array_equal(right.get_lines()[0].get_ydata(), model.validation_scores_)
    assert model.best_iter_ in ax.get_lines()[-1].get_xdata()


def test_traces_of_a_density(labelled):
    model = SharedKernelDensity(n_components=3, random_state=0).fit(labelled[0])
    display = TraceDisplay.from_estimator(model)
    np.testing.assert_array_equal(
        display.ax_.get_lines()[0].get_ydata(), np.ravel(model.log_likelihoods_)
    )


def test_kernels_are_ordered_by_class_and_weight():
    weights = np.array([[0.1, 0.6, 0.3, 0.0], [0.5, 0.1, 0.0, 0.4]])
    assert order_kernels(weights).tolist() == [1, 2, 0, 3]


def test_weights_are_drawn_as_they_are(fitted):
    display = WeightsDisplay.from_estimator(fitted, block=1)
    (image,) = display.ax_.get_images()
    weights = fitted.blocks_[1].weights
    np.testing.assert_array_equal(image.get_array(), weights[:, order_kernels(weights)])
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == ["0", "1", "2"]


@pytest.mark.parametrize("n_blocks", [1, 2])
def test_kernel_images_are_the_means_in_pixels(n_blocks):
    X, y = load_digits(return_X_y=True)
    model = SharedKernelClassifier(
        n_components=12, n_blocks=n_blocks, covariance_type="tied", max_iter=5, tol=0.0
    )
    pipeline = make_pipeline(PCA(10, random_state=0), model).fit(X, y)
    display = KernelImagesDisplay.from_estimator(pipeline, (8, 8), block=n_blocks - 1)
    assert display.images.shape == (12, 8, 8)
    block = pipeline[-1].blocks_[-1]
    back = pipeline[0].transform(display.images.reshape(12, -1))
    np.testing.assert_allclose(back[:, block.features], block.means, atol=1e-8)
    drawn = [ax for ax in display.axes_.flat if ax.get_images()]
    assert len(drawn) == 12
    first = display.order_[0]
    np.testing.assert_array_equal(drawn[0].get_images()[0].get_array(), display.images[first])
    assert re.match(r"0: \d+%", drawn[0].get_title())


def drawn(display):
    """What the three displays show, as one list of arrays."""
    if isinstance(display, TraceDisplay):
        return [display.log_likelihoods, display.validation_scores, display.best_iter]
    parts = [display.weights, display.class_names]
    return [*parts, display.images] if isinstance(display, KernelImagesDisplay) else parts


SHOW = {
    "trace": TraceDisplay.from_estimator,
    "weights": WeightsDisplay.from_estimator,
    "images": lambda estimator: KernelImagesDisplay.from_estimator(estimator, (1, 4)),
}


@pytest.mark.parametrize("show", SHOW.values(), ids=SHOW)
def test_pipelines_and_searches_are_shown_as_the_model_inside(show):
    X, y = load_iris(return_X_y=True)
    model = SharedKernelClassifier(n_components=4, random_state=0)
    chosen = SharedKernelClassifierCV(model, n_components=[4], n_blocks=[1], shrinkage=["auto"])
    bare = drawn(show(model.fit(X, y)))
    scaled = make_pipeline("passthrough", StandardScaler(with_mean=False, with_std=False), model)
    grid = GridSearchCV(scaled, {"sharedkernelclassifier__n_components": [4]}, cv=2)
    for other in (scaled, grid, chosen, make_pipeline(make_pipeline(chosen))):
        for ours, theirs in zip(drawn(show(other.fit(X, y))), bare, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("show", SHOW.values(), ids=SHOW)
def test_what_has_no_kernels_is_refused_with_what_is_accepted(show):
    X, y = load_iris(return_X_y=True)
    unfitted = SharedKernelClassifier()
    for given in (unfitted, make_pipeline(PCA(2), unfitted), SharedKernelClassifierCV()):
        with pytest.raises(NotFittedError):
            show(given)
    accepted = "Give one of SharedKernelClassifier, .*PartitionEnsemble, or a fitted pipeline"
    with pytest.raises(ValueError, match=f"no kernels in a GaussianNB. {accepted}"):
        show(GaussianNB().fit(X, y))
    with pytest.raises(ValueError, match="no kernels in a Pipeline of a GaussianNB"):
        show(make_pipeline(PCA(2), GaussianNB()).fit(X, y))


def test_blocks_of_an_ensemble_are_counted_through_its_members():
    X, y = load_iris(return_X_y=True)
    member = SharedKernelClassifier(n_components=3, n_blocks=2)
    several = make_pipeline(PCA(4), PartitionEnsemble(member, 2, random_state=0)).fit(X, y)
    last = several[-1].estimators_[1]
    np.testing.assert_array_equal(
        WeightsDisplay.from_estimator(several, block=3).weights, last.blocks_[1].weights
    )
    images = KernelImagesDisplay.from_estimator(several, (2, 2), block=3).images
    back = several[0].transform(images.reshape(3, 4))
    np.testing.assert_allclose(back[:, last.blocks_[1].features], last.blocks_[1].means)
    # The other block of the same member stands at its mean.
    expected = last.class_prior_ @ last.blocks_[0].weights @ last.blocks_[0].means
    np.testing.assert_allclose(back[:, last.blocks_[0].features] - expected, 0.0, atol=1e-12)
    with pytest.raises(ValueError, match="block=4 is not there: blocks are 0 to 3"):
        WeightsDisplay.from_estimator(several, block=4)
    with pytest.raises(ValueError, match="2 members has as many traces"):
        TraceDisplay.from_estimator(several)
    assert TraceDisplay.from_estimator(last).log_likelihoods.shape[1] == 2


def test_images_need_steps_that_go_back_and_their_own_shape():
    X, y = load_iris(return_X_y=True)
    model = make_pipeline(Normalizer(), SharedKernelClassifier(n_components=3)).fit(X, y)
    with pytest.raises(ValueError, match="the step 'normalizer', a Normalizer, has no inverse_tr"):
        KernelImagesDisplay.from_estimator(model, (2, 2))
    with pytest.raises(ValueError, match=r"shape=\(3, 3\) does not fit images of 4 pixels"):
        KernelImagesDisplay.from_estimator(model[-1], (3, 3))


def test_a_density_has_one_row_of_weights():
    X = load_iris().data
    density = SharedKernelDensity(n_components=3, random_state=0).fit(X)
    assert WeightsDisplay.from_estimator(density).class_names == ["density"]
    images = KernelImagesDisplay.from_estimator(density, (2, 2)).images
    np.testing.assert_allclose(images.reshape(3, 4), density.means_)


def test_a_page_is_complete_in_itself_and_escapes_what_it_is_given(tmp_path):
    page = Page("Kernels & <classes>")
    page.heading("a < b")
    page.text("<script>alert(1)</script>")
    page.table(Table(["name", "x"], [["<b>", 1], ["ours", 2.5]]), ours=1)
    figure, ax = plt.subplots()
    ax.plot([1, 2])
    page.figure(figure, 'a "caption"')
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<title>Kernels &amp; &lt;classes&gt;</title>" in text
    assert "<script" not in text
    assert "<b>" not in text
    assert "class=ours><td class=text>ours</td><td>2.5</td>" in text
    assert text.count("data:image/png;base64,") == 1
    addresses = re.findall(r'(?:src|href)="([^"]*)', text)
    assert len(addresses) == 1
    assert addresses[0].startswith("data:")
    assert not plt.get_fignums()


def test_images_are_of_views_that_have_images():
    X, y = load_digits(return_X_y=True)
    model = SharedKernelClassifier(random_state=0).fit(X[:300], y[:300])
    recoded = [isinstance(block.reading, Recoding) for block in model.blocks_]
    assert any(recoded)
    shown = KernelImagesDisplay.from_estimator(model, (8, 8))
    assert shown.images.shape[1:] == (8, 8)
    with pytest.raises(ValueError, match=r"reads features as other numbers.* n_views=1"):
        KernelImagesDisplay.from_estimator(model, (8, 8), block=recoded.index(True))
