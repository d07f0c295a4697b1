"""A full disk: what cannot be written is refused with a typed error, what was acknowledged stands, and it goes on."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from crash.ledger import Ledger, still_usable
from crash.waits import until_file
from e2e.driver import Server, compatible
from fake.provider import FakeProvider, text
from soak.checks import check_ended, check_store, killed
from soak.kills import ENVIRONMENT, attach, check_refusals, make_sessions, submits
from soak.load import Model, make_workspace
from soak.place import Place
from soak.room import filled, no_room, some_room

SHORT = {"store_full", "store_unavailable"}
"""How a server says that there is no room."""

REFUSALS = {*SHORT, "no_active_turn", "queue_full", "session_owned", "lease_lost", "shutting_down"}

MOST_SUBMITS = 60
"""Of 200 kB each, until there is none."""

LEFT_BYTES = (0, 4_096, 20_000, 100_000)
"""Of a file system that is really full: nothing, a page, some commits."""

Scarcity = Callable[[Server, random.Random], AbstractContextManager[None]]
"""Takes the room of a server away."""


@dataclass
class Shortage:
    """A server that runs out of room again and again, and at times is killed while it has none."""

    start: Callable[[], Server]
    scarce: Scarcity
    ledger: Ledger
    chance: random.Random
    server: Server
    asked: dict[int, tuple[str, str]] = field(default_factory=dict)
    episodes: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    def episode(self) -> None:
        """Load, no room for a while, room again."""
        self.episodes += 1
        self._load("with room")
        with self.scarce(self.server, self.chance):
            self._load("without")
            self._run_out()
            assert self.server.call("ping") == {}
            if self.chance.random() < 0.2:
                self.replace()
                self._load("begun without")
                assert self.server.call("ping") == {}

    def _load(self, when: str) -> None:
        attach(self.server, self.ledger)
        self.asked |= submits(self.server, self.ledger, self.chance, f"k-{self.episodes}-{when}")
        frames = len(self.server.frames) + self.chance.randrange(60)
        with contextlib.suppress(AssertionError):  # nothing more comes
            self.server.wait_until(lambda: len(self.server.frames) >= frames, timeout=0.3)

    def _run_out(self) -> None:
        """Submit until there is no room, or it seems that what there is will do: a WAL begins anew at times."""
        session_id = self.chance.choice(sorted(self.ledger.sessions))
        for n in range(MOST_SUBMITS):
            key = f"k-{self.episodes}-large-{n}"
            sent = self.ledger.submit(self.server, session_id, f"text of {key} " * 10_000, key)
            self.asked[sent] = (session_id, key)
            error = self.server.answer(sent).get("error")
            if error is not None and error["data"]["kind"] in SHORT:
                return

    def replace(self) -> None:
        """Kill it; another one goes on."""
        killed(self.server)
        self.note()
        self.server = self.start()

    def note(self) -> None:
        """Put down what it has said."""
        self.refused.update(check_refusals(self.server, REFUSALS))
        self.ledger.take(self.server, self.asked)
        self.asked = {}

    def end(self) -> None:
        """It ends in good order."""
        assert self.server.stop() == 0, self.server.stderr[-2000:]
        check_ended(self.server, 0)
        self.server.check()
        self.note()


def full_disk(place: Place) -> str:
    """A round: `place.size` times no file may grow."""

    def scarce(server: Server, chance: random.Random) -> AbstractContextManager[None]:
        return no_room(server, some_room(server, chance))

    return run_out(place, place.home(), scarce)


def full_file_system(place: Place, mount: Path) -> str:
    """A round: `place.size` times the file system that the store lies on is really full."""

    def scarce(_server: Server, chance: random.Random) -> AbstractContextManager[None]:
        return filled(mount, chance.choice(LEFT_BYTES))

    home = mount / "home"
    home.mkdir()
    told = run_out(place, home, scarce)
    remove_without_room(place, home, mount)
    return told


def remove_without_room(place: Place, home: Path, mount: Path) -> None:
    """Who frees the room that is missing needs none."""
    workspace = make_workspace(place.directory)
    with Server(home) as server:
        server.call("session/create", workspace=str(workspace), sessionId="removed", model="offline")
        script = [{"type": "text", "text": f"say {'x' * 300_000}"}]
        turn = server.call("turn/submit", sessionId="removed", input=script)["turn"]
        server.call("turn/wait", sessionId="removed", turnId=turn["turnId"])
        until_file(server.home / "store/ballast")
        with filled(mount, 0):
            server.call("session/delete", sessionId="removed")


def run_out(place: Place, home: Path, scarce: Scarcity) -> str:
    """Run out of room `place.size` times, then prove that nothing was lost."""
    workspace, ledger = make_workspace(place.directory), Ledger()
    with FakeProvider() as fake:
        fake.answer = Model(place.seed, large=True)
        env = compatible(fake.url, **ENVIRONMENT)
        start = partial(Server, home, env=env)
        shortage = Shortage(start, scarce, ledger, place.chance(), start())
        try:
            make_sessions(shortage.server, ledger, workspace)
            for _ in range(place.size):
                shortage.episode()
            shortage.end()
        finally:
            shortage.server.kill()
        fake.answer = lambda _body: text("yes")
        with start() as server:
            events = ledger.prove(server)
            for session_id in sorted(ledger.sessions):
                still_usable(server, session_id)
        assert fake.refusals == []
    check_store(home)
    short = sum(shortage.refused[kind] for kind in SHORT)
    assert short, "it ran out of room"
    return f"{events} events, {len(ledger.answered)} answered, {short} refused for want of room"
