"""Model room: what a cluster holds of its devices and link matrices, checked and read-only."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from balance.problems.model.errors import ClusterError
from balance.problems.model.tensors import FloatArray, frozen

DEVICE_NUMBERS = ("memory_bytes", "speed", "price")
"""Columns with one number for each device."""


def checked(columns: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of `Cluster.from_columns` read-only; broadcast ones stay as small as they are.

    Raises
    ------
    ClusterError
        If there is no device, a number is out of range, or names repeat.
    """
    if not len(columns["kind"]):
        raise ClusterError("a cluster needs at least one device")
    memory, speed, price = (columns[key] for key in DEVICE_NUMBERS)
    for key, ok, rule in (
        ("memory_bytes", memory >= 0, "must not be negative"),
        ("speed", (speed > 0) & (speed < np.inf), "must be positive and finite"),
        ("price", (price >= 0) & (price < np.inf), "must be finite and not negative"),
    ):
        bad = ~ok
        if bad.any():
            i = int(np.argmax(bad))
            raise ClusterError(f"device {i} has {key} = {columns[key][i]}; it {rule}", device=i, field=key)
    names = columns["names"]
    if names is not None and len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ClusterError(f"two devices are named {twice!r}", name=twice)
    if not all(isinstance(kind, str) and kind for kind in columns["kinds"]):
        raise ClusterError(f"device kinds are non-empty strings, got {columns['kinds']!r}")
    return {
        key: frozen(value, value.dtype) if isinstance(value, np.ndarray) and 0 not in value.strides else value
        for key, value in columns.items()
    }


def equal_devices(n: int, kind: str, memory_bytes: float, speed: float, price: float) -> dict[str, Any]:
    """Return the columns of n equal devices without names, but for their hosts."""
    values = {"memory_bytes": memory_bytes, "speed": speed, "price": price}
    return {
        "kinds": (kind,),
        "kind": np.broadcast_to(np.int64(0), (n,)),
        **{key: np.broadcast_to(numbers(key, value), (n,)) for key, value in values.items()},
        "names": None,
    }


def link_matrices(latency: ArrayLike, bandwidth: ArrayLike, n: int) -> tuple[FloatArray, FloatArray]:
    """Return latency and bandwidth of every ordered pair, shapes (n, n); a device reaches itself at once.

    Raises
    ------
    ClusterError
        If a shape is wrong or a link has a value out of range.
    """
    result = []
    for key, given, own in (("latency", latency, 0.0), ("bandwidth", bandwidth, np.inf)):
        table = numbers(key, given)
        if table.shape != (n, n):
            raise ClusterError(f"the {key} matrix has shape {table.shape}, expected ({n}, {n})")
        bad = ~np.eye(n, dtype=bool) & ~((table >= 0) & (table < np.inf) if key == "latency" else table > 0)
        if bad.any():
            a, b = (int(x) for x in np.argwhere(bad)[0])
            raise ClusterError(f"link {a} -> {b} has {key} = {table[a, b]}", devices=(a, b))
        table = table.copy()
        np.fill_diagonal(table, own)
        table.flags.writeable = False
        result.append(table)
    return result[0], result[1]


def numbers(key: str, values: ArrayLike) -> FloatArray:
    """Return numbers as a read-only array.

    Raises
    ------
    ClusterError
        If they are none; `key` names the column.
    """
    try:
        return frozen(values)
    except (TypeError, ValueError) as error:
        raise ClusterError(f"{key} must hold numbers: {error}", field=key) from None
