"""Random small cut problems for property tests; costs lie on a coarse grid, so that ties happen."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from balance.problems.cut import CutProblem
from balance.problems.model.cluster import Cluster, Device, Link
from balance.problems.model.graph import Configuration, CostGraph
from balance.problems.model.tensors import Tensor

KINDS = ("a", "b")


@st.composite
def graphs(draw, most=5, style=None, pins=0):
    """Draw a DAG of up to `most` operators of any style, with skips, colocation, kinds, pins and sizes."""
    n = draw(st.integers(1, most))
    chosen = style or draw(st.sampled_from(["inference", "layers", "operators"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    forward = {kind: rng.integers(0, 9, n) / 2.0 for kind in KINDS}
    if draw(st.integers(0, 3)) == 0:
        forward["a"] = np.where(rng.random(n) < 0.2, np.inf, forward["a"])
    tables = {}
    if chosen == "layers":
        tables["backward"] = {
            kind: np.where(np.isinf(row), np.inf, rng.integers(1, 9, n) / 2.0) for kind, row in forward.items()
        }
    if chosen == "operators":
        tables["is_backward"] = np.sort(rng.random(n) < 0.5)
    tensors = []
    density = rng.choice([0.2, 0.5, 0.8])
    for u in range(n - 1):
        readers = tuple(v for v in range(u + 1, n) if rng.random() < density)
        seconds = float(rng.integers(0, 4)) / 4 if rng.random() < 0.2 else None
        gradient = float(rng.integers(0, 5)) if chosen != "inference" and rng.random() < 0.3 else None
        if readers:
            size = float(rng.integers(0, 5))
            tensors.append(Tensor(u, readers, bytes=size, gradient_bytes=gradient, seconds=seconds))
    colocation = None
    if n > 2 and draw(st.booleans()):
        colocation = [None] * n
        for name in ("x", "y")[: int(rng.integers(1, 3))]:
            for v in rng.choice(n, 2, replace=False):
                colocation[v] = name
    pinned = None
    if pins and draw(st.integers(0, 5)) == 0:
        pinned = np.full(n, -1)
        pinned[int(rng.integers(n))] = int(rng.integers(pins))
    sizes = {}
    if draw(st.booleans()):
        sizes = {
            "parameter_bytes": rng.integers(0, 4, n).astype(float),
            "activation_bytes": rng.integers(0, 4, n).astype(float),
            "workspace_bytes": rng.integers(0, 3, n).astype(float),
            "static_bytes": rng.integers(0, 3, n).astype(float),
        }
    configurations = None
    if draw(st.integers(0, 4)) == 0:  # the costs drawn so far are the second column; the first misleads
        configurations = [Configuration(), Configuration(2)]
        for name in ("backward",) if chosen == "layers" else ():
            tables[name] = np.stack(
                [[np.where(np.isinf(tables[name][k]), np.inf, 1.0), tables[name][k]] for k in KINDS]
            )
        forward = np.stack([[np.where(np.isinf(forward[kind]), np.inf, 9.0), forward[kind]] for kind in KINDS])
        sizes = {name: np.stack([row[::-1] + 1.0, row]) for name, row in sizes.items()}
    return CostGraph(
        forward=forward,
        **tables,
        **sizes,
        kinds=KINDS,
        configurations=configurations,
        colocation=colocation,
        pinned=pinned,
        tensors=tensors,
    )


@st.composite
def clusters(draw, most=3):
    """Draw a few devices, equal or not, with memory that binds now and then."""
    count = draw(st.integers(1, most))
    caps = st.sampled_from([math.inf, math.inf, 24.0, 14.0])
    cells = st.builds(Device, st.sampled_from(KINDS), caps, st.sampled_from([1.0, 1.0, 2.0]))
    equal = draw(st.booleans())
    devices = [draw(cells)] * count if equal else [draw(cells) for _ in range(count)]
    return Cluster(devices, link=Link(draw(st.sampled_from([0.0, 0.25])), draw(st.sampled_from([1.0, 2.0, math.inf]))))


@st.composite
def problems(draw, most=5, devices=3, **fixed):
    """Draw a cut problem; keywords fix parameters of it."""
    cluster = draw(clusters(devices))
    graph = draw(graphs(most, fixed.pop("style", None), cluster.n_devices))
    contiguity = fixed.get("contiguity") or draw(st.sampled_from(["acyclic", "acyclic", "convex", "none"]))
    chosen = {
        "contiguity": contiguity,
        "objective": draw(st.sampled_from(["bottleneck", "bottleneck", "fw-bw-bottleneck"])),
        "overlap": draw(st.sampled_from(["sum", "max"])),
        "charge": draw(st.sampled_from(["tensor", "tensor", "edge"])),
        "send": draw(st.sampled_from(["once", "once", "each"])),
        "schedule": draw(st.sampled_from(["1f1b", "gpipe", "forward-only"])),
        "microbatches": draw(st.integers(1, 4)),
        "state_factor": draw(st.sampled_from([1.0, 4.0])),
        "free_kinds": draw(st.sampled_from([(), ("b",)])),
        "leaves": draw(st.sampled_from(["keep", "merge"])),
        "max_stages": draw(st.sampled_from([None, None, 1, 2])),
        **fixed,
    }
    chosen.setdefault("configuration", len(graph.configurations) - 1)
    if chosen["schedule"] != "gpipe" and "microbatches" not in fixed and draw(st.integers(0, 3)) == 0:
        chosen["microbatches"] = None  # gpipe needs to know
    if contiguity == "acyclic" and chosen["charge"] == "tensor" and draw(st.integers(0, 2)) == 0:
        chosen.setdefault("routing", "adjacent")
    if chosen["objective"] == "bottleneck" and draw(st.integers(0, 3)) == 0:
        chosen.setdefault("overflow_bandwidth", 4.0)
    if draw(st.integers(0, 4)) == 0:
        chosen.setdefault("in_flight", (2, 1, 3) if contiguity == "acyclic" else (2,))
    return CutProblem(graph=graph, cluster=cluster, **chosen)
