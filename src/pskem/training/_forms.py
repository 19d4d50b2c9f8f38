"""The forms that a model can take where the parameters leave that open."""

from __future__ import annotations

from typing import Any

from pskem.structures import STRUCTURES
from pskem.training._settings import Settings
from pskem.training._splitting import Samples

__all__ = ["describe_form", "forms"]

#: Numbers and values of categories, at most, among which all covariances are estimated.
MOST_FOR_FULL = 50


def forms(settings: Settings, samples: Samples) -> list[Settings]:
    """Settings of the models that are tried, the plainest first.

    Full and tied covariances, features as they are and mapped, variances alone, and many kernels;
    categories with many kernels too, and as numbers, where they may depend on the others. Settled
    on 32 public tables, all of them together: what one form lacks, others have, so that their
    product is better than any one of them.
    """
    if not settings.open_form:
        return [settings]
    full, tied, diag = (STRUCTURES[name] for name in ("full", "tied", "diag"))
    plain = settings._replace(structure=full, margins=False)
    mapped = plain._replace(margins=samples.n_numbers > 0)
    numbers = mapped._replace(categories_as_numbers=bool(samples.levels))
    found: list[Settings] = [plain]
    if samples.n_numbers:
        found += [
            mapped,
            plain._replace(structure=tied),
            mapped._replace(structure=tied),
            mapped._replace(structure=diag),
        ]
        if not settings.laborious:
            found.append(mapped._replace(fine=True))
    if samples.levels:
        found += [mapped._replace(fine_categories=True), numbers._replace(structure=tied)]
    if not settings.laborious:
        if samples.levels and samples.X.shape[1] <= MOST_FOR_FULL:
            found.append(numbers)
        found.append(numbers._replace(structure=tied, fine=True))
    if settings.margins is not None and samples.n_numbers:
        found = [form for form in found if form.margins is settings.margins]
    return found


def describe_form(settings: Settings) -> dict[str, Any]:
    """What is special about a form, in the words of the parameters."""
    return {
        "covariance_type": settings.structure.name,
        "margins": bool(settings.margins),
        "fine": settings.fine,
        "fine_categories": settings.fine_categories,
        "categories_as_numbers": settings.categories_as_numbers,
    }
