"""Seconds per EM pass of every trainer, one thread each, interleaved.

The time of a pass is the difference between a long and a short fit from the same start through the
public interface, divided by the difference of their passes: validation, conversions and final
E-steps cancel, for all trainers in the same way.

In each round every trainer has its turn with one short and one long fit, and the order rotates.
The figure of a trainer is the difference of its quickest long and its quickest short fit: what
others do on the machine only ever adds time, so the minimum of each is the most repeatable
estimate of an undisturbed fit, while the minimum of the differences would reward a disturbed
short fit. The same of the medians, and of the processor time instead of the wall clock's, is
recorded beside it; where the clocks disagree, the machine had other things to do.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

from benchmarks.child import ChildError, Worker
from benchmarks.peers import PSKEM, SKLEARN, Trainer
from benchmarks.problem import SIZES, Size

__all__ = ["FULL", "QUICK", "Effort", "measure"]

SHORT = 1
#: A fit that is too long could converge, and then a trainer might stop before the last pass.
MOST_PASSES = 60
#: Side of the square product that gives the rate of the matrix-product limit.
GEMM_SIDE = 2048
#: Numbers of which exp is taken, to tell a vector from a scalar implementation.
EXP_LENGTH = 100_000
#: Processors that a trainer with one thread may keep busy on average, by the clocks' precision.
MOST_BUSY = 1.1
#: How far mean log likelihoods after the same passes may be apart, relatively.
AGREEMENT = {"float64": 1e-6, "float32": 1e-4}
#: The same for a trainer with a start of its own: it is to be a mixture of these data at all.
RESEMBLANCE = 0.05


class Effort(NamedTuple):
    """How long to measure.

    rounds : fewest and most rounds of a size
    seconds : after which a size gets no more than the fewest rounds
    difference : seconds by which a long fit is to outlast a short one, if passes allow
    peer_seconds : that a peer, apart from GaussianMixture, may take of a size
    """

    rounds: tuple[int, int]
    seconds: float
    difference: float
    peer_seconds: float


FULL = Effort(rounds=(5, 15), seconds=15.0, difference=0.5, peer_seconds=20.0)
QUICK = Effort(rounds=(2, 3), seconds=3.0, difference=0.15, peer_seconds=4.0)

Say = Callable[[str], None]


class Fit(NamedTuple):
    """Seconds that a fit took, and seconds of processor time that all its threads took."""

    wall: float
    processor: float


class Turn:
    """One trainer in the rounds of one size."""

    def __init__(self, trainer: Trainer, worker: Worker, size: Size, effort: Effort) -> None:
        self.trainer = trainer
        self.worker = worker
        self.version = worker.ask(do="prepare", size=size)["version"]
        self.short: list[Fit] = []
        self.long: list[Fit] = []
        self.spent = 0.0
        once = self._fit(SHORT).wall
        if once < 2.0 or trainer.compiles:  # the first fit may load and compile; it matters little
            once = self._fit(SHORT).wall  # where a fit takes long
        extra = min(max(math.ceil(effort.difference / once), 2), MOST_PASSES - SHORT)
        self.n_long = SHORT + extra
        self._round_seconds = once * (2 + extra)
        if trainer.compiles:
            self._fit(self.n_long)

    def _fit(self, passes: int) -> Fit:
        fit = Fit(**self.worker.ask(do="train", passes=passes))
        self.spent += fit.wall
        return fit

    def play(self) -> None:
        """One short and one long fit."""
        self.short.append(self._fit(SHORT))
        self.long.append(self._fit(self.n_long))

    def affordable(self, seconds: float) -> bool:
        """Whether a further round stays within so many seconds for the size."""
        return self.spent + self._round_seconds <= seconds

    def record(self) -> dict[str, Any]:
        """Milliseconds per pass, and what they come from."""

        def per_pass(of: Callable[[list[float]], float], clock: str) -> float:
            short, long = (of([getattr(fit, clock) for fit in fits]) for fits in self._fits)
            return 1e3 * (long - short) / (self.n_long - SHORT)

        everything = self.short + self.long
        busy = sum(fit.processor for fit in everything) / sum(fit.wall for fit in everything)
        return {
            "version": self.version,
            "dtype": self.trainer.dtype,
            "same_start": self.trainer.same_start,
            "passes": [SHORT, self.n_long],
            "rounds": len(self.short),
            "ms": per_pass(min, "wall"),
            "ms_median": per_pass(statistics.median, "wall"),
            "ms_processor": per_pass(min, "processor"),
            "processors_busy": busy,
            "seconds_short": [fit.wall for fit in self.short],
            "seconds_long": [fit.wall for fit in self.long],
        }

    @property
    def _fits(self) -> tuple[list[Fit], list[Fit]]:
        return self.short, self.long


class Rates:
    """Rates of matrix products and of exp, best of all that were tried in the run."""

    def __init__(self) -> None:
        self.gemm: dict[str, float] = {}
        self.exp: dict[str, float] = {}

    def play(self, turn: Turn) -> None:
        dtype = turn.trainer.dtype
        seconds = turn.worker.ask(do="multiply", n=GEMM_SIDE, dtype=dtype)["seconds"]
        rate = 2.0 * GEMM_SIDE**3 / seconds * 1e-9
        self.gemm[dtype] = max(rate, self.gemm.get(dtype, 0.0))
        seconds = turn.worker.ask(do="exponentiate", n=EXP_LENGTH, dtype=dtype)["seconds"]
        self.exp[dtype] = min(seconds / EXP_LENGTH * 1e9, self.exp.get(dtype, math.inf))

    def record(self) -> dict[str, Any]:
        return {"gemm_side": GEMM_SIDE, "gemm_gflops": self.gemm, "exp_nanoseconds": self.exp}


class Field:
    """The trainers that are measured, each in its own process."""

    def __init__(self, core: Sequence[Trainer], peers: Sequence[Trainer]) -> None:
        self.core = core
        self.peers = peers
        self._workers: dict[str, Worker] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.close()

    def turn(self, trainer: Trainer, size: Size, effort: Effort) -> Turn:
        """The trainer, made ready for a size."""
        if trainer.name not in self._workers:
            worker = Worker(["benchmarks.worker", trainer.name], n_threads=1)
            self._workers[trainer.name] = worker
        return Turn(trainer, self._workers[trainer.name], size, effort)

    def dismiss(self, trainer: Trainer) -> None:
        """End a process that failed; the next size begins with a new one."""
        self._workers.pop(trainer.name).close()


def measure(effort: Effort, peers: Sequence[Trainer], say: Say) -> dict[str, Any]:
    """Measure all sizes, with GaussianMixture, pskem in both precisions and the peers.

    Returns
    -------
    record : dict
        Ready for JSON: ``machine_rates``, ``sizes`` (one entry per size with the ``trainers``,
        and the reasons why others were ``skipped``) and the ``absent`` peers.
    """
    absent = {peer.name: reason for peer in peers if (reason := peer.missing())}
    for name, reason in absent.items():
        say(f"without {name}: {reason}")
    present = [peer for peer in peers if peer.name not in absent]
    rates = Rates()
    entries = []
    with Field([*PSKEM.values(), SKLEARN], present) as field:
        for size, target in SIZES.items():
            say(f"N={size.N} m={size.m} K={size.K}")
            entry = _measure_size(size, effort, field, rates, say)
            entries.append({**size._asdict(), "flops": size.flops, "target": target, **entry})
    for entry in entries:
        entry["limit_ms"] = {
            dtype: entry["flops"] / rate * 1e-6 for dtype, rate in rates.gemm.items()
        }
    return {"machine_rates": rates.record(), "sizes": entries, "absent": absent}


def _measure_size(
    size: Size, effort: Effort, field: Field, rates: Rates, say: Say
) -> dict[str, Any]:
    core = [field.turn(trainer, size, effort) for trainer in field.core]
    skipped: dict[str, str] = {}
    peers = _enter_peers(size, effort, field, skipped)
    done = 0
    while done < effort.rounds[0] or (
        done < effort.rounds[1] and sum(turn.spent for turn in core) < effort.seconds
    ):
        everyone = core + [turn for turn in peers if turn.affordable(effort.peer_seconds)]
        shift = done % len(everyone)
        for turn in everyone[shift:] + everyone[:shift]:
            try:
                turn.play()
            except ChildError as error:
                if turn in core:
                    raise
                skipped[turn.trainer.name] = str(error)
                field.dismiss(turn.trainer)
                peers.remove(turn)
        for turn in core[: len(PSKEM)]:
            rates.play(turn)
        done += 1

    trainers = {}
    for turn in core + peers:
        name = turn.trainer.name
        record = turn.record()
        try:
            trainers[name] = record | _compare(turn, core[0], record["processors_busy"])
        except ChildError as error:
            if turn in core:
                raise
            skipped[name] = str(error)
            continue
        say(
            f"  {name:20}{record['ms']:9.2f} ms a pass (median {record['ms_median']:.2f},"
            f" processor time {record['ms_processor']:.2f})"
        )
    for name, reason in skipped.items():
        say(f"  {name:20}  skipped: {reason}")
    return {"trainers": trainers, "skipped": skipped}


def _enter_peers(size: Size, effort: Effort, field: Field, skipped: dict[str, str]) -> list[Turn]:
    """The peers that can do the size in time; the others with their reasons into ``skipped``."""
    turns = []
    for peer in field.peers:
        try:
            turn = field.turn(peer, size, effort)
        except ChildError as error:
            skipped[peer.name] = str(error)
            field.dismiss(peer)
            continue
        if turn.affordable(effort.peer_seconds):
            turns.append(turn)
        else:
            skipped[peer.name] = f"too slow for --peer-seconds {effort.peer_seconds:g}"
    return turns


def _compare(turn: Turn, reference: Turn, processors_busy: float) -> dict[str, Any]:
    """Whether the fits kept to one thread and did the same work as the reference's."""
    name = turn.trainer.name
    if processors_busy > MOST_BUSY:
        raise ChildError(
            f"{name} kept {processors_busy:.2f} processors busy, so it did not run in one thread;"
            " look for its setting and add it to benchmarks/child.py"
        )
    found = turn.worker.ask(do="score")["mean_log_likelihood"]
    reference.worker.ask(do="train", passes=turn.n_long)
    expected = reference.worker.ask(do="score")["mean_log_likelihood"]
    tolerance = AGREEMENT[turn.trainer.dtype] if turn.trainer.same_start else RESEMBLANCE
    apart = abs(found / expected - 1.0)
    if not apart <= tolerance:
        raise ChildError(
            f"mean log likelihood {found!r} of {name} after {turn.n_long} passes, {expected!r} of"
            f" {reference.trainer.name}: they do not do the same work, so their times cannot be"
            " compared; look for the error in benchmarks/peers.py first"
        )
    return {"mean_log_likelihood": found, "apart_from_pskem": apart}
