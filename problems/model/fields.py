"""Model room: reading JSON objects field by field, with errors that name the place."""

from __future__ import annotations

import difflib
import math
import reprlib
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.errors import FormatError


def nearest(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest known name, or the list of known names."""
    options = list(known)
    return meant(name, options) or (f" (known: {', '.join(options)})" if options else "")


def meant(name: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the nearest known name, or nothing; for messages that list the names."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Fields:
    """A JSON object whose fields are taken one by one; `done` refuses what was not asked for.

    Parameters
    ----------
    data
        The parsed JSON value.
    where
        Path of this object in the file, for messages.

    Raises
    ------
    FormatError
        If `data` is not an object.
    """

    _absent = object()

    def __init__(self, data: Any, where: str = "") -> None:
        if not isinstance(data, dict):
            raise FormatError(f"expected an object, got {_shown(data)}", field=where or None)
        self.data: dict[str, Any] = data
        self.where = where
        self._taken: set[str] = set()

    def path(self, name: str) -> str:
        """Return the path of a field for messages."""
        return f"{self.where}.{name}" if self.where else name

    def fail(self, name: str, message: str) -> NoReturn:
        """Raise a `FormatError` that points at a field."""
        raise FormatError(message, field=self.path(name))

    def has(self, name: str) -> bool:
        """Whether the field is there and not null."""
        return self.data.get(name) is not None

    def take(self, name: str, default: Any = _absent) -> Any:
        """Return a field's raw value (null counts as absent).

        Raises
        ------
        FormatError
            If it is absent and there is no default.
        """
        self._taken.add(name)
        value = self.data.get(name)
        if value is None:
            if default is self._absent:
                self.fail(name, "is missing")
            return default
        return value

    def text(self, name: str, default: Any = _absent) -> Any:
        """Return a string field."""
        value = self.take(name, default)
        if value is not default and not isinstance(value, str):
            self.fail(name, f"expected a string, got {_shown(value)}")
        return value

    def flag(self, name: str, default: Any = _absent) -> Any:
        """Return a boolean field; 0 and 1 are taken as well."""
        value = self.take(name, default)
        if value is not default and not (isinstance(value, bool) or value in (0, 1)):
            self.fail(name, f"expected true or false, got {_shown(value)}")
        return value if value is default else bool(value)

    def number(self, name: str, default: Any = _absent, *, least: float | None = 0.0) -> Any:
        """Return a finite number that is at least `least`."""
        value = self.take(name, default)
        return value if value is default else number(value, self.path(name), least=least)

    def integer(self, name: str, default: Any = _absent, *, least: int | None = 0) -> Any:
        """Return an integer (also written as 3.0) that is at least `least`."""
        value = self.take(name, default)
        return value if value is default else integer(value, self.path(name), least=least)

    def items(self, name: str, default: Any = _absent) -> Any:
        """Return a list field."""
        value = self.take(name, default)
        if value is not default and not isinstance(value, list):
            self.fail(name, f"expected a list, got {_shown(value)}")
        return value

    def inner(self, name: str) -> Fields:
        """Return an object field as `Fields`."""
        return Fields(self.take(name), self.path(name))

    def choice(self, name: str, options: Sequence[str], default: Any = _absent) -> Any:
        """Return a string field that is one of `options`."""
        value = self.text(name, default)
        if value is not default and value not in options:
            self.fail(name, f"{value!r} is not one of {', '.join(options)}{meant(value, options)}")
        return value

    def schema(self, name: str, version: int) -> None:
        """Check the ``schema`` and ``version`` fields."""
        got = self.text("schema")
        if got != name:
            self.fail("schema", f"is {got!r}, expected {name!r}")
        number_ = self.integer("version")
        if number_ != version:
            self.fail("version", f"is {number_}; this release reads version {version}")

    def done(self) -> None:
        """Refuse fields that nothing asked for."""
        unknown = [key for key in self.data if key not in self._taken]
        if unknown:
            known = sorted(self._taken)
            self.fail(unknown[0], f"is not a known field{nearest(unknown[0], known)}")


def number(value: Any, where: str, *, least: float | None = 0.0) -> float:
    """Return `value` as a finite float.

    Raises
    ------
    FormatError
        If it is not a number, not finite, or below `least`.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise FormatError(f"expected a number, got {_shown(value)}", field=where)
    try:
        result = float(value)
    except OverflowError:
        raise FormatError("is too large a number", field=where) from None
    if not math.isfinite(result):
        raise FormatError(f"must be finite, got {value}", field=where)
    if least is not None and result < least:
        raise FormatError(f"must be at least {least:g}, got {result:g}", field=where)
    return result


def integer(value: Any, where: str, *, least: int | None = 0) -> int:
    """Return `value` as an integer.

    Raises
    ------
    FormatError
        If it is not a whole number or below `least`.
    """
    checked = number(value, where, least=None)
    if checked != int(checked) or abs(checked) > 2**62:
        raise FormatError(f"expected a whole number, got {value}", field=where)
    result = value if isinstance(value, int) else int(checked)  # a float cannot hold every integer
    if least is not None and result < least:
        raise FormatError(f"must be at least {least}, got {result}", field=where)
    return result


def numbers(
    value: Any, where: str, *, length: int | None = None, null: float | None = None, least: float | None = 0.0
) -> NDArray[np.float64]:
    """Return a list of numbers as an array, or a single number broadcast to `length`.

    Parameters
    ----------
    value
        A number, null or a list of them.
    where
        Path for messages.
    length
        Required length.
    null
        What null stands for; None: null is refused.
    least
        Smallest allowed value.

    Raises
    ------
    FormatError
        At the first bad entry.
    """
    if isinstance(value, list):
        if length is not None and len(value) != length:
            raise FormatError(f"has {len(value)} entries, expected {length}", field=where)
        cells = [
            null if cell is None and null is not None else number(cell, f"{where}[{i}]", least=least)
            for i, cell in enumerate(value)
        ]
        return np.array(cells, dtype=np.float64)
    if value is None and null is not None:
        return np.broadcast_to(np.float64(null), (length or 1,))
    return np.broadcast_to(np.float64(number(value, where, least=least)), (length or 1,))


def plain(value: Any, where: str, *, depth: int = 64) -> Any:
    """Return a JSON value that is kept as it is, after checking that it can be written again.

    Raises
    ------
    FormatError
        If it holds an infinite number or is nested more than `depth` levels deep.
    """
    if depth < 0:
        raise FormatError("is nested too deeply", field=where)
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(f"must be finite, got {value}", field=where)
    if isinstance(value, dict):
        for key, cell in value.items():
            plain(cell, f"{where}.{key}", depth=depth - 1)
    elif isinstance(value, list):
        for i, cell in enumerate(value):
            plain(cell, f"{where}[{i}]", depth=depth - 1)
    return value


def _shown(value: Any) -> str:
    # reprlib looks at the first few items and levels only: a hostile value may be huge or nested deeply.
    text = reprlib.repr(value)
    return f"{type(value).__name__} {text if len(text) <= 40 else text[:37] + '...'}"
