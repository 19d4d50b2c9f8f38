"""Study files: TOML, checked key by key, to a study."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from pskem.preprocessing import paper_features
from pskem.study.checking import (
    SHARE,
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
    number,
    whole,
)
from pskem.study.configuration import Point, StudyError
from pskem.study.definition import Entry, Experiment, Study, check_names, names_of
from pskem.study.materials import SCALES, file_digest, has_test_set, is_known
from pskem.study.methods import METHODS, OURS, RESERVED
from pskem.study.splits import ORDERS
from pskem.tables import IMAGES

__all__ = ["complete_features", "included", "load_study", "parse_study"]

#: What can stand on the vertical axis of a figure.
QUANTITIES = ("accuracy", "honest", "peak", "shared", "seconds", "operations")

_TABLES = Rule(
    "tables, each with a heading in double brackets",
    lambda value: isinstance(value, list) and all(isinstance(part, Mapping) for part in value),
)
#: Tables that an experiment takes from its study and may change; settings are the classifier's.
SHARED = {
    "data": TABLE,
    "features": TABLE,
    "split": TABLE,
    "validation": TABLE,
    "settings": TABLE,
}
STUDY = {
    "title": WORD,
    "about": WORD,
    "runs": whole(1),
    "experiment": _TABLES,
    "slice": _TABLES,
    "figure": _TABLES,
    **SHARED,
}
EXPERIMENT = {
    "name": WORD,
    "method": Rule(
        'the name of a method, { name = "...", ... } or a list of these',
        lambda value: (
            value != [] and all(isinstance(part, str | Mapping) for part in as_list(value))
        ),
    ),
    "runs": whole(1),
    "grid": TABLE,
    "paper": TABLE,
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
PAPER = {"accuracy": number(), "spread": number(), "seconds_per_pass": number()}
DATA = {"source": WORD, "target": WORD, "drop": WORDS, "categorical": WORDS}
TABLE_FEATURES = {"scale": choice(*SCALES), "pca": whole(1)}
IMAGE_FEATURES = {
    "n_components": whole(1),
    "deskew": TRUTH,
    "half_size": TRUTH,
    "scale": choice("global", "image"),
    "standardize": choice("global", "pixel", "image"),
}
SPLIT = {
    "folds": whole(2),
    "order": choice(*ORDERS),
    "test": SHARE,
    "train": whole(1),
    "fixed": TRUTH,
}
VALIDATION = {"rows": whole(1), "fraction": SHARE, "folds": whole(2)}


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
        text = file.read_text(encoding="utf-8-sig")  # some editors begin with a mark
    except OSError as error:
        raise StudyError(f"{file} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise StudyError(f"{file} is not a text file in UTF-8.") from None
    return parse_study(file.stem, text, file.parent)


def parse_study(name: str, text: str, folder: Path = Path()) -> Study:
    """A study from the text of a TOML file; files are sought in the folder."""
    where = f"The study {name!r}"
    try:
        table = tomllib.loads(text)
    except ValueError as error:  # of TOML, or of a number too long to be read
        raise StudyError(f"{where} is not valid TOML: {error}.") from None
    check_table(where, table, STUDY)
    experiments = [
        experiment for entry in table.get("slice", []) for experiment in _slice(where, table, entry)
    ] + [
        _experiment(where, table, entry, folder, i)
        for i, entry in enumerate(table.get("experiment", []), start=1)
    ]
    if not experiments:
        raise StudyError(f"{where} has no [[experiment]].")
    _check_unique(f"{where} has two experiments", [experiment.name for experiment in experiments])
    title = table.get("title", name)
    figures = [_figure(where, title, entry, experiments) for entry in table.get("figure", [])]
    _check_unique(f"{where} has two figures", [figure["name"] for figure in figures])
    about = " ".join(table.get("about", "").split())
    return Study(name, title, about, experiments, figures)


def _check_unique(what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise StudyError(f"{what} called {name!r}.")


def _experiment(
    where: str, table: Mapping[str, Any], entry: Mapping[str, Any], folder: Path, i: int
) -> Experiment:
    """An experiment from its table and those above it."""
    name = entry.get("name", f"experiment {i}")
    where = f"{where}, experiment {name!r},"
    check_table(where, entry, EXPERIMENT)
    check_table(f"{where} paper", entry.get("paper", {}), PAPER)
    tables = {key: {**table.get(key, {}), **entry.get(key, {})} for key in SHARED}
    if "source" in entry.get("data", {}):
        tables["data"] = dict(entry["data"])  # what stands above is about other data
    data, path = _data(where, tables["data"], folder)
    features = _features(where, data["source"], tables["features"])
    split, validation = _rows(where, data["source"], tables["split"], tables["validation"])
    grid = {"method": as_list(entry.get("method", OURS))} | {
        key: as_list(values) for key, values in entry.get("grid", {}).items()
    }
    if "method" in entry.get("grid", {}):
        raise StudyError(f"{where} grid has methods; they stand in method = [...].")
    empty = [key for key, values in grid.items() if not values]
    if empty:
        raise StudyError(f"{where} grid has no values for {empty[0]!r}.")
    points: list[Point] = []
    labels: list[Mapping[str, Any]] = []
    for values in product(*grid.values()):
        chosen = dict(zip(grid, values, strict=True))
        method, own = _method(where, chosen.pop("method"))
        # Settings and validation above the experiments are for the shared kernels.
        above = table.get("settings", {}) if method == OURS else {}
        settings = {**above, **entry.get("settings", {}), **own, **chosen}
        _check_settings(f"{where} settings", method, settings)
        chooses = validation if method == OURS else {}
        complete = METHODS[method].complete(settings)
        points.append(Point(data, features, split, chooses, method, complete))
        label = {"method": _spoken(method, own), **chosen}
        labels.append({key: v for key, v in label.items() if len(grid[key]) > 1})
    runs = entry.get("runs", table.get("runs", 1))
    return Experiment(name, points, labels, runs, entry.get("paper", {}), path)


def _data(where: str, data: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], str | None]:
    """The table of the data as it enters the key, and the path of the file, if it is one."""
    check_table(f"{where} data", data, DATA)
    source = data.get("source")
    if source is None:
        raise StudyError(f'{where} does not say where its data are: data.source = "...".')
    listed = {key: as_list(data[key]) for key in ("drop", "categorical") if key in data}
    if is_known(source):
        accepted = {"source"} if source in IMAGES else {"source", *listed}
        check_known(f"{where} data of {source}", data, accepted)
        return {**data, **listed}, None
    path = folder / source
    try:
        content = file_digest(path)
    except (OSError, ValueError):
        raise StudyError(
            f"{where} needs the file {path}, which cannot be read, and no data set is called"
            f" {source!r}. Files are sought from the folder of the study."
        ) from None
    if "target" not in data:
        raise StudyError(f"{where} does not name the column of the classes: data.target.")
    return {**data, **listed, "source": path.name, "digest": content}, str(path.resolve())


def _features(where: str, source: str, features: Mapping[str, Any]) -> dict[str, Any]:
    if source not in IMAGES:
        check_table(f"{where} features", features, TABLE_FEATURES)
        return dict(features)
    precision = {"dtype": choice("float64", "float32")} if has_test_set(source) else {}
    check_table(f"{where} features", features, {**IMAGE_FEATURES, **precision})
    return complete_features(source, features)


def complete_features(source: str, features: Mapping[str, Any]) -> dict[str, Any]:
    """Features of an image set in full: a run is known by what it does, whatever the defaults."""
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(paper_features).parameters.items()
    }
    usual = {**defaults, **IMAGES[source]}
    if has_test_set(source):
        usual["dtype"] = "float64"
    plain = {key: list(v) if isinstance(v, tuple) else v for key, v in usual.items()}
    return {**plain, **features}


def _rows(
    where: str, source: str, split: Mapping[str, Any], validation: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The tables of the split and the validation, which must agree with each other."""
    check_table(f"{where} split", split, SPLIT)
    check_table(f"{where} validation", validation, VALIDATION)
    if len(validation) > 1:
        raise StudyError(f"{where} validates in several ways: use rows, fraction or folds.")
    if "folds" in split and "test" in split:
        raise StudyError(f"{where} split has folds and test; use one of them.")
    if "order" in split and "folds" not in split:
        raise StudyError(f"{where} split has an order, but no folds.")
    if "rows" in validation and "train" not in split:
        raise StudyError(
            f"{where} validation has rows, which split.train must leave over; give train, or use"
            " fraction."
        )
    if has_test_set(source) and ("folds" in split or "test" in split):
        raise StudyError(
            f"{where} splits {source} anew, but its features are fitted to the publisher's training"
            " images. Leave folds and test out; train takes some of these images."
        )
    return dict(split), dict(validation)


def _check_settings(where: str, method: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that the method does not take, before anything is run with them."""
    accepted = METHODS[method].parameters()
    own = [name for name in settings if name in RESERVED - accepted]
    if own:
        raise StudyError(
            f"{where} has {own[0]!r}, which a study does not take: seeds, threads and the choice of"
            " the pass are its own."
        )
    check_known(where, settings, accepted)
    try:
        METHODS[method].check(settings)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{where} cannot be had: {' '.join(str(error).split())}") from None


def _method(where: str, entry: Any) -> tuple[str, dict[str, Any]]:
    """The name of a method, and the settings that stand with it."""
    own = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
    if "name" not in own:
        raise StudyError(f"{where} has a method without a name.")
    name = own.pop("name")
    check_table(where, {"method": name}, {"method": choice(*METHODS)})
    return str(name), own


def _spoken(method: str, settings: Mapping[str, Any]) -> str:
    return ", ".join([method, *(f"{key}={value}" for key, value in settings.items())])


def _slice(where: str, table: Mapping[str, Any], entry: Mapping[str, Any]) -> list[Experiment]:
    """Experiments of an included study: some of their points, or with other settings."""
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
    check_known(where, wanted, METHODS[OURS].parameters())
    _check_settings(where, OURS, changes)
    several = len(table["slice"]) > 1 or "experiment" in table
    made = []
    for experiment in base.experiments:
        kept = {}
        for point, label in zip(experiment.points, experiment.labels, strict=True):
            named = not only or set(only) & names_of(Entry(experiment, point, label))
            fits = all(point.settings.get(k) in as_list(values) for k, values in wanted.items())
            if named and fits:
                if point.method == OURS:
                    changed = METHODS[OURS].complete({**point.settings, **changes})
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
