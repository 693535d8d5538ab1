"""Model room: the cluster, devices and the links between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.errors import ClusterError
from balance.problems.model.tensors import FloatArray, IntArray, frozen

if TYPE_CHECKING:
    import networkx

SCHEMA = "dnn-balance/cluster"
VERSION = 1
_COLUMNS = ("memory_bytes", "speed", "price")


@dataclass(frozen=True)
class Link:
    """A link between two devices.

    Parameters
    ----------
    latency
        Seconds per message.
    bandwidth
        Bytes per second.

    Raises
    ------
    ClusterError
        If latency is negative or not finite, or bandwidth is not positive.
    """

    latency: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.latency < math.inf):
            raise ClusterError(f"link latency must be finite and not negative, got {self.latency} s")
        if not self.bandwidth > 0:
            raise ClusterError(f"link bandwidth must be positive, got {self.bandwidth} B/s")

    def seconds(self, size: float) -> float:
        """Return the time to move `size` bytes; nothing to move takes no time."""
        return self.latency + size / self.bandwidth if size > 0 else 0.0


LOCAL = Link()


@dataclass(frozen=True)
class Device:
    """One device.

    Parameters
    ----------
    kind
        Row of the cost tables that holds for it.
    memory_bytes
        Its memory.
    speed
        Factor on the kind's speed; times are divided by it.
    price
        Price per second of use.
    name
        Unique label, or None.
    host
        Which host it is in, for hierarchical links; None: a host of its own.
    """

    kind: str = "device"
    memory_bytes: float = math.inf
    speed: float = 1.0
    price: float = 0.0
    name: str | None = None
    host: int | str | None = None


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Cluster:
    """Devices and links; n devices cost O(n) memory unless links are given as a matrix.

    Parameters
    ----------
    devices
        `Device` objects.
    link
        The same link between any two devices.
    intra, inter
        Links inside one host and between hosts (given together).
    latency, bandwidth
        Matrices, shape (n, n): link of each ordered pair (given together; the diagonal is ignored).

    Raises
    ------
    ClusterError
        If a value is out of range, names repeat, shapes disagree, or two ways to give links are mixed.

    Examples
    --------
    >>> cluster = Cluster.hierarchical(2, 4, intra=Link(bandwidth=3e11), inter=Link(1e-5, 2.5e10))
    >>> cluster.n_devices, cluster.link(0, 1).bandwidth, cluster.link(0, 4).bandwidth
    (8, 300000000000.0, 25000000000.0)
    """

    kinds: tuple[str, ...]
    kind: IntArray
    memory_bytes: FloatArray
    speed: FloatArray
    price: FloatArray
    host: IntArray
    names: tuple[str, ...] | None
    links: str
    intra: Link | None
    inter: Link | None
    latency: FloatArray | None
    bandwidth: FloatArray | None

    def __init__(
        self,
        devices: Iterable[Device],
        *,
        link: Link | None = None,
        intra: Link | None = None,
        inter: Link | None = None,
        latency: ArrayLike | None = None,
        bandwidth: ArrayLike | None = None,
    ) -> None:
        rows = list(devices)
        kinds: dict[str, int] = {}
        hosts: dict[Any, int] = {}
        for i, row in enumerate(rows):
            kinds.setdefault(row.kind, len(kinds))
            hosts.setdefault(("own", i) if row.host is None else row.host, len(hosts))
        named = [row.name for row in rows]
        self._fill(
            kinds=tuple(kinds),
            kind=np.array([kinds[row.kind] for row in rows], dtype=np.int64),
            **{key: _numbers(key, [getattr(row, key) for row in rows]) for key in _COLUMNS},
            host=np.array([hosts[("own", i) if r.host is None else r.host] for i, r in enumerate(rows)], np.int64),
            names=None if all(n is None for n in named) else tuple(n or f"#{i}" for i, n in enumerate(named)),
        )
        self._connect(link, intra, inter, latency, bandwidth)

    def _fill(self, **columns: Any) -> None:
        n = len(columns["kind"])
        if n == 0:
            raise ClusterError("a cluster needs at least one device")
        memory, speed, price = (columns[key] for key in _COLUMNS)
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
        for key, value in columns.items():
            if isinstance(value, np.ndarray):
                value = value if 0 in value.strides else frozen(value, value.dtype)
            object.__setattr__(self, key, value)

    def _connect(
        self,
        link: Link | None,
        intra: Link | None,
        inter: Link | None,
        latency: ArrayLike | None,
        bandwidth: ArrayLike | None,
    ) -> None:
        put = object.__setattr__
        ways = [link is not None, intra is not None or inter is not None, latency is not None or bandwidth is not None]
        if sum(ways) > 1:
            raise ClusterError("give links in one way: link=, intra= with inter=, or latency= with bandwidth= matrices")
        put(self, "intra", None)
        put(self, "inter", None)
        put(self, "latency", None)
        put(self, "bandwidth", None)
        if ways[0]:
            put(self, "links", "uniform")
            put(self, "inter", link)
        elif ways[1]:
            if intra is None or inter is None:
                raise ClusterError("hierarchical links need both intra= and inter=")
            put(self, "links", "hierarchical")
            put(self, "intra", intra)
            put(self, "inter", inter)
        elif ways[2]:
            if latency is None or bandwidth is None:
                raise ClusterError("link matrices come together: latency= in seconds, bandwidth= in bytes per second")
            n = self.n_devices
            tables = (_numbers("latency", latency), _numbers("bandwidth", bandwidth))
            for key, table in zip(("latency", "bandwidth"), tables, strict=True):
                if table.shape != (n, n):
                    raise ClusterError(f"the {key} matrix has shape {table.shape}, expected ({n}, {n})")
                off = ~np.eye(n, dtype=bool)
                bad = off & ~((table >= 0) & (table < np.inf) if key == "latency" else table > 0)
                if bad.any():
                    a, b = (int(x) for x in np.argwhere(bad)[0])
                    raise ClusterError(f"link {a} -> {b} has {key} = {table[a, b]}", devices=(a, b))
                table = table.copy()
                np.fill_diagonal(table, 0.0 if key == "latency" else np.inf)  # a device reaches itself at once
                table.flags.writeable = False
                put(self, key, table)
            put(self, "links", "matrix")
        else:
            put(self, "links", "none")

    # -- constructors ------------------------------------------------------------------------------------------

    @classmethod
    def uniform(
        cls,
        n: int,
        *,
        kind: str = "device",
        memory_bytes: float = math.inf,
        speed: float = 1.0,
        price: float = 0.0,
        latency: float | None = None,
        bandwidth: float | None = None,
    ) -> Cluster:
        """Return n equal devices with the same link between any two; no link is known without latency and bandwidth."""
        if n < 1:
            raise ClusterError(f"a cluster needs at least one device, got {n}")
        link = None if latency is None and bandwidth is None else _link(latency, bandwidth)
        self = cls.__new__(cls)
        self._fill(**_equal(n, kind, memory_bytes, speed, price), host=np.arange(n))
        self._connect(link, None, None, None, None)
        return self

    @classmethod
    def hierarchical(
        cls,
        hosts: int,
        devices_per_host: int,
        *,
        intra: Link,
        inter: Link,
        kind: str = "device",
        memory_bytes: float = math.inf,
        speed: float = 1.0,
        price: float = 0.0,
    ) -> Cluster:
        """Return ``hosts * devices_per_host`` equal devices, those of one host next to each other."""
        if hosts < 1 or devices_per_host < 1:
            raise ClusterError(f"a cluster needs at least one device, got {hosts} hosts of {devices_per_host}")
        n = hosts * devices_per_host
        self = cls.__new__(cls)
        self._fill(**_equal(n, kind, memory_bytes, speed, price), host=np.arange(n) // devices_per_host)
        self._connect(None, intra, inter, None, None)
        return self

    @classmethod
    def from_matrix(cls, devices: Iterable[Device], *, latency: ArrayLike, bandwidth: ArrayLike) -> Cluster:
        """Return a cluster whose links are given per ordered pair, shapes (n, n)."""
        return cls(devices, latency=latency, bandwidth=bandwidth)

    @classmethod
    def from_networkx(cls, graph: networkx.Graph[Any]) -> Cluster:
        """Return a cluster from a network of devices.

        Vertices carry the fields of `Device`; edges carry ``latency`` and ``bandwidth``. A pair without an edge is
        routed over the path on which one mebibyte is fastest: latencies add up, the narrowest bandwidth counts.

        Raises
        ------
        ClusterError
            If two devices are not connected or an attribute is unknown.
        """
        import networkx

        if graph.is_multigraph():
            raise ClusterError("expected a graph with at most one link between two devices, got a multigraph")
        vertices = list(graph.nodes)
        known = ("kind", "memory_bytes", "speed", "price", "host")
        rows = []
        for vertex in vertices:
            data = graph.nodes[vertex]
            unknown = [key for key in data if key not in known]
            if unknown:
                raise ClusterError(f"device {vertex!r} has the unknown attribute {unknown[0]!r}: {', '.join(known)}")
            rows.append(Device(name=str(vertex), **data))
        for u, v, data in graph.edges(data=True):
            unknown = [key for key in data if key not in ("latency", "bandwidth")]
            if unknown:
                raise ClusterError(f"link {u!r} - {v!r} has the unknown attribute {unknown[0]!r}: latency, bandwidth")
            _link(data.get("latency"), data.get("bandwidth"))  # refuses values out of range

        def mebibyte(u: Any, v: Any, data: dict[str, Any]) -> float:
            return _link(data.get("latency"), data.get("bandwidth")).seconds(2.0**20)

        n = len(vertices)
        latency, bandwidth = np.zeros((n, n)), np.full((n, n), np.inf)
        for a, u in enumerate(vertices):
            paths = networkx.single_source_dijkstra_path(graph, u, weight=mebibyte)
            for b, v in enumerate(vertices):
                if v not in paths:
                    raise ClusterError(f"there is no path between the devices {u!r} and {v!r}")
                edges = [graph.edges[hop] for hop in zip(paths[v], paths[v][1:], strict=False)]
                hops = [_link(data.get("latency"), data.get("bandwidth")) for data in edges]
                latency[a, b] = sum(hop.latency for hop in hops)
                bandwidth[a, b] = min((hop.bandwidth for hop in hops), default=math.inf)
        return cls(rows, latency=latency, bandwidth=bandwidth)

    def with_link(self, *, latency: float | None = None, bandwidth: float | None = None) -> Cluster:
        """Return the same devices with one uniform link."""
        return Cluster(self.devices, link=_link(latency, bandwidth))

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def n_devices(self) -> int:
        """Number of devices."""
        return len(self.kind)

    def __len__(self) -> int:
        return self.n_devices

    def device(self, i: int) -> Device:
        """Return one device.

        Raises
        ------
        ClusterError
            If there is no such device.
        """
        if not 0 <= i < self.n_devices:
            raise ClusterError(f"there is no device {i}; the cluster has {self.n_devices}", device=i)
        return Device(
            self.kinds[int(self.kind[i])],
            float(self.memory_bytes[i]),
            float(self.speed[i]),
            float(self.price[i]),
            self.names[i] if self.names is not None else None,
            int(self.host[i]),
        )

    @property
    def devices(self) -> Sequence[Device]:
        """All devices, made when read."""
        return _Devices(self)

    def label(self, i: int) -> str:
        """Return the name of device `i`, or ``device i`` if it has none."""
        return repr(self.names[i]) if self.names is not None else f"device {i}"

    def link(self, a: int, b: int) -> Link:
        """Return the link from device `a` to device `b`; a device reaches itself at once.

        Raises
        ------
        ClusterError
            If no link speed is known.
        """
        if a == b:
            return LOCAL
        if self.links == "matrix":
            assert self.latency is not None and self.bandwidth is not None
            return Link(float(self.latency[a, b]), float(self.bandwidth[a, b]))
        if self.links == "none" or self.inter is None:
            raise ClusterError(
                f"no link speed is known between {self.label(a)} and {self.label(b)}: give bandwidth= (bytes per "
                f"second) and latency= (seconds), or a Cluster with link="
            )
        if self.links == "hierarchical" and self.host[a] == self.host[b] and self.intra is not None:
            return self.intra
        return self.inter

    def both_ways(self, a: int, b: int) -> tuple[Link, Link]:
        """Return the link from device `a` to device `b` and the one back, which gradients take."""
        return self.link(a, b), self.link(b, a)

    def transfer_seconds(self, a: int, b: int, size: float) -> float:
        """Return the time to move `size` bytes from device `a` to device `b`."""
        return 0.0 if a == b or size <= 0 else self.link(a, b).seconds(size)

    @cached_property
    def is_homogeneous(self) -> bool:
        """Whether all devices are equal but for their names and every pair has the same link."""
        same = all(bool((column == column[0]).all()) for column in (self.kind, *(getattr(self, c) for c in _COLUMNS)))
        return same and self.links in ("uniform", "none")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cluster) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.kinds, self.links, self.kind.tobytes(), self.memory_bytes.tobytes(), self.speed.tobytes()))

    def __repr__(self) -> str:
        counts = ", ".join(f"{int((self.kind == k).sum())} x {kind}" for k, kind in enumerate(self.kinds))
        return f"Cluster({counts}; links: {self.links})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (Cluster.from_json, (self.to_json(),))

    # -- files -------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version; equal columns are one value."""

        def column(values: NDArray[Any]) -> Any:
            cells = [None if math.isinf(v) else v for v in values.tolist()]
            return cells[0] if len(set(cells)) == 1 else cells

        data: dict[str, Any] = {
            "schema": SCHEMA,
            "version": VERSION,
            "count": self.n_devices,
            "kinds": list(self.kinds),
            "kind": column(self.kind),
            **{key: column(getattr(self, key)) for key in _COLUMNS},
        }
        if self.names is not None:
            data["names"] = list(self.names)
        if self.links == "hierarchical" or len(set(self.host.tolist())) != self.n_devices:
            data["host"] = self.host.tolist()
        if self.links == "matrix":
            assert self.latency is not None and self.bandwidth is not None
            data["links"] = {
                "latency": self.latency.tolist(),
                "bandwidth": [[None if math.isinf(b) else b for b in row] for row in self.bandwidth.tolist()],
            }
        elif self.links != "none":
            links = {"intra": self.intra, "inter": self.inter}
            data["links"] = {
                key: {"latency": v.latency, "bandwidth": None if math.isinf(v.bandwidth) else v.bandwidth}
                for key, v in links.items()
                if v is not None
            }
        return data

    @classmethod
    def from_json(cls, data: Any) -> Cluster:
        """Build from what `to_json` returns.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed.
        """
        from balance.problems.model.cluster_json import cluster_from_json

        return cluster_from_json(data)

    def save(self, path: str | Path) -> None:
        """Write the cluster as JSON; the file is replaced only when the new one is complete."""
        from balance.problems.model.files import write_json

        write_json(path, self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Cluster:
        """Read a cluster that `save` wrote, or a JSON list of devices.

        Raises
        ------
        FormatError
            If the file is not a cluster.
        """
        from balance.problems.model.files import read_json

        return read_json(path, cls.from_json)


class _Devices(Sequence[Device]):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def __len__(self) -> int:
        return self._cluster.n_devices

    @overload
    def __getitem__(self, i: int) -> Device: ...
    @overload
    def __getitem__(self, i: slice) -> list[Device]: ...
    def __getitem__(self, i: int | slice) -> Device | list[Device]:
        if isinstance(i, slice):
            return [self._cluster.device(j) for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"device {i} of {len(self)}")
        return self._cluster.device(i % len(self))

    def __iter__(self) -> Iterator[Device]:
        return (self._cluster.device(i) for i in range(len(self)))


def _equal(n: int, kind: str, memory_bytes: float, speed: float, price: float) -> dict[str, Any]:
    values = {"memory_bytes": memory_bytes, "speed": speed, "price": price}
    return {
        "kinds": (kind,),
        "kind": np.broadcast_to(np.int64(0), (n,)),
        **{key: np.broadcast_to(_numbers(key, value), (n,)) for key, value in values.items()},
        "names": None,
    }


def _numbers(key: str, values: ArrayLike) -> FloatArray:
    try:
        return frozen(values)
    except (TypeError, ValueError) as error:
        raise ClusterError(f"{key} must hold numbers: {error}", field=key) from None


def _link(latency: float | None, bandwidth: float | None) -> Link:
    return Link(0.0 if latency is None else latency, math.inf if bandwidth is None else bandwidth)
