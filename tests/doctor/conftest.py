"""The fixtures of `e2e.fixtures`, the command line, and installations to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.command import Cli
from e2e.fixtures import fake, home, start, workspace
from e2e.processes import environment
from hames.doctor.case import Case, case_of

__all__ = ["fake", "home", "start", "workspace"]

MakeCase = Callable[..., Case]


@pytest.fixture
def hames(home: Path, workspace: Path) -> Iterator[Cli]:
    """The command line, on a store of its own."""
    cli = Cli(home, workspace)
    yield cli
    cli.end()


@pytest.fixture
def case(home: Path) -> MakeCase:
    """Makes the installation whose store is in `home`, as that of a spawned server is."""

    def make(**variables: str) -> Case:
        return case_of({**environment(home), **variables})

    return make
