"""Model room: parameters of a problem as they are given, checked for type and range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from balance.problems.model.cluster import Cluster
from balance.problems.model.errors import ProblemError
from balance.problems.model.fields import meant
from balance.problems.model.graph import CostGraph


def check_question(graph: Any, cluster: Any) -> None:
    """Check that a problem is stated on a graph with operators and on a cluster whose kinds the graph knows.

    Raises
    ------
    ProblemError
        If it is not, or an operator is pinned to a device that is not there.
    """
    for key, value, kind in (("graph", graph, CostGraph), ("cluster", cluster, Cluster)):
        if not isinstance(value, kind):
            raise ProblemError(f"{key} must be a {kind.__name__}, got {_shown(value)}")
    if not graph.n_operators:
        raise ProblemError("the graph has no operators, so there is nothing to cut into stages")
    unknown = [kind for kind in cluster.kinds if kind not in graph.kinds]
    if unknown:
        raise ProblemError(
            f"the graph has no costs for device kind {unknown[0]!r}; it has costs for {', '.join(graph.kinds)}"
        )
    v = int(np.argmax(graph.pinned))
    if graph.pinned[v] >= cluster.n_devices:
        raise ProblemError(
            f"operator {graph.label(v)} is pinned to device {int(graph.pinned[v])}, but the cluster has "
            f"{cluster.n_devices} devices",
            operator=v,
        )


def choice(key: str, value: Any, options: Sequence[str]) -> str:
    """Return one of the options.

    Raises
    ------
    ProblemError
        If it is none; the message has the nearest one.
    """
    if not isinstance(value, str) or value not in options:
        raise ProblemError(f"{key}={_shown(value)} is not one of {', '.join(options)}{meant(str(value), options)}")
    return str(value)


def count(key: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number as an int; fractions are refused, not cut off.

    Raises
    ------
    ProblemError
        If it is no whole number or too small.
    """
    if not _real(value) or not least <= value < math.inf or value != int(value):
        raise ProblemError(f"{key} must be a whole number of at least {least}, got {_shown(value)}")
    return int(value)


def counts(key: str, values: Any) -> tuple[int, ...]:
    """Return whole numbers of at least 1, and at least one of them.

    Raises
    ------
    ProblemError
        If they are none.
    """
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise ProblemError(f"{key} must be a list of whole numbers of at least 1, got {_shown(values)}")
    result = tuple(count(key, value) for value in values)
    if not result:
        raise ProblemError(f"{key} must hold at least one count, got none")
    return result


def amount(key: str, value: Any) -> float:
    """Return a finite number that is not negative.

    Raises
    ------
    ProblemError
        If it is none.
    """
    if not _real(value) or not 0 <= value < math.inf:
        raise ProblemError(f"{key} must be a number that is finite and not negative, got {_shown(value)}")
    return float(value)


def flag(key: str, value: Any) -> bool:
    """Return a truth value.

    Raises
    ------
    ProblemError
        If it is none; words and numbers are not read as one.
    """
    if not isinstance(value, (bool, np.bool_)):
        raise ProblemError(f"{key} must be True or False, got {_shown(value)}")
    return bool(value)


def words(key: str, values: Any) -> tuple[str, ...]:
    """Return names; a single string is refused, since its letters would be taken for names.

    Raises
    ------
    ProblemError
        If they are no strings.
    """
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ProblemError(f"{key} must be a list of names, got {_shown(values)}")
    result = tuple(values)
    for value in result:
        if not isinstance(value, str):
            raise ProblemError(f"{key} must be a list of names, got {_shown(value)} in it")
    return result


def column(value: Any, graph: CostGraph) -> int:
    """Return the column of the graph's cost tables that `configuration` names.

    Raises
    ------
    ProblemError
        If it does not exist.
    """
    columns = len(graph.configurations)
    if not _real(value) or value not in range(columns):
        raise ProblemError(
            f"configuration {_shown(value)} does not exist; the graph has {columns}, give a whole number from 0 to "
            f"{columns - 1}"
        )
    return int(value)


def _real(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
