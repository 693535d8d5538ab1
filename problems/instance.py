"""Problem room: the instance, everything that one file says about a problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ProblemError
from balance.problems.model.graph import CostGraph


@dataclass(frozen=True)
class Instance:
    """What a file holds: a graph, the devices if it names them, and what its numbers were published to mean.

    Parameters
    ----------
    graph
        What is split.
    cluster
        The file's own devices, or None.
    preset
        Name of the published cost model that gives the numbers their meaning, such as
        ``"device-placement-2020"``.
    parameters
        Keyword arguments of a problem that spell the preset out (``microbatches``, ``send``, ...).
    name
        Label for reports.
    format
        Name of the file format it was read from, or None.
    path
        The file it was read from, or None.
    notes
        Sentences that a reader of the numbers should know, such as doubtful units.

    Raises
    ------
    ProblemError
        If an argument is of the wrong type.

    Examples
    --------
    >>> Instance(CostGraph.chain([1.0, 2.0]), name="tiny").parameters
    {}
    """

    graph: CostGraph
    cluster: Cluster | None = None
    preset: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict, hash=False)
    name: str = ""
    format: str | None = None
    path: str | None = None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, kind in (("graph", CostGraph), ("cluster", (Cluster, type(None))), ("parameters", Mapping)):
            if not isinstance(getattr(self, name), kind):
                raise ProblemError(f"{name} of an instance cannot be of type {type(getattr(self, name)).__name__}")
        notes: object = self.notes
        if not isinstance(notes, (list, tuple)) or not all(isinstance(note, str) for note in notes):
            raise ProblemError(f"notes of an instance must be a list of sentences, got {self.notes!r}")
        object.__setattr__(self, "parameters", dict(self.parameters))
        object.__setattr__(self, "notes", tuple(self.notes))

    def summary(self) -> str:
        """Return a few lines for people: graph, devices, preset, parameters and notes."""
        lines = [self.graph.summary()]
        if self.cluster is not None:
            lines.append(f"  {self.cluster!r}")
        if self.preset is not None:
            given = ", ".join(f"{key}={value!r}" for key, value in self.parameters.items())
            lines.append(f"  preset {self.preset}" + (f" ({given})" if given else ""))
        lines.extend(f"  note: {note}" for note in self.notes)
        return "\n".join(lines)
