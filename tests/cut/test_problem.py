"""The cut problem by hand: what each parameter does to one small graph, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance import Assignment, Cluster, CostGraph, Device, Link, Plan, Replica, Stage, Tensor
from balance.problems.cut import CutProblem
from balance.problems.model.errors import FormatError, ProblemError
from balance.problems.model.graph import Configuration
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


@pytest.mark.parametrize(
    ("parameters", "flights"),
    [
        ({}, [3, 2, 1]),  # 1f1b: as many as stages from here to the end
        ({"microbatches": 2}, [2, 2, 1]),  # never more than there are
        ({"microbatches": 8}, [3, 2, 1]),
        ({"schedule": "gpipe", "microbatches": 8}, [8, 8, 8]),  # all of them, in each stage
        ({"schedule": "forward-only"}, [1, 1, 1]),
        ({"in_flight": (1, 4)}, [4, 4, 1]),  # by stages after; the last one repeats
        ({"in_flight": (5,), "schedule": "forward-only"}, [5, 5, 5]),
    ],
)
def test_flights_of_each_schedule(parameters, flights):
    """Three stages of one, one and two operators: 2 bytes each, 1 per flight, and the workspace of 5 in the last."""
    evaluation = problem(THREE, DIAMOND.replace(backward=1.0), **parameters).evaluate(THIRDS)
    assert evaluation.breakdown["in_flight"].tolist() == flights
    first, second, third = flights
    assert evaluation.breakdown["memory"].tolist() == [2 + first, 2 + second, 4 + 2 * third + 5]


def test_nothing_is_kept_without_a_backward_pass():
    """Inference graphs have one micro-batch in flight everywhere, whatever the schedule."""
    assert problem(THREE).evaluate(THIRDS).breakdown["in_flight"].tolist() == [1, 1, 1]


def test_flights_without_an_order_of_stages():
    """No stage comes after another: one count for all devices, 1 unless it is given."""
    graph = DIAMOND.replace(backward=1.0)
    halves = Assignment([0, 0, 1, 1])
    for contiguity in ("convex", "none"):
        asked = problem(graph=graph, contiguity=contiguity)
        assert asked.evaluate(halves).breakdown["memory"].tolist() == [4 + 2, 4 + 2 + 5]
        more = dataclasses.replace(asked, in_flight=(3,))
        assert more.evaluate(halves).breakdown["memory"].tolist() == [4 + 6, 4 + 6 + 5]


def test_memory_of_each_part_of_the_formula():
    """Stage 0: state factor 4 on 3 + 5 bytes, static 7 + 1, two flights of 2 + 4, the larger workspace of 9 and 6: 61.

    Stage 1: 4 x 2 + 0 + 1 x 1 + 3 = 12.
    """
    graph = CostGraph(
        forward=[1.0] * 3,
        backward=[1.0] * 3,
        parameter_bytes=[3.0, 5.0, 2.0],
        static_bytes=[7.0, 1.0, 0.0],
        activation_bytes=[2.0, 4.0, 1.0],
        workspace_bytes=[9.0, 6.0, 3.0],
    )
    evaluation = problem(TWO, graph, state_factor=4.0).evaluate(Plan.chain([0, 2, 3]))
    assert evaluation.breakdown["memory"].tolist() == [32 + 8 + 12 + 9, 8 + 0 + 1 + 3]


def test_speed_divides_work_but_not_communication():
    """The second device is four times as fast: 12 / 4 + 4 received."""
    cluster = Cluster([Device(), Device(speed=4.0)], link=Link(0.0, 2.0))
    assert problem(cluster).evaluate(HALVES).breakdown["load"].tolist() == [7.0, 3.0 + 4.0]


def test_latency_is_paid_per_tensor():
    """Two tensors cross, half a second each on top of 3 and 1."""
    cluster = Cluster([Device()] * 2, link=Link(0.5, 2.0))
    assert problem(cluster).evaluate(HALVES).breakdown["load"].tolist() == [3 + 5.0, 12 + 5.0]


def test_given_seconds_win_over_bytes():
    """The tensor of stem has 6 bytes, but is said to take 10 seconds."""
    graph = DIAMOND.replace(
        tensors=[Tensor(0, (1, 2), bytes=6.0, seconds=10.0), Tensor(1, (3,), bytes=2.0), Tensor(2, (3,), bytes=4.0)]
    )
    assert problem(graph=graph).evaluate(HALVES).breakdown["load"].tolist() == [3 + 11.0, 12 + 11.0]


def test_the_configuration_chooses_the_column():
    """Work and bytes of column 1: 10 + 20 | 30 with 1 byte each; a stage in column 0 is refused."""
    graph = CostGraph(
        forward=np.array([[[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]]]),
        parameter_bytes=np.array([[5.0, 5.0, 5.0], [1.0, 1.0, 1.0]]),
        configurations=[Configuration(), Configuration(2)],
    )
    stages = (Stage([0, 1], (Replica((0,)),), 1), Stage([2], (Replica((1,)),), 1))
    evaluation = problem(TWO, graph, configuration=1).evaluate(Plan(stages))
    assert evaluation.breakdown["load"].tolist() == [30.0, 30.0]
    assert evaluation.breakdown["memory"].tolist() == [2.0, 1.0]
    assert not problem(TWO, graph, configuration=0).evaluate(Plan(stages)).feasible


def test_operator_graphs_count_backward_operators_backward():
    """Forward f0 (1) -> f1 (2), backward b1 (4) -> b0 (2); f0 and b0 on one device, f1 and b1 on the other.

    The tensor f0 -> f1, b0 takes 4 forward, b1 -> b0 takes 4 backward; f1 -> b1 stays inside. Forward: 1 + 4 and
    2 + 4; backward: 2 + 4 and 4 + 4. Loads 11 and 14; a flush takes 6 + 8. With overlap the largest of received, work
    and sent counts: max(4, 3, 4) and max(4, 6, 4).
    """
    graph = CostGraph(
        forward=[1.0, 2.0, 4.0, 2.0],
        is_backward=[False, False, True, True],
        colocation=["zero", "one", "one", "zero"],
        tensors=[Tensor(0, (1, 3), bytes=8.0), Tensor(1, (2,), bytes=4.0), Tensor(2, (3,), bytes=8.0)],
    )
    plan = Plan((Stage([0, 3], (Replica((0,)),)), Stage([1, 2], (Replica((1,)),))))
    evaluation = problem(graph=graph).evaluate(plan)
    assert evaluation.breakdown["forward"].tolist() == [1.0, 2.0]
    assert evaluation.breakdown["backward"].tolist() == [2.0, 4.0]
    assert evaluation.breakdown["load"].tolist() == [11.0, 14.0]
    assert problem(graph=graph, objective="fw-bw-bottleneck").evaluate(plan).objective == 6.0 + 8.0
    assert problem(graph=graph, overlap="max").evaluate(plan).breakdown["load"].tolist() == [4.0, 6.0]
    assert problem(graph=graph, schedule="forward-only").evaluate(plan).objective == 6.0


def test_what_does_not_fit_is_refused_or_streamed():
    """Stage 1 needs 4 + 2 + 5 = 11 bytes and has 5: 6 too many, at 1.5 B/s four seconds on top of 16."""
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


@given(graphs(), st.data())
def test_a_device_pays_a_tensor_iff_it_cuts_it(graph, data):
    """Received and sent of each device are the weight of the nets {producer} + readers that its operators cut."""
    n = graph.n_operators
    device = np.array(data.draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)))
    cluster = Cluster([Device("b")] * 3, link=Link(0.25, 2.0))
    graph = graph.replace(colocation=None, pinned=None)
    asked = CutProblem(graph=graph, cluster=cluster, contiguity="none")
    table = asked.evaluate(Assignment(device)).breakdown
    for place, d in enumerate(table["device"].tolist()):
        paid = 0.0
        for tensor in graph.tensors:
            pins = {int(device[v]) for v in (tensor.producer, *tensor.consumers)}
            ways = [(tensor.bytes, tensor.seconds)]
            if asked.has_backward:  # gradients of an inference graph are never sent
                ways.append((tensor.gradient_bytes, tensor.gradient_seconds))
            if d in pins and len(pins) > 1:
                for size, seconds in ways:
                    paid += seconds if seconds is not None else 0.25 + size / 2.0 if size else 0.0
        assert table["received"][place] + table["sent"][place] == pytest.approx(paid)
        assert table["load"][place] == pytest.approx(paid + table["forward"][place] + table["backward"][place])


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


def test_operators_on_a_kind_that_cannot_host_them():
    """Neither right nor join runs on a CPU; each is named with the device and its kind."""
    table = [1.0, 2.0, np.inf, np.inf]
    graph = DIAMOND.replace(forward={"gpu": [1.0, 2.0, 4.0, 8.0], "cpu": table}, kinds=("gpu", "cpu"))
    cluster = Cluster([Device("gpu", name="fast"), Device("cpu", name="slow")], link=Link(0.0, 2.0))
    evaluation = problem(cluster, graph).evaluate(HALVES)
    assert [(fault.rule, fault.operator, fault.device) for fault in evaluation.violations] == [
        ("kind", 2, 1),
        ("kind", 3, 1),
    ]
    assert evaluation.violations[0].message == "operator 'right' cannot run on 'slow' of kind 'cpu'"
    assert evaluation.objective == np.inf


def test_a_device_that_is_too_small_is_named_with_both_numbers():
    """Stage 1 needs 11 bytes; 11 are enough, a little less is not."""
    for room, fits in ((11.0, True), (10.999, False)):
        cluster = Cluster([Device(), Device(memory_bytes=room, name="small")], link=Link(0.0, 2.0))
        evaluation = problem(cluster, DIAMOND).evaluate(HALVES)
        assert evaluation.feasible == fits
        if not fits:
            assert [fault.message for fault in evaluation.violations] == ["'small' needs 11 bytes and has 10.999"]
            assert evaluation.objective == 16.0  # what it would be


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
        ({"in_flight": (0,)}, "in_flight must be a whole number of at least 1, got 0"),
        ({"microbatches": 1.5}, "microbatches must be a whole number of at least 1, got 1.5"),
        ({"max_stages": True}, "max_stages must be a whole number"),
        ({"state_factor": -1.0}, "state_factor must be a number that is finite and not negative, got -1.0"),
        ({"state_factor": np.nan}, "state_factor must be a number that is finite and not negative, got nan"),
        ({"overflow_bandwidth": np.inf}, "overflow_bandwidth must be a number that is finite"),
        ({"objective": "botleneck"}, "objective='botleneck' is not one of bottleneck, fw-bw-bottleneck"),
        ({"overlap": "min"}, "overlap='min' is not one of sum, max"),
        ({"charge": "net"}, "charge='net' is not one of tensor, edge"),
        ({"send": "twice"}, "send='twice' is not one of once, each"),
        ({"routing": "straight"}, "routing='straight' is not one of direct, adjacent"),
        ({"schedule": "zero-bubble"}, "schedule='zero-bubble' is not one of 1f1b, gpipe, forward-only"),
        ({"leaves": "drop"}, "leaves='drop' is not one of keep, merge"),
        ({"contiguity": "convex", "routing": "adjacent"}, "contiguity='convex' has none"),
        ({"contiguity": "convex", "in_flight": (1, 2)}, "contiguity='convex' has no order of stages"),
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


def test_graphs_that_cannot_be_asked():
    """Nothing to place, and memory under gpipe that nobody can know without the number of micro-batches."""
    with pytest.raises(ProblemError, match="no operators"):
        problem(graph=CostGraph(forward=[]))
    small = Cluster([Device(memory_bytes=50.0)] * 2, link=Link(0.0, 2.0))
    graph = DIAMOND.replace(backward=1.0)
    with pytest.raises(ProblemError, match="give microbatches="):
        problem(small, graph, schedule="gpipe")
    assert problem(small, graph, schedule="gpipe", microbatches=2).flight(1) == 2
    assert problem(small, graph, schedule="gpipe", in_flight=(3,)).flight(1) == 3
    assert problem(graph=graph, schedule="gpipe").limits_memory is False


def test_one_device_needs_no_link():
    """Bytes without a link speed are an error only where there is somewhere to send them."""
    assert problem(Cluster.uniform(1)).evaluate(Plan.chain([0, 4])).objective == 15.0


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"objective": "fw-bw-bottleneck", "overlap": "max", "send": "each", "microbatches": 3},
        {"contiguity": "convex", "charge": "edge", "in_flight": (2,), "max_stages": 2},
        {"routing": "adjacent", "schedule": "gpipe", "microbatches": 2, "leaves": "merge", "state_factor": 4.0},
        {"schedule": "forward-only", "in_flight": (1, 2, 3), "overflow_bandwidth": 2.5, "free_kinds": ("device",)},
    ],
)
def test_every_parameter_survives_json(parameters):
    """Through text and back, between them all the parameters; the cluster with unlimited memory as well."""
    asked = problem(**parameters)
    text = json.dumps(asked.to_json(), allow_nan=False)
    assert CutProblem.from_json(json.loads(text), DIAMOND) == asked


def test_broken_json_is_named():
    """Another problem, another graph, an unknown parameter, a value that is refused, and no solution at all."""
    data = problem().to_json()
    other = DIAMOND.replace(forward=[1.0, 2.0, 4.0, 9.0])
    for broken, graph, says in (
        ({**data, "name": "chain"}, DIAMOND, "expected 'cut'"),
        (data, other, "give the graph that was solved"),
        ({**data, "parameters": {**data["parameters"], "speed": 1}}, DIAMOND, "speed"),
        ({**data, "parameters": {**data["parameters"], "send": "never"}}, DIAMOND, "send='never' is not one of"),
    ):
        with pytest.raises(FormatError, match=says):
            CutProblem.from_json(broken, graph)
    for solution in ({}, {"stages": 3}, {"device": ["a"]}, [], None):
        with pytest.raises(FormatError):
            problem().solution_from_json(solution)


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
