"""Bench specs: the cut problem: exact programs over ideals, slicing, and plans for very large graphs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from balance import Progress, Result, solve
from balance.bench.campaign import same_code
from balance.bench.instances import SkippedError, list_instances
from balance.bench.spec import Spec, Target
from balance.problems.cut import CutProblem
from balance.problems.instances.random_graphs import fork_join, layered_dag
from balance.problems.model.cluster import Cluster

_SPEED = 1e10  # bytes per second, that of the generators' tensors


def _branches(branches: int, length: int, repeats: int, devices: int) -> CutProblem:
    graph = fork_join(branches=branches, length=length, repeats=repeats, seed=1)
    return CutProblem(graph=graph, cluster=Cluster.uniform(devices, bandwidth=_SPEED))


def _layered(operators: int, layers: int, devices: int) -> CutProblem:
    graph = layered_dag(operators=operators, layers=layers, seed=1)
    return CutProblem(graph=graph, cluster=Cluster.uniform(devices, bandwidth=_SPEED))


def _optimal(problem: CutProblem, result: Result) -> None:
    assert str(result.status) == "optimal", (result.status, result.gap)
    assert problem.evaluate(result.solution).objective == result.objective


# -- public workloads ------------------------------------------------------------------------------------------------


def _public(prefix: str) -> dict[str, CutProblem]:
    """Return the published throughput workloads that are on this machine, and always some of our own."""
    problems = {
        "own/two-branches": _branches(2, 60, 1, 8),
        "own/three-branches": _branches(3, 20, 2, 6),
    }
    for instance in list_instances():
        if instance.name.startswith(prefix):
            try:
                problem = instance.problem("cut")
            except SkippedError:
                continue
            assert isinstance(problem, CutProblem)
            problems[instance.name] = problem
    return problems


def _each(problems: Mapping[str, CutProblem]) -> dict[str, tuple[Result, float]]:
    found = {}
    for name, problem in problems.items():
        began = time.process_time()
        result = solve(problem, threads=1)
        found[name] = (result, time.process_time() - began)
    return found


def _check_each(problems: Mapping[str, CutProblem], found: Mapping[str, tuple[Result, float]]) -> None:
    for name, problem in problems.items():
        _optimal(problem, found[name][0])


def _slowest(found: Mapping[str, tuple[Result, float]]) -> float:
    return max(seconds for _, seconds in found.values())


# -- fresh processes -------------------------------------------------------------------------------------------------

_CODE = """
import json, resource, sys, time
began = time.perf_counter()
from balance.bench.specs.cut import _branches
from balance import solve
problem = _branches(*json.loads(sys.argv[1]))
result = solve(problem, solver=sys.argv[2], time_limit=20)
ideals = result.provenance["stats"].get("ideals", {}).get("ideals", 0)
seconds = time.perf_counter() - began
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"status": str(result.status), "ideals": ideals, "seconds": seconds, "bytes": peak}))
"""


def _fresh(arguments: tuple[list[int], str]) -> dict[str, Any]:
    sizes, solver = arguments
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE, json.dumps(sizes), solver],
        capture_output=True,
        text=True,
        check=True,
        env=same_code(),
    )
    return dict(json.loads(done.stdout))


def _check_fresh(arguments: tuple[list[int], str], value: Mapping[str, Any]) -> None:
    assert value["status"] == "optimal", value


def _check_many(arguments: tuple[list[int], str], value: Mapping[str, Any]) -> None:
    branches, length, repeats, _ = arguments[0]
    # Every branch is cut anywhere; at both ends of a repeat there is one more down-set.
    assert value["ideals"] == repeats * ((length + 1) ** branches + 1) + 1, value


# -- very large graphs -----------------------------------------------------------------------------------------------


def _first_plan(problem: CutProblem) -> tuple[float, Result]:
    """Return the seconds until there is a plan, and the result."""
    began = time.perf_counter()
    seconds: list[float] = []

    def stop(progress: Progress) -> bool:
        if progress.objective is not None:
            seconds.append(time.perf_counter() - began)
        return bool(seconds)

    result = solve(problem, on_progress=stop, time_limit=60.0)
    return (seconds[0] if seconds else float("inf")), result


def _check_first(problem: CutProblem, value: tuple[float, Result]) -> None:
    assert value[1].solution is not None
    assert problem.evaluate(value[1].solution).feasible


SPECS = (
    Spec(
        name="cut/public",
        measures="the slowest of the public throughput workloads (those that are here, and two of our own), solved to "
        "proven optimality by `auto`, CPU seconds",
        full={"prefix": "public/throughput"},
        smoke={"prefix": "none"},
        prepare=_public,
        run=_each,
        check=_check_each,
        figure=_slowest,
        target=Target(0.5),
    ),
    Spec(
        name="cut/ideals",
        measures="two branches of 300 operators, 90,603 ideals, 8 devices, solver `ideals`",
        full={"branches": 2, "length": 300, "repeats": 1, "devices": 8},
        smoke={"branches": 2, "length": 12, "repeats": 1, "devices": 3},
        prepare=_branches,
        run=lambda problem: solve(problem, solver="ideals"),
        check=_optimal,
        target=Target(0.5),
    ),
    Spec(
        name="cut/fresh-process",
        measures="a fresh process from its first import to a proven optimum, compiled kernels on the disk",
        full={"sizes": [2, 60, 1, 8], "solver": "auto"},
        smoke={"sizes": [2, 6, 1, 2], "solver": "auto"},
        prepare=lambda sizes, solver: (sizes, solver),
        run=_fresh,
        check=_check_fresh,
        figure=lambda value: float(value["seconds"]),
        target=Target(2.5),
    ),
    Spec(
        name="cut/ideals-memory",
        measures="a fresh process with 2,000,378 ideals and 16 devices, 20 seconds of search: peak resident memory",
        full={"sizes": [3, 125, 1, 16], "solver": "ideals"},
        smoke={"sizes": [3, 6, 1, 2], "solver": "ideals"},
        prepare=lambda sizes, solver: (sizes, solver),
        run=_fresh,
        check=_check_many,
        figure=lambda value: float(value["bytes"]),
        target=Target(2e9, "bytes"),
        unit="bytes",
        repeats=1,
        warm=False,
    ),
    Spec(
        name="cut/slicing",
        measures="2,000 operators in a given order cut into 64 stages: `slicing`, seconds per order",
        full={"operators": 2_000, "layers": 100, "devices": 64},
        smoke={"operators": 60, "layers": 10, "devices": 4},
        prepare=_layered,
        run=lambda problem: solve(problem, solver="slicing"),
        check=lambda problem, result: _check_first(problem, (0.0, result)),
        figure=lambda result: result.seconds / result.provenance["stats"]["slicing"]["orders"],
        target=Target(0.3),
    ),
    Spec(
        name="cut/large",
        measures="100,000 operators over 64 devices: seconds until there is a plan",
        full={"operators": 100_000, "layers": 1_000, "devices": 64},
        smoke={"operators": 400, "layers": 20, "devices": 4},
        prepare=_layered,
        run=_first_plan,
        check=_check_first,
        figure=lambda value: value[0],
        target=Target(10.0),
        repeats=1,
    ),
)
