"""Displays show what the model holds; the page needs nothing else."""

import re

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from pskem import SharedKernelClassifier, SharedKernelDensity
from pskem.display._page import Page
from pskem.display._plots import KernelImagesDisplay, TraceDisplay, WeightsDisplay, order_kernels

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
    display = KernelImagesDisplay.from_pipeline(pipeline, (8, 8), block=n_blocks - 1)
    assert display.images.shape == (12, 8, 8)
    block = pipeline[-1].blocks_[-1]
    back = pipeline[0].transform(display.images.reshape(12, -1))
    np.testing.assert_allclose(back[:, block.features], block.means, atol=1e-8)
    drawn = [ax for ax in display.axes_.flat if ax.get_images()]
    assert len(drawn) == 12
    first = display.order_[0]
    np.testing.assert_array_equal(drawn[0].get_images()[0].get_array(), display.images[first])
    assert re.match(r"0: \d+%", drawn[0].get_title())


def test_unfitted_models_are_refused():
    for display in (TraceDisplay, WeightsDisplay):
        with pytest.raises(Exception, match="not fitted"):
            display.from_estimator(SharedKernelClassifier())


def test_a_page_is_complete_in_itself_and_escapes_what_it_is_given(tmp_path):
    page = Page("Kernels & <classes>")
    page.heading("a < b")
    page.text("<script>alert(1)</script>")
    page.table(["name", "x"], [["<b>", 1], ["ours", 2.5]], ours=1)
    figure, ax = plt.subplots()
    ax.plot([1, 2])
    page.figure(figure, 'a "caption"')
    page.write(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<title>Kernels &amp; &lt;classes&gt;</title>" in text
    assert "<script" not in text
    assert "<b>" not in text
    assert "class=ours><td>ours</td><td>2.5</td>" in text
    assert text.count("data:image/png;base64,") == 1
    addresses = re.findall(r'(?:src|href)="([^"]*)', text)
    assert len(addresses) == 1
    assert addresses[0].startswith("data:")
    assert not plt.get_fignums()
