"""Write the tables and the figure of docs/tables.md from recorded runs.

pskem reproduce tables --data FOLDER --out RESULTS
python -m docs.tables RESULTS           # copy the record of RESULTS, then write
python -m docs.tables                   # write from the record
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from statistics import median

from benchmarks.markdown import fill, paragraph

from pskem.study.comparison import (
    OURS,
    RANKED,
    Cell,
    Comparison,
    compare,
    duels,
    rank_table,
    read_record,
    standing,
    table_by_table,
    wins,
)

HERE = Path(__file__).parent
TAKEN = HERE / "tables"
RECORD = TAKEN / "tables.csv"
FIGURE = "tables-ranks"
#: The peer whose search takes about as long.
TUNED = "searched-rbf-svm"
#: Development tables that the whole record has.
WHOLE = 32


def load(path: Path = RECORD) -> list[Cell]:
    return read_record(path.read_text(encoding="utf-8"))


def missing(cells: list[Cell]) -> list[tuple[str, str]]:
    """Tables and methods without a result: in a finished study, those that failed."""
    there = {(cell.table, cell.method) for cell in cells}
    tables, methods = ({cell[i] for cell in cells} for i in (0, 1))
    return [(t, m) for t in sorted(tables) for m in sorted(methods) if (t, m) not in there]


def compared(cells: list[Cell]) -> Comparison:
    comparison = compare(cells, missing(cells))
    if comparison is None:
        raise ValueError(f"{RECORD} has no table, or a single method.")
    return comparison


def ranks(comparison: Comparison) -> str:
    texts = [paragraph(standing(comparison, measure)) for measure in RANKED]
    if len(comparison.tables) < WHOLE:
        done = f"{len(comparison.tables)} of the {WHOLE} tables"
        texts.insert(0, paragraph(f"**Provisional: {done} have been run.**"))
    return "\n\n".join([*texts, rank_table(comparison).markdown()])


def beside_the_best(comparison: Comparison) -> str:
    """How often pskem is better than all peers, and how often not."""
    parts = []
    for measure in RANKED:
        won, tied, lost = wins(comparison, measure)
        parts.append(
            f"By {measure}, {OURS} is better than every peer on {won} of"
            f" {len(comparison.tables)} tables, as good as the best on {tied} and worse on {lost}."
        )
    text = paragraph(" ".join(parts))
    return f"{text}\n\n{table_by_table(comparison, mark='**').markdown()}"


def seconds(comparison: Comparison) -> str:
    """Time of the fits beside that of the tuned SVM."""
    pairs = [
        (comparison.cells[table, OURS].fit_seconds, comparison.cells[table, TUNED].fit_seconds)
        for table in comparison.tables
        if {(table, OURS), (table, TUNED)} <= comparison.cells.keys()
    ]
    ours, theirs = (sum(column) for column in zip(*pairs, strict=True))
    faster = sum(a < b for a, b in pairs)
    ratio = median(a / b for a, b in pairs)
    return paragraph(
        f"One fit on each of the {len(pairs)} tables takes {OURS} {ours:.0f} s altogether, and the"
        f" tuned SVM {theirs:.0f} s, both on one thread. {OURS} is faster on {faster} of them,"
        f" mostly large ones. The median of the ratios of their times is {ratio:.1f}."
    )


def sections(cells: list[Cell]) -> dict[str, str]:
    """The generated parts by the names of their markers."""
    comparison = compared(cells)
    return {
        "ranks": ranks(comparison),
        "duels": duels(comparison).markdown(),
        "tables": beside_the_best(comparison),
        "seconds": seconds(comparison),
    }


def main() -> None:
    import matplotlib

    from pskem.study.pages import write_figure
    from pskem.study.rankplot import draw_ranks

    matplotlib.use("agg")
    TAKEN.mkdir(exist_ok=True)
    if len(sys.argv) > 1:
        shutil.copyfile(Path(sys.argv[1]) / "tables.csv", RECORD)
    cells = load()
    write_figure(draw_ranks(compared(cells)), TAKEN, FIGURE)
    page = HERE / "tables.md"
    text = fill(page.read_text(encoding="utf-8"), sections(cells))
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
