"""Blocks of features: how they are cut, and which features depend on each other."""

from pskem.blocks._dependence import *
from pskem.blocks._partition import *
