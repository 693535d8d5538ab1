"""Executor room: how loaded the machine was while something was measured on it."""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

_PRESSURE = Path("/proc/pressure/cpu")


@dataclass
class Pressure:
    """Context manager that measures how long runnable work waited for a CPU.

    Parameters
    ----------
    stalled
        Share of the time in which at least one task of the machine waited for a CPU, in 0..1; None where the kernel
        does not tell. Ranks on cores of their own on an idle machine see a few percent.
    load_average
        One-minute load average at the end, or None.
    seconds
        Wall time of the block.
    """

    stalled: float | None = None
    load_average: float | None = None
    seconds: float = 0.0
    _started: float = 0.0
    _before: float | None = None

    def __enter__(self) -> Pressure:
        self._started, self._before = time.perf_counter(), _stalled_seconds()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._started
        after = _stalled_seconds()
        if after is not None and self._before is not None and self.seconds > 0:
            self.stalled = min(max((after - self._before) / self.seconds, 0.0), 1.0)
        if hasattr(os, "getloadavg"):
            self.load_average = os.getloadavg()[0]

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {key: value for key, value in asdict(self).items() if not key.startswith("_")}


def _stalled_seconds() -> float | None:
    try:
        line = _PRESSURE.read_text(encoding="ascii").splitlines()[0]
        return float(line.rsplit("total=", 1)[1]) / 1e6
    except (OSError, IndexError, ValueError):
        return None
