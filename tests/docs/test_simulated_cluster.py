"""The simulated cluster against closed forms, and against what no schedule can break."""

import importlib
import time
from collections import Counter
from itertools import pairwise
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


@pytest.fixture(scope="module")
def given_to_it(simulation):
    """The tree, the placement and the slow tasks."""
    return importlib.import_module("benchmarks.scaling.cluster")


def dealt(n_partitions, n_workers):
    """As many partitions for each worker, and neighbours on different ones."""
    return [i % n_workers for i in range(n_partitions)]


def test_one_worker_takes_the_sum(simulation, rng):
    work = rng.random(37)
    found = simulation.simulate(simulation.Cluster(1, merge=0.25), work)
    assert found.seconds == pytest.approx(work.sum() + 36 * 0.25)
    assert found.worked == pytest.approx(found.seconds)
    assert found.fetched == 0


@pytest.mark.parametrize(("n_workers", "each"), [(4, 1), (8, 8), (5, 3)])
def test_without_stragglers_all_workers_end_together(simulation, n_workers, each):
    """Merges take no time here, so the makespan is that of one worker's partitions."""
    n = n_workers * each
    homes = dealt(n, n_workers)
    found = simulation.simulate(simulation.Cluster(n_workers), [2.0] * n, homes=homes)
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
    work, homes = [4.0, 4.0, 4.0, 1.0, 1.0, 1.0], [0, 0, 0, 1, 1, 1]
    stays = simulation.simulate(simulation.Cluster(2, arity=6), work, homes=homes)
    moves = simulation.simulate(simulation.Cluster(2, arity=6, move=2.0), work, homes=homes)
    assert (stays.seconds, moves.seconds) == (12.0, 9.0)
    assert moves.worked == stays.worked + 2.0


def test_who_has_fewer_partitions_takes_over_from_who_has_more(simulation):
    """Five, four and three: all end after four, though merges wait at busy workers meanwhile."""
    homes = [0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 0]
    cluster = simulation.Cluster(3, arity=2, merge=1e-6, fetch=1e-6, dispatch=1e-6)
    assert simulation.simulate(cluster, [1.0] * 12, homes=homes).seconds > 5.0
    shared = simulation.simulate(cluster._replace(move=1e-6), [1.0] * 12, homes=homes)
    assert shared.seconds == pytest.approx(4.0, abs=1e-3)


def test_nothing_is_taken_over_that_takes_longer_to_move(simulation):
    """The other would have its three tasks done before the first has arrived."""
    work, homes = [1.0] * 4, [0, 0, 0, 1]
    found = simulation.simulate(simulation.Cluster(2, arity=4, move=5.0), work, homes=homes)
    assert found.seconds == 3.0


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
    found = [
        simulation.simulate(cluster, [T / 2] * 2 * W, seed, dealt(2 * W, W)) for seed in range(runs)
    ]
    extra = np.array([each.worked for each in found]) - W * T
    error = extra.std() / np.sqrt(runs)
    # What is left out is of second order: a death while the work of another death is done again.
    assert extra.mean() == pytest.approx(0.05 * T / 2, abs=4.0 * error + 0.05**2 * T)


def test_partitions_that_died_are_read_again(simulation):
    """One worker, which dies once: all is read again at once, and everything is done again."""
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
    assert outcome.reloaded == 4


def test_partitions_are_read_again_though_their_results_are_merged_already(simulation):
    """Worker 1 of three has done its task, and worker 0 has merged the result, when it dies.

    The death costs no result, but a partition: worker 0 reads it while worker 2 is still busy. With
    seven seconds from the fifth on, the fold ends two seconds later than without.
    """
    cluster = simulation.Cluster(3, arity=2, restart=100.0, reload=7.0)
    fold = simulation._Fold(cluster, [1.0, 1.0, 10.0], [0, 1, 2], np.random.default_rng(0))
    fold._at(5.0, "dies", 1)
    found = fold.run()
    assert (found.deaths, found.repeated, found.reloaded) == (1, 0, 1)
    assert found.seconds == pytest.approx(12.0)
    assert found.worked == pytest.approx(12.0 + 7.0)


@settings(deadline=None, max_examples=60)
@given(
    P=st.integers(1, 60),
    W=st.integers(1, 9),
    arity=st.integers(2, 8),
    hazard=st.sampled_from([0.0, 0.02, 0.1]),
    move=st.sampled_from([None, 0.0, 0.3]),
    seed=st.integers(0, 1000),
)
def test_no_schedule_breaks_what_must_hold(
    simulation, given_to_it, P, W, arity, hazard, move, seed
):
    work = np.random.default_rng(seed).exponential(1.0, P)
    hazard = hazard / max(1.0, work.sum())
    cluster = simulation.Cluster(W, arity, 0.01, 0.02, 0.001, move, hazard, 0.5, 0.1)
    found = simulation.simulate(cluster, work, seed)
    assert found == simulation.simulate(cluster, work, seed)
    assert found.worked >= work.sum() * (1.0 - 1e-12)
    assert found.seconds >= max(found.worked / W if hazard == 0.0 else 0.0, work.max())
    assert found.reloaded <= P * found.deaths
    if hazard == 0.0:
        n_merges = len(given_to_it.tree(P, arity))
        moved = (move or 0.0) * P
        assert found.repeated == found.deaths == 0
        assert found.worked == pytest.approx(
            work.sum() + (P - 1) * 0.01 + found.fetched * 0.02, abs=moved + 1e-9
        )
        assert found.seconds <= found.worked + 0.001 * (P + n_merges) + 1e-9


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 64, 65, 200])
def test_the_tree_is_that_of_the_package(given_to_it, n):
    """The graph of a fold has the same merges, of the same parts, on as many levels."""
    pytest.importorskip("dask")
    from pskem.clusters import DaskPieces, _fold_partition, _merge

    value = DaskPieces(list(range(n)), list)._tree(float)
    graph = dict(value.dask)
    merges = {key: task[1] for key, task in graph.items() if task_of(task) is _merge}
    leaves = [key for key, task in graph.items() if task_of(task) is _fold_partition]
    leaves.sort(key=lambda key: int(key.rsplit("-", 1)[1]))
    assert len(leaves) == n
    assert [graph[key][3] for key in leaves] == list(range(n))
    # Nodes have the numbers of the simulation: the leaves, then each merge after its parts.
    order = sorted(merges, key=lambda key: tuple(map(int, key.rsplit("-", 2)[1:])))
    number = {key: i for i, key in enumerate([*leaves, *order])}
    simulated = given_to_it.tree(n, given_to_it.Cluster(1).arity)
    assert [[number[part] for part in merges[key]] for key in order] == simulated
    assert number[value.key] == n + len(simulated) - 1
    levels = {key.rsplit("-", 2)[1] for key in order}
    outlook = importlib.import_module("benchmarks.scaling.outlook")
    assert len(levels) == outlook._levels(n, 8)


def task_of(task):
    """What a task of a graph calls."""
    return task[0] if isinstance(task, tuple) else None


def test_partitions_lie_scattered_and_not_evenly(given_to_it):
    """Neighbours share a worker by chance alone, and some workers have more than others."""
    W, P, runs = 10, 200, 50
    placed = [given_to_it.scatter(np.random.default_rng(seed), P, W) for seed in range(runs)]
    assert placed[0] == given_to_it.scatter(np.random.default_rng(0), P, W)
    together = np.mean([np.equal(homes[1:], homes[:-1]).mean() for homes in placed])
    assert together < 2.0 / W
    counts = [sorted(Counter(homes).values()) for homes in placed]
    assert all(len(each) == W and each[0] >= P / W / 2 for each in counts)
    assert all(each[-1] <= 1.5 * P / W for each in counts)
    assert np.mean([each[-1] > P / W for each in counts]) > 0.9
    # While there is one partition for each worker, nobody gets two.
    assert sorted(given_to_it.scatter(np.random.default_rng(0), W, W)) == list(range(W))


def test_dask_scatters_partitions_too(given_to_it):
    """A real cluster: no worker has a contiguous range, and none has much more than its share."""
    pytest.importorskip("distributed")
    import dask
    from distributed import Client, LocalCluster, futures_of, wait

    options = {"n_workers": 3, "threads_per_worker": 1, "processes": False}
    with LocalCluster(dashboard_address=None, **options) as cluster, Client(cluster) as client:
        parts = dask.persist(*(dask.delayed(pause)(i) for i in range(30)))
        wait(parts)
        holders = client.who_has(futures_of(parts))
        places = [holders[part.key][0] for part in parts]
    changes = sum(one != other for one, other in pairwise(places))
    assert changes > 2  # as contiguous ranges would have
    assert max(Counter(places).values()) <= 15


def pause(i):
    time.sleep(0.01)
    return i


def test_stragglers_have_the_tail_that_they_are_given(given_to_it, rng):
    times = given_to_it.stragglers(rng, np.ones(200_000), share=0.5, tail=1.5)
    assert (times > 1.0).mean() == pytest.approx(0.5, abs=0.01)
    assert (times > 4.0).mean() == pytest.approx(0.5 * 4.0**-1.5, rel=0.05)
