"""Plans, stages, replicas and assignments."""

from __future__ import annotations

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.errors import FormatError, PlanError
from balance.problems.model.plan import Assignment, Plan, Replica, Stage

ONE = (Replica((0,)),)


def stage(operators: list[int], *devices: int, **fields: Any) -> Stage:
    """Return a stage on some devices, one replica each."""
    share = 1.0 / len(devices)
    return Stage(np.array(operators, dtype=np.int64), tuple(Replica((d,), share) for d in devices), **fields)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan of up to eight operators in up to four stages, some of them empty."""
    n, s = draw(st.integers(0, 8)), draw(st.integers(1, 4))
    home = draw(st.lists(st.integers(0, s - 1), min_size=n, max_size=n))
    stages = []
    for b in range(s):
        own = [v for v in range(n) if home[v] == b]
        count = draw(st.integers(1, 3))
        weights = draw(st.lists(st.integers(1, 5), min_size=count, max_size=count))
        replicas = tuple(
            Replica((2 * r, 2 * r + 1)[: draw(st.integers(1, 2))], w / sum(weights)) for r, w in enumerate(weights)
        )
        columns = draw(st.just(0) | st.lists(st.integers(0, 3), min_size=len(own), max_size=len(own)).map(np.array))
        evict = draw(st.none() | st.sampled_from([t for t in range(s) if t != b])) if s > 1 else None
        if isinstance(columns, np.ndarray):
            columns = columns.astype(np.int64)
        stages.append(Stage(np.array(own, dtype=np.int64), replicas, columns, draw(st.booleans()), evict))
    size = draw(st.none() | st.floats(1e-3, 1e3))
    return Plan(tuple(stages), draw(st.integers(1, 9)), size, draw(st.sampled_from(["gpipe", "1f1b"])))


@given(plan=plans())
def test_plans_round_trip(plan: Plan) -> None:
    """JSON text, pickling and copying keep everything; arrays stay read-only."""
    text = json.dumps(plan.to_json(), allow_nan=False)
    for other in (Plan.from_json(json.loads(text)), pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert other == plan
        for mine, yours in zip(plan.stages, other.stages, strict=True):
            assert mine.columns.tolist() == yours.columns.tolist()
            assert not yours.operators.flags.writeable


@given(plan=plans(), n=st.integers(0, 10))
def test_stage_of_inverts_the_stages(plan: Plan, n: int) -> None:
    """Every operator is found in the stage that holds it, others nowhere."""
    stage_of = plan.stage_of(n)
    for s, row in enumerate(plan.stages):
        assert np.flatnonzero(stage_of == s).tolist() == [v for v in row.operators.tolist() if v < n]


def test_saving_and_loading(tmp_path: Path) -> None:
    """A saved plan loads equal; ranges are written short."""
    plan = Plan.chain([0, 5, 5, 9], [2, 0, 1], recompute=[True, False, False], microbatches=4, schedule="gpipe")
    plan.save(tmp_path / "p.json")
    assert Plan.load(tmp_path / "p.json") == plan
    assert plan.to_json()["stages"][0]["operators"] == {"first": 0, "last": 4}
    assert plan.to_json()["stages"][1]["operators"] == []


def test_chains_are_cut_at_positions() -> None:
    """Cuts give consecutive operators, in any order of theirs, on any devices."""
    plan = Plan.chain([0, 1, 3], [4, 2], order=np.array([2, 0, 1]))
    assert [row.operators.tolist() for row in plan.stages] == [[2], [0, 1]]
    assert (plan.n_stages, plan.devices, plan.stages[0].device) == (2, [4, 2], 4)
    assert plan.replace(microbatches=3).microbatches == 3
    assert plan.replace(microbatches=3) != plan


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Replica(()), "at least one"),
        (lambda: Replica((0, 0)), "distinct device"),
        (lambda: Replica((-1,)), "device indices"),
        (lambda: Replica((0,), 0.0), "share"),
        (lambda: Replica((0,), float("nan")), "share"),
        (lambda: Stage([0], ()), "at least one replica"),
        (lambda: Stage([0, 0], ONE), "operator 0 is twice in one stage"),
        (lambda: Stage([0.5], ONE), "operators of a stage must be given by position"),
        (lambda: Stage(["a"], ONE), "operators of a stage must be given by position"),
        (lambda: Stage([0], (Replica((0,), 0.5),)), "add up to 0.5, not to 1"),
        (lambda: Stage([0], (Replica((0,), 0.5), Replica((0,), 0.5))), "serves two replicas"),
        (lambda: Stage([0, 1], ONE, [0]), "1 configurations for the 2 operators"),
        (lambda: Stage([0, 1], ONE, [0, 0.5]), "configurations of a stage must be"),
        (lambda: Plan(()), "at least one stage"),
        (lambda: Plan((stage([0], 0),), microbatches=0), "at least one micro-batch"),
        (lambda: Plan((stage([0], 0),), microbatch_size=0.0), "must be positive"),
        (lambda: Plan((stage([-1], 0),)), "not negative"),
        (lambda: Plan((stage([0, 3], 0), stage([3], 1))), "operator 3 is in stages 0 and 1"),
        (lambda: Plan((stage([0], 0, evict_to=0),)), "evicts to stage 0"),
        (lambda: Plan((stage([0], 0, evict_to=1),)), "evicts to stage 1"),
        (lambda: Plan.chain([0]), "cuts rise from 0"),
        (lambda: Plan.chain([1, 2]), "cuts rise from 0"),
        (lambda: Plan.chain([0, 2, 1]), "cuts rise from 0"),
        (lambda: Plan.chain([0, 1], [0, 1]), "need 1 devices"),
        (lambda: stage([0], 0, 1).device, "on 2 devices, not on one"),
        (lambda: Assignment([0.5]), "devices of an assignment must be"),
        (lambda: Assignment([[0]]), "must be a list"),
        (lambda: Assignment([0, -1]), "operator 1 is assigned to device -1"),
    ],
)
def test_bad_plans_are_refused(make: Any, message: str) -> None:
    """Doubled operators, wrong shares and numbers out of range are refused by name."""
    with pytest.raises(PlanError, match=message):
        make()


def test_stages_sort_their_operators() -> None:
    """Order of input does not matter, and the caller's array is not kept."""
    mine = np.array([3, 1])
    row = Stage(mine, ONE)
    mine[0] = 9
    assert row.operators.tolist() == [1, 3]
    assert row == stage([1, 3], 0)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["schema"], "x", "expected 'dnn-balance/plan'"),
        (["stages"], None, "missing"),
        (["stages"], [], "at least one stage"),
        (["stages", 0, "operators"], 5, "expected a list of positions"),
        (["stages", 0, "operators"], [0.5], r"stages\[0\].operators\[0\]: expected a whole number"),
        (["stages", 0, "operators"], {"first": 3, "last": 1}, "does not follow first"),
        (["stages", 0, "operators"], {"first": 0, "last": 10**15}, "more than"),
        (["stages", 0, "operators"], {"first": 0}, "missing"),
        (["stages", 0, "replicas"], [], "at least one replica"),
        (["stages", 0, "replicas", 0, "share"], 2.0, "share"),
        (["stages", 0, "replicas", 0, "devices"], ["a"], "expected a number"),
        (["stages", 0, "configuration"], [0], "configurations for"),
        (["stages", 0, "colour"], 1, "not a known field"),
        (["microbatches"], 0, "at least 1"),
        (["microbatch_size"], 0, "positive"),
    ],
)
def test_bad_files_are_refused(path: list[Any], value: Any, message: str) -> None:
    """Each defect of a file gives a FormatError."""
    data = Plan.chain([0, 5, 9]).to_json()
    inner: Any = data
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(FormatError, match=message):
        Plan.from_json(data)


def test_assignments_round_trip() -> None:
    """An assignment is one device index per operator."""
    answer = Assignment([1, 0, 1])
    for other in (Assignment.from_json(answer.to_json()), pickle.loads(pickle.dumps(answer)), copy.deepcopy(answer)):
        assert other == answer
        assert not other.device.flags.writeable
    assert answer != Assignment([1, 0])
    for bad in ({"device": [0]}, {**answer.to_json(), "device": [-1]}, {**answer.to_json(), "x": 1}, []):
        with pytest.raises(FormatError):
            Assignment.from_json(bad)


def test_chains_take_a_configuration() -> None:
    """One column of the cost tables for all stages."""
    assert [stage.configuration for stage in Plan.chain([0, 1, 3], configuration=2).stages] == [2, 2]
