"""From tables to trained, tuned, saved and applied models: what the command line does."""

from pskem.workflow.predictor import Predictor
from pskem.workflow.task import Task
from pskem.workflow.training import Trained, check_model_place, complete, hold_out, train
from pskem.workflow.tuning import Search, tune

__all__ = [
    "Predictor",
    "Search",
    "Task",
    "Trained",
    "check_model_place",
    "complete",
    "hold_out",
    "train",
    "tune",
]
