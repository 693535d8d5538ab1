"""Executor room: latency and bandwidth of the process group's send and receive."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from balance.executor.launch import Ranks
from balance.executor.rank import Context
from balance.executor.status import Phase
from balance.problems.model.cluster import Link
from balance.problems.model.errors import OptionError
from balance.problems.model.tensors import FloatArray

SIZES = (1 << 10, 1 << 14, 1 << 17, 1 << 19, 1 << 21, 1 << 23)


def measure_links(
    *,
    sizes: Sequence[int] = SIZES,
    repeats: int = 15,
    warmup: int = 4,
    device: str = "cpu",
    processes: int = 2,
    ranks: Ranks | None = None,
    threads: int = 1,
    pin: bool = False,
    timeout: float = 60.0,
) -> Link:
    """Fit latency and bandwidth of send/receive between neighbouring ranks.

    Each pair of neighbours plays ping-pong while the others wait; the sizes take turns, so that a change of the
    machine's speed hits all of them. The fit minimises the sum of relative errors over the medians, which outliers
    hardly move.

    Parameters
    ----------
    sizes
        Message sizes in bytes; at least two different ones.
    repeats, warmup
        Counted and uncounted rounds.
    device, processes, threads, pin, timeout
        As in `Ranks`.
    ranks
        Processes that are already there, instead of new ones.

    Raises
    ------
    OptionError
        If there are fewer than two processes or sizes.
    ExecutionError
        If a rank fails or hangs.
    """
    if len(set(sizes)) < 2 or min(sizes) < 1 or repeats < 1 or warmup < 0:
        raise OptionError("measuring a link takes two different positive sizes and at least one repetition")
    count = processes if ranks is None else ranks.world_size
    if count < 2:
        raise OptionError(f"a link joins two processes, got {count}")
    if ranks is not None:
        answers = ranks.call(_ping_pong, [(tuple(sizes), repeats, warmup)] * count)
    else:
        with Ranks(count, device=device, threads=threads, pin=pin, timeout=timeout) as own:
            answers = own.call(_ping_pong, [(tuple(sizes), repeats, warmup)] * count)
    times = np.concatenate([answer for answer in answers if answer is not None])
    return fit_link(np.asarray(sizes, dtype=np.float64), np.median(times, axis=0))


def fit_link(sizes: FloatArray, seconds: FloatArray) -> Link:
    """Return the link whose ``latency + size / bandwidth`` has the least sum of relative errors.

    Parameters
    ----------
    sizes, seconds
        Bytes and measured seconds, shape (m,), with m >= 2 and seconds > 0.
    """
    # A best line of least absolute errors passes through two points, or through one if a bound (latency >= 0,
    # slope >= 0) holds: few enough to try all of them.
    candidates = [(0.0, t / s) for s, t in zip(sizes, seconds, strict=True)] + [(float(t), 0.0) for t in seconds]
    for i in range(len(sizes)):
        for j in range(i + 1, len(sizes)):
            if sizes[i] != sizes[j]:
                slope = (seconds[j] - seconds[i]) / (sizes[j] - sizes[i])
                candidates.append((float(seconds[i] - slope * sizes[i]), float(slope)))
    allowed = [(latency, slope) for latency, slope in candidates if latency >= 0 and slope >= 0]
    errors = [float(np.sum(np.abs(a + b * sizes - seconds) / seconds)) for a, b in allowed]
    latency, slope = allowed[int(np.argmin(errors))]
    return Link(latency=float(latency), bandwidth=1.0 / float(slope) if slope > 0 else float("inf"))


def _ping_pong(context: Context, sizes: tuple[int, ...], repeats: int, warmup: int) -> FloatArray | None:
    """Return one-way seconds, shape (repeats, sizes), on the lower rank of each pair; None on the last rank."""
    import torch.distributed as dist

    device = torch.device(context.device)
    buffers = [torch.zeros(size, dtype=torch.uint8, device=device) for size in sizes]
    result: FloatArray | None = None
    for low in range(context.world_size - 1):
        context.barrier()
        if context.rank not in (low, low + 1):
            continue
        times = np.zeros((warmup + repeats, len(sizes)))
        for row in range(warmup + repeats):
            context.mark(Phase.WAITING, step=row)
            for column, buffer in enumerate(buffers):
                _settle(device)
                start = time.perf_counter()
                if context.rank == low:
                    dist.send(buffer, low + 1)
                    dist.recv(buffer, low + 1)
                else:
                    dist.recv(buffer, low)
                    dist.send(buffer, low)
                _settle(device)
                times[row, column] = (time.perf_counter() - start) / 2
        if context.rank == low:
            result = times[warmup:]
    return result


def _settle(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
