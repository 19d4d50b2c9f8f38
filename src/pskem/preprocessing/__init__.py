"""Steps before a classifier: the paper's image features, and independent components."""

from pskem.preprocessing.components import *
from pskem.preprocessing.images import *
from pskem.preprocessing.paper import *
