"""Model room: one operator with its costs, and the ways to run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from balance.problems.model.errors import GraphError

TIMES = ("forward", "backward", "backward_input", "backward_weight")
BYTES = ("parameter_bytes", "activation_bytes", "workspace_bytes", "static_bytes", "sync_bytes")
TimeTable = ArrayLike | Mapping[str, ArrayLike]
"""Seconds as an array, or an array for each device kind."""


@dataclass(frozen=True)
class Configuration:
    """One way to run an operator, a column of its cost tables.

    Parameters
    ----------
    tensor_parallel
        Devices that share the operator.
    recompute
        Whether the activations are thrown away and computed again in the backward pass.
    microbatch_size
        Samples per micro-batch that the costs are for, more than 0; None when unknown.

    Raises
    ------
    GraphError
        If a number is out of range.
    """

    tensor_parallel: int = 1
    recompute: bool = False
    microbatch_size: float | None = None

    def __post_init__(self) -> None:
        # One type per field, whatever number types came in: configurations are part of a graph's hash.
        size = self.microbatch_size
        if self.tensor_parallel != int(self.tensor_parallel) or self.tensor_parallel < 1:
            raise GraphError(f"tensor_parallel must be a whole number of at least 1, got {self.tensor_parallel}")
        if size is not None and not 0 < size < np.inf:
            raise GraphError(f"microbatch_size must be positive and finite (None: unknown), got {size}")
        object.__setattr__(self, "tensor_parallel", int(self.tensor_parallel))
        object.__setattr__(self, "recompute", bool(self.recompute))
        object.__setattr__(self, "microbatch_size", None if size is None else float(size))


@dataclass(frozen=True)
class Operator:
    """One operator with its costs in one configuration; what `CostGraph.from_operators` takes.

    Parameters
    ----------
    name
        Unique label.
    forward, backward, backward_input, backward_weight
        Seconds per micro-batch, a number for every kind or a mapping from device kind. A kind that is missing in the
        mapping of `forward` or of `backward` cannot host the operator, as in `CostGraph`.
    parameter_bytes, activation_bytes, workspace_bytes, static_bytes, sync_bytes
        Bytes, see `CostGraph`.
    colocation
        Operators with the same label share a device.
    pinned
        Index of the device it must be on.
    is_backward
        Whether it belongs to the backward pass of an operator graph.
    """

    name: str
    forward: float | Mapping[str, float] = 0.0
    backward: float | Mapping[str, float] = 0.0
    backward_input: float | Mapping[str, float] | None = None
    backward_weight: float | Mapping[str, float] | None = None
    parameter_bytes: float = 0.0
    activation_bytes: float = 0.0
    workspace_bytes: float = 0.0
    static_bytes: float = 0.0
    sync_bytes: float = 0.0
    colocation: str | int | None = None
    pinned: int | None = None
    is_backward: bool = False
