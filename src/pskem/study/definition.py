"""A study as a value: experiments, their points, and the runs that they stand for."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, Self

from pskem.study.configuration import Point, Run, StudyError

__all__ = ["Entry", "Experiment", "Study", "check_names", "names_of"]


class Experiment(NamedTuple):
    """One or several methods on one data set, at the points of a grid.

    labels : for each point the settings that tell it from the others
    runs : of every point, with seeds from 0
    paper : what the paper reports, in percent and seconds
    path : the file of the data on this machine, if they are in one
    """

    name: str
    points: list[Point]
    labels: list[Mapping[str, Any]]
    runs: int
    paper: Mapping[str, float]
    path: str | None = None


class Entry(NamedTuple):
    """A point of an experiment, with the settings that tell it from the others."""

    experiment: Experiment
    point: Point
    label: Mapping[str, Any]


class Study(NamedTuple):
    """A study: experiments, and how their results are to be drawn."""

    name: str
    title: str
    about: str
    experiments: list[Experiment]
    figures: list[Mapping[str, Any]]

    @property
    def entries(self) -> list[Entry]:
        return [
            Entry(experiment, point, label)
            for experiment in self.experiments
            for point, label in zip(experiment.points, experiment.labels, strict=True)
        ]

    def runs(self, n: int | None = None, only: Collection[str] = ()) -> list[Run]:
        """All runs, seed by seed, so that a study that is stopped early has all its points.

        ``n`` overrides the number of runs of every point; ``only`` names experiments, data sets
        or methods.
        """
        entries = [entry for entry in self.entries if not only or set(only) & names_of(entry)]
        most = max((n or entry.experiment.runs for entry in entries), default=0)
        made = {
            run.key: run
            for seed in range(most)
            for entry in entries
            if seed < (n or entry.experiment.runs)
            for run in [Run(entry.point, seed, entry.experiment.path)]
        }
        return list(made.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain values that say everything but where files lie."""
        return {
            **self._asdict(),
            "experiments": [
                {
                    **experiment._asdict(),
                    "points": [point._asdict() for point in experiment.points],
                    "path": None,
                }
                for experiment in self.experiments
            ],
        }

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """The study that :meth:`as_dict` took apart."""
        experiments = [
            Experiment(**{**entry, "points": [Point(**point) for point in entry["points"]]})
            for entry in plain["experiments"]
        ]
        return cls(**{**plain, "experiments": experiments})


def names_of(entry: Entry) -> set[str]:
    """What an entry may be asked for by: its experiment, its method, its data."""
    return {entry.experiment.name, entry.point.method, str(entry.point.data["source"])}


def check_names(studies: Collection[Study], only: Collection[str]) -> None:
    """Refuse names that nothing in the studies has."""
    known = sorted({name for study in studies for e in study.entries for name in names_of(e)})
    unknown = [name for name in only if name not in known]
    if unknown:
        listed = ", ".join(map(repr, known))
        raise StudyError(f"Nothing here is called {unknown[0]!r}. Known: {listed}.")
