"""The scikit-learn estimators: they validate, store and delegate."""

from pskem.estimators._classifier import *
from pskem.estimators._columns import *
from pskem.estimators._deciding import *
from pskem.estimators._density import *
from pskem.estimators._ensemble import *
from pskem.estimators._gathering import *
from pskem.estimators._search import *
from pskem.estimators._selection import *
from pskem.estimators._stored import *
