"""Format room: what a file does not keep of the instance that was written to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from balance.problems.instance import Instance
from balance.problems.model.cluster import Cluster
from balance.problems.model.graph import BYTES, TIMES, CostGraph
from balance.problems.model.tensors import FloatArray

_NETS = ("bytes", "gradient_bytes", "seconds", "gradient_seconds")


def losses(given: Instance, back: Instance) -> tuple[str, ...]:
    """Return a sentence on everything in `given` that the instance `back`, read from its file, has otherwise.

    Left out are labels that say where numbers come from: the names of instance and graph (a file's name takes their
    place), notes and the graph's source; and the last digit of times, which another unit may round.
    """
    found = _graph_losses(given.graph, back.graph)
    if given.cluster is not None:
        found += (
            [f"the {given.cluster.n_devices} devices are not in the file"]
            if back.cluster is None
            else _cluster_losses(given.cluster, back.cluster)
        )
    if given.preset is not None and given.preset != back.preset:
        found.append(f"the preset {given.preset!r} is not in the file, which reads as {back.preset!r}")
    for key, value in given.parameters.items():
        kept = back.parameters.get(key)
        if kept != value:
            found.append(f"the parameter {key}={value!r} " + _reads(kept))
    return tuple(found)


def _reads(kept: Any) -> str:
    return "is not in the file" if kept is None else f"reads back as {kept!r}"


def _graph_losses(given: CostGraph, back: CostGraph) -> list[str]:
    if given == back:
        return []
    found: list[str] = []
    n = given.n_operators
    if back.n_operators != n:
        return [f"{back.n_operators} of {n} operators are in the file"]
    kinds = list(range(len(given.kinds)))
    if set(given.kinds) == set(back.kinds):
        kinds = [back.kind_index(kind) for kind in given.kinds]
    else:
        found.append(f"the device kinds {', '.join(given.kinds)} read back as {', '.join(back.kinds)}")
    columns = list(range(len(given.configurations)))
    if set(given.configurations) == set(back.configurations):
        columns = [back.configurations.index(configuration) for configuration in given.configurations]
    else:
        found.append("the configurations read back as " + ", ".join(map(str, back.configurations)))
    if len(given.kinds) == len(back.kinds) and len(given.configurations) == len(back.configurations):
        for key in TIMES:
            mine, other = getattr(given, key), getattr(back, key)
            if mine is not None and (other is None or not _alike(mine, other[np.ix_(kinds, columns)])):
                found.append(f"the times in {key} " + ("are not in the file" if other is None else "read back changed"))
        for key in BYTES:
            if not np.array_equal(getattr(given, key), getattr(back, key)[columns]):
                found.append(f"the sizes in {key} read back changed")
    if given.names is not None and given.names != back.names:
        found.append("the names of operators read back changed")
    if not np.array_equal(_partition(given), _partition(back)):
        found.append("the colocation of operators is not in the file")
    for key in ("pinned", "is_backward"):
        if not np.array_equal(getattr(given, key), getattr(back, key)):
            found.append(f"the column {key} is not in the file")
    return found + _tensor_losses(given, back)


def _alike(given: FloatArray, back: FloatArray) -> bool:
    """Whether numbers are equal but for the rounding of a change of unit."""
    return given.shape == back.shape and bool(np.isclose(given, back, rtol=1e-15, atol=0.0, equal_nan=True).all())


def _partition(graph: CostGraph) -> Any:
    """Return the first operator with each operator's colocation label (itself without one), shape (n,)."""
    n = graph.n_operators
    alone = graph.colocation < 0
    _, first, inverse = np.unique(graph.colocation, return_index=True, return_inverse=True)
    return np.where(alone, np.arange(n), first[inverse.reshape(-1)] if n else np.arange(n))


def _tensor_losses(given: CostGraph, back: CostGraph) -> list[str]:
    mine, other = given.tensors, back.tensors
    edges = [np.stack([t.edge_producer, t.consumers]) for t in (mine, other)]
    if edges[0].shape != edges[1].shape or not np.array_equal(_sorted(edges[0]), _sorted(edges[1])):
        return ["the edges read back changed"]
    if not np.array_equal(mine.offsets, other.offsets) or not np.array_equal(edges[0], edges[1]):
        if len(mine) != len(other):
            return [f"{len(mine)} tensors read back as {len(other)}, other ones of the same edges"]
        return ["the tensors read back in another order"]
    found = [
        f"the column {key} of tensors read back changed"
        for key in _NETS
        if not _alike(getattr(mine, key), getattr(other, key))
    ]
    if mine.names is not None and mine.names != other.names:
        found.append("the names of tensors are not in the file")
    return found


def _sorted(edges: Any) -> Any:
    return edges[:, np.lexsort(edges[::-1])]


def _cluster_losses(given: Cluster, back: Cluster) -> list[str]:
    if given == back:
        return []
    if given.n_devices != back.n_devices:
        return [f"the {given.n_devices} devices read back as {back.n_devices}"]
    found = []
    mine, other = ([cluster.kinds[k] for k in cluster.kind.tolist()] for cluster in (given, back))
    if mine != other:
        found.append("the kinds of devices read back changed")
    for key in ("memory_bytes", "speed", "price"):
        if not np.array_equal(getattr(given, key), getattr(back, key)):
            found.append(f"the column {key} of devices is not in the file")
    if given.names is not None and given.names != back.names:
        found.append("the names of devices are not in the file")
    if not np.array_equal(given.host, back.host):
        found.append("the hosts of devices are not in the file")
    if given.links != "none" and (given.links, given.intra, given.inter) != (back.links, back.intra, back.inter):
        found.append(f"the links ({given.links}) are not in the file")
    return found
