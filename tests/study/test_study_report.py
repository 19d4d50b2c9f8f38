"""From rows to means, figures and pages."""

import csv
import json

import numpy as np
import pytest

from pskem.study import Store, brief_table, parse_study, point_table, summarise, write_report
from pskem.study.drawing import draw
from pskem.study.execution import PartResult, Result

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("agg")
STUDY = parse_study(
    "small",
    """
title = "Small & neat"
runs = 3
data = { source = "digits" }
features = { n_components = 24 }
settings = { max_iter = 3 }
[[experiment]]
name = "ours"
grid = { n_blocks = [4, 1], n_components = [2, 10] }
paper = { accuracy = 80.0, spread = 1.5 }
[[experiment]]
name = "kinds"
settings = { n_blocks = 2 }
grid = { covariance_type = ["full", "tied"] }
[[experiment]]
name = "theirs"
method = "lda"
[[figure]]
name = "curves"
x = "n_components"
line = "n_blocks"
experiments = ["ours"]
[[figure]]
name = "kinds"
x = "covariance_type"
y = ["shared", "operations"]
experiments = ["kinds"]
""",
)


def result(level, passes=True):
    trace = [level, level + 0.04, level + 0.02] if passes else [level]
    shared = [0.9, 0.8, 0.7] if passes else []
    part = PartResult(600, 100, 200, trace, [], len(trace), [-3.0, -2.0, -1.5], shared, 6.0)
    return Result([part], 7.0, {"Mind the gap.": 1})


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.sqlite") as opened:
        opened.remember(STUDY)
        for run in STUDY.runs():
            passes = run.point.method == "shared-kernels"
            K = run.point.settings.get("n_components", 0)
            opened.add(run, result(0.5 + 0.01 * K + 0.01 * run.seed, passes))
        yield opened


def test_means_and_spreads_are_those_of_the_runs(store):
    first, *_, last = summarise(STUDY, store)
    assert (first.n_runs, first.seeds, first.n_train) == (3, (0, 2), 600)
    assert first.peak == pytest.approx((0.57, 0.01))
    assert first.honest == pytest.approx((0.55, 0.01))
    assert first.optimism.mean == pytest.approx(0.02)
    assert first.optimism.sd == pytest.approx(0.0, abs=1e-12)
    assert (first.best, first.chosen) == (2, 3)
    assert first.shared.mean == pytest.approx(0.7)
    assert (first.seconds_per_pass, first.seconds) == (2.0, 6.0)
    assert first.warnings == {"Mind the gap.": 3}
    assert last.shared is None
    assert last.quantity("honest").mean == pytest.approx(0.51)
    assert last.quantity("peak") is None  # there is no pass to choose


def test_one_run_has_no_spread(tmp_path):
    with Store(tmp_path / "one.sqlite") as store:
        store.add(STUDY.runs()[0], result(0.5))
        (only,) = summarise(STUDY, store)
    assert only.peak == (0.54, None)


def test_the_papers_operation_count(store):
    """N_P R K N (2 + m + m^2 + m^3), written out for one of them: 3 passes, 4 x 6, K = 10."""
    by_label = {str(s.entry.label): s for s in summarise(STUDY, store)}
    point = by_label["{'n_blocks': 4, 'n_components': 10}"]
    assert point.quantity("operations").mean == 3 * 4 * 10 * 600 * (2 + 6 + 36 + 216)
    assert by_label["{'covariance_type': 'full'}"].quantity("operations") is None


def test_partitioning_gains_the_square_of_the_blocks_by_that_count():
    """Section 2.3 of the paper, for large blocks."""
    m = 36
    counts = [R * (2 + m / R + (m / R) ** 2 + (m / R) ** 3) for R in (1, 2)]
    assert 3.7 < counts[0] / counts[1] < 4.0


def test_a_table_leaves_out_what_nobody_has(store):
    summaries = summarise(STUDY, store)
    headings, rows, left = point_table(summaries)
    assert left == 2
    assert rows[0][:4] == ["ours", "n_blocks=4, n_components=2", "3", "80 ± 1.5"]
    assert "57.00 ± 1.00" in rows[0]
    assert dict(zip(headings, rows[-1], strict=True))["paper* %"] == ""
    headings, rows, left = point_table(summaries[-1:])
    assert headings == ["experiment", "runs", "honest %", "s/pass"]
    assert left == 1


def test_a_terminal_gets_fewer_columns_of_the_same_points(store):
    summaries = summarise(STUDY, store)
    whole, brief = point_table(summaries), brief_table(summaries)
    for row, full in zip(brief.records(), whole.records(), strict=True):
        name = ", ".join(filter(None, [full["experiment"], full.pop("settings")]))
        assert row.pop("experiment") == name
        assert row.items() <= full.items()
        assert set(full) - set(row) == {"experiment", "pass*", "pass", "shared"}


def test_a_figure_has_both_protocols_side_by_side(store):
    figure = draw(STUDY.figures[0], summarise(STUDY, store))
    left, right = figure.axes
    assert "optimistic" in left.get_title()
    assert "without test data" in right.get_title()
    labels = [line.get_label() for line in left.lines]
    assert labels == ["4 x 6", "1 x 24 (not partitioned)"]
    assert np.allclose(left.lines[0].get_xydata(), [[2, 57.0], [10, 65.0]])
    assert np.allclose(right.lines[0].get_xydata(), [[2, 55.0], [10, 63.0]])
    assert "3 runs a point" in figure.get_suptitle()
    plt.close(figure)


def test_points_without_runs_make_no_figure(tmp_path):
    with Store(tmp_path / "some.sqlite") as store:
        store.remember(STUDY)
        store.add(STUDY.runs(1, ["theirs"])[0], result(0.5, passes=False))
        assert write_report(store, tmp_path).figures == []


def test_settings_that_are_words_can_be_drawn(store):
    figure = draw(STUDY.figures[1], summarise(STUDY, store))
    shared, operations = figure.axes
    assert [tick.get_text() for tick in shared.get_xticklabels()] == ["full", "tied"]
    assert not operations.lines  # K is chosen from the data, so there is nothing to count
    plt.close(figure)


def test_the_page_and_the_tables(store, tmp_path):
    written = write_report(store, tmp_path)
    page = written.page.read_text()
    assert "Small &amp; neat" in page
    assert "7 of 7 points, 3 run(s) a point" in page
    assert "21 of 21 runs warned: Mind the gap." in page
    assert page.count("data:image/png;base64,") == 2
    assert {path.name for path in written.figures} == {
        "curves.png",
        "curves.svg",
        "kinds.png",
        "kinds.svg",
    }
    rows = list(csv.DictReader((tmp_path / "summary.csv").read_text().splitlines()))
    assert [float(row["honest_mean"]) for row in rows[:2]] == pytest.approx([0.55, 0.63])
    points = json.loads((tmp_path / "summary.json").read_text())["points"]
    assert len(points) == len(rows) == 7
    assert json.loads(rows[0]["settings"]) == points[0]["settings"]
    assert points[0]["operations"] == 3 * 4 * 2 * 600 * (2 + 6 + 36 + 216)


def test_points_that_were_not_run_are_counted(tmp_path):
    with Store(tmp_path / "part.sqlite") as store:
        store.remember(STUDY)
        empty = write_report(store, tmp_path).page.read_text()
        assert "0 of 7 points, no runs yet" in empty
        store.add(STUDY.runs()[0], result(0.5))
        page = write_report(store, tmp_path).page.read_text()
    assert "1 of 7 points, 1 run(s) a point. 6 point(s) have not been run." in page
