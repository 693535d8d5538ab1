"""Pictures of timelines: Gantt charts (needs matplotlib) and traces for a browser's timeline viewer."""

from __future__ import annotations

from balance.plot.gantt import gantt
from balance.plot.trace import chrome_trace

__all__ = ["chrome_trace", "gantt"]
