"""Studies: many runs, defined in a TOML file, recorded in SQLite, resumed after a stop."""

from pskem.study.configuration import Point, RunSpec, StudyError
from pskem.study.definition import Study, check_names, names_of
from pskem.study.materials import Place
from pskem.study.pages import (
    LEGEND,
    Written,
    brief_table,
    left_out,
    point_table,
    write_report,
)
from pskem.study.parsing import included, load_study, parse_study
from pskem.study.runner import Outcome, WorkProgress, pool, work
from pskem.study.session import Session, conduct
from pskem.study.store import Store
from pskem.study.summary import PointSummary, summarise

__all__ = [
    "LEGEND",
    "Outcome",
    "Place",
    "Point",
    "PointSummary",
    "RunSpec",
    "Session",
    "Store",
    "Study",
    "StudyError",
    "WorkProgress",
    "Written",
    "brief_table",
    "check_names",
    "conduct",
    "included",
    "left_out",
    "load_study",
    "names_of",
    "parse_study",
    "point_table",
    "pool",
    "summarise",
    "work",
    "write_report",
]
