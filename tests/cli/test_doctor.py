"""Tests of the doctor's findings."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from balance.cli import doctor


def _of(subject: str) -> doctor.Finding:
    return next(finding for finding in doctor.examine() if finding.subject == subject)


def test_core_packages_are_reported_with_versions() -> None:
    """Every dependency is named with what is installed."""
    assert _of("numpy").text == importlib.metadata.version("numpy")
    assert all(_of(name).state == "ok" for name in doctor.CORE)


def test_a_missing_package_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dependency that is not there is a fault with a remedy."""
    monkeypatch.setattr(doctor, "CORE", ("no-such-distribution",))
    finding = _of("no-such-distribution")
    assert (finding.state, "pip install" in finding.remedy) == ("wrong", True)


def test_a_rival_for_the_import_name_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another distribution that installs a package named balance is found and named."""
    monkeypatch.setattr(
        importlib.metadata,
        "packages_distributions",
        lambda: {"balance": ["dnn-balance", "balance"], "numpy": ["numpy"]},
    )
    finding = _of("import name")
    assert finding.state == "wrong"
    assert "pip uninstall balance" in finding.remedy


def test_no_rival(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own distribution is not a rival."""
    monkeypatch.setattr(importlib.metadata, "packages_distributions", lambda: {"balance": ["dnn-balance"]})
    assert _of("import name").state == "ok"


def test_rooms_are_there() -> None:
    """The linked rooms can be read from the package."""
    assert _of("rooms").state == "ok"


def test_a_cache_that_cannot_be_written_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba without a cache folder is a fault that names the variable."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/proc/no-such-folder")
    finding = _of("kernel cache")
    assert (finding.state, "NUMBA_CACHE_DIR" in finding.remedy) == ("wrong", True)


def test_workloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The variable for public workloads may be absent, right or wrong."""
    monkeypatch.delenv("DNN_BALANCE_WORKLOADS", raising=False)
    assert _of("workloads").state == "note"
    monkeypatch.setenv("DNN_BALANCE_WORKLOADS", str(tmp_path))
    assert _of("workloads").state == "ok"
    monkeypatch.setenv("DNN_BALANCE_WORKLOADS", str(tmp_path / "none"))
    assert _of("workloads").state == "wrong"
