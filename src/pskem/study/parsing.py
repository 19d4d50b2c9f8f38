"""Study files: TOML, checked key by key, to a study."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from pskem.study.configuration import Point, StudyError
from pskem.study.definition import Entry, Experiment, Study, check_names, names_of
from pskem.study.materials import SCALES, file_digest, has_test_set, is_known
from pskem.study.methods import METHODS, OURS
from pskem.study.splits import ORDERS
from pskem.tables import IMAGES

__all__ = ["included", "load_study", "parse_study"]

#: Tables that an experiment takes from its study and may change; settings are the classifier's.
SHARED = ("data", "features", "split", "validation", "settings")
STUDY_KEYS = {"title", "about", "runs", "experiment", "slice", "figure", *SHARED}
SLICE_KEYS = {"study", "only", "where", "settings", "runs"}
EXPERIMENT_KEYS = {"name", "method", "runs", "grid", "paper", *SHARED}
FIGURE_KEYS = {"name", "title", "x", "line", "y", "experiments", "log"}
PAPER_KEYS = {"accuracy", "spread", "seconds_per_pass"}
#: What can stand on the vertical axis of a figure.
QUANTITIES = ("accuracy", "honest", "peak", "shared", "seconds", "operations")
#: The type, and the smallest and largest value, of settings that are numbers.
TABLES: dict[str, dict[str, tuple[type, float, float]]] = {
    "split": {
        "folds": (int, 2, 10**6),
        "test": (float, 0.0, 1.0),
        "train": (int, 1, 10**12),
        "fixed": (bool, 0, 1),
    },
    "validation": {
        "rows": (int, 1, 10**12),
        "fraction": (float, 0.0, 1.0),
        "folds": (int, 2, 10**6),
    },
}


def included() -> dict[str, str]:
    """The texts of the studies that come with the package, by name."""
    folder = files("pskem.study") / "definitions"
    found = {
        Path(file.name).stem: file.read_text(encoding="utf-8")
        for file in folder.iterdir()
        if file.name.endswith(".toml")
    }
    return dict(sorted(found.items()))


def load_study(path: Any) -> Study:
    """A study from a TOML file; its data files are sought beside it."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise StudyError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StudyError(f"{file} is not a text file in UTF-8.") from None
    return parse_study(file.stem, text, file.parent)


def parse_study(name: str, text: str, folder: Path = Path()) -> Study:
    """A study from the text of a TOML file; files are sought in the folder."""
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"The study {name!r} is not valid TOML: {error}.") from None
    return make_study(name, table, folder)


def make_study(name: str, table: Mapping[str, Any], folder: Path) -> Study:
    """A study from its table; files are sought in the folder."""
    where = f"The study {name!r}"
    _check_keys(where, table, STUDY_KEYS)
    experiments = [
        *(
            experiment
            for entry in _listed(where, table, "slice")
            for experiment in _slice(where, table, entry)
        ),
        *(
            _experiment(where, table, entry, folder, i)
            for i, entry in enumerate(_listed(where, table, "experiment"))
        ),
    ]
    if not experiments:
        raise StudyError(f"{where} has no [[experiment]].")
    names = [experiment.name for experiment in experiments]
    twice = [other for other in names if names.count(other) > 1]
    if twice:
        raise StudyError(f"{where} has two experiments called {twice[0]!r}.")
    figures = [_figure(where, entry, experiments) for entry in _listed(where, table, "figure")]
    about = " ".join(str(table.get("about", "")).split())
    return Study(name, str(table.get("title", name)), about, experiments, figures)


def _listed(where: str, table: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    entries = table.get(key, [])
    if not isinstance(entries, list) or not all(isinstance(e, Mapping) for e in entries):
        raise StudyError(f"{where} has {key} = {entries!r}; write [[{key}]] above each.")
    return entries


def _slice(where: str, table: Mapping[str, Any], entry: Mapping[str, Any]) -> list[Experiment]:
    """Experiments of an included study: some of their points, or all with other settings."""
    _check_keys(f"{where}, slice,", entry, SLICE_KEYS)
    texts = included()
    _check_choice(f"{where}, slice,", "study", entry.get("study"), list(texts))
    base = parse_study(entry["study"], texts[entry["study"]])
    only = _as_list(entry.get("only", []))
    check_names([base], only)
    several = len(table["slice"]) > 1 or "experiment" in table
    made = []
    for experiment in base.experiments:
        kept = [
            (_changed(point, entry.get("settings", {})), label)
            for point, label in zip(experiment.points, experiment.labels, strict=True)
            if (not only or set(only) & names_of(Entry(experiment, point, label)))
            and all(
                point.settings.get(key) in _as_list(accepted)
                for key, accepted in entry.get("where", {}).items()
            )
        ]
        if kept:
            points, labels = map(list, zip(*kept, strict=True))
            made.append(
                experiment._replace(
                    name=f"{base.name}: {experiment.name}" if several else experiment.name,
                    points=points,
                    labels=labels,
                    runs=entry.get("runs", table.get("runs", experiment.runs)),
                )
            )
    return made


def _changed(point: Point, settings: Mapping[str, Any]) -> Point:
    return point._replace(settings=_normal({**point.settings, **settings}))


def _normal(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without what has no effect: one block is the same however it is dealt."""
    if settings.get("n_blocks") == 1 and isinstance(settings.get("partition", ""), str):
        return {key: value for key, value in settings.items() if key != "partition"}
    return dict(settings)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _located(data: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A data table with a file's name and content instead of its path."""
    source = data["source"]
    path = folder / source
    if not path.is_file():
        raise StudyError(
            f"There is no file {path}, and no data set is called {source!r}. Files are sought from"
            " the folder of the study."
        )
    return {**data, "source": path.name, "digest": file_digest(path)}


def _experiment(
    where: str, table: Mapping[str, Any], entry: Mapping[str, Any], folder: Path, i: int
) -> Experiment:
    where = f"{where}, experiment {entry.get('name', i + 1)!r},"
    _check_keys(where, entry, EXPERIMENT_KEYS)
    for key in (*SHARED, "grid", "paper"):
        for owner in (table, entry):
            if not isinstance(owner.get(key, {}), Mapping):
                raise StudyError(f"{where} has {key} = {owner[key]!r}, which should be a table.")
    merged = {key: {**table.get(key, {}), **entry.get(key, {})} for key in SHARED}
    runs = entry.get("runs", table.get("runs", 1))
    _check_number(where, "runs", runs, int, 1, 10**6)
    _check_keys(f"{where} paper", entry.get("paper", {}), PAPER_KEYS)
    methods = entry.get("method", OURS)
    grid = {"method": _as_list(methods)} | {
        name: _as_list(values) for name, values in entry.get("grid", {}).items()
    }
    path = _check_data(where, merged, folder)
    points: list[Point] = []
    labels: list[Mapping[str, Any]] = []
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        method, own = _method(where, chosen.pop("method"))
        settings = {**entry.get("settings", {}), **own, **chosen}
        points.append(_point(where, merged, method, settings))
        label = {"method": _spoken(method, own), **chosen}
        labels.append({key: v for key, v in label.items() if len(grid[key]) > 1})
    name = str(entry.get("name", f"experiment {i + 1}"))
    return Experiment(name, points, labels, runs, entry.get("paper", {}), path)


def _check_data(where: str, tables: dict[str, dict[str, Any]], folder: Path) -> str | None:
    """Check the tables of data and features; the path of the file, if it is one."""
    data, features = tables["data"], tables["features"]
    known = {"source", "target", "drop", "categorical"}
    _check_keys(f"{where} data", data, known)
    source = data.get("source")
    if not isinstance(source, str):
        raise StudyError(f'{where} does not say where its data are: data.source = "...".')
    path = None
    if not is_known(source):
        tables["data"] = _located(data, folder)
        path = str((folder / source).resolve())
        if "target" not in data:
            raise StudyError(f"{where} does not name the column of the classes: data.target.")
    if source not in IMAGES:
        _check_keys(f"{where} features", features, {"scale", "pca"})
        _check_choice(f"{where} features", "scale", features.get("scale", "standard"), SCALES)
        return path
    accepted = {"n_components", "deskew", "half_size", "scale", "standardize"}
    accepted |= {"dtype"} if has_test_set(source) else set()
    _check_keys(f"{where} features", features, accepted)
    precision = features.get("dtype", "float64")
    _check_choice(f"{where} features", "dtype", precision, ["float32", "float64"])
    # In full, so that a run is known by what it does whatever the defaults.
    usual = {key: list(v) if isinstance(v, tuple) else v for key, v in IMAGES[source].items()}
    tables["features"] = {**usual, **features}
    return path


def _method(where: str, entry: Any) -> tuple[str, dict[str, Any]]:
    """The name of a method, and the settings that stand with it."""
    own = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
    name = own.pop("name", None)
    _check_choice(where, "method", name, list(METHODS))
    return str(name), own


def _spoken(method: str, settings: Mapping[str, Any]) -> str:
    return ", ".join([method, *(f"{key}={value}" for key, value in settings.items())])


def _point(
    where: str, tables: Mapping[str, Any], method: str, settings: Mapping[str, Any]
) -> Point:
    split, validation = dict(tables["split"]), dict(tables["validation"])
    for name, table in (("split", split), ("validation", validation)):
        limits = TABLES[name]
        _check_keys(f"{where} {name}", table, {*limits, *(["order"] if name == "split" else [])})
        for key in limits.keys() & table.keys():
            _check_number(f"{where} {name}", key, table[key], *limits[key])
    _check_choice(f"{where} split", "order", split.get("order", "given"), ORDERS)
    if len(validation) > 1:
        raise StudyError(
            f"{where} validates in {len(validation)} ways: use rows, fraction or folds."
        )
    if method == OURS:
        # Settings above the experiments are those of the shared kernels.
        settings = {**tables["settings"], **settings}
    else:
        validation = {}
    _check_keys(f"{where} settings", settings, METHODS[method].parameters())
    data, features = tables["data"], tables["features"]
    return Point(data, features, split, validation, method, _normal(settings))


def _figure(
    where: str, figure: Mapping[str, Any], experiments: list[Experiment]
) -> Mapping[str, Any]:
    where = f"{where}, figure {figure.get('name', '')!r},"
    _check_keys(where, figure, FIGURE_KEYS)
    for key in ("name", "x"):
        if not isinstance(figure.get(key), str):
            raise StudyError(f"{where} has no {key}.")
    if not re.fullmatch(r"[\w-]+", figure["name"]):
        raise StudyError(
            f"{where} has name = {figure['name']!r}; it names files, so use letters, digits, - and"
            " _ alone."
        )
    quantities = _as_list(figure.get("y", "accuracy"))
    for quantity in quantities:
        _check_choice(where, "y", quantity, QUANTITIES)
    wanted = figure.get("experiments", [experiment.name for experiment in experiments])
    for name in wanted:
        _check_choice(where, "experiments", name, [e.name for e in experiments])
    varied = {
        key
        for experiment in experiments
        if experiment.name in wanted
        for label in experiment.labels
        for key in label
    }
    for key in ("x", "line"):
        if key in figure:
            _check_choice(where, key, figure[key], sorted(varied))
    return {"title": figure["name"], **figure, "y": quantities, "experiments": wanted}


def _check_keys(where: str, table: Mapping[str, Any], accepted: Collection[str]) -> None:
    for key in table:
        if key not in accepted:
            close = difflib.get_close_matches(key, list(accepted), 1)
            hint = (
                f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(sorted(accepted))}."
            )
            raise StudyError(f"{where} has {key!r}, which is not known. {hint}")


def _check_choice(where: str, key: str, value: Any, accepted: Collection[str]) -> None:
    if value not in accepted:
        raise StudyError(
            f"{where} has {key} = {value!r}, which is not one of {', '.join(accepted) or 'none'}."
        )


def _check_number(where: str, key: str, value: Any, kind: type, low: float, high: float) -> None:
    right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    strict = kind is float
    if not right or not (low < value < high if strict else low <= value <= high):
        what = {
            bool: "true or false",
            int: f"a whole number from {low:g}",
            float: "between 0 and 1",
        }
        raise StudyError(f"{where} has {key} = {value!r}, which should be {what[kind]}.")
