"""Fence chaos: several servers on one store, stopped for longer than the lease, woken, killed, replaced.

Whoever wakes up finds that it lost its sessions: not one of its late writes may stand.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crash.ledger import Ledger, still_usable
from e2e.driver import Server, compatible
from fake.provider import FakeProvider, text
from soak.checks import check_store, killed
from soak.kills import SESSIONS, attach, check_refusals, submits
from soak.load import Model, make_workspace
from soak.place import Place

SERVERS = 3
LEASE_MS = 300
GATE_MS = 1_000
"""Some are stopped within the gate, some of those for longer than this: others then get a typed error."""

STOPPED_S = (1.2 * LEASE_MS / 1000, 1.5 * GATE_MS / 1000)

REFUSALS = {"no_active_turn", "queue_full", "session_owned", "store_unavailable", "lease_lost", "shutting_down"}


@dataclass
class Herd:
    """The servers of a round, and what was asked of each."""

    start: Callable[[], Server]
    ledger: Ledger
    chance: random.Random
    running: list[Server] = field(default_factory=list)
    stopped: list[tuple[float, Server]] = field(default_factory=list)
    """Since when, and who."""
    asked: dict[int, dict[int, tuple[str, str]]] = field(default_factory=dict)
    """By process id: the submits that were sent, by request id."""
    acts: int = 0
    stops: int = 0
    kills: int = 0

    def fill(self) -> None:
        """Start servers until there are enough."""
        while len(self.running) + len(self.stopped) < SERVERS:
            server = self.start()
            self.running.append(server)
            attach(server, self.ledger)

    def load(self) -> None:
        """Have one that runs do something."""
        server = self.chance.choice(self.running)
        self.acts += 1
        asked = submits(server, self.ledger, self.chance, f"k-{self.acts}")
        self.asked.setdefault(server.pid, {}).update(asked)
        if self.chance.random() < 0.3:
            session_id = self.chance.choice(sorted(self.ledger.sessions))
            server.send("turn/cancel", sessionId=session_id, queue="continue")

    def stop(self) -> None:
        """Stop one that runs; the others ask for its sessions when its lease is over."""
        server = self.running.pop(self.chance.randrange(len(self.running)))
        server.signal(signal.SIGSTOP)
        self.stopped.append((time.monotonic(), server))
        self.stops += 1
        time.sleep(self.chance.uniform(*STOPPED_S))
        for other in self.running:
            attach(other, self.ledger)

    def wake(self) -> None:
        """Let the one go on that was stopped first: its lease is over."""
        since, server = self.stopped.pop(0)
        time.sleep(max(0.0, since + STOPPED_S[0] - time.monotonic()))
        server.signal(signal.SIGCONT)
        self.running.append(server)

    def kill(self) -> None:
        """Kill one, stopped or not, and note what it had said."""
        everybody = [*self.running, *(server for _, server in self.stopped)]
        server = self.chance.choice(everybody)
        self.running = [other for other in self.running if other is not server]
        self.stopped = [(since, other) for since, other in self.stopped if other is not server]
        killed(server)
        self.kills += 1
        self.note(server)

    def note(self, server: Server) -> None:
        """Put down what a server has said."""
        check_refusals(server, REFUSALS)
        self.ledger.take(server, self.asked.get(server.pid, {}))

    def act(self) -> None:
        """One thing of those that can be done now."""
        self.fill()
        self.load()
        can = [self.kill]
        if len(self.running) > 1:
            can += [self.stop, self.stop]
        if self.stopped:
            can += [self.wake, self.wake]
        if self.chance.random() < 0.7:
            self.chance.choice(can)()
        else:
            time.sleep(self.chance.uniform(0, 0.2))

    def end(self) -> None:
        """All go on, end in good order, and are noted; whatever still stands is ended."""
        while self.stopped:
            self.wake()
        for server in self.running:
            assert server.stop() == 0, server.stderr[-2000:]
            server.check(receipts=False)  # the same submit goes to several of them
            assert "Traceback" not in server.stderr, server.stderr[-3000:]
            self.note(server)

    def close(self) -> None:
        """Nothing is left of them."""
        for server in [*self.running, *(server for _, server in self.stopped)]:
            server.kill()


def fence_chaos(place: Place) -> str:
    """A round: `place.size` acts on three servers, then the proof by one that saw none of it."""
    home, workspace = place.home(), make_workspace(place.directory)
    ledger = Ledger()
    with FakeProvider() as fake:
        fake.answer = Model(place.seed, slow=True)
        limits = {"HAMES_LIMIT_LEASE_MS": str(LEASE_MS), "HAMES_LIMIT_GATE_MS": str(GATE_MS)}
        env = compatible(fake.url, HAMES_LIMIT_CHUNK_MS="10", HAMES_LIMIT_STEPS="4", **limits)
        herd = Herd(lambda: Server(home, env=env), ledger, place.chance())
        try:
            herd.fill()
            for n in range(SESSIONS):  # each has some
                ledger.sessions.add(herd.running[n % SERVERS].create(workspace, f"s{n}"))
            for server in herd.running:
                attach(server, ledger)
            for _ in range(place.size):
                herd.act()
            herd.end()
        finally:
            herd.close()
        told = _prove(home, env, ledger, fake)
    check_store(home)
    return f"{herd.stops} stops, {herd.kills} kills: {told}"


def _prove(home: Path, env: dict[str, str], ledger: Ledger, fake: FakeProvider) -> str:
    fake.answer = lambda _body: text("yes")
    again = 0
    with Server(home, env=env) as server:
        events = ledger.prove(server)
        for session_id in sorted(ledger.sessions):
            again += len(server.events(session_id, "log.recovered"))
            still_usable(server, session_id)
    assert fake.refusals == []
    return f"{events} events, {len(ledger.answered)} answered, {again} recoveries"
