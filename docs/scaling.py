"""Write the figures and pictures of docs/scaling.md from the record of the measurements.

python -m benchmarks.scaling            # measure; --only large for the large file
python -m docs.scaling                  # simulate, draw and write
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.markdown import fill, heading, paragraph, table
from benchmarks.report import RESULTS
from benchmarks.scaling import curves, outlook
from benchmarks.scaling.costs import Costs, estimate, measured, wall

HERE = Path(__file__).parent
PAGE, TAKEN = HERE / "scaling.md", HERE / "scaling"
RECORD, SIMULATED = RESULTS / "scaling.json", TAKEN / "simulated.json"
PICTURES = {"curves": curves.draw_sizes, "rows": curves.draw_rows}
ROWS = "![Seconds, memory and bytes read of a pass, by the number of rows](scaling/rows.png)"
CURVES = "![Seconds of a pass, by K, m, R and L](scaling/curves.png)"
SOURCES = {
    "memory": "memory",
    "memmap": "`numpy.memmap`",
    "parquet": "Parquet",
    "arrow": "Arrow",
    "dask": "Dask array, one worker",
}
CONSTANTS = {
    "product": ("row, kernel and number of φ", "ns"),
    "kernel": ("row and kernel", "ns"),
    "feature": ("row and number of φ", "ns"),
    "cell, memmap": ("cell of a `numpy.memmap`", "ns"),
    "cell, parquet": ("cell of a Parquet file", "ns"),
    "cell, arrow": ("cell of an Arrow file", "ns"),
    "cell, dask": ("cell on a Dask worker", "ns"),
    "cell, files": ("cell of a Parquet file on a Dask worker", "ns"),
    "update": ("kernel and m³, once", "ns"),
    "pass": ("pass, once", "ms"),
}
UNITS = {"ns": 1e9, "ms": 1e3}
MB, GB = 1e6, 1e9

Record = dict[str, Any]


def load(path: Path = RECORD) -> Record:
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    return record


def short(number: float, digits: int = 2) -> str:
    """A number with two significant digits, or a whole one."""
    return f"{number:,.0f}" if abs(number) >= 10 ** (digits - 1) else f"{number:.{digits}g}"


def duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{short(seconds)} s"
    if seconds < 7200.0:
        return f"{seconds / 60.0:.0f} minutes"
    return f"{seconds / 3600.0:.1f} hours"


def percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"


def made(record: Record) -> str:
    dates = [section["date"] for section in record["sections"].values()]
    link = "The record is [scaling.json](../benchmarks/results/scaling.json)."
    return f"{heading({**record, 'date': max(dates)})}\n\n{link}"


def sources(record: Record) -> str:
    """A pass by where the rows come from."""
    found = {
        case.source: (case, entry)
        for case, entry in measured(record, "sources")
        if case.workers < 2
    }
    memory = wall(found["memory"][1])
    rows = []
    for name, title in SOURCES.items():
        case, entry = found[name]
        cold = entry["cold"][0]["wall"] if entry["cold"] else None
        rows.append(
            [
                title,
                f"{wall(entry):.2f}",
                percent(memory / wall(entry)),
                "" if cold is None else f"{cold:.2f}",
                f"{max(entry['peak']) / MB:,.0f}",
                f"{entry['bytes'] / MB:,.0f}",
            ]
        )
    case, entry = found["memory"]
    text = (
        f"A pass over {case.N:,} rows of {case.M} features in {case.R} blocks, {case.K} kernels and"
        f" {case.L} classes, one thread: the median of {len(entry['passes'])} passes. All cases"
        " take turns. *Speed* is relative to rows in memory. Files are in the page cache, except"
        " for the pass *from disk*. *Memory* is the peak of the process that has the most, rows and"
        " libraries included."
    )
    head = ["rows in", "pass (s)", "speed", "from disk (s)", "memory (MB)", "files (MB)"]
    return f"{paragraph(text)}\n\n{table(head, rows)}\n\n{ROWS}"


def large(record: Record) -> str:
    """The table that is larger than its budget of memory."""
    found = measured(record, "large")
    if not found:
        return "Not measured yet: `python -m benchmarks.scaling --only large`."
    case, entry = found[0]
    whole = entry["whole"]
    cold = [f"With the files read from disk it takes {one['wall']:.0f} s." for one in entry["cold"]]
    texts = [
        f"{case.N:,} rows of {case.M} float64 features and a label are",
        f"{entry['bytes'] / GB:.1f} GB as Parquet files of pyarrow's defaults.",
        f"A pass with {case.threads} threads takes {wall(entry):.0f} s.",
        *cold,
        "A fit by EM, from `pskem.open_table` on, has a peak of",
        f"**{max(entry['peak']) / MB:,.0f} MB**, of which libraries are a large part.",
        "A fit with the default training also holds rows out, makes discriminative passes and",
        f"calibrates. With {whole['passes']} passes of each kind it takes",
        f"{duration(whole['seconds'])} and **{max(whole['peak']) / MB:,.0f} MB**.",
    ]
    return paragraph(" ".join(texts))


def workers(record: Record) -> str:
    """One worker beside two."""
    found: dict[tuple[str, int], dict[int, float]] = {}
    for case, entry in measured(record, "workers"):
        found.setdefault((case.source, case.partitions), {})[case.workers] = wall(entry)
    names = {
        "dask": "Dask array, {} partitions",
        "files": "Parquet files",
        "apart": "two processes apart, no Dask",
    }
    rows = [
        [
            names[source].format(n),
            f"{walls[1]:.2f}",
            f"{walls[2]:.2f}",
            f"{walls[1] / walls[2]:.2f}",
        ]
        for (source, n), walls in sorted(
            found.items(), key=lambda item: (list(names).index(item[0][0]), item[0][1])
        )
    ]
    case = measured(record, "workers")[0][0]
    threads = {c.threads: wall(e) for c, e in measured(record, "threads") if c.source == "memory"}
    text = (
        f"A pass over {case.N:,} rows by workers of one thread. The last line shows two processes"
        " that share this machine and nothing else: what they do not gain, no cluster on it can."
        f" Two threads of one process gain {threads[1] / threads[2]:.2f}."
    )
    head = ["rows in", "one worker (s)", "two workers (s)", "gain"]
    return f"{paragraph(text)}\n\n{table(head, rows)}"


def constants(costs: Costs) -> str:
    """The constants of a pass and how well they hold."""
    core = costs.core
    rows = [
        [title, f"{short(core.constants[name] * UNITS[unit])} {unit}"]
        for name, (title, unit) in CONSTANTS.items()
        if core.constants.get(name)
    ]
    none = [CONSTANTS[name][0] for name in CONSTANTS if core.constants.get(name) == 0.0]
    text = (
        f"Fitted to {core.n} cases by least squares of the relative errors: the root mean square"
        f" error is {percent(core.error)}, the largest {percent(core.worst)}."
    )
    if none:
        text += f" Too small to be told from nothing: {'; '.join(none)}."
    return f"{paragraph(text)}\n\n{table(['per', 'time of one core'], rows)}\n\n{CURVES}"


def messages(costs: Costs) -> str:
    """Bytes of a pass, and what Dask adds."""
    out, back, fold = costs.out, costs.back, costs.fold
    return paragraph(
        f"For every block, kernel and number of φ, {short(out.constants['number'])} bytes of model"
        f" go out in a pass and {short(back.constants['number'])} bytes of sums come back; for"
        f" every block, kernel and class {short(out.constants['share'])} and"
        f" {short(back.constants['share'])}. This holds to {percent(max(out.worst, back.worst))}. N"
        f" does not matter. A fold takes Dask {short(1e3 * fold.constants['fold'])} ms and"
        f" {short(1e3 * fold.constants['task'])} ms for each task, to {percent(fold.worst)}. Each"
        f" megabyte of a result adds {short(1e3 * MB * costs.carry)} ms."
    )


def best(simulated: list[outlook.Simulated]) -> outlook.Simulated:
    """The partitions with which a pass is fastest when things go wrong."""
    return min((e for e in simulated if e.what == "both"), key=lambda each: each.seconds)


def plan(costs: Costs, simulated: list[outlook.Simulated]) -> str:
    """The closed form for the large plan."""
    case = outlook.PLAN
    found = {n: outlook.expect(costs, n) for n in outlook.PARTITIONS}
    rows = [
        [
            f"{n:,}",
            f"{each.work:.1f}",
            f"{each.scheduler:.1f}",
            short(each.send + each.tree),
            f"{each.seconds:.0f}",
        ]
        for n, each in found.items()
    ]
    head = ["partitions", "work of one (s)", "scheduler (s)", "send and merge (s)", "pass (s)"]
    usual = best(simulated)
    calm = found[usual.partitions]
    read = outlook.expect(costs, usual.partitions, case._replace(source="files"))
    whole, folds = costs.equivalents(), sum(n for n, _ in costs.folds.values())
    given = (
        f"{case.N:,} rows of {case.M} features in {case.R} blocks of {case.m}, {case.K} kernels and"
        f" {case.L} classes, on {outlook.WORKERS} workers of one thread with a core each. The rows"
        " stay in the memory of the workers."
    )
    time = (
        f"**Time.** A default fit of the planted rows reads them {folds} times, which takes as long"
        f" as {whole:.0f} passes of EM; other data need more passes or fewer. With"
        f" {calm.partitions:,} partitions this is {duration(whole * calm.seconds)} if nothing goes"
        f" wrong, and {duration(whole * usual.seconds)} with the stragglers and deaths below. If"
        f" workers read Parquet files in every pass, a pass takes {read.seconds:.0f} s, provided"
        f" that storage delivers {short(8 * case.N * case.M / read.seconds / GB)} GB/s to all of"
        " them. Where two workers share a machine such as this one, each takes"
        f" {costs.together:.2f} times as long."
    )
    memory = (
        f"**Memory.** A worker has {outlook.kept_bytes(costs) / GB:.1f} GB if the rows stay in"
        " memory, nearly all of which is its share of X. If it reads files it has"
        f" {costs.base['files'] / MB:,.0f} MB at the width that was measured. On one machine, a fit"
        f" in memory takes {short(costs.number)} bytes for each number of X."
    )
    network = (
        f"**Network.** In a pass {calm.out / MB:.1f} MB of model reach every worker, and each sum"
        f" is {calm.back / MB:.2f} MB: {calm.moved / MB:,.0f} MB between all workers. The client"
        " sends one model and gets one sum."
    )
    return "\n\n".join(
        [paragraph(given), table(head, rows), *map(paragraph, (time, memory, network))]
    )


def breaks(costs: Costs, simulated: list[outlook.Simulated]) -> str:
    """What comes to its limit first."""
    calm = outlook.expect(costs, best(simulated).partitions)
    shares = sorted(outlook.shares(costs, calm).items(), key=lambda item: -item[1])
    rows = [[name, f"{100.0 * share:.2g} %"] for name, share in shares]
    names = [name for name, _ in shares]
    text = (
        f"What a pass with {calm.partitions:,} partitions uses of what there is, if a worker has"
        f" {outlook.ASSUMED.memory / GB:.0f} GB of memory. **The {names[0]} breaks first**, then"
        f" the {names[1]}. Workers without enough memory spill rows to disk; more workers or"
        " files are the remedy. The scheduler hands out one task after the other, so its time"
        " grows with the number of partitions. With four partitions a worker it takes as long"
        f" as the work itself at {outlook.most_workers(costs):,.0f} workers, and more make a pass"
        " slower."
    )
    return f"{paragraph(text)}\n\n{table(['resource', 'in use'], rows)}"


def troubles(simulated: list[outlook.Simulated]) -> str:
    """Stragglers and deaths."""
    by_place = {(each.partitions, each.what): each for each in simulated}
    rows = [
        [
            f"{n:,}",
            *(f"{by_place[n, what].seconds:.0f}" for what in outlook.TROUBLES),
            f"{by_place[n, 'both'].slow:.0f}",
            f"{by_place[n, 'both'].repeated:.1f}",
        ]
        for n in dict.fromkeys(each.partitions for each in simulated)
    ]
    assumed = outlook.ASSUMED
    text = (
        f"Assumed, not measured: {percent(assumed.slow)} of all tasks are slow, by a factor above x"
        f" with probability x^-{assumed.tail:g}; a worker dies every"
        f" {1.0 / assumed.hazard / 3600.0:.0f} hours and is replaced after {assumed.restart:.0f} s;"
        f" {assumed.network / GB:g} GB/s and {1e3 * assumed.latency:g} ms between machines. Seconds"
        f" of a pass on average over {outlook.SEEDS} simulations, of the slowest of twenty with"
        " both, and partitions that were done again with both. With trouble, idle workers take over"
        " partitions."
    )
    head = ["partitions", "no trouble", "stragglers", "deaths", "both", "slowest", "done again"]
    return f"{paragraph(text)}\n\n{table(head, rows)}"


def agreement(costs: Costs, simulated: list[outlook.Simulated]) -> str:
    pairs = [
        (each.seconds, outlook.expect(costs, each.partitions).seconds)
        for each in simulated
        if each.what == "nothing"
    ]
    worst = max(abs(one / other - 1.0) for one, other in pairs)
    return paragraph(
        "Without trouble, the simulation and the closed form differ by"
        f" {100.0 * worst:.1f} % at most."
    )


def simulate(costs: Costs) -> list[outlook.Simulated]:
    return [
        outlook.simulated(costs, n, what) for n in outlook.PARTITIONS for what in outlook.TROUBLES
    ]


def sections(record: Record, simulated: list[outlook.Simulated]) -> dict[str, str]:
    """The generated parts of the page."""
    costs = estimate(record)
    return {
        "made": made(record),
        "sources": sources(record),
        "large": large(record),
        "workers": workers(record),
        "constants": constants(costs),
        "messages": messages(costs),
        "plan": plan(costs, simulated),
        "agreement": agreement(costs, simulated),
        "troubles": troubles(simulated),
        "breaks": breaks(costs, simulated),
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
