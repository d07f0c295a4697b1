from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.command import SCRIPT, Cli
from e2e.fixtures import fake, home, start, workspace

__all__ = ["fake", "home", "start", "workspace"]


@pytest.fixture
def hames(home: Path, workspace: Path) -> Iterator[Cli]:
    """The command line, on a store of its own."""
    cli = Cli(home, workspace)
    yield cli
    cli.end()


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cli]:
    """The command line on a store where `SCRIPT` was run as session `s1`, for the tests of a module that only look."""
    home, workspace = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("workspace")
    cli = Cli(home, workspace)
    assert cli("run", "--id", "s1", "--title", "a title", SCRIPT).code == 0
    yield cli
    cli.end()
