"""The data sets of the paper, read from their publishers' own files.

Every loader looks in a data folder: its argument ``data_home``, else the environment variable
``PSKEM_DATA``, else the user's cache. Missing files are downloaded once and checked.
"""

from pskem.datasets.catalogue import CATALOGUE, Dataset
from pskem.datasets.folder import DatasetError, data_folder, fetch, is_present
from pskem.datasets.loaders import (
    LOADERS,
    load_cifar10,
    load_fashion_mnist,
    load_ionosphere,
    load_mnist,
    load_rice,
)

__all__ = [
    "CATALOGUE",
    "LOADERS",
    "Dataset",
    "DatasetError",
    "data_folder",
    "fetch",
    "is_present",
    "load_cifar10",
    "load_fashion_mnist",
    "load_ionosphere",
    "load_mnist",
    "load_rice",
]
