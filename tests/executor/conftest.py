"""Fixtures for the executor's tests: processes that stay for the whole session, since starting them takes seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the executor needs torch")

from balance.executor import Ranks

# Spawned ranks inherit the path, so that they can import `unusual`, whose classes are sent to them.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def one_rank() -> Iterator[Ranks]:
    """One process."""
    with Ranks(1) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def two_ranks() -> Iterator[Ranks]:
    """Two processes."""
    with Ranks(2) as ranks:
        yield ranks


@pytest.fixture(scope="session")
def three_ranks() -> Iterator[Ranks]:
    """Three processes."""
    with Ranks(3) as ranks:
        yield ranks
