"""Format room: numbers of foreign files, their units and their text."""

from __future__ import annotations

import math
import re

from balance.problems.model.errors import FormatError

LARGEST_CLUSTER = 100_000
"""Devices; a file that names more is refused instead of filling the memory."""

_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)


def milliseconds(seconds: float) -> float:
    """Return the number of milliseconds that, divided by 1000, is exactly `seconds`, the one with fewest decimals.

    Where there is none (not every number is another one's thousandth), it is the nearest.

    Raises
    ------
    FormatError
        If it is not finite.
    """
    guess = seconds * 1000.0
    if not math.isfinite(guess):
        raise FormatError(f"a time of {seconds} s cannot be written in milliseconds")
    # A number read from a file has at most 15 digits as a rule; rounding to them finds it, though `guess` be one off.
    for digits in (15, 16, 17):
        candidate = float(f"{guess:.{digits}g}")
        if candidate / 1000.0 == seconds:
            return candidate
    return guess


def decimal(text: str, *, line: int, field: str) -> float:
    """Return a number written in decimal digits.

    Raises
    ------
    FormatError
        If it is no such number, negative or infinite.
    """
    word = text.strip()
    if len(word) > 400 or _NUMBER.fullmatch(word) is None:
        raise FormatError(f"expected a number, got {word[:40]!r}", line=line, field=field)
    value = float(word)
    if not 0 <= value < math.inf:
        raise FormatError(f"must be finite and not negative, got {word[:40]}", line=line, field=field)
    return value


def exact_third(value: float) -> float:
    """Return about a third of `value`, rounded so that ``third + (value - third)`` is `value` again."""
    mantissa, exponent = math.frexp(value / 3.0)
    return math.ldexp(round(mantissa * 2.0**24), exponent - 24)
