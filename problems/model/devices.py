"""Model room: devices, and a link between two of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from balance.problems.model.errors import ClusterError


@dataclass(frozen=True)
class Link:
    """A link between two devices.

    Parameters
    ----------
    latency
        Seconds per message.
    bandwidth
        Bytes per second.

    Raises
    ------
    ClusterError
        If latency is negative or not finite, or bandwidth is not positive.
    """

    latency: float = 0.0
    bandwidth: float = math.inf

    def __post_init__(self) -> None:
        if not (0 <= self.latency < math.inf):
            raise ClusterError(f"link latency must be finite and not negative, got {self.latency} s")
        if not self.bandwidth > 0:
            raise ClusterError(f"link bandwidth must be positive, got {self.bandwidth} B/s")

    def seconds(self, size: float) -> float:
        """Return the time to move `size` bytes; nothing to move takes no time."""
        return self.latency + size / self.bandwidth if size > 0 else 0.0


LOCAL = Link()


@dataclass(frozen=True)
class Device:
    """One device.

    Parameters
    ----------
    kind
        Row of the cost tables that holds for it.
    memory_bytes
        Its memory.
    speed
        Factor on the kind's speed; times are divided by it.
    price
        Price per second of use.
    name
        Unique label, or None.
    host
        Which host it is in, for hierarchical links; None: a host of its own.
    """

    kind: str = "device"
    memory_bytes: float = math.inf
    speed: float = 1.0
    price: float = 0.0
    name: str | None = None
    host: int | str | None = None


def link_of(latency: float | None, bandwidth: float | None) -> Link:
    """Return the link with these values; None: no latency, or no limit on the bandwidth."""
    return Link(0.0 if latency is None else latency, math.inf if bandwidth is None else bandwidth)


class DeviceList(Sequence[Device]):
    """Devices that are made when they are read.

    Parameters
    ----------
    count
        How many.
    device
        Returns device i.
    """

    def __init__(self, count: int, device: Callable[[int], Device]) -> None:
        self._count, self._device = count, device

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, i: int) -> Device: ...
    @overload
    def __getitem__(self, i: slice) -> list[Device]: ...
    def __getitem__(self, i: int | slice) -> Device | list[Device]:
        if isinstance(i, slice):
            return [self._device(j) for j in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"device {i} of {len(self)}")
        return self._device(i % len(self))

    def __iter__(self) -> Iterator[Device]:
        return (self._device(i) for i in range(len(self)))
