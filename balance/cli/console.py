"""Command line: what goes to standard output (answers) and to standard error (everything else)."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

# A pipe has no width; tables are then as wide as they need to be instead of being cut at 80 columns.
_PIPE_WIDTH = 400


def _console(stderr: bool) -> Console:
    # Made when used: the streams may have been replaced since this module was imported.
    stream = sys.stderr if stderr else sys.stdout
    return Console(
        file=stream, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False, soft_wrap=not stream.isatty()
    )


def error_console() -> Console:
    """Return a console on standard error."""
    return _console(stderr=True)


@dataclass(frozen=True)
class Output:
    """Where a command's answer goes.

    Parameters
    ----------
    json
        Whether standard output carries one JSON document and nothing else.
    """

    json: bool = False

    def data(self, value: Any) -> None:
        """Print the JSON document, if that was asked for."""
        if self.json:
            sys.stdout.write(json.dumps(plain(value), allow_nan=False, indent=2) + "\n")
            sys.stdout.flush()

    def text(self, message: str) -> None:
        """Print text for people; nothing under ``--json``."""
        if not self.json:
            _console(stderr=False).print(Text(message))

    def table(
        self,
        columns: Sequence[str],
        rows: Iterable[Sequence[Any]],
        *,
        title: str | None = None,
        right: Sequence[str] = (),
    ) -> None:
        """Print a table for people; nothing under ``--json``.

        Parameters
        ----------
        columns
            Headings.
        rows
            Cells, shown by `str`.
        title
            Line above the table.
        right
            Headings of columns that are aligned to the right.
        """
        if self.json:
            return
        table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
        for column in columns:
            table.add_column(column, justify="right" if column in right else "left", overflow="fold")
        for row in rows:
            table.add_row(*(Text(str(cell)) for cell in row))
        _console(stderr=False).print(table)

    def note(self, message: str) -> None:
        """Print a remark on standard error."""
        error_console().print(Text(message))


def plain(value: Any) -> Any:
    """Return a value with nothing in it that JSON cannot carry: infinity and nan become null, arrays lists."""
    if isinstance(value, Mapping):
        return {str(key): plain(cell) for key, cell in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(cell) for cell in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, (np.floating, float)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.bool_):
        return bool(value)
    return str(value) if isinstance(value, Path) else value


def time_text(value: float | None) -> str:
    """Return seconds for people, with a unit that keeps the number readable.

    Examples
    --------
    >>> time_text(0.00123), time_text(None), time_text(12.0)
    ('1.23 ms', '-', '12 s')
    """
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "infinite" if value > 0 else "-"
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if abs(value) >= factor:
            return f"{value / factor:.6g} {unit}"
    return "0 s" if value == 0 else f"{value / 1e-9:.6g} ns"


def bytes_text(value: float | None) -> str:
    """Return bytes for people, in decimal units.

    Examples
    --------
    >>> bytes_text(16e9), bytes_text(float("inf"))
    ('16 GB', 'unlimited')
    """
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "unlimited"
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= factor:
            return f"{value / factor:.4g} {unit}"
    return f"{value:.4g} B"


def percent_text(value: float | None) -> str:
    """Return a share as a percentage.

    Examples
    --------
    >>> percent_text(0.0123), percent_text(None)
    ('1.23 %', '-')
    """
    return "-" if value is None or not math.isfinite(value) else f"{100 * value:.4g} %"
