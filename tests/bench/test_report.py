"""Tests of the report: a pure function of rows."""

from __future__ import annotations

from typing import Any

from balance.bench.report import figure_text, report, seconds_text


def _figure(value: float, met: bool | None, version: str = "1") -> dict[str, Any]:
    return {
        "key": "measure chain/x",
        "version": version,
        "kind": "measure",
        "name": "chain/x",
        "status": "measured",
        "figure": {"value": value, "unit": "s", "limit": 0.5, "met": met, "samples": [value], "parameters": {"n": 10}},
    }


def _solve(**changes: Any) -> dict[str, Any]:
    row = {
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
    }
    return {**row, **changes}


def test_a_missed_target_stands_out() -> None:
    """Targets are shown with what was measured, and a miss in bold."""
    page = report([_figure(0.7, False)])
    assert "| chain/x | n 10 | 700 ms | 700 ms to 700 ms | < 500 ms | **no** |" in page


def test_a_solve_says_why_it_stopped() -> None:
    """Status, stop reason and gap stand in one row."""
    assert "| feasible (time_limit) | 2 | 1.5 | 25 % | 3 s |" in report([_solve()])


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
