"""The cut problem by hand: what each parameter does to one small graph, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance import Assignment, Cluster, CostGraph, Device, Link, Plan, Replica, Stage, Tensor
from balance.problems.cut import CutProblem
from balance.problems.model.errors import ProblemError
from tests.cut.strategies import graphs

# 0 -> 1, 2; 1 -> 3; 2 -> 3. Bytes 6, 2, 4 at 2 B/s: the tensors take 3, 1 and 2 seconds.
DIAMOND = CostGraph(
    forward=[1.0, 2.0, 4.0, 8.0],
    tensors=[Tensor(0, (1, 2), bytes=6.0), Tensor(1, (3,), bytes=2.0), Tensor(2, (3,), bytes=4.0)],
    names=["stem", "left", "right", "join"],
    activation_bytes=1.0,
    parameter_bytes=2.0,
    workspace_bytes=[0.0, 0.0, 5.0, 0.0],
)
TWO = Cluster([Device()] * 2, link=Link(0.0, 2.0))
THREE = Cluster([Device()] * 3, link=Link(0.0, 2.0))
HALVES = Plan.chain([0, 2, 4])  # {stem, left} | {right, join}
THIRDS = Plan.chain([0, 1, 2, 4])  # {stem} | {left} | {right, join}


def problem(cluster=TWO, graph=DIAMOND, **parameters):
    """Return a problem over the diamond."""
    return CutProblem(graph=graph, cluster=cluster, **parameters)


def test_loads_of_two_stages():
    """Stage 0: 1 + 2 of work, sends 3 (stem) + 1 (left) = 7. Stage 1: 4 + 8, receives 3 + 1 = 16."""
    evaluation = problem().evaluate(HALVES)
    assert evaluation.objective == 16.0
    assert evaluation.breakdown["load"].tolist() == [7.0, 16.0]
    assert evaluation.breakdown["received"].tolist() == [0.0, 4.0]
    assert evaluation.breakdown["sent"].tolist() == [4.0, 0.0]


def test_overlap_takes_the_largest_term():
    """Stage 0: max(0, 3, 4) = 4. Stage 1: max(4, 12, 0) = 12."""
    assert problem(overlap="max").evaluate(HALVES).breakdown["load"].tolist() == [4.0, 12.0]


def test_the_sender_pays_once_or_for_each_reader():
    """With three stages stem is read in two: it sends 3 once, or 6; everybody else pays the same."""
    once = problem(THREE, send="once").evaluate(THIRDS).breakdown["load"]
    each = problem(THREE, send="each").evaluate(THIRDS).breakdown["load"]
    assert once.tolist() == [1 + 3, 2 + 3 + 1, 12 + 3 + 1]
    assert each.tolist() == [1 + 6, 2 + 3 + 1, 12 + 3 + 1]


def test_edges_are_charged_one_by_one():
    """On {stem} | {left, right, join} the tensor of stem has two readers there: 3 as a tensor, 6 by edges."""
    plan = Plan.chain([0, 1, 4])
    assert problem(charge="tensor").evaluate(plan).breakdown["load"].tolist() == [1 + 3, 14 + 3]
    assert problem(charge="edge").evaluate(plan).breakdown["load"].tolist() == [1 + 6, 14 + 6]


def test_adjacent_routing_passes_through():
    """Stem's tensor goes through stage 1 to stage 2: stage 1 receives 3 and sends 3 + 1."""
    loads = problem(THREE, routing="adjacent").evaluate(THIRDS).breakdown["load"]
    assert loads.tolist() == [1 + 3, 3 + 2 + 3 + 1, 3 + 1 + 12]


def test_free_kinds_pay_nothing():
    """The second device is a CPU that pays for no communication: 12 instead of 16."""
    graph = DIAMOND.replace(forward={"gpu": [1.0, 2.0, 4.0, 8.0], "cpu": [1.0, 2.0, 4.0, 8.0]}, kinds=("gpu", "cpu"))
    cluster = Cluster([Device("gpu"), Device("cpu")], link=Link(0.0, 2.0))
    loads = problem(cluster, graph, free_kinds=("cpu",)).evaluate(HALVES).breakdown["load"]
    assert loads.tolist() == [7.0, 12.0]


def test_layer_graphs_pay_both_ways():
    """Backward takes twice the forward time, gradients as long as tensors: forward 7 | 16, backward 10 | 28."""
    graph = DIAMOND.replace(backward=[2.0, 4.0, 8.0, 16.0])
    graph = graph.replace(
        tensors=[dataclasses.replace(t, gradient_bytes=t.bytes, gradient_seconds=None) for t in graph.tensors]
    )
    asked = problem(graph=graph)
    assert asked.evaluate(HALVES).breakdown["load"].tolist() == [7.0 + 10.0, 16.0 + 28.0]
    flush = dataclasses.replace(asked, objective="fw-bw-bottleneck")
    assert flush.evaluate(HALVES).objective == 16.0 + 28.0
    assert dataclasses.replace(asked, schedule="forward-only").evaluate(HALVES).objective == 16.0


def test_flush_takes_each_phase_from_its_own_device():
    """Forward is longest on one device (9), backward on the other (8): the sum is 17, no device has more than 10."""
    graph = CostGraph(forward=[9.0, 2.0], backward=[1.0, 8.0])
    evaluation = problem(Cluster.uniform(2), graph, objective="fw-bw-bottleneck").evaluate(Plan.chain([0, 1, 2]))
    assert evaluation.objective == 17.0


def test_memory_counts_flights_by_the_stages_after():
    """Stage 0 has one stage after: 4 x 2 x 2 + 2 x 2 activations = 20; stage 1: 16 + 2 + workspace 5 = 23."""
    graph = DIAMOND.replace(backward=1.0)
    asked = problem(graph=graph, state_factor=4.0)
    assert asked.evaluate(HALVES).breakdown["memory"].tolist() == [20.0, 23.0]
    assert asked.evaluate(HALVES).breakdown["in_flight"].tolist() == [2, 1]
    free = dataclasses.replace(asked, in_flight=(3, 5))
    assert free.evaluate(HALVES).breakdown["memory"].tolist() == [16.0 + 10.0, 16.0 + 6.0 + 5.0]


def test_what_does_not_fit_is_refused_or_streamed():
    """23 bytes on 13: 10 too many, at 2.5 B/s four seconds more on a load of 12 + 4 + ..."""
    graph = DIAMOND.replace(backward=0.0)
    small = Cluster([Device(), Device(memory_bytes=5.0)], link=Link(0.0, 2.0))
    asked = problem(small, graph)
    (fault,) = asked.evaluate(HALVES).violations
    assert (fault.rule, fault.device, fault.needed, fault.available) == ("memory", 1, 11.0, 5.0)
    streamed = dataclasses.replace(asked, overflow_bandwidth=1.5).evaluate(HALVES)
    assert streamed.feasible
    assert streamed.breakdown["load"].tolist() == [7.0, 16.0 + 6.0 / 1.5]


def test_a_convex_assignment_need_not_be_a_pipeline():
    """Tensors a -> b and c -> d, devices {a, d} and {b, c}: both convex, and each waits for the other."""
    graph = CostGraph(forward=[3.0, 1.0, 1.0, 3.0], tensors=[Tensor(0, (1,)), Tensor(2, (3,))], names=list("abcd"))
    both = Assignment([0, 1, 1, 0])
    assert problem(Cluster.uniform(2), graph, contiguity="convex").evaluate(both).feasible
    acyclic = problem(Cluster.uniform(2), graph)
    for order in ((0, 1), (1, 0)):
        stages = tuple(Stage(np.flatnonzero(both.device == d), (Replica((d,)),)) for d in order)
        assert {v.rule for v in acyclic.evaluate(Plan(stages)).violations} == {"order"}


def test_a_path_that_comes_back_is_not_convex():
    """Stem and join on one device, left between them on another; only "none" allows it."""
    away = Assignment([0, 1, 0, 0])
    (fault,) = problem(contiguity="convex").evaluate(away).violations
    assert fault.rule == "convex"
    assert "'left'" in fault.message
    assert "'join'" in fault.message
    assert problem(contiguity="none").evaluate(away).feasible


@given(graphs(style="inference"), st.data())
def test_loads_are_a_hypergraph_cut(graph, data):
    """A tensor is paid by a device iff it cuts {producer} + readers, so all loads add up to work + SOED."""
    if np.isinf(graph.forward).any():
        return
    device = np.array(data.draw(st.lists(st.integers(0, 2), min_size=graph.n_operators, max_size=graph.n_operators)))
    cluster = Cluster([Device("b")] * 3, link=Link(0.25, 2.0))
    graph = graph.replace(colocation=None, pinned=None)
    evaluation = CutProblem(graph=graph, cluster=cluster, contiguity="none").evaluate(Assignment(device))
    total = float(graph.forward[1, 0].sum())
    for tensor in graph.tensors:
        touched = {int(device[v]) for v in (tensor.producer, *tensor.consumers)}
        cost = tensor.seconds if tensor.seconds is not None else (0.25 + tensor.bytes / 2.0 if tensor.bytes else 0.0)
        total += cost * len(touched) if len(touched) > 1 else 0.0
    assert evaluation.breakdown["load"].sum() == pytest.approx(total)


def test_rules_are_named():
    """Every broken rule of structure is found, with the operator or the device in its message."""
    pinned = DIAMOND.replace(pinned=[1, -1, -1, -1], colocation=[None, "x", None, "x"])
    rules = {v.rule: v.message for v in problem(graph=pinned, max_stages=1).evaluate(HALVES).violations}
    assert set(rules) == {"pinned", "colocation", "stages"}
    assert "'stem'" in rules["pinned"]
    assert "'left'" in rules["colocation"]
    assert "'join'" in rules["colocation"]
    backwards = Plan((Stage([2, 3], (Replica((0,)),)), Stage([0, 1], (Replica((1,)),))))
    assert {v.rule for v in problem().evaluate(backwards).violations} == {"order"}


@pytest.mark.parametrize(
    ("solution", "rule"),
    [
        (Assignment([0, 0, 1, 1]), "type"),
        (Plan((Stage([0, 1], (Replica((0,)),)), Stage([], (Replica((1,)),)))), "empty"),
        (Plan((Stage([0, 1, 2, 3, 4], (Replica((0,)),)),)), "unknown"),
        (Plan((Stage([0, 1, 2, 3], (Replica((7,)),)),)), "unknown"),
        (Plan((Stage([0, 1, 2, 3], (Replica((0,), 0.5), Replica((1,), 0.5))),)), "replicas"),
        (Plan((Stage([0, 1, 2, 3], (Replica((0,)),), configuration=1),)), "configuration"),
        (Plan((Stage([0, 1, 2, 3], (Replica((0,)),), recompute=True),)), "recompute"),
        (Plan((Stage([0, 1], (Replica((0,)),)), Stage([3], (Replica((1,)),)))), "missing"),
        (Plan((Stage([0, 1], (Replica((0,)),)), Stage([2, 3], (Replica((0,)),)))), "devices"),
    ],
)
def test_malformed_solutions_have_no_objective(solution, rule):
    """What cannot be computed is one violation, and an infinite objective."""
    evaluation = problem().evaluate(solution)
    assert [v.rule for v in evaluation.violations] == [rule]
    assert evaluation.objective == np.inf


def test_assignments_are_checked_too():
    """Too few operators, and a device that does not exist."""
    for solution, rule in ((Assignment([0]), "missing"), (Assignment([0, 0, 0, 9]), "unknown")):
        assert [v.rule for v in problem(contiguity="none").evaluate(solution).violations] == [rule]


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"contiguity": "acyclical"}, "contiguity='acyclical' is not one of acyclic, convex, none"),
        ({"contiguity": "none", "routing": "adjacent"}, "needs an order of stages"),
        ({"contiguity": "none", "in_flight": (1, 2)}, "in_flight takes one count"),
        ({"charge": "edge", "routing": "adjacent"}, "routing='direct' only"),
        ({"overflow_bandwidth": 0.0}, "overflow_bandwidth must be positive"),
        ({"overflow_bandwidth": 1.0, "objective": "fw-bw-bottleneck"}, "objective='bottleneck' only"),
        ({"max_stages": 0}, "max_stages must be a whole number of at least 1"),
        ({"state_factor": "4"}, "state_factor must be a number that is finite"),
        ({"configuration": 3}, "configuration 3 does not exist"),
        ({"in_flight": ()}, "at least one count"),
    ],
)
def test_parameters_out_of_range(parameters, says):
    """The message names the parameter and what is expected."""
    with pytest.raises(ProblemError, match=says.replace("(", r"\(")):
        problem(**parameters)


def test_devices_that_do_not_fit():
    """Unknown kinds, pins to nowhere, uneven links, and bytes without a link speed."""
    with pytest.raises(ProblemError, match="no costs for device kind 'tpu'"):
        problem(Cluster([Device("tpu")], link=Link(0.0, 1.0)))
    with pytest.raises(ProblemError, match="'stem' is pinned to device 5"):
        problem(graph=DIAMOND.replace(pinned=[5, -1, -1, -1]))
    with pytest.raises(ProblemError, match="no link speed is known"):
        problem(Cluster.uniform(2))
    uneven = Cluster([Device()] * 2, latency=np.zeros((2, 2)), bandwidth=np.array([[1.0, 2.0], [3.0, 1.0]]))
    with pytest.raises(ProblemError, match="one link between any two devices"):
        problem(uneven)


def test_problem_and_solutions_survive_json():
    """Parameters come back equal, and both forms of solution are told apart."""
    asked = problem(contiguity="none", in_flight=(3,), free_kinds=("device",), overflow_bandwidth=2.0)
    assert CutProblem.from_json(asked.to_json(), DIAMOND) == asked
    for solution in (HALVES, Assignment([0, 1, 1, 0])):
        assert asked.solution_from_json(solution.to_json()) == solution


def test_presets_are_parameters():
    """Every preset can be stated, and changes nothing but parameters that exist."""
    for values in CutProblem.presets.values():
        assert set(values) <= set(CutProblem.parameters())
        problem(**values)


def test_leaves_without_time_join_their_neighbour():
    """A free source joins its reader, a free leaf of a free leaf follows; a costly one stays."""
    graph = CostGraph(
        forward=[0.0, 0.0, 2.0, 3.0, 0.0],
        tensors=[Tensor(0, (1,)), Tensor(1, (2,)), Tensor(2, (3,)), Tensor(3, (4,))],
    )
    kept = problem(Cluster.uniform(2), graph).classes
    merged = problem(Cluster.uniform(2), graph, leaves="merge").classes
    assert kept.tolist() == [0, 1, 2, 3, 4]
    assert merged.tolist() == [0, 0, 0, 1, 1]


def test_backward_operators_without_mate_lie_where_reversed_tensors_allow():
    """Backward b3 -> b2 -> b1 with mates of 1 and 3 only: class b2 must lie between them."""
    graph = CostGraph(
        forward=[1.0] * 5,
        is_backward=[False, False, True, True, True],
        colocation=["one", "three", "three", None, "one"],
        tensors=[Tensor(0, (1,)), Tensor(2, (3,)), Tensor(3, (4,))],
    )
    asked = problem(THREE, graph)
    stages = [[0, 4], [3], [1, 2]]
    good = Plan(tuple(Stage(ops, (Replica((d,)),)) for d, ops in enumerate(stages)))
    assert asked.evaluate(good).feasible
    for wrong in itertools.permutations(stages):
        plan = Plan(tuple(Stage(ops, (Replica((d,)),)) for d, ops in enumerate(wrong)))
        assert asked.evaluate(plan).feasible == (list(wrong) == stages)
