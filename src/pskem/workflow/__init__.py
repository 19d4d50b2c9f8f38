"""From tables to trained, tuned, saved and applied models: what the command line does."""

from pskem.workflow.predictor import *
from pskem.workflow.settings import *
from pskem.workflow.stored import *
from pskem.workflow.task import *
from pskem.workflow.training import *
from pskem.workflow.tuning import *
