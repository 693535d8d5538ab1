"""The catalogue of device kinds: its facts fit together, and devices are made of them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from balance.problems.instances.catalogue import (
    ELEMENT_BYTES,
    DeviceKind,
    catalogue_device,
    catalogue_devices,
    device_kind,
    device_kinds,
    list_device_kinds,
)
from balance.problems.model.cluster import Cluster, Link
from balance.problems.model.errors import OptionError

OWN = DeviceKind("own", {"fp32": 1e12}, 1e9, 1e11, 1e10, "a test")


@pytest.mark.parametrize("kind", list_device_kinds(), ids=lambda kind: kind.name)
def test_facts_fit_together(kind: DeviceKind) -> None:
    """No kind is faster in a wider precision, and none reaches its peers faster than its own memory."""
    peaks = [kind.peak_flops[p] for p in sorted(kind.peak_flops, key=lambda p: (ELEMENT_BYTES[p], p == "fp32"))]
    assert peaks == sorted(peaks, reverse=True)
    assert kind.peer_bandwidth <= kind.memory_bandwidth
    assert len(kind.source) > 20
    assert device_kind(kind.name) is kind


def test_names_are_unique() -> None:
    """A name finds one kind."""
    names = [kind.name for kind in list_device_kinds()]
    assert len(set(names)) == len(names)
    assert {"v100-32gb", "a100-80gb", "h100", "h200", "l4", "rtx-3090", "rtx-4090", "cpu-core"} <= set(names)


def test_data_sheet_numbers() -> None:
    """Some numbers as their data sheets print them."""
    a100, v100, h200 = device_kind("a100-80gb"), device_kind("v100-32gb"), device_kind("h200")
    assert (a100.peak("bf16"), a100.peak("fp32"), a100.memory_bandwidth) == (312e12, 19.5e12, 2039e9)
    assert (v100.peak("fp16"), v100.memory_bytes, v100.memory_bandwidth) == (125e12, 32e9, 900e9)
    assert (h200.memory_bytes, h200.memory_bandwidth) == (141e9, 4.8e12)


def test_unknown_names_give_the_nearest() -> None:
    """A misspelt kind or precision is an error that helps."""
    with pytest.raises(OptionError, match="did you mean 'a100-80gb'"):
        device_kind("a100-80g")
    with pytest.raises(OptionError, match="did you mean 'bf16'"):
        device_kind("h100").peak("bff16")
    with pytest.raises(OptionError, match="does not calculate in bf16; it does in fp16, fp32, fp64"):
        device_kind("v100-32gb").peak("bf16")
    with pytest.raises(OptionError, match="twice"):
        device_kinds(["h100", "h100"])
    with pytest.raises(OptionError, match="no device kind 3"):
        device_kinds([3])  # type: ignore[list-item]


def test_kinds_of_your_own() -> None:
    """A kind that is not of the catalogue is taken as it is, copies well and is checked."""
    assert device_kind(OWN) is OWN
    assert device_kinds(OWN) == (OWN,)
    for twin in (copy.deepcopy(OWN), pickle.loads(pickle.dumps(OWN))):
        assert twin == OWN
        assert hash(twin) == hash(OWN)
    changes: list[dict[str, Any]] = [
        {"memory_bytes": 0.0},
        {"peak_flops": {}},
        {"peak_flops": {"fp31": 1.0}},
        {"name": ""},
    ]
    for changed in changes:
        fields = {**{key: getattr(OWN, key) for key in OWN.__dataclass_fields__}, **changed}
        with pytest.raises(OptionError):
            DeviceKind(**fields)


def test_devices_fill_hosts_of_one_kind() -> None:
    """Hosts hold neighbours of one kind, the last one of a kind what is left."""
    devices = catalogue_devices({"h100": 3, "l4": 0, "v100-32gb": 2}, devices_per_host=2)
    cluster = Cluster(devices, intra=Link(bandwidth=1e11), inter=Link(1e-5, 1e10))
    assert cluster.kinds == ("h100", "v100-32gb")
    assert cluster.host.tolist() == [0, 0, 1, 2, 2]
    assert cluster.memory_bytes.tolist() == [80e9] * 3 + [32e9] * 2
    assert [d.host for d in catalogue_devices([(OWN, 2)])] == [0, 1]
    assert catalogue_device(OWN, price=2.0, speed=0.5, name="x").price == 2.0
    with pytest.raises(OptionError, match="count of 'h100'"):
        catalogue_devices({"h100": -1})
