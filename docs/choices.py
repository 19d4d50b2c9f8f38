"""Write the tables of docs/choices.md from recorded runs.

python -m docs.choosing FOLDER           # measure, see there
python -m docs.repeating                 # measure, on the image sets
python -m docs.choices                   # write the tables from the records
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.markdown import fill, paragraph

from pskem.display import Table
from pskem.study.ranking import rank

HERE = Path(__file__).parent
TAKEN = HERE / "choices"
FITS, FORMS, ENSEMBLES, REPEATS = (
    TAKEN / f"{name}.csv" for name in ("fits", "forms", "ensembles", "repeats")
)
#: Tables that the whole record has.
WHOLE = 32
#: Standard errors from which on a difference is no noise.
NOISE = 2.0
#: The calibration of the package, and what a default fit is.
ALL = "all"
SHIPPED = ("product", ALL)
#: What the calibrations of the best form are compared with; all others, with a default fit.
BEST = ("best form", ALL)

#: Calibrations by their names in the record.
CALIBRATIONS = {
    "none": "none",
    "exponents": "exponents alone",
    "temperature": "temperature",
    "weights": "weights, temperature",
    "shares": "shares, temperature",
    ALL: "**weights, shares, temperature**",
    "final": "weights, temperature, share of the final posterior",
}
#: Headings where there is less room.
SHORT = {
    "none": "none",
    "temperature": "temperature",
    "weights": "weights",
    "shares": "shares",
    ALL: "**all**",
    "final": "final share",
}
#: Models of the comparison of views.
VIEWS = {
    "product": "**product of six forms**",
    "equal exponents": "product of six, equal exponents",
    "three": "product of three",
    "one": "best form",
    "proper": "best form that is a density",
    "plain": 'plain form (`covariance_type="full"`)',
}
REFITS = {
    "product": "**trained again on all rows**",
    "one trial": "models of the first trial",
    "all trials": "product of the models of all trials",
}
#: Models of the comparison where rows are held out.
REPEATED = {
    "held out": "trained on nine tenths",
    "anew": "on all rows, from a new start",
    "again": "**on all rows, from EM's kernels**",
}
METHODS = {
    "default": "**SharedKernelClassifier()**",
    "plain": "one model, one block",
    "two blocks": "one model, two blocks",
    "one block each": "ensemble, one block each",
    "partitions": "ensemble, two blocks each",
    "bootstrap": "the same, bootstrap",
    "bootstrap, fitted": "the same, bootstrap and fitted weights",
    "columns": "the same, 70 % of the columns",
    "kernels": "the same, L, 2 L or 3 L kernels",
    "three defaults": "three default models, bootstrap and fitted weights",
}
#: Methods that are shown table by table.
SHOWN = {
    "default": "**default**",
    "plain": "one model",
    "partitions": "partitions",
    "bootstrap, fitted": "bootstrap, fitted",
    "columns": "columns",
    "three defaults": "three defaults",
}


class Score(NamedTuple):
    """Of a model on all test rows of a table.

    difference : mean log loss over that of the reference; error : its standard error
    """

    rows: int
    accuracy: float
    log_loss: float
    ece: float
    difference: float
    error: float

    @property
    def worse(self) -> bool:
        """Than the reference, beyond noise."""
        return self.difference > NOISE * self.error

    @property
    def better(self) -> bool:
        return self.difference < -NOISE * self.error


#: Scores by table and by model and calibration; or by table and method.
Scores = dict[str, dict[Any, Score]]


class Record(NamedTuple):
    """All that was measured. Rows of forms and repeats are as they are in the files."""

    fits: Scores
    forms: list[dict[str, str]]
    ensembles: Scores
    seconds: dict[str, list[float]]
    repeats: list[dict[str, str]]


def in_words(trial: Mapping[str, Any]) -> str:
    """A form as an entry of `trials_` describes it."""
    special = [name.replace("_", " ") for name, value in trial.items() if value is True]
    return ", ".join([str(trial["covariance_type"]), *special])


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def score(row: Mapping[str, str]) -> Score:
    names = ("accuracy", "log loss", "ece", "difference", "error")
    return Score(int(row["rows"]), *(float(row[name]) for name in names))


def load() -> Record:
    fits: Scores = {}
    for row in rows(FITS):
        fits.setdefault(row["table"], {})[row["model"], row["calibration"]] = score(row)
    ensembles: Scores = {}
    seconds: dict[str, list[float]] = {}
    for row in rows(ENSEMBLES):
        ensembles.setdefault(row["table"], {})[row["method"]] = score(row)
        seconds.setdefault(row["method"], []).append(float(row["seconds"]))
    return Record(fits, rows(FORMS), ensembles, seconds, rows(REPEATS))


def summary(scores: Scores, titles: Mapping[Any, str], heading: str) -> str:
    """Mean ranks and means over the tables, and on how many the reference is better or worse."""
    found = [[own[key] for key in titles] for own in scores.values()]
    ranks = rank(np.array([[score.log_loss for score in line] for line in found])).mean
    body = []
    for title, mean_rank, column in zip(
        titles.values(), ranks, zip(*found, strict=True), strict=True
    ):
        loss, accuracy, ece = (
            float(np.mean([getattr(score, name) for score in column]))
            for name in ("log_loss", "accuracy", "ece")
        )
        counts = [sum(each.better for each in column), sum(each.worse for each in column)]
        told = ["", ""] if title.startswith("**") else list(map(str, counts))
        figures = [f"{mean_rank:.2f}", f"{loss:.3f}", f"{100 * accuracy:.2f}", f"{ece:.3f}"]
        body.append([title, *figures, *told])
    measures = ["rank, log loss", "log loss", "accuracy, %", "ECE"]
    return Table([heading, *measures, "better", "worse"], body).markdown()


def of_model(model: str, titles: Mapping[str, str]) -> dict[tuple[str, str], str]:
    return {(model, name): title for name, title in titles.items()}


def with_all(titles: Mapping[str, str]) -> dict[tuple[str, str], str]:
    return {(name, ALL): title for name, title in titles.items()}


def named(tables: Mapping[str, Score]) -> str:
    """Tables, with the differences in log loss to the reference."""
    listed = [f"{table} by {abs(own.difference):.2g}" for table, own in tables.items()]
    return ", ".join(listed) if listed else "none"


def against_none(record: Record) -> str:
    """On which tables the calibration of the package is better than none, and worse."""
    parts = []
    for model, title in (("product", "product"), ("best form", "best form")):
        pairs = {table: own[model, "none"] for table, own in record.fits.items()}
        harmed = {table: score for table, score in pairs.items() if score.better}
        helped = sum(score.worse for score in pairs.values())
        lower = sum(score.difference > 0.0 for score in pairs.values())
        parts.append(
            f"Calibrated in full, the {title} has a lower log loss than without calibration on"
            f" {lower} of {len(pairs)} tables. It is better beyond noise on {helped}, and worse"
            f" beyond noise on {len(harmed)}: {named(harmed)}."
        )
    return "\n\n".join(map(paragraph, parts))


def exceptions(record: Record) -> str:
    """Tables on which the product with another calibration is better beyond noise."""
    lines = []
    for name, title in CALIBRATIONS.items():
        pairs = {table: own["product", name] for table, own in record.fits.items()}
        better = {table: score for table, score in pairs.items() if score.better}
        if name != ALL:
            lines.append(paragraph(f"- {title}: {named(better)}", indent="  "))
    return "\n".join(lines)


def by_table(record: Record, measure: str) -> str:
    """A measure of the product on every table, with every calibration."""
    body = [
        [table, *(f"{getattr(own['product', name], measure):.3f}" for name in SHORT)]
        for table, own in sorted(record.fits.items())
    ]
    return Table([f"{measure.replace('_', ' ')}", *SHORT.values()], body).markdown()


def forms(record: Record) -> str:
    """How often each form is tried, the best and kept, and how much it counts."""
    totals: dict[str, np.ndarray[Any, Any]] = {}
    for row in record.forms:
        figures = np.array([float(row[name]) for name in ("tried", "best", "kept", "exponents")])
        totals[row["form"]] = totals.get(row["form"], 0.0) + figures
    body = [
        [
            form,
            f"{tried:.0f}",
            f"{100 * best / tried:.0f}",
            f"{100 * kept / tried:.0f}",
            f"{exponents / kept:.2f}" if kept else "",
        ]
        for form, (tried, best, kept, exponents) in sorted(
            totals.items(), key=lambda item: -item[1][2] / item[1][0]
        )
    ]
    header = ["form", "fits that tried it", "best, %", "kept, %", "mean exponent if kept"]
    return Table(header, body).markdown()


def ensembles(record: Record) -> str:
    """Means over the tables, ranks, and seconds."""
    whole = {table: own for table, own in record.ensembles.items() if METHODS.keys() <= own.keys()}
    text = summary(whole, METHODS, f"{len(whole)} tables")
    body = [
        [table, *(f"{own[name].log_loss:.3f}" for name in SHOWN)]
        for table, own in sorted(whole.items())
    ]
    seconds = {name: float(np.median(found)) for name, found in record.seconds.items()}
    costs = paragraph(
        f"A default model takes {seconds['default']:.1f} s a fit on the median table, one model"
        f" {seconds['plain']:.2f} s, an ensemble of two blocks each {seconds['partitions']:.1f} s,"
        f" and an ensemble of three default models {seconds['three defaults']:.0f} s."
    )
    each = Table(["log loss", *SHOWN.values()], body).markdown()
    return "\n\n".join([text, costs, each])


def repeats(record: Record) -> str:
    """Means over the runs on each of the image sets, and what the first model loses to others."""
    figures: dict[tuple[str, str], list[list[float]]] = {}
    for row in sorted(record.repeats, key=lambda row: row["seed"]):
        found = [float(row[name]) for name in ("accuracy", "log loss", "seconds")]
        figures.setdefault((row["data"], row["model"]), []).append(found)
    first, body = next(iter(REPEATED)), []
    for data in dict.fromkeys(row["data"] for row in record.repeats):
        for name, title in REPEATED.items():
            own = np.array(figures[data, name])
            accuracy, loss, seconds = own.mean(axis=0)
            changes = own[:, 1] - np.array(figures[data, first])[:, 1]
            change = f"{changes.mean():.4f} ± {changes.std(ddof=1):.4f}" if name != first else ""
            told = [f"{100 * accuracy:.2f}", f"{loss:.4f}", change, f"{seconds:.0f}"]
            body.append([data, title, *told])
    return Table(["data", "model", "accuracy, %", "log loss", "change", "seconds"], body).markdown()


def extent(record: Record) -> str:
    """What the record holds."""
    n = len(record.fits)
    tested = sum(own[SHIPPED].rows for own in record.fits.values())
    text = f"The record has {n} tables and {tested:,} test rows."
    if n < WHOLE:
        text = f"**Provisional: {n} of the {WHOLE} tables have been run.** {text}"
    return paragraph(text)


def sections(record: Record) -> dict[str, str]:
    """The generated parts by the names of their markers."""
    alone = {name: title for name, title in CALIBRATIONS.items() if name != "exponents"}
    fits = record.fits
    return {
        "extent": extent(record),
        "product": summary(fits, of_model("product", CALIBRATIONS), "product of six forms"),
        "alone": summary(fits, of_model("best form", alone), "best form alone"),
        "none": against_none(record),
        "exceptions": exceptions(record),
        "losses": by_table(record, "log_loss"),
        "errors": by_table(record, "ece"),
        "views": summary(fits, with_all(VIEWS), "model"),
        "forms": forms(record),
        "refits": summary(fits, with_all(REFITS), "product of six forms"),
        "repeats": repeats(record),
        "ensembles": ensembles(record),
    }


def main() -> None:
    page = HERE / "choices.md"
    text = fill(page.read_text(encoding="utf-8"), sections(load()))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
