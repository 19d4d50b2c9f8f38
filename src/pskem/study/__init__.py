"""Studies: many runs, defined by data, kept in a file, resumed where they stopped."""

from pskem.study.configuration import Point, Run, StudyError
from pskem.study.definition import Study, check_names, names_of
from pskem.study.materials import Place
from pskem.study.pages import LEGEND, Written, brief_table, point_table, write_report
from pskem.study.parsing import included, load_study, parse_study
from pskem.study.runner import Outcome, Progress, pool, work
from pskem.study.store import Store
from pskem.study.summary import PointSummary, summarise

__all__ = [
    "LEGEND",
    "Outcome",
    "Place",
    "Point",
    "PointSummary",
    "Progress",
    "Run",
    "Store",
    "Study",
    "StudyError",
    "Written",
    "brief_table",
    "check_names",
    "included",
    "load_study",
    "names_of",
    "parse_study",
    "point_table",
    "pool",
    "summarise",
    "work",
    "write_report",
]
