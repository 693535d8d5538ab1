"""Tests of progress on standard error."""

from __future__ import annotations

import io
from dataclasses import dataclass

import pytest
from rich.console import Console

from balance.cli import progress
from balance.cli.progress import ProgressView


@dataclass
class _Report:
    seconds: float = 1.0
    objective: float | None = 2e-3
    bound: float | None = 1e-3
    gap: float | None = 0.5
    solver: str = "counts"


def test_plain_lines_when_something_improves(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal there is one line per better incumbent, none for repeats, nothing on standard output."""
    with ProgressView() as view:
        for objective in (2e-3, 2e-3, 1.5e-3):
            view.update(_Report(objective=objective))
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert len(lines) == 2
    assert "incumbent 1.5 ms  bound 1 ms  gap 50 %  counts" in lines[1]


def test_bounds_are_told_from_time_to_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A search whose incumbent stands still goes on talking, but rarely."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    with ProgressView() as view:
        for step in range(12):
            now[0] = float(step)
            view.update(_Report(bound=step * 1e-4))
    assert len(capsys.readouterr().err.splitlines()) == 3  # at 0, 5 and 10 seconds


def test_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing at all when nothing is wanted."""
    with ProgressView(quiet=True) as view:
        view.update(_Report())
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal one line is redrawn with elapsed, incumbent, bound and gap, and taken away at the end."""
    stream = io.StringIO()
    monkeypatch.setattr(progress, "error_console", lambda: Console(file=stream, force_terminal=True, width=120))
    with ProgressView() as view:
        view.update(_Report())
        assert view._live is not None
        view._live.refresh()
    assert "incumbent 2 ms" in stream.getvalue()
    assert stream.getvalue().rstrip().endswith("\x1b[2K")  # erased
