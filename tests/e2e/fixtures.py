"""Fixtures of tests that drive spawned servers; a `conftest.py` imports those it gives out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server, compatible
from fake.provider import FakeProvider

Start = Callable[..., Server]


@pytest.fixture
def fake() -> Iterator[FakeProvider]:
    """A model; the test fails if it had to refuse a request."""
    with FakeProvider() as provider:
        yield provider
        assert provider.refusals == []


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where servers of this test keep their store: several on it are several processes of one user."""
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "workspace"
    path.mkdir()
    return path


@pytest.fixture
def start(home: Path, fake: FakeProvider, request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts servers on `home` whose model is `fake`; those still there at the end must end well."""
    with ExitStack() as servers:

        def begin(*, env: dict[str, str | None] | None = None, home: Path = home, **options: Any) -> Server:
            server = Server(home, env={**compatible(fake.url), **(env or {})}, **options)
            servers.callback(server.kill)
            begun.append(server)
            return server

        begun: list[Server] = []
        yield begin
        for server in begun:
            if server.process.poll() is None:
                assert server.stop() == 0, server.stderr[-2000:]
            server.check()


@pytest.fixture
def server(start: Start) -> Server:
    """One server, initialized."""
    return start()


@dataclass(frozen=True)
class Shared:
    """One server for the tests of a module that leave it as they found it; each uses sessions of its own."""

    server: Server
    fake: FakeProvider
    workspace: Path
    home: Path


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A server and a model for a module; all frames are checked at its end."""
    home, workspace = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("workspace")
    with FakeProvider() as fake, Server(home, env={**compatible(fake.url)}) as server:
        yield Shared(server, fake, workspace, home)
    assert fake.refusals == []


def of_shared(name: str) -> Any:
    """A module's fixture of this name that is a part of `shared`, in place of one of its own for each test."""

    def part(shared: Shared) -> Any:
        return getattr(shared, name)

    return pytest.fixture(scope="module")(part)
