"""Tests of how figures are measured and checked."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from balance.bench.discovery import find_spec, list_specs
from balance.bench.spec import Spec, Target, measure
from balance.problems.model.errors import OptionError


def _spec(**changes: Any) -> Spec:
    given: dict[str, Any] = {
        "name": "test/sum",
        "measures": "adding",
        "full": {"n": 1000},
        "smoke": {"n": 10},
        "prepare": lambda n: list(range(n)),
        "run": sum,
        "check": lambda state, value: None,
        **changes,
    }
    return Spec(**given)


def test_the_size_decides_the_arguments() -> None:
    """Smoke and full runs prepare their own size, and the row says which."""
    seen: list[int] = []
    spec = _spec(check=lambda state, value: seen.append(len(state)))
    assert measure(spec, "smoke").parameters == {"n": 10}
    assert measure(spec, "full", repeats=1).parameters == {"n": 1000}
    assert seen == [10, 1000, 1000]


def test_every_run_is_checked() -> None:
    """A wrong value ends the measurement, however fast it came."""

    def check(state: Any, value: Any) -> None:
        assert value == 0, "sum is wrong"

    with pytest.raises(AssertionError, match="sum is wrong"):
        measure(_spec(check=check), "smoke")


def test_seconds_are_wall_clock_of_the_run_alone() -> None:
    """Preparing and checking do not count."""
    spec = _spec(
        prepare=lambda n: time.sleep(0.05), run=lambda _: time.sleep(0.01), check=lambda state, value: time.sleep(0.05)
    )
    value = measure(spec, "smoke").value
    assert 0.01 <= value < 0.05


def test_bytes_are_the_peak_of_the_run() -> None:
    """A temporary array counts although nothing of it is left."""
    spec = _spec(unit="bytes", run=lambda _: float(np.ones(1_000_000).sum()))
    assert 8e6 <= measure(spec, "smoke").value < 9e6


def test_a_target_holds_at_full_size_only() -> None:
    """A quick run says nothing about the target."""
    spec = _spec(target=Target(10.0))
    assert measure(spec, "smoke").met is None
    assert measure(spec, "full").met is True
    assert measure(_spec(target=Target(0.0)), "full").met is False


def test_a_run_that_times_itself() -> None:
    """The figure comes out of the value when the spec says so."""
    spec = _spec(run=lambda _: {"seconds": 0.25}, figure=lambda value: float(value["seconds"]))
    assert measure(spec, "smoke").value == 0.25


def test_units_must_agree() -> None:
    """A target in another unit than the figure is a mistake in the spec."""
    with pytest.raises(ValueError, match="target is in bytes"):
        _spec(target=Target(1.0, "bytes"))


def test_there_is_something_to_repeat() -> None:
    """No repetitions have no median."""
    with pytest.raises(ValueError, match="repeats must be at least 1"):
        measure(_spec(), "smoke", repeats=0)
    with pytest.raises(ValueError, match="at least once"):
        _spec(repeats=0)


def test_specs_are_found_and_sorted() -> None:
    """Every module of bench/specs brings its specs, in order of name."""
    names = [spec.name for spec in list_specs()]
    assert names == sorted(names)
    assert {"package/import", "chain/bisection", "chain/counts", "model/cluster"} <= set(names)
    assert all(name.startswith("chain/") for name in (spec.name for spec in list_specs("chain/")))


def test_an_unknown_spec_names_the_nearest() -> None:
    """A typing error is answered with the name that was meant."""
    with pytest.raises(OptionError, match="chain/bisection"):
        find_spec("chain/bisecton")
