"""Write the figures and pictures of docs/scaling.md from the record of the measurements.

python -m benchmarks.scaling            # measure; --only large for the large file
python -m docs.scaling                  # simulate, draw and write
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.markdown import fill, heading
from benchmarks.report import RESULTS
from benchmarks.scaling import curves, outlook, outlook_tables, pass_tables
from benchmarks.scaling.costs import Costs, estimate

HERE = Path(__file__).parent
PAGE, TAKEN = HERE / "scaling.md", HERE / "scaling"
RECORD, SIMULATED = RESULTS / "scaling.json", TAKEN / "simulated.json"
PICTURES = {
    "rows": curves.draw_rows,
    "curves": curves.draw_sizes,
    "workers": curves.draw_workers,
}
SHOWN = {
    "rows": "Seconds, memory and bytes read of a pass, by the number of rows",
    "curves": "Seconds, memory, bytes read and bytes sent of a pass, by K, m, R and L",
    "workers": "Seconds, memory and bytes of a pass, by threads and workers",
}

Record = dict[str, Any]


def load(path: Path = RECORD) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


def made(record: Record) -> str:
    dates = [section["date"] for section in record["sections"].values()]
    link = "The record is [scaling.json](../benchmarks/results/scaling.json)."
    return f"{heading({**record, 'date': max(dates)})}\n\n{link}"


def simulate(costs: Costs) -> list[outlook.Simulated]:
    return [
        outlook.simulated(costs, n, what) for n in outlook.PARTITIONS for what in outlook.TROUBLES
    ]


def sections(record: Record, simulated: list[outlook.Simulated]) -> dict[str, str]:
    """The generated parts of the page."""
    costs = estimate(record)
    image = {name: f"![{text}](scaling/{name}.png)" for name, text in SHOWN.items()}
    return {
        "made": made(record),
        "sources": f"{pass_tables.sources(record)}\n\n{image['rows']}",
        "growth": f"{pass_tables.growth(record, costs)}\n\n{image['curves']}",
        "large": pass_tables.large(record),
        "checkpoint": pass_tables.checkpoint(record),
        "workers": f"{pass_tables.workers(record)}\n\n{image['workers']}",
        "constants": pass_tables.constants(costs),
        "messages": pass_tables.messages(costs),
        "plan": outlook_tables.plan(costs, simulated),
        "checks": outlook_tables.checks(record, costs),
        "agreement": outlook_tables.agreement(costs, simulated),
        "troubles": outlook_tables.troubles(simulated),
        "breaks": outlook_tables.breaks(costs, simulated),
    }


def load_simulated() -> list[outlook.Simulated]:
    found = json.loads(SIMULATED.read_text(encoding="utf-8"))
    return [outlook.Simulated(**each) for each in found]


def main() -> None:
    record = load()
    TAKEN.mkdir(exist_ok=True)
    costs = estimate(record)
    simulated = simulate(costs)
    lines = ",\n".join(json.dumps(each._asdict()) for each in simulated)
    SIMULATED.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    for name, draw in PICTURES.items():
        draw(record, costs, TAKEN / f"{name}.png")
    page = fill(PAGE.read_text(encoding="utf-8"), sections(record, simulated))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
