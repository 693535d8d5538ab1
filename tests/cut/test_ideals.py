"""The program over ideals: published optima, limits, and its kernels against plain Python."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import balance
from balance import Cluster, CostGraph, Tensor, solve
from balance.cut import ideals as wing
from balance.cut.ideals import IdealProgram, Ideals
from balance.cut.layers import BIG
from balance.cut.tables import CutTables
from balance.limits import Run
from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import fork_join

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
    from balance.cut import _ideal_kernels as kernels

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
