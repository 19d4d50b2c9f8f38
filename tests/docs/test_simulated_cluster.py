"""The simulated cluster against closed forms, and against what no schedule can break."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.plumbing

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").exists():
    pytest.skip("the benchmarks are not beside the tests", allow_module_level=True)


@pytest.fixture(scope="module")
def simulation():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield importlib.import_module("benchmarks.scaling.simulation")


def test_one_worker_takes_the_sum(simulation, rng):
    work = rng.random(37)
    found = simulation.simulate(simulation.Cluster(1, merge=0.25), work)
    assert found.seconds == pytest.approx(work.sum() + 36 * 0.25)
    assert found.worked == pytest.approx(found.seconds)
    assert found.fetched == 0


@pytest.mark.parametrize(("n_workers", "each"), [(4, 1), (8, 8), (5, 3)])
def test_without_stragglers_all_workers_end_together(simulation, n_workers, each):
    """Merges take no time here, so the makespan is that of one worker's partitions."""
    found = simulation.simulate(simulation.Cluster(n_workers), [2.0] * n_workers * each)
    assert found.seconds == 2.0 * each


def test_a_tree_on_as_many_workers_takes_one_path_from_leaf_to_root(simulation):
    """64 workers, 8 results at a time: each merge has one part at hand and fetches seven."""
    cluster = simulation.Cluster(64, arity=8, merge=0.5, fetch=0.25)
    found = simulation.simulate(cluster, [3.0] * 64)
    assert found.seconds == pytest.approx(3.0 + 2 * 7 * (0.5 + 0.25))
    assert found.fetched == 63


def test_a_scheduler_that_is_slow_hands_out_one_task_after_the_other(simulation):
    cluster = simulation.Cluster(100, arity=100, dispatch=0.5)
    found = simulation.simulate(cluster, [2.0] * 100)
    assert found.seconds == pytest.approx(100 * 0.5 + 2.0 + 0.5)


def test_a_scheduler_that_is_fast_hides_behind_the_work(simulation):
    found = simulation.simulate(simulation.Cluster(1, arity=50, dispatch=0.1), [1.0] * 50)
    assert found.seconds == pytest.approx(0.1 + 50 * 1.0 + 0.1)


def test_the_slowest_of_as_many_tasks_as_workers_is_waited_for(simulation, rng):
    """Exponential times: the largest of n is the n-th harmonic number on average."""
    n, runs = 20, 2000
    work = rng.exponential(1.0, (runs, n))
    found = [simulation.simulate(simulation.Cluster(n, arity=n), each).seconds for each in work]
    assert found == pytest.approx(work.max(axis=1))
    spread = np.sqrt((1.0 / np.arange(1, n + 1) ** 2).sum() / runs)
    assert np.mean(found) == pytest.approx((1.0 / np.arange(1, n + 1)).sum(), abs=4.0 * spread)


def test_workers_that_have_nothing_to_do_take_over(simulation):
    """One of two workers is slow: with two seconds of moving, the other takes one of its tasks."""
    work = [4.0, 4.0, 4.0, 1.0, 1.0, 1.0]
    stays = simulation.simulate(simulation.Cluster(2, arity=6), work)
    moves = simulation.simulate(simulation.Cluster(2, arity=6, move=2.0), work)
    assert (stays.seconds, moves.seconds) == (12.0, 9.0)
    assert moves.worked == stays.worked + 2.0


@pytest.mark.parametrize("n_tasks", [1, 4])
def test_a_worker_that_may_die_takes_as_long_as_it_must_on_average(simulation, n_tasks):
    """It begins anew after each death: (1/h + restart) (exp(h T) - 1), Daly (2006)."""
    hazard, restart, T, runs = 0.2, 3.0, 4.0, 4000
    cluster = simulation.Cluster(1, hazard=hazard, restart=restart)
    work = [T / n_tasks] * n_tasks
    found = [simulation.simulate(cluster, work, seed) for seed in range(runs)]
    seconds = np.array([each.seconds for each in found])
    expected = (1.0 / hazard + restart) * np.expm1(hazard * T)
    assert seconds.mean() == pytest.approx(expected, abs=4.0 * seconds.std() / np.sqrt(runs))
    deaths = np.array([each.deaths for each in found])
    assert deaths.mean() == pytest.approx(np.expm1(hazard * T), rel=0.1)


def test_rare_deaths_cost_what_the_dead_have_done(simulation):
    """To first order each of W workers loses half of its time T: W hazard T^2 / 2 more work."""
    W, T, runs = 4, 2.0, 20_000
    cluster = simulation.Cluster(W, hazard=0.05 / (W * T))
    found = [simulation.simulate(cluster, [T / 2] * 2 * W, seed) for seed in range(runs)]
    extra = np.array([each.worked for each in found]) - W * T
    error = extra.std() / np.sqrt(runs)
    # What is left out is of second order: a death while the work of another death is done again.
    assert extra.mean() == pytest.approx(0.05 * T / 2, abs=4.0 * error + 0.05**2 * T)


def test_partitions_that_died_are_read_again(simulation):
    """One worker, which dies once: everything is done again, after it was read again."""
    cluster = simulation.Cluster(1, hazard=0.15, restart=1.0, reload=0.5)
    found = next(
        (each, seed)
        for seed in range(100)
        if (each := simulation.simulate(cluster, [1.0] * 4, seed)).deaths == 1
    )
    outcome, _ = found
    lost = outcome.seconds - 1.0 - 4 * 1.5  # until it died
    assert 0.0 < lost < 4.0
    assert outcome.worked == pytest.approx(outcome.seconds - 1.0)
    assert outcome.repeated == int(lost)


@settings(deadline=None, max_examples=60)
@given(
    P=st.integers(1, 60),
    W=st.integers(1, 9),
    arity=st.integers(2, 8),
    hazard=st.sampled_from([0.0, 0.02, 0.1]),
    move=st.sampled_from([None, 0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_no_schedule_breaks_what_must_hold(simulation, P, W, arity, hazard, move, seed):
    work = np.random.default_rng(seed).exponential(1.0, P)
    hazard = hazard / max(1.0, work.sum())
    cluster = simulation.Cluster(W, arity, 0.01, 0.02, 0.001, move, hazard, 0.5, 0.1)
    found = simulation.simulate(cluster, work, seed)
    assert found == simulation.simulate(cluster, work, seed)
    assert found.worked >= work.sum() * (1.0 - 1e-12)
    assert found.seconds >= max(found.worked / W if hazard == 0.0 else 0.0, work.max())
    if hazard == 0.0:
        n_merges = len(simulation.tree(P, arity))
        moved = (move or 0.0) * P
        assert found.repeated == found.deaths == 0
        assert found.worked == pytest.approx(
            work.sum() + (P - 1) * 0.01 + found.fetched * 0.02, abs=moved + 1e-9
        )
        assert found.seconds <= found.worked + 0.001 * (P + n_merges) + 1e-9


def test_the_tree_is_that_of_the_package(simulation):
    """As many merges, of as many parts, as a fold of Dask's has."""
    from pskem.clusters import ARITY

    for n in (1, 7, 8, 9, 64, 65, 200):
        merges = simulation.tree(n, ARITY)
        taken = [part for parts in merges for part in parts]
        assert sorted(taken) == list(range(n + len(merges) - 1))
        assert all(1 <= len(parts) <= ARITY for parts in merges)
    assert simulation.Cluster(1).arity == ARITY


def test_stragglers_have_the_tail_that_they_are_given(simulation, rng):
    times = simulation.stragglers(rng, np.ones(200_000), share=0.5, tail=1.5)
    assert (times > 1.0).mean() == pytest.approx(0.5, abs=0.01)
    assert (times > 4.0).mean() == pytest.approx(0.5 * 4.0**-1.5, rel=0.05)
