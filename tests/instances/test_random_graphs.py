"""Random graphs: each family has its shape, each law its mean, and the seed decides everything."""

from __future__ import annotations

import hashlib
from itertools import pairwise
from typing import Any

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.instances import generate
from balance.problems.instances.cost_law import CostLaw
from balance.problems.instances.random_graphs import (
    attention_dag,
    fork_join,
    layered_dag,
    random_chain,
    random_order_dag,
    random_tree,
    series_parallel,
)
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import CostGraph

FAMILIES: dict[str, dict[str, Any]] = {
    "attention_dag": {"blocks": 2, "heads": 3},
    "fork_join": {"branches": 3, "length": 2, "repeats": 2},
    "layered_dag": {"operators": 30, "layers": 5},
    "random_chain": {"operators": 30},
    "random_order_dag": {"operators": 30},
    "random_tree": {"operators": 30},
    "series_parallel": {"operators": 30},
}
RANDOM_STRUCTURE = ("layered_dag", "random_order_dag", "random_tree", "series_parallel")

# Families whose structure comes from uniform draws alone, which NumPy has kept from version to version.
RECORDED = {"layered_dag": "92c386173d15", "random_tree": "e0a14447d936", "series_parallel": "01be3b1ea350"}

sizes = st.integers(1, 60)
seeds = st.integers(0, 2**32)


def edges(graph: CostGraph) -> list[tuple[int, int]]:
    """Return the edges in order."""
    return list(zip(graph.tensors.edge_producer.tolist(), graph.tensors.consumers.tolist(), strict=True))


# -- seeds -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_the_seed_decides_everything(family: str) -> None:
    """The same seed gives the same hash, another seed another one."""
    first, again, other = (generate(family, {**FAMILIES[family], "seed": seed}) for seed in (5, 5, 6))
    assert first.hash == again.hash
    assert first.hash != other.hash
    assert first.source["parameters"] == {**first.source["parameters"], **FAMILIES[family], "seed": 5}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_law_leaves_the_structure_alone(family: str) -> None:
    """One seed gives one structure under every law; another seed another structure where structure is random."""
    laws: list[Any] = [None, "uniform", {"training": True, "kinds": ["a", "b"], "kind_spread": 1.0}, CostLaw(spread=0)]
    graphs = [generate(family, {**FAMILIES[family], "seed": 5, "law": law}) for law in laws]
    assert all(edges(graph) == edges(graphs[0]) for graph in graphs)
    other = generate(family, {**FAMILIES[family], "seed": 6})
    assert (edges(other) != edges(graphs[0])) == (family in RANDOM_STRUCTURE)


@pytest.mark.parametrize("family", FAMILIES)
def test_graphs_are_numbered_in_topological_order(family: str) -> None:
    """Every edge points upwards, and every producer has one tensor."""
    graph = generate(family, FAMILIES[family])
    assert all(u < v for u, v in edges(graph))
    assert len(set(graph.tensors.producer.tolist())) == graph.n_tensors
    assert graph.names is None


@pytest.mark.parametrize("family", RECORDED)
def test_structure_of_a_seed_stays(family: str) -> None:
    """The edges of seed 1 are those that were recorded, so that published results can be repeated."""
    graph = generate(family, {**FAMILIES[family], "seed": 1})
    assert hashlib.sha256(repr(edges(graph)).encode()).hexdigest()[:12] == RECORDED[family]


# -- families --------------------------------------------------------------------------------------------------


@given(sizes, seeds)
def test_chain(n: int, seed: int) -> None:
    """Operator i is read by i + 1 and by nobody else."""
    assert edges(random_chain(operators=n, seed=seed)) == [(i, i + 1) for i in range(n - 1)]


@given(st.data(), sizes, seeds)
def test_layers(data: st.DataObject, n: int, seed: int) -> None:
    """Layers differ by at most one operator, and everyone reads one to `fan_in` operators of the layer before."""
    depth, fan_in = data.draw(st.integers(1, n)), data.draw(st.integers(1, 4))
    graph = layered_dag(operators=n, layers=depth, fan_in=fan_in, seed=seed)
    found = networkx.DiGraph(edges(graph))
    found.add_nodes_from(range(n))
    layers = [sorted(layer) for layer in networkx.topological_generations(found)]
    assert len(layers) == depth
    assert [v for layer in layers for v in layer] == list(range(n))
    assert max(map(len, layers)) - min(map(len, layers)) <= 1
    for before, layer in pairwise(layers):
        for v in layer:
            assert 1 <= found.in_degree(v) <= fan_in
            assert set(found.predecessors(v)) <= set(before)


@given(st.integers(2, 60), seeds, st.floats(0, 1))
def test_series_parallel_graphs_reduce_to_one_edge(n: int, seed: int, parallel: float) -> None:
    """Merging operators with one way in and out, and parallel edges, leaves one edge: the definition."""
    found: networkx.MultiDiGraph[int] = networkx.MultiDiGraph(
        edges(series_parallel(operators=n, parallel=parallel, seed=seed))
    )
    assert found.number_of_nodes() == n
    assert [v for v in found if not found.pred[v]] == [0]
    assert [v for v in found if not found.succ[v]] == [n - 1]
    changed = True
    while changed:
        changed = False
        found = networkx.MultiDiGraph(networkx.DiGraph(found))  # parallel edges become one
        for v in list(found):
            if found.in_degree(v) == found.out_degree(v) == 1:
                (u,), (w,) = found.predecessors(v), found.successors(v)
                found.remove_node(v)
                found.add_edge(u, w)
                changed = True
                break
    assert list(found.edges()) == [(0, n - 1)]


def test_series_parallel_extremes() -> None:
    """Only series steps give a chain; only parallel steps leave the first edge."""
    assert edges(series_parallel(operators=20, parallel=0.0)) == [(i, i + 1) for i in range(19)]
    assert (0, 19) in edges(series_parallel(operators=20, parallel=1.0))


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4))
def test_fork_join(branches: int, length: int, repeats: int) -> None:
    """Between a fork and its join there are `branches` disjoint ways of `length` operators; the join forks next."""
    graph = fork_join(branches=branches, length=length, repeats=repeats)
    step = branches * length + 1
    assert graph.n_operators == 1 + repeats * step
    found = networkx.DiGraph(edges(graph))
    for r in range(repeats):
        paths = list(networkx.all_simple_paths(found, r * step, (r + 1) * step))
        assert len(paths) == branches
        assert all(len(path) == length + 2 for path in paths)
        inner = [v for path in paths for v in path[1:-1]]
        assert sorted(inner) == list(range(r * step + 1, (r + 1) * step))


@given(st.integers(1, 4), st.integers(1, 5))
def test_attention(blocks: int, heads: int) -> None:
    """Each head has one way through its scores from queries, one from keys, and one past them from values."""
    graph = attention_dag(blocks=blocks, heads=heads)
    step = 5 * heads + 3
    assert graph.n_operators == 1 + blocks * step
    found = networkx.DiGraph(edges(graph))
    for b in range(blocks):
        entry, norm, projection, output = (b * step + at for at in (0, 1, step - 1, step))
        assert set(found.successors(entry)) == {norm, output}
        assert found.out_degree(norm) == 3 * heads
        assert found.in_degree(projection) == heads
        assert set(found.predecessors(output)) == {entry, projection}
        lengths = sorted(len(path) - 1 for path in networkx.all_simple_paths(found, norm, projection))
        assert lengths == [3] * heads + [4] * 2 * heads


@given(sizes, seeds, st.sampled_from(["out", "in"]))
def test_tree(n: int, seed: int, direction: str) -> None:
    """There is one edge per operator but the root, and all hang together."""
    graph = random_tree(operators=n, direction=direction, seed=seed)
    found = networkx.DiGraph(edges(graph))
    found.add_nodes_from(range(n))
    assert networkx.is_arborescence(found if direction == "out" else found.reverse())
    root = 0 if direction == "out" else n - 1
    assert (found.in_degree if direction == "out" else found.out_degree)(root) == 0


@given(st.integers(1, 60), seeds, st.floats(0, 1))
def test_order_dag(n: int, seed: int, density: float) -> None:
    """Edges are pairs i < j, none twice; density 0 gives none and density 1 all."""
    graph = random_order_dag(operators=n, mean_readers=density * (n - 1) / 2, seed=seed)
    found = edges(graph)
    assert len(set(found)) == len(found)
    assert all(0 <= u < v < n for u, v in found)
    if density in (0, 1):
        assert len(found) == density * n * (n - 1) / 2


def test_order_dag_draws_pairs_uniformly() -> None:
    """Over 2,000 seeds every pair of six operators is an edge about as often as its probability says."""
    count = np.zeros((6, 6))
    for seed in range(2000):
        for u, v in edges(random_order_dag(operators=6, mean_readers=1.0, seed=seed)):
            count[u, v] += 1
    pairs = count[np.triu_indices(6, 1)] / 2000
    # Five standard deviations of a share of 0.4 in 2,000 draws.
    assert np.abs(pairs - 0.4).max() < 5 * np.sqrt(0.4 * 0.6 / 2000)


def test_large_pairs_are_decoded_exactly() -> None:
    """Pair numbers near 2e12, where floating point is coarse, still give i < j < n, in order."""
    graph = random_order_dag(operators=2_000_000, mean_readers=0.001)
    producer, consumer = graph.tensors.edge_producer, graph.tensors.consumers
    assert 1500 < graph.tensors.n_pins < 2500
    assert ((producer >= 0) & (producer < consumer) & (consumer < 2_000_000)).all()


# -- laws ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("law", ["lognormal", "uniform", "constant"])
def test_means_are_those_of_the_law(law: str) -> None:
    """Times, bytes and the ratio of communication to work have the means that were asked for."""
    chosen = CostLaw(
        distribution=law, spread=0.5, mean_seconds=2e-3, communication_ratio=3.0, bandwidth=1e9,
        mean_parameter_bytes=100.0, mean_activation_bytes=50.0, training=True,
    )  # fmt: skip
    graph = random_chain(operators=40_000, seed=3, law=chosen)
    assert graph.forward.mean() == pytest.approx(2e-3, rel=0.02)
    assert (graph.tensors.bytes / 1e9).mean() / graph.forward.mean() == pytest.approx(3.0, rel=0.02)
    assert graph.parameter_bytes.mean() == pytest.approx(100.0, rel=0.02)
    assert graph.activation_bytes.mean() == pytest.approx(50.0, rel=0.02)
    assert np.array_equal(graph.backward, 2 * graph.forward)
    spread = {"lognormal": np.sqrt(np.expm1(0.25)), "uniform": 0.5 / np.sqrt(3), "constant": 0.0}[law]
    assert graph.forward.std() / 2e-3 == pytest.approx(spread, rel=0.05, abs=1e-9)


def test_log_normal_costs_are_log_normal() -> None:
    """Logarithms have the spread as their deviation."""
    logs = np.log(random_chain(operators=40_000, law=CostLaw(spread=1.5)).forward)
    assert logs.std() == pytest.approx(1.5, rel=0.02)


def test_kinds_differ_by_their_spread() -> None:
    """Without a spread kinds are alike, with one their ratio is log-normal with the spread of two draws."""
    alike = random_chain(operators=10, law={"kinds": ["a", "b"]})
    assert np.array_equal(alike.forward[0], alike.forward[1])
    apart = random_chain(operators=40_000, law={"kinds": ["a", "b"], "kind_spread": 0.5})
    assert np.log(apart.forward[0] / apart.forward[1]).std() == pytest.approx(0.5 * np.sqrt(2), rel=0.02)


def test_no_spread_is_the_mean_itself() -> None:
    """Zero of either sign makes every cost its mean."""
    for spread in (0.0, -0.0):
        assert set(random_chain(operators=5, law={"spread": spread}).forward.ravel().tolist()) == {1e-3}


def test_inference_is_the_default() -> None:
    """Without training there is no backward pass; with it, the parts add up to the whole."""
    assert random_chain(operators=3).style == "inference"
    graph = random_chain(operators=3, law={"training": True})
    assert graph.style == "layers"
    assert graph.backward_input is not None
    assert graph.backward_weight is not None
    assert np.array_equal(graph.backward, graph.backward_input + graph.backward_weight)


# -- wrong input -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "arguments", "message"),
    [
        ("random_chain", {"operators": 0}, "operators must be between 1"),
        ("random_chain", {"operators": 10**9}, "at most 20000000"),
        ("random_chain", {"operators": 3, "seed": -1}, "seed must be between 0"),
        ("random_chain", {"operators": 3, "law": "log-normal"}, "did you mean 'lognormal'"),
        ("random_chain", {"operators": 3, "law": {"spreed": 1}}, "did you mean 'spread'"),
        ("random_chain", {"operators": 3, "law": {"distribution": "uniform", "spread": 2}}, "spread must be at most 1"),
        ("random_chain", {"operators": 3, "law": {"mean_seconds": 0}}, "mean_seconds must be above 0"),
        ("random_chain", {"operators": 3, "law": {"kinds": [1]}}, "kinds must be names"),
        ("random_chain", {"operators": 3, "law": 7}, "law must be a CostLaw or a mapping"),
        ("layered_dag", {"operators": 3, "layers": 4}, "cannot fill 4 layers"),
        ("layered_dag", {"operators": 10**6, "fan_in": 10**6}, "at most 20000000"),
        ("series_parallel", {"operators": 1}, "operators must be between 2"),
        ("series_parallel", {"operators": 5, "parallel": 1.5}, "parallel must be at most 1"),
        ("fork_join", {"branches": 0}, "branches must be between 1"),
        ("fork_join", {"branches": 10**5, "length": 10**5}, "at most 20000000"),
        ("attention_dag", {"heads": None}, "heads must be a whole number"),
        ("random_tree", {"operators": 5, "direction": "up"}, "direction cannot be 'up'"),
        ("random_order_dag", {"operators": 3, "mean_readers": 2}, "more than"),
    ],
)
def test_wrong_arguments_are_named(family: str, arguments: dict[str, Any], message: str) -> None:
    """Each bad argument is an error that says which one and what would do."""
    with pytest.raises(OptionError, match=message):
        generate(family, arguments)
