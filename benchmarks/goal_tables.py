"""Threads, memory, import and features of a record, beside their goals."""

from __future__ import annotations

from benchmarks.markdown import Record, paragraph, table, yes_no

__all__ = ["goals_text"]


def goals_text(record: Record) -> str:
    """What was measured, what it was to be, and whether it is; why something was not measured."""
    rows = []
    threads = record.get("threads", {})
    if "speedup" in threads:
        rows.append(
            [
                "Two threads, fit of {N} x {M}, R = {n_blocks}, K = {K}".format(**threads),
                f"{threads['speedup']:.2f} times one (median {threads['speedup_median']:.2f})",
                f"at least {threads['target']:g}",
                yes_no(min(threads["speedup"], threads["speedup_median"]) >= threads["target"]),
            ]
        )
    memory = record.get("memory", {})
    if "peak_mb" in memory:
        rows.append(
            [
                "Peak memory, fit of {N} x {M}, R = {n_blocks}, K = {K}".format(**memory),
                f"{memory['peak_mb']:.0f} MB",
                f"at most {memory['budget_mb']:.0f} MB",
                yes_no(memory["peak_mb"] <= memory["budget_mb"]),
            ]
        )
    imports = record.get("import", {})
    if imports:
        rows.append(
            [
                "Importing pskem beyond importing sklearn.base",
                f"{imports['extra_seconds']:.3f} s (best {imports['extra_seconds_best']:.3f} s)",
                f"at most {imports['target']:g} s",
                yes_no(imports["extra_seconds"] <= imports["target"]),
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
                yes_no(features["seconds"] <= features["target"]),
            ]
        )
    text = table(["", "measured", "goal", "met"], rows) if rows else ""
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
    return "\n\n".join(part for part in (text, paragraph(" ".join(reasons))) if part)
