"""Parse an experiment of a study: check its tables and expand its grid."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
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
    number,
    whole,
)
from pskem.study.configuration import Point, StudyError
from pskem.study.definition import Experiment
from pskem.study.folders import tables_in
from pskem.study.materials import SCALES, file_digest, has_test_set, is_known
from pskem.study.methods import CLASSIFIERS, OURS, RESERVED, lacking
from pskem.study.splits import ORDERS
from pskem.tables import IMAGES

__all__ = ["SHARED", "check_settings", "make_experiments"]

#: Tables that an experiment inherits from its study and may override.
SHARED = {
    "data": TABLE,
    "features": TABLE,
    "split": TABLE,
    "validation": TABLE,
    "settings": TABLE,
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
PAPER = {"accuracy": number(), "spread": number(), "seconds_per_pass": number()}
DATA = {"source": WORD, "target": WORD, "drop": WORDS, "categorical": WORDS, "folder": WORD}
TABLE_FEATURES = {"scale": choice(*SCALES), "pca": whole(1), "frame": TRUTH}
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
    "labels": whole(1),
    "fixed": TRUTH,
    "single": TRUTH,
}
VALIDATION = {"rows": whole(1), "fraction": SHARE, "folds": whole(2)}


def make_experiments(
    where: str,
    table: Mapping[str, Any],
    entry: Mapping[str, Any],
    folder: Path | None,
    tables: Path | None,
    i: int,
) -> list[Experiment]:
    """Make an experiment from its own table and the study's, or one for each table of a folder.

    That folder is ``tables``, or else where the study says, seen from ``folder``. Without either
    the experiment has no points yet.
    """
    name = entry.get("name", f"experiment {i}")
    where = f"{where}, experiment {name!r},"
    check_table(where, entry, EXPERIMENT)
    check_table(f"{where} paper", entry.get("paper", {}), PAPER)
    merged = {key: {**table.get(key, {}), **entry.get(key, {})} for key in SHARED}
    if {"source", "folder"} & set(entry.get("data", {})):
        merged["data"] = dict(entry["data"])  # what stands above is about other data
    if "folder" not in merged["data"]:
        return [_experiment(where, name, table, entry, merged, folder or Path())]
    check_table(f"{where} data", merged["data"], {"folder": WORD})
    place = tables if tables is not None or folder is None else folder / merged["data"]["folder"]
    if place is None:
        return [Experiment(name, [], [], entry.get("runs", table.get("runs", 1)), {})]
    made = []
    for found in tables_in(place):
        own = f"{name}: {found.name}" if "name" in entry else found.name
        data = {"source": found.path.name, "target": found.target}
        whole_entry = {**merged, "data": data}
        made.append(_experiment(where, own, table, entry, whole_entry, place))
    return made


def _experiment(
    where: str,
    name: str,
    table: Mapping[str, Any],
    entry: Mapping[str, Any],
    tables: Mapping[str, Mapping[str, Any]],
    folder: Path,
) -> Experiment:
    """Make an experiment on one data set; ``tables`` are those of :data:`SHARED`."""
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
        ours = CLASSIFIERS[method].has_passes
        above = table.get("settings", {}) if ours else {}
        if lacking(method) is not None:
            continue
        settings = {**above, **entry.get("settings", {}), **own, **chosen}
        check_settings(f"{where} settings", method, settings)
        chooses = validation if ours else {}
        complete = CLASSIFIERS[method].complete(settings)
        if features.get("frame", False):
            _check_probabilities(where, method, complete)
        points.append(Point(data, features, split, chooses, method, complete))
        label = {"method": _spoken(method, own), **chosen}
        labels.append({key: v for key, v in label.items() if len(grid[key]) > 1})
    runs = entry.get("runs", table.get("runs", 1))
    return Experiment(name, points, labels, runs, entry.get("paper", {}), path)


def _check_probabilities(where: str, method: str, settings: Mapping[str, Any]) -> None:
    classifier = CLASSIFIERS[method]
    if classifier.has_passes or not hasattr(classifier.make(settings, 0, 1), "predict_proba"):
        raise StudyError(
            f"{where} has features.frame = true, which is for classifiers with probabilities and"
            f" without passes; {method} is none."
        )


def _data(where: str, data: Mapping[str, Any], folder: Path) -> tuple[dict[str, Any], str | None]:
    """The data table as it enters the key, and the path of the file, if there is one."""
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
        if features.get("frame", False) and len(features) > 1:
            raise StudyError(f"{where} features has frame = true: columns stay as they are.")
        return dict(features)
    precision = {"dtype": choice("float64", "float32")} if has_test_set(source) else {}
    check_table(f"{where} features", features, {**IMAGE_FEATURES, **precision})
    return _complete(source, features)


def _complete(source: str, features: Mapping[str, Any]) -> dict[str, Any]:
    """Features of an image set with all defaults, so that a key does not depend on them."""
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
    """Check the tables of the split and the validation, also against each other."""
    check_table(f"{where} split", split, SPLIT)
    check_table(f"{where} validation", validation, VALIDATION)
    if len(validation) > 1:
        raise StudyError(f"{where} validates in several ways: use rows, fraction or folds.")
    if "folds" in split and "test" in split:
        raise StudyError(f"{where} split has folds and test; use one of them.")
    for key in ("order", "single"):
        if key in split and "folds" not in split:
            spoken = "an order" if key == "order" else "single folds"
            raise StudyError(f"{where} split has {spoken}, but no folds.")
    if split.get("single", False) and split.get("fixed", False):
        raise StudyError(f"{where} split is single and fixed: all runs would be of one fold.")
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


def check_settings(where: str, method: str, settings: Mapping[str, Any]) -> None:
    """Refuse settings that the method does not accept, before anything is run."""
    accepted = CLASSIFIERS[method].parameters()
    own = [name for name in settings if name in RESERVED - accepted]
    if own:
        raise StudyError(
            f"{where} has {own[0]!r}, which a study does not take: seeds, threads and the choice of"
            " the pass are its own."
        )
    check_known(where, settings, accepted)
    try:
        CLASSIFIERS[method].check(settings)
    except (TypeError, ValueError) as error:
        raise StudyError(f"{where} cannot be had: {' '.join(str(error).split())}") from None


def _method(where: str, entry: Any) -> tuple[str, dict[str, Any]]:
    """Name of a method, and its settings."""
    own = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
    if "name" not in own:
        raise StudyError(f"{where} has a method without a name.")
    name = own.pop("name")
    check_table(where, {"method": name}, {"method": choice(*CLASSIFIERS)})
    return str(name), own


def _spoken(method: str, settings: Mapping[str, Any]) -> str:
    return ", ".join([method, *(f"{key}={value}" for key, value in settings.items())])
