"""`kill -9` at any point of a server's life under load: nothing acknowledged is lost, nothing is done twice."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

from crash.ledger import Ledger, still_usable
from e2e.driver import Server, compatible
from fake.provider import FakeProvider, text
from soak.checks import check_store, killed
from soak.load import Model, make_workspace
from soak.place import Place

SESSIONS = 5
START_S = 0.5
"""About what a server takes to start: some are killed while they do, the others once they have said something."""

ENVIRONMENT = {"HAMES_LIMIT_CHUNK_MS": "10", "HAMES_LIMIT_STEPS": "4"}


def kills(place: Place) -> str:
    """A round: `place.size` lives of servers on one store."""
    chance, home, workspace = place.chance(), place.home(), make_workspace(place.directory)
    ledger = Ledger()
    with FakeProvider() as fake:
        fake.answer = Model(place.seed)
        env = compatible(fake.url, **ENVIRONMENT)
        with Server(home, env=env) as server:
            make_sessions(server, ledger, workspace)
        following = Server(home, env=env, initialize=False)
        for life in range(place.size):
            server, following = following, Server(home, env=env, initialize=False)  # it starts while this one lives
            one_life(server, ledger, chance, life)
        following.kill()
        fake.answer = lambda _body: text("yes")
        with Server(home, env=env) as server:
            events = ledger.prove(server)
            for session_id in ledger.sessions:
                still_usable(server, session_id)
        assert fake.refusals == []
    assert len(ledger.answered) > place.size, "they were killed under load"
    check_store(home)
    return f"{events} events, {len(ledger.sent)} submits, {len(ledger.answered)} answered"


def make_sessions(server: Server, ledger: Ledger, workspace: Path) -> None:
    """The sessions of a round."""
    for n in range(SESSIONS):
        ledger.sessions.add(server.create(workspace, f"s{n}"))


def one_life(server: Server, ledger: Ledger, chance: random.Random, life: int) -> None:
    """Attach to everything, pipeline submits, be killed at a random moment, note what was said."""
    asked: dict[int, tuple[str, str]] = {}
    try:
        server.send("initialize", protocolVersions=["1"], clientInfo={"name": "killer", "version": "1"})
        attach(server, ledger)
        asked = submits(server, ledger, chance, f"k-{life}")
        if chance.random() < 0.3:
            server.send("turn/cancel", sessionId=chance.choice(sorted(ledger.sessions)), queue="continue")
        if chance.random() < 0.2:
            time.sleep(chance.uniform(0, START_S))
        else:
            last = max(asked) if chance.random() < 0.5 else 1  # a slow machine is loaded too
            server.wait_until(lambda: server.answered(last), what="an answer")
            frames = len(server.frames) + chance.randrange(80)
            with contextlib.suppress(AssertionError):  # everything has come to its end before
                server.wait_until(lambda: len(server.frames) >= frames, timeout=1)
    finally:
        server.kill()
    killed(server)
    check_refusals(server, {"no_active_turn", "queue_full", "session_owned"})
    ledger.take(server, asked)


def attach(server: Server, ledger: Ledger) -> None:
    """Take every session, and follow it from where the ledger has it; wait for nothing."""
    for session_id in sorted(ledger.sessions):
        cursor = ledger.last_cursor(session_id)
        subscribe = {} if cursor is None else {"after": cursor}
        server.send("session/resume", sessionId=session_id, subscribe=subscribe)


def submits(server: Server, ledger: Ledger, chance: random.Random, key: str) -> dict[int, tuple[str, str]]:
    """Send again what nobody answered, and something new; by request id, what was sent."""
    asked: dict[int, tuple[str, str]] = {}
    for session_id, old in [place for place in ledger.sent if place not in ledger.answered][:3]:
        asked[ledger.submit(server, session_id, ledger.sent[session_id, old], old)] = (session_id, old)
    for n in range(3):
        session_id, new = chance.choice(sorted(ledger.sessions)), f"{key}-{n}"
        asked[ledger.submit(server, session_id, f"text of {new}", new)] = (session_id, new)
    return asked


def check_refusals(server: Server, allowed: set[str]) -> list[str]:
    """Whatever it refused, it refused for one of these reasons; the reason of each."""
    errors = [value["error"] for frame in server.frames for value in frame.responses if "error" in value]
    kinds = [error.get("data", {}).get("kind", str(error["code"])) for error in errors]
    assert set(kinds) <= allowed, [error for error, kind in zip(errors, kinds, strict=True) if kind not in allowed][:3]
    return kinds
