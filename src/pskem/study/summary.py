"""Means and spreads of the runs of each point, under both protocols."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pskem.study.definition import Entry, Study
from pskem.study.methods import CLASSIFIERS
from pskem.study.store import Record, Store

__all__ = ["PointSummary", "Spread", "describe", "operations", "summarise"]


class Spread(NamedTuple):
    """Mean and standard deviation over runs; the latter is None for a single run."""

    mean: float
    sd: float | None


class PointSummary(NamedTuple):
    """Results of the runs of a point.

    peak, honest, last : accuracy of the best pass by test data, of the pass chosen without test
        data, and of the last pass
    optimism : peak - honest
    best, chosen : the passes of peak and honest, medians over runs and parts
    shared : shared proportion after the last pass
    seconds_per_pass : training time, median over the runs with the fewest threads
    seconds : the same for all passes
    threads : number of threads of these runs
    warnings : number of runs with each warning
    n_warned : number of runs with any warning
    """

    study: str
    entry: Entry
    n_runs: int
    seeds: tuple[int, int]
    n_train: int
    peak: Spread
    honest: Spread
    last: Spread
    optimism: Spread
    best: float
    chosen: float
    shared: Spread | None
    seconds_per_pass: float
    seconds: float
    threads: int
    warnings: Mapping[str, int]
    n_warned: int

    @property
    def has_passes(self) -> bool:
        return CLASSIFIERS[self.entry.point.method].has_passes

    def value(self, name: str) -> Any:
        """A setting of the point, its method, or None."""
        if name == "method":
            return self.entry.label.get(name, self.entry.point.method)
        return self.entry.point.settings.get(name)

    def quantity(self, name: str) -> Spread | None:
        """A quantity of a figure, by name."""
        if name == "operations":
            count = operations(self)
            return None if count is None else Spread(count, None)
        if name == "seconds":
            return Spread(self.seconds, None)
        if name in ("peak", "optimism", "last") and not self.has_passes:
            return None
        chosen: Spread | None = getattr(self, name)
        return chosen

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for CSV and JSON."""
        experiment = self.entry.experiment
        names = ("peak", "honest", "last", "optimism", "shared")
        spreads = {name: self.quantity(name) for name in names}
        return {
            "study": self.study,
            "experiment": experiment.name,
            "data": self.entry.point.data["source"],
            "method": self.entry.point.method,
            "label": describe(self.entry.label),
            "settings": dict(self.entry.point.settings),
            "runs": self.n_runs,
            "first_seed": self.seeds[0],
            "last_seed": self.seeds[1],
            "train_rows": self.n_train,
            **{
                f"{name}_{part}": None if spread is None else _rounded(getattr(spread, part))
                for name, spread in spreads.items()
                for part in Spread._fields
            },
            "best_pass": self.best if self.has_passes else None,
            "chosen_pass": self.chosen if self.has_passes else None,
            "seconds_per_pass": _rounded(self.seconds_per_pass),
            "seconds": _rounded(self.seconds),
            "threads": self.threads,
            "operations": operations(self),
            "paper_accuracy": experiment.paper.get("accuracy"),
            "paper_sd": experiment.paper.get("spread"),
            "paper_seconds_per_pass": experiment.paper.get("seconds_per_pass"),
            "warned_runs": self.n_warned,
            "warnings": "; ".join(sorted(self.warnings)),
            "point": self.entry.point.key,
        }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def describe(label: Mapping[str, Any]) -> str:
    """The settings that distinguish a point, as text."""
    return ", ".join(
        str(value) if name == "method" else f"{name}={value}" for name, value in label.items()
    )


def operations(summary: PointSummary) -> float | None:
    """The paper's operation count of a whole training, N_P R K N (2 + m + m^2 + m^3).

    Sections 2.2 and 2.3, with g(m) = m^3 for the cost of a quadratic form.
    """
    point = summary.entry.point
    R, K, M = (
        summary.value("n_blocks"),
        summary.value("n_components"),
        point.features.get("n_components"),
    )
    passes = point.settings.get("max_iter")
    if not all(isinstance(number, int) for number in (R, K, M, passes)):
        return None
    m = M / R
    return float(passes * R * K * summary.n_train * (2 + m + m**2 + m**3))


def summarise(study: Study, store: Store) -> list[PointSummary]:
    """Summaries of the points that have been run, in the order of the study."""
    by_point: dict[str, list[Record]] = {}
    for record in store.records([entry.point for entry in study.entries]):
        by_point.setdefault(record.point, []).append(record)
    found = [(entry, by_point.get(entry.point.key, [])) for entry in study.entries]
    return [_summary(study.name, entry, records) for entry, records in found if records]


def _summary(study: str, entry: Entry, records: Sequence[Record]) -> PointSummary:
    results = [record.result for record in records]
    parts = [part for result in results for part in result.parts]
    shared = [result.shared for result in results if result.shared is not None]
    seeds = [record.seed for record in records]
    threads = min(record.threads for record in records)
    timed = [r.result.seconds_per_pass for r in records if r.threads == threads]
    seconds_per_pass = float(np.median(timed))
    return PointSummary(
        study=study,
        entry=entry,
        n_runs=len(results),
        seeds=(min(seeds), max(seeds)),
        n_train=round(float(np.mean([part.n_train for part in parts]))),
        peak=_spread([result.peak for result in results]),
        honest=_spread([result.honest for result in results]),
        last=_spread([result.last for result in results]),
        optimism=_spread([result.peak - result.honest for result in results]),
        best=float(np.median([np.argmax(part.test) + 1 for part in parts])),
        chosen=float(np.median([part.chosen for part in parts])),
        shared=_spread(shared) if shared else None,
        seconds_per_pass=seconds_per_pass,
        seconds=seconds_per_pass * len(parts[0].test),
        threads=threads,
        warnings=Counter(text for result in results for text in result.warnings),
        n_warned=sum(bool(result.warnings) for result in results),
    )


def _spread(values: Sequence[float]) -> Spread:
    sd = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Spread(float(np.mean(values)), sd)
