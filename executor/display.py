"""Executor room: figures as people read them."""

from __future__ import annotations

import math


def show_seconds(value: float | None) -> str:
    """Return a time for people, or a dash."""
    if value is None or not math.isfinite(value):
        return "-"
    return f"{value:.3f} s" if value >= 1 else f"{value * 1e3:.2f} ms"


def show_percent(value: float | None) -> str:
    """Return a signed share in percent, or a dash."""
    return "-" if value is None else f"{value * 100:+.1f} %"
