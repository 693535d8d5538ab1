"""The program over ideals: published optima, limits, and its kernels against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import balance
from balance import Cluster, CostGraph, Device, Tensor, solve
from balance.cut import _ideal_kernels as kernels
from balance.cut import ideals as wing
from balance.cut.ideals import IdealProgram, Ideals
from balance.cut.layers import BIG, ceiling
from balance.cut.tables import CutTables
from balance.limits import Run
from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import fork_join
from balance.problems.model.topology import successor_rows
from tests.cut.strategies import problems

# Milliseconds, of the published cost model (preset device-placement-2020). Proved by this program; by the published
# program for all but inceptionv3, which it cannot finish; inceptionv3 by CP-SAT on the relaxed model to 0.002.
OPTIMA = {
    "layer/bert24_inference": 17.7899062,
    "layer/bert24_training": 41.7458125,
    "layer/resnet50_inference": 33.774666,
    "layer/gnmt_inference": 32.9106582,
    "layer/inceptionv3_inference": 51.5518636,
    "operator/bert_l-3_inference": 27.9185677,
    "operator/bert_l-3_training": 65.3031491,
    "operator/bert_l-6_training": 72.8649663,
    "operator/resnet50_training": 255.194416,
}


@pytest.mark.parametrize("name", OPTIMA)
def test_published_optima(workloads, name):
    """The file alone states the published problem; the optimum is proved, and equal to nine digits."""
    result = solve(workloads / "device-placement" / "throughput" / f"{name}.json", solver="ideals")
    assert result.status == "optimal"
    assert result.objective * 1e3 == pytest.approx(OPTIMA[name], rel=1e-8)


def down_sets(n, edges):
    """Return every down-set, by looking at all subsets."""
    found = set()
    for bits in range(1 << n):
        if all(bits >> a & 1 or not bits >> b & 1 for a, b in edges):
            found.add(bits)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_every_ideal_is_made_once(seed):
    """Enumeration equals the subsets that are closed, compiled and not; sums and open nets are those of the sets."""
    rng = np.random.default_rng(seed)
    n = 7
    edges = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.3]
    weights = rng.integers(1, 9, n)
    graph = CostGraph(forward=weights, tensors=[Tensor(a, (b,), seconds=float(a + b)) for a, b in edges])
    program = IdealProgram.build(CutTables(CutProblem(graph=graph, cluster=Cluster.uniform(2))), Run())
    assert program is not None
    tables = program.tables
    flipped = [(n - 1 - b, n - 1 - a) for a, b in zip(tables.source.tolist(), tables.target.tolist(), strict=True)]
    sets = [int(row[0]) for row in program.ideals.bits]
    assert len(sets) == len(set(sets))
    assert set(sets) == down_sets(n, flipped)
    scaled = tables.work[0].sum(axis=0)[::-1]
    for place, bits in enumerate(sets):
        inside = [v for v in range(n) if bits >> v & 1]
        assert program.ideals.reference[place] == sum(int(scaled[v]) for v in inside)
        opened = 0
        for h in range(len(tables.nets)):
            pins = n - 1 - tables.nets.pins[tables.nets.offsets[h] : tables.nets.offsets[h + 1]]
            if 0 < sum(bits >> int(v) & 1 for v in pins) < len(pins):
                opened += int(tables.nets.weight[:, h].sum())
        assert program.ideals.crossing[0, place] == opened
    for small, large in itertools.combinations(range(len(sets)), 2):
        if sets[small] & ~sets[large]:
            continue
        load = kernels.stage_load(program.ideals, program.costs, 0, small, large, 0)[0]
        stage = {v for v in range(n) if (sets[large] & ~sets[small]) >> v & 1}
        expected = sum(int(scaled[v]) for v in stage)
        for h in range(len(tables.nets)):
            pins = {int(n - 1 - v) for v in tables.nets.pins[tables.nets.offsets[h] : tables.nets.offsets[h + 1]]}
            if pins & stage and pins - stage:
                expected += int(tables.nets.weight[:, h].sum())
        assert load == expected
        assert kernels.stage_load.py_func(program.ideals, program.costs, 0, small, large, 0)[0] == expected


def plain_load(tables, q, own, behind):
    """Return (total, forward, backward) of a stage of blocks, scaled, from the statement; None where it does not fit.

    Parameters
    ----------
    tables
        The problem.
    q
        Type of the device.
    own
        Blocks of the stage.
    behind
        Blocks of the stages after it, and how many those are.
    """
    problem, nets = tables.problem, tables.nets
    later, after = behind
    if any(tables.barred[q, v] for v in own):
        return None
    need = sum(tables.held[v] + problem.flight(after) * tables.kept[v] for v in own)
    need += max(tables.workspace[v] for v in own)
    if need > tables.capacity[q]:
        return None
    phases = []
    for phase in (0, 1):
        work = sum(int(tables.work[q, phase, v]) for v in own)
        received = sent = 0
        for h in range(len(nets)):
            pins = set(nets.pins[nets.offsets[h] : nets.offsets[h + 1]].tolist())
            cost, home = int(nets.weight[phase, h]), int(nets.producer[h])
            if not tables.pays[q]:
                continue
            if problem.routing == "adjacent":
                received += cost if pins - own - later and pins & (own | later) else 0
                sent += cost if pins & later and pins - later else 0
            elif home in own:
                sent += cost if pins - own else 0
            else:
                received += cost if pins & own else 0
        phases.append((received, work, sent))
    combine = sum if problem.overlap == "sum" else max
    total = combine(a + b for a, b in zip(*phases, strict=True))
    if problem.overflow_bandwidth is not None:
        total += round(max(need - tables.memory_available[q], 0.0) * tables.scale / problem.overflow_bandwidth)
    return total, combine(phases[0]), combine(phases[1])


@given(problems(contiguity="acyclic", send="once"), st.data())
def test_stage_loads_equal_the_statement(problem, data):
    """All parameters at random: any two nested ideals, compiled and as plain Python, against sets of blocks."""
    tables = CutTables(problem)
    program = IdealProgram.build(tables, Run())
    assert program is not None
    n, split = tables.n, problem.overlap == "max" or problem.objective != "bottleneck"
    sets = [int(row[0]) for row in program.ideals.bits]
    pairs = [(a, b) for a in range(len(sets)) for b in range(a + 1, len(sets)) if not sets[a] & ~sets[b]]
    for inner, outer in data.draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=3)):
        q = data.draw(st.integers(0, tables.n_types - 1))
        after = data.draw(st.integers(0, problem.cluster.n_devices - 1))
        blocks = [{n - 1 - v for v in range(n) if bits >> v & 1} for bits in (sets[inner], sets[outer])]
        expected = plain_load(tables, q, blocks[1] - blocks[0], (blocks[0], after))
        for kernel in (kernels.stage_load, kernels.stage_load.py_func):
            found = [int(x) for x in kernel(program.ideals, program.costs, q, inner, outer, after)]
            if expected is None:
                assert found[0] == BIG
            elif split:
                assert found == list(expected)
            else:
                assert found[0] == expected[0]


@given(problems(most=4, devices=2, contiguity="acyclic", send="once", objective="bottleneck"))
def test_plain_python_searches_as_the_compiled_program(problem):
    """The search gives the same value and the same plan when its two loops are not compiled."""
    program = IdealProgram.build(CutTables(problem), Run())
    assert program is not None
    top = ceiling(program.tables)
    compiled = program.search(kernels.TOTAL, top, BIG, BIG)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("advance", "came_from"):
            patch.setattr(kernels, name, getattr(kernels, name).py_func)
        plain = program.search(kernels.TOTAL, top, BIG, BIG)
    assert (compiled is None) == (plain is None)
    if compiled is not None and plain is not None:
        assert compiled[0] == plain[0]
        assert compiled[1].to_json() == plain[1].to_json()


@pytest.mark.parametrize("seed", range(4))
def test_enumeration_without_compilation(seed):
    """Ideals, their parents, sums and open nets are the same arrays from plain Python."""
    rng = np.random.default_rng(seed)
    n = 6
    pairs = [(a, b) for a in range(n) for b in range(a + 1, n) if rng.random() < 0.4]
    source, target = (np.array(ends, dtype=np.int64) for ends in (zip(*pairs, strict=True) if pairs else ([], [])))
    after_at, after = successor_rows(n, source, target)
    before_at, before = successor_rows(n, target, source)
    tables = [
        enumerate_(n, before_at, before, after_at, after, 1000)
        for enumerate_ in (kernels.enumerate_ideals, kernels.enumerate_ideals.py_func)
    ]
    bits, parent, item, count = tables[0]
    assert tables[1][3] == count == len(down_sets(n, pairs))
    for compiled, plain in zip(tables[0][:3], tables[1][:3], strict=True):
        assert np.array_equal(compiled[:count], plain[:count])
    for place in range(1, count):  # each is its parent and one block more
        assert int(bits[place, 0]) == int(bits[parent[place], 0]) | 1 << int(item[place])
    values = rng.integers(0, 100, n)
    sums = kernels.accumulate.py_func(parent, item, count, values)
    assert np.array_equal(sums, kernels.accumulate(parent, item, count, values))
    assert sums.tolist() == [sum(int(values[v]) for v in range(n) if int(row[0]) >> v & 1) for row in bits[:count]]


def test_enumeration_stops_above_its_limit():
    """Four operators side by side have 16 down-sets: a limit of 15 is found out, one of 16 is enough."""
    at, none = np.zeros(5, dtype=np.int64), np.zeros(0, dtype=np.int64)
    for enumerate_ in (kernels.enumerate_ideals, kernels.enumerate_ideals.py_func):
        assert enumerate_(4, at, none, at, none, 16)[3] == 16
        assert enumerate_(4, at, none, at, none, 15)[3] == 16  # one more than the limit


@pytest.mark.parametrize(("chains", "length"), [(2, 3), (3, 5), (4, 5), (5, 4)])
def test_parallel_chains(chains, length):
    """Chains of one second a block side by side: (length + 1) ** chains ideals; each device takes one chain.

    A tensor inside a chain takes a second, so that a device which cuts any has more than `length` to do.
    """
    tensors = [
        Tensor(c * length + i, (c * length + i + 1,), seconds=1.0) for c in range(chains) for i in range(length - 1)
    ]
    graph = CostGraph(forward=[1.0] * (chains * length), tensors=tensors)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(chains))
    program = IdealProgram.build(CutTables(problem), Run())
    assert program is not None
    assert program.size == (length + 1) ** chains
    result = solve(problem, solver="ideals")
    assert (result.status, result.objective) == ("optimal", length)


def test_parallel_chains_on_fewer_devices():
    """Three chains of four seconds on two devices: 6 and 6 cut one tensor of a quarter second, 8 and 4 cut none."""
    tensors = [Tensor(4 * c + i, (4 * c + i + 1,), seconds=0.25) for c in range(3) for i in range(3)]
    graph = CostGraph(forward=[1.0] * 12, tensors=tensors)
    result = solve(CutProblem(graph=graph, cluster=Cluster.uniform(2)), solver="ideals")
    assert (result.status, result.objective) == ("optimal", 6.25)


def test_wide_graphs_are_refused_at_once():
    """Thirty operators side by side have 2 ** 30 down-sets; the refusal says so, and auto goes on without."""
    problem = CutProblem(graph=CostGraph(forward=[1.0] * 30), cluster=Cluster.uniform(4))
    assert "30 blocks lie side by side" in (Ideals().accepts(problem) or "")
    with pytest.raises(balance.ProblemError, match="30 blocks lie side by side"):
        solve(problem, solver="ideals")


def test_too_many_ideals_are_a_memory_limit(monkeypatch):
    """A graph that is only found to be too large while its ideals are made ends as a limit, not as an error."""
    monkeypatch.setattr(wing, "LARGEST", 50)
    graph = fork_join(branches=3, length=4, seed=1)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2, bandwidth=1e9))
    result = solve(problem, solver="ideals")
    assert (result.status, result.stop_reason) == ("unknown", "memory_limit")
    assert result.provenance["stats"]["ideals"]["ideals"] == "> 50"


def test_an_incumbent_at_the_optimum_is_proved():
    """Nothing is below the optimum: starting from it ends with the same value and a proof."""
    graph = fork_join(branches=3, length=5, repeats=2, seed=3)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(3, bandwidth=1e10))
    first = solve(problem, solver="ideals")
    again = solve(problem, solver="ideals", incumbent=first)
    assert (again.status, again.objective) == ("optimal", first.objective)


def test_interruption_keeps_the_bound(monkeypatch):
    """A run that is stopped between two thresholds reports the last one that was refuted."""
    graph = fork_join(branches=3, length=6, repeats=3, seed=5)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(4, bandwidth=2e8))
    best = solve(problem, solver="ideals")
    run = Run()
    program = IdealProgram.build(CutTables(problem), run)
    assert program is not None
    plain, calls = program.search, []

    def stopping(aim, limit, most_f, most_b, decide):
        calls.append(limit)
        if len(calls) == 3:
            run.interrupt()
            return None
        return plain(aim, limit, most_f, most_b, decide=decide)

    monkeypatch.setattr(program, "search", stopping)
    outcome = program.bottleneck()
    assert outcome.solution is None
    assert outcome.stop_reason == "interrupted"
    assert calls[1] < BIG
    assert outcome.bound == pytest.approx((calls[1] + 1) / program.tables.scale, rel=1e-9)
    assert outcome.bound <= best.objective


@pytest.mark.parametrize(
    ("tables", "kind", "parameters", "says"),
    [
        ({"parameter_bytes": [1.0, 9.0, 1.0]}, "gpu", {}, ("'body'", "9 bytes", "'dev0'", "has 5")),
        ({"parameter_bytes": 4.0}, "gpu", {}, ("12 bytes", "2 largest devices have 10")),
        ({"parameter_bytes": 2.0}, "gpu", {"max_stages": 1}, ("6 bytes", "1 largest devices have 5")),
        ({}, "tpu", {}, ("'body'", "runs on gpu", "the cluster has kinds tpu")),
        ({"colocation": ["x", None, "x"], "pinned": [0, -1, 1]}, "gpu", {}, ("'stem'", "'head'", "'dev0'", "'dev1'")),
        ({"parameter_bytes": 3.0}, "gpu", {}, ("3 blocks", "2 devices")),
    ],
    ids=["operator", "total", "stages", "kind", "pins", "packing"],
)
def test_reasons_why_there_is_no_plan(tables, kind, parameters, says):
    """Names and numbers of what cannot be; three blocks of 3 bytes fit two devices of 5 in total, but not in parts."""
    forward = {"gpu": [1.0, 1.0, 1.0], "tpu": [1.0, np.inf, 1.0]}
    tensors = [Tensor(0, (1,)), Tensor(1, (2,))]
    graph = CostGraph(forward=forward, tensors=tensors, names=["stem", "body", "head"], **tables)
    cluster = Cluster([Device(kind, memory_bytes=5.0, name=f"dev{i}") for i in range(2)])
    result = solve(CutProblem(graph=graph, cluster=cluster, **parameters), solver="ideals")
    assert (result.status, result.bound) == ("infeasible", np.inf)
    text = " ".join(reason.message for reason in result.reasons)
    for words in says:
        assert words in text


@pytest.mark.parametrize("limit", [0.0, 1e-3])
def test_a_run_without_time_claims_nothing_false(limit):
    """Stopped before or while its ideals are made: no false proof, a bound below the optimum."""
    graph = fork_join(branches=3, length=6, repeats=3, seed=5)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(4, bandwidth=2e8))
    best = solve(problem, solver="ideals").objective
    result = solve(problem, solver="ideals", time_limit=limit)
    assert result.status in ("unknown", "feasible", "optimal")
    assert result.bound <= best * (1 + 1e-9)
    if result.status != "optimal":
        assert result.stop_reason == "time_limit"


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"contiguity": "convex"}, "contiguity='acyclic' only"),
        ({"contiguity": "none"}, "contiguity='acyclic' only"),
        ({"send": "each"}, "what a stage pays depends on the stages after it"),
    ],
)
def test_what_it_does_not_answer(parameters, says):
    """Other contiguities, and senders that pay for each reader where some tensor has several."""
    graph = CostGraph(forward=[1.0] * 3, tensors=[Tensor(0, (1, 2), seconds=1.0), Tensor(1, (2,), seconds=1.0)])
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(2), **parameters)
    assert says in (Ideals().accepts(problem) or "")
    with pytest.raises(balance.ProblemError, match=says):
        solve(problem, solver="ideals")


def test_single_readers_make_each_and_once_the_same():
    """With one reader per tensor the sender pays once either way, so it is accepted."""
    graph = CostGraph.chain([3.0, 1.0, 3.0], seconds=[1.0, 1.0])
    values = {
        solve(CutProblem(graph=graph, cluster=Cluster.uniform(2), send=send), solver="ideals").objective
        for send in ("once", "each")
    }
    assert values == {5.0}


def test_a_plan_within_the_threshold_is_no_optimum(monkeypatch):
    """When time runs out right after a plan was found, its value is not claimed to be proved."""
    graph = fork_join(branches=3, length=6, repeats=3, seed=5)
    problem = CutProblem(graph=graph, cluster=Cluster.uniform(4, bandwidth=2e8))
    best = solve(problem, solver="ideals").objective
    run = Run()
    program = IdealProgram.build(CutTables(problem), run)
    assert program is not None
    plain = program.search

    def late(*arguments, **options):
        found = plain(*arguments, **options)
        if found is not None:
            run.interrupt()
        return found

    monkeypatch.setattr(program, "search", late)
    outcome = program.bottleneck()
    assert outcome.stop_reason == "interrupted"
    assert outcome.solution is not None
    assert outcome.bound <= best <= problem.evaluate(outcome.solution).objective
