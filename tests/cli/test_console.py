"""Tests of what is printed and how."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from balance.cli.console import Output, plain, time_text
from balance.wording import show_bytes, show_share


def test_json_is_strict_and_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """Under --json standard output is one document; text, tables and notes stay off it."""
    output = Output(json=True)
    output.text("hello")
    output.table(("a",), [(1,)])
    output.note("beware")
    output.data({"bound": -math.inf, "gap": math.nan, "array": np.arange(3), "flag": np.bool_(True)})
    captured = capsys.readouterr()
    assert json.loads(captured.out) == {"bound": None, "gap": None, "array": [0, 1, 2], "flag": True}
    assert captured.err.strip() == "beware"


def test_text_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """Without --json the data is not printed, and long cells are not cut when piped."""
    output = Output()
    name = "x" * 150
    output.data({"a": 1})
    output.table(("name", "value"), [(name, "[bold]1[/bold]")])
    out = capsys.readouterr().out
    assert name in out
    assert "[bold]1[/bold]" in out  # names are data, not markup
    assert "{" not in out


def test_plain_reaches_every_level() -> None:
    """Infinities inside lists and tuples become null as well."""
    assert plain({"a": [(1.0, math.inf)], 2: np.float64(1.5)}) == {"a": [[1.0, None]], "2": 1.5}


def test_amounts_for_people() -> None:
    """Units keep numbers short; absent is a dash and infinity a word."""
    assert [time_text(x) for x in (0.0, 2e-9, 0.25, math.inf, -math.inf, None)] == [
        "0 s",
        "2 ns",
        "250 ms",
        "infinite",
        "-",
        "-",
    ]
    assert [show_bytes(x) for x in (512.0, 1.5e6, math.inf, None)] == ["512 B", "1.5 MB", "unlimited", "-"]
    assert [show_share(x) for x in (0.0, 0.1234567, None, math.inf)] == ["0 %", "12.35 %", "-", "-"]
