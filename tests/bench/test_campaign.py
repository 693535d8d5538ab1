"""Tests of campaigns: resume after a kill, outside limits, failures as rows, provenance."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import balance
from balance.bench import campaign
from balance.bench.campaign import Cell, run_campaign, run_cell, same_code
from balance.bench.journal import Journal
from balance.bench.provenance import code, provenance
from balance.problems.model.errors import FormatError

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
    changes += [{"time_limit": 60.0000001}, {"time_limit": 1e6}, {"time_limit": 1e6 + 1}]
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


@pytest.mark.skipif(os.name == "nt", reason="kills a process")
def test_killed_and_resumed_without_a_lost_or_doubled_row(tmp_path: Path) -> None:
    """A campaign killed at random moments, with a torn line on top each time, is completed by the next one."""
    path = tmp_path / "rows.jsonl"
    rng = random.Random(1)
    keys = [cell.key for cell in CELLS]
    whole = b""
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", _CAMPAIGN, str(path)], stdout=subprocess.PIPE, text=True, env=same_code()
        )
        assert process.stdout is not None
        process.stdout.readline()  # a row is on the disk, or the campaign is at its end
        time.sleep(rng.uniform(0.0, 0.3))  # into the next cell
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        content = path.read_bytes()
        assert content.startswith(whole)  # what was on the disk before is still there
        whole = content[: content.rfind(b"\n") + 1]
        assert len(set(found(whole))) == len(found(whole)) >= 1
        with path.open("ab") as file:
            file.write(b'{"schema":"dnn-balance/bench-row","key":"torn')
    tally = run_campaign(CELLS, path, suite="test")
    assert tally.repaired > 0
    assert tally.skipped == len(found(whole))
    assert tally.skipped + tally.run == 3
    assert found(path.read_bytes()) == keys


def found(content: bytes) -> list[str]:
    """Return the keys of the rows in a journal."""
    return [json.loads(line)["key"] for line in content.splitlines()]


@pytest.mark.skipif(os.name == "nt", reason="kills a process")
def test_a_killed_campaign_leaves_neither_processes_nor_folders(tmp_path: Path) -> None:
    """The child of a campaign that was killed ends and removes the temporary folder that its parent made."""
    environment = {**same_code(), "TMPDIR": str(tmp_path)}
    slow = _CAMPAIGN.replace("model/cluster", "package/import").replace('"smoke"', '"full"')
    process = subprocess.Popen(
        [sys.executable, "-c", slow, str(tmp_path / "rows.jsonl")], stdout=subprocess.DEVNULL, env=environment
    )
    _wait(lambda: any(tmp_path.glob("dnn-balance-bench-*/words.txt")))
    time.sleep(0.7)  # the child has started
    process.send_signal(signal.SIGKILL)
    process.wait()
    _wait(lambda: not any(tmp_path.glob("dnn-balance-bench-*")))


def _wait(for_what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not for_what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_changed_code_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row of other code, or of other versions of what it needs, does not count; the older row stays."""
    path = tmp_path / "rows.jsonl"
    made = {"versions": {"numpy": "1"}, "machine": {}, "commit": None, "code": "a"}
    monkeypatch.setattr(campaign, "provenance", lambda: dict(made))
    monkeypatch.setattr(campaign, "run_cell", lambda cell: {"kind": "measure", "name": "x/y", "status": "failed",
                                                            "error": {}})  # fmt: skip
    counts = []
    for change in ({}, {}, {"code": "b"}, {"versions": {"numpy": "2"}}, {}):
        made.update(change)
        tally = run_campaign(CELLS[:1], path)
        counts.append((tally.run, tally.skipped, tally.changed))
    assert counts == [(1, 0, 0), (0, 1, 0), (1, 0, 1), (1, 0, 1), (0, 1, 0)]
    assert len(list(Journal(path).rows())) == 3


def test_the_code_has_a_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It follows the content and names of Python files, through links, and ignores caches and the command line."""
    home, linked = tmp_path / "balance", tmp_path / "problems"
    for folder in (home / "cli", linked / "__pycache__"):
        folder.mkdir(parents=True)
    (home / "problems").symlink_to(linked)
    monkeypatch.setattr(balance, "__path__", [str(home)])
    seen = [code()]
    for path in (home / "a.py", linked / "b.py"):
        path.write_text("1")
        seen.append(code())
    (linked / "b.py").write_text("2")
    seen.append(code())
    (linked / "b.py").rename(linked / "c.py")
    seen.append(code())
    assert len(set(seen)) == 5
    for path in (home / "cli" / "x.py", linked / "__pycache__" / "b.py", home / "notes.txt"):
        path.write_text("3")
    assert code() == seen[-1]


def test_a_foreign_file_is_not_continued(tmp_path: Path) -> None:
    """A journal of something else is refused with its line, and left as it was."""
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key": "x"}\n')
    with pytest.raises(FormatError, match=r"rows\.jsonl, line 1, schema: is not a row of a campaign"):
        run_campaign(CELLS[:1], path)
    assert path.read_text() == '{"key": "x"}\n'


def test_provenance_is_json() -> None:
    """What a row carries is plain JSON."""
    assert json.loads(json.dumps(provenance(), allow_nan=False))["versions"]["python"]
