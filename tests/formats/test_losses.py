"""What a format does not keep is refused or reported by `write`, never dropped in silence."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.formats import read, write
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.errors import FormatError
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import Tensor

TWO = {"accelerator": [1.0, 1.0], "cpu": [2.0, 2.0]}
PLACED = Cluster([Device("accelerator", 10.0), Device("cpu")])
LINKED = Cluster.uniform(2, memory_bytes=9.0, bandwidth=1.0)
MANY = {"microbatches": 4}


def _layers(**tables: Any) -> CostGraph:
    return CostGraph.chain([1.0, 2.0], backward=[2.0, 4.0], **tables)


@pytest.mark.parametrize(
    ("format", "instance", "sentence"),
    [
        (
            "device-placement",
            Instance(CostGraph(forward=TWO), PLACED.with_link(bandwidth=1e9)),
            r"the links \(uniform\)",
        ),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO), Cluster([Device("accelerator", 10.0, price=3.0), Device("cpu")])),
            "the column price",
        ),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO), Cluster([Device("accelerator", 10.0, name="a"), Device("cpu", name="b")])),
            "the names of devices",
        ),
        (
            "device-placement",
            Instance(
                CostGraph(forward=TWO),
                Cluster([Device("accelerator", 9.0, host=0), Device("accelerator", 9.0, host=0)]),
            ),
            "the hosts of devices",
        ),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO), PLACED, parameters=MANY),
            "parameter microbatches=4 is not",
        ),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO), PLACED, parameters={"send": "each"}),
            "parameter send='each' reads back as 'once'",
        ),
        ("device-placement", Instance(CostGraph(forward=TWO), PLACED, "piper-2021"), "the preset 'piper-2021'"),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO, tensors=[Tensor(0, (1,), 4.0, 7.0, seconds=1.0)]), PLACED),
            "gradient_bytes of tensors",
        ),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO, tensors=[Tensor(0, (1,), seconds=1.0, name="x")]), PLACED),
            "names of tensors",
        ),
        (
            "device-placement",
            Instance(CostGraph(forward=TWO, configurations=[Configuration(2)]), PLACED),
            "the configurations",
        ),
        ("pipedream", Instance(_layers(), LINKED), "the 2 devices are not in the file"),
        ("pipedream", Instance(_layers(backward_input=[1.0, 2.0])), "backward_input are not in the file"),
        ("pipedream", Instance(_layers(parameter_bytes=4.0)), "sync_bytes read back changed"),
        ("pipedream", Instance(CostGraph.chain({"gpu": [1.0]})), "device kinds gpu read back as device"),
        ("pipedream", Instance(_layers(names=["a b", "c"])), "names of operators"),
        ("piper", Instance(_layers(backward_weight=[1.0, 2.0]), LINKED, parameters=MANY), "backward_weight"),
        ("piper", Instance(CostGraph.chain([1.0], backward=[9.0]), LINKED, parameters=MANY), "times in forward"),
        (
            "piper",
            Instance(
                CostGraph(forward=[1.0] * 3, backward=[2.0] * 3, tensors=[Tensor(0, (1, 2), 4.0)]),
                LINKED,
                parameters=MANY,
            ),
            "1 tensors read back as 2",
        ),
    ],
)
def test_what_is_not_kept_is_reported(tmp_path: Path, format: str, instance: Instance, sentence: str) -> None:
    """The file is written, and a sentence names what it lacks."""
    lost = write(instance, tmp_path / "x", format)
    assert re.search(sentence, "; ".join(lost)) is not None, lost
    assert read(tmp_path / "x", format).graph.n_operators == instance.graph.n_operators


@pytest.mark.parametrize(
    ("format", "instance", "message"),
    [
        ("piper", Instance(CostGraph.chain([1.0]), LINKED, parameters=MANY), "forward and backward passes together"),
        ("piper", Instance(_layers(), LINKED, parameters={"microbatches": True}), "at least 1"),
        ("piper", Instance(_layers(), LINKED, parameters={"microbatches": 0}), "at least 1"),
        (
            "piper",
            Instance(
                CostGraph(forward=[1.0] * 2, backward=[1.0] * 2, tensors=[Tensor(0, (1,), gradient_seconds=2.0)]),
                LINKED,
                parameters=MANY,
            ),
            "sizes of tensors, not times",
        ),
        ("piper", Instance(CostGraph(forward=[]), LINKED, parameters=MANY), "nodes: is empty"),
        ("pipedream", Instance(CostGraph(forward=[])), "holds no nodes"),
        ("device-placement", Instance(CostGraph(forward={"accelerator": [], "cpu": []}), PLACED), "nodes: is empty"),
    ],
)
def test_a_file_that_would_mean_something_else_is_refused(
    tmp_path: Path, format: str, instance: Instance, message: str
) -> None:
    """A training graph must not come back for inference, nor a file be written that cannot be read."""
    with pytest.raises(FormatError, match=message):
        write(instance, tmp_path / "x", format)
    assert not (tmp_path / "x").exists()


@given(data=st.data())
def test_silence_means_equality(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Where `write` reports nothing, what is read back is what was given, whatever the graph holds."""
    n = data.draw(st.integers(1, 4))
    number = st.sampled_from([0.0, 0.25, 1.0, 3.0])
    column = st.lists(number, min_size=n, max_size=n)
    placed = data.draw(st.booleans())
    kinds = data.draw(st.permutations(["accelerator", "cpu"])) if placed else ["device"]
    forward = {kind: data.draw(column) for kind in kinds}
    given_seconds = data.draw(st.booleans())
    tables: dict[str, Any] = {"forward": forward}
    for key in ("backward", "parameter_bytes", "activation_bytes", "static_bytes", "sync_bytes"):
        if data.draw(st.integers(0, 2)) == 0:
            tables[key] = data.draw(column)
    if data.draw(st.integers(0, 3)) == 0:
        tables["backward_input"] = tables["backward_weight"] = data.draw(column)
    if data.draw(st.integers(0, 2)) == 0:
        tables["colocation"] = data.draw(st.lists(st.sampled_from([None, "a", "b"]), min_size=n, max_size=n))
    if data.draw(st.integers(0, 2)) == 0:
        tables["names"] = [f"n{i}" for i in range(n)]
    tensors = []
    for u in range(n - 1):
        readers = data.draw(st.lists(st.integers(u + 1, n - 1), unique=True, max_size=2))
        if readers:
            size = float(tables.get("activation_bytes", [0.0] * n)[u])
            seconds = data.draw(number) if given_seconds else None
            tensors.append(Tensor(u, tuple(sorted(readers)), data.draw(st.sampled_from([size, 2.0])), seconds=seconds))
    graph = CostGraph(**tables, tensors=tensors)
    price = data.draw(st.sampled_from([0.0, 1.0]))
    clusters: list[Cluster | None] = [
        None,
        Cluster([Device("accelerator", 8.0, price=price), Device("cpu")]),
        Cluster([Device("accelerator", 8.0), Device("cpu")], link=Link(0.0, 4.0)),
        Cluster.uniform(3, memory_bytes=8.0, bandwidth=4.0, price=price),
    ]
    instance = Instance(graph, data.draw(st.sampled_from(clusters)), parameters=data.draw(st.sampled_from([{}, MANY])))
    format = data.draw(st.sampled_from(["device-placement", "pipedream", "piper"]))
    path = tmp_path_factory.getbasetemp() / "silence"
    try:
        lost = write(instance, path, format)
    except FormatError:
        return
    back = read(path, format)
    same = back.graph.replace(names=graph.names, kinds=back.graph.kinds)
    if back.graph.kinds != graph.kinds and set(back.graph.kinds) == set(graph.kinds):
        order = [back.graph.kind_index(kind) for kind in graph.kinds]
        same = same.replace(forward=back.graph.forward[order], backward=back.graph.backward[order], kinds=graph.kinds)
    if lost:
        assert same != graph or back.cluster != instance.cluster or back.parameters != instance.parameters
        return
    assert same == graph
    if instance.cluster is not None:
        assert back.cluster is not None
        for key in ("kind", "memory_bytes", "speed", "price"):
            assert np.array_equal(getattr(back.cluster, key), getattr(instance.cluster, key))
        assert back.cluster.inter == instance.cluster.inter
    assert back.parameters.items() >= instance.parameters.items()


def test_rounding_in_another_unit_is_no_loss(tmp_path: Path) -> None:
    """Not every number of seconds is a number of milliseconds: the last digit may change, and only that."""
    rng = np.random.default_rng(0)
    graph = CostGraph.chain(rng.exponential(1e-3, 500), backward=rng.exponential(1e-3, 500))
    assert write(graph, tmp_path / "x.txt") == ()
    back = read(tmp_path / "x.txt").graph
    assert not np.array_equal(back.forward, graph.forward)
    assert np.allclose(back.forward, graph.forward, rtol=1e-15, atol=0.0)
    assert write(back, tmp_path / "y.txt") == ()
    assert read(tmp_path / "y.txt").graph == back  # what was rounded once stays as it is
