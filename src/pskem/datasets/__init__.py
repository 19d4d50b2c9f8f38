"""The data sets of the paper, read from their publishers' own files.

Every loader looks in a data folder: its argument ``data_home``, else the environment variable
``PSKEM_DATA``, else the user's cache. Missing files are downloaded once and checked.
"""

from pskem.datasets.catalogue import *
from pskem.datasets.folder import *
from pskem.datasets.loaders import *
