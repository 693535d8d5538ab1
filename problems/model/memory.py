"""Model room: the one formula for the memory of a device, shared by problems, solvers, simulator and reports.

``state_factor * parameters + static + sum over its stages of kept activations + largest workspace + receive buffers``

Without a backward pass (inference graphs, and the schedule ``forward-only`` on any graph) a stage keeps the activations
of the one micro-batch that it works on, recomputes nothing and receives no gradients; the state factor is what it is.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest
from balance.problems.model.tensors import FloatArray

BACKENDS = ("none", "torch")


def stage_activation_bytes(
    activations: ArrayLike, inputs: ArrayLike, in_flight: ArrayLike, recompute: ArrayLike = False
) -> FloatArray:
    """Return what each stage keeps from forward to backward.

    Parameters
    ----------
    activations
        Activation bytes of one micro-batch, shape (S,) or broadcastable.
    inputs
        Bytes of one micro-batch that enter the stage from the one before it (0 at the first stage).
    in_flight
        Micro-batches whose forward is done and whose backward is not, at the peak.
    recompute
        Whether the stage recomputes: it then keeps its inputs per micro-batch in flight, and the activations of the one
        micro-batch that it works on.

    Returns
    -------
    numpy.ndarray
        Bytes: ``in_flight * activations``, or ``in_flight * inputs + activations`` with recomputation.
    """
    held = np.asarray(in_flight, dtype=np.float64)
    full = np.asarray(activations, dtype=np.float64)
    kept = np.where(np.asarray(recompute, dtype=bool), held * np.asarray(inputs) + full, held * full)
    return np.asarray(kept, dtype=np.float64)


def receive_buffer_bytes(backend: str, microbatches: int, inputs: ArrayLike, gradients: ArrayLike) -> FloatArray:
    """Return the receive buffers of each stage under a runtime's rule.

    Parameters
    ----------
    backend
        ``"none"``: no buffers. ``"torch"``: torch.distributed.pipelining 2.13 allocates one buffer per micro-batch of
        the step and direction when it is set up.
    microbatches
        Micro-batches per step.
    inputs
        Bytes of one micro-batch that each stage receives forward, shape (S,).
    gradients
        Bytes of one micro-batch that each stage receives backward, shape (S,).

    Raises
    ------
    OptionError
        If the backend is unknown.
    """
    if backend not in BACKENDS:
        raise OptionError(f"backend {backend!r} has no buffer rule{nearest(backend, BACKENDS)}")
    both = np.asarray(inputs, dtype=np.float64) + np.asarray(gradients, dtype=np.float64)
    return both * (microbatches if backend == "torch" else 0.0)


def device_bytes(
    device: ArrayLike,
    *,
    parameters: ArrayLike,
    static: ArrayLike,
    activations: ArrayLike,
    workspace: ArrayLike,
    buffers: ArrayLike = 0.0,
    state_factor: float = 1.0,
    n_devices: int | None = None,
) -> FloatArray:
    """Return the bytes that each device needs.

    Parameters
    ----------
    device
        Device of each stage, shape (S,).
    parameters, static
        Bytes of each stage, shape (S,).
    activations
        Kept bytes of each stage, from `stage_activation_bytes`.
    workspace
        Largest workspace of each stage's operators.
    buffers
        Receive buffers of each stage, from `receive_buffer_bytes`.
    state_factor
        Bytes held per parameter byte: weights, gradients and optimizer state.
    n_devices
        Length of the result; by default the largest device used plus one.

    Returns
    -------
    numpy.ndarray
        Shape (n_devices,): stages add up on their device, except that only the largest workspace counts.
    """
    home: NDArray[np.int64] = np.asarray(device, dtype=np.int64)
    count = int(home.max()) + 1 if n_devices is None else n_devices
    stage = state_factor * np.asarray(parameters, dtype=np.float64) + np.asarray(static) + np.asarray(activations)
    stage = np.broadcast_to(stage + np.asarray(buffers), home.shape)
    total = np.bincount(home, stage, count)
    peak = np.zeros(count)
    np.maximum.at(peak, home, np.broadcast_to(np.asarray(workspace, dtype=np.float64), home.shape))
    return np.asarray(total + peak)
