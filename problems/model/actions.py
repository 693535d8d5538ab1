"""Model room: the actions of a schedule, and how they are written: stage, letter, micro-batch, such as ``0F3``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from balance.problems.model.errors import ScheduleError

LETTERS = "FBIWEL"
"""Letter of each kind, by its number."""

_WRITTEN = re.compile(r"(0|[1-9][0-9]{0,8})([FBIWEL])(0|[1-9][0-9]{0,8})", re.ASCII)


class Kind(IntEnum):
    """What an action does. Sends and receives are implied by the stages' order and are no actions."""

    FORWARD = 0
    """``F``: forward pass."""
    BACKWARD = 1
    """``B``: whole backward pass."""
    INPUT = 2
    """``I``: backward pass as far as the stage before needs it, the gradient of the inputs."""
    WEIGHT = 3
    """``W``: rest of the backward pass, the gradient of the weights."""
    EVICT = 4
    """``E``: activations leave for another device."""
    LOAD = 5
    """``L``: they come back."""

    @property
    def letter(self) -> str:
        """Letter in written actions."""
        return LETTERS[self]


@dataclass(frozen=True, slots=True)
class Action:
    """One action, made when a schedule is read one action at a time.

    Parameters
    ----------
    stage
        Stage, counted from 0.
    kind
        What is done.
    microbatch
        Micro-batch, counted from 0.

    Examples
    --------
    >>> str(Action(2, Kind.BACKWARD, 7))
    '2B7'
    >>> Action.parse("2B7") == Action(2, Kind.BACKWARD, 7)
    True
    """

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{LETTERS[self.kind]}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """Read a written action; nothing may stand before, between or after its three parts.

        Raises
        ------
        ScheduleError
            If `text` is not exactly stage number, letter and micro-batch number.
        """
        found = _WRITTEN.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            shown = repr(text) if len(repr(text)) <= 40 else repr(text)[:37] + "..."
            raise ScheduleError(
                f"{shown} is not an action; write stage, one of the letters {', '.join(LETTERS)}, and micro-batch, "
                f"such as 0F3",
                text=shown,
            )
        return cls(int(found[1]), Kind(LETTERS.index(found[2])), int(found[3]))
