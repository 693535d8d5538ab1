"""Bench spec: what importing the package costs."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from balance.bench.campaign import same_code
from balance.bench.spec import Spec, Target

# Each is imported where it is used; one of them at import time would cost more than the package itself.
HEAVY = ("networkx", "scipy.optimize", "numba", "pulp", "cvxpy", "ortools", "torch", "matplotlib", "highspy", "pandas")

_CODE = """
import json, sys, time
begin = time.perf_counter()
import balance
seconds = time.perf_counter() - begin
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""


def _import(_: None) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CODE], capture_output=True, text=True, check=True, env=same_code()
    )
    return dict(json.loads(done.stdout))


def _check(_: None, value: dict[str, Any]) -> None:
    assert "balance" in value["modules"]
    heavy = [name for name in HEAVY if name in value["modules"]]
    assert not heavy, f"import balance also imports {', '.join(heavy)}"


SPECS = (
    Spec(
        name="package/import",
        measures="`import balance` in a fresh process, without the interpreter's own start",
        full={},
        smoke={},
        prepare=lambda: None,
        run=_import,
        check=_check,
        figure=lambda value: float(value["seconds"]),
        target=Target(0.6),
        repeats=5,
    ),
)
