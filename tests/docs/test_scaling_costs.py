"""Constants of planted records, the closed form against the simulation, and the page."""

import importlib
import re
import warnings
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.plumbing

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").exists() or not (ROOT / "docs").exists():
    pytest.skip("the benchmarks and documents are not beside the tests", allow_module_level=True)

#: Seconds of a core, by hand: for each product, kernel, feature, cell of a file, partition, pass.
PRODUCT, KERNEL, FEATURE, PARTITION, PASS = 7e-11, 4e-9, 1.5e-9, 1e-3, 2e-2
CELLS = {"memmap": 5e-9, "parquet": 2e-8, "arrow": 6e-9, "dask": 1e-8, "files": 3e-8}
GRAPH = 90.0


class Plant(NamedTuple):
    """What differs between planted machines.

    task, fold, carry : seconds of a task, a fold, and a byte of a result
    model : bytes of the model for each number
    large : whether the large file was measured
    """

    task: float = 1e-3
    fold: float = 0.02
    carry: float = 4e-9
    model: float = 24.0
    large: bool = True


USUAL = Plant()


@pytest.fixture(scope="module")
def module():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module


def planted_seconds(case):
    """Without the module under test: m features have 1 + m + m (m + 1) / 2 numbers.

    What workers use does not contain what the client does once.
    """
    d = (case.m + 1) * (case.m + 2) / 2
    row = case.R * (case.K * d * PRODUCT + case.K * KERNEL + d * FEATURE)
    beside = case.partitions * PARTITION if case.clustered else PASS
    return case.N * (row + case.M * CELLS.get(case.source, 0.0)) + beside


def planted_entry(case):
    seconds = planted_seconds(case)
    walls = seconds / max(case.workers, case.threads, 1)
    if case.clustered:
        walls += PASS
    processors = [seconds]
    if case.clustered:
        processors = [0.1, *[seconds / case.workers] * case.workers]
    used = [{"processor": each, "read": 8.0 * case.N * case.M} for each in processors]
    for one in used[1:]:
        one["sent"] = 3e5 * case.workers
    kept = 8.0 * case.N * case.M
    peaks = [2e8 + (3 * kept if case.source == "memory" else 0.0)]
    if case.clustered:
        held = case.N * (case.M + 1) * 8 if case.source == "dask" else 0.0
        peaks += [2.5e8 + held / case.workers] * case.workers
    return {
        "case": case._asdict(),
        "passes": [{"wall": walls, "used": used}] * 2,
        "cold": [{"wall": 2 * walls, "used": used}],
        "bytes": int(kept),
        "begin": {"seconds": 1.0, "before": [1.23e8]},
        "peak": peaks,
        "whole": {
            "seconds": 600.0,
            "passes": 2,
            "peak": [6e8],
            "bytes": 3_400_000,
            "spent": {"begin": [0.5], "agree": [4.0], "write": [0.3, 0.6, 0.6]},
        },
    }


def planted_record(module, plant=USUAL):
    """What a quick run would have found on a machine of these constants."""
    cases = module("benchmarks.scaling.cases")
    wire = module("benchmarks.scaling.__main__")
    tasks = module("benchmarks.scaling.costs").tasks
    sections = {}
    for name in cases.SECTIONS:
        found = [case for group in cases.groups(name, quick=True) for case in group.cases]
        sections[name] = {"cases": [planted_entry(case) for case in found]}
    if not plant.large:
        del sections["large"]

    def folds(request):
        n = tasks(request["partitions"])
        wall = plant.fold + n * (plant.task + plant.carry * 8 * (request["numbers"] - 1))
        graph = 700 + GRAPH * request["partitions"] + 8 * (request["numbers"] - 1)
        return {"folds": [{"wall": wall, "processor": wall}], "graph": graph}

    def sizes(request):
        case = request["case"]
        numbers, shares = (
            case.R * case.K * (case.m + 1) * (case.m + 2) / 2,
            case.R * case.K * case.L,
        )
        back = 8 * numbers + 8 * shares + 200
        out = plant.model * numbers + 16 * shares + 500
        return {"out": out, "back": back, "merge": 1e-6 + 1e-10 * back}

    def counts(request):
        unit = planted_seconds(request["case"])
        found = {"count": (1, 0.1), "pass-ownclass": (10, 2.0), "pass-contrast": (20, 3.0)}
        folds = {name: {"n": n, "seconds": n * s * unit} for name, (n, s) in found.items()}
        return {"folds": folds, "seconds": 80.1 * unit + 5.0}

    answers = {"folds": folds, "sizes": sizes, "counts": counts}
    for name, answer in answers.items():
        asked = wire._requests(name, quick=True)
        sections[name] = {
            "cases": [{"case": wire._plain(each), "found": answer(each)} for each in asked]
        }
    for section in sections.values():
        section["date"] = "2000-01-01"
    described = module("benchmarks.machine").describe()
    return {"quick": True, "sections": sections, "machine": described}


@pytest.fixture(scope="module")
def record(module):
    return planted_record(module)


@pytest.fixture(scope="module")
def costs(module, record):
    return module("benchmarks.scaling.costs").estimate(record)


def test_planted_constants_are_found_again(costs):
    found = costs.core.constants
    planted = {"product": PRODUCT, "kernel": KERNEL, "feature": FEATURE, "pass": PASS}
    planted |= {f"cell, {source}": seconds for source, seconds in CELLS.items()}
    planted["partition"] = PARTITION
    assert {name: found[name] for name in planted} == pytest.approx(planted, rel=1e-6)
    assert found["update"] == pytest.approx(0.0, abs=1e-15)
    assert costs.core.worst < 1e-6


def test_what_the_client_does_is_no_work_of_workers(module, costs):
    """Seconds of a clustered pass without rows are those of its partitions alone."""
    Case = module("benchmarks.scaling.cases").Case
    assert costs.seconds(Case("dask", 0, partitions=3)) == pytest.approx(3 * PARTITION)
    assert costs.seconds(Case("memory", 0)) == pytest.approx(PASS)
    assert costs.once(Case("dask", 0)) == pytest.approx(PASS)


def test_bytes_tasks_and_memory_are_found_again(costs):
    assert costs.out.constants == pytest.approx({"number": 24, "share": 16, "message": 500})
    assert costs.back.constants == pytest.approx({"number": 8, "share": 8, "message": 200})
    assert costs.merge.constants == pytest.approx({"byte": 1e-10, "merge": 1e-6})
    assert costs.fold.constants == pytest.approx({"task": USUAL.task, "fold": USUAL.fold})
    assert costs.carry == pytest.approx(USUAL.carry)
    assert costs.graph.constants == pytest.approx({"partition": GRAPH, "graph": 700})
    assert costs.number == pytest.approx(24.0)
    assert costs.base == pytest.approx({"dask": 2.5e8, "files": 2.5e8})
    assert costs.together == pytest.approx(1.0, rel=0.3)  # the constant of a pass is not halved


def test_a_whole_fit_is_counted_in_passes_of_the_plan(module, record, costs):
    """The unit is what the constants say of such a pass, not the fit's own pass of EM.

    That one takes two units here, so a tenth of a unit, ten times two and twenty times three.
    """
    cases = module("benchmarks.scaling.cases")
    (asked,) = module("benchmarks.scaling.__main__")._requests("counts", quick=True)
    assert asked["case"]._replace(N=0) == cases.PLAN._replace(N=0)
    assert costs.equivalents() == pytest.approx(0.1 + 20 + 60)
    assert costs.n_folds() == 31
    assert costs.client == pytest.approx(5.0)
    outlook = module("benchmarks.scaling.outlook")
    calm = outlook.expect(costs, 400)
    # 31 times what is the same for all folds, and 80.1 times the partitions of a worker.
    by_hand = 5.0 + 31 * (calm.seconds - 4 * calm.work) + 80.1 * 4 * calm.work
    assert outlook.fit_seconds(costs, calm, calm.seconds) == pytest.approx(by_hand)


def test_the_wire_counts_folds_of_shared_kernels(module):
    """Just so many rows that they are not all taken into memory: passes are among the folds."""
    pytest.importorskip("dask")
    wire = module("benchmarks.scaling.wire")
    case = module("benchmarks.scaling.cases").Case("dask", 21_000, R=2, m=2, K=4, L=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = wire._counts(list(case))
    assert {"pass-ownclass", "pass-Contrast"} <= set(found["folds"])
    assert found["seconds"] > sum(fold["seconds"] for fold in found["folds"].values())


def test_graphs_are_as_large_as_what_is_sent(module, monkeypatch):
    """What a client serialises for a fold, besides the wrapping of an expression."""
    client = pytest.importorskip("distributed.client")
    wire, sent = module("benchmarks.scaling.wire"), []
    plain = client.serialize

    def serialize(value, *arguments, **options):
        header, frames = plain(value, *arguments, **options)
        sent.append(sum(memoryview(frame).nbytes for frame in frames))
        return header, frames

    monkeypatch.setattr(client, "serialize", serialize)
    found = wire._folds(workers=1, partitions=40, numbers=1, rounds=1)
    assert found["graph"] == pytest.approx(sent[-1], rel=0.05)


def test_the_residual_is_told(module, record):
    """One measurement that is twice as large as it should be is seen in the worst error."""
    fit = module("benchmarks.scaling.costs").fit
    terms = [{"a": float(n)} for n in (1, 10, 100)]
    exact = fit(terms, [3.0, 30.0, 300.0])
    assert exact.constants == pytest.approx({"a": 3.0})
    off = fit(terms, [3.0, 30.0, 600.0])
    # Minimise 2 (a / 3 - 1)^2 + (a / 6 - 1)^2: a = 10 / 3, which is off by 1/9, 1/9 and 4/9.
    assert off.constants == pytest.approx({"a": 10.0 / 3.0})
    assert off.worst == pytest.approx(4.0 / 9.0)
    assert off.error == pytest.approx((18.0 / 81.0 / 3.0) ** 0.5)


def test_a_fit_that_ends_by_itself_is_told_of(module):
    """Passes are asked for one after the other; the fit has three of them."""
    Turns = module("benchmarks.scaling.session").Turns

    def fit(watch):
        for i in range(3):
            if watch(i):
                return

    turns = Turns(fit)
    turns.advance()
    turns.advance()
    with pytest.raises(RuntimeError, match="ended by itself"):
        turns.advance()
    stopped = Turns(fit)
    stopped.end()
    with pytest.raises(RuntimeError, match="ended by itself"):
        Turns(lambda watch: None)
    with pytest.raises(ZeroDivisionError):
        Turns(lambda watch: 1 // 0)


@pytest.mark.parametrize("n_partitions", [100, 400, 1600, 6400])
def test_the_closed_form_is_that_of_the_simulation(module, costs, n_partitions):
    """With as many partitions for each worker; scattered, some have a partition or two more."""
    outlook = module("benchmarks.scaling.outlook")
    calm = outlook.expect(costs, n_partitions)
    there = outlook.cluster(costs, plan_of(module), 100, n_partitions)
    simulate = module("benchmarks.scaling.simulation").simulate
    homes = [i % 100 for i in range(n_partitions)]
    even = simulate(there, [calm.work] * n_partitions, homes=homes)
    outside = calm.send + USUAL.fold + PASS
    assert outside + even.seconds == pytest.approx(calm.seconds, rel=0.02)
    found = outlook.simulated(costs, n_partitions, "nothing", 2)
    assert 0.99 * calm.seconds < found.seconds < calm.seconds + 2.0 * calm.work
    # The model to all workers but one, and the sums that the simulation has moved.
    moved = 99 * calm.out + found.fetched * calm.back
    assert calm.moved == pytest.approx(moved, rel=0.05)
    assert found.fetched > 0.9 * n_partitions


def plan_of(module):
    return module("benchmarks.scaling.cases").PLAN


def test_the_model_may_have_to_come_from_one_worker(module, costs):
    outlook = module("benchmarks.scaling.outlook")
    calm = outlook.expect(costs, 400)
    assert calm.send > 100 * calm.out / outlook.ASSUMED.network
    assert calm.graph == pytest.approx(700 + 400 * GRAPH)


def test_the_slowest_is_the_slowest_of_all(module, costs):
    simulated = module("benchmarks.scaling.outlook").simulated
    one, two, many = (simulated(costs, 100, "both", n) for n in (1, 2, 12))
    assert one.slow == one.seconds
    assert two.slow == pytest.approx(max(one.seconds, 2 * two.seconds - one.seconds))
    assert many.slow >= two.slow
    each = [one.seconds]
    for n in range(2, 13):
        each.append(n * simulated(costs, 100, "both", n).seconds - sum(each))
    assert many.slow == pytest.approx(max(each))


def test_a_scheduler_that_is_the_limit(module, costs):
    """A hundredth of the rows: the tasks are handed out for longer than they take."""
    outlook = module("benchmarks.scaling.outlook")
    small = plan_of(module)._replace(N=10**7)
    calm = outlook.expect(costs, 6400, small)
    assert calm.scheduler > 6400 / 100 * calm.work
    there = outlook.cluster(costs, small, outlook.WORKERS, 6400)
    simulate = module("benchmarks.scaling.simulation").simulate
    outside = calm.send + USUAL.fold + PASS
    found = outside + simulate(there, [calm.work] * 6400).seconds
    assert found == pytest.approx(calm.seconds, rel=0.03)


def test_measured_passes_are_simulated(module):
    """Where Dask takes no time, a pass takes its work over its workers, and what is done once."""
    plain = planted_record(module, Plant(task=1e-9, fold=1e-9, carry=0.0))
    outlook = module("benchmarks.scaling.outlook")
    costs = module("benchmarks.scaling.costs").estimate(plain)._replace(together=1.0)
    found = outlook.check(plain, costs, seeds=3)
    cases = [(each.case.workers, each.case.partitions) for each in found]
    assert cases == [(1, 8), (2, 8), (1, 32), (2, 32)]
    for each in found:
        assert each.simulated == pytest.approx(each.measured, rel=0.01)
        assert each.sent == pytest.approx(3e5 * each.case.workers**2)
    out, back = (8 * 3 * 60 * k for k in (3 * 105, 105))  # without the shares of the classes
    assert found[0].expected == pytest.approx(back, rel=0.15)  # one sum, to the client
    # The model to one, a sum to the client, and of 31 merged sums about every second.
    assert out + 8 * back < found[3].expected < 1.2 * out + 1.15 * 26 * back
    slow = outlook.check(plain, costs._replace(together=1.5), seeds=3)
    assert slow[0].simulated == found[0].simulated
    assert slow[1].simulated - PASS == pytest.approx(1.5 * (found[1].simulated - PASS), rel=0.01)


PLANTS = {
    "memory of a worker": Plant(),
    "scheduler": Plant(task=0.2, large=False),
    "network of a worker": Plant(model=2e5, carry=0.0),
}


@pytest.mark.parametrize("first", PLANTS)
def test_a_page_of_any_record(module, first, tmp_path):
    page = module("docs.scaling")
    record = planted_record(module, PLANTS[first])
    costs = page.estimate(record)
    outlook, tables = (module(f"benchmarks.scaling.{n}") for n in ("outlook", "outlook_tables"))
    few = [outlook.simulated(costs, n, what, 2) for n in (100, 400) for what in outlook.TROUBLES]
    parts = page.sections(record, few)
    text = page.PAGE.read_text(encoding="utf-8")
    filled = page.fill(text, parts)
    assert max(map(len, filled.splitlines())) <= 120
    assert max(line.count("|") for line in filled.splitlines()) <= 8  # seven columns
    assert not re.search(r"\b(nan|inf|None)\b", filled)
    plain = " ".join(filled.split())
    assert f"**The {first} breaks first**" in plain
    assert tables.REMEDIES[first] in plain
    fastest = min((each.seconds, each.partitions) for each in few if each.what == "both")[1]
    assert f"a pass is fastest with {fastest} partitions" in plain
    assert "too short to be quoted" in parts["made"]
    if PLANTS[first].large:
        assert "**600 MB**" in parts["large"]
        assert "The process had 123 MB" in " ".join(parts["large"].split())
    else:
        assert parts["large"].startswith("Not measured yet")
    for name, draw in page.PICTURES.items():
        draw(record, costs, tmp_path / f"{name}.png")
        assert f"(scaling/{name}.png)" in filled


def test_the_page_says_what_sources_and_workers_gain(module, record):
    """Parquet and memory, one thread and two; two workers and one; what was sent."""
    page = module("docs.scaling")
    costs = page.estimate(record)
    Case = module("benchmarks.scaling.cases").Case
    seconds = {s: planted_seconds(Case(s, 40_000)) for s in ("memory", "parquet")}
    speed = f"{100 * seconds['memory'] / seconds['parquet']:.0f} %"
    tables = module("benchmarks.scaling.pass_tables")
    line = next(row for row in tables.sources(record).splitlines() if row.startswith("| Parquet"))
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:5] == [
        f"{seconds['parquet']:.2f}",
        speed,
        f"{seconds['parquet'] / 2:.2f}",
        speed,
    ]
    gained = " ".join(tables.workers(record).split())
    one, two = (
        planted_entry(Case("dask", 40_000, workers=n, partitions=8))["passes"][0]["wall"]
        for n in (1, 2)
    )
    assert f"{one / two:.2f} times" in gained
    grown = tables.growth(record, costs).splitlines()
    workers = next(row for row in grown if row.startswith("| workers"))
    assert workers.strip("| ").endswith("0.3 → 1.2")  # 0.3 MB of one, 0.6 MB of each of two


def test_the_page_is_that_of_the_record(module):
    page = module("docs.scaling")
    if not page.RECORD.exists():
        pytest.skip("nothing has been measured at full size")
    record, simulated = page.load(), page.load_simulated()
    assert not record["quick"]
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.fill(text, page.sections(record, simulated)) == text
    assert all((page.TAKEN / f"{name}.png").exists() for name in page.PICTURES)
    again = [
        module("benchmarks.scaling.outlook").simulated(page.estimate(record), *each[:2])
        for each in simulated
        if each.partitions == min(each.partitions for each in simulated)
    ]
    kept = {(each.partitions, each.what): each for each in simulated}
    assert all(each.seconds == pytest.approx(kept[each[:2]].seconds) for each in again)
