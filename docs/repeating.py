"""Measure what training again on all rows is worth where rows are held out, for docs/choices.md.

python -m docs.repeating        # what has no record yet; then write the page

It needs the image sets. Of their training images 10,000 are set aside and asked about; the
publishers' test images are not used, because a default was settled by what this shows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from docs.choices import REPEATED, REPEATS
from docs.choosing import records, write
from numpy.typing import NDArray

from docs import choices
from pskem import SharedKernelClassifier
from pskem.datasets import load_cifar10, load_fashion_mnist, load_mnist
from pskem.engine import workers
from pskem.model import Model
from pskem.preprocessing import paper_features
from pskem.structures import FloatArray
from pskem.training import Samples, Settings, draw_seeds, make_plan, stand_in, unwatched
from pskem.training._performing import perform, perform_again, plan_again

SETS = {
    "mnist": (load_mnist, {"n_components": 40}),
    "fashion-mnist": (load_fashion_mnist, {"n_components": 150, "deskew": False}),
    "cifar-10": (load_cifar10, {"n_components": 96, "deskew": False}),
}
SEEDS = 3
SET_ASIDE = 10_000


def trained(samples: Samples, seed: int) -> Iterator[tuple[Model, float]]:
    """Models by the names of `REPEATED`, in their order, and the seconds that each takes."""
    model = SharedKernelClassifier(random_state=seed)
    settings = Settings.parse(model.get_params(deep=False))
    (drawn,) = draw_seeds(seed)
    samples = stand_in(settings, samples, drawn)
    with workers(None) as parallel_map:
        start = time.perf_counter()
        plan = make_plan(settings, samples, None, drawn)
        _, first = perform(plan, samples, parallel_map, unwatched)
        spent = time.perf_counter() - start
        yield first.refined.best, spent
        again = plan_again(settings, samples, first, drawn, None)
        anew = make_plan(settings._replace(early_stopping=False), samples, None, drawn)
        for fixed in (anew.fixed, again.fixed):
            start = time.perf_counter()
            plan = again._replace(fixed=fixed, start=anew.start)
            _, second = perform_again(plan, samples, first, parallel_map, unwatched)
            yield second.refined.best, spent + time.perf_counter() - start


def score(model: Model, X: FloatArray, labels: NDArray[np.intp]) -> list[str]:
    log_p = model.log_posterior(X)
    right = log_p.argmax(axis=1) == labels
    loss = -log_p[np.arange(len(labels)), labels].mean()
    return [f"{right.mean():.6f}", f"{loss:.6f}"]


def measure() -> None:
    found = records(REPEATS, 3)
    for name, (load, steps) in SETS.items():
        if (name, str(SEEDS - 1), [*REPEATED][-1]) in found:
            continue
        images, y = load(subset="train", return_X_y=True)
        X = paper_features(**steps).fit_transform(images).astype(np.float32)
        classes, labels = np.unique(y, return_inverse=True)
        for seed in range(SEEDS):
            order = np.random.default_rng(seed).permutation(len(labels))
            asked, own = np.split(order, [SET_ASIDE])
            priors = np.bincount(labels[own]) / len(own)
            samples = Samples(X[own], labels[own].astype(np.intp), classes, priors)
            for title, (model, seconds) in zip(REPEATED, trained(samples, seed), strict=True):
                figures = [*score(model, X[asked], labels[asked]), f"{seconds:.2f}"]
                found[name, str(seed), title] = [name, str(seed), title, *figures]
                print(*found[name, str(seed), title], flush=True)
            write(REPEATS, ["data", "seed", "model", "accuracy", "log loss", "seconds"], found)


if __name__ == "__main__":
    measure()
    choices.main()
