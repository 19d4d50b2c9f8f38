"""Tables: files to data frames, data frames to files, columns to features."""

from pskem.tables.base import *
from pskem.tables.columns import *
from pskem.tables.encoding import *
from pskem.tables.places import *
from pskem.tables.reading import *
from pskem.tables.slips import *
from pskem.tables.stored import *
from pskem.tables.text import *
from pskem.tables.writing import *
