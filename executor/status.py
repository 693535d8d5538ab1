"""Executor room: what each rank is doing, in memory that the watching process can read at any time."""

from __future__ import annotations

from collections.abc import MutableSequence
from dataclasses import dataclass
from enum import IntEnum

WIDTH = 6  # cells per rank: counter, phase, stage, kind, micro-batch, step
_ABSENT = -1.0


class Phase(IntEnum):
    """What a rank can be doing; the watchdog blames ranks that are not merely waiting."""

    STARTING = 0
    IDLE = 1
    CONNECTING = 2
    PREPARING = 3
    COMPUTING = 4
    WAITING = 5
    OPTIMIZING = 6
    PROFILING = 7
    FINISHED = 8


_WORDS = {
    Phase.STARTING: "starting Python and importing torch",
    Phase.IDLE: "waiting for work",
    Phase.CONNECTING: "connecting the process group",
    Phase.PREPARING: "receiving or preparing work",
    Phase.OPTIMIZING: "the optimizer step",
    Phase.PROFILING: "profiling",
    Phase.FINISHED: "finished",
}
_KINDS = {0: "forward", 1: "backward", 2: "input-gradient", 3: "weight-gradient"}
_LETTERS = {0: "F", 1: "B", 2: "I", 3: "W"}


@dataclass(frozen=True)
class Activity:
    """What one rank was doing when it was looked at.

    Parameters
    ----------
    phase
        Kind of work.
    stage, kind, microbatch, step
        The action, as far as there is one; when waiting, the action that was last finished.
    counter
        Number of changes so far; it stands still when the rank makes no progress.
    """

    phase: Phase
    stage: int | None
    kind: int | None
    microbatch: int | None
    step: int | None
    counter: int

    @property
    def action(self) -> str | None:
        """The action in schedule notation, such as ``1F3``, or None outside actions."""
        if self.stage is None or self.kind is None or self.microbatch is None:
            return None
        return f"{self.stage}{_LETTERS[self.kind]}{self.microbatch}"

    @property
    def busy(self) -> bool:
        """Whether it was doing work of its own rather than waiting for others."""
        return self.phase not in (Phase.IDLE, Phase.WAITING, Phase.FINISHED, Phase.CONNECTING)

    def __str__(self) -> str:
        if self.kind is not None and self.phase in (Phase.COMPUTING, Phase.WAITING):
            action = f"{_KINDS[self.kind]} of micro-batch {self.microbatch} in stage {self.stage}"
            text = action if self.phase is Phase.COMPUTING else f"waiting for messages after the {action}"
        elif self.phase is Phase.WAITING:
            text = "waiting for messages before its first action" if self.stage is not None else "waiting for messages"
        elif self.phase is Phase.PROFILING and self.stage is not None:
            text = f"profiling module {self.stage}"
        else:
            text = _WORDS[self.phase]
        return f"{text} (step {self.step})" if self.step is not None else text


class StatusBoard:
    """One row of cells per rank; each rank writes its own row, the parent reads all of them.

    Parameters
    ----------
    cells
        Shared doubles, ``WIDTH`` per rank. No lock: a row has one writer, and a reader that meets a half-written row
        is corrected at its next look.
    """

    def __init__(self, cells: MutableSequence[float]) -> None:
        self._cells = cells

    def mark(
        self,
        rank: int,
        phase: Phase,
        *,
        stage: int | None = None,
        kind: int | None = None,
        microbatch: int | None = None,
        step: int | None = None,
    ) -> None:
        """Write what a rank does from now on."""
        at = rank * WIDTH
        cells = self._cells
        cells[at + 1] = float(phase)
        cells[at + 2] = _ABSENT if stage is None else float(stage)
        cells[at + 3] = _ABSENT if kind is None else float(kind)
        cells[at + 4] = _ABSENT if microbatch is None else float(microbatch)
        cells[at + 5] = _ABSENT if step is None else float(step)
        cells[at] += 1.0

    def read(self, rank: int) -> Activity:
        """Return what a rank is doing."""
        at = rank * WIDTH
        counter, phase, *rest = (self._cells[at + k] for k in range(WIDTH))
        stage, kind, microbatch, step = (None if cell == _ABSENT else int(cell) for cell in rest)
        return Activity(Phase(int(phase)), stage, kind, microbatch, step, int(counter))
