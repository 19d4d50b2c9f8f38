"""What a person looks at: matplotlib displays, tables, and one page of HTML."""

from pskem.display._fitted import *
from pskem.display._page import *
from pskem.display._plots import *
from pskem.display._table import *
