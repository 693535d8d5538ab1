"""Small files of the project's own for the format tests."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def small() -> Path:
    """Return the folder of hand-written files, one for each format."""
    return Path(__file__).parent.parent / "data" / "formats"
