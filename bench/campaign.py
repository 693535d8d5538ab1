"""Bench room: run cells one after another, each in a process of its own, and append one row per cell to a journal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import balance
from balance.bench.journal import SCHEMA, VERSION, Journal
from balance.bench.provenance import provenance, versions

START_ALLOWANCE = 60.0  # seconds for a fresh interpreter, compiled kernels and reading the instance
_TAIL = 2_000  # characters of a dead process's last words that are kept

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One thing to run: a spec to measure, or an instance to solve with one solver and one seed.

    Parameters
    ----------
    kind
        ``"measure"`` or ``"solve"``.
    name
        Name of the spec or of the instance.
    problem, solver
        Of a solve.
    seed
        Seed of the solver.
    time_limit
        Seconds that the solver (or the whole measurement) may take.
    threads
        Threads that the solver may use.
    size
        ``"full"`` or ``"smoke"``, of a measurement.
    """

    kind: str
    name: str
    problem: str | None = None
    solver: str | None = None
    seed: int = 0
    time_limit: float = 60.0
    threads: int = 1
    size: str = "full"

    @property
    def options(self) -> dict[str, Any]:
        """What was asked for, beside the name: part of the cell's identity."""
        if self.kind == "measure":
            return {"size": self.size, "time_limit": self.time_limit}
        return {"time_limit": self.time_limit, "threads": self.threads}

    @property
    def key(self) -> str:
        """Identity of the cell: two rows with the same key, made by the same code, are the same run."""
        parts = [self.kind, self.name]
        if self.kind == "solve":
            parts += [str(self.problem), str(self.solver), f"seed={self.seed}"]
        for name, value in self.options.items():
            parts.append(f"{name}={_short(value)}")
        return " ".join(parts)

    @property
    def outside_limit(self) -> float:
        """Seconds after which the process is killed from outside."""
        return START_ALLOWANCE + 1.5 * self.time_limit

    def to_json(self) -> dict[str, Any]:
        """Return the cell as the child process takes it."""
        return {
            "kind": self.kind,
            "name": self.name,
            "problem": self.problem,
            "solver": self.solver,
            "seed": self.seed,
            "time_limit": self.time_limit,
            "threads": self.threads,
            "size": self.size,
        }


@dataclass
class Tally:
    """What a campaign did.

    Parameters
    ----------
    run, skipped, failed, missed
        Cells run now; already in the journal; that failed or were killed, and targets missed, among the rows of this
        campaign's cells, old or new.
    changed
        Cells among those run now that the journal held already, but from other code.
    repaired
        Bytes of a torn last line that were cut off before the start.
    rows
        The rows of this campaign's cells, in order of the cells.
    """

    run: int = 0
    skipped: int = 0
    failed: int = 0
    missed: int = 0
    changed: int = 0
    repaired: int = 0
    rows: list[Row] = field(default_factory=list)


def run_campaign(
    cells: Iterable[Cell],
    path: str | Path,
    *,
    suite: str = "",
    on_start: Callable[[Cell], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
    retry_failed: bool = False,
) -> Tally:
    """Run every cell that the journal at `path` does not hold yet.

    A row counts for a cell only if it was made by the code of now (`balance.bench.provenance.code`) with the same
    versions of what it needs; where anything was changed since, the cell runs again. The older row stays.

    Parameters
    ----------
    cells
        What to run, in order.
    path
        The journal; see `balance.bench.journal.Journal`.
    suite
        Recorded in the rows.
    on_start, on_row
        Called before a cell runs and after its row is on the disk.
    retry_failed
        Whether cells whose last row is a failure run again; the older row stays.

    Raises
    ------
    OptionError
        If the journal cannot be written, or another campaign writes it.
    FormatError
        If the file holds something else than rows of campaigns.
    """
    tally = Tally()
    version = versions().get("dnn-balance", "")
    with Journal(path) as journal:
        tally.repaired = journal.repaired
        done: dict[tuple[str, str], Row] = {}
        for old in journal.rows():
            done[old["key"], _maker(old["provenance"])] = old
        before = {key for key, _ in done}
        for cell in cells:
            # Asked again for every cell: the files may be edited, and the machine be busier, while a campaign runs.
            origin = provenance()
            identity = cell.key, _maker(origin)
            row = done.get(identity)
            if row is not None and not (retry_failed and row["status"] in ("failed", "killed")):
                tally.skipped += 1
            else:
                tally.changed += row is None and cell.key in before
                if on_start is not None:
                    on_start(cell)
                row = {
                    "schema": SCHEMA,
                    "schema_version": VERSION,
                    "key": cell.key,
                    "version": version,
                    "suite": suite,
                    **run_cell(cell),
                    "provenance": origin,
                }
                journal.append(row)
                done[identity] = row
                tally.run += 1
                if on_row is not None:
                    on_row(row)
            tally.rows.append(row)
            tally.failed += row["status"] in ("failed", "killed")
            tally.missed += (row.get("figure") or {}).get("met") is False
    return tally


def run_cell(cell: Cell, command: tuple[str, ...] = ("-m", "balance.bench.cell")) -> Row:
    """Run one cell in a fresh process and return its row; whatever happens there becomes a row.

    Parameters
    ----------
    cell
        What to run.
    command
        Arguments of the interpreter that start the child (tests give others).
    """
    row: Row = {
        "kind": cell.kind,
        "name": cell.name,
        "problem": cell.problem,
        "solver": cell.solver,
        "seed": cell.seed,
        "options": cell.options,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="dnn-balance-bench-") as folder:
        answer, words = Path(folder, "row.json"), Path(folder, "words.txt")
        row.update(_child(cell, [sys.executable, "-P", *command, str(answer)], answer, words))
    row["wall_seconds"] = round(time.perf_counter() - begin, 4)
    return row


def _child(cell: Cell, command: list[str], answer: Path, words: Path) -> Mapping[str, Any]:
    with words.open("wb") as sink:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=same_code(),
        )
        assert process.stdin is not None
        try:
            # The pipe stays open: its end tells the child that this process is gone, however it went.
            try:
                process.stdin.write(json.dumps(cell.to_json()).encode() + b"\n")
                process.stdin.flush()
            except BrokenPipeError:
                pass  # it died at once; its exit status below says how
            process.wait(timeout=cell.outside_limit)
        except subprocess.TimeoutExpired:
            _kill(process)
            return {
                "status": "killed",
                "stop_reason": "outside_limit",
                "error": {
                    "type": "Timeout",
                    "message": f"still running {cell.outside_limit:g} s after the start (its own limit is "
                    f"{cell.time_limit:g} s)",
                },
            }
        except BaseException:
            _kill(process)
            raise
        finally:
            process.stdin.close()
    try:
        found = json.loads(answer.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        last = words.read_text(encoding="utf-8", errors="replace")[-_TAIL:]
        return {"status": "failed", "error": {"type": "ProcessDied", "message": _death(process.returncode, last)}}
    return found if isinstance(found, dict) else {"status": "failed", "error": {"type": "BadAnswer", "message": ""}}


def same_code() -> dict[str, str]:
    """Return an environment in which ``python -P`` imports this very package, installed or not."""
    # This room is reached as balance/bench; what counts is where the package `balance` lies, not where the link points.
    home = str(Path(balance.__path__[0]).parent)
    found = [home, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(found))}


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the child and everything that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (AttributeError, ProcessLookupError, PermissionError):
        process.kill()
    process.wait()


def _maker(origin: Mapping[str, Any]) -> str:
    """Return what two rows of one cell must share to be the same run."""
    return json.dumps([origin.get("code"), origin.get("versions")], sort_keys=True)


def _short(value: Any) -> str:
    """Return a value as text; a whole number of seconds without its fraction, every other number in full."""
    short = f"{value:g}" if isinstance(value, float) else str(value)
    return short if not isinstance(value, float) or float(short) == value else repr(value)


def _death(code: int, last: str) -> str:
    if code < 0:
        try:
            how = f"was ended by {signal.Signals(-code).name}"
        except ValueError:
            how = f"was ended by signal {-code}"
    else:
        how = f"ended with status {code} and no answer"
    return f"the process {how}" + (f"; it said: {last.strip()}" if last.strip() else "")
