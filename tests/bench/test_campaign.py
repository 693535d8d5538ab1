"""Tests of campaigns: resume after a kill, outside limits, failures as rows, provenance."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from balance.bench import campaign
from balance.bench.campaign import Cell, run_campaign, run_cell, same_code
from balance.bench.journal import Journal
from balance.bench.provenance import provenance

CELLS = [Cell(kind="measure", name="model/cluster", size="smoke", time_limit=float(t)) for t in (20, 21, 22)]


def _stub(text: str) -> tuple[str, ...]:
    """Return a child that runs `text` with the cell in `cell` and the answer's path in `path`."""
    return ("-c", f"import json, os, sys, time\ncell = json.loads(sys.stdin.readline())\npath = sys.argv[1]\n{text}")


def test_a_cell_becomes_a_row() -> None:
    """A measured figure comes back from the child process with its options."""
    row = run_cell(CELLS[0])
    assert row["status"] == "measured", row
    assert row["figure"]["unit"] == "s"
    assert row["options"] == {"size": "smoke", "time_limit": 20.0}


def test_a_cell_that_hangs_is_killed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that ignores its limit ends, with what it started, and leaves a row."""
    monkeypatch.setattr(campaign, "START_ALLOWANCE", 0.5)
    cell = Cell(kind="measure", name="x/y", time_limit=0.2)
    begin = time.perf_counter()
    row = run_cell(cell, _stub("time.sleep(60)"))
    assert time.perf_counter() - begin < 10
    assert (row["status"], row["stop_reason"]) == ("killed", "outside_limit")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("print('last words'); sys.exit(7)", "status 7 and no answer; it said: last words"),
        ("os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("open(path, 'w').write('{')", "no answer"),
    ],
)
def test_a_dead_process_becomes_a_row(text: str, words: str) -> None:
    """Whatever way a process dies, the row says how."""
    row = run_cell(CELLS[0], _stub(text))
    assert row["status"] == "failed"
    assert words in row["error"]["message"]


def test_an_exception_becomes_a_row() -> None:
    """An unknown spec is a failed row with the error's own words."""
    row = run_cell(Cell(kind="measure", name="no/such"))
    assert row["status"] == "failed"
    assert row["error"]["type"] == "OptionError"


def test_a_finished_campaign_runs_nothing_again(tmp_path: Path) -> None:
    """Running the same cells a second time skips all of them and adds no row."""
    path = tmp_path / "rows.jsonl"
    first = run_campaign(CELLS[:1], path, suite="smoke")
    content = path.read_bytes()
    second = run_campaign(CELLS[:1], path, suite="smoke")
    assert (first.run, first.skipped, second.run, second.skipped) == (1, 0, 0, 1)
    assert path.read_bytes() == content
    assert second.rows == first.rows


def test_rows_carry_their_provenance(tmp_path: Path) -> None:
    """Each row names versions, machine, options and when it ran, so that it can be cited."""
    path = tmp_path / "rows.jsonl"
    run_campaign(CELLS[:1], path, suite="smoke")
    row = next(Journal(path).rows())
    assert row["schema"] == "dnn-balance/bench-row"
    assert row["suite"] == "smoke"
    assert row["provenance"]["versions"]["numpy"]
    assert row["provenance"]["machine"]["cores"] >= 1
    assert row["started"].endswith("+00:00")
    assert row["key"] == CELLS[0].key
    assert row["wall_seconds"] > 0


def test_the_key_holds_everything_that_was_asked() -> None:
    """Cells that differ in solver, seed, limit or threads are different rows."""
    base: dict[str, Any] = {"kind": "solve", "name": "tiny/a", "problem": "chain", "solver": "milp"}
    changes: list[dict[str, Any]] = [{}, {"solver": "counts"}, {"seed": 1}, {"time_limit": 5.0}, {"threads": 2}]
    assert len({Cell(**{**base, **change}).key for change in changes}) == len(changes)


def test_failures_run_again_only_when_asked(tmp_path: Path) -> None:
    """A failed row is kept and not repeated unless the caller wants it."""
    path = tmp_path / "rows.jsonl"
    cells = [Cell(kind="measure", name="no/such")]
    assert run_campaign(cells, path).failed == 1
    assert run_campaign(cells, path).run == 0
    assert run_campaign(cells, path, retry_failed=True).run == 1
    assert len(list(Journal(path).rows())) == 2


_CAMPAIGN = """
import sys
from balance.bench.campaign import Cell, run_campaign
cells = [Cell(kind="measure", name="model/cluster", size="smoke", time_limit=float(t)) for t in (20, 21, 22)]
run_campaign(cells, sys.argv[1], suite="test", on_row=lambda row: print("row", flush=True))
"""


@pytest.mark.skipif(os.name == "nt", reason="kills a process group")
def test_killed_and_resumed_without_a_lost_or_doubled_row(tmp_path: Path) -> None:
    """A campaign killed in the middle, with a torn line on top, is completed by the next one."""
    path = tmp_path / "rows.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", _CAMPAIGN, str(path)], stdout=subprocess.PIPE, text=True, env=same_code()
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "row\n"
    time.sleep(0.2)  # into the second cell
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with path.open("ab") as file:
        file.write(b'{"schema":"dnn-balance/bench-row","key":"torn')
    tally = run_campaign(CELLS, path, suite="test")
    assert tally.repaired > 0
    assert tally.skipped + tally.run == 3
    assert tally.skipped >= 1
    keys = [json.loads(line)["key"] for line in path.read_bytes().splitlines()]
    assert sorted(keys) == sorted(cell.key for cell in CELLS)


def test_provenance_is_json() -> None:
    """What a row carries is plain JSON."""
    assert json.loads(json.dumps(provenance(), allow_nan=False))["versions"]["python"]
