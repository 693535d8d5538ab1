"""Model room: clusters from ``networkx`` graphs of devices."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from balance.problems.model.cluster import Cluster
from balance.problems.model.devices import Device, link_of
from balance.problems.model.errors import ClusterError

if TYPE_CHECKING:
    import networkx


def from_networkx(graph: networkx.Graph[Any]) -> Cluster:
    """Build a cluster from a network of devices, see `Cluster.from_networkx`.

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
        link_of(data.get("latency"), data.get("bandwidth"))  # refuses values out of range

    def mebibyte(u: Any, v: Any, data: dict[str, Any]) -> float:
        return link_of(data.get("latency"), data.get("bandwidth")).seconds(2.0**20)

    n = len(vertices)
    latency, bandwidth = np.zeros((n, n)), np.full((n, n), np.inf)
    for a, u in enumerate(vertices):
        paths = networkx.single_source_dijkstra_path(graph, u, weight=mebibyte)
        for b, v in enumerate(vertices):
            if v not in paths:
                raise ClusterError(f"there is no path between the devices {u!r} and {v!r}")
            edges = [graph.edges[hop] for hop in zip(paths[v], paths[v][1:], strict=False)]
            hops = [link_of(data.get("latency"), data.get("bandwidth")) for data in edges]
            latency[a, b] = sum(hop.latency for hop in hops)
            bandwidth[a, b] = min((hop.bandwidth for hop in hops), default=math.inf)
    return Cluster(rows, latency=latency, bandwidth=bandwidth)
