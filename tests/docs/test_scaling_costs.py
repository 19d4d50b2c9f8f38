"""Constants of a planted record, the closed form against the simulation, and the page."""

import importlib
from pathlib import Path

import pytest

pytestmark = pytest.mark.plumbing

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").exists() or not (ROOT / "docs").exists():
    pytest.skip("the benchmarks and documents are not beside the tests", allow_module_level=True)

#: Seconds of a core, by hand: for each product, kernel, feature, cell of a file, and pass.
PRODUCT, KERNEL, FEATURE, PASS = 7e-11, 4e-9, 1.5e-9, 2e-3
CELLS = {"memmap": 5e-9, "parquet": 2e-8, "arrow": 6e-9, "dask": 1e-8, "files": 3e-8}
TASK, FOLD, CARRY = 1e-3, 0.02, 4e-9


@pytest.fixture(scope="module")
def module():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module


def planted_seconds(case):
    """Without the module under test: m features have 1 + m + m (m + 1) / 2 numbers."""
    d = (case.m + 1) * (case.m + 2) / 2
    row = case.R * (case.K * d * PRODUCT + case.K * KERNEL + d * FEATURE)
    return case.N * (row + case.M * CELLS.get(case.source, 0.0)) + PASS


def planted_entry(case):
    seconds = planted_seconds(case)
    walls = seconds / max(case.workers, case.threads, 1)
    processors = [seconds]
    if case.clustered:
        processors = [0.1, *[seconds / case.workers] * case.workers]
    used = [{"processor": each, "read": 8.0 * case.N * case.M} for each in processors]
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
        "peak": peaks,
        "whole": {"seconds": 600.0, "passes": 2, "peak": [6e8]},
    }


@pytest.fixture(scope="module")
def record(module):
    """What a quick run would have found on a machine of these constants."""
    cases = module("benchmarks.scaling.cases")
    wire = module("benchmarks.scaling.__main__")
    tasks = module("benchmarks.scaling.costs").tasks
    sections = {}
    for name in cases.SECTIONS:
        found = [case for group in cases.groups(name, quick=True) for case in group.cases]
        sections[name] = {"cases": [planted_entry(case) for case in found]}

    def folds(request):
        n = tasks(request["partitions"])
        wall = FOLD + n * (TASK + CARRY * 8 * (request["numbers"] - 1))
        return {"folds": [{"wall": wall, "processor": wall}]}

    def sizes(request):
        case = request["case"]
        numbers, shares = (
            case.R * case.K * (case.m + 1) * (case.m + 2) / 2,
            case.R * case.K * case.L,
        )
        back = 8 * numbers + 8 * shares + 200
        return {"out": 24 * numbers + 16 * shares + 500, "back": back, "merge": 1e-6 + 1e-10 * back}

    def counts(request):
        found = {"count": (1, 0.1), "pass-ownclass": (10, 10.0), "pass-contrast": (20, 30.0)}
        return {"folds": {name: {"n": n, "seconds": s} for name, (n, s) in found.items()}}

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
def costs(module, record):
    return module("benchmarks.scaling.costs").estimate(record)


def test_planted_constants_are_found_again(costs):
    found = costs.core.constants
    planted = {"product": PRODUCT, "kernel": KERNEL, "feature": FEATURE, "pass": PASS}
    planted |= {f"cell, {source}": seconds for source, seconds in CELLS.items()}
    assert {name: found[name] for name in planted} == pytest.approx(planted, rel=1e-6)
    assert found["update"] == pytest.approx(0.0, abs=1e-15)
    assert costs.core.worst < 1e-6


def test_bytes_tasks_and_memory_are_found_again(costs):
    assert costs.out.constants == pytest.approx({"number": 24, "share": 16, "message": 500})
    assert costs.back.constants == pytest.approx({"number": 8, "share": 8, "message": 200})
    assert costs.merge.constants == pytest.approx({"byte": 1e-10, "merge": 1e-6})
    assert costs.fold.constants == pytest.approx({"task": TASK, "fold": FOLD})
    assert costs.carry == pytest.approx(CARRY)
    assert costs.number == pytest.approx(24.0)
    assert costs.base == pytest.approx({"dask": 2.5e8, "files": 2.5e8})
    assert costs.together == pytest.approx(1.0)
    # 0.1 of a pass once, ten passes of EM, twenty of which each takes one and a half.
    assert costs.equivalents() == pytest.approx(0.1 + 10 + 30)


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


@pytest.mark.parametrize("n_partitions", [100, 400, 1600, 6400])
def test_the_closed_form_is_that_of_the_simulation(module, costs, n_partitions):
    outlook = module("benchmarks.scaling.outlook")
    calm = outlook.expect(costs, n_partitions)
    found = outlook.simulated(costs, n_partitions, "nothing")
    assert found.seconds == pytest.approx(calm.seconds, rel=5e-3)


def test_a_scheduler_that_is_the_limit(module, costs):
    """A hundredth of the rows: the tasks are handed out for longer than they take."""
    outlook = module("benchmarks.scaling.outlook")
    small = outlook.PLAN._replace(N=10**7)
    calm = outlook.expect(costs, 6400, small)
    assert calm.scheduler > 6400 / 100 * calm.work
    there = outlook.cluster(costs, small, outlook.WORKERS)
    simulate = module("benchmarks.scaling.simulation").simulate
    outside = calm.send + FOLD + PASS
    found = outside + simulate(there, [calm.work] * 6400).seconds
    assert found == pytest.approx(calm.seconds, rel=0.02)


def test_a_page_of_any_record(module, record, tmp_path):
    page = module("docs.scaling")
    costs = page.estimate(record)
    outlook = module("benchmarks.scaling.outlook")
    few = [outlook.simulated(costs, n, what, 2) for n in (100, 400) for what in outlook.TROUBLES]
    parts = page.sections(record, few)
    text = page.PAGE.read_text(encoding="utf-8")
    filled = page.fill(text, parts)
    assert max(map(len, filled.splitlines())) <= 120
    assert "too short to be quoted" in parts["made"]
    assert "**600 MB**" in parts["large"]
    for name, draw in page.PICTURES.items():
        draw(record, costs, tmp_path / f"{name}.png")
        assert f"(scaling/{name}.png)" in filled


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
