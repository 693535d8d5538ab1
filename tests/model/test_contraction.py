"""Blocks of operators that stages hold whole, and the order between them: by hand, and against all stagings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.contraction import colocation_classes, contract, merge_free_leaves, order_edges
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import Tensor


def chain(*pairs: tuple[int, int]) -> list[Tensor]:
    """Return one tensor for each pair of producer and reader."""
    return [Tensor(a, (b,), seconds=1.0) for a, b in pairs]


def edges(graph: CostGraph, label: Any) -> set[tuple[int, int]]:
    """Return the order between classes as pairs."""
    source, target = order_edges(graph, np.asarray(label))
    return set(zip(source.tolist(), target.tolist(), strict=True))


def partition(label: Any) -> set[frozenset[int]]:
    """Return the groups behind labels, whatever their numbers."""
    members: dict[int, set[int]] = {}
    for v, name in enumerate(np.asarray(label).tolist()):
        members.setdefault(name, set()).add(v)
    return {frozenset(group) for group in members.values()}


# Forward f0 -> f1, backward b1 -> o -> b0; o is the only one without a mate.
ORPHAN = CostGraph(
    forward=[1.0] * 5,
    is_backward=[False, False, True, True, True],
    colocation=["zero", "one", "one", None, "zero"],
    tensors=chain((0, 1), (1, 2), (2, 3), (3, 4)),
)

# As in a graph whose parameter a has a gradient that passes an operator without a mate; a takes no time.
# Backward ab -> o -> bb: the stage of b is not after that of o, which is not after that of a.
FREE_END = CostGraph(
    forward=[3.0, 0.0, 3.0, 0.0, 0.0],
    is_backward=[False, False, True, True, True],
    colocation=["b", "a", None, "a", "b"],
    names=["bf", "af", "o", "ab", "bb"],
    tensors=[Tensor(3, (2,)), Tensor(2, (4,))],
)


def test_classes_are_numbered_by_their_first_member() -> None:
    """Labels "x" of 0 and 3 and "y" of 2 and 4, 1 alone: 0 1 2 0 2; without labels everybody is alone."""
    graph = CostGraph(forward=[1.0] * 5, colocation=["x", None, "y", "x", "y"])
    assert colocation_classes(graph).tolist() == [0, 1, 2, 0, 2]
    assert colocation_classes(CostGraph(forward=[1.0] * 3)).tolist() == [0, 1, 2]


def test_every_tensor_orders_its_ends() -> None:
    """Without backward operators each reader comes after the producer, what stays within a class orders nothing."""
    graph = CostGraph(forward=[1.0] * 3, tensors=[Tensor(0, (1, 2)), Tensor(1, (2,))])
    assert edges(graph, [0, 1, 2]) == {(0, 1), (0, 2), (1, 2)}
    assert edges(graph, [0, 0, 1]) == {(0, 1)}


def test_layer_graphs_are_ordered_by_their_tensors() -> None:
    """Backward columns do not change the order: gradients run against it by themselves."""
    graph = CostGraph(forward=[1.0, 1.0], backward=[2.0, 2.0], tensors=chain((0, 1)))
    assert edges(graph, [0, 1]) == {(0, 1)}


def test_backward_operators_with_mates_order_nothing() -> None:
    """Both ends of b1 -> b0 have mates, f1 -> b1 joins the phases: only f0 -> f1 counts."""
    graph = CostGraph(
        forward=[1.0] * 4,
        is_backward=[False, False, True, True],
        colocation=["zero", "one", "one", "zero"],
        tensors=chain((0, 1), (1, 2), (2, 3)),
    )
    assert edges(graph, colocation_classes(graph)) == {(0, 1)}


def test_orphans_lie_between_what_they_join_reversed() -> None:
    """b1 -> o -> b0: o is not before zero and not after one."""
    assert colocation_classes(ORPHAN).tolist() == [0, 1, 1, 2, 0]
    assert edges(ORPHAN, colocation_classes(ORPHAN)) == {(0, 1), (0, 2), (2, 1)}


def test_an_orphan_stays_one_when_it_is_joined_to_others() -> None:
    """With o joined to a the class has a forward operator, but b still lies before it."""
    assert edges(FREE_END, [0, 1, 2, 1, 0]) == {(0, 2), (2, 1)}
    assert edges(FREE_END, [0, 1, 1, 1, 0]) == {(0, 1)}


def test_contracting_keeps_the_order_of_a_joined_orphan() -> None:
    """Two blocks with b first; without the edge b could be the last stage."""
    blocks = contract(FREE_END, merge_free_leaves(FREE_END, colocation_classes(FREE_END)))
    assert blocks.block.tolist() == [0, 1, 1, 1, 0]
    assert (blocks.source.tolist(), blocks.target.tolist()) == ([0], [1])


def test_an_orphan_in_a_cycle_keeps_the_others_in_order() -> None:
    """Backward xb -> p -> xc makes p one block with x; p -> zb still puts z before both."""
    graph = CostGraph(
        forward=[1.0] * 6,
        is_backward=[False, False, True, True, True, True],
        colocation=["x", "z", "x", None, "x", "z"],
        names=["xf", "zf", "xb", "p", "xc", "zb"],
        tensors=[Tensor(2, (3,)), Tensor(3, (4, 5))],
    )
    blocks = contract(graph)
    assert blocks.block.tolist() == [1, 0, 1, 1, 1, 0]
    assert (blocks.source.tolist(), blocks.target.tolist()) == ([0], [1])


def test_classes_that_wait_for_each_other_are_one_block() -> None:
    """0 -> 1 -> 2 with 0 and 2 together: any stage with them has 1 as well; 3 is behind."""
    graph = CostGraph(forward=[1.0] * 4, colocation=["x", None, "x", None], tensors=chain((0, 1), (1, 2), (2, 3)))
    blocks = contract(graph)
    assert blocks.n_blocks == 2
    assert blocks.block.tolist() == [0, 0, 0, 1]
    assert (blocks.source.tolist(), blocks.target.tolist()) == ([0], [1])


def test_blocks_follow_the_order_not_the_index() -> None:
    """2 -> 0 -> 1: the block of 2 is the first."""
    blocks = contract(CostGraph(forward=[1.0] * 3, tensors=chain((2, 0), (0, 1))))
    assert blocks.block.tolist() == [1, 2, 0]


def test_parallel_edges_are_given_once() -> None:
    """Two tensors and a second reader in the same class make one edge."""
    graph = CostGraph(
        forward=[1.0] * 3, colocation=[None, "x", "x"], tensors=[Tensor(0, (1, 2)), Tensor(0, (2,)), Tensor(1, (2,))]
    )
    blocks = contract(graph)
    assert (blocks.source.tolist(), blocks.target.tolist()) == ([0], [1])


def test_free_leaves_join_again_and_again() -> None:
    """0 joins 1, which is then a leaf and joins 2; 4 joins 3; 2 and 3 take time and stay apart."""
    graph = CostGraph(forward=[0.0, 0.0, 2.0, 3.0, 0.0], tensors=chain((0, 1), (1, 2), (2, 3), (3, 4)))
    assert merge_free_leaves(graph, np.arange(5)).tolist() == [0, 0, 0, 1, 1]


def test_a_free_operator_between_two_others_stays() -> None:
    """It has two neighbours, and joining either one would be a choice."""
    graph = CostGraph(forward=[1.0, 0.0, 1.0], tensors=chain((0, 1), (1, 2)))
    assert merge_free_leaves(graph, np.arange(3)).tolist() == [0, 1, 2]


def test_two_free_operators_become_one() -> None:
    """Each is the only neighbour of the other; a free operator without neighbours stays alone."""
    graph = CostGraph(forward=[0.0, 0.0, 0.0], tensors=chain((0, 1)))
    assert merge_free_leaves(graph, np.arange(3)).tolist() == [0, 0, 1]


@pytest.mark.parametrize(("seconds", "joins"), [(0.0, True), (0.9e-9, True), (1e-9, False), (1.0, False)])
def test_less_than_a_nanosecond_is_free(seconds: float, joins: bool) -> None:
    """The limit itself is not below it."""
    graph = CostGraph(forward=[seconds, 1.0], tensors=chain((0, 1)))
    assert (len(partition(merge_free_leaves(graph, np.arange(2)))) == 1) == joins


def test_free_means_free_everywhere() -> None:
    """Time on another kind, or in the backward column, keeps a leaf; time in another configuration does not."""
    kinds = CostGraph(forward={"gpu": [0.0, 1.0], "cpu": [1.0, 1.0]}, tensors=chain((0, 1)))
    back = CostGraph(forward=[0.0, 1.0], backward=[1.0, 1.0], tensors=chain((0, 1)))
    barred = CostGraph(forward={"gpu": [0.0, 1.0], "cpu": [np.inf, 1.0]}, tensors=chain((0, 1)))
    for graph in (kinds, back, barred):
        assert merge_free_leaves(graph, np.arange(2)).tolist() == [0, 1]


def test_times_of_a_class_add_up() -> None:
    """Two thirds of a nanosecond twice are more than one."""
    graph = CostGraph(forward=[0.7e-9, 0.7e-9, 1.0], colocation=["x", "x", None], tensors=chain((0, 2), (1, 2)))
    assert merge_free_leaves(graph, colocation_classes(graph)).tolist() == [0, 0, 1]


def test_a_leaf_that_feeds_the_backward_pass_stays() -> None:
    """f0 is free and has one neighbour in the order, but its tensor is read by a backward operator."""
    feeding = CostGraph(
        forward=[0.0, 1.0, 1.0],
        is_backward=[False, False, True],
        colocation=[None, "x", "x"],
        tensors=[Tensor(0, (1, 2))],
    )
    silent = feeding.replace(tensors=[Tensor(0, (1,)), Tensor(1, (2,))])
    assert merge_free_leaves(feeding, colocation_classes(feeding)).tolist() == [0, 1, 1]
    assert merge_free_leaves(silent, colocation_classes(silent)).tolist() == [0, 0, 0]


def test_cycles_are_fused_before_leaves_join() -> None:
    """Class x waits for 1 and 1 for x, so they are one class; the free source in front has that one neighbour."""
    graph = CostGraph(
        forward=[0.0, 1.0, 1.0, 1.0], colocation=[None, "x", None, "x"], tensors=chain((0, 1), (0, 2), (1, 2), (2, 3))
    )
    assert merge_free_leaves(graph, colocation_classes(graph)).tolist() == [0, 0, 0, 0]


@st.composite
def small_graphs(draw: st.DrawFn) -> CostGraph:
    """Draw up to six operators, some colocated, many of them free; backward ones with a mate and without.

    Orphans matter only next to classes that have a mate and no other neighbour: a third of the graphs are backward
    paths with little else.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = draw(st.sampled_from(["forward", "training", "backward path"]))
    path = shape == "backward path"
    n = int(rng.integers(5, 7) if path else rng.integers(1, 7))
    ahead = n if shape == "forward" else 2 if path else int(rng.integers(n + 1))  # forward operators come first
    joined = shape == "training" and rng.random() < 0.5  # whether tensors join the phases
    density = 0.1 if path else rng.choice([0.2, 0.4, 0.7])
    tensors = []
    for u in range(n - 1):
        behind = range(u + 1, n if joined or u >= ahead else ahead)
        sure = u + 1 if path and u >= ahead else None
        readers = tuple(v for v in behind if v == sure or rng.random() < density)
        if readers:
            tensors.append(Tensor(u, readers, seconds=1.0))
    if shape == "forward":
        labels = [str(x) if x < 2 else None for x in rng.integers(0, 5, n)]
    else:
        mates = [str(rng.integers(ahead)) if ahead and rng.random() < 0.6 else None for _ in range(ahead, n)]
        labels = [*(str(v) for v in range(ahead)), *mates]
    return CostGraph(
        forward=np.where(rng.random(n) < (0.8 if path else 0.5), 0.0, 1.0),
        is_backward=None if shape == "forward" else np.arange(n) >= ahead,
        colocation=labels,
        tensors=tensors,
    )


def stagings(graph: CostGraph, stages: int, whole: Any = None) -> set[tuple[int, ...]]:
    """Return every map of operators to stages that the statement of the problem allows, by looking at all maps.

    `whole` gives classes that stay together beside the colocated operators.
    """
    n = graph.n_operators
    late, colocation = graph.is_backward, graph.colocation
    mated = [
        any(not late[u] for u in range(n) if u == v or (colocation[v] >= 0 and colocation[u] == colocation[v]))
        for v in range(n)
    ]
    allowed = set()
    for stage in itertools.product(range(stages), repeat=n):
        same = all(
            stage[u] == stage[v]
            for u, v in itertools.combinations(range(n), 2)
            if (colocation[u] >= 0 and colocation[u] == colocation[v]) or (whole is not None and whole[u] == whole[v])
        )
        if not same:
            continue
        forth = True
        for tensor in graph.tensors:
            u = tensor.producer
            for v in tensor.consumers:
                if not late[u] and not late[v]:
                    forth &= stage[u] <= stage[v]
                elif late[u] and late[v] and not (mated[u] and mated[v]):
                    forth &= stage[v] <= stage[u]
        if forth:
            allowed.add(stage)
    return allowed


@given(small_graphs(), st.booleans())
def test_blocks_say_what_all_stagings_say(graph: CostGraph, merged: bool) -> None:
    """Maps of blocks to stages along the edges are exactly the allowed maps of operators that keep classes whole."""
    label = colocation_classes(graph)
    label = merge_free_leaves(graph, label) if merged else label
    blocks = contract(graph, label)
    assert set(blocks.block.tolist()) == set(range(blocks.n_blocks))
    assert bool((blocks.source < blocks.target).all())
    pairs = list(zip(blocks.source.tolist(), blocks.target.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    found = set()
    for places in itertools.product(range(3), repeat=blocks.n_blocks):
        if all(places[a] <= places[b] for a, b in pairs):
            found.add(tuple(places[b] for b in blocks.block.tolist()))
    assert found == stagings(graph, 3, label)


@given(small_graphs())
def test_inseparable_operators_are_one_block(graph: CostGraph) -> None:
    """Two operators share a block iff no allowed map to two stages has them apart."""
    allowed = stagings(graph, 2)
    blocks = contract(graph)
    for u, v in itertools.combinations(range(graph.n_operators), 2):
        apart = any(stage[u] != stage[v] for stage in allowed)
        assert apart == (blocks.block[u] != blocks.block[v])


@given(small_graphs())
def test_joining_leaves_only_takes_stagings_away(graph: CostGraph) -> None:
    """What is allowed with joined leaves is allowed without, and classes stay whole."""
    label = colocation_classes(graph)
    merged = merge_free_leaves(graph, label)
    for group in partition(label):
        assert len({int(merged[v]) for v in group}) == 1
    pairs, allowed = edges(graph, merged), stagings(graph, 2)
    for stage in itertools.product(range(2), repeat=int(merged.max()) + 1):
        if all(stage[a] <= stage[b] for a, b in pairs):
            assert tuple(stage[c] for c in merged.tolist()) in allowed


@given(small_graphs(), st.permutations(range(6)))
def test_leaves_join_the_same_whatever_the_order(graph: CostGraph, order: list[int]) -> None:
    """Renumbering the operators changes the numbers of the classes, not the classes."""
    n = graph.n_operators
    rank = [place for place in order if place < n]
    tensors = [Tensor(rank[t.producer], tuple(rank[r] for r in t.consumers), seconds=1.0) for t in graph.tensors]
    old = np.argsort(rank)
    names = [None if graph.colocation[v] < 0 else str(graph.colocation[v]) for v in old.tolist()]
    other = CostGraph(
        forward=graph.forward[0, 0][old],
        is_backward=graph.is_backward[old] if graph.style == "operators" else None,
        colocation=names,
        tensors=tensors,
    )
    first = merge_free_leaves(graph, colocation_classes(graph))
    second = merge_free_leaves(other, colocation_classes(other))
    assert partition(first) == partition(second[rank])
