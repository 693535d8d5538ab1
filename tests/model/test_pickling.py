"""What comes out of a pickle or a deep copy: equal, as small as before, and as read-only."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from balance.problems.model.assignment import Assignment
from balance.problems.model.cluster import Cluster, Link
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.plan import Plan, Replica, Stage
from balance.problems.model.simulate import simulate
from balance.problems.model.templates import build_schedule

GRAPH = CostGraph.chain(
    [1.0, 2.0, 3.0],
    backward=[2.0, 2.0, 2.0],
    bytes=4.0,
    activation_bytes=[1.0, 2.0, 3.0],
    colocation=["a", None, None],
    pinned=[0, None, None],
)
PLAN = Plan.chain([0, 1, 3], microbatches=2, schedule=build_schedule("1f1b", 2, 2))
MIXED = Plan((Stage([0, 1, 2], (Replica((1,)),), configuration=np.array([0, 1, 0])),))
FAST = Cluster.uniform(2, bandwidth=8.0)
TIMELINE = simulate(PLAN, GRAPH, FAST)
# Computed once and kept by the timeline, so that they must be read-only as well.
FIGURES = TIMELINE.busy, TIMELINE.peak_memory


def arrays(thing: Any, path: str = "") -> Iterator[tuple[str, np.ndarray]]:
    """Yield every array that an object holds, with the way to it."""
    if isinstance(thing, np.ndarray):
        yield path, thing
    elif isinstance(thing, (tuple, list)):
        for i, part in enumerate(thing):
            yield from arrays(part, f"{path}[{i}]")
    elif type(thing).__module__.startswith("balance."):
        names = getattr(type(thing), "__slots__", None) or vars(thing)
        for name in names:
            yield from arrays(getattr(thing, name), f"{path}.{name}")


@pytest.mark.parametrize("how", [lambda x: x, lambda x: pickle.loads(pickle.dumps(x)), copy.deepcopy])
@pytest.mark.parametrize(
    ("thing", "least"),
    [
        (GRAPH, 15),
        (GRAPH.replace(configurations=[Configuration(), Configuration(2)]), 15),
        (PLAN, 6),
        (MIXED, 2),
        (Assignment([0, 1, 0]), 1),
        (FAST, 5),
        (Cluster(FAST.devices, latency=np.ones((2, 2)), bandwidth=np.ones((2, 2))), 7),
        (TIMELINE, 25),
        (TIMELINE.footprint, 10),
    ],
    ids=lambda x: type(x).__name__,
)
def test_arrays_are_read_only(thing: Any, least: int, how: Any) -> None:
    """Before and after; the values are the same."""
    found = dict(arrays(how(thing)))
    assert len(found) >= least
    assert [path for path, array in found.items() if array.flags.writeable] == []
    before = dict(arrays(thing))  # with what was computed from it on the way, which is left behind
    for path, array in found.items():
        np.testing.assert_array_equal(array, before[path])


def test_broadcast_tables_stay_small() -> None:
    """A graph of many equal operators is pickled as the few numbers that it repeats, and comes back as such."""
    n = 50_000
    graph = CostGraph(forward=np.broadcast_to(1.0, (n,)), backward=2.0, parameter_bytes=8.0)
    text = pickle.dumps(graph)
    assert len(text) < 3 * n  # flags take a byte each
    again = pickle.loads(text)
    assert again == graph
    for key in ("forward", "backward", "parameter_bytes", "sync_bytes", "colocation", "pinned"):
        assert 0 in getattr(again, key).strides, key


def test_two_million_devices_travel_as_a_few_numbers() -> None:
    """Pickles and JSON of equal devices do not grow with their number."""
    cluster = Cluster.uniform(2_000_000, bandwidth=1e9, memory_bytes=8e9)
    text = pickle.dumps(cluster)
    assert len(text) < 2_000
    for again in (pickle.loads(text), Cluster.from_json(cluster.to_json())):
        assert again == cluster
        assert again.n_devices == 2_000_000
        assert again.memory_bytes.strides == (0,)
    assert cluster.with_link(bandwidth=2.0).link(0, 1) == Link(0.0, 2.0)
