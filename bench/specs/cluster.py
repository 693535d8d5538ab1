"""Bench specs: building large clusters."""

from __future__ import annotations

from collections.abc import Callable

from balance.bench.spec import Spec, Target
from balance.problems.model.cluster import Cluster, Link

_FAST, _SLOW = Link(1e-6, 3e11), Link(1e-5, 2.5e10)


def _build(devices: int) -> Callable[[], Cluster]:
    return lambda: Cluster.hierarchical(devices // 8, 8, intra=_FAST, inter=_SLOW, memory_bytes=8e10, kind="gpu")


def _check(_: Callable[[], Cluster], cluster: Cluster) -> None:
    n = cluster.n_devices
    assert n % 8 == 0
    assert float(cluster.memory_bytes.sum()) == 8e10 * n
    assert cluster.link(0, 7) == _FAST
    assert cluster.link(0, n - 1) == _SLOW


SPECS = (
    Spec(
        name="model/cluster",
        measures="building a hierarchical cluster of 10,000 devices",
        full={"devices": 10_000},
        smoke={"devices": 80},
        prepare=_build,
        run=lambda build: build(),
        check=_check,
        target=Target(0.05),
        repeats=7,
    ),
    Spec(
        name="model/cluster-memory",
        measures="peak memory while a hierarchical cluster of 10,000 devices is built (its links as a matrix: 800 MB)",
        full={"devices": 10_000},
        smoke={"devices": 80},
        prepare=_build,
        run=lambda build: build(),
        check=_check,
        unit="bytes",
        target=Target(16e6, "bytes"),
    ),
)
