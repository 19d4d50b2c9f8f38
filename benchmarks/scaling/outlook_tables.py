"""What is extrapolated and simulated, as passages of docs/scaling.md."""

from __future__ import annotations

from benchmarks.markdown import paragraph, table
from benchmarks.scaling import outlook
from benchmarks.scaling.cases import PLAN
from benchmarks.scaling.costs import Costs, Record
from benchmarks.scaling.figures import GB, MB, duration, percent, short
from benchmarks.scaling.outlook import ASSUMED, Simulated

__all__ = ["agreement", "best", "breaks", "checks", "plan", "troubles"]

#: What helps where a resource comes to its limit.
REMEDIES = {
    "memory of a worker": (
        "Workers without enough memory spill rows to disk; more workers help, or Parquet files that"
        " are read in every pass."
    ),
    "scheduler": (
        "The scheduler hands out one task after the other, so fewer and larger partitions help."
    ),
    "network of a worker": (
        "Sums go from worker to worker, so fewer and larger partitions help, or fewer kernels."
    ),
    "network of the client": (
        "The client sends the model and the tasks of a pass, so a client close to the scheduler"
        " helps, or fewer kernels."
    ),
}


def best(simulated: list[Simulated]) -> Simulated:
    """The partitions with which a pass is fastest when things go wrong."""
    return min((e for e in simulated if e.what == "both"), key=lambda each: each.seconds)


def plan(costs: Costs, simulated: list[Simulated]) -> str:
    """The closed form for the large plan."""
    case = PLAN
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
    given = (
        f"{case.N:,} rows of {case.M} features in {case.R} blocks of {case.m}, {case.K} kernels"
        f" that {case.L} classes share, on {outlook.WORKERS} workers of one thread with a core"
        " each. The rows stay in the memory of the workers. The scheduler's time is an upper bound,"
        " because it was measured on cores that it shared with the workers. So is the time to send"
        " the model: the worker that has it first sends it to all others, one after the other,"
        " although some could hand it on."
    )
    texts = [_time(costs, simulated), _memory(costs), _network(costs, simulated)]
    return "\n\n".join([paragraph(given), table(head, rows), *map(paragraph, texts)])


def _time(costs: Costs, simulated: list[Simulated]) -> str:
    usual = best(simulated)
    calm = outlook.expect(costs, usual.partitions)
    read = outlook.expect(costs, usual.partitions, PLAN._replace(source="files"))
    needed = 8 * PLAN.N * PLAN.M / read.seconds / GB
    em = costs.folds.get("pass-ownclass")
    checked = "" if em is None else f" (a pass of EM among them counts as {em[1]:.2f})"
    return (
        f"**Time.** A whole fit is meant with `n_components={PLAN.K}`, `n_blocks={PLAN.R}`,"
        ' `init="kmeans"`, which shares kernels, and the default refinements: rows held out,'
        " discriminative passes and calibration. On planted rows it goes through them"
        f" {costs.n_folds()} times, which takes as long as the rows of {costs.equivalents():.0f}"
        f" passes of EM by the constants{checked}; other data need more passes or fewer. With"
        f" {calm.partitions:,} partitions this is"
        f" {duration(outlook.fit_seconds(costs, calm, calm.seconds))} if nothing goes wrong, and"
        f" {duration(outlook.fit_seconds(costs, calm, usual.seconds))} with the stragglers and"
        f" deaths below, of which {duration(costs.client)} are the client's. If workers read"
        f" Parquet files in every pass, a pass takes {read.seconds:.0f} s, provided that storage"
        f" delivers {short(needed)} GB/s to all of them. Where two workers share a machine such as"
        f" this one, each takes {costs.together:.2f} times as long."
    )


def _memory(costs: Costs) -> str:
    kept = outlook.kept_bytes(costs)
    share = 8.0 * PLAN.N * PLAN.M / outlook.WORKERS / kept
    return (
        f"**Memory.** A worker has {kept / GB:.1f} GB if the rows stay in memory; its share of X is"
        f" {percent(share)} of that. If it reads files it has {costs.base['files'] / MB:,.0f} MB at"
        " the width that was measured. On one machine, a fit in memory takes"
        f" {short(costs.number)} bytes for each number of X."
    )


def _network(costs: Costs, simulated: list[Simulated]) -> str:
    calm = outlook.expect(costs, best(simulated).partitions)
    return (
        f"**Network.** In a pass {calm.out / MB:.1f} MB of model reach every worker, and each sum"
        f" is {calm.back / MB:.2f} MB. Dask scatters partitions over the workers, so the sums of"
        f" most of them move: with {calm.partitions:,} partitions {calm.moved / MB:,.0f} MB go"
        f" between all workers. The client sends one model and {calm.graph / MB:.2f} MB of tasks,"
        " and gets one sum."
    )


def checks(record: Record, costs: Costs) -> str:
    """Simulated passes beside those that were measured."""
    found = outlook.check(record, costs)
    rows = [
        [
            f"{each.case.partitions}",
            f"{each.case.workers}",
            f"{each.measured:.2f}",
            f"{each.simulated:.2f}",
            f"{100.0 * (each.simulated / each.measured - 1.0):+.0f} %",
            short(each.sent / MB),
            short(each.expected / MB),
        ]
        for each in found
    ]
    text = (
        f"Passes over a Dask array of {found[0].case.N:,} rows, measured on one machine and"
        " simulated with the constants. The constants come from processor time and from tasks that"
        " do nothing, not from these seconds, except that two workers at once are slowed as two"
        " processes apart were. *Sent* are megabytes that workers send to each other and to the"
        " client, measured and simulated."
    )
    head = ["partitions", "workers", "measured (s)", "simulated (s)", "difference"]
    head += ["sent (MB)", "simulated (MB)"]
    return f"{paragraph(text)}\n\n{table(head, rows)}"


def agreement(costs: Costs, simulated: list[Simulated]) -> str:
    found = [
        (each, each.seconds / outlook.expect(costs, each.partitions).seconds - 1.0)
        for each in simulated
        if each.what == "nothing"
    ]
    differences = ", ".join(
        f"{100.0 * more:+.1f} % with {each.partitions:,} partitions" for each, more in found
    )
    return paragraph(
        "In the closed form above every worker has as many partitions. In the simulation they are"
        " scattered as Dask does it, so some workers have more, and idle ones take over some of"
        f" them. Without trouble the simulated pass differs by {differences}."
    )


def troubles(simulated: list[Simulated]) -> str:
    """Stragglers and deaths."""
    by_place = {(each.partitions, each.what): each for each in simulated}
    sizes = list(dict.fromkeys(each.partitions for each in simulated))
    rows = [
        [
            f"{n:,}",
            *(f"{by_place[n, what].seconds:.0f}" for what in outlook.TROUBLES),
            f"{by_place[n, 'both'].slow:.0f}",
            f"{by_place[n, 'both'].repeated:.1f}",
        ]
        for n in sizes
    ]
    text = (
        f"Assumed, not measured: {percent(ASSUMED.slow)} of all tasks are slow, by a factor above x"
        f" with probability x^-{ASSUMED.tail:g}; a worker dies every"
        f" {1.0 / ASSUMED.hazard / 3600.0:.0f} hours and is replaced after {ASSUMED.restart:.0f} s;"
        f" {ASSUMED.network / GB:g} GB/s and {1e3 * ASSUMED.latency:g} ms between machines. Seconds"
        f" of a pass are averages of {outlook.SEEDS} simulations. *Slowest* is the slowest of these"
        f" {outlook.SEEDS} with both, and *done again* the partitions that both made necessary to"
        " do twice. Partitions of a dead worker are loaded again at once, whether they are done or"
        " not."
    )
    usual = best(simulated)
    more = usual.seconds / by_place[usual.partitions, "nothing"].seconds
    closing = (
        f"With both, a pass is fastest with {usual.partitions:,} partitions, where it takes"
        f" {more:.2f} times as long as without trouble. Of a smaller partition there is less to"
        " wait for and less to do again, but more of them have to be handed out and merged. Dask"
        " does not start a slow task a second time elsewhere, so a pass waits for its slowest task."
    )
    head = ["partitions", "no trouble", "stragglers", "deaths", "both", "slowest", "done again"]
    return "\n\n".join([paragraph(text), table(head, rows), paragraph(closing)])


def breaks(costs: Costs, simulated: list[Simulated]) -> str:
    """What comes to its limit first."""
    calm = outlook.expect(costs, best(simulated).partitions)
    shares = sorted(outlook.shares(costs, calm).items(), key=lambda item: -item[1])
    rows = [[name, f"{100.0 * share:.2g} %"] for name, share in shares]
    (first, _), (second, _) = shares[:2]
    text = (
        f"What a pass with {calm.partitions:,} partitions uses of what there is, if a worker has"
        f" {ASSUMED.memory / GB:.0f} GB of memory. **The {first} breaks first**, then the {second}."
        f" {REMEDIES[first]} {REMEDIES[second]} With four partitions a worker, handing out tasks"
        f" takes as long as the work itself at {outlook.most_workers(costs):,.0f} workers at the"
        " measured time for each task, and more workers make a pass slower; a scheduler with a core"
        " of its own may take less."
    )
    return f"{paragraph(text)}\n\n{table(['resource', 'in use'], rows)}"
