"""Both kinds of store, for the contract that they share."""

from __future__ import annotations

from pathlib import Path

import pytest

from store.play import World


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    """A world with no store in it yet."""
    return World(str(request.param), tmp_path / "store")


@pytest.fixture
def disk_world(tmp_path: Path) -> World:
    """The same, on disk only."""
    return World("sqlite", tmp_path / "store")
