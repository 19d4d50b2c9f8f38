"""The record as pictures: how time, memory and bytes grow, and the lines of the constants."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.scaling.cases import Case
from benchmarks.scaling.costs import (
    Costs,
    Fitted,
    bytes_read,
    bytes_sent,
    core_seconds,
    measured,
    size_terms,
    wall,
)
from benchmarks.scaling.figures import MB

__all__ = ["draw_rows", "draw_sizes", "draw_workers"]

Record = dict[str, Any]
Point = tuple[Case, Record]
COLOURS = {"memory": "C0", "memmap": "C1", "parquet": "C2", "arrow": "C3"}
LABELS = {"K": "kernels", "m": "features of a block", "R": "blocks", "L": "classes"}
SECONDS, CORE = "seconds of a pass", "seconds of a core in a pass"
PEAK, READ, SENT = "peak memory, MB", "MB read from files in a pass", "MB sent in a pass"


def _figure(n_rows: int, n_columns: int, **options: Any) -> tuple[Any, Any]:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    size = (4.2 * n_columns, 3.4 * n_rows)
    options |= {"figsize": size, "layout": "constrained", "squeeze": False}
    return plt.subplots(n_rows, n_columns, **options)


def _save(figure: Any, path: Path) -> None:
    """With a white ground, so that it can be read on a dark page."""
    from matplotlib import pyplot as plt

    figure.savefig(path, dpi=100, facecolor="white")
    plt.close(figure)


def _logarithmic(axis: Any, ticks: list[int] | None = None) -> None:
    """A logarithmic axis with plain numbers."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    if ticks is not None:
        axis.set_ticks(ticks, minor=False)
        axis.set_minor_formatter(NullFormatter())
        return
    some = FuncFormatter(lambda value, _: f"{value:g}" if f"{value:e}"[0] in "25" else "")
    axis.set_minor_formatter(some)


def _points(record: Record, section: str, source: str) -> list[Point]:
    """Cases of a section in the order of what differs in it."""
    found = [each for each in measured(record, section) if each[0].source == source]
    return sorted(found, key=lambda each: getattr(each[0], section))


def _plot(
    axes: Any,
    points: list[Point],
    section: str,
    value: Callable[[Case, Record], float],
    style: str = "o-",
    **options: Any,
) -> None:
    axes.plot(
        [getattr(case, section) for case, _ in points],
        [value(case, entry) for case, entry in points],
        style,
        **options,
    )


def _peak(case: Case, entry: Record) -> float:
    """Of the process that reads the rows; of workers, the one that has the most."""
    return float(max(entry["peak"][1:] if case.clustered else entry["peak"])) / MB


def _read(case: Case, entry: Record) -> float:
    return bytes_read(entry) / MB


def _sent(case: Case, entry: Record) -> float:
    return bytes_sent(entry) / MB


def _wall(case: Case, entry: Record) -> float:
    return wall(entry)


def _fitted(axes: Any, points: list[Point], section: str, costs: Costs, source: str) -> None:
    """Medians of the passes as dots, and what the constants say as a line."""
    colour = COLOURS[source]
    _plot(axes, points, section, core_seconds, "o", color=colour, label=source)
    _plot(axes, points, section, lambda case, _: costs.seconds(case), "-", color=colour)


def draw_sizes(record: Record, costs: Costs, path: Path) -> None:
    """Seconds, memory, and bytes read and sent against K, m, R and L."""
    figure, grid = _figure(4, len(LABELS), sharex="col", sharey="row")
    for i, (section, label) in enumerate(LABELS.items()):
        seconds, memory, read, sent = grid[:, i]
        for source in ("memory", "parquet"):
            points = _points(record, section, source)
            _fitted(seconds, points, section, costs, source)
            _plot(memory, points, section, _peak, color=COLOURS[source], label=source)
        points = _points(record, section, "parquet")
        _plot(read, points, section, _read, color=COLOURS["parquet"], label="parquet")
        _messages(sent, record, costs, section)
        for axes in grid[:, i]:
            axes.set_xscale("log")
            axes.grid(alpha=0.3)
        _logarithmic(sent.xaxis, sorted({getattr(case, section) for case, _ in points}))
        sent.set_xlabel(f"{section}, {label}")
    for axes in (*grid[0], *grid[2], *grid[3]):
        axes.set_yscale("log")
        _logarithmic(axes.yaxis)
    grid[1, 0].set_ylim(bottom=0.0)
    for axes, label in zip(grid[:, 0], (CORE, PEAK, READ, SENT), strict=True):
        axes.set_ylabel(label)
        axes.legend()
    _save(figure, path)


def _messages(axes: Any, record: Record, costs: Costs, section: str) -> None:
    """The model that goes out and the sums that come back, where Dask makes a pass."""
    plain = Case("dask", 0)
    asked = [
        (Case(**entry["case"]["case"]), entry["found"])
        for entry in record["sections"]["sizes"]["cases"]
    ]
    along = [(c, f) for c, f in asked if c == plain._replace(**{section: getattr(c, section)})]
    along.sort(key=lambda each: getattr(each[0], section))
    fits: dict[str, Fitted] = {"out": costs.out, "back": costs.back}
    for what, colour in (("out", "C4"), ("back", "C5")):
        label = {"out": "model, to a worker", "back": "sums, of a partition"}[what]
        x = [getattr(case, section) for case, _ in along]
        axes.plot(x, [found[what] / MB for _, found in along], "o", color=colour, label=label)
        line = [fits[what].predict(size_terms(case)) / MB for case, _ in along]
        axes.plot(x, line, "-", color=colour)


def draw_rows(record: Record, costs: Costs, path: Path) -> None:
    """Seconds, memory and bytes read against N."""
    figure, grid = _figure(1, 3)
    seconds, memory, read = grid[0]
    for source in COLOURS:
        points = _points(record, "N", source)
        _fitted(seconds, points, "N", costs, source)
        _plot(memory, points, "N", _peak, color=COLOURS[source], label=source)
        # Linux does not count what is read through a memory map, and small tables are read once.
        if source in ("parquet", "arrow"):
            more = [each for each in points if _read(*each) > 1.0]
            _plot(read, more, "N", _read, color=COLOURS[source], label=source)
    for axes, label in zip(grid[0], (CORE, PEAK, READ), strict=True):
        axes.set(xlabel="N, rows", ylabel=label, xscale="log", yscale="log")
        _logarithmic(axes.yaxis)
        axes.grid(alpha=0.3, which="both")
        axes.legend()
    _save(figure, path)


def draw_workers(record: Record, costs: Costs, path: Path) -> None:
    """Seconds, memory and bytes against the numbers of threads and of workers."""
    figure, grid = _figure(2, 3)
    for source in ("memory", "parquet"):
        points = _points(record, "threads", source)
        values: tuple[Callable[[Case, Record], float], ...] = (_wall, _peak, _read)
        for axes, value in zip(grid[0], values, strict=True):
            _plot(axes, points, "threads", value, color=COLOURS[source], label=source)
    for i, (label, points) in enumerate(_kinds(record).items()):
        for axes, value in zip(grid[1], (_wall, _peak, _sent), strict=True):
            _plot(axes, points, "workers", value, color=f"C{i + 4}", label=label)
    labels = ((SECONDS, PEAK, READ), (SECONDS, f"{PEAK}, of a worker", SENT))
    for row, names, below in zip(grid, labels, ("threads", "workers"), strict=True):
        for axes, label in zip(row, names, strict=True):
            axes.set(xlabel=below, ylabel=label, xticks=(1, 2), xlim=(0.8, 2.2))
            axes.set_ylim(bottom=0.0)
            axes.grid(alpha=0.3)
        row[0].legend(fontsize="small")
    _save(figure, path)


def _kinds(record: Record) -> dict[str, list[Point]]:
    """Passes by workers, by what they are given."""
    names = {"files": "Parquet files", "apart": "processes apart"}
    found: dict[str, list[Point]] = {}
    for source in ("dask", "files", "apart"):
        for case, entry in _points(record, "workers", source):
            label = names.get(source, f"Dask array, {case.partitions} partitions")
            found.setdefault(label, []).append((case, entry))
    return found
