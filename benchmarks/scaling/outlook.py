"""What a large cluster would take, from the constants: in closed form, and simulated."""

from __future__ import annotations

from math import ceil, inf, log
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from benchmarks.scaling.cases import PLAN, Case
from benchmarks.scaling.cluster import Cluster, stragglers
from benchmarks.scaling.costs import Costs, bytes_sent, measured, size_terms, tasks, wall
from benchmarks.scaling.simulation import Outcome, simulate

__all__ = [
    "ASSUMED",
    "HERE",
    "PARTITIONS",
    "SEEDS",
    "TROUBLES",
    "WORKERS",
    "Assumed",
    "Checked",
    "Expected",
    "Simulated",
    "check",
    "cluster",
    "expect",
    "fit_seconds",
    "kept_bytes",
    "most_workers",
    "shares",
    "simulated",
    "work",
]

WORKERS = 100
PARTITIONS = (100, 400, 1600, 6400)
SEEDS = 20
TROUBLES = ("nothing", "stragglers", "deaths", "both")


class Assumed(NamedTuple):
    """What was not measured.

    network : bytes a second between two machines
    latency : seconds until a message has arrived
    slow, tail : the share of tasks that take longer, by a factor with P(factor > x) = x^-tail
    hazard : deaths of a worker in a second
    restart : seconds until it is replaced
    memory : bytes of a worker
    """

    network: float = 1.25e9
    latency: float = 1e-3
    slow: float = 0.05
    tail: float = 3.0
    hazard: float = 1.0 / 86_400.0
    restart: float = 60.0
    memory: float = 16e9


ASSUMED = Assumed()
#: Workers on the machine of the measurements: the constants have all that there is between them.
HERE = ASSUMED._replace(network=inf, latency=0.0)


class Expected(NamedTuple):
    """A pass of the plan, in closed form.

    partitions : of the rows
    busy : seconds that a worker works on its partitions
    work : seconds of a partition
    scheduler : seconds that the scheduler is busy
    tree : seconds of merges after the last partition
    send : seconds until all workers have the model, at most
    seconds : of the pass
    out, back : bytes of the model, and of the sums of a partition
    graph : bytes of the tasks that the client sends besides the model
    moved : bytes between workers
    """

    partitions: int
    busy: float
    work: float
    scheduler: float
    tree: float
    send: float
    seconds: float
    out: float
    back: float
    graph: float
    moved: float


def cluster(
    costs: Costs, case: Case, n_workers: int, n_partitions: int, assumed: Assumed = ASSUMED
) -> Cluster:
    """A cluster on which nothing goes wrong, and whose tasks cost what the record says."""
    back = costs.back.predict(size_terms(case))
    byte = 1.0 / assumed.network + costs.carry
    return Cluster(
        n_workers,
        merge=costs.merge.predict({"byte": back, "merge": 1.0}),
        fetch=assumed.latency + back * byte,
        dispatch=costs.fold.constants["task"],
        move=assumed.latency + byte * _partition_bytes(case, n_partitions),
    )


def _partition_bytes(case: Case, n_partitions: int) -> float:
    """Bytes of X and the labels."""
    return 8.0 * (case.M + 1) * case.N / n_partitions


def work(costs: Costs, case: Case, n_partitions: int) -> float:
    """Seconds of a partition."""
    return costs.seconds(case._replace(N=case.N // n_partitions, partitions=1))


def expect(
    costs: Costs,
    n_partitions: int,
    case: Case = PLAN,
    n_workers: int = WORKERS,
    assumed: Assumed = ASSUMED,
) -> Expected:
    """A pass in which all workers have as much to do, and nothing goes wrong."""
    there = cluster(costs, case, n_workers, n_partitions, assumed)
    one = work(costs, case, n_partitions)
    out, back = (f.predict(size_terms(case)) for f in (costs.out, costs.back))
    graph = costs.graph.predict({"partition": float(n_partitions), "graph": 1.0})
    scheduler = there.dispatch * tasks(n_partitions)
    # Of the parts of a merge one is at hand; any other is at hand by chance.
    away = 1.0 - 1.0 / n_workers
    step = there.merge + away * there.fetch
    levels = _levels(n_partitions, there.arity)
    tree = levels * ((there.arity - 1) * step + there.dispatch)
    # No worker can ask another for the model as long as only one has it, so that one may have to
    # send it to all of them, one after the other.
    byte = 1.0 / assumed.network + costs.carry
    send = assumed.latency + byte * (graph + n_workers * out)
    fixed = costs.fold.constants["fold"] + costs.once(case)
    # The first tasks go to all workers, one after the other; merges come between the partitions.
    each = ceil(n_partitions / n_workers)
    begins = there.dispatch * min(n_workers, n_partitions)
    between = step * (n_partitions - 1) / n_workers
    busy = max(begins + each * one + between, scheduler + one)
    moved = (n_workers - 1) * out + away * (n_partitions - 1) * back
    seconds = fixed + send + busy + tree
    return Expected(
        n_partitions, each * one, one, scheduler, tree, send, seconds, out, back, graph, moved
    )


def _levels(n_leaves: int, arity: int) -> int:
    """Levels of merges above the leaves."""
    return ceil(log(n_leaves, arity) - 1e-9) if n_leaves > 1 else 0


def fit_seconds(costs: Costs, calm: Expected, seconds: float) -> float:
    """A whole fit if a pass takes so many seconds.

    What a pass spends on rows counts by what the folds of a fit do with them. Handing out, sending
    and merging are the same for each fold, whatever it does.
    """
    beside = calm.seconds - calm.busy
    return costs.client + costs.n_folds() * beside + costs.equivalents() * (seconds - beside)


class Simulated(NamedTuple):
    """Simulated passes of the plan: seconds on average and of the slowest, and other averages."""

    partitions: int
    what: str
    seconds: float
    slow: float
    deaths: float
    repeated: float
    reloaded: float
    fetched: float


def simulated(costs: Costs, n_partitions: int, what: str, seeds: int = SEEDS) -> Simulated:
    """Passes of the plan with nothing, "stragglers", "deaths" or "both" going wrong."""
    assumed = ASSUMED
    there = cluster(costs, PLAN, WORKERS, n_partitions)
    if what in ("deaths", "both"):
        cells = PLAN.N * PLAN.M / n_partitions
        reload = cells * costs.core.constants.get("cell, files", 0.0)
        there = there._replace(hazard=assumed.hazard, restart=assumed.restart, reload=reload)
    calm = expect(costs, n_partitions)
    found: list[Outcome] = []
    for seed in range(seeds):
        each = np.full(n_partitions, calm.work)
        if what in ("stragglers", "both"):
            rng = np.random.default_rng([2, seed])
            each = stragglers(rng, each, assumed.slow, assumed.tail)
        found.append(simulate(there, each.tolist(), seed))
    outside = calm.send + costs.fold.constants["fold"] + costs.once(PLAN)
    seconds = [outside + one.seconds for one in found]
    return Simulated(
        n_partitions,
        what,
        fmean(seconds),
        max(seconds),
        fmean(one.deaths for one in found),
        fmean(one.repeated for one in found),
        fmean(one.reloaded for one in found),
        fmean(one.fetched for one in found),
    )


class Checked(NamedTuple):
    """A pass that was measured, and simulated with the constants.

    measured, simulated : seconds
    sent, expected : bytes that the workers have sent, and that the simulation has them send
    """

    case: Case
    measured: float
    simulated: float
    sent: float
    expected: float


def check(record: dict[str, Any], costs: Costs, seeds: int = SEEDS) -> list[Checked]:
    """The passes of Dask arrays on the machine of the record."""
    found = []
    for case, entry in measured(record, "workers"):
        if case.source != "dask":
            continue
        calm = expect(costs, case.partitions, case, case.workers, HERE)
        there = cluster(costs, case, case.workers, case.partitions, HERE)
        slower = costs.together if case.workers > 1 else 1.0
        each = [slower * calm.work] * case.partitions
        outside = calm.send + costs.fold.constants["fold"] + costs.once(case)
        outcomes = [simulate(there, each, seed) for seed in range(seeds)]
        seconds = outside + fmean(one.seconds for one in outcomes)
        # The model goes to all workers but one; sums go to other workers, the last to the client.
        sums = (1.0 + fmean(one.fetched for one in outcomes)) * calm.back
        expected = (case.workers - 1) * calm.out + sums
        found.append(Checked(case, wall(entry), seconds, bytes_sent(entry), expected))
    return found


def kept_bytes(costs: Costs, case: Case = PLAN, n_workers: int = WORKERS) -> float:
    """Memory of a worker that keeps its rows: X and the labels, and what it works with."""
    return costs.base["dask"] + _partition_bytes(case, n_workers)


def shares(
    costs: Costs, expected: Expected, case: Case = PLAN, assumed: Assumed = ASSUMED
) -> dict[str, float]:
    """How much of each resource a pass uses, of what there is."""
    # The worker that has the model first sends it to all others; all send sums.
    sums = (expected.moved - (WORKERS - 1) * expected.out) / WORKERS
    wire = assumed.network * expected.seconds
    return {
        "memory of a worker": kept_bytes(costs, case) / assumed.memory,
        "scheduler": expected.scheduler / expected.seconds,
        "network of a worker": ((WORKERS - 1) * expected.out + sums) / wire,
        "network of the client": (expected.out + expected.graph + expected.back) / wire,
    }


def most_workers(costs: Costs, case: Case = PLAN, each: int = 4) -> float:
    """Workers at which handing out the tasks takes as long as the work of a worker."""
    arity = Cluster(1).arity
    # Merges are tasks as well.
    per_partition = costs.fold.constants["task"] * (1.0 + 1.0 / (arity - 1))
    return float((work(costs, case, 1) / (each * per_partition)) ** 0.5)
