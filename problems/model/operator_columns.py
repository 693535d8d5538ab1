"""Model room: what the constructor of a cost graph is given, checked and turned into read-only arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.errors import GraphError
from balance.problems.model.operators import TimeTable
from balance.problems.model.tensors import FloatArray, IntArray, canonical, frozen, positions, shrunk
from balance.problems.model.topology import renumber


def kind_names(forward: TimeTable, kinds: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the device kinds: the given ones, or the keys of the forward times.

    Raises
    ------
    GraphError
        If a name is empty, no string, or there twice.
    """
    if kinds is None:
        names = tuple(forward) if isinstance(forward, Mapping) else ("device",)
    else:
        names = (kinds,) if isinstance(kinds, str) else tuple(kinds)
    if not names or len(set(names)) != len(names) or not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"device kinds must be distinct, non-empty names, got {names!r}")
    return names


def operator_count(forward: TimeTable, names: Sequence[str] | None) -> int:
    """Return the number of operators that the forward times (or else the names) are for.

    Raises
    ------
    GraphError
        If neither tells.
    """
    for table in forward.values() if isinstance(forward, Mapping) else (forward,):
        try:
            shape = np.shape(table)
        except ValueError as error:
            raise GraphError(f"forward must hold numbers: {error}", field="forward") from None
        if shape:
            return int(shape[-1])
    if names is None:
        raise GraphError("forward must be an array with one entry per operator")
    return len(names)


def operator_names(names: Sequence[str] | None, n: int) -> tuple[str, ...] | None:
    """Return n unique names, or None.

    Raises
    ------
    GraphError
        If a name is empty, no string, or there twice.
    """
    if names is None:
        return None
    labels = tuple(names)
    if len(labels) != n:
        raise GraphError(f"{len(labels)} names for {n} operators")
    seen: dict[str, int] = {}
    for i, label in enumerate(labels):
        if not isinstance(label, str) or not label:
            raise GraphError(f"operator {i} has the name {label!r}; names are non-empty strings", operator=i)
        if label in seen:
            raise GraphError(f"operators {seen[label]} and {i} are both named {label!r}", operator=i, name=label)
        seen[label] = i
    return labels


class Columns:
    """Makes the tables of one graph: K kinds, C configurations, n operators.

    Parameters
    ----------
    kinds
        Names of the device kinds, (K,).
    configurations
        C.
    names
        Operator names for messages, (n,), or None.
    n
        Number of operators.
    """

    def __init__(self, kinds: tuple[str, ...], configurations: int, names: tuple[str, ...] | None, n: int) -> None:
        self.kinds, self.configurations, self.names, self.n = kinds, configurations, names, n

    def seconds(self, key: str, table: TimeTable) -> FloatArray:
        """Return a table of seconds, shape (K, C, n); infinity where a kind has no entry.

        Raises
        ------
        GraphError
            If the shape does not fit or a time is nan or negative; `key` names the table.
        """
        shape = (len(self.kinds), self.configurations, self.n)
        if isinstance(table, Mapping):
            unknown = [k for k in table if k not in self.kinds]
            if unknown:
                raise GraphError(f"{key} is given for kind {unknown[0]!r}, which is not among the kinds {self.kinds}")
            array = np.full(shape, np.inf)
            for k, kind in enumerate(self.kinds):
                if kind in table:
                    array[k] = self._fit(key, table[kind], shape[1:])
        else:
            given = _numbers(key, table)
            if given.ndim == 2:
                given = given[:, None, :]
            array = self._fit(key, given, shape)
        bad = np.isnan(array) | (array < 0)
        if bad.any():
            k, c, i = (int(x) for x in np.argwhere(bad)[0])
            raise GraphError(
                f"operator {label(self.names, i)} has {key} = {array[k, c, i]} on kind {self.kinds[k]!r}; seconds must "
                f"not be nan or negative (infinity: the kind cannot host it)",
                operator=i,
                field=key,
                value=float(array[k, c, i]),
            )
        return read_only(canonical(array))

    def bytes(self, key: str, table: ArrayLike) -> FloatArray:
        """Return a table of bytes, shape (C, n).

        Raises
        ------
        GraphError
            If the shape does not fit or a size is not finite or negative; `key` names the table.
        """
        array = self._fit(key, table, (self.configurations, self.n))
        bad = ~((array >= 0) & (array < np.inf))
        if bad.any():
            c, i = (int(x) for x in np.argwhere(bad)[0])
            raise GraphError(
                f"operator {label(self.names, i)} has {key} = {array[c, i]}; bytes must be finite and not negative",
                operator=i,
                field=key,
                value=float(array[c, i]),
            )
        return read_only(canonical(array))

    def _fit(self, key: str, table: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
        try:
            return np.broadcast_to(_numbers(key, table), shape)
        except ValueError:
            axes = "kinds, configurations, operators" if len(shape) == 3 else "configurations, operators"
            raise GraphError(
                f"{key} has shape {np.shape(table)}, which does not fit {shape} ({axes})", field=key
            ) from None

    def labels(self, colocation: Sequence[Any] | IntArray | None) -> IntArray:
        """Return colocation labels numbered by first appearance, -1 for none, shape (n,).

        Raises
        ------
        GraphError
            If there is not one for each operator.
        """
        if colocation is None:
            return read_only(np.broadcast_to(np.int64(-1), (self.n,)))
        if isinstance(colocation, np.ndarray) and np.issubdtype(colocation.dtype, np.integer):
            labels = np.where(colocation < 0, -1, colocation).astype(np.int64)
        else:
            numbers: dict[Any, int] = {}
            labels = np.array(
                [
                    -1
                    if cell is None or (isinstance(cell, (int, float, np.number)) and not cell >= 0)
                    else numbers.setdefault(cell, len(numbers))
                    for cell in colocation
                ],
                dtype=np.int64,
            )
        if labels.shape != (self.n,):
            raise GraphError(f"{len(labels)} colocation labels for {self.n} operators")
        used = labels >= 0
        if used.any():  # Labels are numbered by first appearance, so that equal graphs hash alike.
            labels[used] = renumber(labels[used])
        return read_only(labels)

    def pins(self, pinned: Sequence[int | None] | IntArray | None) -> IntArray:
        """Return the device of each pinned operator, -1 for none, shape (n,).

        Raises
        ------
        GraphError
            If there is not one for each operator, or it is no index.
        """
        if pinned is None:
            return read_only(np.broadcast_to(np.int64(-1), (self.n,)))
        devices = positions([-1 if d is None else d for d in pinned], "pinned devices")
        if devices.shape != (self.n,):
            raise GraphError(f"{len(devices)} pinned devices for {self.n} operators")
        return read_only(np.where(devices < 0, -1, devices))

    def flags(self, is_backward: ArrayLike | None) -> NDArray[np.bool_]:
        """Return which operators belong to the backward pass, shape (n,).

        Raises
        ------
        GraphError
            If there is not one flag for each operator.
        """
        flags = np.zeros(self.n, dtype=bool) if is_backward is None else np.asarray(is_backward, dtype=bool)
        if flags.shape != (self.n,):
            raise GraphError(f"is_backward must have shape ({self.n},), got {flags.shape}")
        return frozen(flags, bool)


def label(names: Sequence[str] | None, i: int) -> str:
    """Return the quoted name of operator `i`, or ``#i`` if it has none."""
    return repr(names[i]) if names is not None else f"#{i}"


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only array that does not alias the caller's; broadcast ones keep their small base."""
    if array.base is not None and 0 in array.strides and array.size > 1:
        return np.broadcast_to(frozen(shrunk(array), array.dtype), array.shape)
    return frozen(array, array.dtype)


def _numbers(key: str, table: ArrayLike) -> FloatArray:
    try:
        return np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise GraphError(f"{key} must hold numbers: {error}", field=key) from None
