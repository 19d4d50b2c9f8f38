"""The engine: samples in batches, kernels, and passes over them, all in standardised coordinates.

Read it in this order: ``_pieces`` and ``_sources`` (rows, batches, fold), ``_kernels`` and
``_evaluators`` (log terms and sums as matrix products; ``_gaps`` where cells are missing),
``_statistics`` and ``_targets`` (a pass under a target), ``_moments`` (from sums to kernels),
``_em`` and ``_discriminative`` (the two kinds of passes), ``_stepwise`` (passes over the parts of a
stream).
"""

from pskem.engine._allocation import *
from pskem.engine._coordinates import *
from pskem.engine._discriminative import *
from pskem.engine._em import *
from pskem.engine._exponentials import *
from pskem.engine._gaps import *
from pskem.engine._kernels import *
from pskem.engine._measures import *
from pskem.engine._moments import *
from pskem.engine._parallel import *
from pskem.engine._pieces import *
from pskem.engine._reseeding import *
from pskem.engine._sources import *
from pskem.engine._statistics import *
from pskem.engine._stepwise import *
from pskem.engine._targets import *
