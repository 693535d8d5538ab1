"""Command line: progress of a search on standard error: a live line on a terminal, plain lines otherwise."""

from __future__ import annotations

import math
import time
from types import TracebackType
from typing import Protocol

from rich.live import Live
from rich.text import Text

from balance.cli.console import error_console, percent_text, time_text

_PLAIN_EVERY = 5.0  # seconds between plain lines when nothing improves
_REFRESH = 5  # live updates per second


class Report(Protocol):
    """What a search says of itself; the front door's progress object."""

    @property
    def seconds(self) -> float:
        """Seconds since the start."""

    @property
    def objective(self) -> float | None:
        """Value of the incumbent."""

    @property
    def bound(self) -> float | None:
        """Best proved bound."""

    @property
    def gap(self) -> float | None:
        """Relative distance between the two."""

    @property
    def solver(self) -> str:
        """Who says so."""


class ProgressView:
    """Shows a search while it runs; a context manager whose `update` is the front door's ``on_progress``.

    Parameters
    ----------
    quiet
        Show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self._quiet = quiet
        self._console = error_console()
        self._live: Live | None = None
        self._latest: Report | None = None
        self._begin = time.perf_counter()
        self._last_line = -math.inf
        self._shown: tuple[float | None, float | None] = (None, None)

    def __enter__(self) -> ProgressView:
        self._begin = time.perf_counter()
        if not self._quiet and self._console.is_terminal:
            # A callable, so that the clock goes on while the search says nothing.
            self._live = Live(
                get_renderable=self._line,
                console=self._console,
                refresh_per_second=_REFRESH,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def update(self, report: Report) -> None:
        """Take what the search says."""
        self._latest = report
        if self._quiet or self._live is not None:
            return
        now = time.perf_counter()
        values = (report.objective, report.bound)
        improved = report.objective != self._shown[0]
        if improved or now - self._last_line >= _PLAIN_EVERY:
            self._last_line = now
            self._shown = values
            self._console.print(self._line())

    def _line(self) -> Text:
        report = self._latest
        elapsed = f"{time.perf_counter() - self._begin:8.1f} s"
        if report is None:
            return Text(f"{elapsed}  starting")
        return Text(
            f"{elapsed}  incumbent {time_text(report.objective)}  bound {time_text(report.bound)}  "
            f"gap {percent_text(report.gap)}  {report.solver}"
        )
