"""Bench specs: building large graphs."""

from __future__ import annotations

from typing import Any

from balance.bench.spec import Spec, Target
from balance.problems.instances import generate
from balance.problems.model.graph import CostGraph

State = tuple[str, dict[str, Any]]


def _named(family: str, **parameters: Any) -> State:
    return family, parameters


def _build(state: State) -> CostGraph:
    return generate(*state)


def _is_large(state: State, graph: CostGraph) -> None:
    asked: int = state[1].get("operators") or state[1].get("layers") or 126  # at least one operator a layer
    assert graph.n_operators >= asked, graph.n_operators
    # Operators that nobody reads have no tensor: in a random DAG every fifth one, in a chain the last.
    assert graph.n_tensors > graph.n_operators // 2, graph.n_tensors


SPECS = (
    Spec(
        name="instances/language-model",
        measures="building Llama 3.1 405B, 126 layers, operator by operator",
        full={"family": "language_model", "model": "llama-3.1-405b", "granularity": "operator"},
        smoke={"family": "language_model", "model": "llama-3.1-405b", "granularity": "block"},
        prepare=_named,
        run=_build,
        check=_is_large,
        target=Target(2.0),
    ),
    Spec(
        name="instances/transformer",
        measures="building a transformer of 100,012 operators",
        full={
            "family": "transformer",
            "layers": 8_334,
            "hidden": 1_024,
            "heads": 16,
            "vocabulary": 32_000,
            "sequence": 512,
            "granularity": "operator",
        },
        smoke={
            "family": "transformer",
            "layers": 4,
            "hidden": 64,
            "heads": 4,
            "vocabulary": 100,
            "sequence": 32,
            "granularity": "operator",
        },
        prepare=_named,
        run=_build,
        check=_is_large,
        target=Target(2.0),
    ),
    Spec(
        name="instances/random-chain",
        measures="building a random chain of 100,000 operators",
        full={"family": "random_chain", "operators": 100_000, "seed": 1},
        smoke={"family": "random_chain", "operators": 100, "seed": 1},
        prepare=_named,
        run=_build,
        check=_is_large,
        target=Target(2.0),
    ),
    Spec(
        name="instances/random-layers",
        measures="building a layered random DAG of 100,000 operators",
        full={"family": "layered_dag", "operators": 100_000, "seed": 1},
        smoke={"family": "layered_dag", "operators": 100, "seed": 1},
        prepare=_named,
        run=_build,
        check=_is_large,
        target=Target(2.0),
    ),
)
