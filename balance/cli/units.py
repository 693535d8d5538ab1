"""Command line: amounts with units, such as ``25GB/s`` or ``10us``, into SI units."""

from __future__ import annotations

import math
import re

from balance.problems.model.errors import OptionError

_BYTES = {
    "B": 1.0,
    "kB": 1e3,
    "MB": 1e6,
    "GB": 1e9,
    "TB": 1e12,
    "KiB": 2.0**10,
    "MiB": 2.0**20,
    "GiB": 2.0**30,
    "TiB": 2.0**40,
}
_BITS = {"bit": 1 / 8, "kbit": 1e3 / 8, "Mbit": 1e6 / 8, "Gbit": 1e9 / 8, "Tbit": 1e12 / 8}
BANDWIDTH_UNITS = {f"{unit}/s": factor for unit, factor in {**_BYTES, **_BITS}.items()}
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}
BYTE_UNITS = dict(_BYTES)

_AMOUNT = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ/]*)\s*")


def bandwidth(text: str) -> float:
    """Return bytes per second; ``inf`` is a link that takes no time beside its latency.

    Raises
    ------
    OptionError
        If the unit is missing or unknown, or the number is not positive.

    Examples
    --------
    >>> bandwidth("25GB/s"), bandwidth("100 Gbit/s")
    (25000000000.0, 12500000000.0)
    """
    if text.strip() == "inf":
        return math.inf
    value = _amount(text, BANDWIDTH_UNITS, "bandwidth", "25GB/s, 100Gbit/s or 12GiB/s")
    if value <= 0:
        raise OptionError(f"a bandwidth must be positive, got {text!r}")
    return value


def seconds(text: str) -> float:
    """Return seconds.

    Raises
    ------
    OptionError
        If the unit is missing or unknown.

    Examples
    --------
    >>> seconds("250ms"), seconds("2 min")
    (0.25, 120.0)
    """
    return _amount(text, TIME_UNITS, "time", "10us, 1.5ms or 30s")


def size(text: str) -> float:
    """Return bytes.

    Raises
    ------
    OptionError
        If the unit is missing or unknown.

    Examples
    --------
    >>> size("16GB"), size("2KiB")
    (16000000000.0, 2048.0)
    """
    return _amount(text, BYTE_UNITS, "size", "16GB or 16GiB")


def _amount(text: str, units: dict[str, float], what: str, examples: str) -> float:
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise OptionError(f"{text!r} is not a {what}; write a number and a unit, such as {examples}")
    number, unit = match.groups()
    if not unit:
        raise OptionError(f"the {what} {text!r} has no unit; write for example {examples}")
    unit = unit.replace("µ", "u")
    if unit not in units:
        raise OptionError(f"the {what} {text!r} has the unit {unit!r}; known units are {', '.join(units)}{_hint(unit)}")
    value = float(number) * units[unit]
    if not math.isfinite(value):
        raise OptionError(f"the {what} {text!r} is too large")
    return value


def _hint(unit: str) -> str:
    if unit in ("Gb/s", "Mb/s", "kb/s", "Gbps", "Mbps", "kbps"):
        prefix = unit[0]
        return f" (bits are written {prefix}bit/s and bytes {prefix}B/s)"
    return ""
