"""The record as pictures: how time and memory grow, and the lines of the constants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.scaling.costs import Costs, core_seconds, measured

__all__ = ["draw_rows", "draw_sizes"]

Record = dict[str, Any]
COLOURS = {"memory": "C0", "memmap": "C1", "parquet": "C2", "arrow": "C3"}
LABELS = {"K": "kernels", "m": "features of a block", "R": "blocks", "L": "classes"}


def _figure(n: int) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(1, n, figsize=(4.2 * n, 3.6), layout="constrained")


def _save(figure: Any, path: Path) -> None:
    """With a white ground, so that it can be read on a dark page."""
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=100, facecolor="white")
    plt.close(figure)


def _line(axes: Any, record: Record, section: str, source: str, costs: Costs) -> None:
    """Medians of the passes as dots, and what the constants say as a line."""
    found = sorted(
        (
            (getattr(case, section), case, entry)
            for case, entry in measured(record, section)
            if case.source == source
        ),
        key=lambda each: each[0],
    )
    x = [value for value, _, _ in found]
    y = [core_seconds(case, entry) for _, case, entry in found]
    axes.plot(x, y, "o", color=COLOURS[source], label=source)
    axes.plot(x, [costs.seconds(case) for _, case, _ in found], "-", color=COLOURS[source])


def draw_sizes(record: Record, costs: Costs, path: Path) -> None:
    """Seconds of a pass against K, m, R and L."""
    figure, panels = _figure(len(LABELS))
    for axes, (section, label) in zip(panels, LABELS.items(), strict=True):
        for source in ("memory", "parquet"):
            _line(axes, record, section, source, costs)
        axes.set(xlabel=f"{section}, {label}", xscale="log", yscale="log")
        axes.grid(alpha=0.3, which="both")
    panels[0].set_ylabel("seconds of a core in a pass")
    panels[0].legend()
    _save(figure, path)


def draw_rows(record: Record, costs: Costs, path: Path) -> None:
    """Seconds and memory against N."""
    figure, (seconds, memory, read) = _figure(3)
    for source in COLOURS:
        _line(seconds, record, "N", source, costs)
        found = sorted(
            (case.N, max(entry["peak"]) / 1e6, _bytes_read(entry) / 1e6)
            for case, entry in measured(record, "N")
            if case.source == source
        )
        rows, peaks, _ = zip(*found, strict=True)
        memory.plot(rows, peaks, "o-", color=COLOURS[source], label=source)
        if source in ("parquet", "arrow"):  # of mapped files the system does not tell
            more = [(n, size) for n, _, size in found if size > 1.0]  # small tables are read once
            read.plot(*zip(*more, strict=True), "o-", color=COLOURS[source], label=source)
    seconds.set_ylabel("seconds of a core in a pass")
    memory.set_ylabel("peak memory of the process, MB")
    read.set_ylabel("MB read from files in a pass")
    for axes in (seconds, memory, read):
        axes.set(xlabel="N, rows", xscale="log", yscale="log")
        axes.grid(alpha=0.3, which="both")
    seconds.legend()
    _save(figure, path)


def _bytes_read(entry: Record) -> float:
    return float(entry["passes"][-1]["used"][0].get("read", 0.0))
