"""A study as a value: experiments, their points and their runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Self

from pskem.study.configuration import Point, RunSpec, StudyError

__all__ = ["Entry", "Experiment", "Study", "check_names", "names_of"]


class Experiment(NamedTuple):
    """One or several methods on one data set, at the points of a grid.

    labels : for each point, the settings that distinguish it
    runs : number of runs per point, with seeds from 0
    paper : what the paper reports, in percent and seconds
    path : path of the data file, if there is one
    """

    name: str
    points: list[Point]
    labels: list[Mapping[str, Any]]
    runs: int
    paper: Mapping[str, float]
    path: str | None = None


class Entry(NamedTuple):
    """A point of an experiment, with the settings that distinguish it."""

    experiment: Experiment
    point: Point
    label: Mapping[str, Any]


class Study(NamedTuple):
    """A study: experiments and figures.

    left_out : methods that were asked for and whose library is not installed
    """

    name: str
    title: str
    about: str
    experiments: list[Experiment]
    figures: list[Mapping[str, Any]]
    left_out: Sequence[str] = ()

    @property
    def entries(self) -> list[Entry]:
        return [
            Entry(experiment, point, label)
            for experiment in self.experiments
            for point, label in zip(experiment.points, experiment.labels, strict=True)
        ]

    def runs(self, n: int | None = None, only: Collection[str] = ()) -> list[RunSpec]:
        """All runs, seed by seed, so that a study stopped early has runs of all points.

        ``n`` overrides the number of runs per point; ``only`` selects experiments, data sets or
        methods by name.
        """
        entries = [entry for entry in self.entries if not only or set(only) & names_of(entry)]
        most = max((n or entry.experiment.runs for entry in entries), default=0)
        made = {
            run.key: run
            for seed in range(most)
            for entry in entries
            if seed < (n or entry.experiment.runs)
            for run in [RunSpec(entry.point, seed, entry.experiment.path)]
        }
        return list(made.values())

    def as_dict(self) -> dict[str, Any]:
        """Plain values, without the paths of files."""
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
        """The inverse of :meth:`as_dict`."""
        experiments = [
            Experiment(**{**entry, "points": [Point(**point) for point in entry["points"]]})
            for entry in plain["experiments"]
        ]
        return cls(**{**plain, "experiments": experiments})


def names_of(entry: Entry) -> set[str]:
    """Names that select an entry: its experiment, method and data."""
    return {entry.experiment.name, entry.point.method, str(entry.point.data["source"])}


def check_names(studies: Collection[Study], only: Collection[str]) -> None:
    """Refuse names that do not occur in the studies."""
    known = sorted({name for study in studies for e in study.entries for name in names_of(e)})
    unknown = [name for name in only if name not in known]
    if unknown:
        listed = ", ".join(map(repr, known))
        raise StudyError(f"Nothing here is called {unknown[0]!r}. Known: {listed}.")
