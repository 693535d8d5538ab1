"""Bench room: seeded graphs like those that lower bounds of min-max graph cuts were published on.

The published set (REGAL) is synthetic too, but its files are not on this machine; this family follows what is known of
it. Graph i of a sample is layered, series-parallel or attention-like in turn (i mod 3); 50 to 500 operators,
log-uniformly drawn; work and tensor sizes are log-normal with spread 0.5 around their means. The bandwidth is set so
that all tensors together take the asked ratio of all work: 0.1, 1 or 10, in turn (i div 3 mod 3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from balance.problems.instance import Instance
from balance.problems.instances.random_graphs import attention_dag, layered_dag, series_parallel
from balance.problems.model.cluster import Cluster
from balance.problems.model.graph import CostGraph

RATIOS = (0.1, 1.0, 10.0)
SAMPLES = {2: 20, 4: 20, 8: 20, 16: 100, 32: 20, 64: 20}
"""Number of graphs by number of devices."""


def names() -> Iterator[tuple[str, str]]:
    """Yield (name below ``regal/``, what it is) of every instance."""
    for devices, count in SAMPLES.items():
        for i in range(count):
            graph, ratio = _law(i)
            about = f"{graph} graph, communication over work {ratio:g}, {devices} devices"
            yield f"k{devices}/r{ratio:g}/{graph}-{i:02d}", about


def build(name: str) -> Instance:
    """Return the instance of a name, made anew; equal names give equal instances."""
    devices, _, label = name.split("/")
    i = int(label.rsplit("-", 1)[1])
    kind, ratio = _law(i)
    rng = np.random.default_rng([20240607, i])
    operators = round(math.exp(rng.uniform(math.log(50), math.log(500))))
    graph = _graph(kind, operators, rng)
    work, sizes = float(graph.forward.sum()), float(graph.tensors.bytes.sum())
    cluster = Cluster.uniform(int(devices[1:]), bandwidth=sizes / (ratio * work))
    return Instance(graph, cluster, "mtpp", name=f"regal-{i:02d}")


def _law(i: int) -> tuple[str, float]:
    return ("layered", "series-parallel", "attention")[i % 3], RATIOS[i // 3 % 3]


def _graph(kind: str, operators: int, rng: np.random.Generator) -> CostGraph:
    seed = int(rng.integers(2**31))
    if kind == "layered":
        width = int(rng.integers(3, 13))
        return layered_dag(operators=operators, layers=max(operators // width, 2), fan_in=2, seed=seed)
    if kind == "series-parallel":
        return series_parallel(operators=operators, parallel=float(rng.uniform(0.3, 0.7)), seed=seed)
    heads = int(rng.integers(2, 9))
    return attention_dag(blocks=max(round(operators / (5 * heads + 3)), 1), heads=heads, seed=seed)
