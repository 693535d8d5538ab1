"""Instances room: checks of what callers of generators ask for."""

from __future__ import annotations

import dataclasses
import math
import reprlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Settings = TypeVar("Settings", bound="DataclassInstance")

LARGEST_GRAPH = 20_000_000
"""Operators (or edges asked for); larger requests are refused instead of filling the memory."""


def whole(name: str, value: Any, *, least: int = 1, most: int = 10**12) -> int:
    """Return `value` as an integer within ``[least, most]``; whole floats such as 8.0 are taken.

    Raises
    ------
    OptionError
        If it is anything else.
    """
    # A boolean is an integer to Python, and no count to a reader.
    numeric = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    fraction = isinstance(value, (float, np.floating)) and not float(value).is_integer()
    if not numeric or fraction:
        raise OptionError(f"{name} must be a whole number, got {reprlib.repr(value)}", option=name)
    if not least <= value <= most:
        raise OptionError(f"{name} must be between {least} and {most:.4g}, got {reprlib.repr(value)}", option=name)
    return int(value)


def real(name: str, value: Any, *, above: float | None = None, least: float = 0.0, most: float = math.inf) -> float:
    """Return `value` as a finite float within ``[least, most]``, or above `above` where that is given.

    Raises
    ------
    OptionError
        If it is anything else.
    """
    numeric = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    # Compared, not converted: an integer may be too large for a float.
    if not numeric or not -sys.float_info.max <= value <= sys.float_info.max:
        raise OptionError(f"{name} must be a finite number, got {reprlib.repr(value)}", option=name)
    if above is not None and not value > above:
        raise OptionError(f"{name} must be above {above:g}, got {value!r}", option=name)
    if above is None and value < least:
        raise OptionError(f"{name} must be at least {least:g}, got {value!r}", option=name)
    if value > most:
        raise OptionError(f"{name} must be at most {most:g}, got {value!r}", option=name)
    return float(value)


def flag(name: str, value: Any) -> bool:
    """Return `value` if it is a boolean.

    Raises
    ------
    OptionError
        If it is anything else; texts such as ``"no"`` are not guessed at.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise OptionError(f"{name} must be true or false, got {value!r}", option=name)
    return bool(value)


def choice(name: str, value: Any, known: Sequence[str]) -> str:
    """Return `value` if it is one of the `known` words.

    Raises
    ------
    OptionError
        If it is not; the message names the nearest one.
    """
    if not isinstance(value, str) or value not in known:
        raise OptionError(f"{name} cannot be {value!r}{nearest(str(value), known)}", option=name)
    return value


def several(name: str, value: Any) -> tuple[Any, ...]:
    """Return a sequence as a tuple, and a single text or number as a tuple of one.

    Raises
    ------
    OptionError
        If it is empty, holds something twice, or is a mapping.
    """
    if isinstance(value, Mapping):
        raise OptionError(f"{name} must be a list, got {value!r}", option=name)
    single = isinstance(value, str) or not isinstance(value, Iterable)
    items = (value,) if single else tuple(value)
    if not items:
        raise OptionError(f"{name} must not be empty", option=name)
    for i, item in enumerate(items):
        if item in items[:i]:
            raise OptionError(f"{name} holds {item!r} twice", option=name)
    return items


def settings(name: str, kind: type[Settings], value: Settings | Mapping[str, Any] | None) -> Settings:
    """Return a dataclass of settings from one, from a mapping of its fields, or from None for its defaults.

    Raises
    ------
    OptionError
        If the mapping holds a field that the class does not have (the nearest is named), or a bad value.
    """
    if value is None:
        return kind()
    if isinstance(value, kind):
        return value
    known = [field.name for field in dataclasses.fields(kind)]
    if not isinstance(value, Mapping):
        raise OptionError(f"{name} must be a {kind.__name__} or a mapping of {', '.join(known)}, got {value!r}")
    for key in value:
        if key not in known:
            raise OptionError(f"{name} has no setting {key!r}{nearest(str(key), known)}", option=name)
    return kind(**value)


def size(what: str, count: int) -> int:
    """Return `count` unless that many operators or edges would fill the memory.

    Raises
    ------
    OptionError
        If it is more than `LARGEST_GRAPH`.
    """
    if count > LARGEST_GRAPH:
        raise OptionError(f"{what} would make {count} operators or edges; at most {LARGEST_GRAPH} are built")
    return count
