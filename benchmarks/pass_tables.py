"""Seconds per pass of a record: against GaussianMixture, the limit, float32 and other libraries."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.markdown import Record, paragraph, table, yes_no

__all__ = ["CORE", "advantage", "passes_text", "size_name"]

#: How many times faster than float64 a float32 pass is to be.
FLOAT32_TARGET = 1.6
#: Share of a processor that a trainer has on a machine with nothing else to do.
UNDISTURBED = 0.9
#: Our two precisions, and what they are measured against.
CORE = ("pskem", "pskem float32", "GaussianMixture")


def size_name(entry: Record) -> str:
    """A size as the tables call it."""
    return f"{entry['N']}, {entry['m']}, {entry['K']}"


def advantage(entry: Record, name: str) -> float:
    """How many times faster than a trainer pskem is at a size, in the trainer's precision."""
    trainer = entry["trainers"][name]
    own = CORE[0] if trainer["dtype"] == "float64" else CORE[1]
    return float(trainer["ms"] / entry["trainers"][own]["ms"])


def passes_text(record: Record) -> str:
    """The tables of the passes with what there is to say of them."""
    passes = record["passes"]
    sizes = _sizes(passes)
    parts = [
        _times_table(sizes),
        _times_notes(record),
        _ratios_table(sizes),
        _gains_table(sizes),
        _goals_notes(record),
        _peers_table(passes),
        _peers_notes(passes),
    ]
    return "\n\n".join(part for part in parts if part)


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10.0 else f"{value:.1f}" if value < 100.0 else f"{value:.0f}"


class _Size(NamedTuple):
    """What the tables say of a size.

    ms : pskem in float64 and float32, GaussianMixture
    ratios : how many times faster than GaussianMixture float64 is, by the shortest rounds, by
        processor time and by the medians
    gains : the same of float32 over float64
    """

    name: str
    ms: tuple[float, ...]
    ratios: tuple[float, ...]
    gains: tuple[float, ...]
    target: float
    limit: dict[str, float]


def _sizes(passes: Record) -> list[_Size]:
    sizes = []
    for entry in passes["sizes"]:
        trainers = [entry["trainers"][name] for name in CORE]
        by_clock = [tuple(t[c] for t in trainers) for c in ("ms", "ms_processor", "ms_median")]
        sizes.append(
            _Size(
                size_name(entry),
                by_clock[0],
                tuple(sklearn / double for double, _, sklearn in by_clock),
                tuple(double / single for double, single, _ in by_clock),
                entry["target"],
                entry["limit_ms"],
            )
        )
    return sizes


def _times_table(sizes: list[_Size]) -> str:
    header = ["N, m, K", "float64 (ms)", "float32 (ms)", "GaussianMixture (ms)", "times faster"]
    return table(header, [[s.name, *map(_ms, s.ms), f"{s.ratios[0]:.1f}"] for s in sizes])


def _ratios_table(sizes: list[_Size]) -> str:
    header = [
        "N, m, K",
        "times faster",
        "by processor time",
        "by medians",
        "goal",
        "met",
        "at most here",
    ]
    rows = [
        [
            s.name,
            *(f"{ratio:.1f}" for ratio in s.ratios),
            f"{s.target:g}",
            # On a quiet machine all agree; a goal that only some of them see met is not met.
            yes_no(min(s.ratios) >= s.target),
            f"{s.ms[2] / s.limit['float64']:.1f}",
        ]
        for s in sizes
    ]
    return table(header, rows)


def _gains_table(sizes: list[_Size]) -> str:
    header = [
        "N, m, K",
        "float32 gain",
        "by medians",
        "goal",
        "met",
        "float64, of the limit",
        "float32, of the limit",
    ]
    rows = [
        [
            s.name,
            f"{s.gains[0]:.2f}",
            f"{s.gains[2]:.2f}",
            f"{FLOAT32_TARGET:g}",
            yes_no(min(s.gains) >= FLOAT32_TARGET),
            f"{s.limit['float64'] / s.ms[0]:.0%}",
            f"{s.limit['float32'] / s.ms[1]:.0%}",
        ]
        for s in sizes
    ]
    return table(header, rows)


def _times_notes(record: Record) -> str:
    passes = record["passes"]
    text = (
        "Milliseconds per EM pass with full covariances on one thread, from the shortest of several"
        " rounds. All trainers take turns in one run."
    )
    busy = min(
        entry["trainers"][name]["processors_busy"] for entry in passes["sizes"] for name in CORE
    )
    if busy < UNDISTURBED:
        text += (
            f" Other work on the machine left some of the trainers only {busy:.0%} of a processor:"
            " these figures are provisional."
        )
    return paragraph(text)


def _goals_notes(record: Record) -> str:
    rates = record["passes"]["machine_rates"]
    gemm, exp = rates["gemm_gflops"], rates["exp_nanoseconds"]
    vectors = "has" if record["machine"]["avx512"] else "does not have"
    return paragraph(
        "A goal counts as met only if the shortest rounds, the processor times and the medians all"
        " meet it. How far these three differ shows the noise of the machine. The limit is the time"
        " that the two matrix products of a pass take at the rate of a large square product"
        f" ({gemm['float64']:.1f} GFlop/s in float64, {gemm['float32']:.1f} in float32). *At most"
        " here* is how many times faster than `GaussianMixture` a pass at the limit would be. A"
        " pass also takes an exp for every sample and kernel. NumPy has vector code for exp in"
        f" float64 only with AVX512, which this processor {vectors}: an exp took"
        f" {exp['float64']:.1f} ns in float64 and {exp['float32']:.1f} ns in float32."
    )


def _peer_names(passes: Record) -> list[str]:
    """Peers with at least one figure or one reason for having none."""
    names = [
        name
        for entry in passes["sizes"]
        for name in [*entry["trainers"], *entry["skipped"]]
        if name not in CORE
    ]
    return list(dict.fromkeys(names))


def _peers_table(passes: Record) -> str:
    """A row for each library, a column for each size."""

    def cell(entry: Record, name: str) -> str:
        trainer = entry["trainers"].get(name)
        return (
            "skipped"
            if trainer is None
            else f"{_ms(trainer['ms'])} ({advantage(entry, name):.1f}x)"
        )

    sizes = passes["sizes"]
    rows = [
        [_titled(passes, name), *(cell(entry, name) for entry in sizes)]
        for name in _peer_names(passes)
    ]
    return table(["ms", *map(size_name, sizes)], rows) if rows else ""


def _titled(passes: Record, name: str) -> str:
    """The name with the version: "gmmx 0.7 float32"."""
    for entry in passes["sizes"]:
        if name in entry["trainers"]:
            trainer = entry["trainers"][name]
            library = name.removesuffix(f" {trainer['dtype']}")
            return f"{library} {trainer['version']} {trainer['dtype']}"
    return name


def _peers_notes(passes: Record) -> str:
    names = _peer_names(passes)
    lines = []
    if names:
        lines.append(
            "Other libraries at the same sizes: milliseconds per pass and, in brackets, how many"
            " times faster pskem is in the same precision."
        )
    own_start = {
        name
        for entry in passes["sizes"]
        for name, trainer in entry["trainers"].items()
        if not trainer["same_start"]
    }
    if own_start:
        lines.append(
            f"{', '.join(sorted(own_start))} has a start of its own; all others start alike."
        )
    reasons: dict[str, dict[str, list[str]]] = {}
    for entry in passes["sizes"]:
        for name, reason in entry["skipped"].items():
            reasons.setdefault(reason, {}).setdefault(size_name(entry), []).append(name)
    for reason, cases in reasons.items():
        places = [f"{', '.join(names)} at ({size})" for size, names in cases.items()]
        lines.append(f"Skipped {'; '.join(places)}: {reason}.")
    if passes["absent"]:
        libraries = dict.fromkeys(name.split()[0] for name in passes["absent"])
        lines.append(f"Not installed: {', '.join(libraries)}.")
    return paragraph(" ".join(lines))
