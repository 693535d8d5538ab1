"""Model room: the cluster, devices and the links between them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from balance.problems.model.device_columns import DEVICE_NUMBERS, checked, equal_devices, link_matrices, numbers
from balance.problems.model.devices import LOCAL, Device, DeviceList, Link, link_of
from balance.problems.model.errors import ClusterError
from balance.problems.model.tensors import FloatArray, IntArray, shrunk

if TYPE_CHECKING:
    import networkx

__all__ = ["LOCAL", "SCHEMA", "VERSION", "Cluster", "Device", "Link"]

SCHEMA = "dnn-balance/cluster"
VERSION = 1


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
            **{key: numbers(key, [getattr(row, key) for row in rows]) for key in DEVICE_NUMBERS},
            host=np.array([hosts[("own", i) if r.host is None else r.host] for i, r in enumerate(rows)], np.int64),
            names=None if all(n is None for n in named) else tuple(n or f"#{i}" for i, n in enumerate(named)),
        )
        self._connect(link, intra, inter, latency, bandwidth)

    def _fill(self, **columns: Any) -> None:
        for key, value in checked(columns).items():
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
            tables = link_matrices(latency, bandwidth, self.n_devices)
            put(self, "latency", tables[0])
            put(self, "bandwidth", tables[1])
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
        link = None if latency is None and bandwidth is None else link_of(latency, bandwidth)
        return cls.from_columns({**equal_devices(n, kind, memory_bytes, speed, price), "host": np.arange(n)}, link=link)

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
        columns = {**equal_devices(n, kind, memory_bytes, speed, price), "host": np.arange(n) // devices_per_host}
        return cls.from_columns(columns, intra=intra, inter=inter)

    @classmethod
    def from_columns(
        cls,
        columns: Mapping[str, Any],
        *,
        link: Link | None = None,
        intra: Link | None = None,
        inter: Link | None = None,
        latency: ArrayLike | None = None,
        bandwidth: ArrayLike | None = None,
    ) -> Cluster:
        """Return a cluster from the arrays that it holds; with broadcast ones, devices cost next to nothing.

        Parameters
        ----------
        columns
            ``kinds`` and ``names`` (or None), and arrays of shape (n,): ``kind`` and ``host`` (numbered by first
            appearance), ``memory_bytes``, ``speed``, ``price``.
        link, intra, inter, latency, bandwidth
            As in the constructor.

        Raises
        ------
        ClusterError
            As the constructor.
        """
        self = cls.__new__(cls)
        self._fill(**columns)
        self._connect(link, intra, inter, latency, bandwidth)
        return self

    @property
    def columns(self) -> dict[str, Any]:
        """What `from_columns` takes to make the same devices."""
        return {key: getattr(self, key) for key in ("kinds", "kind", *DEVICE_NUMBERS, "host", "names")}

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
        from balance.problems.model.cluster_networkx import from_networkx

        return from_networkx(graph)

    def with_link(self, *, latency: float | None = None, bandwidth: float | None = None) -> Cluster:
        """Return the same devices with one uniform link."""
        return Cluster.from_columns(self.columns, link=link_of(latency, bandwidth))

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
        return DeviceList(self.n_devices, self.device)

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
        same = all(
            bool((column == column[0]).all()) for column in (self.kind, *(getattr(self, c) for c in DEVICE_NUMBERS))
        )
        return same and self.links in ("uniform", "none")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cluster) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.kinds, self.links, self.kind.tobytes(), self.memory_bytes.tobytes(), self.speed.tobytes()))

    def __repr__(self) -> str:
        counts = ", ".join(f"{int((self.kind == k).sum())} x {kind}" for k, kind in enumerate(self.kinds))
        return f"Cluster({counts}; links: {self.links})"

    def __reduce__(self) -> tuple[Any, ...]:
        # Columns of equal numbers travel as one number, whatever the number of devices.
        columns = {key: shrunk(v) if isinstance(v, np.ndarray) else v for key, v in self.columns.items()}
        if bool((self.host == np.arange(self.n_devices)).all()):
            columns["host"] = None
        ways = ("inter" if self.links == "hierarchical" else "link", "intra", "latency", "bandwidth")
        links = dict(zip(ways, (self.inter, self.intra, self.latency, self.bandwidth), strict=True))
        return (_rebuild, (self.n_devices, columns, links))

    # -- files -------------------------------------------------------------------------------------------------

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version; equal columns are one value."""
        from balance.problems.model.cluster_json import cluster_to_json

        return cluster_to_json(self)

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


def _rebuild(n: int, columns: dict[str, Any], links: dict[str, Any]) -> Cluster:
    host = columns["host"]
    spread = {key: np.broadcast_to(v, (n,)) if isinstance(v, np.ndarray) else v for key, v in columns.items()}
    return Cluster.from_columns({**spread, "host": np.arange(n) if host is None else host}, **links)
