"""How it is run: profile a model, run a plan on torch.distributed, compare predicted with achieved.

Importing this package costs nothing: torch is imported by the modules that use it, on first use of a name. Without
torch the names that need it raise `MissingDependencyError`.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from balance.problems.model.errors import MissingDependencyError

if TYPE_CHECKING:
    from balance.executor.launch import Ranks
    from balance.executor.links import measure_links
    from balance.executor.profiling import profile
    from balance.executor.record import RankRecord
    from balance.executor.report import RunReport
    from balance.executor.runner import run, run_plans

__all__ = ["RankRecord", "Ranks", "RunReport", "measure_links", "profile", "run", "run_plans"]

# Name -> (module, whether it needs torch). A saved report is read and drawn without torch.
_HOMES = {
    "RankRecord": ("record", False),
    "Ranks": ("launch", True),
    "RunReport": ("report", False),
    "measure_links": ("links", True),
    "profile": ("profiling", True),
    "run": ("runner", True),
    "run_plans": ("runner", True),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use.

    Raises
    ------
    AttributeError
        If there is no such name.
    MissingDependencyError
        If the name needs torch and torch is not installed.
    """
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, needs_torch = _HOMES[name]
    if needs_torch and importlib.util.find_spec("torch") is None:
        raise MissingDependencyError(
            f"balance.executor.{name} needs PyTorch, which is not installed; install the extra 'executor': "
            f"pip install 'dnn-balance[executor]'",
            extra="executor",
            package="torch",
        )
    return getattr(importlib.import_module(f"{__name__}.{module}"), name)


def __dir__() -> list[str]:
    """List the public names, also those not imported yet."""
    return sorted({*globals(), *__all__})
