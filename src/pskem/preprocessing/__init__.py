"""From images to features: the steps of the paper that scikit-learn does not have."""

from pskem.preprocessing.images import Deskew, Downsample, ImageNormalizer
from pskem.preprocessing.paper import paper_features

__all__ = ["Deskew", "Downsample", "ImageNormalizer", "paper_features"]
