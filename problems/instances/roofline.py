r"""Instances room: the roofline, from FLOP and bytes to seconds on a kind of device.

A pass of an operator that does F FLOP and moves B bytes in L kernels takes, on a device with peak P FLOP per second and
memory bandwidth W,

.. math:: \max\left(\frac{F}{\eta_c P}, \frac{B}{\eta_b W}\right) + L \lambda

seconds: whichever of arithmetic and memory is the bottleneck, at the fraction of the peak that programs reach, and the
time to start the kernels [1]_. A pass without work takes no time. Devices that share an operator (tensor
parallelism) add up b bytes by a ring all-reduce over links of bandwidth N between peers: t devices take
``2 (t - 1)`` steps, each of which moves b / t bytes,

.. math:: 2 (t - 1) \left(\lambda + \frac{b}{t\, \eta_b N}\right)

seconds, which is added to the pass. An operator that is made of several is as slow as all of them one after another.

.. [1] S. Williams, A. Waterman, D. Patterson, "Roofline: an insightful visual performance model for multicore
   architectures", Communications of the ACM 52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from balance.problems.instances.arguments import real
from balance.problems.instances.catalogue import DeviceKind, element_bytes
from balance.problems.instances.work import Pass, Work
from balance.problems.model.graph import Configuration
from balance.problems.model.tensors import FloatArray, IntArray


@dataclass(frozen=True)
class Roofline:
    """The fractions of a peak that programs reach. The defaults are round assumptions, not measurements.

    Parameters
    ----------
    compute_efficiency
        Fraction of the peak FLOP per second, in (0, 1].
    bandwidth_efficiency
        Fraction of the bandwidth of memory and of links between peers, in (0, 1].
    launch_seconds
        Time to start a kernel, and of each step of an all-reduce.

    Raises
    ------
    OptionError
        If a value is out of range.
    """

    compute_efficiency: float = 0.6
    bandwidth_efficiency: float = 0.8
    launch_seconds: float = 5e-6

    def __post_init__(self) -> None:
        real("compute_efficiency", self.compute_efficiency, above=0.0, most=1.0)
        real("bandwidth_efficiency", self.bandwidth_efficiency, above=0.0, most=1.0)
        real("launch_seconds", self.launch_seconds)

    def seconds(
        self, kind: DeviceKind, precision: str, flops: ArrayLike, bytes: ArrayLike, launches: ArrayLike = 1
    ) -> FloatArray:
        """Return the time of passes on a kind of device.

        Parameters
        ----------
        kind
            The device.
        precision
            What it calculates in.
        flops, bytes, launches
            Of each pass, shapes that broadcast to (n,).

        Returns
        -------
        numpy.ndarray
            Seconds, shape (n,); 0 where there is neither FLOP nor bytes.

        Raises
        ------
        OptionError
            If the device does not calculate in this precision.

        Examples
        --------
        >>> from balance.problems.instances.catalogue import device_kind
        >>> whole = Roofline(compute_efficiency=1.0, bandwidth_efficiency=1.0, launch_seconds=0.0)
        >>> float(whole.seconds(device_kind("a100-80gb"), "bf16", flops=312e9, bytes=1e6))
        0.001
        """
        work, moved = np.asarray(flops, dtype=np.float64), np.asarray(bytes, dtype=np.float64)
        busy = np.maximum(
            work / (kind.peak(precision) * self.compute_efficiency),
            moved / (kind.memory_bandwidth * self.bandwidth_efficiency),
        )
        started = np.asarray(launches, dtype=np.float64) * self.launch_seconds
        return np.where((work > 0) | (moved > 0), busy + started, 0.0)

    def allreduce_seconds(self, kind: DeviceKind, bytes: ArrayLike, degree: int) -> FloatArray:
        """Return the time that `degree` devices of a kind take to add up `bytes` among them; shape of `bytes`."""
        moved = np.asarray(bytes, dtype=np.float64)
        step = self.launch_seconds + moved / (degree * kind.peer_bandwidth * self.bandwidth_efficiency)
        return np.where(moved > 0, 2.0 * (degree - 1) * step, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Return the fields, for the source of a graph."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class CostTables:
    """Costs of n operators per device kind (K) and configuration (C), before they become a graph.

    Parameters
    ----------
    forward, input_gradient, weight_gradient
        Seconds, shape (K, C, n).
    parameter_bytes, kept_bytes, workspace_bytes
        Bytes, shape (C, n).
    flops
        FLOP of the forward pass, shape (C, n).
    """

    forward: FloatArray
    input_gradient: FloatArray
    weight_gradient: FloatArray
    parameter_bytes: FloatArray
    kept_bytes: FloatArray
    workspace_bytes: FloatArray
    flops: FloatArray

    def take(self, rows: IntArray) -> CostTables:
        """Return the tables of the operators at `rows`, each as often as it stands there."""
        return CostTables(**{key: table[..., rows] for key, table in vars(self).items()})

    def grouped(self, starts: IntArray) -> CostTables:
        """Return the tables of runs of operators that become one: all adds up, but of workspace the largest counts.

        Parameters
        ----------
        starts
            First operator of each run, increasing from 0, shape (groups,).
        """
        tables = {key: np.add.reduceat(table, starts, axis=-1) for key, table in vars(self).items()}
        tables["workspace_bytes"] = np.maximum.reduceat(self.workspace_bytes, starts, axis=-1)
        return CostTables(**tables)

    def with_recomputation(self, recomputes: ArrayLike, inputs: ArrayLike) -> CostTables:
        """Return twice the configurations: as they are, and with the forward pass again in the backward pass.

        An operator that recomputes keeps its inputs, and its workspace holds the activations of the micro-batch that it
        works on. The forward pass again counts as input part.

        Parameters
        ----------
        recomputes
            Which operators do, shape (n,).
        inputs
            Bytes that each of them reads from others, shape (n,).
        """
        does = np.asarray(recomputes, dtype=bool)
        kept = np.where(does, np.minimum(np.asarray(inputs, dtype=np.float64), self.kept_bytes), self.kept_bytes)
        again = replace(
            self,
            input_gradient=self.input_gradient + np.where(does, self.forward, 0.0),
            kept_bytes=kept,
            workspace_bytes=self.workspace_bytes + (self.kept_bytes - kept),
        )
        mine, other = vars(self), vars(again)
        return CostTables(**{key: np.concatenate([mine[key], other[key]], axis=-2) for key in mine})

    def columns(self, *, training: bool) -> dict[str, Any]:
        """Return keyword arguments of `CostGraph`: with the backward pass in its two parts, or for inference.

        Gradients are exchanged in the precision of the parameters. Inference keeps nothing for a backward pass.
        """
        columns: dict[str, Any] = {
            "forward": self.forward,
            "parameter_bytes": self.parameter_bytes,
            "workspace_bytes": self.workspace_bytes,
        }
        if training:
            columns |= {
                "backward": self.input_gradient + self.weight_gradient,
                "backward_input": self.input_gradient,
                "backward_weight": self.weight_gradient,
                "activation_bytes": self.kept_bytes,
                "sync_bytes": self.parameter_bytes,
            }
        return columns


def cost_tables(
    works: Sequence[Sequence[Work]],
    configurations: Sequence[Configuration],
    kinds: Sequence[DeviceKind],
    precision: str,
    roofline: Roofline,
) -> CostTables:
    """Return what operators cost.

    Parameters
    ----------
    works
        The n operators as each of the C configurations splits them, per device.
    configurations
        The configurations; their tensor-parallel degree decides how long the all-reduces take.
    kinds
        The K device kinds.
    precision
        Of arithmetic and storage.
    roofline
        The time law.

    Raises
    ------
    OptionError
        If a device does not calculate in this precision.
    """
    element = element_bytes(precision)

    def timed(part: str, reduced: str | None) -> FloatArray:
        table = np.empty((len(kinds), len(works), len(works[0])))
        for c, rows in enumerate(works):
            passes: list[Pass] = [getattr(row, part) for row in rows]
            numbers = np.array([(p.flops, p.bytes, p.launches) for p in passes], dtype=np.float64).reshape(-1, 3)
            for k, kind in enumerate(kinds):
                table[k, c] = roofline.seconds(kind, precision, *numbers.T)
                if reduced is not None:
                    shared = np.array([getattr(row, reduced) for row in rows], dtype=np.float64)
                    table[k, c] += roofline.allreduce_seconds(kind, shared, configurations[c].tensor_parallel)
        return table

    def sized(field: str) -> FloatArray:
        return np.array([[getattr(row, field) for row in rows] for rows in works], dtype=np.float64)

    return CostTables(
        forward=timed("forward", "reduced_forward"),
        input_gradient=timed("input_gradient", "reduced_backward"),
        weight_gradient=timed("weight_gradient", None),
        parameter_bytes=element * sized("parameters"),
        kept_bytes=sized("kept_bytes"),
        workspace_bytes=sized("workspace_bytes"),
        flops=np.array([[row.forward.flops for row in rows] for rows in works], dtype=np.float64),
    )
