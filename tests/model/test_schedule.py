"""Tests of schedules and of their validation."""

from __future__ import annotations

import copy
import json
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from balance.problems.model.completeness import check_completeness
from balance.problems.model.errors import FormatError, ScheduleError
from balance.problems.model.plan import Plan
from balance.problems.model.schedule import Schedule
from balance.problems.model.templates import build_schedule
from tests.model.strategies import valid_rows

ROWS = [["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]]


@given(valid_rows(), st.data())
def test_valid_schedules_pass_and_broken_ones_do_not(rows: list[list[str]], data: st.DataObject) -> None:
    """Rows that follow a global order are valid; one action less, twice or of a wrong stage is found."""
    schedule = Schedule.from_rows(rows)
    schedule.validate()
    assert schedule.rows() == rows
    cells = [(d, i) for d, row in enumerate(rows) for i in range(len(row))]
    d, i = data.draw(st.sampled_from(cells))
    where = {"n_stages": schedule.n_stages, "microbatches": schedule.microbatches}
    less = [row[:i] + row[i + 1 :] if e == d else row for e, row in enumerate(rows)]
    twice = [[*row[:i], row[i], *row[i:]] if e == d else row for e, row in enumerate(rows)]
    forward_only = all(cell[1] == "F" for row in less for cell in row)  # what is left is complete without B
    for broken in (twice,) if forward_only else (less, twice):
        with pytest.raises(ScheduleError, match=rows[d][i][0]):
            Schedule.from_rows(broken, **where).validate()


@given(valid_rows(), st.data())
def test_shuffled_rows_run_or_show_a_real_cycle(rows: list[list[str]], data: st.DataObject) -> None:
    """Any order of complete rows either runs through or names actions that truly wait for each other."""
    shuffled = [data.draw(st.permutations(row)) for row in rows]
    schedule = Schedule.from_rows(shuffled)
    last = schedule.n_stages - 1
    letters = "FIW" if any(a[1] == "I" for row in rows for a in row) else "FB"

    def producers(action: str) -> list[str]:
        stage, letter, m = int(action[0]), action[1], action[2:]
        if letter == "F":
            return [f"{stage - 1}F{m}"] if stage else []
        if letter == "W":
            return [f"{stage}I{m}"]
        return [f"{stage}F{m}"] if stage == last else [f"{stage + 1}{letters[1]}{m}"]

    done: set[str] = set()
    at = [0] * len(shuffled)
    moved = True
    while moved:
        moved = False
        for d, row in enumerate(shuffled):
            while at[d] < len(row) and all(p in done for p in producers(row[at[d]])):
                done.add(row[at[d]])
                at[d] += 1
                moved = True
    if all(at[d] == len(row) for d, row in enumerate(shuffled)):
        schedule.validate()
        return
    with pytest.raises(ScheduleError, match="deadlock") as caught:
        schedule.validate()
    cycle = caught.value.facts["cycle"]
    place = {a: (d, i) for d, row in enumerate(shuffled) for i, a in enumerate(row)}
    for one, following in zip(cycle, [*cycle[1:], cycle[0]], strict=True):
        # Each waits for what makes its input, or for what stands before it on its own device.
        before = place[following][0] == place[one][0] and place[following][1] <= place[one][1]
        assert following in producers(one) or before, cycle


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([["0F0", "0F0", "0B0"]], "0F0 is there 2 times"),
        ([["0F0"], ["0B0"]], "stage 0 is on devices"),
        ([["0F0", "0B0"], ["1F0"]], "1B0 is missing"),
        ([["0F0", "0B0", "0F1"]], "0B1 is missing"),
        ([["0F0", "0W0"]], "0W0 is there without 0I0"),
        ([["0F0", "0I0"]], "0I0 is there without 0W0"),
        ([["0F0", "0B0", "0I0", "0W0"]], "0B0 and 0I0 do the same work"),
        ([["0F0", "0B0", "0B0"]], "0B0 is there more than once"),
        ([["0F0", "0I0", "0I0", "0W0", "0W0"]], "0I0 is there more than once"),
        ([["0B0", "0F0"]], "deadlock: 0B0 waits for 0F0, which comes after 0B0 on device 0"),
        ([["0F0", "0W0", "0I0"]], "deadlock: 0W0 waits for 0I0"),
        ([["0F0", "0B0", "0F1", "0B1"], ["1F0", "1F1", "1B1", "1B0"]], "deadlock: 0B0 waits for 1B0, .* 1F1 .* 0F1"),
        ([["0F0", "0E0", "0B0"]], "0E0 is alone"),
        ([["0F0", "0L0", "0E0", "0B0"]], "0E0 and 0L0 must lie in this order"),
        ([["0F0", "0E0", "0E0", "0L0", "0B0"]], "0E0 is there more than once"),
        ([[]], "0F0 is missing"),
    ],
)
def test_the_first_broken_rule_is_named(rows: list[list[str]], says: str) -> None:
    """Each rule has a message that names the actions."""
    with pytest.raises(ScheduleError, match=says):
        Schedule.from_rows(rows).validate()


def test_eviction_in_its_place_is_valid() -> None:
    """Evicted activations do not count as held."""
    rows = [["0F0", "0E0", "0F1", "0E1", "0F2", "0B2", "0L1", "0B1", "0L0", "0B0"]]
    schedule = Schedule.from_rows(rows)
    schedule.validate()
    assert schedule.peak_in_flight().tolist() == [1]


def test_deadlock_between_several_devices() -> None:
    """The cycle leaves out devices that only wait for it."""
    rows = [["0F0", "0B0"], ["1F0", "1B0"], ["2B0", "2F0"]]
    with pytest.raises(ScheduleError, match="deadlock: 2B0 waits for 2F0") as caught:
        Schedule.from_rows(rows).validate()
    assert caught.value.facts["cycle"] == ("2B0", "2F0")[: len(caught.value.facts["cycle"])]


def test_large_deadlock_is_found_by_the_compiled_loop() -> None:
    """The compiled loop and the plain one agree on where a large schedule hangs."""
    rows = build_schedule("1f1b", 4, 400).rows()
    rows[2][100:102] = rows[2][101], rows[2][100]
    rows[3][400:403] = rows[3][402], rows[3][401], rows[3][400]
    with pytest.raises(ScheduleError, match="deadlock"):
        Schedule.from_rows(rows).validate()


def test_peak_in_flight_by_hand() -> None:
    """A split backward pass holds its micro-batch until the weight gradient."""
    assert Schedule.from_rows(ROWS).peak_in_flight().tolist() == [2, 1]
    late = Schedule.from_rows([["0F0", "0I0", "0F1", "0I1", "0W0", "0W1"]])
    assert late.peak_in_flight().tolist() == [2]
    assert Schedule.from_rows([["0F0", "0F1"]]).peak_in_flight().tolist() == [1]


def test_reading() -> None:
    """Views, rows and sizes agree with the arrays."""
    schedule = Schedule.from_rows([*ROWS, []])
    assert (schedule.n_devices, schedule.n_stages, schedule.microbatches, len(schedule)) == (3, 2, 2, 8)
    assert schedule.training
    assert schedule.device.tolist() == [0] * 4 + [1] * 4
    assert schedule.home.tolist() == [0, 1]
    assert [str(action) for action in schedule.actions(1)] == ROWS[1]
    with pytest.raises(ScheduleError, match="no device 3"):
        schedule.actions(3)
    with pytest.raises(ValueError, match="read-only"):
        schedule.stage[0] = 1


@given(valid_rows())
def test_round_trips(rows: list[list[str]]) -> None:
    """JSON, pickle and copy give an equal schedule."""
    schedule = Schedule.from_rows(rows)
    assert Schedule.from_json(json.loads(json.dumps(schedule.to_json()))) == schedule
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert copy.deepcopy(schedule) == schedule
    assert hash(copy.copy(schedule)) == hash(schedule)


def test_a_plan_carries_a_schedule() -> None:
    """A plan with its own schedule comes back from JSON; a broken schedule is refused with its place."""
    plan = Plan.chain([0, 1, 2], microbatches=2, schedule=Schedule.from_rows(ROWS))
    assert Plan.from_json(plan.to_json()) == plan
    data = plan.to_json()
    data["schedule"]["rows"][0].pop()
    with pytest.raises(FormatError, match="0B1 is missing"):
        Plan.from_json(data)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rows": [["0F0junk"]]}, "is not an action"),
        ({"rows": ["0F0"]}, r"rows\[0\]: expected a list"),
        ({"rows": "0F0"}, "expected a list"),
        ({"rows": [[None]]}, "is not an action"),
        ({"n_stages": 10**9, "microbatches": 10**9}, "0F2 is missing"),
        ({"n_stages": 10**30}, "whole number"),
        ({"n_stages": 2**40}, "must be between"),
        ({"n_stages": 1}, "out of range"),
        ({"more": 1}, "not a known field"),
        ({"version": 2}, "version"),
        ({"schema": "x"}, "schema"),
    ],
)
def test_hostile_files(change: dict[str, object], says: str) -> None:
    """Broken files are refused with a reason, and huge numbers do not fill the memory."""
    data = {**Schedule.from_rows(ROWS).to_json(), **change}
    with pytest.raises(FormatError, match=says):
        Schedule.from_json(data)


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (([0], [0], [0, 1], [0, 1]), "must agree"),
        (([0], [0], [0], [0, 2]), "must agree"),
        (([0, 0], [0, 0], [0, 1], [0, 2, 1, 2]), "must agree"),
        (([0], [-1], [0], [0, 1]), "-1 among the micro-batches"),
        (([0], [0], [6], [0, 1]), "6 among the kinds"),
        (([0.5], [0], [0], [0, 1]), "whole numbers"),
    ],
)
def test_columns_must_fit(columns: tuple[list[float], ...], says: str) -> None:
    """The constructor refuses shapes and numbers that make no schedule."""
    with pytest.raises(ScheduleError, match=says):
        Schedule(*columns)


def test_arrays_of_the_caller_stay_his() -> None:
    """Changing an array after the fact does not change the schedule."""
    stage = np.zeros(2, dtype=np.int32)
    schedule = Schedule(stage, [0, 0], [0, 1], [0, 2])
    stage[0] = 1
    assert schedule.rows() == [["0F0", "0B0"]]
    check_completeness(schedule)
