"""The forms that a model can take where the parameters leave that open."""

from __future__ import annotations

from typing import Any

from pskem.starts import EverySample
from pskem.structures import STRUCTURES
from pskem.training._settings import Form, Settings
from pskem.training._splitting import Samples

__all__ = ["FEW_SAMPLES", "describe_form", "forms"]

#: Samples below which there are too few for many kernels, or for many discriminative passes.
FEW_SAMPLES = 500

#: Numbers and values of categories, at most, among which all covariances are estimated.
MOST_FOR_FULL = 50
#: Steps of a number, and of all numbers together, at most.
MOST_STEPS, MOST_STEPS_OF_ALL = 12, 150
#: Values of all categories, at most, that are taken as numbers.
MOST_VALUES = 600
#: Columns and samples, at most, of a form with a kernel at every sample.
MOST_FOR_LOCAL, MOST_SAMPLES_FOR_LOCAL = 150, 5000
#: Samples that hold kernels of the linear form together, how much more it is shrunk, and its
#: discriminative passes.
LINEAR_PULL, LINEAR_FIRMNESS, LINEAR_PASSES = 10.0, 20.0, 20


def forms(
    settings: Settings, samples: Samples, size: int, mapped: bool, laborious: bool
) -> list[Settings]:
    """Settings of the models that are tried, the plainest first.

    Full, tied and diagonal covariances, features as they are and mapped, and many kernels;
    categories with many kernels too, and as numbers, where they may depend on the others; a linear
    form of steps, and a local one. Settled on 32 public tables, all of them together: what one form
    lacks, others have, so that their product is better than any one of them.

    size : samples, a repeated one as often as it stands there
    mapped : whether any number has a map
    laborious : whether passes take long, so that fewer forms are tried
    """
    full, tied, diag = (STRUCTURES[name] for name in ("full", "tied", "diag"))
    plain = settings._replace(structure=full, margins=False, form=Form())
    usual = plain._replace(margins=mapped)
    straight = usual if settings.margins else plain
    numbers = Form(categories_as_numbers=bool(samples.levels))
    few, few_values = size < FEW_SAMPLES, sum(samples.levels) <= MOST_VALUES
    found: list[Settings] = [usual] if laborious else [straight, usual]
    if samples.n_numbers:
        found += [straight._replace(structure=tied), usual._replace(structure=diag)]
        if not (few or laborious):
            found.append(usual._replace(form=Form(fine=True)))
    if samples.levels:
        found.append(usual._replace(form=Form(fine_categories=True)))
        if few_values:
            found.append(usual._replace(structure=tied, form=numbers))
    if not laborious and few_values:
        if samples.levels and samples.X.shape[1] <= MOST_FOR_FULL:
            found.append(usual._replace(form=numbers))
        if not few:
            found.append(usual._replace(structure=tied, form=numbers._replace(fine=True)))
    if settings.discriminative_iter != 0 and few_values:
        found.append(_linear(plain, samples))
    if samples.X.shape[1] <= MOST_FOR_LOCAL and size <= MOST_SAMPLES_FOR_LOCAL:
        found.append(_local(usual._replace(form=numbers._replace(local=True))))
    return found


def _local(settings: Settings) -> Settings:
    """A kernel at every sample: no pass would leave it there."""
    return settings._replace(
        structure=STRUCTURES["spherical"],
        start=EverySample(),
        reseed=False,
        n_init=1,
        max_iter=0,
        discriminative_iter=0,
    )


def _linear(settings: Settings, samples: Samples) -> Settings:
    """One kernel a class and one covariance, told apart by discriminative passes alone.

    That is logistic regression on steps of the numbers and on the values of categories, whose
    coefficients a pull toward the middle of all classes holds small.
    """
    n_steps = MOST_STEPS_OF_ALL // max(1, samples.n_numbers)
    passes = settings.discriminative_iter
    return settings._replace(
        structure=STRUCTURES["tied"],
        discriminative_iter=LINEAR_PASSES if passes is None else passes,
        form=Form(
            categories_as_numbers=bool(samples.levels),
            n_steps=max(1, min(MOST_STEPS, n_steps)),
            linear=True,
            firmness=LINEAR_FIRMNESS,
            pull=LINEAR_PULL,
        ),
    )


def describe_form(settings: Settings) -> dict[str, Any]:
    """What is special about a form, in the words of the parameters."""
    form = settings.shape
    return {
        "covariance_type": settings.structure.name,
        "margins": bool(settings.margins),
        "fine": form.fine,
        "fine_categories": form.fine_categories,
        "categories_as_numbers": form.categories_as_numbers,
        "linear": form.linear,
        "local": form.local,
    }
