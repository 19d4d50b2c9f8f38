"""Where EM starts: small values that ``init`` takes, beside their names.

>>> from pskem import SharedKernelClassifier
>>> from pskem.starts import ClassKMeans, Start, Uniform
>>> shared = SharedKernelClassifier(init=ClassKMeans(own_mass=0.5))
>>> paper = SharedKernelClassifier(init=Uniform(-2.0, 2.0, scale=2.0, reseed=False))

All but :class:`Start` make kernels from the samples. Each says whether a kernel that runs empty
during EM starts anew (``reseed``): it then moves to the sample that is explained worst, with as
much weight as raises the likelihood most, at most three times in a run.
"""

from pskem.starts._base import *
from pskem.starts._samples import *
from pskem.starts._starts import *
