"""Front door: figures as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def show_seconds(value: float | None) -> str:
    """Return a time with a unit that keeps the number readable, or a dash.

    Examples
    --------
    >>> show_seconds(0.00123), show_seconds(None), show_seconds(12.0)
    ('1.23 ms', '-', '12 s')
    """
    if value is None or not math.isfinite(value):
        return "-"
    for unit, factor in _TIMES:
        if abs(value) >= factor:
            return f"{value / factor:.6g} {unit}"
    return "0 s" if value == 0 else f"{value / 1e-9:.6g} ns"


def show_bytes(value: float | None) -> str:
    """Return bytes in decimal units, or a dash.

    Examples
    --------
    >>> show_bytes(16e9), show_bytes(float("inf")), show_bytes(None)
    ('16 GB', 'unlimited', '-')
    """
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "unlimited"
    for unit, factor in _BYTES:
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} B"


def show_share(value: float | None) -> str:
    """Return a share in percent, or a dash.

    Examples
    --------
    >>> show_share(0.0123), show_share(0.0), show_share(None)
    ('1.23 %', '0 %', '-')
    """
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.4g} %"


def show_table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> list[str]:
    """Return the lines of a table with columns as wide as their content; those named in `right` end flush."""
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(len(row[c]) for row in cells) for c in range(len(heads))]
    ends = [head in right for head in heads]
    return [
        "  ".join(
            cell.rjust(width) if end else cell.ljust(width) for cell, width, end in zip(row, widths, ends, strict=True)
        ).rstrip()
        for row in cells
    ]
