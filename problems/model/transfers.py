"""Model room: the messages of a timeline, flow by flow."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from balance.problems.model.tensors import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Transfers:
    """What goes over links: every flow carries one message per micro-batch. 16 bytes per message.

    The arrays are taken over, not copied, and become read-only.

    Parameters
    ----------
    flow_source, flow_target
        Devices of each flow, shape (flows,).
    flow_from, flow_to
        Stages of each flow, shape (flows,).
    flow_kind
        0 activations, 1 gradients, shape (flows,).
    flow_bytes
        Size of one message, shape (flows,).
    begin, finish
        Seconds, shape (flows, M).
    """

    flow_source: IntArray
    flow_target: IntArray
    flow_from: IntArray
    flow_to: IntArray
    flow_kind: IntArray
    flow_bytes: FloatArray
    begin: FloatArray
    finish: FloatArray

    def __post_init__(self) -> None:
        for column in fields(self):
            getattr(self, column.name).flags.writeable = False

    def __reduce__(self) -> tuple[Any, ...]:  # through the constructor: arrays are pickled without their read-only flag
        return (Transfers, tuple(getattr(self, column.name) for column in fields(self)))

    @classmethod
    def none(cls) -> Transfers:
        """Return no transfers."""
        empty = np.zeros(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, empty, np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))

    def __len__(self) -> int:
        return int(self.begin.size)

    def _flat(self, column: NDArray[Any]) -> NDArray[Any]:
        return np.repeat(column, self.begin.shape[1])

    @property
    def source(self) -> IntArray:
        """Sending device of every message, shape (messages,); like all flat columns, made when read."""
        return self._flat(self.flow_source)

    @property
    def target(self) -> IntArray:
        """Receiving device, shape (messages,)."""
        return self._flat(self.flow_target)

    @property
    def stage_from(self) -> IntArray:
        """Sending stage, shape (messages,)."""
        return self._flat(self.flow_from)

    @property
    def stage_to(self) -> IntArray:
        """Receiving stage, shape (messages,)."""
        return self._flat(self.flow_to)

    @property
    def kind(self) -> IntArray:
        """0 activation, 1 gradient, shape (messages,)."""
        return self._flat(self.flow_kind)

    @property
    def bytes(self) -> FloatArray:
        """Size, shape (messages,)."""
        return self._flat(self.flow_bytes)

    @property
    def microbatch(self) -> IntArray:
        """Micro-batch, shape (messages,)."""
        flows, count = self.begin.shape
        return np.tile(np.arange(count), flows)

    @property
    def start(self) -> FloatArray:
        """Begin in seconds, shape (messages,)."""
        return self.begin.reshape(-1)

    @property
    def end(self) -> FloatArray:
        """End in seconds, shape (messages,)."""
        return self.finish.reshape(-1)
