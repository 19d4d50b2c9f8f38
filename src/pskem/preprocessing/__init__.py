"""Steps before a classifier: the paper's image features, and independent components."""

from pskem.preprocessing.components import IndependentComponents
from pskem.preprocessing.images import Deskew, Downsample, ImageNormalizer
from pskem.preprocessing.paper import paper_features

__all__ = ["Deskew", "Downsample", "ImageNormalizer", "IndependentComponents", "paper_features"]
