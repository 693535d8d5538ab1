"""Model room: what the stages of a plan hold on their devices, by the formula of `balance.problems.model.memory`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.graph import CostGraph
from balance.problems.model.memory import device_bytes, receive_buffer_bytes, stage_activation_bytes
from balance.problems.model.plan import Plan
from balance.problems.model.tensors import FloatArray, IntArray, frozen
from balance.problems.model.traffic import BACKWARD, FORWARD, Traffic


@dataclass(frozen=True, eq=False)
class Footprint:
    """Bytes of every stage, and the devices that hold it.

    A replica holds the whole parameters and static bytes, and its share of everything that grows with the micro-batch.
    Each device of a tensor-parallel group holds what the stage's configuration says, which is per device.

    Parameters
    ----------
    stage, device, share
        One entry per pair of a stage and one of its devices, shape (R,).
    parameters, static, activations, inputs, workspace, buffers
        Bytes of each stage, shape (S,): `activations` and `inputs` of one micro-batch, `buffers` of all of them.
    recompute
        Whether the stage recomputes, shape (S,).
    state_factor
        Bytes held per parameter byte.
    """

    stage: IntArray
    device: IntArray
    share: FloatArray
    parameters: FloatArray
    static: FloatArray
    activations: FloatArray
    inputs: FloatArray
    workspace: FloatArray
    buffers: FloatArray
    recompute: NDArray[np.bool_]
    state_factor: float = 1.0

    def __post_init__(self) -> None:
        for column in fields(self):
            value = getattr(self, column.name)
            if isinstance(value, np.ndarray):
                object.__setattr__(self, column.name, frozen(value, value.dtype))

    def __reduce__(self) -> tuple[Any, ...]:  # through the constructor: arrays are pickled without their read-only flag
        return (Footprint, tuple(getattr(self, column.name) for column in fields(self)))

    @classmethod
    def of(
        cls,
        plan: Plan,
        graph: CostGraph,
        traffic: Traffic,
        *,
        training: bool,
        state_factor: float = 1.0,
        backend: str = "none",
    ) -> Footprint:
        """Return the footprint of a plan.

        Parameters
        ----------
        plan, graph
            The stages and their costs.
        traffic
            What crosses the stages' boundaries, from `balance.problems.model.traffic.boundary_traffic`.
        training
            Whether there is a backward pass. Without one no gradient is received, and a stage that would recompute in
            it does not.
        state_factor
            Bytes held per parameter byte.
        backend
            Rule of the receive buffers.

        Raises
        ------
        OptionError
            If the backend is unknown.
        """
        pairs = [(s, d, r.share) for s, stage in enumerate(plan.stages) for r in stage.replicas for d in r.devices]
        sums = [_column(plan, t) for t in (graph.parameter_bytes, graph.static_bytes, graph.activation_bytes)]
        gradients = traffic.bytes[BACKWARD, 1:] if training else np.zeros(plan.n_stages)
        inputs = traffic.bytes[FORWARD, :-1]
        return cls(
            stage=np.array([s for s, _, _ in pairs], dtype=np.int64),
            device=np.array([d for _, d, _ in pairs], dtype=np.int64),
            share=np.array([share for _, _, share in pairs]),
            parameters=sums[0],
            static=sums[1],
            activations=sums[2],
            inputs=inputs,
            workspace=_column(plan, graph.workspace_bytes, largest=True),
            buffers=receive_buffer_bytes(backend, plan.microbatches, inputs, gradients),
            recompute=np.array([stage.recompute and training for stage in plan.stages]),
            state_factor=state_factor,
        )

    @property
    def kept(self) -> FloatArray:
        """Bytes that a stage keeps per micro-batch in flight, shape (S,)."""
        return np.where(self.recompute, self.inputs, self.activations)

    @property
    def working(self) -> FloatArray:
        """Bytes that a stage needs on top while an action runs, shape (S,)."""
        return self.workspace + np.where(self.recompute, self.activations, 0.0)

    def peak(self, in_flight: ArrayLike, n_devices: int) -> FloatArray:
        """Return the bytes that every device needs: `device_bytes`, shape (n_devices,).

        Parameters
        ----------
        in_flight
            Micro-batches in flight at the peak of each stage, shape (S,).
        n_devices
            Number of devices.
        """
        held = stage_activation_bytes(self.activations, self.inputs, in_flight, self.recompute)
        return device_bytes(
            self.device,
            parameters=self.parameters[self.stage],
            static=self.static[self.stage],
            activations=held[self.stage] * self.share,
            workspace=self.workspace[self.stage] * self.share,
            buffers=self.buffers[self.stage] * self.share,
            state_factor=self.state_factor,
            n_devices=n_devices,
        )

    def resident(self, device: int) -> float:
        """Return the bytes that a device holds all the time."""
        rows = self.device == device
        stages = self.stage[rows]
        always = (
            self.state_factor * self.parameters[stages] + self.static[stages] + self.buffers[stages] * self.share[rows]
        )
        return float(always.sum())

    def shares(self, device: int) -> Sequence[tuple[int, float]]:
        """Return the stages of a device with the device's share of the micro-batch."""
        rows = self.device == device
        return list(zip(self.stage[rows].tolist(), self.share[rows].tolist(), strict=True))


def _column(plan: Plan, table: FloatArray, largest: bool = False) -> FloatArray:
    cells = [table[stage.columns, stage.operators] for stage in plan.stages]
    return np.array([(float(c.max()) if largest else float(c.sum())) if len(c) else 0.0 for c in cells])
