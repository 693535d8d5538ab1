"""Lower bounds of the cut wing: never above the optimum, as strong as stated, and proved again in rationals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance import (
    Cluster,
    CostGraph,
    Device,
    OptionError,
    Plan,
    ProblemError,
    SolverError,
    Tensor,
    lower_bounds,
    solve,
)
from balance.cut import _assignment as assignment
from balance.cut import _block_models as models
from balance.cut import _max_flow as flows
from balance.cut import _node_cut as cuts
from balance.cut import _relaxations as relaxations
from balance.cut import bounds
from balance.cut.tables import CutTables
from balance.limits import Run
from balance.problems.cut import CutProblem
from balance.registry import list_bounds
from tests.cut import oracle
from tests.cut.strategies import problems

RELAXED = ("partition-sdp", "partition-lp", "block-sdp", "block-lp")
MODELS = ("bottleneck-block", "three-super-blocks", "node-guess", "balanced-cut")
BY_NAME = {bound.name: bound for bound in list_bounds("cut")}
TWO = Cluster.uniform(2)


def subsets(n):
    """Return every set of blocks that is not empty."""
    return [list(s) for size in range(1, n + 1) for s in itertools.combinations(range(n), size)]


def loads(tables, q, chosen, phases=(0, 1)):
    """Return work and paid communication of a set of blocks on a type, scaled; None if a block is barred."""
    if tables.barred[q, chosen].any():
        return None
    work = int(tables.work[q][list(phases)][:, chosen].sum())
    paid = 0
    for h in range(len(tables.nets)):
        pins = set(tables.nets.pins[tables.nets.offsets[h] : tables.nets.offsets[h + 1]].tolist())
        if pins & set(chosen) and pins - set(chosen):
            paid += int(tables.nets.weight[list(phases), h].sum())
    return work, paid if tables.pays[q] else 0


def least_around(tables, q, v, phases=(0, 1)):
    """Return the least load of a set that holds v, by looking at all of them."""
    found = [loads(tables, q, s, phases) for s in subsets(tables.n) if v in s]
    return min((sum(load) for load in found if load is not None), default=math.inf)


def is_difference_of_down_sets(tables, chosen):
    """Whether no path leaves a set of blocks and comes back."""
    follow = [set(tables.target[tables.source == v].tolist()) for v in range(tables.n)]
    outside, left = {v for s in chosen for v in follow[s]} - set(chosen), set()
    while outside:
        v = outside.pop()
        if v in left:
            continue
        left.add(v)
        if follow[v] & set(chosen):
            return False
        outside |= follow[v]
    return True


@pytest.mark.parametrize("contiguity", ["acyclic", "convex", "none"])
def test_no_bound_is_above_the_optimum(contiguity):
    """Every bound but the relaxations, on problems with all parameters at random."""

    @given(problems(contiguity=contiguity))
    def run(problem):
        best = oracle.optimum(problem)
        if math.isfinite(best):
            for name, bound in BY_NAME.items():
                value = -math.inf if name in RELAXED else bound(problem)
                assert value <= best * (1 + 1e-9) + 1e-12, (name, value, best)

    run()


@given(problems(most=4, devices=2), st.sampled_from(RELAXED))
def test_no_relaxation_is_above_the_optimum(problem, name):
    """The relaxations, whose values come from the dual points of an interior-point solver."""
    best = oracle.optimum(problem)
    if math.isfinite(best):
        assert BY_NAME[name](problem) <= best * (1 + 1e-9) + 1e-12


def test_what_is_known_of_the_four_cheap_ones():
    """Three blocks of 5, 4 and 3 on two devices, with tensors of 2 and 1 seconds."""
    graph = CostGraph.chain([5.0, 4.0, 3.0], seconds=[2.0, 1.0])
    values = lower_bounds(CutProblem(graph=graph, cluster=TWO))
    assert values == {
        "average": pytest.approx(12 / 2 + 1),  # each device pays at least the lightest edge of the tree
        "pigeonhole": pytest.approx(3 + 4),  # two of three share a device
        "largest": pytest.approx(5),
        "node-cut": pytest.approx(7),  # 5 alone pays 2; with 4 it is 10; 4 and 3 together 9
    }
    assert oracle.optimum(CutProblem(graph=graph, cluster=TWO)) == 9.0


def test_average_when_one_device_does_everything():
    """Communication is dearer than the work: one device alone, and no more is claimed."""
    graph = CostGraph.chain([1.0, 1.0], seconds=[50.0])
    assert bounds.average(CutProblem(graph=graph, cluster=TWO)) == pytest.approx(2.0)
    assert oracle.optimum(CutProblem(graph=graph, cluster=TWO)) == 2.0


def test_average_with_a_device_that_pays_nothing():
    """Equal speeds: min(all on one 10, all on the free ones 10, (10 + 1) / 2) = 5.5; the optimum is 6 + 1 or 5 + 1."""
    table = [5.0, 5.0]
    graph = CostGraph(forward={"a": table, "b": table}, kinds=("a", "b"), tensors=[Tensor(0, (1,), seconds=1.0)])
    problem = CutProblem(graph=graph, cluster=Cluster([Device("a"), Device("b")]), free_kinds=("b",))
    assert bounds.average(problem) == pytest.approx(5.5)
    assert oracle.optimum(problem) == 6.0


def test_average_counts_what_must_be_streamed():
    """Work 4 on two devices, 10 bytes too many at 5 B/s: (4 + 2) / 2."""
    graph = CostGraph(forward=[2.0, 2.0], parameter_bytes=10.0)
    cluster = Cluster.uniform(2, memory_bytes=5.0)
    problem = CutProblem(graph=graph, cluster=cluster, overflow_bandwidth=5.0)
    assert bounds.average(problem) == pytest.approx(3.0)
    assert oracle.optimum(problem) == pytest.approx(3.0)


def test_largest_by_phases():
    """Forward 9 and backward 8 are those of two blocks: 17, though no block takes more than 10."""
    graph = CostGraph(forward=[9.0, 2.0], backward=[1.0, 8.0])
    assert bounds.largest(CutProblem(graph=graph, cluster=Cluster.uniform(2))) == pytest.approx(10.0)
    flush = CutProblem(graph=graph, cluster=Cluster.uniform(2), objective="fw-bw-bottleneck")
    assert bounds.largest(flush) == pytest.approx(17.0)


def test_what_no_device_can_host_has_infinite_bounds():
    """An operator without a kind: the cheap bounds are infinite, the expensive ones do not apply."""
    graph = CostGraph(forward=[1.0, math.inf])
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2))
    values = {name: bound(problem) for name, bound in BY_NAME.items()}
    assert [name for name, value in values.items() if value == math.inf] == [
        "largest", "pigeonhole", "average", "node-cut",
    ]  # fmt: skip
    assert max(values[name] for name in RELAXED) == -math.inf
    assert solve(problem).status == "infeasible"


# -- node-cut --------------------------------------------------------------------------------------------------------


@given(problems(overlap="sum"), st.sampled_from([(0, 1), (0,), (1,)]))
def test_node_cut_is_the_largest_least_cut(problem, phases):
    """The scan finds the same integer as a look at all sets of blocks."""
    tables = CutTables(problem)
    peak = cuts.highest(tables, phases)
    if tables.barred.all(axis=0).any():
        assert peak is None
        return
    values = [min(least_around(tables, q, v, phases) for q in range(tables.n_types)) for v in range(tables.n)]
    assert (peak.value, values[peak.block]) == (max(values), max(values))
    less = cuts.highest(tables, phases, budget=-1)
    assert less.value == max(
        min(tables.work[~tables.barred[:, v]][:, list(phases), v].sum(axis=1)) for v in range(tables.n)
    )


@given(problems(overlap="sum", charge="edge"))
def test_cuts_of_every_block_and_type(problem):
    """The compiled flow, its twin in plain Python and a look at all sets agree; what is barred keeps its own time."""
    tables = CutTables(problem)
    found = cuts.cut_seconds(tables, cuts.BUDGET)
    network = cuts.Network.of(tables.n, tables.nets.offsets, tables.nets.pins)
    weight = tables.nets.weight.sum(axis=0)
    scratch = np.zeros((3, len(network.start) - 1), dtype=np.int64)
    for q, v in itertools.product(range(tables.n_types), range(tables.n)):
        if tables.barred[q, v]:
            continue
        expected = least_around(tables, q, v)
        assert found[q, v] == pytest.approx(expected / tables.scale, rel=1e-12, abs=1e-12)
        if tables.pays[q]:
            room = network.capacities(tables.work[q].sum(axis=0), tables.barred[q], weight)
            sink = len(network.start) - 2
            parts = network.start, network.head, network.twin
            assert flows.maximum_flow.py_func(*parts, room, v, sink, scratch)[0] == expected
            assert loads(tables, q, np.flatnonzero(scratch[0, : tables.n]).tolist()) is not None


@given(problems(), st.sampled_from([(0, 1), (0,), (1,)]))
def test_node_cuts_are_proved_again(problem, phases):
    """The rational value is what the scan says, and the set that is named has that load in exact sums."""
    tables = CutTables(problem)
    peak = cuts.highest(tables, phases)
    if peak is None:
        return
    share = 3 if problem.overlap == "max" else 1
    proof = cuts.prove_node_cut(problem, peak.block, phases)
    assert isinstance(proof.seconds, Fraction)
    assert tables.bound(peak.value) / share <= proof.seconds
    assert float(proof.seconds) == pytest.approx(peak.value / tables.scale / share, rel=1e-9, abs=1e-12)
    assert set(proof.operators) <= set(proof.least)
    q = int(tables.types[proof.device])
    chosen = np.unique(tables.block[list(proof.least)]).tolist()
    assert sum(loads(tables, q, chosen, phases)) / tables.scale / share == pytest.approx(float(proof.seconds), abs=1e-9)


def test_proofs_of_nothing_are_refused():
    """A block that does not exist, and one that no device hosts."""
    problem = CutProblem(graph=CostGraph(forward=[1.0, math.inf]), cluster=Cluster.uniform(2))
    with pytest.raises(ProblemError, match="there is no block 2; the problem has 2"):
        cuts.prove_node_cut(problem, 2)
    with pytest.raises(ProblemError, match="no device can host block 1"):
        cuts.prove_node_cut(problem, 1)


@pytest.mark.parametrize(("change", "message"), [(1, "breaks a capacity"), (2, "loses something")])
def test_a_false_flow_is_no_proof(monkeypatch, change, message):
    """A kernel that pushes more than a capacity, or forgets part of a path, is found out."""
    true = flows.maximum_flow

    def false(start, head, twin, room, source, sink, scratch):
        caps = room.copy()
        answer = true(start, head, twin, room, source, sink, scratch)
        used = int(np.flatnonzero(room < caps)[0])
        extra = -(room[used] + 1) if change == 1 else caps[used] - room[used]
        room[used] += extra
        room[twin[used]] -= extra
        return answer

    monkeypatch.setattr(flows, "maximum_flow", false)
    graph = CostGraph.chain([1.0, 4.0, 1.0], seconds=[2.0, 0.5])
    with pytest.raises(SolverError, match=message):
        cuts.prove_node_cut(CutProblem(graph=graph, cluster=TWO), 1)


# -- devices that differ ---------------------------------------------------------------------------------------------


def test_assignment_shares_out_by_speed():
    """Blocks are 6 times faster or 6 times slower on the second device: 12 and 12 in fractions 2 + 2."""
    graph = CostGraph(forward={"a": [1.0, 1.0, 6.0, 6.0], "b": [6.0, 6.0, 1.0, 1.0]}, kinds=("a", "b"))
    problem = CutProblem(graph=graph, cluster=Cluster([Device("a"), Device("b")]))
    assert bounds.assignment_lp(problem) == pytest.approx(2.0)
    assert bounds.average(problem) == pytest.approx(2.0)
    # A third block of 9 on either: the LP halves it (2 + 4.5), but no device can hold half of it.
    graph = graph.replace(forward={"a": [1.0, 1.0, 6.0, 9.0], "b": [6.0, 6.0, 1.0, 9.0]})
    assert bounds.assignment_lp(CutProblem(graph=graph, cluster=problem.cluster)) == pytest.approx(9.0)


def test_assignment_uses_cuts_of_pairs():
    """Two pairs bound by tensors of 10 take 12 with a paying device; the free one is slow: each block takes 5 there."""
    graph = CostGraph(
        forward={"a": [6.0] * 4, "b": [11.0] * 4},
        kinds=("a", "b"),
        tensors=[Tensor(0, (1,), seconds=10.0), Tensor(2, (3,), seconds=10.0)],
    )
    problem = CutProblem(graph=graph, cluster=Cluster([Device("a")] * 4 + [Device("b")]), free_kinds=("b",))
    assert bounds.node_cut(problem) == pytest.approx(11.0)  # any block may be alone on the free device
    assert bounds.assignment_lp(problem) == pytest.approx(12.0)  # but not all of them
    assert solve(problem, solver="ideals").objective == 12.0


def test_assignment_counts_memory():
    """Everything is fast on the first device, which holds one of three blocks."""
    graph = CostGraph(forward={"a": [1.0] * 3, "b": [10.0] * 3}, kinds=("a", "b"), parameter_bytes=1.0)
    cluster = Cluster([Device("a", memory_bytes=1.0), Device("b", memory_bytes=9.0)])
    problem = CutProblem(graph=graph, cluster=cluster, contiguity="none")
    assert bounds.assignment_lp(problem) == pytest.approx(20.0, rel=1e-6)
    assert oracle.optimum(problem) == 20.0


@given(problems(), st.integers(0, 2**32 - 1))
def test_prices_for_two_types_are_as_good_as_the_lp(problem, seed):
    """The sorted ratios of two types give the value of the LP without memory, and no other prices give more."""
    tables = CutTables(problem)
    if tables.n_types != 2 or tables.barred.all(axis=0).any():
        return
    market = assignment.Market.of(tables)
    free = assignment.Market(tables, market.work, market.size, np.full(2, np.inf), market.unit)
    value = free.value(tables.barred, free.two_prices(tables.barred))
    prices = free.lp_prices(tables.barred, Run(threads=1))
    assert value == pytest.approx(free.value(tables.barred, prices), rel=1e-6, abs=1e-9)
    rng = np.random.default_rng(seed)
    for _ in range(5):
        assert free.value(tables.barred, rng.random((2, 2))) <= value + 1e-9
    assert free.value(tables.barred, free.fair_prices()) <= value + 1e-9


# -- models of one stage or three ------------------------------------------------------------------------------------


@given(problems(contiguity="acyclic", overlap="sum", overflow_bandwidth=4.0, objective="bottleneck"))
def test_stage_models_equal_their_statements(problem):
    """Bottleneck block and node guess are what a look at all convex sets finds (memory aside)."""
    tables = CutTables(problem)
    if tables.barred.all(axis=0).any():
        return
    stages = [s for s in subsets(tables.n) if is_difference_of_down_sets(tables, s)]
    found = [[loads(tables, q, s) for s in stages] for q in range(tables.n_types)]
    around = [
        min(sum(load) for row in found for s, load in zip(stages, row, strict=True) if load is not None and v in s)
        for v in range(tables.n)
    ]
    floor = bounds._known(problem)
    expected = max(floor, max(around) / tables.scale)
    assert models.node_guess(tables, Run(threads=1), floor) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    if tables.n_types == 1:
        share = int(tables.work[0].sum()) / tables.most_stages
        heavy = min(sum(load) for load in found[0] if load is not None and load[0] >= share * (1 - 1e-12))
        value = models.bottleneck_block(tables, Run(threads=1))
        assert value == pytest.approx(heavy / tables.scale, rel=1e-5, abs=1e-6)


def test_three_super_blocks_see_both_ends():
    """A heavy end block is cheap to cut off in front, but its neighbours then have too little left for two devices."""
    graph = CostGraph.chain([4.0, 1.0, 1.0, 4.0, 1.0, 1.0], seconds=[1.0, 5.0, 1.0, 1.0, 5.0])
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(3))
    value = bounds.three_super_blocks(problem, Run(threads=1))
    assert value >= bounds.bottleneck_block(problem, Run(threads=1)) - 1e-6
    assert value >= lower_bounds(problem)["average"] + 0.5
    assert value <= oracle.optimum(problem)


def test_balanced_cut_charges_every_device():
    """Four blocks of 3: any balanced set of two cuts a tensor of 4, so both devices have 6 + 4; 3 | 9 has 11."""
    graph = CostGraph.chain([3.0] * 4, seconds=[2.0, 4.0, 2.0])
    problem = CutProblem(graph=graph, cluster=TWO)
    assert bounds.balanced_cut(problem, Run(threads=1)) == pytest.approx(10.0, rel=1e-5)
    assert max(lower_bounds(problem).values()) == pytest.approx(9.0)
    assert oracle.optimum(problem) == 10.0
    # With a free device of equal speed beside, nothing may be paid at all: 12 / 2 and all on one.
    graph = graph.replace(forward={"a": [3.0] * 4, "b": [3.0] * 4}, kinds=("a", "b"))
    mixed = CutProblem(graph=graph, cluster=Cluster([Device("a"), Device("b")]), free_kinds=("b",))
    value = bounds.balanced_cut(mixed, Run(threads=1))
    assert 6.5 < value <= oracle.optimum(mixed)
    assert bounds.balanced_cut(CutProblem(graph=graph, cluster=mixed.cluster, overlap="max"), Run()) == -math.inf


def test_models_are_for_problems_of_their_size_and_order(monkeypatch):
    """Three super-blocks need an order of stages; a model that is too large is not built."""
    graph = CostGraph.chain([1.0] * 4, seconds=[1.0] * 3)
    convex = CutProblem(graph=graph, cluster=TWO, contiguity="convex")
    assert bounds.three_super_blocks(convex, Run()) == -math.inf
    monkeypatch.setattr(bounds, "ROWS", 3)
    monkeypatch.setattr(relaxations, "LARGEST", 3)
    monkeypatch.setattr(bounds, "CELLS", 3)
    large = CutProblem(graph=graph, cluster=TWO)
    assert {BY_NAME[name](large) for name in (*MODELS, *RELAXED)} == {-math.inf}


# -- relaxations -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELAXED)
def test_relaxations_are_no_weaker_than_the_average_without_communication(name):
    """What is lost by proving the solver's value again is next to nothing; tensors count for something."""
    graph = CostGraph.chain([3.0, 3.0, 3.0, 3.0], seconds=[2.0, 4.0, 2.0])
    value = BY_NAME[name](CutProblem(graph=graph, cluster=TWO))
    assert value >= 6.0 * (1 - 1e-6)
    if name == "partition-lp":  # either X = 1 for a pair or it is paid for; triangles carry this to the ends
        assert value > 6.5


def test_a_dual_point_from_anywhere_proves_something(monkeypatch):
    """Noise on the solver's answer lowers the bound, and it stays one."""
    graph = CostGraph.chain([3.0, 2.0, 4.0, 3.0], seconds=[2.0, 4.0, 2.0])
    problem = CutProblem(graph=graph, cluster=TWO)
    best, clean = oracle.optimum(problem), {name: BY_NAME[name](problem) for name in RELAXED}
    true = relaxations._into_dual_cone
    for seed in range(5):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr(
            relaxations, "_into_dual_cone", lambda y, dims, rng=rng: true(y + 0.1 * rng.standard_normal(len(y)), dims)
        )
        for name in RELAXED:
            assert BY_NAME[name](problem) < clean[name] <= best


# -- the front door --------------------------------------------------------------------------------------------------


def test_expensive_bounds_run_only_when_they_are_named(monkeypatch):
    """Neither `solve` nor a plain `lower_bounds` touches them; by name they come with a limit."""
    problem = CutProblem(graph=CostGraph.chain([2.0, 1.0, 2.0], seconds=[1.0, 1.0]), cluster=TWO)
    monkeypatch.setattr(models, "bottleneck_block", lambda *_: pytest.fail("an expensive bound ran"))
    assert set(lower_bounds(problem)) == {"largest", "pigeonhole", "average", "node-cut"}
    solve(problem, solver="ideals")
    monkeypatch.undo()
    values = lower_bounds(problem, names=["node-guess", "largest"], time_limit=5.0)
    assert set(values) == {"node-guess", "largest"}
    assert lower_bounds(problem, names="largest") == {"largest": values["largest"]}
    with pytest.raises(OptionError, match=r"no bound 'node-gues' \(did you mean 'node-guess'\?\)"):
        lower_bounds(problem, names=["node-gues"])


def test_a_bound_without_time_claims_no_more_than_it_knows():
    """With no time at all, the models give the cheap bounds or nothing, and stay below the optimum."""
    graph = CostGraph.chain([3.0, 2.0, 4.0, 3.0], seconds=[2.0, 4.0, 2.0])
    problem = CutProblem(graph=graph, cluster=TWO)
    best = oracle.optimum(problem)
    for name, bound in BY_NAME.items():
        if not bound.is_cheap:
            assert bound(problem, Run(0.0)) <= best, name
    interrupted = Run(threads=1)
    interrupted.interrupt()
    part = models.Part(interrupted)
    assert part.should_stop()


def test_bounds_hold_for_a_plan_of_a_large_graph():
    """Five thousand operators: a plan by hand is above every cheap bound."""
    rng = np.random.default_rng(1)
    graph = CostGraph.chain(rng.random(5_000), seconds=rng.random(4_999))
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(8))
    plan = Plan.chain(np.linspace(0, 5_000, 9).astype(int).tolist())
    value = problem.evaluate(plan).objective
    found = lower_bounds(problem)
    assert len(found) == 4
    assert value * 0.8 < max(found.values()) <= value


@pytest.mark.parametrize(
    ("name", "bound", "least"),
    [
        ("operator/resnet50_training", "assignment-lp", 253.5),
        ("operator/bert_l-3_training", "node-cut", 54.207),
        ("layer/resnet50_inference", "average", 33.02),
    ],
)
def test_public_workloads(workloads, name, bound, least):
    """Milliseconds that are proved for the published problem, whatever the contiguity."""
    from balance.problems.formats import read

    instance = read(workloads / "device-placement" / "throughput" / f"{name}.json")
    preset = {**CutProblem.presets["device-placement-2020"], "contiguity": "none"}
    problem = CutProblem(graph=instance.graph, cluster=instance.cluster, **preset)
    assert lower_bounds(problem)[bound] * 1e3 >= least


def test_models_say_so_when_no_memory_holds_a_fair_share():
    """Half of the work fits no device: the models that see memory are infinite, and a solver agrees."""
    graph = CostGraph(forward=[1.0, 1.0, 1.0], parameter_bytes=2.0)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2, memory_bytes=3.0))
    assert {BY_NAME[name](problem) for name in ("bottleneck-block", "three-super-blocks")} == {math.inf}
    assert solve(problem).status == "infeasible"
