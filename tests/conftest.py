"""What all tests share: how many examples Hypothesis draws, where the public workloads are, what a marker means."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

PROFILE = os.environ.get("BALANCE_HYPOTHESIS_PROFILE", "ci")
WORKLOADS = "DNN_BALANCE_WORKLOADS"

# Time is no property: a busy machine must not fail a test, so there are no deadlines. `ci` draws the same examples
# every time; `soak` looks for new ones and prints how to draw a failing one again.
_PATIENT = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("dev", max_examples=30, deadline=None, suppress_health_check=_PATIENT)
settings.register_profile("ci", max_examples=200, deadline=None, derandomize=True, suppress_health_check=_PATIENT)
settings.register_profile("soak", max_examples=10_000, deadline=None, print_blob=True, suppress_health_check=_PATIENT)
settings.load_profile(PROFILE)


def pytest_report_header() -> list[str]:
    """Say what decides how much is tested."""
    return [
        f"hypothesis profile: {PROFILE} ({settings().max_examples} examples a property)",
        f"workloads: {os.environ.get(WORKLOADS) or f'none ({WORKLOADS} is not set)'}",
    ]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """Mark what nobody has to remember to mark, before ``-m`` selects."""
    without_cuda: str | None = None
    for item in items:
        if is_hypothesis_test(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.property)
        if "workloads" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.workloads)
        if item.get_closest_marker("gpu"):
            without_cuda = _why_no_cuda() if without_cuda is None else without_cuda
            if without_cuda:
                item.add_marker(pytest.mark.skip(reason=without_cuda))


def _why_no_cuda() -> str:
    try:
        import torch
    except ImportError:
        return "torch is not installed"
    return "" if torch.cuda.is_available() else "there is no CUDA device"


@pytest.fixture(scope="session")
def workloads() -> Path:
    """Folder of the public workloads; the test is skipped where there is none."""
    given = os.environ.get(WORKLOADS)
    if not given:
        pytest.skip(f"{WORKLOADS} is not set; it names the folder with the public workloads")
    folder = Path(given)
    if not folder.is_dir():
        pytest.fail(f"{WORKLOADS}={given} is not a folder")
    return folder
