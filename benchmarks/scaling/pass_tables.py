"""What was measured, as passages of docs/scaling.md."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import paragraph, table
from benchmarks.scaling.cases import Case
from benchmarks.scaling.costs import Costs, bytes_read, bytes_sent, measured, size_terms, wall
from benchmarks.scaling.figures import GB, MB, duration, percent, short

__all__ = ["checkpoint", "constants", "growth", "large", "messages", "sources", "workers"]

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
    "partition": ("partition of a Dask array", "ms"),
    "update": ("kernel and m³, once", "ns"),
    "pass": ("pass, once", "ms"),
}
UNITS = {"ns": 1e9, "ms": 1e3}
AXES = {
    "N": "rows",
    "K": "kernels",
    "m": "features of a block",
    "R": "blocks",
    "L": "classes",
    "threads": "threads",
}

Record = dict[str, Any]
Found = tuple[Case, Record]


def sources(record: Record) -> str:
    """A pass by where the rows come from, with one thread and with two."""
    found: dict[tuple[str, int], Found] = {
        (case.source, case.threads): (case, entry)
        for case, entry in measured(record, "sources")
        if case.workers < 2
    }
    walls = {key: wall(entry) for key, (_, entry) in found.items()}
    speeds = {
        (source, threads): walls["memory", threads] / seconds
        for (source, threads), seconds in walls.items()
    }
    rows = []
    for name, title in SOURCES.items():
        entry = found[name, 1][1]
        row = [title]
        for key in ((name, 1), (name, 2)):
            row += [f"{walls[key]:.2f}", percent(speeds[key])] if key in walls else ["", ""]
        row.append(f"{entry['cold'][0]['wall']:.2f}" if entry["cold"] else "")
        rows.append([*row, f"{max(entry['peak']) / MB:,.0f}"])
    case, entry = found["memory", 1]
    sizes = {name: found[name, 1][1]["bytes"] / MB for name in ("memmap", "parquet", "arrow")}
    text = (
        f"A pass over {case.N:,} rows of {case.M} features in {case.R} blocks, {case.K} kernels and"
        f" {case.L} classes: the median of {len(entry['passes'])} passes. Cases with as many"
        " threads take turns. *Speed* is relative to rows in memory with as many threads. Files are"
        " in the page cache, except for the pass *from disk* with one thread. *Memory* is the peak"
        " of the process that has the most with one thread, rows and libraries included. The files"
        f" have {sizes['memmap']:,.0f} MB for `numpy.memmap`, {sizes['parquet']:,.0f} MB as Parquet"
        f" and {sizes['arrow']:,.0f} MB as Arrow."
    )
    said = (
        f"On this machine, {_slowest(speeds, 1)} is the slowest source with one thread, and"
        f" {_slowest(speeds, 2)} with two."
    )
    head = ["rows in", "1 thread (s)", "speed", "2 threads (s)", "speed", "from disk (s)"]
    made = table([*head, "memory (MB)"], rows)
    return "\n\n".join([paragraph(text), made, paragraph(said)])


def _slowest(speeds: dict[tuple[str, int], float], threads: int) -> str:
    here = {name: speed for (name, n), speed in speeds.items() if n == threads and name != "dask"}
    name = min(here, key=lambda name: here[name])
    return f"{SOURCES[name]} at **{percent(here[name])}** of the speed of memory"


def growth(record: Record, costs: Costs) -> str:
    """What a pass takes at the two ends of every axis."""
    rows = []
    for axis, title in AXES.items():
        ends = _ends([each for each in measured(record, axis) if each[0].source == "parquet"], axis)
        sent = [
            costs.out.predict(size_terms(c)) + costs.back.predict(size_terms(c)) for c, _ in ends
        ]
        peaks = [max(entry["peak"]) for _, entry in ends]
        read = [bytes_read(entry) for _, entry in ends]
        rows.append(
            _row(f"{axis}, {title}" if axis != title else title, axis, ends, peaks, read, sent)
        )
    most = max(case.partitions for case, _ in measured(record, "workers"))
    pair = [each for each in measured(record, "workers") if each[0].partitions == most]
    ends = _ends(pair, "workers")
    peaks = [max(entry["peak"][1:]) for _, entry in ends]
    sent = [bytes_sent(entry) for _, entry in ends]
    rows.append(_row("workers", "workers", ends, peaks, None, sent))
    base = Case("parquet", 0)
    text = (
        f"Each line changes one thing; the others are R = {base.R}, m = {base.m}, K = {base.K} and"
        f" L = {base.L}, with {_size(record, 'K')} rows for K, m, R and L,"
        f" {_size(record, 'threads')} for threads and {_size(record, 'workers')} for workers. Rows"
        " come from Parquet files, and tables of less than 20,000 rows are read once, before the"
        f" first pass. The workers have a Dask array of {most} partitions; *memory* is that of one"
        " worker. *Sent* is the model and the sums of one pass, for workers what they have sent to"
        " each other and to the client."
    )
    peaks_of = "; ".join(
        _peaks(record, source) for source in ("memory", "memmap", "parquet", "arrow")
    )
    head = ["what grows", "from", "to", "pass (s)", "memory (MB)", "read (MB)", "sent (MB)"]
    last = f"Peaks of memory by the number of rows: {peaks_of}."
    return "\n\n".join([paragraph(text), table(head, rows), paragraph(last)])


def _ends(found: list[Found], axis: str) -> tuple[Found, Found]:
    ordered = sorted(found, key=lambda each: getattr(each[0], axis))
    return ordered[0], ordered[-1]


def _size(record: Record, section: str) -> str:
    return f"{measured(record, section)[0][0].N:,}"


def _row(
    title: str,
    axis: str,
    ends: tuple[Found, Found],
    peaks: list[float],
    read: list[float] | None,
    sent: list[float],
) -> list[str]:
    def both(values: list[float]) -> str:
        return " → ".join(short(value) for value in values)

    return [
        title,
        *(f"{getattr(case, axis):,}" for case, _ in ends),
        both([wall(entry) for _, entry in ends]),
        both([size / MB for size in peaks]),
        "" if read is None else both([size / MB for size in read]),
        both([size / MB for size in sent]),
    ]


def _peaks(record: Record, source: str) -> str:
    ends = _ends([each for each in measured(record, "N") if each[0].source == source], "N")
    (low, least), (high, most) = ends
    return (
        f"{SOURCES[source]} {max(least['peak']) / MB:,.0f} MB with {low.N:,} and"
        f" {max(most['peak']) / MB:,.0f} MB with {high.N:,}"
    )


def large(record: Record) -> str:
    """The table that is larger than its budget of memory."""
    found = measured(record, "large")
    if not found:
        return "Not measured yet: `python -m benchmarks.scaling --only large`."
    case, entry = found[0]
    whole = entry["whole"]
    cold = [
        f"With the files read from disk it takes {duration(one['wall'])}." for one in entry["cold"]
    ]
    texts = [
        f"{case.N:,} rows of {case.M} float64 features and a label have",
        f"{8 * case.N * (case.M + 1) / GB:.1f} GB as numbers in memory, and",
        f"**{entry['bytes'] / GB:.1f} GB** as Parquet files of pyarrow's defaults.",
        f"A pass with {case.threads} threads takes {duration(wall(entry))}.",
        *cold,
        "A fit by EM, from `pskem.open_table` on, has a peak of",
        f"**{max(entry['peak']) / MB:,.0f} MB**. The process had",
        f"{max(entry['begin']['before']) / MB:,.0f} MB with its libraries, before the fit began.",
        "A fit with the default training also holds rows out, makes discriminative passes and",
        f"calibrates. With {whole['passes']} passes of each kind it takes",
        f"{duration(whole['seconds'])} and **{max(whole['peak']) / MB:,.0f} MB**.",
    ]
    return paragraph(" ".join(texts))


def checkpoint(record: Record) -> str:
    """What a checkpoint costs in a fit of the usual length."""
    found = measured(record, "checkpoint")
    if not found:
        return "Not measured yet: `python -m benchmarks.scaling --only checkpoint`."
    case, entry = found[0]
    whole = entry["whole"]
    spent = whole["spent"]
    marking, writing = (sum(spent.get(what, [])) for what in ("agree", "write"))
    share = 100.0 * sum(map(sum, spent.values())) / whole["seconds"]
    texts = [
        f"A default fit to {case.N:,} rows of {case.M} features in Parquet files, with",
        f"{case.threads} threads and a checkpoint of {short(whole['bytes'] / MB)} MB, took",
        f"{duration(whole['seconds'])}. The checkpoint took **{share:.1f} %** of that:",
        f"{short(marking)} s for a checksum of the data, once, and {short(writing)} s to write the",
        f"file {len(spent.get('write', []))} times.",
    ]
    return paragraph(" ".join(texts))


def workers(record: Record) -> str:
    """One worker beside two."""
    found: dict[tuple[str, int], dict[int, Record]] = {}
    for case, entry in measured(record, "workers"):
        found.setdefault((case.source, case.partitions), {})[case.workers] = entry
    names = {
        "dask": "Dask array, {} partitions",
        "files": "Parquet files",
        "apart": "processes apart, no Dask",
    }
    rows = []
    for source, n in sorted(found, key=lambda key: (list(names).index(key[0]), key[1])):
        one, two = (found[source, n][count] for count in (1, 2))
        own = two["peak"] if source == "apart" else two["peak"][1:]
        rows.append(
            [
                names[source].format(n),
                f"{wall(one):.2f}",
                f"{wall(two):.2f}",
                f"{wall(one) / wall(two):.2f}",
                f"{max(own) / MB:,.0f}",
                "" if source == "apart" else short(bytes_sent(two) / MB),
            ]
        )
    case = measured(record, "workers")[0][0]
    threads = {c.threads: wall(e) for c, e in measured(record, "threads") if c.source == "memory"}
    gains = [
        wall(walls[1]) / wall(walls[2]) for (source, _), walls in found.items() if source == "dask"
    ]
    apart = found["apart", 0]
    text = (
        f"A pass over {case.N:,} rows by workers of one thread, all on one machine. **Two workers"
        f" are {max(gains):.2f} times as fast as one** on a Dask array with the best of these"
        f" numbers of partitions, and {min(gains):.2f} times with the worst. Two processes that"
        f" share this machine and nothing else gain {wall(apart[1]) / wall(apart[2]):.2f}, and two"
        f" threads of one process {threads[1] / threads[2]:.2f}. *Memory* is the peak of one of two"
        " workers, and *sent* is what both send to each other and to the client in a pass."
    )
    head = ["rows in", "one worker (s)", "two (s)", "gain", "memory (MB)", "sent (MB)"]
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
    return f"{paragraph(text)}\n\n{table(['per', 'time of one core'], rows)}"


def messages(costs: Costs) -> str:
    """Bytes of a pass, and what Dask adds."""
    out, back, fold = costs.out, costs.back, costs.fold
    sizes = (
        f"For every block, kernel and number of φ, {short(out.constants['number'])} bytes of model"
        f" go out in a pass and {short(back.constants['number'])} bytes of sums come back; for"
        f" every block, kernel and class {short(out.constants['share'])} and"
        f" {short(back.constants['share'])}. This holds to {percent(max(out.worst, back.worst))},"
        " whatever N is. The tasks of a pass are another"
        f" {short(costs.graph.constants['partition'])} bytes for each partition, which the client"
        " sends to the scheduler."
    )
    tasks = (
        f"A fold takes Dask {short(1e3 * fold.constants['fold'])} ms and"
        f" {short(1e3 * fold.constants['task'])} ms for each task, to {percent(fold.worst)}. Each"
        f" megabyte of a result adds {short(1e3 * MB * costs.carry)} ms. These are upper bounds:"
        " the client, the scheduler and two workers shared the cores of one machine."
    )
    return f"{paragraph(sizes)}\n\n{paragraph(tasks)}"
