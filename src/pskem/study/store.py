"""The file of results: one row per run, written when the run is complete."""

from __future__ import annotations

import json
import os
import platform
import socket
import sqlite3
import time
import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from pskem.files import is_alive
from pskem.study.configuration import Point, RunSpec, StudyError
from pskem.study.definition import Study
from pskem.study.execution import PartResult, Result
from pskem.study.methods import library_of

__all__ = ["Claim", "Failure", "Record", "Store", "versions"]

#: Identifiers of our SQLite files and of their layout.
APPLICATION = 0x70736B6D
LAYOUT = 1
#: Seconds until a claim expires unless renewed, and seconds to wait for a locked file.
LEASE = 300.0
PATIENCE = 60.0

SCHEMA = """
CREATE TABLE studies (name TEXT PRIMARY KEY, definition TEXT NOT NULL, stored TEXT NOT NULL);
CREATE TABLE runs (
    key TEXT PRIMARY KEY,
    point TEXT NOT NULL,
    seed INTEGER NOT NULL,
    configuration TEXT NOT NULL,
    finished TEXT NOT NULL,
    versions TEXT NOT NULL,
    threads INTEGER NOT NULL,
    peak REAL NOT NULL,
    honest REAL NOT NULL,
    last REAL NOT NULL,
    shared REAL,
    seconds_per_pass REAL NOT NULL,
    seconds REAL NOT NULL,
    parts TEXT NOT NULL,
    warnings TEXT NOT NULL
);
CREATE INDEX runs_by_point ON runs (point);
CREATE TABLE claims (
    key TEXT PRIMARY KEY, owner TEXT NOT NULL, host TEXT NOT NULL, pid INTEGER NOT NULL,
    expires REAL NOT NULL
);
CREATE TABLE failures (
    key TEXT PRIMARY KEY, configuration TEXT NOT NULL, seed INTEGER NOT NULL,
    finished TEXT NOT NULL, message TEXT NOT NULL
);
"""


class Record(NamedTuple):
    """A completed run."""

    point: str
    seed: int
    finished: str
    versions: dict[str, str]
    threads: int
    result: Result


class Failure(NamedTuple):
    """A run that failed, and why."""

    point: str
    seed: int
    message: str


class Claim(NamedTuple):
    """Result of a search for work: a run to perform, and the runs that are done by now."""

    key: str | None
    done: set[str]


def versions(library: str | None = None) -> dict[str, str]:
    """Versions that a result may depend on, and of a further library that a method comes from."""
    import numpy
    import scipy
    import sklearn

    from pskem.version import __version__

    return {
        "pskem": __version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        **({} if library is None else {library: metadata.version(library)}),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
    }


class Store:
    """A file of results that several processes can use at once.

    A process claims a run before it performs it, so that no other process does. A claim ends with
    its process, or when it is not renewed for a while. Each result is written in one transaction.

    Parameters
    ----------
    path : path-like
    create : bool
        Whether to create the file if it does not exist.
    """

    def __init__(self, path: Any, create: bool = True) -> None:
        self.path = Path(path)
        self.owner = uuid.uuid4().hex
        if not create and not self.path.is_file():
            raise StudyError(f"There is no file of results {self.path}. Run a study first.")
        try:
            self._connection = sqlite3.connect(self.path, timeout=PATIENCE, isolation_level=None)
            self._prepare()
        except sqlite3.OperationalError as error:
            raise StudyError(f"{self.path} cannot be opened: {error}.") from None
        except sqlite3.DatabaseError:
            raise StudyError(
                f"{self.path} is not a file of results. Name another folder with --out."
            ) from None

    def _prepare(self) -> None:
        with self._transaction():
            (application,) = self._connection.execute("PRAGMA application_id").fetchone()
            (layout,) = self._connection.execute("PRAGMA user_version").fetchone()
            (count,) = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if count == 0:
                for statement in filter(str.strip, SCHEMA.split(";")):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA application_id = {APPLICATION}")
                self._connection.execute(f"PRAGMA user_version = {LAYOUT}")
            elif application != APPLICATION:
                raise sqlite3.DatabaseError
            elif layout != LAYOUT:
                raise StudyError(
                    f"{self.path} was written by another version of pskem (layout {layout}, not"
                    f" {LAYOUT}). Use that version, or start a new file with --out."
                )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """An exclusive transaction: commit, or roll back on any error."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:  # SQLite may have rolled back by itself
                self._connection.execute("ROLLBACK")
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release all claims and close the file."""
        try:
            self.release()
        except sqlite3.Error:
            pass  # the claims end with this process
        finally:
            self._connection.close()

    def release(self) -> None:
        """Release all claims of this store."""
        self._connection.execute("DELETE FROM claims WHERE owner = ?", [self.owner])

    def remember(self, study: Study) -> None:
        """Store the definition of a study."""
        self._connection.execute(
            "INSERT OR REPLACE INTO studies VALUES (?, ?, ?)",
            [study.name, json.dumps(study.as_dict()), _now()],
        )

    def studies(self) -> list[Study]:
        """The stored studies, by name."""
        rows = self._connection.execute("SELECT definition FROM studies ORDER BY name")
        return [Study.from_dict(json.loads(definition)) for (definition,) in rows]

    def claim(self, keys: Sequence[str]) -> Claim:
        """Claim the first of these runs that is neither done nor claimed by a living process."""
        with self._transaction():
            done = self.done(keys)
            taken = {
                key
                for key, host, pid, expires in self._connection.execute(
                    "SELECT key, host, pid, expires FROM claims"
                )
                if expires > time.time() and (host != socket.gethostname() or is_alive(pid))
            }
            free = next((key for key in keys if key not in done and key not in taken), None)
            if free is not None:
                self._connection.execute(
                    "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)",
                    [free, self.owner, socket.gethostname(), os.getpid(), time.time() + LEASE],
                )
        return Claim(free, done)

    def renew(self) -> None:
        """Renew the claims of this store."""
        self._connection.execute(
            "UPDATE claims SET expires = ? WHERE owner = ?", [time.time() + LEASE, self.owner]
        )

    def done(self, keys: Collection[str]) -> set[str]:
        """The runs that are done, of those given."""
        wanted = set(keys)
        return {key for (key,) in self._connection.execute("SELECT key FROM runs") if key in wanted}

    def add(self, run: RunSpec, result: Result, threads: int = 1) -> None:
        """Store the result of a run, unless there is one already."""
        with self._transaction():
            self._connection.execute(
                f"INSERT INTO runs VALUES ({', '.join('?' * 15)}) ON CONFLICT (key) DO NOTHING",
                [
                    run.key,
                    run.point.key,
                    run.seed,
                    run.point.text,
                    _now(),
                    json.dumps(versions(library_of(run.point.method))),
                    threads,
                    result.peak,
                    result.honest,
                    result.last,
                    result.shared,
                    result.seconds_per_pass,
                    result.seconds,
                    json.dumps([part._asdict() for part in result.parts], allow_nan=False),
                    json.dumps(result.warnings),
                ],
            )
            self._connection.execute("DELETE FROM claims WHERE key = ?", [run.key])
            self._connection.execute("DELETE FROM failures WHERE key = ?", [run.key])

    def fail(self, run: RunSpec, message: str) -> None:
        """Store why a run failed; the next request tries it again."""
        with self._transaction():
            self._connection.execute(
                "INSERT OR REPLACE INTO failures VALUES (?, ?, ?, ?, ?)",
                [run.key, run.point.text, run.seed, _now(), message],
            )
            self._connection.execute(
                "DELETE FROM claims WHERE key = ? AND owner = ?", [run.key, self.owner]
            )

    def records(self, points: Collection[Point] | None = None) -> list[Record]:
        """Runs of some points, or of all, sorted by point and seed."""
        rows = self._connection.execute(
            "SELECT point, seed, finished, versions, threads, parts, seconds, warnings"
            " FROM runs ORDER BY point, seed"
        )
        wanted = None if points is None else {point.key for point in points}
        return [
            Record(
                point,
                seed,
                finished,
                json.loads(made_with),
                threads,
                Result(
                    [PartResult(**part) for part in json.loads(parts)],
                    seconds,
                    json.loads(texts),
                ),
            )
            for point, seed, finished, made_with, threads, parts, seconds, texts in rows
            if wanted is None or point in wanted
        ]

    def made_with(self) -> list[dict[str, str]]:
        """Distinct versions that the runs were made with."""
        rows = self._connection.execute("SELECT DISTINCT versions FROM runs ORDER BY versions")
        return [json.loads(text) for (text,) in rows]

    def seconds(self) -> dict[str, float]:
        """Mean seconds of a run of each point."""
        rows = self._connection.execute("SELECT point, avg(seconds) FROM runs GROUP BY point")
        return dict(rows.fetchall())

    def failures(self) -> dict[str, Failure]:
        """Runs that failed and have not succeeded since, by key."""
        rows = self._connection.execute(
            "SELECT key, configuration, seed, message FROM failures"
            " WHERE key NOT IN (SELECT key FROM runs)"
        )
        return {
            key: Failure(Point(**json.loads(text)).key, seed, message)
            for key, text, seed, message in rows
        }


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
