"""Model files that hold data and nothing that could run: see ``docs/model-files.md``."""

from pskem.persistence.checkpoints import *
from pskem.persistence.container import *
