"""Figures of a study, as its definition asks for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pskem.study.summary import PointSummary

__all__ = ["draw"]

TITLES = {
    "peak": "paper's protocol: best pass by test accuracy (optimistic)",
    "honest": "honest protocol: pass chosen without test data",
    "shared": "shared proportion $N_S / N_T$ after the last pass",
    "seconds": "measured seconds of all passes, one run",
    "operations": "the paper's operation count",
}
NAMES = {"n_components": "K, kernels per block", "n_blocks": "blocks"}
MARKERS = "osD^vP*X"


def draw(figure: Mapping[str, Any], summaries: Sequence[PointSummary]) -> Any:
    """A matplotlib figure with a panel for each quantity; accuracy has one for each protocol.

    Lines are means over the runs, bands one standard deviation to both sides.
    """
    import matplotlib.pyplot as plt

    wanted = [s for s in summaries if s.entry.experiment.name in figure["experiments"]]
    panels = [
        panel
        for name in figure["y"]
        for panel in (["peak", "honest"] if name == "accuracy" else [name])
    ]
    lines: dict[Any, list[PointSummary]] = {}
    for summary in wanted:
        lines.setdefault(summary.value(figure["line"]) if "line" in figure else "", []).append(
            summary
        )
    made, axes = plt.subplots(
        1,
        len(panels),
        figsize=(6.0 * len(panels), 4.4),
        squeeze=False,
        layout="constrained",
        sharey=panels == ["peak", "honest"],
    )
    colours = plt.get_cmap("viridis")(np.linspace(0.0, 0.9, max(1, len(lines))))
    for ax, panel in zip(axes[0], panels, strict=True):
        for (value, members), colour, marker in zip(
            lines.items(), colours, MARKERS * len(lines), strict=False
        ):
            _line(ax, figure, panel, members, _name(figure, value, members[0]), colour, marker)
        ax.set_title(TITLES[panel], fontsize=10)
        ax.set_xlabel(NAMES.get(figure["x"], figure["x"]))
        ax.grid(alpha=0.3)
        if figure.get("log", False):
            ax.set_yscale("log")
        elif panel in ("peak", "honest"):
            ax.set_ylabel("accuracy, %")
    if len(lines) > 1:
        axes[0, -1].legend(fontsize=9)
    runs = sorted({summary.n_runs for summary in wanted})
    count = f"{runs[0]}" if len(runs) == 1 else f"{runs[0]} to {runs[-1]}" if runs else "no"
    made.suptitle(f"{figure['title']} ({count} run{'s' if runs != [1] else ''} a point)")
    return made


def _line(
    ax: Any,
    figure: Mapping[str, Any],
    panel: str,
    members: Sequence[PointSummary],
    name: str,
    colour: Any,
    marker: str,
) -> None:
    factor = 100.0 if panel in ("peak", "honest") else 1.0
    rows = []
    for summary in members:
        spread = summary.quantity(panel)
        if spread is not None:
            x = summary.value(figure["x"])
            rows.append((x, factor * spread.mean, factor * (spread.sd or 0.0)))
    if not rows:
        return
    rows.sort(key=lambda row: row[0])
    x, mean, sd = zip(*rows, strict=True)
    ax.plot(x, mean, color=colour, marker=marker, markersize=4, linewidth=1.5, label=name)
    low, high = np.subtract(mean, sd), np.add(mean, sd)
    if np.any(np.array(sd) > 0.0):
        ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)


def _name(figure: Mapping[str, Any], value: Any, summary: PointSummary) -> str:
    """A line's entry in the legend: blocks by their number and size."""
    if "line" not in figure:
        return ""
    M = summary.entry.point.features.get("n_components")
    if figure["line"] == "n_blocks" and isinstance(M, int) and isinstance(value, int):
        return f"{value} x {M // value}" + (" (not partitioned)" if value == 1 else "")
    return f"{NAMES.get(figure['line'], figure['line'])} {value}"
