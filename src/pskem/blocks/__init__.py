"""Blocks of features: how they are cut, and which features depend on each other."""

from pskem.blocks._dependence import group_by_dependence, within_class_dependence
from pskem.blocks._partition import ARRANGEMENTS, partition_features

__all__ = ["ARRANGEMENTS", "group_by_dependence", "partition_features", "within_class_dependence"]
