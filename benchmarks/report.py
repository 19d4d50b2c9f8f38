"""Tables from the record of a run, and the README's copy of them.

``python -m benchmarks.report`` writes the tables of ``benchmarks/results/benchmark.json`` between
the markers in the README.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.child import ROOT

__all__ = ["BEGIN", "CORE", "END", "RESULTS", "advantage", "size_name", "tables", "write_readme"]

RESULTS = ROOT / "benchmarks" / "results"
BEGIN = "<!-- benchmark:begin -->"
END = "<!-- benchmark:end -->"
#: How many times faster than float64 a float32 pass is to be.
FLOAT32_TARGET = 1.6
#: Share of a processor that a trainer has on a machine with nothing else to do.
UNDISTURBED = 0.9
#: Our two precisions, and what they are measured against.
CORE = ("pskem", "pskem float32", "GaussianMixture")

Record = dict[str, Any]


def tables(record: Record) -> str:
    """All tables of a record, in Markdown."""
    parts = [_heading(record)]
    if "passes" in record:
        parts += [_passes_table(record["passes"]), _passes_notes(record)]
        parts += [_peers_table(record["passes"]), _peers_notes(record["passes"])]
    parts.append(_goals_table(record))
    return "\n\n".join(part for part in parts if part) + "\n"


def size_name(entry: Record) -> str:
    """A size as the tables call it."""
    return f"{entry['N']}, {entry['m']}, {entry['K']}"


def advantage(entry: Record, name: str) -> float:
    """How many times faster than a trainer pskem is at a size, in the trainer's precision."""
    trainer = entry["trainers"][name]
    own = CORE[0] if trainer["dtype"] == "float64" else CORE[1]
    return float(trainer["ms"] / entry["trainers"][own]["ms"])


def _markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose columns also line up in a terminal; all but the first align to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
        return "| " + " | ".join(padded) + " |"

    return "\n".join(map(line, [header, rule, *rows]))


def _ms(value: float) -> str:
    return f"{value:.2f}" if value < 10.0 else f"{value:.1f}" if value < 100.0 else f"{value:.0f}"


def _met(met: bool) -> str:
    return "yes" if met else "no"


def _heading(record: Record) -> str:
    machine = record["machine"]
    vectors = "with" if machine["avx512"] else "without"
    text = (
        f"pskem {machine['pskem']}, scikit-learn {machine['scikit-learn']}, NumPy"
        f" {machine['numpy']} with {', '.join(machine['blas'])}; {machine['processor']},"
        f" {machine['cores']} cores, {vectors} AVX512; {record['date']}."
    )
    if record["quick"]:
        text += " A quick run, too short to be quoted."
    return text


def _passes_table(passes: Record) -> str:
    header = [
        "N, m, K",
        "float64 (ms)",
        "float32 (ms)",
        "GaussianMixture (ms)",
        "times faster",
        "by processor time",
        "by medians",
        "goal",
        "met",
        "at most here",
        "float32 gain",
        "by medians",
        f"{FLOAT32_TARGET} met",
        "of the limit",
        "float32 of it",
    ]
    rows = []
    for entry in passes["sizes"]:
        double, single, sklearn = (entry["trainers"][name]["ms"] for name in CORE)
        busy = [entry["trainers"][name]["ms_processor"] for name in CORE]
        middle = [entry["trainers"][name]["ms_median"] for name in CORE]
        limit = entry["limit_ms"]
        # On a quiet machine all estimates agree; a goal that only some of them see met is not met.
        ratios = sklearn / double, busy[2] / busy[0], middle[2] / middle[0]
        gains = double / single, busy[0] / busy[1], middle[0] / middle[1]
        rows.append(
            [
                size_name(entry),
                *map(_ms, (double, single, sklearn)),
                *(f"{ratio:.1f}" for ratio in ratios),
                f"{entry['target']:g}",
                _met(min(ratios) >= entry["target"]),
                f"{sklearn / limit['float64']:.1f}",
                f"{gains[0]:.2f}",
                f"{gains[2]:.2f}",
                _met(min(gains) >= FLOAT32_TARGET),
                f"{limit['float64'] / double:.0%}",
                f"{limit['float32'] / single:.0%}",
            ]
        )
    return _markdown(header, rows)


def _passes_notes(record: Record) -> str:
    passes = record["passes"]
    rates = passes["machine_rates"]
    gemm, exp = rates["gemm_gflops"], rates["exp_nanoseconds"]
    vectors = "has" if record["machine"]["avx512"] else "does not have"
    text = (
        "Milliseconds per EM pass, full covariance, one thread, all trainers in turn in one run;"
        " from the shortest of several rounds. A goal is met only if it is by these, by processor"
        " time and by the medians of the rounds; how far they differ shows the machine's noise."
        " The limit is the time of the two matrix products of a pass at the rate of a large square"
        f" product ({gemm['float64']:.1f} GFlop/s in float64, {gemm['float32']:.1f} in float32);"
        " *at most here* is how many times faster than `GaussianMixture` that would be. A pass"
        " also takes an exp for every sample and kernel. NumPy has vector code for it in float64"
        f" only with AVX512, which this processor {vectors}: an exp took"
        f" {exp['float64']:.1f} ns in float64 and {exp['float32']:.1f} in float32."
    )
    busy = min(
        entry["trainers"][name]["processors_busy"] for entry in passes["sizes"] for name in CORE
    )
    if busy < UNDISTURBED:
        text += (
            f" Other work on the machine left some of the trainers only {busy:.0%} of a processor:"
            " these figures are provisional."
        )
    return text


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
    names = _peer_names(passes)
    if not names:
        return ""
    rows = []
    for entry in passes["sizes"]:
        cells = [size_name(entry)]
        for name in names:
            trainer = entry["trainers"].get(name)
            if trainer is None:
                cells.append("skipped")
                continue
            cells.append(f"{_ms(trainer['ms'])} ({advantage(entry, name):.1f}x)")
        rows.append(cells)
    return _markdown(["N, m, K", *(_titled(passes, name) for name in names)], rows)


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
            "The same for other libraries: milliseconds per pass, and how many times faster pskem"
            " is in the same precision."
        )
    own_start = {
        name
        for entry in passes["sizes"]
        for name, trainer in entry["trainers"].items()
        if not trainer["same_start"]
    }
    if own_start:
        lines.append(
            f"{', '.join(sorted(own_start))}: from a start of its own, all others from the same."
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
    return " ".join(lines)


def _goals_table(record: Record) -> str:
    rows = []
    threads = record.get("threads", {})
    if "speedup" in threads:
        rows.append(
            [
                "Two threads, fit of {N} x {M}, R = {n_blocks}, K = {K}".format(**threads),
                f"{threads['speedup']:.2f} times one (median {threads['speedup_median']:.2f})",
                f"at least {threads['target']:g}",
                _met(min(threads["speedup"], threads["speedup_median"]) >= threads["target"]),
            ]
        )
    memory = record.get("memory", {})
    if "peak_mb" in memory:
        rows.append(
            [
                "Peak memory, fit of {N} x {M}, R = {n_blocks}, K = {K}".format(**memory),
                f"{memory['peak_mb']:.0f} MB",
                f"at most {memory['budget_mb']:.0f} MB",
                _met(memory["peak_mb"] <= memory["budget_mb"]),
            ]
        )
    imports = record.get("import", {})
    if imports:
        rows.append(
            [
                "Importing pskem beyond importing sklearn.base",
                f"{imports['extra_seconds']:.3f} s (best {imports['extra_seconds_best']:.3f} s)",
                f"at most {imports['target']:g} s",
                _met(imports["extra_seconds"] <= imports["target"]),
            ]
        )
    features = record.get("features", {})
    if features:
        rows.append(
            [
                "The paper's {n_features} features of {N} images, {side} x {side}, one core".format(
                    **features
                ),
                f"{features['seconds']:.1f} s",
                f"at most {features['target']:g} s",
                _met(features["seconds"] <= features["target"]),
            ]
        )
    text = _markdown(["", "measured", "goal", "met"], rows) if rows else ""
    reasons = [
        f"{name.capitalize()} not measured: {section['skipped']}."
        for name, section in (("threads", threads), ("memory", memory))
        if "skipped" in section
    ]
    if "speedup" in threads:
        reasons.append(
            "Two matrix products at once instead of one after the other were"
            f" {threads['speedup_of_products']:.2f} times faster in the same run."
        )
    return "\n\n".join(part for part in (text, " ".join(reasons)) if part)


def write_readme(record: Record, readme: Path) -> None:
    """Replace what stands between the markers in the README by the tables."""
    text = readme.read_text()
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(
            f"{readme.name} needs one line {BEGIN} and, below it, one line {END}: the tables go"
            " between them."
        )
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    readme.write_text(f"{before}{BEGIN}\n{tables(record)}{END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.report", description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULTS / "benchmark.json")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    arguments = parser.parse_args()
    if not arguments.json.exists():
        raise SystemExit(f"There is no {arguments.json}. `python -m benchmarks` writes it.")
    write_readme(json.loads(arguments.json.read_text()), arguments.readme)


if __name__ == "__main__":
    main()
