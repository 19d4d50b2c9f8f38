"""Draw the figures of a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from pskem.study.summary import PointSummary

__all__ = ["chosen", "draw"]

TITLES = {
    "peak": "paper's protocol: best pass by test accuracy (optimistic)",
    "honest": "honest protocol: pass chosen without test data",
    "shared": "shared proportion N_S / N_T after the last pass",
    "seconds": "measured seconds of all passes, one run",
    "operations": "the paper's operation count",
}
NAMES = {"n_components": "K, kernels per block", "n_blocks": "blocks"}
SYMBOLS = {"n_components": "K", "n_blocks": "R"}
MARKERS = "osD^vP*X"
MOST_TICKS = 12


def chosen(figure: Mapping[str, Any], summaries: Sequence[PointSummary]) -> list[PointSummary]:
    """The points that a figure shows."""
    return [s for s in summaries if s.entry.experiment.name in figure["experiments"]]


def draw(figure: Mapping[str, Any], summaries: Sequence[PointSummary]) -> Any:
    """A matplotlib figure with one panel for each quantity, and two for accuracy.

    Lines are means over the runs; bands are one standard deviation to both sides.
    """
    import matplotlib.pyplot as plt

    wanted = chosen(figure, summaries)
    panels = [
        panel
        for name in figure["y"]
        for panel in (["peak", "honest"] if name == "accuracy" else [name])
    ]
    lines: dict[str, list[PointSummary]] = {}
    for summary in wanted:
        lines.setdefault(_name(figure, summary), []).append(summary)
    made, axes = plt.subplots(
        1,
        len(panels),
        figsize=(6.0 * len(panels), 4.4),
        squeeze=False,
        layout="constrained",
        sharey=panels == ["peak", "honest"],
    )
    places = _places(figure, wanted)
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, len(lines)))
    for ax, panel in zip(axes[0], panels, strict=True):
        for (name, members), colour, marker in zip(
            lines.items(), colours, cycle(MARKERS), strict=False
        ):
            _line(ax, figure, panel, members, places, name, colour, marker)
        ax.set_title(TITLES[panel], fontsize=10)
        ax.set_xlabel(NAMES.get(figure["x"], figure["x"]))
        ax.grid(alpha=0.3)
        if figure.get("log", False):
            ax.set_yscale("log")
        if panel in ("peak", "honest"):
            ax.set_ylabel("accuracy, %")
        if not _are_numbers(places):
            ax.set_xticks(range(len(places)), [_spoken(value) for value in places])
        elif len(places) <= MOST_TICKS:
            ax.set_xticks(places)
        if len(ax.lines) > 1:
            ax.legend(fontsize=9)
    runs = sorted({summary.n_runs for summary in wanted})
    count = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}"
    made.suptitle(f"{figure['title']} ({count} run{'s' if runs != [1] else ''} a point)")
    return made


def _places(figure: Mapping[str, Any], summaries: Sequence[PointSummary]) -> list[Any]:
    """Values on the horizontal axis: numbers sorted, others in the order of the study."""
    found: list[Any] = []
    for summary in summaries:
        value = summary.value(figure["x"])
        if value is not None and value not in found:
            found.append(value)
    return sorted(found) if _are_numbers(found) else found


def _are_numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)


def _line(
    ax: Any,
    figure: Mapping[str, Any],
    panel: str,
    members: Sequence[PointSummary],
    places: Sequence[Any],
    name: str,
    colour: Any,
    marker: str,
) -> None:
    factor = 100.0 if panel in ("peak", "honest") else 1.0
    rows = []
    for summary in members:
        spread, value = summary.quantity(panel), summary.value(figure["x"])
        if spread is not None and value is not None:
            x = value if _are_numbers(places) else places.index(value)
            rows.append((x, factor * spread.mean, factor * (spread.sd or 0.0)))
    if not rows:
        return
    x, mean, sd = np.array(sorted(rows)).T
    ax.plot(x, mean, color=colour, marker=marker, markersize=4, linewidth=1.5, label=name)
    if sd.any():
        ax.fill_between(x, mean - sd, mean + sd, color=colour, alpha=0.15, linewidth=0)


def _name(figure: Mapping[str, Any], summary: PointSummary) -> str:
    """Name of a point's line in the legend; blocks by their number and size."""
    if "line" not in figure:
        return ""
    value = summary.value(figure["line"])
    M = summary.entry.point.features.get("n_components")
    whole = isinstance(M, int) and isinstance(value, int) and M % value == 0
    if figure["line"] == "n_blocks" and whole:
        return f"{value} x {M // value}" + (" (not partitioned)" if value == 1 else "")
    if figure["line"] == "method":
        return str(value)
    return f"{SYMBOLS.get(figure['line'], figure['line'])} = {_spoken(value)}"


def _spoken(value: Any) -> str:
    return "as usual" if value is None else str(value)
