"""Monotone maps of features after which Gaussian kernels fit them better.

Skewed and heavy-tailed features are what Gaussian kernels fear. A map of each feature by itself,
from the whole line to the whole line, makes its distribution within the classes more Gaussian. The
model keeps the maps and their slopes, so that densities, draws and gaps are exact in the units of
the data.
"""

from pskem.margins._choosing import *
from pskem.margins._maps import *
