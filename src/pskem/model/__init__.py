"""What training returns, and everything else is a function of: blocks of kernels, and a model."""

from pskem.model._block import *
from pskem.model._model import *
from pskem.model._product import *
from pskem.model._sharing import *
