"""The record of a run as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.pass_tables import CORE, advantage, size_name

__all__ = ["draw"]


def draw(record: dict[str, Any], path: Path) -> None:
    """Time per pass of each trainer, and how many times faster pskem is in its precision.

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    entries = record["passes"]["sizes"]
    names = list(dict.fromkeys(name for entry in entries for name in entry["trainers"]))
    width = 0.8 / (len(names) + 1)
    figure, (times, ratios) = plt.subplots(2, 1, figsize=(10, 7), sharex=True, layout="constrained")
    limits = [entry["limit_ms"]["float64"] for entry in entries]
    times.bar(range(len(entries)), limits, width, label="two float64 products", color="lightgrey")
    for i, name in enumerate(names):
        found = [(j, entry) for j, entry in enumerate(entries) if name in entry["trainers"]]
        places = [j + (i + 1) * width for j, _ in found]
        ms = [entry["trainers"][name]["ms"] for _, entry in found]
        times.bar(places, ms, width, label=name, color=f"C{i}")
        if name not in CORE[:2]:
            ratios.bar(places, [advantage(entry, name) for _, entry in found], width, color=f"C{i}")
    place = (names.index(CORE[2]) + 1) * width
    for j, entry in enumerate(entries):
        ends = [j + place - width / 2, j + place + width / 2]
        label = "goal for GaussianMixture" if j == 0 else None
        ratios.plot(ends, [entry["target"]] * 2, color="black", linewidth=2, label=label)
    times.set_yscale("log")
    times.set_ylabel("ms per EM pass")
    ratios.set_ylabel("times the pass of pskem\nin the same precision")
    ratios.set_xticks([j + 0.4 - width / 2 for j in range(len(entries))], map(size_name, entries))
    ratios.set_xlabel("N, m, K")
    for axes in (times, ratios):
        axes.grid(axis="y", alpha=0.3)
    times.set_title(f"Full covariance, one thread, {record['machine']['processor']}")
    figure.legend(loc="outside right upper", fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)
