"""Split a neural network over devices, and know how good the split is."""

from __future__ import annotations

import logging

from balance import plot
from balance.comparison import Comparison, compare
from balance.front import Check, check, lower_bounds, solve, state_problem
from balance.limits import Progress, Run, StopReason
from balance.problems.chain import ChainProblem
from balance.problems.cut import CutProblem
from balance.problems.formats import list_formats, read, write
from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.errors import (
    BalanceError,
    ClusterError,
    ExecutionError,
    FormatError,
    GraphError,
    LinearisationError,
    MissingDependencyError,
    OptionError,
    PlanError,
    ProblemError,
    ScheduleError,
    SolverError,
    SolverNotFoundError,
)
from balance.problems.model.graph import Configuration, CostGraph, Operator
from balance.problems.model.plan import Assignment, Plan, Replica, Stage
from balance.problems.model.problem import Evaluation, Problem, Violation
from balance.problems.model.schedule import Schedule
from balance.problems.model.simulate import simulate
from balance.problems.model.tensors import Tensor, Tensors
from balance.problems.model.timeline import Timeline
from balance.registry import Outcome, Solver, list_problems, list_solvers
from balance.result import Result
from balance.status import Status

__version__ = "0.1.0"

# Programs that set up no logging hear nothing from a library.
logging.getLogger("balance").addHandler(logging.NullHandler())

__all__ = [
    "Assignment",
    "BalanceError",
    "ChainProblem",
    "Check",
    "Cluster",
    "ClusterError",
    "Comparison",
    "Configuration",
    "CostGraph",
    "CutProblem",
    "Device",
    "Evaluation",
    "ExecutionError",
    "FormatError",
    "GraphError",
    "Instance",
    "LinearisationError",
    "Link",
    "MissingDependencyError",
    "Operator",
    "OptionError",
    "Outcome",
    "Plan",
    "PlanError",
    "Problem",
    "ProblemError",
    "Progress",
    "Replica",
    "Result",
    "Run",
    "Schedule",
    "ScheduleError",
    "Solver",
    "SolverError",
    "SolverNotFoundError",
    "Stage",
    "Status",
    "StopReason",
    "Tensor",
    "Tensors",
    "Timeline",
    "Violation",
    "__version__",
    "check",
    "compare",
    "list_formats",
    "list_problems",
    "list_solvers",
    "lower_bounds",
    "plot",
    "read",
    "simulate",
    "solve",
    "state_problem",
    "write",
]
