"""Numbers in words, for the page."""

from __future__ import annotations

__all__ = ["GB", "MB", "duration", "percent", "short"]

MB, GB = 1e6, 1e9


def short(number: float, digits: int = 2) -> str:
    """A number with two significant digits, or a whole one."""
    return f"{number:,.0f}" if abs(number) >= 10 ** (digits - 1) else f"{number:.{digits}g}"


def duration(seconds: float) -> str:
    if seconds < 120.0:
        return f"{short(seconds)} s"
    if seconds < 7200.0:
        return f"{seconds / 60.0:.0f} minutes"
    return f"{seconds / 3600.0:.1f} hours"


def percent(share: float) -> str:
    return f"{100.0 * share:.0f} %"
