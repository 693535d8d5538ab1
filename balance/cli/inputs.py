"""Command line: from the paths and options that a user gives to graphs, clusters, plans and problems."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from balance.problems.formats import read
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import FormatError, OptionError, PlanError
from balance.problems.model.fields import Fields
from balance.problems.model.files import parse_json, read_text
from balance.problems.model.graph import CostGraph
from balance.problems.model.plan import SCHEMA as PLAN_SCHEMA
from balance.problems.model.plan import Plan
from balance.problems.model.problem import Problem
from balance.result import SCHEMA as RESULT_SCHEMA

_ASSIGNMENT_SCHEMA = "dnn-balance/assignment"
_ANSWERS = (PLAN_SCHEMA, RESULT_SCHEMA, _ASSIGNMENT_SCHEMA)
_SCHEMA_FIRST = re.compile(r'\s*\{\s*"schema"\s*:\s*"([^"]*)"')


def load_instance(path: Path, format: str | None = None) -> Instance:
    """Read a graph or instance file of any known format."""
    return read(path, format)


def load_graph(path: Path, format: str | None = None) -> CostGraph:
    """Read a graph file of any known format, without its devices."""
    return read(path, format).graph


def answer_and_graph(answer: Path, graph: Path) -> tuple[Path, Path]:
    """Return a plan or result file and a graph file in this order, whichever was named first.

    What cannot be told apart stays as it was given, so that the error is about the documented order.
    """
    if not (answer.is_file() and graph.is_file()):  # a pipe can be read only once, what is missing not at all
        return answer, graph
    return (graph, answer) if not _is_answer(answer) and _is_answer(graph) else (answer, graph)


def _is_answer(path: Path) -> bool:
    """Return whether a file holds a plan or a result, told by its schema."""
    try:
        text = read_text(path)
        first = _SCHEMA_FIRST.match(text)
        if first is not None:  # as our own writers do: no need to read the rest, which may be broken
            return first[1] in _ANSWERS
        if not any(f'"{schema}"' in text for schema in _ANSWERS):
            return False
        data = parse_json(text)
    except FormatError:  # told by whoever reads the file for its content
        return False
    return isinstance(data, dict) and data.get("schema") in _ANSWERS


def load_solution(path: Path, problem: Problem) -> Any:
    """Read a plan, an assignment or a result file as a solution of a problem.

    Raises
    ------
    FormatError
        If the file holds none.
    PlanError
        If it is a result without a solution.
    """
    data = parse_json(read_text(path), str(path))
    inner = data.get("solution") if isinstance(data, dict) and data.get("schema") == RESULT_SCHEMA else data
    if inner is None:
        raise PlanError(f"{path} is a result without a plan (status {data.get('status')})")
    try:
        return problem.solution_from_json(inner)
    except FormatError as error:
        raise FormatError(error.reason, path=str(path), field=error.field, **error.facts) from None


def load_cluster(path: Path) -> Cluster:
    """Read a cluster file, or a file with a list of devices."""
    return Cluster.load(path)


def load_devices(devices: int | None, devices_file: Path | None) -> int | Cluster | None:
    """Return what ``--devices`` or ``--devices-file`` says; None leaves it to the instance.

    Raises
    ------
    OptionError
        If both are given.
    """
    if devices is not None and devices_file is not None:
        raise OptionError("give --devices or --devices-file, not both")
    return devices if devices_file is None else load_cluster(devices_file)


@dataclass(frozen=True)
class LoadedPlan:
    """A plan from a file of its own or from a result.

    Parameters
    ----------
    plan
        The plan.
    cluster
        The devices that it was made for, if the file says so.
    state_factor, backend
        What its problem holds of the memory, as in `balance.simulate`.
    """

    plan: Plan
    cluster: Cluster | None = None
    state_factor: float = 1.0
    backend: str = "none"


def load_plan(path: Path, graph: CostGraph | None = None) -> LoadedPlan:
    """Read a plan file, or the plan inside a result file.

    Parameters
    ----------
    path
        The file.
    graph
        When given and the file is a result, it must be the graph that was solved.

    Raises
    ------
    FormatError
        If the file holds neither, or a result of another graph.
    PlanError
        If the result holds no plan, or a solution that has no timeline.
    """
    data = parse_json(read_text(path), str(path))
    if not isinstance(data, dict):
        raise FormatError("expected a plan or a result, a JSON object", path=str(path))
    try:
        if data.get("schema") == PLAN_SCHEMA:
            return LoadedPlan(Plan.from_json(data))
        if data.get("schema") == _ASSIGNMENT_SCHEMA:
            raise _no_timeline(path, _ASSIGNMENT_SCHEMA)
        if "solution" not in data:
            raise FormatError(f"is neither a plan nor a result (schema {data.get('schema')!r})")
        return _from_result(data, path, graph)
    except FormatError as error:
        if error.path is not None:
            raise
        raise FormatError(error.reason, path=str(path), field=error.field, **error.facts) from None


def _no_timeline(path: Path, kind: object) -> PlanError:
    return PlanError(
        f"{path} holds a solution that is not a plan of stages ({kind}): it has no timeline and cannot be run"
    )


def _from_result(data: dict[str, Any], path: Path, graph: CostGraph | None) -> LoadedPlan:
    solution = data["solution"]
    if solution is None:
        raise PlanError(f"{path} is a result without a plan (status {data.get('status')})")
    if not isinstance(solution, dict) or solution.get("schema") != PLAN_SCHEMA:
        kind = solution.get("schema") if isinstance(solution, dict) else type(solution).__name__
        raise _no_timeline(path, kind)
    problem = Fields(data).inner("problem")
    solved = problem.text("graph", None)
    if graph is not None and solved not in (None, graph.hash):
        raise FormatError(
            f"the result is for a graph with hash {solved[:12]}, but the given graph has {graph.hash[:12]}"
        )
    cluster = problem.take("cluster", None)
    parameters = problem.inner("parameters") if problem.has("parameters") else Fields({})
    return LoadedPlan(
        Plan.from_json(solution),
        None if cluster is None else Cluster.from_json(cluster),
        parameters.number("state_factor", 1.0),
        parameters.text("backend", "none"),
    )
