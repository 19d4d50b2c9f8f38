"""Whole fits of a record: a table for each data set, and the short one of the README."""

from __future__ import annotations

from benchmarks.fits import OURS
from benchmarks.markdown import Record, heading, paragraph, table

__all__ = ["fits_text", "short_fits_text"]

#: Load average above which other programs were at work when the run began.
QUIET = 0.5
#: Which sets the README prefers, and how it speaks of their features.
PREFERRED = {
    "mnist": "principal components of the deskewed images",
    "digits": "principal components of the images",
}


def fits_text(run: Record) -> str:
    """All data sets, the settings, and what was left out."""
    parts = [heading(run), _disturbance(run), _conditions(run)]
    for entry in run["sets"].values():
        parts.append(f"### {entry['title']}")
        if "skipped" in entry:
            parts.append(f"Not measured: {entry['skipped']}.")
            continue
        parts += [_shape(entry), _table(entry), _remarks(entry)]
    parts += ["### Settings", _settings(run), _absent(run)]
    return "\n\n".join(part for part in parts if part)


def short_fits_text(run: Record) -> str:
    """The set that the README shows, with its conditions in a sentence or two."""
    name = next(name for name in PREFERRED if "skipped" not in run["sets"][name])
    entry = run["sets"][name]
    said = (
        f"{entry['title']}: {entry['n_train']:,} training and {entry['n_test']:,} test images,"
        f" {entry['n_features']} {PREFERRED[name]}, float64, {_threads(run)}"
        f" ({run['machine']['processor'].replace('(R)', '')}, {run['date']})."
    )
    if run["quick"]:
        said += " **From a quick run, too short to be quoted.**"
    parts = [paragraph(said), _table(entry), _disturbance(run)]
    return "\n\n".join(part for part in parts if part)


def _threads(run: Record) -> str:
    return "2 threads" if run["n_threads"] == 2 else "1 thread"


def _disturbance(run: Record) -> str:
    load = run["load_before"]
    if load is None or load <= QUIET:
        return ""
    return paragraph(
        f"**The machine had other work to do (load average {load:.1f} before the run), so these"
        " times are provisional.** Libraries that wait in busy loops suffer most from that."
    )


def _conditions(run: Record) -> str:
    fits = "one fit" if run["rounds"] == 1 else f"the shortest of up to {run['rounds']} fits"
    return paragraph(
        f"Whole fits on {_threads(run)}, with the settings [below](#settings). All classifiers get"
        f" the same features in float64. *Fit* is the time of {fits}, without imports. *Predict* is"
        " the rate of `predict_proba` on the test rows. The SVM has no probabilities: its rate is"
        " that of `predict`, and it has no log loss. The tables are sorted by accuracy."
    )


def _shape(entry: Record) -> str:
    return paragraph(
        f"{entry['n_train']:,} training and {entry['n_test']:,} test rows,"
        f" {entry['n_features']} features, {entry['n_classes']} classes."
    )


def _table(entry: Record) -> str:
    found = sorted(entry["classifiers"].items(), key=lambda item: item[1]["accuracy"], reverse=True)
    rows = [
        [
            f"**{name}**" if name == OURS else name,
            _seconds(result["fit_seconds"]),
            _rate(result["rows_per_second"]),
            f"{100.0 * result['accuracy']:.2f}",
            f"{result['log_loss']:.3f}" if "log_loss" in result else "",
        ]
        for name, result in found
    ]
    header = ["classifier", "fit (s)", "predict (rows/s)", "accuracy (%)", "log loss"]
    return table(header, rows)


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10.0 else f"{value:.1f}" if value < 100.0 else f"{value:,.0f}"


def _rate(value: float) -> str:
    """Two significant digits, written out."""
    return f"{float(f'{value:.2g}'):,.0f}"


def _remarks(entry: Record) -> str:
    """Failures, and true classes that were given no chance, which a log loss punishes most."""
    said = [f"{name} failed: {reason}." for name, reason in entry["failed"].items()]
    for name, result in entry["classifiers"].items():
        if result.get("impossible"):
            said.append(
                f"{name} gave a probability of 0 to the true class of {result['impossible']:,}"
                " test rows. Each of these costs 36 nats before the mean is taken."
            )
    return paragraph(" ".join(said))


def _settings(run: Record) -> str:
    lines = [
        paragraph(f"- {name}, {found['package']} {found['version']}: `{found['call']}`", "  ")
        for name, found in run["classifiers"].items()
    ]
    said = (
        "What is not named here has the library's default. The SVM uses one thread."
        f" HistGradientBoosting takes its {_threads(run)} from `OMP_NUM_THREADS`."
    )
    return "\n".join(lines) + "\n\n" + paragraph(said)


def _absent(run: Record) -> str:
    return paragraph(" ".join(f"Without {n}: {reason}." for n, reason in run["absent"].items()))
