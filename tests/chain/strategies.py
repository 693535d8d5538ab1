"""Random small chain problems for property tests."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from balance.problems.chain import ChainProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import Tensor


@st.composite
def graphs(draw, most=6, kinds=("a",), training=None, skips=True, colocation=True, memory=True, pins=0):
    """Draw a chain of up to `most` operators with skip tensors, colocation and costs on a coarse grid (ties happen)."""
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    backward = draw(st.booleans()) if training is None else training
    forward = {kind: rng.integers(0, 9, n) / 2.0 for kind in kinds}
    if len(kinds) > 1 and draw(st.booleans()):
        forward[kinds[0]] = np.where(rng.random(n) < 0.2, np.inf, forward[kinds[0]])
    times = {"forward": forward}
    if backward:
        times["backward"] = {k: np.where(np.isinf(v), np.inf, rng.integers(1, 9, n) / 2.0) for k, v in forward.items()}
    tensors = []
    for v in range(n - 1):
        readers = {v + 1}
        if skips:
            readers |= {int(w) for w in range(v + 2, n) if rng.random() < 0.25}
        seconds = float(rng.integers(0, 4)) / 4 if rng.random() < 0.2 else None
        tensors.append(Tensor(v, tuple(sorted(readers)), bytes=float(rng.integers(0, 5)), seconds=seconds))
    labels = None
    if colocation and n > 2 and draw(st.booleans()):
        labels = [None] * n
        labels[0] = labels[int(rng.integers(1, n))] = "together" if rng.random() < 0.3 else None
    sizes = {}
    if memory:
        sizes = {
            "parameter_bytes": rng.integers(0, 4, n).astype(float),
            "activation_bytes": rng.integers(0, 4, n).astype(float),
            "workspace_bytes": rng.integers(0, 3, n).astype(float),
            "static_bytes": rng.integers(0, 3, n).astype(float),
        }
    pinned = None
    if pins and draw(st.integers(0, 3)) == 0:
        pinned = np.full(n, -1)
        pinned[int(rng.integers(n))] = int(rng.integers(pins))
    return CostGraph(**times, **sizes, kinds=kinds, colocation=labels, pinned=pinned, tensors=tensors)


@st.composite
def operator_graphs(draw, most=4, kinds=("a",)):
    """Draw a chain of up to `most` forward operators, each with a backward operator tied to it by colocation."""
    n = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    late = np.arange(2 * n) >= n  # operator 2 n - 1 - v is the mate of v
    tensors = [Tensor(v, (v + 1,), bytes=float(rng.integers(0, 5))) for v in range(2 * n - 1)]
    tensors += [Tensor(v, (2 * n - 1 - v,), bytes=float(rng.integers(0, 5))) for v in range(n - 1)]
    names = [f"layer {v}" for v in range(n)]
    return CostGraph(
        forward={kind: rng.integers(0, 9, 2 * n) / 2.0 for kind in kinds},
        parameter_bytes=np.where(late, 0.0, rng.integers(0, 4, 2 * n)),
        activation_bytes=np.where(late, 0.0, rng.integers(0, 4, 2 * n)),
        kinds=kinds,
        is_backward=late,
        colocation=names + names[::-1],
        tensors=tensors,
    )


@st.composite
def clusters(draw, most=3, kinds=("a",), uneven=False, memory=True):
    """Draw a few devices, with memory that binds now and then."""
    p = draw(st.integers(1, most))
    same = draw(st.booleans()) if not uneven else False
    caps = st.sampled_from([math.inf, math.inf, 40.0, 20.0, 12.0]) if memory else st.just(math.inf)
    cells = st.tuples(st.sampled_from(kinds), caps, st.sampled_from([1.0, 1.0, 2.0]))
    rows = [draw(cells)] * p if same else [draw(cells) for _ in range(p)]
    devices = [Device(kind, cap, speed) for kind, cap, speed in rows]
    if uneven:
        rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
        return Cluster(
            devices, latency=rng.integers(0, 3, (p, p)) / 4, bandwidth=rng.integers(1, 5, (p, p)).astype(float)
        )
    return Cluster(devices, link=Link(draw(st.sampled_from([0.0, 0.25])), draw(st.sampled_from([1.0, 2.0, math.inf]))))


@st.composite
def problems(draw, **fixed):
    """Draw a chain problem; keywords fix fields of it, or ``kinds``, ``uneven`` and ``most`` of its parts."""
    kinds = fixed.pop("kinds", ("a", "b"))
    cluster = draw(clusters(most=fixed.pop("devices", 3), kinds=kinds, uneven=fixed.pop("uneven", False)))
    most = fixed.pop("most", 6)
    if fixed.pop("style", "layers") == "operators":
        graph = draw(operator_graphs(most=min(most, 4), kinds=kinds))
    else:
        graph = draw(graphs(most=most, kinds=kinds, pins=cluster.n_devices))
    parameters = {
        "objective": draw(st.sampled_from(["bottleneck", "bottleneck", "fw-bw-bottleneck"])),
        "device_order": draw(st.sampled_from(["given", "free"])),
        "idle": draw(st.sampled_from([True, True, False])),
        "overlap": draw(st.sampled_from(["sum", "max"])),
        "recompute": draw(st.sampled_from(["never", "always", "choose"])),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "1f1b", "gpipe", "forward-only"])),
        "microbatches": draw(st.integers(1, 4)),
        "state_factor": draw(st.sampled_from([1.0, 4.0])),
        "backend": draw(st.sampled_from(["none", "torch"])),
        "free_kinds": draw(st.sampled_from([(), ("b",)])),
    }
    if cluster.links in ("uniform", "none"):
        parameters["routing"] = draw(st.sampled_from(["adjacent", "direct"]))
        parameters["send"] = draw(st.sampled_from(["each", "once"]))
    return ChainProblem(graph=graph, cluster=cluster, **{**parameters, **fixed})
