"""Covariance structures behind one seam, by the names that ``covariance_type`` accepts."""

from pskem.structures._base import (
    FloatArray,
    Floored,
    Gaussians,
    Natural,
    OneByOne,
    Structure,
    Totals,
)
from pskem.structures._matrices import Full, Tied
from pskem.structures._variances import Diagonal, Spherical

__all__ = [
    "STRUCTURES",
    "FloatArray",
    "Floored",
    "Gaussians",
    "Natural",
    "OneByOne",
    "Structure",
    "Totals",
]

STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Tied(), Diagonal(), Spherical())}
