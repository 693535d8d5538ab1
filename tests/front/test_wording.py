"""Tests of figures as people read them."""

from __future__ import annotations

import math

import pytest

from balance.cli import units
from balance.wording import byte_unit, show_bytes, show_seconds, show_share, show_table, time_unit


@pytest.mark.parametrize(
    ("value", "text"),
    [(90.0, "90 s"), (0.25, "250 ms"), (1e-5, "10 us"), (2e-9, "2 ns"), (0.0, "0 s"), (-0.5, "-500 ms")],
)
def test_times(value: float, text: str) -> None:
    """A time is shown in the largest unit that leaves a digit before the point."""
    assert show_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(512.0, "512 B"), (1e3, "1 kB"), (1.5e6, "1.5 MB"), (16e9, "16 GB"), (2e12, "2 TB"), (0.0, "0 B")],
)
def test_bytes(value: float, text: str) -> None:
    """Bytes are shown in decimal units."""
    assert show_bytes(value) == text


def test_what_is_shown_can_be_typed() -> None:
    """The command line reads every unit that is printed or drawn, with the same meaning."""
    for power in range(-12, 6):
        unit, factor = time_unit(10.0**power)
        assert units.TIME_UNITS[unit] == factor
    for power in range(15):
        unit, factor = byte_unit(10.0**power)
        assert units.BYTE_UNITS[unit] == factor
    for value in (90.0, 0.25, 1e-5, 2e-9):
        assert units.seconds(show_seconds(value)) == pytest.approx(value)
    for value in (512.0, 1.5e6, 16e9):
        assert units.size(show_bytes(value)) == value


def test_what_is_unknown_is_a_dash() -> None:
    """Absent figures are no numbers; unlimited memory has a word."""
    assert [show_seconds(x) for x in (None, math.inf, math.nan)] == ["-"] * 3
    assert [show_bytes(x) for x in (None, math.nan, math.inf)] == ["-", "-", "unlimited"]
    assert [show_share(x) for x in (None, math.inf, 0.5)] == ["-", "-", "50 %"]


def test_a_table_without_rows_is_its_head() -> None:
    """Columns are as wide as their widest cell."""
    assert show_table(["a", "b"], []) == ["a  b"]
    assert show_table(["a", "b"], [["1", "22"]], right=["b"]) == ["a   b", "1  22"]
