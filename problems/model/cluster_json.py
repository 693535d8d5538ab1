"""Model room: clusters from JSON, in columns (what `save` writes) or as a list of devices (what people write)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.cluster import SCHEMA, VERSION, Cluster, Device, Link
from balance.problems.model.errors import ClusterError, FormatError
from balance.problems.model.fields import Fields, integer, numbers

_LARGEST = 1_000_000


def cluster_from_json(data: Any) -> Cluster:
    """Build a cluster from the column form, from ``{"devices": [...], "links": ...}`` or from a bare list of devices.

    A device row holds the fields of `Device` and optionally ``count``.

    Raises
    ------
    FormatError
        If a field is missing, unknown or malformed.
    """
    top = Fields({"devices": data} if isinstance(data, list) else data)
    try:
        if "devices" in top.data:
            if "schema" in top.data:
                top.schema(SCHEMA, VERSION)
            devices = []
            for i, row in enumerate(top.items("devices")):
                devices.extend(_devices(row, i))
                if len(devices) > _LARGEST:
                    raise FormatError(f"the cluster has more than {_LARGEST} devices", field=f"devices[{i}]")
        else:
            top.schema(SCHEMA, VERSION)
            devices = _columns(top)
        links = _links(top, len(devices))
        top.done()
        return Cluster(devices, **links)
    except ClusterError as error:
        raise FormatError(error.message, **error.facts) from None


def _devices(data: Any, i: int) -> list[Device]:
    row = Fields(data, f"devices[{i}]")
    host = row.take("host", None)
    if host is not None and (isinstance(host, bool) or not isinstance(host, (str, int))):
        row.fail("host", "expected a string or an integer")
    count = row.integer("count", 1, least=1)
    device = Device(
        row.text("kind", "device"),
        row.number("memory_bytes", math.inf),
        row.number("speed", 1.0),
        row.number("price", 0.0),
        row.text("name", None),
        host,
    )
    row.done()
    if count > _LARGEST:
        row.fail("count", f"is more than {_LARGEST} devices")
    if count > 1 and device.name is not None:
        row.fail("name", "names are unique, so a row with count > 1 has none")
    return [device] * count


def _columns(top: Fields) -> list[Device]:
    n = top.integer("count", least=1)
    if n > _LARGEST:
        top.fail("count", f"is more than {_LARGEST} devices")
    kinds = top.items("kinds")
    for k, kind in enumerate(kinds):
        if not isinstance(kind, str):
            raise FormatError("expected a string", field=f"kinds[{k}]")

    def column(key: str, null: float | None) -> NDArray[np.float64]:
        top.take(key, None)
        array = numbers(top.data.get(key), key, length=n, null=null)
        return np.broadcast_to(array, (n,))

    rows = [integer(k, "kind") for k in column("kind", None).tolist()]
    if rows and max(rows) >= len(kinds):
        top.fail("kind", f"names kind {max(rows)}, but there are {len(kinds)} kinds")
    memory, speed, price = column("memory_bytes", math.inf), column("speed", None), column("price", None)
    names = top.items("names", None)
    hosts = top.items("host", None)
    for key, cells in (("names", names), ("host", hosts)):
        if cells is not None and len(cells) != n:
            top.fail(key, f"has {len(cells)} entries, expected {n}")
        for i, cell in enumerate(cells or ()):
            if not (cell is None or isinstance(cell, str) or (key == "host" and type(cell) is int)):
                raise FormatError("expected a string" + " or an integer" * (key == "host"), field=f"{key}[{i}]")
    return [
        Device(
            kinds[rows[i]],
            float(memory[i]),
            float(speed[i]),
            float(price[i]),
            None if names is None else names[i],
            None if hosts is None else hosts[i],
        )
        for i in range(n)
    ]


def _links(top: Fields, n: int) -> dict[str, Any]:
    if not top.has("links"):
        top.take("links", None)
        return {}
    links = top.inner("links")
    if links.has("latency") and isinstance(links.data["latency"], list):
        result: dict[str, Any] = {
            key: np.array(
                [numbers(row, f"links.{key}[{a}]", length=n, null=math.inf) for a, row in enumerate(links.items(key))]
            )
            for key in ("latency", "bandwidth")
        }
    elif links.has("latency") or links.has("bandwidth"):
        result = {"link": Link(links.number("latency", 0.0), links.number("bandwidth", math.inf))}
    else:
        found = {}
        for key in ("intra", "inter"):
            if links.has(key):
                inner = links.inner(key)
                found[key] = Link(inner.number("latency", 0.0), inner.number("bandwidth", math.inf))
                inner.done()
        result = {"link": found["inter"]} if list(found) == ["inter"] else found
    links.done()
    return result
