"""What a group of figures works with: fresh directories, the model, servers and floors on them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import orjson

from hames.bench.driver import Peer, python
from hames.core.records import record

INITIALIZE: Mapping[str, Any] = {"protocolVersions": ["1"], "clientInfo": {"name": "hames-bench", "version": "1"}}


@record
class Place:
    """A store and a workspace of its own."""

    home: Path
    workspace: Path


class Bed:
    """A directory for everything, the model's port, and how thorough to be."""

    def __init__(self, directory: Path, port: int, *, short: bool) -> None:
        self.directory = directory
        self.short = short
        self._port = port
        self._numbers = count(1)

    def times(self, full: int, short: int) -> int:
        """How often to do something."""
        return short if self.short else full

    @property
    def model_url(self) -> str:
        """The model's base URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    def spent_ms(self) -> list[float]:
        """What the model took for each answer since the last look, in milliseconds."""
        return [seconds * 1000 for seconds in self._kept("/spent")]

    def request_bytes(self) -> list[float]:
        """How large each request to the model was since the last look."""
        return self._kept("/sizes")

    def _kept(self, path: str) -> list[float]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=30)
        try:
            connection.request("GET", path)
            figures: list[float] = orjson.loads(connection.getresponse().read())
        finally:
            connection.close()
        return figures

    def place(self) -> Place:
        """A new place, empty."""
        root = self.directory / str(next(self._numbers))
        place = Place(root / "home", root / "workspace")
        for path in (place.home, place.workspace):
            path.mkdir(parents=True, mode=0o700)
        return place

    def environment(self, place: Place) -> dict[str, str]:
        """For a server: ours, without settings of Hames, without proxies, and with compiled modules as installed."""
        names = {name for name in os.environ if name.startswith("HAMES_") or name.lower().endswith("_proxy")}
        names.add("PYTHONDONTWRITEBYTECODE")
        return {name: value for name, value in os.environ.items() if name not in names} | {
            "HAMES_HOME": str(place.home),
            "HAMES_CONFIG": str(place.home / "config.json"),
            "HAMES_MODEL": "compatible/text",
            "HAMES_COMPATIBLE_BASE_URL": self.model_url,
        }

    def spawn(self, place: Place, *arguments: str, settings: Mapping[str, str] | None = None) -> Peer:
        """This interpreter with `arguments`; `settings` are added to its environment."""
        errors = place.home.parent / "stderr"
        env = self.environment(place) | dict(settings or {})
        return Peer(python(*arguments), env=env, cwd=place.workspace, errors=errors)

    def serve(self, place: Place, settings: Mapping[str, str] | None = None) -> Peer:
        """`hames serve`, not spoken to yet."""
        return self.spawn(place, "-m", "hames", "serve", settings=settings)

    @contextmanager
    def server(
        self, place: Place | None = None, settings: Mapping[str, str] | None = None
    ) -> Iterator[tuple[Peer, Place]]:
        """A server that has answered `initialize`."""
        place = place or self.place()
        with self.serve(place, settings) as peer:
            peer.call("initialize", INITIALIZE)
            yield peer, place

    @contextmanager
    def prototype(self) -> Iterator[Peer]:
        """The floor of a server: see `prototype.py`."""
        place = self.place()
        with self.spawn(place, "-m", "hames.bench.prototype", self.model_url, str(place.home / "log")) as peer:
            yield peer


def session(peer: Peer, place: Place, script: str, *, session_id: str = "s") -> None:
    """Make a session whose model follows `script`, and subscribe to all of it."""
    params = {"workspace": str(place.workspace), "sessionId": session_id, "model": f"compatible/{script}"}
    peer.call("session/create", {**params, "subscribe": {"deltas": True}})


def submit(peer: Peer, session_id: str = "s") -> int:
    """Submit a turn; the id of the request."""
    return peer.send("turn/submit", {"sessionId": session_id, "input": [{"type": "text", "text": "go"}]})


@contextmanager
def stopwatch() -> Iterator[list[float]]:
    """A list that holds the milliseconds of the block once it has ended."""
    passed: list[float] = []
    started = perf_counter()
    yield passed
    passed.append((perf_counter() - started) * 1000)


def median(values: Sequence[float]) -> float:
    """The median; 0 for none."""
    return statistics.median(values) if values else 0.0
