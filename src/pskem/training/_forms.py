"""The forms that a model can take where the parameters leave that open."""

from __future__ import annotations

from typing import Any

from pskem.starts import EverySample
from pskem.structures import STRUCTURES
from pskem.training._settings import Settings
from pskem.training._splitting import Samples

__all__ = ["describe_form", "forms"]

#: Numbers and values of categories, at most, among which all covariances are estimated.
MOST_FOR_FULL = 50
#: Steps of a number, and of all numbers together, at most.
MOST_STEPS, MOST_STEPS_OF_ALL = 12, 150
#: Values of all categories, at most, that are taken as numbers.
MOST_VALUES = 200
#: Columns and samples, at most, of a form with a kernel at every sample.
MOST_FOR_LOCAL, MOST_SAMPLES_FOR_LOCAL = 150, 5000
#: Samples that hold kernels of the linear form together, how much more it is shrunk, and its
#: discriminative passes.
LINEAR_PULL, LINEAR_FIRMNESS, LINEAR_PASSES = 10.0, 20.0, 20


def forms(settings: Settings, samples: Samples) -> list[Settings]:
    """Settings of the models that are tried, the plainest first.

    Full and tied covariances, features as they are and mapped, variances alone, and many kernels;
    categories with many kernels too, and as numbers, where they may depend on the others; a linear
    form of steps, and a local one. Settled on 32 public tables, all of them together: what one form
    lacks, others have, so that their product is better than any one of them.
    """
    if not settings.open_form:
        return [settings]
    full, tied, diag = (STRUCTURES[name] for name in ("full", "tied", "diag"))
    plain = settings._replace(structure=full, margins=False)
    mapped = plain._replace(margins=samples.n_numbers > 0)
    numbers = mapped._replace(categories_as_numbers=bool(samples.levels))
    few_values = sum(samples.levels) <= MOST_VALUES
    found: list[Settings] = [plain]
    if samples.n_numbers:
        found += [
            mapped,
            plain._replace(structure=tied),
            mapped._replace(structure=diag),
        ]
        if not settings.laborious:
            found.append(mapped._replace(fine=True))
    if samples.levels:
        found.append(mapped._replace(fine_categories=True))
        if few_values:
            found.append(numbers._replace(structure=tied))
    if not settings.laborious and few_values:
        if samples.levels and samples.X.shape[1] <= MOST_FOR_FULL:
            found.append(numbers)
        found.append(numbers._replace(structure=tied, fine=True))
    if settings.margins is not None and samples.n_numbers:
        found = [form for form in found if form.margins is settings.margins]
    if settings.discriminative_iter != 0 and few_values:
        found.append(_linear(plain, samples))
    if samples.X.shape[1] <= MOST_FOR_LOCAL and len(samples.X) <= MOST_SAMPLES_FOR_LOCAL:
        margins = numbers.margins if settings.margins is None else settings.margins
        found.append(_local(numbers._replace(margins=margins)))
    return found


def _local(settings: Settings) -> Settings:
    """A kernel at every sample, in features that are uncorrelated within classes."""
    return settings._replace(
        structure=STRUCTURES["spherical"],
        start=EverySample(),
        reseed=False,
        n_init=1,
        max_iter=0,
        discriminative_iter=0,
        local=True,
    )


def _linear(settings: Settings, samples: Samples) -> Settings:
    """One kernel a class and one covariance, told apart by discriminative passes alone.

    That is logistic regression on steps of the numbers and on the values of categories, whose
    coefficients a pull toward the middle of all classes holds small.
    """
    n_steps = MOST_STEPS_OF_ALL // max(1, samples.n_numbers)
    return settings._replace(
        structure=STRUCTURES["tied"],
        categories_as_numbers=bool(samples.levels),
        n_steps=max(1, min(MOST_STEPS, n_steps)),
        firmness=LINEAR_FIRMNESS,
        discriminative_iter=(
            LINEAR_PASSES if settings.discriminative_iter is None else settings.discriminative_iter
        ),
        pull=LINEAR_PULL,
        linear=True,
    )


def describe_form(settings: Settings) -> dict[str, Any]:
    """What is special about a form, in the words of the parameters."""
    return {
        "covariance_type": settings.structure.name,
        "margins": bool(settings.margins),
        "fine": settings.fine,
        "fine_categories": settings.fine_categories,
        "categories_as_numbers": settings.categories_as_numbers,
        "linear": settings.linear,
        "local": settings.local,
    }
