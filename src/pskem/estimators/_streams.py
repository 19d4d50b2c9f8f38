"""Learning from streams: part by part, and from several at a time."""

from __future__ import annotations

import os
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import check_is_fitted

from pskem import checks
from pskem.clusters import is_dask
from pskem.engine import workers
from pskem.estimators._deciding import in_class_order
from pskem.estimators._gathering import gather_samples
from pskem.estimators._input import all_or_nothing
from pskem.estimators._stored import StoredTable
from pskem.model import Model
from pskem.structures import FloatArray
from pskem.training import (
    Refined,
    Samples,
    Settings,
    State,
    Stream,
    advance,
    begin_stream,
    draw_seeds,
    merge_streams,
    open_stream,
    settle_part,
    threads,
    weight_unit,
)

__all__ = ["LearnsFromStreams"]


class LearnsFromStreams:
    """``partial_fit`` and ``merge`` of a classifier, whose state is its model and a stream."""

    model_: Model
    stream_: Stream
    class_count_: FloatArray
    random_state: Any

    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Learn from one more part of a stream.

        The first part is fitted by one model. Each later part is learnt from in one pass, by
        stepwise EM [1]_ [2]_ together with what tells the classes apart; `stepwise` says how far it
        is followed. Before that the model is asked about the part, and the answers calibrate
        probabilities, tell outliers, and tell how much to remember. After :meth:`fit` it goes on
        from the fitted model.

        Models that were taken before (`model_`, copies of the estimator) stay as they are.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            NaN is a gap. Values of categories that the first part did not have are gaps.
        y : array-like of shape (n_samples,)
            None and NaN stand for classes that nobody knows, and so does `unlabelled`.
        classes : array-like of shape (n_classes,), default=None
            All classes of the stream. The first call needs them unless y has them all. A class that
            has not come yet has no prior; it gets kernels when it comes.
        sample_weight : array-like of shape (n_samples,), default=None
            How often each sample counts. If the weights of the first part are below one on average,
            they are scaled up to one, and those of later parts by the same factor.

        Returns
        -------
        self : SharedKernelClassifier

        References
        ----------
        .. [1] O. Cappé and E. Moulines, "On-line Expectation-Maximization Algorithm for Latent Data
           Models", Journal of the Royal Statistical Society B, 2009.
        .. [2] P. Liang and D. Klein, "Online EM for Unsupervised Models", NAACL 2009.
        """
        settings = Settings.parse(self.get_params(deep=False))  # type: ignore[attr-defined]
        if isinstance(settings.class_weight, str):
            raise ValueError(
                f"class_weight={settings.class_weight!r} needs all samples at once. With"
                " partial_fit give a dict, or priors='uniform'."
            )
        _check_in_memory(X)
        before: Model | None = getattr(self, "model_", None)
        known = _known_classes(classes, before)
        (seed,) = draw_seeds(self.random_state)
        with all_or_nothing(self):
            samples = gather_samples(
                self, X, y, sample_weight, (None, None, None), settings, before, known
            )
            decided = None if before is None else getattr(self, "unlabelled_weight_", None)
            settings, samples = settle_part(settings, samples, seed, decided)
            with workers(threads(settings, samples)) as parallel_map:
                if before is None:
                    opened = open_stream(settings, samples, seed, parallel_map)
                else:
                    stream = self._stream(before, samples)
                    model, stream = advance(before, stream, samples, settings, seed, parallel_map)
        if before is None:
            self.reference_log_densities_ = opened.references
            self.trials_: list[dict[str, Any]] = []
            self._store(opened.run, opened.refined)
            return self._go_on(opened.model, opened.stream, settings)
        self.reference_log_densities_ = np.sort(stream.window.densities)
        if settings.unlabelled_weight is None:
            settings = settings._replace(unlabelled_weight=decided)
        return self._go_on(model, stream, settings)

    def merge(self, other: Any) -> Self:
        """The classifier that has learnt from the streams of two.

        Both must be copies of one classifier, made after its :meth:`fit`, its first part or
        :meth:`branch`, each of which has seen parts of its own since. What they have in common
        counts once. With a memory that does not forget, and EM alone, the sums of the merged model
        are those of both.

        Parameters
        ----------
        other : SharedKernelClassifier

        Returns
        -------
        merged : SharedKernelClassifier
            A copy; both stay as they are.
        """
        for model in (self, other):
            check_is_fitted(model)
            if not hasattr(model, "stream_"):
                raise ValueError(
                    "Models are merged that partial_fit has trained, and one of these it has not."
                )
        settings = Settings.parse(self.get_params(deep=False))  # type: ignore[attr-defined]
        priors = None
        if settings.priors is not None:
            listed = in_class_order(settings.priors, self.model_.classes)
            priors = checks.check_prior(listed, self.model_.priors)
        pairs = (self.model_, self.stream_), (other.model_, other.stream_)
        merged = copy(self)
        merged.reference_log_densities_ = np.empty(0)
        with workers(1):  # BLAS rounds by the number of its threads
            model, stream = merge_streams(*pairs, settings, priors)
        merged.reference_log_densities_ = np.sort(stream.window.densities)
        weight = getattr(self, "unlabelled_weight_", None)
        return merged._go_on(model, stream, settings._replace(unlabelled_weight=weight))

    def branch(self) -> Self:
        """A copy in the middle of a stream, whose own copies can be merged.

        Returns
        -------
        branched : SharedKernelClassifier
        """
        check_is_fitted(self)
        branched = copy(self)
        if hasattr(self, "stream_"):
            branched.stream_ = self.stream_.branched(self.model_)
        return branched

    def _stream(self, model: Model, samples: Samples) -> Stream:
        """The stream so far, or one that goes on from a fit."""
        if hasattr(self, "stream_"):
            return self.stream_
        return begin_stream(model, self.class_count_, weight_unit(samples))

    def _go_on(self, model: Model, stream: Stream, settings: Settings) -> Self:
        self.model_, self.stream_ = model, stream
        self.class_count_ = stream.totals
        self.unlabelled_weight_ = settings.unlabelled_weight
        return self

    def _store(self, run: State, refined: Refined) -> Self:
        raise NotImplementedError


def _check_in_memory(X: Any) -> None:
    if is_dask(X) or isinstance(X, str | os.PathLike | StoredTable):
        raise ValueError(
            f"partial_fit takes parts that are in memory, and X is a {type(X).__name__}. fit takes"
            " whole tables that are read piece by piece; for a stream, read one part at a time."
        )


def _known_classes(classes: Any, before: Model | None) -> NDArray[Any] | None:
    """The classes of a stream; None for those of its first part."""
    given = None if classes is None else unique_labels(np.asarray(classes))
    if before is None:
        return given
    if given is not None and not np.array_equal(given, before.classes):
        raise ValueError(
            f"classes={given.tolist()} are not those of the first call,"
            f" {before.classes.tolist()}. Leave them out, or give the same."
        )
    return before.classes
