"""What a large cluster would take, from the constants: in closed form, and simulated."""

from __future__ import annotations

from math import ceil, log
from statistics import mean, quantiles
from typing import NamedTuple

import numpy as np

from benchmarks.scaling.cases import Case
from benchmarks.scaling.costs import Costs, size_terms, tasks
from benchmarks.scaling.simulation import Cluster, Outcome, simulate, stragglers

__all__ = [
    "ASSUMED",
    "PARTITIONS",
    "PLAN",
    "SEEDS",
    "TROUBLES",
    "WORKERS",
    "Assumed",
    "Expected",
    "Simulated",
    "cluster",
    "expect",
    "kept_bytes",
    "most_workers",
    "shares",
    "simulated",
    "work",
]

#: A billion rows of 96 features.
PLAN = Case("dask", 10**9, R=8, m=12, K=60, L=10)
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


class Expected(NamedTuple):
    """A pass of the plan, in closed form.

    partitions : of the rows
    work : seconds of a partition
    scheduler : seconds that the scheduler is busy
    tree : seconds of merges after the last partition
    send : seconds until all workers have the model
    seconds : of the pass
    out, back : bytes of the model, and of the sums of a partition
    moved : bytes between workers
    """

    partitions: int
    work: float
    scheduler: float
    tree: float
    send: float
    seconds: float
    out: float
    back: float
    moved: float


def cluster(costs: Costs, case: Case, n_workers: int, assumed: Assumed = ASSUMED) -> Cluster:
    """A cluster whose tasks cost what the record says."""
    back = costs.back.predict(size_terms(case))
    return Cluster(
        n_workers,
        merge=costs.merge.predict({"byte": back, "merge": 1.0}),
        fetch=assumed.latency + back * (1.0 / assumed.network + costs.carry),
        dispatch=costs.fold.constants["task"],
    )


def work(costs: Costs, case: Case, n_partitions: int) -> float:
    """Seconds of a partition; M-steps happen on the client, once."""
    rows = case._replace(N=case.N // n_partitions)
    return costs.seconds(rows) - costs.core.predict(once(case))


def once(case: Case) -> dict[str, float]:
    """What a pass does once, however many partitions there are."""
    return {"update": float(case.R * case.K * case.m**3), "pass": 1.0}


def expect(
    costs: Costs,
    n_partitions: int,
    case: Case = PLAN,
    n_workers: int = WORKERS,
    assumed: Assumed = ASSUMED,
) -> Expected:
    """A pass in which all workers have as much to do, and nothing goes wrong."""
    there = cluster(costs, case, n_workers, assumed)
    one = work(costs, case, n_partitions)
    out, back = (f.predict(size_terms(case)) for f in (costs.out, costs.back))
    scheduler = there.dispatch * tasks(n_partitions)
    # A worker does its partitions and merges their sums; then the sums of all workers go up a tree.
    each = ceil(n_partitions / n_workers)
    levels = ceil(log(n_workers, there.arity)) if n_workers > 1 else 0
    tree = levels * (there.arity - 1) * (there.merge + there.fetch) + levels * there.dispatch
    # Workers hand the model on: twice as many have it after each step.
    send = ceil(log(n_workers + 1, 2)) * (assumed.latency + out / assumed.network)
    fixed = costs.fold.constants["fold"] + costs.core.predict(once(case))
    # Tasks are handed out one after the other: the last worker begins when the others have theirs.
    # Merges whose parts are there by then come in between.
    handed = there.dispatch * n_partitions
    early = max(0.0, 1.0 - there.arity * one / handed) / (there.arity - 1)
    begins = there.dispatch * (n_partitions - each) * (1.0 + early)
    busy = max(begins + each * one + (each - 1) * there.merge, scheduler + one)
    moved = (n_workers - 1) * (out + back)
    return Expected(
        n_partitions, one, scheduler, tree, send, fixed + send + busy + tree, out, back, moved
    )


class Simulated(NamedTuple):
    """Simulated passes of the plan: seconds on average and the slowest of twenty."""

    partitions: int
    what: str
    seconds: float
    slow: float
    deaths: float
    repeated: float


def simulated(costs: Costs, n_partitions: int, what: str, seeds: int = SEEDS) -> Simulated:
    """Passes of the plan with nothing, "stragglers", "deaths" or "both" going wrong."""
    assumed = ASSUMED
    calm = expect(costs, n_partitions)
    there = cluster(costs, PLAN, WORKERS)
    cells = PLAN.N * PLAN.M / n_partitions
    if what != "nothing":  # workers that have nothing to do take over partitions
        there = there._replace(move=assumed.latency + 8.0 * cells / assumed.network)
    if what in ("deaths", "both"):
        reload = cells * costs.core.constants.get("cell, files", 0.0)
        there = there._replace(hazard=assumed.hazard, restart=assumed.restart, reload=reload)
    outside = calm.send + costs.fold.constants["fold"] + costs.core.predict(once(PLAN))
    found: list[Outcome] = []
    for seed in range(1 if what == "nothing" else seeds):
        each = np.full(n_partitions, calm.work)
        if what in ("stragglers", "both"):
            rng = np.random.default_rng([2, seed])
            each = stragglers(rng, each, assumed.slow, assumed.tail)
        found.append(simulate(there, each.tolist(), seed))
    seconds = [outside + one.seconds for one in found]
    late = seconds[0] if len(seconds) < 2 else quantiles(seconds, n=20, method="inclusive")[-1]
    return Simulated(
        n_partitions,
        what,
        mean(seconds),
        late,
        mean(one.deaths for one in found),
        mean(one.repeated for one in found),
    )


def kept_bytes(costs: Costs, case: Case = PLAN, n_workers: int = WORKERS) -> float:
    """Memory of a worker that keeps its rows: X and the labels, and what it works with."""
    return costs.base["dask"] + 8.0 * (case.M + 1) * case.N / n_workers


def shares(
    costs: Costs, expected: Expected, case: Case = PLAN, assumed: Assumed = ASSUMED
) -> dict[str, float]:
    """How much of each resource a pass uses, of what there is."""
    busiest = expected.out + Cluster(1).arity * expected.back  # a worker that merges for others
    wire = assumed.network * expected.seconds
    return {
        "memory of a worker": kept_bytes(costs, case) / assumed.memory,
        "scheduler": expected.scheduler / expected.seconds,
        "network of a worker": busiest / wire,
        "network of the client": (expected.out + expected.back) / wire,
    }


def most_workers(costs: Costs, case: Case = PLAN, each: int = 4) -> float:
    """Workers at which handing out the tasks takes as long as the work of a worker."""
    there = cluster(costs, case, 1)
    per_partition = there.dispatch * (1.0 + 1.0 / (there.arity - 1))  # merges are tasks as well
    return float((work(costs, case, 1) / (each * per_partition)) ** 0.5)
