"""Bench room: what one measured figure is, and how it is measured."""

from __future__ import annotations

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SIZES = ("full", "smoke")


@dataclass(frozen=True)
class Target:
    """The most that a figure may be.

    Parameters
    ----------
    limit
        Largest value that meets the target; a figure must be below it.
    unit
        ``"s"`` or ``"bytes"``.
    """

    limit: float
    unit: str = "s"

    def met(self, value: float) -> bool:
        """Whether a measured value meets the target."""
        return value < self.limit


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One figure that is measured, with the check that the value behind it is right.

    Parameters
    ----------
    name
        ``wing/what``, unique.
    measures
        One sentence: what is timed, on what.
    full, smoke
        Arguments of `prepare` for the size that the target is about and for a quick run of the same code.
    prepare
        Builds the input, outside the measurement, anew for every repetition: nothing cached on it is reused.
    run
        What is measured.
    check
        ``check(state, value)`` raises AssertionError when the measured run gave a wrong value.
    target
        The largest value allowed at full size, or None.
    unit
        ``"s"``: wall-clock seconds of `run`; ``"bytes"``: peak memory that `run` allocates through Python and NumPy.
    figure
        Takes the figure out of the value that `run` returned, for runs that time themselves (a fresh process).
    warm
        Whether one run comes before the measured ones (compiled kernels are then loaded).
    repeats
        Measured repetitions at full size; the figure is their median.

    Examples
    --------
    >>> spec = Spec(
    ...     name="example/sum", measures="adding numbers", full={"n": 1000}, smoke={"n": 10},
    ...     prepare=lambda n: list(range(n)), run=sum, check=lambda state, value: None,
    ... )
    >>> measure(spec, "smoke").unit
    's'
    """

    name: str
    measures: str
    full: Mapping[str, Any]
    smoke: Mapping[str, Any]
    prepare: Callable[..., Any]
    run: Callable[[Any], Any]
    check: Callable[[Any, Any], None]
    target: Target | None = None
    unit: str = "s"
    figure: Callable[[Any], float] | None = None
    warm: bool = True
    repeats: int = 3

    def __post_init__(self) -> None:
        if self.unit not in ("s", "bytes"):
            raise ValueError(f"spec {self.name!r} has unit {self.unit!r}; known units are s and bytes")
        if self.target is not None and self.target.unit != self.unit:
            raise ValueError(f"spec {self.name!r} measures {self.unit} but its target is in {self.target.unit}")
        if self.repeats < 1:
            raise ValueError(f"spec {self.name!r} must run at least once, got repeats={self.repeats}")
        if "/" not in self.name:
            raise ValueError(f"spec names are wing/what, got {self.name!r}")

    def parameters(self, size: str) -> dict[str, Any]:
        """Return the arguments of `prepare` at a size.

        Raises
        ------
        ValueError
            If the size is not ``"full"`` or ``"smoke"``.
        """
        if size not in SIZES:
            raise ValueError(f"size is one of {', '.join(SIZES)}, got {size!r}")
        return dict(self.full if size == "full" else self.smoke)


@dataclass(frozen=True)
class Measurement:
    """A measured figure.

    Parameters
    ----------
    value
        Median over the repetitions.
    unit
        ``"s"`` or ``"bytes"``.
    samples
        Every repetition, in order.
    limit
        The target's limit, or None when there is no target at this size.
    met
        Whether the target is met; None without one.
    parameters
        The size that was measured.
    """

    value: float
    unit: str
    samples: tuple[float, ...]
    limit: float | None = None
    met: bool | None = None
    parameters: dict[str, Any] = field(default_factory=dict)


def measure(spec: Spec, size: str = "full", repeats: int | None = None) -> Measurement:
    """Measure a spec and check every value that it gives.

    Parameters
    ----------
    spec
        What to measure.
    size
        ``"full"`` or ``"smoke"``; targets are about the full size only.
    repeats
        Repetitions instead of the spec's (one at smoke size).

    Raises
    ------
    AssertionError
        If a run gave a wrong value.
    ValueError
        If the size is unknown or there is nothing to repeat.
    """
    parameters = spec.parameters(size)
    count = repeats if repeats is not None else (spec.repeats if size == "full" else 1)
    if count < 1:
        raise ValueError(f"repeats must be at least 1, got {count}")
    if spec.warm and size == "full":
        state = spec.prepare(**parameters)
        spec.check(state, spec.run(state))
    samples = []
    for _ in range(count):
        state = spec.prepare(**parameters)
        gc.collect()
        amount, value = _peak_bytes(spec, state) if spec.unit == "bytes" else _seconds(spec, state)
        spec.check(state, value)
        samples.append(amount if spec.figure is None else spec.figure(value))
    median = statistics.median(samples)
    target = spec.target if size == "full" else None
    return Measurement(
        median,
        spec.unit,
        tuple(samples),
        None if target is None else target.limit,
        None if target is None else target.met(median),
        parameters,
    )


def _seconds(spec: Spec, state: Any) -> tuple[float, Any]:
    begin = time.perf_counter()
    value = spec.run(state)
    return time.perf_counter() - begin, value


def _peak_bytes(spec: Spec, state: Any) -> tuple[float, Any]:
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        value = spec.run(state)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not running:
            tracemalloc.stop()
    return float(peak - before), value
