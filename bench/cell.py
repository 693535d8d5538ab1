"""Bench room: the child process of a campaign: runs one cell and writes its answer to a file."""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import threading
import traceback
from typing import Any

from balance.bench.campaign import Cell
from balance.problems.model.errors import OptionError
from balance.problems.model.files import write_text


def answer(cell: Cell) -> dict[str, Any]:
    """Run a cell here and now; every failure becomes part of the answer."""
    try:
        return _measure(cell) if cell.kind == "measure" else _solve(cell)
    except AssertionError as error:
        return {"status": "failed", "error": {"type": "WrongValue", "message": str(error) or _where(error)}}
    except Exception as error:  # a campaign goes on whatever a solver raises; the row says what it was
        return {"status": "failed", "error": {"type": type(error).__name__, "message": str(error), "at": _where(error)}}


def _measure(cell: Cell) -> dict[str, Any]:
    from balance.bench.discovery import find_spec
    from balance.bench.spec import measure

    found = measure(find_spec(cell.name), cell.size)
    return {
        "status": "measured",
        "figure": {
            "value": found.value,
            "unit": found.unit,
            "limit": found.limit,
            "met": found.met,
            "samples": list(found.samples),
            "parameters": found.parameters,
        },
    }


def _solve(cell: Cell) -> dict[str, Any]:
    from balance import solve
    from balance.bench.instances import find_instance

    problem = find_instance(cell.name).problem(str(cell.problem))
    if problem is None:
        raise OptionError(f"problem {cell.problem!r} cannot be stated on instance {cell.name!r}")
    result = solve(problem, solver=str(cell.solver), time_limit=cell.time_limit, seed=cell.seed, threads=cell.threads)
    return {
        "status": str(result.status),
        "stop_reason": str(result.stop_reason),
        "objective": _finite(result.objective),
        "bound": _finite(result.bound),
        "gap": _finite(result.gap),
        "unit": problem.objective_unit,
        "bound_name": result.bound_name,
        "seconds": result.seconds,
        "graph": problem.graph.hash,
        "operators": problem.graph.n_operators,
        "devices": problem.cluster.n_devices,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _where(error: BaseException) -> str:
    """Return file and line of the innermost frame, for the row."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _end_with_parent(folder: str) -> None:
    """Wait for the end of the parent's pipe and leave at once: an orphan would disturb the next campaign.

    The temporary folder goes too, since the parent that made it no longer can remove it.
    """
    # Below the buffered reader, whose lock a thread must not hold while the interpreter shuts down.
    while os.read(0, 4096):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Read the cell from the first line of standard input, write the answer to the file named by the argument."""
    cell = Cell(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_parent, args=[os.path.dirname(sys.argv[1])], daemon=True).start()
    write_text(sys.argv[1], json.dumps(answer(cell), allow_nan=False))
    # The answer is complete. What libraries do while an interpreter shuts down takes time, may hang, and would run
    # without the thread that looks after the parent.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
