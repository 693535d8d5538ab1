"""Clusters: devices and links in every form."""

from __future__ import annotations

import copy
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.cluster import LOCAL, Cluster, Device, Link
from balance.problems.model.errors import ClusterError, FormatError

INF = float("inf")


def test_links_take_latency_and_bandwidth() -> None:
    """Seconds are latency + bytes / bandwidth, and nothing to send takes no time."""
    link = Link(0.5, 4.0)
    assert link.seconds(8.0) == 2.5
    assert link.seconds(0.0) == 0.0
    assert Link().seconds(1e30) == 0.0
    for bad in ({"latency": -1}, {"latency": INF}, {"latency": np.nan}, {"bandwidth": 0}, {"bandwidth": np.nan}):
        with pytest.raises(ClusterError, match="link"):
            Link(**bad)


def test_uniform_clusters() -> None:
    """Equal devices; without a speed no link is known, and asking for one says how to give it."""
    cluster = Cluster.uniform(3, kind="gpu", memory_bytes=8.0, speed=2.0, price=0.5, latency=0.1)
    assert (cluster.n_devices, len(cluster), cluster.kinds, cluster.links) == (3, 3, ("gpu",), "uniform")
    assert cluster.device(2) == Device("gpu", 8.0, 2.0, 0.5, None, 2)
    assert cluster.link(0, 1) == Link(0.1, INF)
    assert cluster.link(1, 1) is LOCAL
    assert cluster.transfer_seconds(0, 1, 5.0) == 0.1
    assert cluster.transfer_seconds(0, 0, 5.0) == 0.0
    silent = Cluster.uniform(2)
    assert silent.links == "none"
    assert silent.transfer_seconds(0, 1, 0.0) == 0.0
    with pytest.raises(ClusterError, match="no link speed is known between device 0 and device 1: give bandwidth="):
        silent.transfer_seconds(0, 1, 1.0)
    assert silent.with_link(bandwidth=2.0).transfer_seconds(0, 1, 1.0) == 0.5


def test_hierarchical_clusters() -> None:
    """Devices of one host are next to each other and use the inner link."""
    cluster = Cluster.hierarchical(2, 3, intra=Link(0.0, 10.0), inter=Link(1.0, 1.0))
    assert cluster.host.tolist() == [0, 0, 0, 1, 1, 1]
    assert cluster.transfer_seconds(0, 2, 10.0) == 1.0
    assert cluster.transfer_seconds(2, 3, 10.0) == 11.0
    assert not cluster.is_homogeneous
    assert Cluster.uniform(2).is_homogeneous
    assert not Cluster([Device(), Device(speed=2.0)]).is_homogeneous


def test_matrices_are_by_ordered_pair() -> None:
    """Links may differ by direction; the diagonal is not looked at."""
    devices = [Device("a"), Device("b")]
    cluster = Cluster.from_matrix(devices, latency=[[INF, 1], [2, np.nan]], bandwidth=[[0, 4], [8, -1]])
    assert cluster.transfer_seconds(0, 1, 8.0) == 3.0
    assert cluster.transfer_seconds(1, 0, 8.0) == 3.0
    assert cluster.link(1, 0) == Link(2.0, 8.0)
    assert Cluster.from_json(json.loads(json.dumps(cluster.to_json(), allow_nan=False))) == cluster


def test_networks_are_routed_over_the_fastest_path() -> None:
    """A pair without a link of its own adds latencies up and takes the narrowest bandwidth."""
    graph = nx.Graph()
    graph.add_node("a", kind="gpu", memory_bytes=5.0)
    graph.add_node("b")
    graph.add_node("c", host="h")
    graph.add_edge("a", "b", latency=1.0, bandwidth=2.0**20)
    graph.add_edge("b", "c", latency=2.0, bandwidth=2.0**19)
    graph.add_edge("a", "c", latency=100.0)
    cluster = Cluster.from_networkx(graph)
    assert cluster.names == ("a", "b", "c")
    assert cluster.device(0).memory_bytes == 5.0
    assert cluster.link(0, 2) == Link(3.0, 2.0**19)
    assert all(set(data) <= {"latency", "bandwidth"} for _, _, data in graph.edges(data=True))
    lone = graph.copy()
    lone.add_node("d")
    for bad, message in (
        (lone, "no path between the devices 'a' and 'd'"),
        (nx.MultiGraph([(0, 1), (0, 1)]), "multigraph"),
        (nx.Graph([(0, 1, {"speed": 1})]), "unknown attribute 'speed'"),
        (nx.Graph([(0, 1, {"bandwidth": 0.0})]), "bandwidth must be positive"),
    ):
        with pytest.raises(ClusterError, match=message):
            Cluster.from_networkx(bad)
    nx.set_node_attributes(graph, 1, "cores")
    with pytest.raises(ClusterError, match="unknown attribute 'cores'"):
        Cluster.from_networkx(graph)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Cluster([]), "at least one device"),
        (lambda: Cluster.uniform(0), "at least one device"),
        (lambda: Cluster.hierarchical(0, 1, intra=LOCAL, inter=LOCAL), "at least one device"),
        (lambda: Cluster([Device(memory_bytes=-1)]), "device 0 has memory_bytes = -1.0; it must not be negative"),
        (lambda: Cluster([Device(), Device(memory_bytes=np.nan)]), "device 1 has memory_bytes = nan"),
        (lambda: Cluster.uniform(2, speed=0), "speed = 0.0; it must be positive"),
        (lambda: Cluster.uniform(2, price=INF), "price = inf"),
        (lambda: Cluster.uniform(2, memory_bytes="8 GB"), "memory_bytes must hold numbers"),  # type: ignore[arg-type]
        (lambda: Cluster([Device(speed="fast")]), "speed must hold numbers"),  # type: ignore[arg-type]
        (lambda: Cluster([Device(name="x"), Device(name="x")]), "two devices are named 'x'"),
        (lambda: Cluster([Device("")]), "non-empty strings"),
        (lambda: Cluster([Device()], link=LOCAL, intra=LOCAL), "one way"),
        (lambda: Cluster([Device()], intra=LOCAL), "need both"),
        (lambda: Cluster([Device()], latency=[[0]]), "come together"),
        (lambda: Cluster([Device()], latency=[[0, 0]], bandwidth=[[1]]), "latency matrix has shape"),
        (
            lambda: Cluster([Device()] * 2, latency=[[0, -1], [0, 0]], bandwidth=np.ones((2, 2))),
            "link 0 -> 1 has latency",
        ),
        (
            lambda: Cluster([Device()] * 2, latency=np.ones((2, 2)), bandwidth=[[1, 1], [0, 1]]),
            "link 1 -> 0 has bandwidth",
        ),
        (lambda: Cluster.uniform(2).device(2), "there is no device 2"),
    ],
)
def test_bad_clusters_are_refused(make: Any, message: str) -> None:
    """Values out of range, doubled names and mixed links are refused by name."""
    with pytest.raises(ClusterError, match=message):
        make()


@given(data=st.data())
def test_clusters_round_trip(clusters: st.SearchStrategy[Cluster], data: st.DataObject) -> None:
    """JSON, pickling and copying keep every device and every link."""
    cluster = data.draw(clusters)
    text = json.dumps(cluster.to_json(), allow_nan=False)
    for other in (Cluster.from_json(json.loads(text)), pickle.loads(pickle.dumps(cluster)), copy.deepcopy(cluster)):
        assert other == cluster
        assert hash(other) == hash(cluster)
        assert list(other.devices) == list(cluster.devices)
        if cluster.links != "none":
            n = range(cluster.n_devices)
            assert [[other.link(a, b) for b in n] for a in n] == [[cluster.link(a, b) for b in n] for a in n]


def test_saving_and_loading(tmp_path: Path) -> None:
    """A saved cluster loads; so does a list of devices that a person wrote."""
    cluster = Cluster.hierarchical(2, 2, intra=Link(0.0, 2.0), inter=Link(1.0, 1.0))
    cluster.save(tmp_path / "c.json")
    assert Cluster.load(tmp_path / "c.json") == cluster
    (tmp_path / "d.json").write_text('[{"kind": "gpu", "memory_bytes": 8, "count": 2}, {"name": "x", "host": 1}]')
    written = Cluster.load(tmp_path / "d.json")
    assert [d.kind for d in written.devices] == ["gpu", "gpu", "device"]
    assert written.links == "none"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "at least one device"),
        ([5], r"devices\[0\]: expected an object"),
        ([{"count": 0}], "at least 1"),
        ([{"count": 10**9}], "more than"),
        ([{"count": 10**6}, {}], "more than"),
        ([{"count": 2, "name": "x"}], "names are unique"),
        ([{"host": 1.5}], "string or an integer"),
        ([{"memory": 1}], "did you mean 'memory_bytes'"),
        ([{"speed": 0}], "must be positive"),
        ({"devices": [{}], "links": {"latency": -1}}, "at least 0"),
        ({"devices": [{}], "links": {"bandwidth": 0}}, "must be positive"),
        ({"devices": [{}], "links": {"intra": {}}}, "need both"),
        ({"devices": [{}], "links": {"speed": 1}}, "not a known field"),
        ({"devices": [{}], "links": {"latency": [[0]], "bandwidth": [[1, 2]]}}, "expected 1"),
        ({"devices": [{}], "links": {"latency": [[0]]}}, "missing"),
        ({"schema": "dnn-balance/graph", "version": 1}, "expected 'dnn-balance/cluster'"),
    ],
)
def test_bad_files_are_refused(data: Any, message: str) -> None:
    """Each defect of a hand-written file gives a FormatError."""
    with pytest.raises(FormatError, match=message):
        Cluster.from_json(data)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("count", 10**12, "more than"),
        ("kind", [0, 5], "names kind 5"),
        ("kind", [0, 0.5], "whole number"),
        ("kinds", [1], "expected a string"),
        ("names", [[], "b"], "expected a string"),
        ("names", ["a"], "has 1 entries, expected 2"),
        ("host", [[], 1], "string or an integer"),
        ("host", [True, 1], "string or an integer"),
        ("speed", [1, None], "expected a number"),
        ("memory_bytes", [1], "has 1 entries"),
    ],
)
def test_bad_columns_are_refused(field: str, value: Any, message: str) -> None:
    """Each defect of a written file gives a FormatError."""
    data = Cluster.uniform(2, bandwidth=1.0).to_json()
    data[field] = value
    with pytest.raises(FormatError, match=message):
        Cluster.from_json(data)


def test_ten_thousand_devices_need_no_matrix() -> None:
    """Uniform and hierarchical clusters hold a few arrays of n entries at most."""
    for cluster in (
        Cluster.uniform(10_000, bandwidth=1.0),
        Cluster.hierarchical(1250, 8, intra=Link(0.0, 2.0), inter=Link(0.0, 1.0)),
    ):
        held = {id(a.base if a.base is not None else a): a for a in vars(cluster).values() if isinstance(a, np.ndarray)}
        assert sum(sys.getsizeof(a.base if a.base is not None else a) for a in held.values()) < 10 * 8 * 10_000
        assert cluster.devices[-1] == cluster.device(9999)
        assert len(cluster.devices[10:20]) == 10
        with pytest.raises(IndexError):
            cluster.devices[10_000]


def test_clusters_cannot_be_changed() -> None:
    """Arrays are read-only and do not alias the caller's."""
    latency = np.zeros((2, 2))
    cluster = Cluster([Device(), Device()], latency=latency, bandwidth=np.ones((2, 2)))
    latency[0, 1] = 7.0
    assert cluster.link(0, 1).latency == 0.0
    for array in (
        cluster.latency,
        cluster.kind,
        cluster.memory_bytes,
        Cluster.uniform(3).speed,
        Cluster.uniform(1).host,
    ):
        assert array is not None
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
    assert latency[0, 0] == 0.0


def test_networkx_links_may_leave_values_open() -> None:
    """None is the default on a link, as it is in every other constructor."""
    graph = nx.Graph()
    graph.add_edge("a", "b", latency=None, bandwidth=2.0)
    graph.add_edge("b", "c", latency=0.5, bandwidth=None)
    assert Cluster.from_networkx(graph).link(0, 2) == Link(0.5, 2.0)
