"""Parameters of a problem: wrong types and values are named, with what is expected."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ProblemError
from balance.problems.model.graph import CostGraph

GRAPH = CostGraph.chain([1.0, 2.0], backward=[1.0, 1.0])
CLUSTER = Cluster.uniform(2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"state_factor": "x"}, "state_factor must be a number that is finite and not negative, got 'x'"),
        ({"state_factor": None}, "state_factor must be a number"),
        ({"state_factor": True}, "state_factor must be a number"),
        ({"state_factor": -1.0}, "not negative, got -1.0"),
        ({"state_factor": float("nan")}, "got nan"),
        ({"microbatches": "3"}, "microbatches must be a whole number of at least 1, got '3'"),
        ({"microbatches": [3]}, r"microbatches must be a whole number of at least 1, got \[3\]"),
        ({"chunks": None}, "chunks must be a whole number of at least 1, got None"),
        ({"in_flight": 3}, "in_flight must be a list of whole numbers of at least 1, got 3"),
        ({"in_flight": "32"}, "in_flight must be a list of whole numbers of at least 1, got '32'"),
        ({"in_flight": (2, None)}, "in_flight must be a whole number of at least 1, got None"),
        ({"idle": "no"}, "idle must be True or False, got 'no'"),
        ({"idle": 0}, "idle must be True or False, got 0"),
        ({"free_kinds": "cpu"}, "free_kinds must be a list of names, got 'cpu'"),
        ({"free_kinds": (1,)}, "free_kinds must be a list of names, got 1 in it"),
        ({"free_kinds": None}, "free_kinds must be a list of names, got None"),
        ({"configuration": "a"}, "configuration 'a' does not exist; the graph has 1, give a whole number from 0 to 0"),
        ({"configuration": 0.5}, "configuration 0.5 does not exist"),
        ({"configuration": -1}, "configuration -1 does not exist"),
        ({"objective": 1}, "objective=1 is not one of bottleneck, fw-bw-bottleneck"),
        ({"overlap": ["sum"]}, r"overlap=\['sum'\] is not one of sum, max"),
        ({"schedule": np.array(["1f1b", "gpipe"])}, "schedule=array"),
        ({"recompute": "alway"}, "did you mean 'always'"),
        ({"graph": [1.0, 2.0]}, r"graph must be a CostGraph, got \[1.0, 2.0\]"),
        ({"cluster": 2}, "cluster must be a Cluster, got 2"),
    ],
)
def test_wrong_parameters_are_named(given: dict[str, Any], says: str) -> None:
    """The message has the parameter, the value, and what is expected."""
    with pytest.raises(ProblemError, match=says):
        ChainProblem(**{"graph": GRAPH, "cluster": CLUSTER, **given})


def test_numbers_of_other_types_are_taken() -> None:
    """Numbers of NumPy and lists are what people have at hand; the problem holds plain ones."""
    problem = ChainProblem(
        graph=GRAPH,
        cluster=CLUSTER,
        idle=np.bool_(False),
        state_factor=np.float32(4.0),
        microbatches=np.int64(3),
        in_flight=np.array([1, 2]),
        free_kinds=["device"],
        configuration=np.int8(0),
    )
    held = (problem.idle, problem.state_factor, problem.microbatches, problem.in_flight, problem.free_kinds)
    assert held == (False, 4.0, 3, (1, 2), ("device",))
    assert [type(value) for value in held] == [bool, float, int, tuple, tuple]
