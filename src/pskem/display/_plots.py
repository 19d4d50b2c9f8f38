"""Pictures of a fitted model, as scikit-learn's displays: ``from_estimator``, then ``plot``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from pskem.display._fitted import take_apart
from pskem.recoding import Recoding
from pskem.structures import FloatArray

__all__ = ["KernelImagesDisplay", "TraceDisplay", "WeightsDisplay", "order_kernels"]

#: Images in a row.
COLUMNS = 10
#: Blocks beyond which a legend is no help.
LEGEND_ENTRIES = 10


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Plots need matplotlib: pip install 'pskem[plot]'.") from None
    return plt


class AxesDisplay(ABC):
    """A display that fits into one pair of axes."""

    def plot(self, ax: Any = None) -> Self:
        """Draw into given matplotlib axes, or new ones."""
        self.ax_ = _pyplot().subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    @abstractmethod
    def _draw(self, ax: Any) -> None: ...


class TraceDisplay(AxesDisplay):
    """Log likelihood, pass by pass, and the validation accuracy if there was one.

    Parameters
    ----------
    log_likelihoods : ndarray of shape (n_iter, n_blocks)
    validation_scores : ndarray of shape (n_iter,)
        May be empty.
    best_iter : int
        The pass that was kept, counted from 1.

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(
        self, *, log_likelihoods: FloatArray, validation_scores: FloatArray, best_iter: int
    ) -> None:
        self.log_likelihoods = log_likelihoods
        self.validation_scores = validation_scores
        self.best_iter = best_iter

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Any = None) -> Self:
        """From a fitted classifier or density.

        Parameters
        ----------
        estimator : SharedKernelClassifier, SharedKernelClassifierCV or SharedKernelDensity
            Or a fitted pipeline or search of one. An ensemble has a trace for each member:
            give one of its ``estimators_``.
        ax : matplotlib Axes or None, default=None
        """
        models = take_apart(estimator).models
        if len(models) > 1:
            raise ValueError(
                f"An ensemble of {len(models)} members has as many traces. Give one of its"
                " estimators_."
            )
        (model,) = models
        return cls(
            log_likelihoods=np.reshape(model.log_likelihoods_, (model.n_iter_, -1)),
            validation_scores=getattr(model, "validation_scores_", np.empty(0)),
            best_iter=getattr(model, "best_iter_", model.n_iter_),
        ).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        passes = np.arange(1, len(self.log_likelihoods) + 1)
        n_blocks = self.log_likelihoods.shape[1]
        for r, column in enumerate(self.log_likelihoods.T):
            ax.plot(passes, column, label=f"block {r}" if n_blocks > 1 else "log likelihood")
        ax.set(xlabel="EM pass", ylabel="log likelihood of the training data")
        ax.axvline(self.best_iter, color="grey", linewidth=0.8, linestyle=":")
        if n_blocks <= LEGEND_ENTRIES:
            ax.legend(frameon=False, fontsize="small", loc="lower right")
        if len(self.validation_scores):
            right = ax.twinx()
            right.plot(passes, self.validation_scores, color="black", linestyle="--")
            right.set_ylabel("validation accuracy (dashed)")


class WeightsDisplay(AxesDisplay):
    """Which class draws on which kernel: the weights of one block as shades.

    Kernels are ordered by the class that weighs them most, so that shared ones stand out as
    columns with several dark cells.

    Parameters
    ----------
    weights : ndarray of shape (n_classes, n_components)
    class_names : sequence of str

    Attributes
    ----------
    order_ : ndarray of shape (n_components,)
        Kernels in the order in which they are drawn.
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(self, *, weights: FloatArray, class_names: Sequence[str]) -> None:
        self.weights = weights
        self.class_names = class_names

    @classmethod
    def from_estimator(cls, estimator: Any, *, block: int = 0, ax: Any = None) -> Self:
        """From a fitted classifier.

        Parameters
        ----------
        estimator : SharedKernelClassifier, SharedKernelClassifierCV or PartitionEnsemble
            Or a fitted pipeline or search of one.
        block : int, default=0
            Which block to show; blocks of an ensemble are counted through its members.
        ax : matplotlib Axes or None, default=None
        """
        fitted = take_apart(estimator)
        _, shown = fitted.block(block)
        return cls(weights=shown.weights, class_names=fitted.class_names).plot(ax=ax)

    def _draw(self, ax: Any) -> None:
        self.order_ = order_kernels(self.weights)
        from matplotlib.colors import PowerNorm

        # Small weights matter as well: a square root makes them visible.
        image = ax.imshow(
            self.weights[:, self.order_], aspect="auto", cmap="Greys", norm=PowerNorm(0.5, vmin=0.0)
        )
        ax.figure.colorbar(image, ax=ax, label="weight of the kernel in the class")
        ax.set(xlabel="kernel, by the class that weighs it most", ylabel="class")
        ax.set_yticks(np.arange(len(self.class_names)), self.class_names)
        if self.weights.shape[1] <= 3 * COLUMNS:
            ax.set_xticks(np.arange(len(self.order_)), self.order_, fontsize="small")
        else:
            ax.set_xticks([])


class KernelImagesDisplay:
    """Means of kernels as images, each with the classes that draw on it.

    Parameters
    ----------
    images : ndarray of shape (n_components, height, width)
    weights : ndarray of shape (n_classes, n_components)
    class_names : sequence of str

    Attributes
    ----------
    order_ : ndarray of shape (n_components,)
        Kernels in the order in which they are drawn.
    axes_ : ndarray of matplotlib Axes
    figure_ : matplotlib Figure
    """

    def __init__(
        self, *, images: FloatArray, weights: FloatArray, class_names: Sequence[str]
    ) -> None:
        self.images = images
        self.weights = weights
        self.class_names = class_names

    @classmethod
    def from_estimator(cls, estimator: Any, shape: tuple[int, int], *, block: int = 0) -> Self:
        """From a fitted classifier of images.

        Parameters
        ----------
        estimator : SharedKernelClassifier, SharedKernelClassifierCV or PartitionEnsemble
            Or a fitted pipeline or search of one, of steps with ``inverse_transform``, such as PCA.
        shape : (height, width)
        block : int, default=0
            Which block to show; blocks of an ensemble are counted through its members. The
            features of other blocks stand at the mean of their kernels.
        """
        fitted = take_apart(estimator)
        model, chosen = fitted.block(block)
        if hasattr(model, "columns_"):
            raise ValueError("Kernels cannot be drawn as images: some columns are categories.")
        prior = getattr(model, "class_prior_", np.ones(1))
        middle = np.empty(model.n_features_in_)
        if isinstance(chosen.reading, Recoding):
            raise ValueError(
                f"block={block} is of a view that reads features as other numbers, so its kernels"
                " are no images. Show a block of the first view, or train with n_views=1."
            )
        for part in model.model_.first_view.blocks:
            middle[part.features] = part.unmapped((prior @ part.weights @ part.means)[None])[0]
        features = np.tile(middle, (len(chosen.means), 1))
        features[:, chosen.features] = chosen.unmapped(chosen.means)
        for name, step in reversed(fitted.before):
            if step not in (None, "passthrough"):
                if not hasattr(step, "inverse_transform"):
                    raise ValueError(
                        f"Kernels cannot be drawn as images: the step {name!r}, a"
                        f" {type(step).__name__}, has no inverse_transform."
                    )
                features = step.inverse_transform(features)
        if features.shape[1] != np.prod(shape):
            raise ValueError(f"shape={shape} does not fit images of {features.shape[1]} pixels.")
        return cls(
            images=features.reshape(-1, *shape),
            weights=chosen.weights,
            class_names=fitted.class_names,
        ).plot()

    def plot(self) -> Self:
        """Draw into a new figure."""
        K = len(self.images)
        rows = -(-K // COLUMNS)
        figure, axes = _pyplot().subplots(
            rows, COLUMNS, squeeze=False, figsize=(COLUMNS, 1.35 * rows), layout="constrained"
        )
        self.order_ = order_kernels(self.weights)
        for ax in axes.flat:
            ax.set_axis_off()
        for ax, k in zip(axes.flat, self.order_, strict=False):
            ax.imshow(self.images[k], cmap="Greys")
            ax.set_title(self._holders(k), fontsize=7)
        self.axes_, self.figure_ = axes, figure
        return self

    def _holders(self, k: int) -> str:
        """The classes that draw on a kernel, with their share of it, the first two of them."""
        share = self.weights[:, k] / max(self.weights[:, k].sum(), np.finfo(float).tiny)
        first = [j for j in np.argsort(-share)[:2] if share[j] >= 0.05]
        return ", ".join(f"{self.class_names[j]}: {100 * share[j]:.0f}%" for j in first)


def order_kernels(weights: FloatArray) -> NDArray[np.intp]:
    """Kernels by the class that weighs them most, the heaviest of each class first."""
    return np.lexsort((-weights.max(axis=0), weights.argmax(axis=0)))
