"""Instances room: seeded random graphs of the usual families.

Every generator draws its structure and its costs from two independent streams of one seed, so that the same seed gives
the same structure under every `CostLaw`, and the same graph hash under the same one (and the same NumPy). Operators are
numbered in topological order and have no names. An operator that others read makes one tensor, which all of them read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from balance.problems.instances.arguments import choice, real, size, whole
from balance.problems.instances.cost_law import CostLaw, cost_law
from balance.problems.model.errors import OptionError
from balance.problems.model.graph import CostGraph
from balance.problems.model.tensors import IntArray, Tensors
from balance.problems.model.topology import topological_order

Law = CostLaw | Mapping[str, Any] | str | None


def random_chain(*, operators: int, seed: int = 0, law: Law = None) -> CostGraph:
    """Return a chain: operator i is read by operator i + 1.

    Parameters
    ----------
    operators
        Number of operators n.
    seed
        Of the costs; the structure is not random.
    law
        How costs are drawn: a `CostLaw`, a mapping of its fields, or the name of its distribution.

    Raises
    ------
    OptionError
        If an argument is out of range.

    Examples
    --------
    >>> graph = random_chain(operators=4, seed=7, law="uniform")
    >>> graph.n_operators, graph.n_tensors
    (4, 3)
    """
    n = size("random_chain", whole("operators", operators))
    steps = np.arange(n - 1, dtype=np.int64)
    return _built("random_chain", n, steps, steps + 1, seed, law, operators=n)


def layered_dag(*, operators: int, layers: int = 10, fan_in: int = 2, seed: int = 0, law: Law = None) -> CostGraph:
    """Return a DAG of layers, each of which reads only the one before it.

    The n operators are dealt out to the layers as evenly as possible. Each operator outside the first layer draws
    `fan_in` operators of the layer before, uniformly and independently; one drawn twice is read once.

    Parameters
    ----------
    operators
        Number of operators n.
    layers
        Number of layers, at most n.
    fan_in
        Draws per operator.
    seed, law
        As in `random_chain`.

    Raises
    ------
    OptionError
        If an argument is out of range.
    """
    n, depth = size("layered_dag", whole("operators", operators)), whole("layers", layers)
    if depth > n:
        raise OptionError(f"{n} operators cannot fill {depth} layers; give layers= of at most {n}")
    draws = whole("fan_in", fan_in)
    size("layered_dag", n * draws)
    starts = np.arange(depth + 1, dtype=np.int64) * n // depth
    layer = np.repeat(np.arange(depth), np.diff(starts))
    later = np.arange(starts[1], n, dtype=np.int64)
    before = layer[later] - 1
    width = (starts[before + 1] - starts[before])[:, None]
    picked = _structure(seed).random((len(later), draws))
    source = starts[before][:, None] + np.minimum((picked * width).astype(np.int64), width - 1)
    return _built(
        "layered_dag", n, source.ravel(), np.repeat(later, draws), seed, law, operators=n, layers=depth, fan_in=draws
    )


def random_order_dag(*, operators: int, mean_readers: float = 2.0, seed: int = 0, law: Law = None) -> CostGraph:
    """Return an Erdos-Renyi graph whose edges point from the lower to the higher number.

    Each of the ``n (n - 1) / 2`` pairs is an edge with probability ``p = 2 mean_readers / (n - 1)``, independently: the
    number of edges is drawn from the binomial distribution, then that many different pairs uniformly.

    Parameters
    ----------
    operators
        Number of operators n.
    mean_readers
        Expected number of edges per operator, at most ``(n - 1) / 2``.
    seed, law
        As in `random_chain`.

    Raises
    ------
    OptionError
        If an argument is out of range.
    """
    n = size("random_order_dag", whole("operators", operators))
    mean = real("mean_readers", mean_readers)
    if mean > (n - 1) / 2:
        raise OptionError(f"mean_readers = {mean:g} is more than (n - 1) / 2 = {(n - 1) / 2:g} pairs per operator")
    size("random_order_dag", int(mean * n))
    rng, pairs = _structure(seed), n * (n - 1) // 2
    count = int(rng.binomial(pairs, min(1.0, 2.0 * mean / (n - 1)))) if pairs else 0
    chosen = np.sort(rng.choice(pairs, count, replace=False)) if count else np.zeros(0, dtype=np.int64)
    # Pair (i, j), i < j, has the number j (j - 1) / 2 + i; a root in floating point may be one off.
    target = ((1 + np.sqrt(1 + 8 * chosen.astype(np.float64))) / 2).astype(np.int64)
    target -= target * (target - 1) // 2 > chosen
    target += (target + 1) * target // 2 <= chosen
    source = chosen - target * (target - 1) // 2
    return _built("random_order_dag", n, source, target, seed, law, operators=n, mean_readers=mean)


def series_parallel(*, operators: int, parallel: float = 0.5, seed: int = 0, law: Law = None) -> CostGraph:
    """Return a two-terminal series-parallel DAG, grown edge by edge.

    It starts as one edge from a source to a sink. Each further operator w picks an edge (u, v) uniformly; with
    probability `parallel` the path u, w, v is laid beside it, otherwise it replaces it.

    Parameters
    ----------
    operators
        Number of operators n, at least 2.
    parallel
        Probability of the parallel step, in [0, 1].
    seed, law
        As in `random_chain`.

    Raises
    ------
    OptionError
        If an argument is out of range.
    """
    n = size("series_parallel", whole("operators", operators, least=2))
    chance = real("parallel", parallel, most=1.0)
    rng = _structure(seed)
    where, beside = rng.random(n - 2).tolist(), (rng.random(n - 2) < chance).tolist()
    source, target = [0], [1]
    for w, (at, wide) in enumerate(zip(where, beside, strict=True), 2):
        e = int(at * len(source))
        u, v = source[e], target[e]
        if wide:
            source.append(u)
            target.append(w)
        else:
            target[e] = w
        source.append(w)
        target.append(v)
    tails, heads = np.array(source, dtype=np.int64), np.array(target, dtype=np.int64)
    order = topological_order(n, tails, heads)
    assert order is not None  # both steps keep it free of cycles
    place = np.empty(n, dtype=np.int64)
    place[order] = np.arange(n)
    return _built("series_parallel", n, place[tails], place[heads], seed, law, operators=n, parallel=chance)


def fork_join(*, branches: int = 4, length: int = 3, repeats: int = 1, seed: int = 0, law: Law = None) -> CostGraph:
    """Return forks into parallel chains that join again, one after another, as in multi-branch networks.

    One repeat is `branches` chains of `length` operators each between a fork and a join; the join is the next fork.
    There are ``1 + repeats (branches length + 1)`` operators. All chains of a repeat read the same tensor of its fork.

    Parameters
    ----------
    branches, length, repeats
        Numbers of chains, of operators on each, and of repeats.
    seed
        Of the costs; the structure is not random.
    law
        As in `random_chain`.

    Raises
    ------
    OptionError
        If an argument is out of range.
    """
    wide, long, times = whole("branches", branches), whole("length", length), whole("repeats", repeats)
    step = wide * long + 1
    n = size("fork_join", 1 + times * step)
    forks = step * np.arange(times, dtype=np.int64)[:, None, None]
    # Axes: repeat, branch, position on the branch with the fork in front.
    inner = forks + 1 + long * np.arange(wide)[:, None] + np.arange(long)
    source = np.concatenate([np.broadcast_to(forks, (times, wide, 1)), inner], axis=2)
    target = np.concatenate([inner, np.broadcast_to(forks + step, (times, wide, 1))], axis=2)
    parameters = {"branches": wide, "length": long, "repeats": times}
    return _built("fork_join", n, source.ravel(), target.ravel(), seed, law, **parameters)


def attention_dag(*, blocks: int = 4, heads: int = 4, seed: int = 0, law: Law = None) -> CostGraph:
    """Return blocks shaped like attention, with random costs.

    A block's input goes to a norm and past it; the norm is read by queries, keys and values of each head; queries and
    keys by the head's scores; scores and values by its context; all contexts by the projection; projection and input by
    the block's output. After one operator for the input, a block has ``5 heads + 3`` operators.

    Parameters
    ----------
    blocks, heads
        Numbers of blocks, and of heads in each.
    seed
        Of the costs; the structure is not random.
    law
        As in `random_chain`.

    Raises
    ------
    OptionError
        If an argument is out of range.
    """
    many, width = whole("blocks", blocks), whole("heads", heads)
    step = 5 * width + 3
    n = size("attention_dag", 1 + many * step)
    # Positions in a block whose input is at 0 and whose output, at `step`, is the next one's input.
    query, key, value, scores, context = (2 + part * width + np.arange(width) for part in range(5))
    norm, projection, output = (np.full(width, at) for at in (1, step - 1, step))
    edges = [
        (np.array([0, 0]), np.array([1, step])),
        (norm, query),
        (norm, key),
        (norm, value),
        (query, scores),
        (key, scores),
        (scores, context),
        (value, context),
        (context, projection),
        (projection[:1], output[:1]),
    ]
    bases = step * np.arange(many, dtype=np.int64)[:, None]
    source, target = (bases + np.concatenate([edge[end] for edge in edges]) for end in (0, 1))
    return _built("attention_dag", n, source.ravel(), target.ravel(), seed, law, blocks=many, heads=width)


def random_tree(*, operators: int, direction: str = "out", seed: int = 0, law: Law = None) -> CostGraph:
    """Return a random recursive tree: each operator but the root hangs on one drawn uniformly from those before it.

    Parameters
    ----------
    operators
        Number of operators n.
    direction
        ``"out"``: from the root (operator 0) to the leaves. ``"in"``: from the leaves to the root (operator n - 1).
    seed, law
        As in `random_chain`.

    Raises
    ------
    OptionError
        If an argument is out of range.
    """
    n = size("random_tree", whole("operators", operators))
    choice("direction", direction, ("out", "in"))
    child = np.arange(1, n, dtype=np.int64)
    parent = (_structure(seed).random(n - 1) * child).astype(np.int64)
    source, target = (parent, child) if direction == "out" else (n - 1 - child, n - 1 - parent)
    return _built("random_tree", n, source, target, seed, law, operators=n, direction=direction)


def _streams(seed: int) -> list[np.random.Generator]:
    return np.random.default_rng(whole("seed", seed, least=0, most=2**128)).spawn(2)


def _structure(seed: int) -> np.random.Generator:
    return _streams(seed)[0]


def _built(
    family: str, n: int, source: IntArray, target: IntArray, seed: int, law: Law, **parameters: Any
) -> CostGraph:
    """Return the graph of these edges, with costs of the law; parallel edges count once."""
    chosen, rng = cost_law(law), _streams(seed)[1]
    edges = np.unique(source * np.int64(n) + target)
    producer, consumers = edges // n, edges % n
    first = np.flatnonzero(np.diff(producer, prepend=-1))
    tables, sizes = chosen.draw(rng, n, len(first))
    tensors = Tensors(producer[first], np.append(first, len(edges)), consumers, sizes)
    settings = {"seed": int(seed), **parameters}
    return CostGraph(
        **tables,
        tensors=tensors,
        name=family.replace("_", "-"),
        source={"generator": family, "parameters": settings, "law": chosen.to_json()},
    )
