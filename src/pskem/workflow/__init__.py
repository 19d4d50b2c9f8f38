"""From tables to trained, tuned, saved and applied models: what the command line does."""

from pskem.workflow.predictor import Predictor, check_predictions_place
from pskem.workflow.settings import classifier_settings
from pskem.workflow.task import Task
from pskem.workflow.training import Trained, complete, hold_out, train
from pskem.workflow.tuning import Search, tune

__all__ = [
    "Predictor",
    "Search",
    "Task",
    "Trained",
    "check_predictions_place",
    "classifier_settings",
    "complete",
    "hold_out",
    "train",
    "tune",
]
