"""A client that stops reading, or reads slowly: it costs no memory, loses nothing, and holds up nothing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from e2e.checks import TERMINALS, begins
from e2e.driver import TIMEOUT_S, Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, delta_text, deltas, last_user_text, partial, stall, text

DELTAS = 50_000
pytestmark = pytest.mark.slow

ALLOWED_BYTES = 20_000_000
"""What memory may grow by; the previews alone that are dropped would be more than half of it."""


def test_client_that_stops_reading_loses_nothing_and_holds_nothing_up(
    start: Start, server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(
        calls([("bash", {"command": "echo warm"})]),
        text("warm"),
        deltas(DELTAS, 20)[:1] + calls([("bash", {"command": "seq 20000; echo end"})]),
        text("final"),
    )
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    observer = start()
    before = server.reset_peak()

    server.pause_reading()
    server.send("turn/submit", sessionId=session_id, turnId="t2", input=[{"type": "text", "text": "go"}])
    fake.wait_for_requests(3)
    waited = observer.call("turn/wait", sessionId=session_id, turnId="t2", timeoutMs=30_000)

    assert (waited["why"], waited["turn"]["outcome"]["text"]) == ("ended", "final")
    assert server.bytes_out < 400_000, "the client has read nothing of it"
    assert server.peak_bytes() - before < ALLOWED_BYTES
    server.resume_reading()
    server.wait_event("turn.completed", text="final")
    stored = observer.log(session_id)
    assert server.notifications("event") == [
        {"subscriptionId": server.notifications("event")[0]["subscriptionId"], **entry} for entry in stored
    ]
    events = [entry["event"] for entry in stored if entry["event"].get("turnId") == "t2"]
    assert [event["type"] for event in events if event["type"] in TERMINALS] == ["turn.completed"]
    said = [event["data"]["text"] for event in events if event["type"] == "message.completed"]
    whole = delta_text(DELTAS, 20).encode()
    assert begins(said[0], whole)
    assert said[1:] == ["final"]
    chunks = [event["data"] for event in events if event["type"] == "message.chunk"]
    assert whole.startswith("".join(chunk["text"] for chunk in chunks).encode())
    assert server.call("ping") == {}


def test_cancel_takes_effect_while_the_client_does_not_read(
    start: Start, server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(deltas(20_000, 20)[:1] + stall())
    session_id = server.create(workspace)
    observer = start()
    server.pause_reading()
    server.send("turn/submit", sessionId=session_id, turnId="t1", input=[{"type": "text", "text": "go"}])
    fake.wait_for_requests(1)

    cancel = server.send("turn/cancel", sessionId=session_id, turnId="t1")
    fake.wait_for_disconnects(1)
    waited = observer.call("turn/wait", sessionId=session_id, turnId="t1", timeoutMs=30_000)

    assert (waited["why"], waited["turn"]["status"]) == ("ended", "cancelled")
    server.resume_reading()
    assert server.answer(cancel)["result"]["turn"]["turnId"] == "t1"
    server.wait_event("turn.cancelled")


def test_requests_whose_answers_nobody_reads_cost_bounded_memory(server: Server, workspace: Path) -> None:
    """Answers wait in the server up to a bound; then it stops reading requests, and goes on when it is read."""
    server.create(workspace, "s1", title="é" * 500)
    before = server.reset_peak()
    server.pause_reading()
    requests = b"".join(
        server.request("session/get", sessionId="s1", _meta={"pad": "x" * 16_000}) for _ in range(4_000)
    )
    writer = threading.Thread(target=server.write, args=(requests,))

    writer.start()
    quiet_cpu(server)
    grown = server.peak_bytes() - before
    server.resume_reading()
    writer.join(TIMEOUT_S)

    for identifier in server.sent:
        assert "result" in server.answer(identifier)
    assert grown < 48 * 2**20


def quiet_cpu(server: Server) -> None:
    """Wait until the server uses no processor: it does nothing but wait for its reader."""
    last: list[int] = []

    def quiet() -> bool:
        ticks = sum(map(int, Path(f"/proc/{server.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
        last.append(ticks)
        return len(last) > 10 and last[-10] == ticks

    server.poll_until(quiet, what="the server waits")


def test_slow_reader_gets_whole_frames_in_order_while_turns_are_cancelled(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.on(lambda body: last_user_text(body) == "cancel", *[partial("x" * 2_000, chunks=200) + stall()] * 5)
    fake.answer = lambda _: text("y" * 2_000, chunks=200)
    sessions = [server.create(workspace, f"s{n}") for n in range(10)]
    server.read_bytes = 512

    for n, session_id in enumerate(sessions):
        server.send(
            "turn/submit",
            sessionId=session_id,
            turnId="t",
            input=[{"type": "text", "text": "cancel" if n % 2 else "end"}],
        )
    fake.wait_for_requests(10)
    for session_id in sessions[1::2]:
        server.send("turn/cancel", sessionId=session_id, turnId="t")

    for n, session_id in enumerate(sessions):
        assert server.finish(session_id, "t")["status"] == ("cancelled" if n % 2 else "completed")
        seqs = [event["seq"] for event in server.events(session_id)]
        assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.slow
def test_pages_that_nobody_reads_cost_bounded_memory(server: Server, workspace: Path, fake: FakeProvider) -> None:
    """However many reads and subscriptions are asked for: a few pages are held at a time."""
    fake.script(text("x" * 300_000))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    before = server.reset_peak()
    server.pause_reading()
    asked = [server.request("events/read", sessionId=session_id) for _ in range(200)]
    asked += [server.request("session/get", sessionId=session_id, view=True) for _ in range(100)]
    asked += [server.request("events/subscribe", sessionId=session_id) for _ in range(100)]
    writer = threading.Thread(target=server.write, args=(b"".join(asked),))

    writer.start()
    quiet_cpu(server)
    grown = server.peak_bytes() - before
    server.resume_reading()
    writer.join(TIMEOUT_S)

    for identifier in server.sent:
        assert "result" in server.answer(identifier)
    assert grown < 48 * 2**20
