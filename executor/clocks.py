"""Executor room: time stamps of work on a device: the wall clock on CPU, events on a CUDA stream."""

from __future__ import annotations

import time
from typing import Any

import torch

Stamp = Any


class CpuClock:
    """Stamps are seconds of the monotonic clock, which a machine's processes share, and of the thread's CPU time."""

    def stamp(self) -> Stamp:
        """Take the time now."""
        return time.perf_counter(), time.thread_time()

    def seconds(self, stamp: Stamp) -> float:
        """Return the time of a stamp on the machine's monotonic clock."""
        return float(stamp[0])

    def cpu_seconds(self, start: Stamp, end: Stamp) -> float | None:
        """Return how long this thread ran on a CPU between two stamps; the rest of the time it waited for one."""
        return float(end[1] - start[1])

    def settle(self) -> None:
        """Wait until all work is done, so that stamps can be read."""


class CudaClock:
    """Stamps are events on the current stream; they are placed on the wall clock through one synchronised event.

    Parameters
    ----------
    device
        The CUDA device.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._origin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._zero = 0.0
        self.anchor()

    def anchor(self) -> None:
        """Tie the device's time line to the wall clock again; both drift apart over minutes."""
        torch.cuda.synchronize(self._device)
        self._origin.record(torch.cuda.current_stream(self._device))
        torch.cuda.synchronize(self._device)
        self._zero = time.perf_counter()

    def stamp(self) -> Stamp:
        """Put an event on the stream."""
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def seconds(self, stamp: Stamp) -> float:
        """Return the time of an event that has happened, on the wall clock."""
        return self._zero + float(self._origin.elapsed_time(stamp)) / 1e3

    def cpu_seconds(self, start: Stamp, end: Stamp) -> float | None:
        """Return None: the device works, not a thread."""
        return None

    def settle(self) -> None:
        """Wait until all work is done, so that stamps can be read."""
        torch.cuda.synchronize(self._device)


Clock = CpuClock | CudaClock


def clock_for(device: str) -> Clock:
    """Return the clock of a device such as ``"cpu"`` or ``"cuda:0"``."""
    return CudaClock(torch.device(device)) if device.startswith("cuda") else CpuClock()
