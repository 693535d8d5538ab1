"""Model room: clusters as JSON, in columns (what `save` writes) or as a list of devices (what people write)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.cluster import SCHEMA, VERSION, Cluster
from balance.problems.model.devices import Device, Link
from balance.problems.model.errors import ClusterError, FormatError
from balance.problems.model.fields import Fields, integer, numbers
from balance.problems.model.tensors import shrunk

_LARGEST = 1_000_000  # devices in rows
_LARGEST_COLUMNS = 10_000_000  # devices in columns, which are a few numbers when all are equal


def cluster_to_json(cluster: Cluster) -> dict[str, Any]:
    """Return the column form; a column of equal values is one value, infinity is null."""

    def column(values: NDArray[Any]) -> Any:
        first = values[:1] if bool((values == values[0]).all()) else values
        cells = [None if math.isinf(v) else v for v in first.tolist()]
        return cells[0] if len(first) == 1 else cells

    n = cluster.n_devices
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "version": VERSION,
        "count": n,
        "kinds": list(cluster.kinds),
        "kind": column(cluster.kind),
        **{key: column(getattr(cluster, key)) for key in ("memory_bytes", "speed", "price")},
    }
    if cluster.names is not None:
        data["names"] = list(cluster.names)
    if cluster.links == "hierarchical" or not bool((cluster.host == np.arange(n)).all()):
        data["host"] = cluster.host.tolist()
    if cluster.links == "matrix":
        assert cluster.latency is not None and cluster.bandwidth is not None
        data["links"] = {
            "latency": cluster.latency.tolist(),
            "bandwidth": [[None if math.isinf(b) else b for b in row] for row in cluster.bandwidth.tolist()],
        }
    elif cluster.links != "none":
        links = {"intra": cluster.intra, "inter": cluster.inter}
        data["links"] = {
            key: {"latency": v.latency, "bandwidth": None if math.isinf(v.bandwidth) else v.bandwidth}
            for key, v in links.items()
            if v is not None
        }
    return data


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
            columns = _columns(top)
            links = _links(top, len(columns["kind"]))
            top.done()
            return Cluster.from_columns(columns, **links)
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


def _columns(top: Fields) -> dict[str, Any]:
    n = top.integer("count", least=1)
    if n > _LARGEST_COLUMNS:
        top.fail("count", f"is more than {_LARGEST_COLUMNS} devices")
    kinds = top.items("kinds")
    for k, kind in enumerate(kinds):
        if not isinstance(kind, str):
            raise FormatError("expected a string", field=f"kinds[{k}]")

    def column(key: str, null: float | None) -> NDArray[np.float64]:
        top.take(key, None)
        return np.broadcast_to(numbers(top.data.get(key), key, length=n, null=null), (n,))

    kind_numbers = column("kind", None)
    row = np.broadcast_to(np.array([integer(k, "kind") for k in shrunk(kind_numbers).tolist()]), (n,))
    most = int(row.max())
    if most >= len(kinds):
        top.fail("kind", f"names kind {most}, but there are {len(kinds)} kinds")
    amounts: dict[str, Any] = {
        "memory_bytes": column("memory_bytes", math.inf),
        "speed": column("speed", None),
        "price": column("price", None),
    }
    names = top.items("names", None)
    hosts = top.items("host", None)
    for key, cells in (("names", names), ("host", hosts)):
        if cells is not None and len(cells) != n:
            top.fail(key, f"has {len(cells)} entries, expected {n}")
        for i, cell in enumerate(cells or ()):
            if not (cell is None or isinstance(cell, str) or (key == "host" and type(cell) is int)):
                raise FormatError("expected a string" + " or an integer" * (key == "host"), field=f"{key}[{i}]")
    named = names is not None and any(name is not None for name in names)
    used = list(dict.fromkeys(kinds[k] for k in shrunk(row).tolist()))
    return {
        **amounts,
        "kinds": tuple(used),
        "kind": row if used == kinds else np.array([used.index(kinds[k]) for k in row.tolist()], dtype=np.int64),
        "names": tuple(name or f"#{i}" for i, name in enumerate(names or ())) if named else None,
        "host": np.arange(n) if hosts is None else _numbered(hosts),
    }


def _numbered(hosts: list[Any]) -> NDArray[np.int64]:
    """Return the number of each device's host by first appearance; null is a host of its own."""
    labels: dict[Any, int] = {}
    return np.array([labels.setdefault(("own", i) if h is None else h, len(labels)) for i, h in enumerate(hosts)])


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
