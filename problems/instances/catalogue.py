"""Instances room: the catalogue of device kinds, what their makers say that they can do.

Numbers are peaks for dense arithmetic, without the factor of two that data sheets give for structured sparsity.
Memory is the gigabytes of the data sheet taken as 1e9 bytes, which is no more than the device offers. What a program
reaches is less than a peak: `balance.problems.instances.roofline.Roofline` holds the fractions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from balance.problems.instances.arguments import real, several, whole
from balance.problems.model.cluster import Device
from balance.problems.model.errors import OptionError
from balance.problems.model.fields import nearest

ELEMENT_BYTES: Mapping[str, int] = MappingProxyType({"fp64": 8, "fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2})
"""Bytes per stored number by precision. TF32 is a way to multiply: its numbers are stored in four bytes."""


def element_bytes(precision: str) -> int:
    """Return the bytes of one stored number.

    Raises
    ------
    OptionError
        If the precision is unknown.
    """
    if not isinstance(precision, str) or precision not in ELEMENT_BYTES:
        raise OptionError(f"there is no precision {precision!r}{nearest(str(precision), ELEMENT_BYTES)}")
    return ELEMENT_BYTES[precision]


@dataclass(frozen=True)
class DeviceKind:
    """What one kind of device can do at best.

    Parameters
    ----------
    name
        What cost tables and clusters call it.
    peak_flops
        FLOP per second by precision, dense; a multiply-add is two. A precision that is not there is not supported.
    memory_bytes
        Memory.
    memory_bandwidth
        Bytes per second between its memory and its arithmetic.
    peer_bandwidth
        Bytes per second, one way, to a device of the same kind in the same host.
    source
        Where the numbers come from.

    Raises
    ------
    OptionError
        If a number is not positive or a precision is unknown.
    """

    name: str
    peak_flops: Mapping[str, float]
    memory_bytes: float
    memory_bandwidth: float
    peer_bandwidth: float
    source: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise OptionError(f"a device kind needs a name, got {self.name!r}")
        if not isinstance(self.peak_flops, Mapping) or not self.peak_flops:
            raise OptionError(f"device kind {self.name!r} needs peak_flops by precision, got {self.peak_flops!r}")
        for precision, peak in self.peak_flops.items():
            element_bytes(precision)
            real(f"peak_flops[{precision!r}] of device kind {self.name!r}", peak, above=0.0)
        for field in ("memory_bytes", "memory_bandwidth", "peer_bandwidth"):
            real(f"{field} of device kind {self.name!r}", getattr(self, field), above=0.0)
        object.__setattr__(self, "peak_flops", MappingProxyType(dict(self.peak_flops)))

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[object, ...]:
        # A read-only view of a dictionary cannot be pickled.
        return (
            DeviceKind,
            (
                self.name,
                dict(self.peak_flops),
                self.memory_bytes,
                self.memory_bandwidth,
                self.peer_bandwidth,
                self.source,
            ),
        )

    def peak(self, precision: str) -> float:
        """Return the FLOP per second at a precision.

        Raises
        ------
        OptionError
            If the device does not calculate in it.
        """
        if precision not in self.peak_flops:
            element_bytes(precision)
            raise OptionError(
                f"device kind {self.name!r} does not calculate in {precision}; it does in {', '.join(self.peak_flops)}",
                kind=self.name,
                precision=precision,
            )
        return self.peak_flops[precision]


_CATALOGUE: tuple[DeviceKind, ...] = (
    DeviceKind(
        "v100-16gb",
        {"fp16": 125e12, "fp32": 15.7e12, "fp64": 7.8e12},
        16e9,
        900e9,
        150e9,
        "NVIDIA V100 data sheet, SXM2 with 16 GB of HBM2; NVLink 300 GB/s both ways together",
    ),
    DeviceKind(
        "v100-32gb",
        {"fp16": 125e12, "fp32": 15.7e12, "fp64": 7.8e12},
        32e9,
        900e9,
        150e9,
        "NVIDIA V100 data sheet, SXM2 with 32 GB of HBM2; NVLink 300 GB/s both ways together",
    ),
    DeviceKind(
        "a100-40gb",
        {"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12, "fp64": 9.7e12},
        40e9,
        1555e9,
        300e9,
        "NVIDIA A100 data sheet, SXM with 40 GB of HBM2; NVLink 600 GB/s both ways together",
    ),
    DeviceKind(
        "a100-80gb",
        {"bf16": 312e12, "fp16": 312e12, "tf32": 156e12, "fp32": 19.5e12, "fp64": 9.7e12},
        80e9,
        2039e9,
        300e9,
        "NVIDIA A100 data sheet, SXM with 80 GB of HBM2e; NVLink 600 GB/s both ways together",
    ),
    DeviceKind(
        "h100",
        {"bf16": 989e12, "fp16": 989e12, "tf32": 494e12, "fp32": 67e12, "fp64": 34e12},
        80e9,
        3350e9,
        450e9,
        "NVIDIA H100 data sheet, SXM5 with 80 GB of HBM3, sparsity halved; NVLink 900 GB/s both ways together",
    ),
    DeviceKind(
        "h200",
        {"bf16": 989e12, "fp16": 989e12, "tf32": 494e12, "fp32": 67e12, "fp64": 34e12},
        141e9,
        4800e9,
        450e9,
        "NVIDIA H200 data sheet, SXM with 141 GB of HBM3e, sparsity halved; NVLink 900 GB/s both ways together",
    ),
    DeviceKind(
        "l4",
        {"bf16": 121e12, "fp16": 121e12, "tf32": 60e12, "fp32": 30.3e12},
        24e9,
        300e9,
        32e9,
        "NVIDIA L4 data sheet, 24 GB of GDDR6, sparsity halved; PCIe 4.0 x16, 64 GB/s both ways together",
    ),
    DeviceKind(
        "rtx-3090",
        {"bf16": 71e12, "fp16": 71e12, "tf32": 35.6e12, "fp32": 35.6e12},
        24e9,
        936e9,
        32e9,
        "NVIDIA GA102 white paper, GeForce RTX 3090, fp16 sums kept in fp32; PCIe 4.0 x16 without the NVLink bridge",
    ),
    DeviceKind(
        "rtx-4090",
        {"bf16": 165.2e12, "fp16": 165.2e12, "tf32": 82.6e12, "fp32": 82.6e12},
        24e9,
        1008e9,
        32e9,
        "NVIDIA Ada white paper, GeForce RTX 4090, fp16 sums kept in fp32; PCIe 4.0 x16",
    ),
    DeviceKind(
        "cpu-core",
        {"fp32": 96e9, "fp64": 48e9},
        4e9,
        10e9,
        10e9,
        "no product: one core at 3 GHz with two 256-bit multiply-add units (3e9 x 2 units x 8 lanes x 2 FLOP), and a "
        "share of a server's memory assumed to be 4 GB and 10 GB/s",
    ),
    DeviceKind(
        "jetson-nano",
        {"fp16": 472e9, "fp32": 236e9},
        4e9,
        25.6e9,
        0.125e9,
        "NVIDIA Jetson Nano module data sheet, 128 Maxwell cores at 921.6 MHz, 4 GB of LPDDR4; Gigabit Ethernet",
    ),
)  # fmt: skip


def list_device_kinds() -> tuple[DeviceKind, ...]:
    """Return every kind of the catalogue."""
    return _CATALOGUE


def device_kind(kind: str | DeviceKind) -> DeviceKind:
    """Return a device kind by its name; one that is not of the catalogue is handed back as it is.

    Raises
    ------
    OptionError
        If the catalogue has no such name; the message names the nearest.

    Examples
    --------
    >>> device_kind("a100-80gb").memory_bandwidth
    2039000000000.0
    """
    if isinstance(kind, DeviceKind):
        return kind
    for known in _CATALOGUE:
        if known.name == kind:
            return known
    raise OptionError(f"there is no device kind {kind!r}{nearest(str(kind), [k.name for k in _CATALOGUE])}")


def device_kinds(kinds: str | DeviceKind | Iterable[str | DeviceKind]) -> tuple[DeviceKind, ...]:
    """Return one or several device kinds by name.

    Raises
    ------
    OptionError
        If one is unknown or stands there twice.
    """
    single = isinstance(kinds, (str, DeviceKind))
    found = tuple(device_kind(kind) for kind in several("kinds", (kinds,) if single else kinds))
    several("kinds", [kind.name for kind in found])
    return found


def catalogue_device(
    kind: str | DeviceKind,
    *,
    price: float = 0.0,
    speed: float = 1.0,
    name: str | None = None,
    host: int | str | None = None,
) -> Device:
    """Return a `Device` of a kind with the kind's memory.

    Parameters
    ----------
    kind
        Name in the catalogue, or a kind of your own.
    price, speed, name, host
        As in `balance.problems.model.cluster.Device`.

    Raises
    ------
    OptionError
        If the kind is unknown.
    """
    known = device_kind(kind)
    return Device(known.name, known.memory_bytes, speed, price, name, host)


def catalogue_devices(
    counts: Mapping[str, int] | Iterable[tuple[str | DeviceKind, int]], *, devices_per_host: int | None = None
) -> list[Device]:
    """Return the devices of a cluster.

    Parameters
    ----------
    counts
        How many of each kind, by name or as (kind, count) pairs; they are listed in this order.
    devices_per_host
        Fill hosts with this many neighbours of one kind (the last one of a kind may have fewer); None: a host each.

    Raises
    ------
    OptionError
        If a kind is unknown or a count is no whole number of at least 0.

    Examples
    --------
    >>> from balance.problems.model.cluster import Cluster, Link
    >>> fast = Link(bandwidth=device_kind("a100-80gb").peer_bandwidth)
    >>> devices = catalogue_devices({"a100-80gb": 8, "v100-32gb": 4}, devices_per_host=4)
    >>> cluster = Cluster(devices, intra=fast, inter=Link(1e-5, 25e9))
    >>> cluster.kinds, cluster.host.tolist()
    (('a100-80gb', 'v100-32gb'), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2])
    """
    room = None if devices_per_host is None else whole("devices_per_host", devices_per_host)
    devices: list[Device] = []
    host = 0
    for kind, count in counts.items() if isinstance(counts, Mapping) else counts:
        number = whole(f"the count of {kind!r}", count, least=0)
        for i in range(number):
            devices.append(catalogue_device(kind, host=host + i // (room or 1)))
        host += -(-number // (room or 1))
    return devices
