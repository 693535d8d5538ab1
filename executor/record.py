"""Executor room: what one rank did in a run, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from balance.problems.model.errors import ExecutionError, FormatError
from balance.problems.model.fields import Fields
from balance.problems.model.tensors import FloatArray, IntArray, frozen

_ARRAYS = ("start", "end", "finish", "kind", "microbatch", "action_start", "action_end", "losses")


@dataclass(frozen=True, eq=False)
class RankRecord:
    """What one rank did; times are seconds on the machine's monotonic clock.

    Parameters
    ----------
    rank, device
        Its number, which is its stage's, and where it ran.
    start, end, finish
        Start of each step, end of its schedule, end of its optimizer step; shape (steps,).
    kind, microbatch
        The actions of a step in order (0 forward, 1 backward), shape (actions,).
    action_start, action_end
        Shape (steps, actions). A forward action of the last stage includes its loss.
    losses
        Loss of each micro-batch on the last stage, shape (steps, microbatches); (steps, 0) elsewhere.
    memory_bytes
        ``peak`` and its parts. On CPU they are counted: parameters and buffers, gradients, optimizer state, receive
        buffers, and what autograd saved for the micro-batches in flight; scratch memory inside an operator does not
        count. On CUDA ``peak`` is the allocator's ``max_memory_allocated``.
    action_cpu
        Seconds of each action in which the rank's main thread ran on a CPU, shape (steps, actions): what is missing to
        the action's time it waited, for a core that something else had or for other threads. None on accelerators.
    resident_bytes
        Largest resident set of the process, Python and torch included.
    """

    rank: int
    device: str
    start: FloatArray
    end: FloatArray
    finish: FloatArray
    kind: IntArray
    microbatch: IntArray
    action_start: FloatArray
    action_end: FloatArray
    losses: FloatArray
    memory_bytes: Mapping[str, float]
    resident_bytes: float
    action_cpu: FloatArray | None = None

    def __post_init__(self) -> None:
        for key in _ARRAYS:
            dtype = np.int64 if key in ("kind", "microbatch") else np.float64
            object.__setattr__(self, key, frozen(getattr(self, key), dtype))
        steps, actions = len(self.start), len(self.kind)
        shapes = {
            "end": (steps,),
            "finish": (steps,),
            "microbatch": (actions,),
            "action_start": (steps, actions),
        }
        for key, shape in {**shapes, "action_end": (steps, actions)}.items():
            if getattr(self, key).shape != shape:
                raise ExecutionError(
                    f"the record of rank {self.rank} has {key} of shape {getattr(self, key).shape}, not {shape}"
                )
        if self.losses.ndim != 2 or len(self.losses) != steps:
            raise ExecutionError(
                f"the record of rank {self.rank} has losses of shape {self.losses.shape}, not ({steps}, _)"
            )
        if self.action_cpu is not None:
            object.__setattr__(self, "action_cpu", frozen(self.action_cpu, np.float64))
            if self.action_cpu.shape != (steps, actions):
                raise ExecutionError(f"the record of rank {self.rank} has action_cpu of a shape not {(steps, actions)}")
        if steps and not bool(np.isfinite([self.start, self.end, self.finish]).all()):
            raise ExecutionError(f"the record of rank {self.rank} has times that are not finite")
        if not bool((self.action_end >= self.action_start).all()):  # nan is refused as well
            raise ExecutionError(f"the record of rank {self.rank} has an action that ends before it starts")
        if not bool(np.isin(self.kind, (0, 1)).all()):
            raise ExecutionError(f"the record of rank {self.rank} has actions of kinds other than 0 and 1")
        if "peak" not in self.memory_bytes:
            raise ExecutionError(f"the record of rank {self.rank} has no peak memory")

    @property
    def durations(self) -> FloatArray:
        """Seconds of each action, shape (steps, actions)."""
        return np.asarray(self.action_end - self.action_start)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-ready dictionary."""
        return {
            "rank": self.rank,
            "device": self.device,
            **{key: getattr(self, key).tolist() for key in _ARRAYS},
            "action_cpu": None if self.action_cpu is None else self.action_cpu.tolist(),
            "memory_bytes": dict(self.memory_bytes),
            "resident_bytes": self.resident_bytes,
        }

    @classmethod
    def from_json(cls, data: Any, where: str = "record") -> RankRecord:
        """Build from what `to_json` returns.

        Raises
        ------
        FormatError
            If a field is missing or malformed.
        """
        row = Fields(data, where)
        memory = row.inner("memory_bytes")
        try:
            columns: dict[str, Any] = {key: np.array(row.items(key), dtype=np.float64) for key in _ARRAYS}
            ran = row.take("action_cpu", None)
            record = cls(
                rank=row.integer("rank"),
                device=row.text("device"),
                memory_bytes={key: memory.number(key) for key in memory.data},
                resident_bytes=row.number("resident_bytes"),
                action_cpu=None if ran is None else np.array(ran, dtype=np.float64),
                **columns,
            )
            row.done()
            return record
        except (ValueError, TypeError, ExecutionError) as error:
            if isinstance(error, FormatError):
                raise
            raise FormatError(f"is not the record of a rank: {error}", field=where) from None
