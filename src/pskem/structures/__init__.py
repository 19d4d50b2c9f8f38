"""Families of kernels behind one seam, by the names that ``covariance_type`` accepts."""

from pskem.structures._base import *
from pskem.structures._base import Structure
from pskem.structures._categories import *
from pskem.structures._matrices import *
from pskem.structures._matrices import Full, Tied
from pskem.structures._variances import Diagonal, Spherical

#: The families by name.
STRUCTURES: dict[str, Structure] = {s.name: s for s in (Full(), Tied(), Diagonal(), Spherical())}
