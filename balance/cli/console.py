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

from balance.cli.streams import writing
from balance.wording import show_seconds

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
            text = json.dumps(plain(value), allow_nan=False, indent=2) + "\n"
            with writing():
                sys.stdout.write(text)

    def text(self, message: str) -> None:
        """Print text for people; nothing under ``--json``."""
        if not self.json:
            with writing():
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
        with writing():
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
    """Return seconds for people; unlike `show_seconds` it tells infinity, the bound of what has no solution.

    Examples
    --------
    >>> time_text(0.00123), time_text(None), time_text(float("inf"))
    ('1.23 ms', '-', 'infinite')
    """
    return "infinite" if value == math.inf else show_seconds(value)


def amount_text(value: float | None, unit: str) -> str:
    """Return an objective or bound for people, in the unit of its problem.

    Examples
    --------
    >>> amount_text(0.5, "s"), amount_text(1234.5, "USD"), amount_text(None, "USD")
    ('500 ms', '1234.5 USD', '-')
    """
    if unit == "s" or value is None or not math.isfinite(value):
        return time_text(value)
    return f"{value:.6g} {unit}"
