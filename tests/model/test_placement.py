"""Rules of structure: which part an operator is in, and every broken rule with its names and numbers."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.assignment import Assignment
from balance.problems.model.cluster import Cluster, Device
from balance.problems.model.contraction import colocation_classes
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.placement import read_placement
from balance.problems.model.plan import Plan, Replica, Stage
from balance.problems.model.tensors import Tensor

NAMED = Cluster([Device(name="left"), Device(name="middle"), Device(name="right")])

# a -> b -> c -> d, and a -> d.
PATH = CostGraph(
    forward=[1.0] * 4,
    tensors=[Tensor(0, (1, 3), seconds=1.0), Tensor(1, (2,), seconds=1.0), Tensor(2, (3,), seconds=1.0)],
    names=list("abcd"),
)


@dataclass
class Asked:
    """The rules of a test."""

    graph: CostGraph = PATH
    cluster: Cluster = NAMED
    contiguity: str = "acyclic"
    configuration: int = 0
    max_stages: int | None = None
    classes: Any = field(default=None)

    def __post_init__(self) -> None:
        if self.classes is None:
            self.classes = colocation_classes(self.graph)


def plan(*stages: list[int], devices: tuple[int, ...] | None = None, configuration: int = 0) -> Plan:
    """Return a plan of stages on the first devices, or on the given ones."""
    homes = devices or tuple(range(len(stages)))
    cells = (Stage(own, (Replica((d,)),), configuration) for own, d in zip(stages, homes, strict=True))
    return Plan(tuple(cells))


def faults(asked: Asked, solution: Any) -> list[tuple[str, str]]:
    """Return rules and messages."""
    return [(fault.rule, fault.message) for fault in read_placement(asked, solution)[1]]


def rules(asked: Asked, solution: Any) -> list[str]:
    """Return the names of the broken rules."""
    return [rule for rule, _ in faults(asked, solution)]


def test_parts_of_a_plan_are_its_stages() -> None:
    """Stages 0 and 1 on devices 2 and 0: parts count stages, devices say where."""
    placement, broken = read_placement(Asked(), plan([0, 1], [2, 3], devices=(2, 0)))
    assert broken == []
    assert placement is not None
    assert placement.part.tolist() == [0, 0, 1, 1]
    assert placement.devices.tolist() == [2, 0]
    assert placement.parts == 2


def test_parts_of_an_assignment_are_ranks_of_its_devices() -> None:
    """Devices 2 and 0 are used: device 0 is part 0, device 2 is part 1."""
    placement, broken = read_placement(Asked(contiguity="none"), Assignment([2, 0, 2, 0]))
    assert broken == []
    assert placement is not None
    assert placement.part.tolist() == [1, 0, 1, 0]
    assert placement.devices.tolist() == [0, 2]


@pytest.mark.parametrize("contiguity", ["convex", "none"])
def test_a_plan_is_an_assignment_too(contiguity: str) -> None:
    """Without an order of stages a plan is taken as it is, backwards as well."""
    assert rules(Asked(contiguity=contiguity), plan([2, 3], [0, 1])) == []


@pytest.mark.parametrize(
    ("contiguity", "solution", "says"),
    [
        ("acyclic", Assignment([0, 0, 0, 0]), "expected a Plan, got Assignment"),
        ("none", [0, 0, 0, 0], "expected an Assignment or a Plan, got list"),
        ("convex", None, "expected an Assignment or a Plan, got NoneType"),
    ],
)
def test_other_things_are_no_solution(contiguity: str, solution: Any, says: str) -> None:
    """The message says what is expected and what was given."""
    placement, broken = read_placement(Asked(contiguity=contiguity), solution)
    assert placement is None
    assert [(fault.rule, fault.message) for fault in broken] == [("type", says)]


@pytest.mark.parametrize(
    ("solution", "rule", "says"),
    [
        (plan([0, 1], [], [2, 3]), "empty", "stage 1 has no operator"),
        (plan([0, 1], [2, 3, 9]), "unknown", "stage 1 has operator 9, but the graph has 4"),
        (plan([0, 1, 2, 3], devices=(5,)), "unknown", "stage 0 is on device 5, but the cluster has 3"),
        (
            Plan((Stage([0, 1, 2, 3], (Replica((0,), 0.5), Replica((1,), 0.5))),)),
            "replicas",
            "stage 0 has several devices; a stage of a cut has one",
        ),
        (plan([0, 1, 2, 3], configuration=1), "configuration", "stage 0 uses another configuration"),
        (
            Plan((Stage([0, 1, 2, 3], (Replica((0,)),), recompute=True),)),
            "recompute",
            "stage 0 recomputes, which this problem does not know",
        ),
        (plan([0, 1], [3]), "missing", "operator 'c' is in no stage"),
        (plan([0, 1], [2, 3], devices=(1, 1)), "devices", "'middle' holds several stages"),
    ],
)
def test_plans_that_place_nothing(solution: Plan, rule: str, says: str) -> None:
    """What has no placement is one fault, which says where it is."""
    placement, broken = read_placement(Asked(), solution)
    assert placement is None
    assert [fault.rule for fault in broken] == [rule]
    assert says in broken[0].message


@pytest.mark.parametrize(
    ("devices", "rule", "says"),
    [
        ([0, 0], "missing", "the assignment has 2 operators, the graph has 4"),
        ([0] * 5, "missing", "the assignment has 5 operators, the graph has 4"),
        ([], "missing", "the assignment has 0 operators, the graph has 4"),
        ([0, 0, 7, 0], "unknown", "operator 'c' is on device 7, but the cluster has 3"),
    ],
)
def test_assignments_that_place_nothing(devices: list[int], rule: str, says: str) -> None:
    """Lengths and devices are compared with the graph and the cluster."""
    placement, broken = read_placement(Asked(contiguity="none"), Assignment(devices))
    assert placement is None
    assert [(fault.rule, fault.message) for fault in broken] == [(rule, says)]


def test_the_configuration_asked_for_is_the_one_that_counts() -> None:
    """Column 1 is right where column 1 is asked, and column 0 is wrong there."""
    graph = CostGraph(forward=np.ones((1, 2, 2)), configurations=[Configuration(), Configuration(2)])
    asked = Asked(graph=graph, configuration=1)
    assert rules(asked, plan([0, 1], configuration=1)) == []
    assert rules(asked, plan([0, 1])) == ["configuration"]


def test_devices_are_counted() -> None:
    """Three stages where two are allowed; two are allowed."""
    (fault,) = read_placement(Asked(max_stages=2), plan([0], [1], [2, 3]))[1]
    assert (fault.rule, fault.available) == ("stages", 2.0)
    assert fault.message == "3 devices are used, at most 2 may be"
    assert rules(Asked(max_stages=2), plan([0, 1], [2, 3])) == []
    assert rules(Asked(contiguity="none", max_stages=1), Assignment([0, 1, 1, 1])) == ["stages"]


def test_each_operator_away_from_its_class_is_named() -> None:
    """Label "x" on b, c and d: b is the first, c is with it, d is not."""
    graph = PATH.replace(colocation=[None, "x", "x", "x"])
    (fault,) = read_placement(Asked(graph=graph, contiguity="none"), Assignment([0, 0, 0, 2]))[1]
    assert (fault.rule, fault.operator) == ("colocation", 3)
    assert fault.message == "operators 'b' and 'd' stay together but are on 'left' and 'right'"


def test_classes_of_the_problem_decide_not_only_labels() -> None:
    """Joined leaves stay together although nobody gave them a label."""
    asked = Asked(contiguity="none", classes=np.array([0, 0, 1, 2]))
    assert rules(asked, Assignment([0, 1, 1, 1])) == ["colocation"]
    assert rules(asked, Assignment([0, 0, 1, 2])) == []


def test_pinned_operators_are_named_with_both_devices() -> None:
    """Operator a is pinned to the right and c to the left; both are in the middle, b may be anywhere."""
    graph = PATH.replace(pinned=[2, -1, 0, -1])
    broken = read_placement(Asked(graph=graph, contiguity="none"), Assignment([1, 1, 1, 1]))[1]
    assert [(fault.rule, fault.operator, fault.device) for fault in broken] == [("pinned", 0, 1), ("pinned", 2, 1)]
    assert broken[0].message == "operator 'a' is pinned to 'right' but is on 'middle'"
    assert rules(Asked(graph=graph, contiguity="none"), Assignment([2, 1, 0, 1])) == []


def test_pins_are_about_devices_not_stages() -> None:
    """Stage 0 lies on device 2: an operator pinned to device 2 is right there."""
    graph = PATH.replace(pinned=[2, -1, -1, -1])
    assert rules(Asked(graph=graph), plan([0, 1], [2, 3], devices=(2, 0))) == []
    assert rules(Asked(graph=graph), plan([0, 1], [2, 3], devices=(0, 2))) == ["pinned"]


def test_tensors_that_point_backwards_are_named() -> None:
    """Stages {b, c} and {a, d}: b in stage 0 reads a in stage 1; a -> d and c -> d are in order."""
    (fault,) = read_placement(Asked(), plan([1, 2], [0, 3]))[1]
    assert (fault.rule, fault.operator, fault.stage) == ("order", 1, 0)
    assert fault.message == "operator 'b' comes after 'a' (or their classes do), but they are in stages 0 and 1"


def test_every_pair_out_of_order_is_one_fault() -> None:
    """With d first, its two tensors from a and c are wrong; a second tensor between the same two says nothing new."""
    graph = PATH.replace(tensors=[*PATH.tensors, Tensor(2, (3,), seconds=2.0)])
    broken = read_placement(Asked(graph=graph), plan([3], [0, 1, 2]))[1]
    assert [(fault.rule, fault.operator, fault.stage) for fault in broken] == [("order", 3, 0)] * 2


def test_backward_tensors_need_no_order() -> None:
    """Forward f0 | f1 and backward b1 -> b0 follow their mates, so the gradient runs back."""
    graph = CostGraph(
        forward=[1.0] * 4,
        is_backward=[False, False, True, True],
        colocation=["zero", "one", "one", "zero"],
        tensors=[Tensor(0, (1,)), Tensor(1, (2,)), Tensor(2, (3,))],
    )
    assert rules(Asked(graph=graph), plan([0, 3], [1, 2])) == []
    assert rules(Asked(graph=graph), plan([1, 2], [0, 3])) == ["order"]
    assert rules(Asked(graph=graph, contiguity="convex"), Assignment([0, 1, 1, 0])) == []


def test_a_leaf_that_has_joined_an_orphan_does_not_free_it() -> None:
    """Backward ab -> o -> bb with a and o joined: b is not after them, though their class has a forward operator."""
    graph = CostGraph(
        forward=[1.0] * 5,
        is_backward=[False, False, True, True, True],
        colocation=["b", "a", None, "a", "b"],
        tensors=[Tensor(3, (2,)), Tensor(2, (4,))],
    )
    for classes in (np.array([0, 1, 2, 1, 0]), np.array([0, 1, 1, 1, 0])):
        asked = Asked(graph=graph, classes=classes)
        assert rules(asked, plan([0, 4], [1, 2, 3])) == []
        assert rules(asked, plan([1, 2, 3], [0, 4])) == ["order"]


def test_a_path_that_comes_back_is_shown_by_its_last_step() -> None:
    """Operators a and d on the left, b and c in the middle: c -> d comes back to the left, nothing to the middle."""
    (fault,) = read_placement(Asked(contiguity="convex"), Assignment([0, 1, 1, 0]))[1]
    assert (fault.rule, fault.operator, fault.device) == ("convex", 3, 0)
    assert fault.message == "a path leaves 'left' and comes back from operator 'c' to 'd'"


def test_each_device_that_is_not_convex_is_named_once() -> None:
    """Left, middle, left, middle along a path: both are left and entered again."""
    broken = read_placement(Asked(contiguity="convex"), Assignment([0, 1, 0, 1]))[1]
    assert [(fault.rule, fault.device) for fault in broken] == [("convex", 0), ("convex", 1)]


def test_paths_through_backward_operators_are_no_paths() -> None:
    """Forward f on the left, backward g in the middle, backward h on the left again: only forward ones count."""
    graph = CostGraph(forward=[1.0] * 3, is_backward=[False, True, True], tensors=[Tensor(0, (1,)), Tensor(1, (2,))])
    assert rules(Asked(graph=graph, contiguity="convex"), Assignment([0, 1, 0])) == []


def test_all_faults_of_a_placement_are_told() -> None:
    """Too many stages, a class apart, a pin missed and an edge reversed, in this order."""
    graph = PATH.replace(colocation=["x", None, None, "x"], pinned=[-1, 0, -1, -1])
    found = rules(Asked(graph=graph, max_stages=1), plan([2, 3], [0, 1]))
    assert list(dict.fromkeys(found)) == ["stages", "colocation", "pinned", "order"]


@st.composite
def placed_graphs(draw: st.DrawFn) -> tuple[CostGraph, list[int]]:
    """Draw a graph of up to seven operators with indices out of order, and a device for each."""
    n = draw(st.integers(1, 7))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    name = rng.permutation(n)
    density = rng.choice([0.2, 0.4, 0.7])
    tensors = []
    for u in range(n - 1):
        readers = tuple(int(name[v]) for v in range(u + 1, n) if rng.random() < density)
        if readers:
            tensors.append(Tensor(int(name[u]), readers, seconds=1.0))
    late = np.zeros(n, dtype=bool)
    late[name] = np.arange(n) >= draw(st.integers(0, n))
    graph = CostGraph(forward=[1.0] * n, is_backward=late if draw(st.booleans()) else None, tensors=tensors)
    return graph, draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))


def reach(graph: CostGraph) -> list[set[int]]:
    """Return the forward operators behind each forward operator, itself left out."""
    n, late = graph.n_operators, graph.is_backward
    behind: list[set[int]] = [set() for _ in range(n)]
    for _ in range(n):
        for tensor in graph.tensors:
            u = tensor.producer
            for v in tensor.consumers:
                if not late[u] and not late[v]:
                    behind[u] |= {v} | behind[v]
    return behind


@given(placed_graphs())
def test_convex_means_no_operator_between_two_of_a_device(drawn: tuple[CostGraph, list[int]]) -> None:
    """A device is at fault iff some operator elsewhere lies behind one of its operators and before another."""
    graph, device = drawn
    behind = reach(graph)
    wrong = {
        device[u]
        for u, v, w in itertools.product(range(graph.n_operators), repeat=3)
        if device[u] == device[w] != device[v] and v in behind[u] and w in behind[v]
    }
    found = read_placement(Asked(graph=graph, contiguity="convex"), Assignment(device))[1]
    assert [fault.device for fault in found] == sorted(wrong)
    for fault in found:
        assert fault.operator is not None
        assert device[fault.operator] == fault.device


@given(placed_graphs(), st.permutations(range(3)))
def test_order_means_no_tensor_back(drawn: tuple[CostGraph, list[int]], order: list[int]) -> None:
    """Faults are the pairs of operators whose tensor points to an earlier stage (to a later one without a mate)."""
    graph, device = drawn
    used = [d for d in order if d in device]
    stage = [used.index(d) for d in device]
    stages = [np.flatnonzero(np.array(stage) == s).tolist() for s in range(len(used))]
    late = graph.is_backward
    wrong = set()
    for tensor in graph.tensors:
        u = tensor.producer
        for v in tensor.consumers:
            if not late[u] and not late[v] and stage[u] > stage[v]:
                wrong.add((u, v))
            if late[u] and late[v] and stage[v] > stage[u]:  # nobody has a mate here
                wrong.add((v, u))
    found = read_placement(Asked(graph=graph), plan(*stages, devices=tuple(used)))[1]
    assert {fault.rule for fault in found} <= {"order"}
    assert sorted(fault.operator for fault in found if fault.operator is not None) == sorted(v for _, v in wrong)
