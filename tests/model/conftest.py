"""Graphs and clusters drawn by Hypothesis, shared by the tests of the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import BYTES, Configuration, CostGraph
from balance.problems.model.tensors import Tensor

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 5e-324, 1e-9, 1e300]), st.floats(0, 1e12), st.integers(0, 2**40).map(float)
)


@st.composite
def _graphs(draw: st.DrawFn) -> CostGraph:
    """Draw a graph of up to six operators that uses any mix of the model's features."""
    n, k, c = draw(st.integers(1, 6)), draw(st.integers(1, 2)), draw(st.integers(1, 2))

    def table(*shape: int, cells: st.SearchStrategy[float] = NUMBERS) -> Any:
        size = int(np.prod(shape))
        return np.array(draw(st.lists(cells, min_size=size, max_size=size))).reshape(shape)

    rank = draw(st.permutations(range(n)))
    tensors = []
    for _ in range(draw(st.integers(0, 6)) if n > 1 else 0):
        producer = draw(st.integers(0, n - 1))
        later = [v for v in range(n) if rank[v] > rank[producer]]
        if later:
            readers = draw(st.lists(st.sampled_from(later), min_size=1, unique=True))
            optional = [draw(st.none() | NUMBERS) for _ in range(3)]
            tensors.append(
                Tensor(producer, tuple(readers), draw(NUMBERS), *optional, draw(st.none() | st.text(max_size=2)))
            )
    names = draw(st.none() | st.lists(st.text(min_size=1, max_size=3), min_size=n, max_size=n, unique=True))
    style = draw(st.sampled_from(["inference", "layers", "split", "operators"]))
    split = style == "split"
    sizes = draw(st.sampled_from(["none", "plain", "tables"]))
    return CostGraph(
        forward=table(k, c, n, cells=NUMBERS | st.just(np.inf)),
        backward=table(k, c, n) if style in ("layers", "split") else 0.0,
        backward_input=table(k, c, n) if split else None,
        backward_weight=table(k, c, n) if split else None,
        **{key: 0.0 if sizes == "none" else table(n) if sizes == "plain" else table(c, n) for key in BYTES},
        kinds=["a", "b"][:k],
        configurations=[Configuration(), Configuration(2, True, draw(st.none() | st.integers(1, 4)))][:c],
        names=names,
        colocation=draw(st.none() | st.lists(st.none() | st.sampled_from("xyz"), min_size=n, max_size=n)),
        pinned=draw(st.none() | st.lists(st.integers(-1, 3), min_size=n, max_size=n)),
        is_backward=draw(st.lists(st.booleans(), min_size=n, max_size=n)) if style == "operators" else None,
        tensors=tensors,
        name=draw(st.text(max_size=3)),
    )


@st.composite
def _clusters(draw: st.DrawFn) -> Cluster:
    """Draw a cluster of up to five devices with any kind of links."""
    n = draw(st.integers(1, 5))
    positive = st.floats(1e-3, 1e12)
    limit = st.just(float("inf")) | st.floats(0, 1e12)
    links = st.builds(Link, st.floats(0, 10), positive | st.just(float("inf")))
    named = draw(st.booleans())
    devices = [
        Device(
            draw(st.sampled_from(["a", "b"])),
            draw(limit),
            draw(positive),
            draw(st.floats(0, 10)),
            f"d{i}" if named and draw(st.booleans()) else None,
            draw(st.none() | st.sampled_from(["h", 0, 1])),
        )
        for i in range(n)
    ]
    way = draw(st.sampled_from(["none", "uniform", "hierarchical", "matrix"]))
    if way == "uniform":
        return Cluster(devices, link=draw(links))
    if way == "hierarchical":
        return Cluster(devices, intra=draw(links), inter=draw(links))
    if way == "matrix":
        cells = [[draw(links) for _ in range(n)] for _ in range(n)]
        return Cluster(
            devices,
            latency=[[link.latency for link in row] for row in cells],
            bandwidth=[[link.bandwidth for link in row] for row in cells],
        )
    return Cluster(devices)


@pytest.fixture(scope="session")
def graphs() -> st.SearchStrategy[CostGraph]:
    """Return a strategy for cost graphs."""
    return _graphs()


@pytest.fixture(scope="session")
def clusters() -> st.SearchStrategy[Cluster]:
    """Return a strategy for clusters."""
    return _clusters()


@pytest.fixture
def layers() -> CostGraph:
    """Return the worked layer graph: four layers, one of whose tensors is read twice."""
    return CostGraph(
        forward=[1.0, 2.0, 3.0, 2.0],
        backward=[2.0, 4.0, 6.0, 4.0],
        parameter_bytes=[10.0, 20.0, 30.0, 40.0],
        activation_bytes=[4.0, 8.0, 8.0, 2.0],
        names=["embedding", "attention", "mlp", "head"],
        tensors=[
            Tensor("embedding", ("attention", "head"), bytes=6.0),
            Tensor("attention", ("mlp",), bytes=4.0),
            Tensor("mlp", ("head",), bytes=2.0, gradient_bytes=1.0),
        ],
        name="four layers",
    )


@pytest.fixture
def operators() -> CostGraph:
    """Return the worked operator graph: two forward operators with their backward operators."""
    return CostGraph(
        forward=[1.0, 2.0, 4.0, 2.0],
        static_bytes=[100.0, 200.0, 0.0, 0.0],
        names=["first", "second", "second gradient", "first gradient"],
        colocation=["a", "b", "b", "a"],
        is_backward=[False, False, True, True],
        tensors=[
            Tensor("first", ("second", "first gradient"), bytes=8.0),
            Tensor("second", ("second gradient",), bytes=4.0),
            Tensor("second gradient", ("first gradient",), bytes=8.0),
        ],
        name="four operators",
    )
