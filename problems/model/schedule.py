"""Model room: schedules, the order in which each device works through stages and micro-batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.actions import LETTERS, Action, Kind
from balance.problems.model.errors import FormatError, ScheduleError
from balance.problems.model.fields import Fields
from balance.problems.model.tensors import IntArray, positions

SCHEMA = "dnn-balance/schedule"
VERSION = 1
LARGEST = 2**31 - 1
"""Largest number of stages, micro-batches and actions: they are kept in 32 bits."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Schedule:
    """What every device does in one step, in order; 9 bytes per action.

    Sends and receives are implied: a forward pass needs the activations of the stage before it, a backward pass the
    gradient of the stage after it (on the last stage: its own forward pass), a weight gradient its own input
    gradient. When the actions run is no part of a schedule; that is what `simulate` finds out.

    Parameters
    ----------
    stage, microbatch, kind
        Actions, device by device and in order on each, shape (A,). Kinds are those of
        `balance.problems.model.actions.Kind`.
    offsets
        Device d does the actions ``offsets[d] .. offsets[d + 1] - 1``, shape (D + 1,).
    n_stages, microbatches
        S and M; by default the largest numbers used plus one.

    Raises
    ------
    ScheduleError
        If shapes disagree or a number is out of range. Whether the work is complete and can be run is asked of
        `validate`.

    Examples
    --------
    >>> schedule = Schedule.from_rows([["0F0", "0F1", "0B0", "0B1"], ["1F0", "1B0", "1F1", "1B1"]])
    >>> schedule.validate()
    >>> schedule.peak_in_flight().tolist()
    [2, 1]
    """

    stage: NDArray[np.int32]
    microbatch: NDArray[np.int32]
    kind: NDArray[np.int8]
    offsets: IntArray
    n_stages: int
    microbatches: int

    def __init__(
        self,
        stage: ArrayLike,
        microbatch: ArrayLike,
        kind: ArrayLike,
        offsets: ArrayLike,
        *,
        n_stages: int | None = None,
        microbatches: int | None = None,
    ) -> None:
        put = object.__setattr__
        put(self, "stage", _column(stage, "stages", np.int32))
        put(self, "microbatch", _column(microbatch, "micro-batches", np.int32))
        put(self, "kind", _column(kind, "kinds", np.int8, len(LETTERS) - 1))
        put(self, "offsets", positions(offsets, "offsets of a schedule", ScheduleError))
        lengths = [len(self.stage), len(self.microbatch), len(self.kind)]
        ends = self.offsets
        if (
            len(set(lengths)) > 1
            or len(ends) < 2
            or ends[0] != 0
            or ends[-1] != lengths[0]
            or (np.diff(ends) < 0).any()
        ):
            raise ScheduleError(
                f"the columns have {', '.join(map(str, lengths))} entries; they and the last offset must agree, and "
                f"the offsets rise from 0"
            )
        for name, column, given in (
            ("n_stages", self.stage, n_stages),
            ("microbatches", self.microbatch, microbatches),
        ):
            used = int(column.max()) + 1 if len(column) else 0
            count = max(used, 1) if given is None else int(given)
            if not 1 <= count <= LARGEST:
                raise ScheduleError(f"{name} must be between 1 and {LARGEST}, got {count}")
            if used > count:
                raise ScheduleError(f"{self.at(int(np.argmax(column)))} is out of range: {name} is {count}")
            put(self, name, count)

    @classmethod
    def from_rows(
        cls, rows: Iterable[Iterable[str]], *, n_stages: int | None = None, microbatches: int | None = None
    ) -> Schedule:
        """Build from written actions, one row per device.

        Raises
        ------
        ScheduleError
            If something is not an action; `validate` is not called.
        """
        parsed = [[Action.parse(cell) for cell in row] for row in rows]
        flat = [action for row in parsed for action in row]
        return cls(
            np.array([a.stage for a in flat], dtype=np.int32),
            np.array([a.microbatch for a in flat], dtype=np.int32),
            np.array([a.kind for a in flat], dtype=np.int8),
            np.concatenate(([0], np.cumsum([len(row) for row in parsed], dtype=np.int64))),
            n_stages=n_stages,
            microbatches=microbatches,
        )

    # -- reading -----------------------------------------------------------------------------------------------

    @property
    def n_actions(self) -> int:
        """Number of actions, A."""
        return len(self.stage)

    def __len__(self) -> int:
        return self.n_actions

    @property
    def n_devices(self) -> int:
        """Number of rows, D; rows may be empty."""
        return len(self.offsets) - 1

    @property
    def device(self) -> NDArray[np.int32]:
        """Device of each action, shape (A,); made when read."""
        return np.repeat(np.arange(self.n_devices, dtype=np.int32), np.diff(self.offsets))

    @property
    def training(self) -> bool:
        """Whether there are backward passes."""
        return bool((self.kind != Kind.FORWARD).any())

    @cached_property
    def home(self) -> IntArray:
        """Device of each stage, shape (S,); -1 for a stage without actions."""
        devices = np.full(self.n_stages, -1, dtype=np.int64)
        devices[self.stage] = self.device
        devices.flags.writeable = False
        return devices

    def at(self, i: int) -> Action:
        """Return action `i` of the arrays."""
        return Action(int(self.stage[i]), Kind(int(self.kind[i])), int(self.microbatch[i]))

    def actions(self, device: int) -> Iterator[Action]:
        """Yield the actions of a device in order."""
        if not 0 <= device < self.n_devices:
            raise ScheduleError(f"there is no device {device}; the schedule has {self.n_devices}", device=device)
        return (self.at(i) for i in range(int(self.offsets[device]), int(self.offsets[device + 1])))

    def rows(self) -> list[list[str]]:
        """Return the written actions of every device."""
        columns = zip(self.stage.tolist(), self.kind.tolist(), self.microbatch.tolist(), strict=True)
        cells = [f"{stage}{LETTERS[kind]}{microbatch}" for stage, kind, microbatch in columns]
        return [cells[a:b] for a, b in zip(self.offsets[:-1], self.offsets[1:], strict=True)]

    def peak_in_flight(self) -> IntArray:
        """Return the most micro-batches whose activations each stage holds at once, shape (S,).

        A micro-batch is held from the start of its forward pass to the end of its backward pass (of its weight gradient
        where the backward pass is split), except while it is evicted; in schedules without backward passes only during
        its forward pass.
        """
        peak = np.zeros(self.n_stages, dtype=np.int64)
        if not self.training:
            peak[self.stage] = 1
            return peak
        order = np.argsort(self.stage, kind="stable")  # a stage's actions keep their device's order
        change = HELD[self.kind[order]]
        ends = np.searchsorted(self.stage[order], np.arange(self.n_stages + 1))
        for s in range(self.n_stages):
            if ends[s + 1] > ends[s]:
                peak[s] = np.cumsum(change[ends[s] : ends[s + 1]]).max()
        return peak

    # -- validation --------------------------------------------------------------------------------------------

    def validate(self) -> None:
        """Check that the work is complete and that the devices can get through it.

        Raises
        ------
        ScheduleError
            It names the first broken rule: a stage on two devices; missing or doubled work; a weight gradient without
            its input gradient or the other way round; an eviction out of place; or a deadlock, with the actions that
            wait for each other.
        """
        from balance.problems.model.completeness import check_completeness, check_progress

        check_completeness(self)
        check_progress(self)

    # -- comparing and files -----------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Schedule)
            and (self.n_stages, self.microbatches) == (other.n_stages, other.microbatches)
            and all(np.array_equal(getattr(self, c), getattr(other, c)) for c in _COLUMNS)
        )

    def __hash__(self) -> int:
        return hash((self.n_stages, self.microbatches, self.stage.tobytes(), self.microbatch.tobytes()))

    def __repr__(self) -> str:
        return (
            f"Schedule({self.n_stages} stages, {self.microbatches} micro-batches, {self.n_devices} devices, "
            f"{self.n_actions} actions)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (tuple(getattr(self, c) for c in _COLUMNS), self.n_stages, self.microbatches))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary with a schema version."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "n_stages": self.n_stages,
            "microbatches": self.microbatches,
            "rows": self.rows(),
        }

    @classmethod
    def from_json(cls, data: Any) -> Schedule:
        """Build from what `to_json` returns, and validate.

        Raises
        ------
        FormatError
            If a field is missing, unknown or malformed, or the schedule breaks a rule.
        """
        top = Fields(data, "schedule")
        top.schema(SCHEMA, VERSION)
        rows = top.items("rows")
        stages, count = top.integer("n_stages", least=1), top.integer("microbatches", least=1)
        for d, row in enumerate(rows):
            if not isinstance(row, list):
                raise FormatError("expected a list of actions", field=f"schedule.rows[{d}]")
        top.done()
        try:
            schedule = cls.from_rows(rows, n_stages=stages, microbatches=count)
            schedule.validate()
        except ScheduleError as error:
            raise FormatError(error.message, field="schedule.rows", **error.facts) from None
        return schedule


_COLUMNS = ("stage", "microbatch", "kind", "offsets")

# What an action adds to the micro-batches that its stage holds: F and L bring one, B, W and E take one away.
HELD = np.array([1, -1, 0, -1, -1, 1], dtype=np.int64)
HELD.flags.writeable = False


def _rebuild(columns: Sequence[Any], n_stages: int, microbatches: int) -> Schedule:
    return Schedule(*columns, n_stages=n_stages, microbatches=microbatches)


def _column(values: ArrayLike, what: str, dtype: Any, most: int = LARGEST - 1) -> NDArray[Any]:
    if isinstance(values, np.ndarray) and values.dtype == dtype and values.ndim == 1:
        # Large columns are taken over when they are read-only, and copied when the caller could change them.
        column = values if not values.flags.writeable and values.base is None else values.copy()
    else:
        column = positions(values, what, ScheduleError)
    if len(column) > LARGEST:
        raise ScheduleError(f"{len(column)} actions are more than the {LARGEST} that a schedule can hold")
    if len(column) and (column.min() < 0 or column.max() > most):
        bad = int(np.argmax((column < 0) | (column > most)))
        raise ScheduleError(f"action {bad} has {int(column[bad])} among the {what}; they go from 0 to {most}")
    column = column if column.dtype == dtype else column.astype(dtype)
    column.flags.writeable = False
    return column
