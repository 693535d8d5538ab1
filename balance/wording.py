"""Front door: figures as people read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

_TIMES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0))


def time_unit(seconds: float) -> tuple[str, float]:
    """Return the unit in which a time is read best, and its seconds; the command line reads the same units.

    Examples
    --------
    >>> time_unit(0.00123), time_unit(0.0)
    (('ms', 0.001), ('s', 1.0))
    """
    return next((pair for pair in _TIMES if abs(seconds) >= pair[1]), _TIMES[-1] if seconds else _TIMES[0])


def byte_unit(amount: float) -> tuple[str, float]:
    """Return the decimal unit in which an amount of memory is read best, and its bytes.

    Examples
    --------
    >>> byte_unit(16e9)
    ('GB', 1000000000.0)
    """
    return next((pair for pair in _BYTES if abs(amount) >= pair[1]), _BYTES[-1])


def show_seconds(value: float | None) -> str:
    """Return a time with a unit that keeps the number readable, or a dash.

    Examples
    --------
    >>> show_seconds(0.00123), show_seconds(None), show_seconds(12.0)
    ('1.23 ms', '-', '12 s')
    """
    if value is None or not math.isfinite(value):
        return "-"
    unit, factor = time_unit(value)
    return f"{value / factor:.6g} {unit}"


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
    unit, factor = byte_unit(value)
    return f"{value / factor:.4g} {unit}"


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
