"""Tests of amounts with units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.cli import units
from balance.problems.model.errors import OptionError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1B/s", 1.0),
        ("3kB/s", 3e3),
        ("2MB/s", 2e6),
        ("25GB/s", 25e9),
        ("25 GB/s", 25e9),
        ("1.5GiB/s", 1.5 * 2**30),
        ("100Gbit/s", 12.5e9),
        ("1e2Mbit/s", 12.5e6),
        ("inf", float("inf")),
    ],
)
def test_bandwidths(text: str, value: float) -> None:
    """Bytes and bits, decimal and binary."""
    assert units.bandwidth(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"), [("10us", 1e-5), ("10 µs", 1e-5), ("5ms", 5e-3), (".5s", 0.5), ("2min", 120.0), ("7ns", 7e-9)]
)
def test_times(text: str, value: float) -> None:
    """Seconds and their parts."""
    assert units.seconds(text) == pytest.approx(value)


def test_sizes() -> None:
    """Decimal and binary bytes."""
    assert units.size("16GB") == 16e9
    assert units.size("16GiB") == 16 * 2**30


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("25", "no unit"),
        ("25Gb/s", "bits are written Gbit/s and bytes GB/s"),
        ("25Gbps", "bits are written"),
        ("25GB", "unit 'GB'"),
        ("fast", "not a bandwidth"),
        ("-1GB/s", "not a bandwidth"),
        ("0GB/s", "positive"),
        ("1e400GB/s", "too large"),
        ("", "not a bandwidth"),
        ("nan B/s", "not a bandwidth"),
    ],
)
def test_bad_bandwidths_are_explained(text: str, words: str) -> None:
    """Each wrong amount says what is wrong with it."""
    with pytest.raises(OptionError, match=words):
        units.bandwidth(text)


@given(st.text(max_size=12))
def test_any_text_is_an_amount_or_an_option_error(text: str) -> None:
    """No text makes the parser fail in another way."""
    for parse in (units.bandwidth, units.seconds, units.size):
        try:
            assert parse(text) >= 0
        except OptionError:
            continue


@given(st.floats(1e-3, 1e6), st.sampled_from(sorted(units.TIME_UNITS)))
def test_a_written_time_is_read_back(value: float, unit: str) -> None:
    """A number and a unit mean their product."""
    assert units.seconds(f"{value!r}{unit}") == pytest.approx(value * units.TIME_UNITS[unit])
