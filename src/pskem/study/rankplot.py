"""Draw mean ranks with the critical difference, as Demšar (2006) does."""

from __future__ import annotations

from typing import Any

import numpy as np

from pskem.study.comparison import OURS, RANKED, Comparison
from pskem.study.ranking import Ranking, groups

__all__ = ["draw_ranks"]

#: Heights in lines of text.
TOP, BAR, FIRST = 2.2, 0.35, 0.9
COLOUR = "tab:blue"


def draw_ranks(comparison: Comparison) -> Any:
    """A matplotlib figure with one panel a measure. Bars join methods that do not differ."""
    import matplotlib.pyplot as plt

    n_lines = (len(comparison.methods) + 1) // 2 + 4
    made, axes = plt.subplots(
        len(RANKED), 1, figsize=(9.0, 0.26 * n_lines * len(RANKED) + 0.6), layout="constrained"
    )
    for ax, measure in zip(axes, RANKED, strict=True):
        _panel(ax, comparison.methods, comparison.ranking(measure))
        ax.set_title(f"mean rank by {measure}, {len(comparison.tables)} tables", fontsize=10)
    return made


def _panel(ax: Any, methods: list[str], ranking: Ranking) -> None:
    order = np.argsort(ranking.mean, kind="stable")
    ranks = ranking.mean[order]
    k = len(ranks)
    joined = groups(ranks, ranking.difference)
    below = FIRST + BAR * len(joined)  # where the names begin
    ax.plot([1, k], [0, 0], color="black", linewidth=1)
    for tick in range(1, k + 1):
        ax.plot([tick, tick], [0, -0.2], color="black", linewidth=1)
        ax.text(tick, -0.35, str(tick), ha="center", va="bottom", fontsize=8)
    end = min(1 + ranking.difference, k)  # with few tables it is longer than the axis
    ax.plot([1, end], [-TOP + 0.6] * 2, color="black", linewidth=2)
    ax.text(
        (1 + end) / 2,
        -TOP + 0.5,
        f"critical difference {ranking.difference:.2f}",
        ha="center",
        va="bottom",
        fontsize=8,
    )
    for level, (first, last) in enumerate(joined):
        y = FIRST - 0.4 + BAR * level
        ends = [ranks[first] - 0.05, ranks[last] + 0.05]
        ax.plot(ends, [y, y], color="0.35", linewidth=3, solid_capstyle="butt")
    left = (k + 1) // 2
    for place, (i, value) in enumerate(zip(order, ranks, strict=True)):
        on_left = place < left
        line = below + (place if on_left else k - 1 - place)
        x = 0.6 if on_left else k + 0.4
        ours = methods[i].startswith(OURS)
        style = {"color": COLOUR if ours else "black", "linewidth": 1.6 if ours else 0.8}
        ax.plot([value, value, x], [0, line, line], **style)
        ax.text(
            x + (-0.1 if on_left else 0.1),
            line,
            f"{methods[i]}  {value:.2f}" if on_left else f"{value:.2f}  {methods[i]}",
            ha="right" if on_left else "left",
            va="center",
            fontsize=9,
            color=style["color"],
            fontweight="bold" if ours else "normal",
        )
    ax.set_xlim(1 - 0.3 * k, k + 0.3 * k)
    ax.set_ylim(below + left, -TOP - 0.6)  # downwards
    ax.axis("off")
