"""Speed suite on pytest-benchmark: every spec, each run checked for the value that it gives.

``pytest bench/speed --benchmark-only`` times the full sizes; ``--benchmark-disable`` runs the small ones once.
Baselines: ``--benchmark-autosave`` and ``--benchmark-compare --benchmark-compare-fail=median:25%``.
"""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from balance.bench.discovery import list_specs
from balance.bench.spec import Spec, measure

SPECS = list_specs()


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.unit == "s"], ids=lambda spec: spec.name)
def test_seconds(spec: Spec, benchmark: Any, request: pytest.FixtureRequest) -> None:
    """A timed figure: the median meets its target at full size, and the value is right."""
    size = "smoke" if request.config.getoption("benchmark_disable") else "full"
    states: list[Any] = []
    values: list[Any] = []

    def prepare() -> tuple[tuple[Any], dict[str, Any]]:
        states.append(spec.prepare(**spec.parameters(size)))
        return (states[-1],), {}

    def run(state: Any) -> None:
        values.append(spec.run(state))

    if spec.warm and size == "full":
        spec.run(spec.prepare(**spec.parameters(size)))
    rounds = 1 if size == "smoke" else spec.repeats
    benchmark.pedantic(run, setup=prepare, rounds=rounds, iterations=1)
    assert len(values) >= rounds
    for state, value in zip(states, values, strict=True):
        spec.check(state, value)
    benchmark.extra_info["measures"] = spec.measures
    figures = [] if spec.figure is None else [spec.figure(value) for value in values]
    if figures:
        benchmark.extra_info["figure"] = statistics.median(figures)
    if spec.target is not None and size == "full":
        reached = statistics.median(figures) if figures else benchmark.stats.stats.median
        benchmark.extra_info["limit"] = spec.target.limit
        assert spec.target.met(reached), f"{spec.measures}: {reached:.4g} s, target {spec.target.limit:g} s"


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.unit == "bytes"], ids=lambda spec: spec.name)
def test_bytes(spec: Spec, request: pytest.FixtureRequest) -> None:
    """A memory figure: the peak meets its target at full size, and the value is right."""
    found = measure(spec, "smoke" if request.config.getoption("benchmark_disable") else "full")
    assert found.met is not False, f"{spec.measures}: {found.value:.4g} bytes, target {found.limit:g} bytes"
