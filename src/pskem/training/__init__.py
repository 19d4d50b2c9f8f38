"""Training: from settings and samples to a model."""

from pskem.training._answering import *
from pskem.training._arranging import *
from pskem.training._callbacks import *
from pskem.training._choosing import *
from pskem.training._drawing import *
from pskem.training._drift import *
from pskem.training._exponents import *
from pskem.training._fitting import *
from pskem.training._holdout import *
from pskem.training._journal import *
from pskem.training._layout import *
from pskem.training._loop import *
from pskem.training._merging import *
from pskem.training._observers import *
from pskem.training._opening import *
from pskem.training._order import *
from pskem.training._planning import *
from pskem.training._progress import *
from pskem.training._refining import *
from pskem.training._resampling import *
from pskem.training._settings import *
from pskem.training._splitting import *
from pskem.training._stream import *
from pskem.training._streaming import *
from pskem.training._surveying import *
from pskem.training._unlabelled import *
