"""Every wait of a turn, ended in every way: the right terminal, and nothing is left of what was waited for.

How long that takes is measured by `hames bench --only waits`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from e2e.checks import TERMINALS
from e2e.driver import Server, alive, compatible
from e2e.fixtures import Start
from e2e.processes import connections
from fake.answers import Answer
from fake.provider import FakeProvider, calls, last_user_text, never, partial, stall, status, text

SYN_SENT = "02"
WORDS = "word " * 700
TOOL = "trap '' TERM; setsid sleep 1000 & echo $$ $! > .pids; mv .pids pids; sleep 1000"
"""A command that is deaf, with a daemon that left its group."""

WALL_MS = 2_500
"""Time to come to the wait, on a busy machine too; a turn waits no longer."""


@contextmanager
def full_backlog() -> Iterator[int]:
    """A port of 127.0.0.1 that listens, and where no further connection is made."""
    with ExitStack() as sockets:
        listener = sockets.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):  # then a further SYN is not answered
            client = sockets.enter_context(socket.socket())
            client.setblocking(False)
            client.connect_ex(listener.getsockname())
        yield listener.getsockname()[1]


@dataclass
class Waiting:
    """A turn in a wait. `gone` blocks until nothing is left of what it waited for."""

    server: Server
    session_id: str
    turn_id: str
    gone: Callable[[], None]

    def terminal(self) -> dict[str, Any]:
        """The turn's terminal event, which is its only one."""
        self.server.wait_until(lambda: bool(self._terminals()), what="a terminal event")
        (event,) = self._terminals()
        return event

    def _terminals(self) -> list[dict[str, Any]]:
        found = self.server.events(self.session_id)
        return [event for event in found if event["type"] in TERMINALS and event["turnId"] == self.turn_id]


@dataclass
class Stage:
    """What a wait is played on; `limits` are those of the turn."""

    start: Start
    workspace: Path
    fake: FakeProvider
    resources: ExitStack
    limits: dict[str, int]

    def begin(self, server: Server, session_id: str, gone: Callable[[], None]) -> Waiting:
        turn_id = server.submit(session_id, WORDS, limits=self.limits)
        return Waiting(server, session_id, turn_id, gone)

    def asking(self, answer: Answer) -> Waiting:
        """A turn whose model was asked, and answers so."""
        self.fake.script(answer)
        server = self.start()
        waiting = self.begin(server, server.create(self.workspace), lambda: self.fake.wait_for_disconnects(1))
        self.fake.wait_for_requests(1)
        return waiting


def connect(stage: Stage) -> Waiting:
    port = stage.resources.enter_context(full_backlog())
    server = stage.start(env=compatible(f"http://127.0.0.1:{port}/v1"))

    def gone() -> None:
        server.poll_until(lambda: connections(server.pid, port) == [], what="no socket to the provider is left")

    waiting = stage.begin(server, server.create(stage.workspace), gone)
    server.poll_until(lambda: connections(server.pid, port) == [SYN_SENT], what="it connects")
    return waiting


def first_byte(stage: Stage) -> Waiting:
    return stage.asking(never())


def mid_answer(stage: Stage) -> Waiting:
    waiting = stage.asking(partial("half a text") + stall())
    waiting.server.wait_for(lambda frame: b'"method":"delta"' in frame.raw)
    return waiting


def retry_sleep(stage: Stage) -> Waiting:
    waiting = stage.asking(status(503, "busy", {"retry-after": "60"}))
    waiting.server.wait_event("model.retried")
    waiting.gone = lambda: None  # what is left of the wait would ask again: see the number of requests at the end
    return waiting


def compaction(stage: Stage) -> Waiting:
    stage.fake.on(lambda body: "is to be replaced by a summary" in last_user_text(body), stall(), text("All is said."))
    server = stage.start()
    session_id = server.create(stage.workspace)
    for _ in range(4):
        assert server.finish(session_id, server.submit(session_id, WORDS))["status"] == "completed"
    server.call("session/compact", sessionId=session_id)
    waiting = stage.begin(server, session_id, lambda: stage.fake.wait_for_disconnects(1))
    stage.fake.wait_for_requests(5)
    return waiting


def tool(stage: Stage) -> Waiting:
    stage.fake.script(calls([("bash", {"command": TOOL})]))
    server = stage.start()

    def gone() -> None:
        # The terminal comes behind the proof, so there is nothing to wait for.
        assert not any(alive(pid) for pid in map(int, pids.read_text().split()))

    pids = stage.workspace / "pids"
    waiting = stage.begin(server, server.create(stage.workspace), gone)
    server.poll_until(pids.exists, what="the command and its daemon run")
    return waiting


WAITS = [connect, first_byte, mid_answer, retry_sleep, compaction, tool]


@pytest.fixture(params=WAITS, ids=lambda wait: wait.__name__)
def wait(
    request: pytest.FixtureRequest, start: Start, workspace: Path, fake: FakeProvider
) -> Iterator[Callable[..., Waiting]]:
    """Begins a turn with these limits and comes back once it waits."""
    with ExitStack() as resources:
        yield lambda **limits: request.param(Stage(start, workspace, fake, resources, limits))


def nothing_more_is_asked(waiting: Waiting, fake: FakeProvider) -> None:
    """The session goes on, and what was waited for had no consequence: whatever is asked is of the next turn."""
    if not fake.requests:
        return  # the provider of this wait is never reached
    server, before = waiting.server, len(fake.requests)
    fake.answer = lambda _: text("went on")
    turn = server.finish(waiting.session_id, server.submit(waiting.session_id, "go on"))
    assert turn["outcome"] == {"status": "completed", "text": "went on"}
    asked = server.events(waiting.session_id, "model.requested")
    assert len([event for event in asked if event["turnId"] == turn["turnId"]]) == len(fake.requests) - before


def test_a_cancel_ends_a_turn_in_every_wait(wait: Callable[..., Waiting], fake: FakeProvider) -> None:
    waiting = wait()

    waiting.server.call("turn/cancel", sessionId=waiting.session_id, turnId=waiting.turn_id)

    event = waiting.terminal()
    assert (event["type"], event["data"]["cause"]) == ("turn.cancelled", "client")
    assert "forced" not in event["data"]
    waiting.gone()
    nothing_more_is_asked(waiting, fake)


@pytest.mark.slow
def test_the_wall_time_of_a_turn_ends_it_in_every_wait(wait: Callable[..., Waiting], fake: FakeProvider) -> None:
    waiting = wait(wallTimeMs=WALL_MS)

    event = waiting.terminal()
    assert event["type"] == "turn.failed"
    error = event["data"]["error"]
    assert (error["kind"], error["details"]["limit"]) == ("limit_exceeded", "wallTimeMs")
    assert "forced" not in event["data"]
    waiting.gone()
    nothing_more_is_asked(waiting, fake)


def test_a_shutdown_ends_a_turn_in_every_wait_and_then_the_process(
    wait: Callable[..., Waiting], fake: FakeProvider
) -> None:
    waiting = wait()
    asked = len(fake.requests)

    waiting.server.call("shutdown")

    event = waiting.terminal()
    assert (event["type"], event["data"]["cause"]) == ("turn.cancelled", "shutdown")
    waiting.gone()
    assert waiting.server.wait() == 0
    assert len(fake.requests) == asked


def test_a_request_that_waits_for_a_turn_is_cancelled_alone_in_every_wait(wait: Callable[..., Waiting]) -> None:
    waiting = wait()
    server, names = waiting.server, {"sessionId": waiting.session_id, "turnId": waiting.turn_id}
    asked = server.send("turn/wait", **names)

    server.notify("$/cancelRequest", id=asked)

    assert server.answer(asked)["error"]["code"] == -32800
    assert server.call("turn/get", **names)["turn"]["status"] == "running"
    server.call("turn/cancel", **names)
    assert waiting.terminal()["type"] == "turn.cancelled"
    waiting.gone()


@pytest.mark.parametrize("answer", [never(), stall()], ids=["first_byte", "mid_answer"])
def test_a_cancelled_listing_of_models_closes_its_connection(start: Start, fake: FakeProvider, answer: Answer) -> None:
    fake.listing = answer
    server = start()
    asked = server.send("models/list")
    server.poll_until(lambda: fake.connections == 1, what="the provider is asked")

    server.notify("$/cancelRequest", id=asked)

    assert server.answer(asked)["error"]["code"] == -32800
    port = int(fake.url.rsplit(":", 1)[1].partition("/")[0])
    server.poll_until(lambda: connections(server.pid, port) == [], what="no socket to the provider is left")


def test_a_listing_of_models_is_cancelled_while_it_connects(start: Start) -> None:
    with full_backlog() as port:
        server = start(env=compatible(f"http://127.0.0.1:{port}/v1"))
        asked = server.send("models/list")
        server.poll_until(lambda: connections(server.pid, port) == [SYN_SENT], what="it connects")

        server.notify("$/cancelRequest", id=asked)

        assert server.answer(asked)["error"]["code"] == -32800
        server.poll_until(lambda: connections(server.pid, port) == [], what="no socket to the provider is left")
