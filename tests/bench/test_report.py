"""Tests of the report: a pure function of rows."""

from __future__ import annotations

from typing import Any

import pytest

from balance.bench.report import figure_text, report, seconds_text
from balance.problems.model.errors import FormatError

MADE = {
    "schema": "dnn-balance/bench-row",
    "schema_version": 1,
    "provenance": {
        "versions": {"numpy": "2"},
        "machine": {"cores": 2},
        "commit": "f" * 40 + "+changes",
        "code": "abcd",
    },
}


def _figure(value: float, met: bool | None, version: str = "1") -> dict[str, Any]:
    return {
        **MADE,
        "key": "measure chain/x",
        "version": version,
        "kind": "measure",
        "name": "chain/x",
        "status": "measured",
        "figure": {"value": value, "unit": "s", "limit": 0.5, "met": met, "samples": [value], "parameters": {"n": 10}},
    }


def _solve(**changes: Any) -> dict[str, Any]:
    row = {
        **MADE,
        "key": "solve tiny/a chain milp",
        "version": "1",
        "kind": "solve",
        "name": "tiny/a",
        "problem": "chain",
        "solver": "milp",
        "seed": 0,
        "status": "feasible",
        "stop_reason": "time_limit",
        "objective": 2.0,
        "bound": 1.5,
        "gap": 0.25,
        "seconds": 3.0,
        "unit": "s",
    }
    return {**row, **changes}


def test_a_missed_target_stands_out() -> None:
    """Targets are shown with what was measured, and a miss in bold."""
    page = report([_figure(0.7, False)])
    assert "| chain/x | n 10 | 700 ms | 700 ms to 700 ms | < 500 ms | **no** |" in page


def test_a_solve_says_why_it_stopped() -> None:
    """Status, stop reason and gap stand in one row."""
    assert "| feasible (time_limit) | 2 s | 1.5 | 25 % | 3 s |" in report([_solve()])


def test_a_failure_has_its_own_table() -> None:
    """A failed cell is not among the solves and its message cannot break the table."""
    page = report([_solve(status="failed", error={"type": "SolverError", "message": "a|b\nc"})])
    assert "## Solves" not in page
    assert "| failed | SolverError | a\\|b c |" in page


def test_the_last_row_of_a_key_counts() -> None:
    """A repeated cell shows its newest row; another version is another row."""
    page = report([_figure(0.7, False), _figure(0.1, True), _figure(0.2, True, version="2")])
    assert "700 ms" not in page
    assert page.count("| chain/x |") == 2


def test_no_rows_give_a_page() -> None:
    """An empty journal is not an error."""
    assert "No rows." in report([])


def test_order_does_not_depend_on_the_rows_order() -> None:
    """The same rows in another order give the same page."""
    rows = [_solve(key=f"k{i}", name=f"tiny/{i}") for i in range(4)]
    assert report(rows) == report(rows[::-1])


def test_amounts_have_units() -> None:
    """Seconds and bytes are readable; absent is a dash."""
    assert [seconds_text(x) for x in (2.5, 0.0025, 2.5e-6, None)] == ["2.5 s", "2.5 ms", "2.5 us", "-"]
    assert figure_text(8e8, "bytes") == "800 MB"


def test_the_origin_of_rows_is_told() -> None:
    """Rows of two versions of the code are counted apart."""
    other = {**MADE["provenance"], "code": "beef"}
    page = report([_solve(), _solve(key="b"), _solve(key="c", provenance=other)])
    assert f"2 rows: numpy 2, commit {'f' * 12}+changes, code abcd; None, 2 cores" in page
    assert "1 rows: numpy 2" in page


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema": "x"}, "schema"),
        ({"schema_version": 2}, "schema_version"),
        ({"key": None}, "key"),
        ({"status": 3}, "status"),
        ({"provenance": None}, "provenance"),
        ({"status": "failed"}, "error"),
        ({"kind": "measure", "status": "measured"}, "figure"),
        ({"kind": "measure", "status": "measured", "figure": {"value": 1}}, "figure.unit"),
    ],
)
def test_what_is_no_row_is_refused(change: dict[str, Any], field: str) -> None:
    """A foreign or newer file is an error that names the field, not a traceback."""
    with pytest.raises(FormatError) as caught:
        report([_solve(**change)])
    assert caught.value.field == field
