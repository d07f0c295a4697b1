from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import Cli
from e2e.fixtures import fake, home, workspace

__all__ = ["fake", "home", "workspace"]


@pytest.fixture
def hames(home: Path, workspace: Path) -> Iterator[Cli]:
    """The command line, on a store of its own."""
    cli = Cli(home, workspace)
    yield cli
    cli.end()
