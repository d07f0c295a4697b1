"""A home and a workspace for servers within the test's own process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.fixtures import home, workspace
from e2e.processes import environment

__all__ = ["home", "workspace"]


@pytest.fixture
def environ(home: Path) -> Mapping[str, str]:
    """What points to the store and the configuration below `home`, and to no model."""
    return environment(home)
