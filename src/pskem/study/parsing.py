"""Parse study files: TOML to a study, with slices of other studies and figures."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pskem.study.checking import (
    TABLE,
    TRUTH,
    WORD,
    WORDS,
    Rule,
    as_list,
    check_known,
    check_table,
    choice,
    choices,
    whole,
)
from pskem.study.configuration import StudyError
from pskem.study.definition import Entry, Experiment, Study, check_names, names_of
from pskem.study.experiments import SHARED, check_settings, make_experiments
from pskem.study.methods import CLASSIFIERS, OURS, lacking

__all__ = ["included", "load_study", "parse_study"]

#: What can stand on the vertical axis of a figure.
QUANTITIES = ("accuracy", "honest", "peak", "shared", "seconds", "operations")

_TABLES = Rule(
    "tables, each with a heading in double brackets",
    lambda value: isinstance(value, list) and all(isinstance(part, Mapping) for part in value),
)
STUDY = {
    "title": WORD,
    "about": WORD,
    "runs": whole(1),
    "experiment": _TABLES,
    "slice": _TABLES,
    "figure": _TABLES,
    **SHARED,
}
SLICE = {"study": WORD, "only": WORDS, "where": TABLE, "settings": TABLE, "runs": whole(1)}
FIGURE = {
    "name": Rule(
        "letters, digits, - and _ (it names files)",
        lambda value: isinstance(value, str) and bool(re.fullmatch(r"[\w-]+", value)),
    ),
    "title": WORD,
    "x": WORD,
    "line": WORD,
    "y": choices(*QUANTITIES),
    "experiments": Rule(
        "the name of an experiment or a list of names",
        lambda value: value != [] and WORDS.accepts(value),
    ),
    "log": TRUTH,
}


def included() -> dict[str, str]:
    """Texts of the studies that come with the package, by name."""
    folder = files("pskem.study") / "definitions"
    found = {
        Path(file.name).stem: file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
    return dict(sorted(found.items()))


def load_study(path: Any) -> Study:
    """Load a study from a TOML file; data files are relative to its folder."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except OSError as error:
        raise StudyError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StudyError(f"{file} is not a text file in UTF-8.") from None
    return parse_study(file.stem, text, file.parent)


def parse_study(
    name: str, text: str, folder: Path | None = None, tables: Path | None = None
) -> Study:
    """Parse a study from the text of a TOML file; data files are relative to the folder.

    An experiment on a folder of tables becomes one for each of them. ``tables`` is that folder,
    whatever the study says. Without it and without a folder, such an experiment has no points.
    """
    where = f"The study {name!r}"
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # of TOML, or of a number too long to be read
        raise StudyError(f"{where} is not valid TOML: {error}.") from None
    check_table(where, table, STUDY)
    experiments = [
        experiment for entry in table.get("slice", []) for experiment in _slice(where, table, entry)
    ] + [
        experiment
        for i, entry in enumerate(table.get("experiment", []), start=1)
        for experiment in make_experiments(where, table, entry, folder, tables, i)
    ]
    if not experiments:
        raise StudyError(f"{where} has no [[experiment]].")
    _check_unique(f"{where} has two experiments", [experiment.name for experiment in experiments])
    title = table.get("title", name)
    figures = [_figure(where, title, entry, experiments) for entry in table.get("figure", [])]
    _check_unique(f"{where} has two figures", [figure["name"] for figure in figures])
    about = " ".join(table.get("about", "").split())
    return Study(name, title, about, experiments, figures, _left_out(table))


def _left_out(table: Mapping[str, Any]) -> list[str]:
    """Methods whose library is not installed."""
    named = [
        part["name"] if isinstance(part, Mapping) else part
        for entry in table.get("experiment", [])
        for part in as_list(entry.get("method", []))
    ]
    return [method for method in dict.fromkeys(named) if lacking(method) is not None]


def _check_unique(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise StudyError(f"{what} called {name!r}.")


def _slice(where: str, table: Mapping[str, Any], entry: Mapping[str, Any]) -> list[Experiment]:
    """Experiments of an included study, with a selection of points or other settings."""
    where = f"{where}, slice of {entry.get('study', 'nothing')},"
    check_table(where, entry, SLICE)
    texts = included()
    if "study" not in entry:
        raise StudyError(f"{where} does not say of which study.")
    check_table(where, {"study": entry["study"]}, {"study": choice(*texts)})
    base = parse_study(entry["study"], texts[entry["study"]])
    only = as_list(entry.get("only", []))
    check_names([base], only)
    changes, wanted = entry.get("settings", {}), entry.get("where", {})
    check_known(where, wanted, CLASSIFIERS[OURS].parameters())
    check_settings(where, OURS, changes)
    several = len(table["slice"]) > 1 or "experiment" in table
    made = []
    for experiment in base.experiments:
        kept = {}
        for point, label in zip(experiment.points, experiment.labels, strict=True):
            named = not only or set(only) & names_of(Entry(experiment, point, label))
            fits = all(point.settings.get(k) in as_list(values) for k, values in wanted.items())
            if named and fits:
                if point.method == OURS:
                    changed = CLASSIFIERS[OURS].complete({**point.settings, **changes})
                    point = point._replace(settings=changed)
                    label = {key: changes.get(key, value) for key, value in label.items()}
                kept[point.key] = point, label
        if kept:
            points, labels = map(list, zip(*kept.values(), strict=True))
            name = f"{base.name}: {experiment.name}" if several else experiment.name
            runs = entry.get("runs", table.get("runs", experiment.runs))
            made.append(experiment._replace(name=name, points=points, labels=labels, runs=runs))
    if not made:
        raise StudyError(f"{where} leaves nothing of {base.name}.")
    return made


def _figure(
    where: str, title: str, figure: Mapping[str, Any], experiments: list[Experiment]
) -> Mapping[str, Any]:
    where = f"{where}, figure {figure.get('name', '')!r},"
    check_table(where, figure, FIGURE)
    for key in ("name", "x"):
        if key not in figure:
            raise StudyError(f"{where} has no {key}.")
    varied = {
        experiment.name: {key for label in experiment.labels for key in label}
        for experiment in experiments
    }
    wanted = as_list(figure.get("experiments", list(varied)))
    check_known(f"{where} experiments", wanted, varied)
    if "experiments" not in figure:
        wanted = [name for name in wanted if figure["x"] in varied[name]]
    known = set().union(*(varied[name] for name in wanted or varied))
    if not known:
        raise StudyError(f"{where} has nothing to draw over: no experiment has a grid.")
    check_table(where, {"x": figure["x"]}, {"x": choice(*sorted(known))})
    if "line" in figure:
        check_table(where, {"line": figure["line"]}, {"line": choice(*sorted({*known, "method"}))})
    quantities = as_list(figure.get("y", "accuracy"))
    return {"title": title, **figure, "y": quantities, "experiments": wanted}
