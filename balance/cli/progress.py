"""Command line: progress of a search on standard error: a live line on a terminal, plain lines otherwise."""

from __future__ import annotations

import math
import time
from types import TracebackType

from rich.live import Live
from rich.text import Text

from balance.cli.console import error_console, time_text
from balance.limits import Progress
from balance.wording import show_share

_PLAIN_EVERY = 5.0  # seconds between plain lines when nothing improves
_REFRESH = 5  # live updates per second


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
        self._latest: Progress | None = None
        self._begin = time.perf_counter()
        self._last_line = -math.inf
        self._shown: float | None = None

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

    def update(self, report: Progress) -> None:
        """Take what the search says."""
        self._latest = report
        if self._quiet or self._live is not None:
            return
        now = time.perf_counter()
        if report.objective != self._shown or now - self._last_line >= _PLAIN_EVERY:
            self._last_line = now
            self._shown = report.objective
            self._console.print(self._line())

    def _line(self) -> Text:
        report = self._latest
        elapsed = f"{time.perf_counter() - self._begin:8.1f} s"
        if report is None:
            return Text(f"{elapsed}  starting")
        return Text(
            f"{elapsed}  incumbent {time_text(report.objective)}  bound {time_text(report.bound)}  "
            f"gap {show_share(report.gap)}  {report.solver}"
        )
