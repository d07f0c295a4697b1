"""The run that gives an example of every error: of each kind, and of the standard codes."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from docs.book import Book
from docs.story import CLIENT, SLOW
from e2e.driver import Server, said
from fake.provider import FakeProvider, calls, finish, partial, status, text, wait_for

Start = Callable[..., Server]

NOT_RAISED = {
    "internal": "No request is known that brings it about.",
}
"""Kinds without an example, and why."""

ONCE = {"HAMES_LIMIT_RETRIES": "0"}


def tell(book: Book, start: Start, fake: FakeProvider, home: Path, workspace: Path) -> None:
    """Play everything."""
    handshake(book, start)
    server = start(env=ONCE)
    codes(book, server)
    sessions(book, server, workspace)
    turns(book, server, fake, workspace)
    cursors_and_references(book, server)
    models(book, server, fake, workspace)
    keys(book, start, workspace)
    limits(book, start, fake, workspace)
    owners(book, start, fake, workspace)
    stopping(book, start, fake, workspace)
    full(book, start, home, workspace)
    damage(book, start, fake, home, workspace)
    for kind, why in NOT_RAISED.items():
        book.told(kind, why)


def handshake(book: Book, start: Start) -> None:
    server = start(initialize=False, env={"HAMES_LIMIT_FRAME_IN_BYTES": "1024"})
    book.refused(server, "not_initialized", "The first request is not `initialize`.", "session/list")
    book.refused(
        server,
        "unsupported_protocol",
        "A client of another time.",
        "initialize",
        protocolVersions=["99"],
        clientInfo=CLIENT,
    )
    start_at = len(server.frames)
    server.write(b" " * 2_000 + b"\n")
    answer = server.wait_for(lambda frame: "error" in frame.value, start=start_at).value
    book.frame_refused("frame_too_large", "A line of 2,000 bytes, where `limits.frameInBytes` is 1,024.", answer)


def codes(book: Book, server: Server) -> None:
    book.wrong(server, "{nonsense", -32700)
    book.wrong(server, '{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', -32600)
    book.wrong(server, '{"jsonrpc": "2.0", "id": "a", "method": "session/fly"}', -32601)
    book.wrong(server, '{"jsonrpc": "2.0", "id": "b", "method": "session/get", "params": {"sessionid": "s1"}}', -32602)
    created = server.call("session/create", workspace=str(server.home), sessionId="waits")
    sent = {
        "jsonrpc": "2.0",
        "id": "c",
        "method": "events/read",
        "params": {"sessionId": "waits", "after": created["cursor"], "waitMs": 60_000},
    }
    book.cancelled(server, sent)


def sessions(book: Book, server: Server, workspace: Path) -> None:
    place = str(workspace)
    book.refused(server, "session_not_found", "A typing error, or another store.", "session/get", sessionId="nobody")
    server.call("session/create", workspace=place, sessionId="e1", idempotencyKey="5e1d")
    book.refused(server, "session_exists", "The id is taken.", "session/create", workspace=place, sessionId="e1")
    book.refused(
        server,
        "idempotency_conflict",
        "The key stands for a session without a title.",
        "session/create",
        workspace=place,
        sessionId="e1",
        title="Another",
        idempotencyKey="5e1d",
    )
    book.refused(
        server, "invalid_config", "The workspace is not there.", "session/create", workspace=f"{place}/nowhere"
    )
    book.refused(
        server,
        "path_outside_mounts",
        "Tools may start within the workspace only.",
        "session/create",
        workspace=place,
        cwd="..",
    )
    book.refused(
        server,
        "containment_unavailable",
        "Commands without network, in a sandbox that cannot take it away.",
        "session/create",
        workspace=place,
        sandbox="local",
        network="disabled",
    )
    book.refused(
        server,
        "authority_mismatch",
        "The client thinks of another directory.",
        "session/resume",
        sessionId="e1",
        expect={"workspace": "/srv/other"},
    )
    book.refused(server, "capability_unavailable", "There is no such provider.", "models/list", provider="abacus")
    server.call("session/create", workspace=place, sessionId="e2")
    server.call("session/close", sessionId="e2")
    book.refused(server, "session_closed", "It was closed.", "turn/submit", sessionId="e2", input=said("Hello."))


def turns(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    book.refused(server, "no_active_turn", "Nothing runs.", "turn/cancel", sessionId="e1")
    book.refused(server, "turn_not_found", "A typing error.", "turn/get", sessionId="e1", turnId="t9")
    fake.script(calls([("bash", {"command": SLOW})]), status(400, {"error": {"message": "No."}}))
    server.create(workspace, "e3")
    server.submit("e3", "Run the tests.", turnId="t1")
    server.wait_event("tool.started", session_id="e3")
    one = {"sessionId": "e3", "turnId": "t1"}
    hello = said("Hello.")
    book.refused(server, "turn_exists", "The id is taken.", "turn/submit", **one, input=hello)
    book.refused(server, "turn_started", "It runs already.", "turn/update", **one, input=hello)
    book.refused(
        server, "turn_mismatch", "It runs no more.", "turn/steer", sessionId="e3", expectedTurnId="t0", input=hello
    )
    book.refused(
        server,
        "session_busy",
        "The client would rather not wait.",
        "turn/submit",
        sessionId="e3",
        delivery="reject",
        input=hello,
    )
    server.submit("e3", "And the linter.", turnId="t2", delivery="join")
    (workspace / "go").touch()
    server.wait_event("turn.joined")
    server.finish("e3", "t1")
    (workspace / "go").unlink()
    book.outcome(server, "host_failed", "The turn that it joined failed.", "e3", "t2")
    fake.script(calls([("bash", {"command": SLOW})]), partial("Both ") + wait_for("joined") + finish())
    server.create(workspace, "e4")
    server.submit("e4", "Run the tests.", turnId="t1")
    server.wait_event("tool.started", session_id="e4")
    server.submit("e4", "And the linter.", turnId="t2", delivery="join")
    (workspace / "go").touch()
    server.wait_event("turn.joined", session_id="e4")
    book.refused(server, "turn_joined", "It is a part of `t1` now.", "turn/cancel", sessionId="e4", turnId="t2")
    fake.gate("joined").open()
    server.finish("e4", "t1")
    (workspace / "go").unlink()


def cursors_and_references(book: Book, server: Server) -> None:
    read = "events/read"
    book.refused(server, "cursor_malformed", "Not a cursor.", read, sessionId="e1", after="the end")
    book.refused(server, "cursor_ahead", "The log is shorter.", read, sessionId="e1", after="99.0123456789ab")
    book.refused(server, "cursor_foreign", "The log is another.", read, sessionId="e1", after="1.0123456789ab")
    book.refused(
        server,
        "artifact_not_found",
        "Of another session, or an export that was collected.",
        "artifact/read",
        sessionId="e1",
        artifact="a-0123456789abcdef0123456789abcdef",
    )
    book.refused(
        server,
        "process_not_found",
        "Of another session, or one of more than sixteen that have ended since.",
        "process/read",
        sessionId="e1",
        processId="p-0123456789abcdef0123",
    )
    book.refused(
        server,
        "subscription_not_found",
        "It ended with its connection.",
        "events/unsubscribe",
        subscriptionId="u-0123456789abcdef0123",
    )


def models(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """Kinds that a turn fails with, by what the provider answered."""
    unauthorized = {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}
    too_long = {"error": {"message": "This model's maximum context length is 8192 tokens."}}
    answers = [
        ("credential_rejected", "The provider answers 401.", status(401, unauthorized)),
        ("model_gateway", "The provider answers 503, and no repeats are left.", status(503, "busy")),
        ("model_unavailable", "The provider answers 404.", status(404, {"error": {"message": "No such model."}})),
        ("context_overflow", "The provider says that the request is too long.", status(400, too_long)),
        ("empty_response", "The answer has neither text nor calls.", finish()),
        ("output_truncated", "The answer ends with `length`.", text("Once upon a", reason="length")),
        ("refused", "The answer ends with `content_filter`.", text("", reason="content_filter")),
    ]
    server.create(workspace, "e5")
    for kind, note, answer in answers:
        fake.script(answer)
        server.finish("e5", server.submit("e5", "Tell me a story."))
        book.failed(server, kind, note, "e5")
    fake.script(calls([("bash", {"command": "true"})]), text("I have to stop here."))
    server.finish("e5", server.submit("e5", "Run the tests.", limits={"steps": 1}))
    book.failed(server, "limit_exceeded", "One model request was allowed, and it wanted to call a tool.", "e5")


def keys(book: Book, start: Start, workspace: Path) -> None:
    server = start(env={"HAMES_COMPATIBLE_API_KEY_COMMAND": "false"})
    book.refused(
        server,
        "credential_missing",
        "The program that should print the key ends with exit code 1.",
        "session/create",
        workspace=str(workspace),
    )


def limits(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    server = start(env={"HAMES_LIMIT_QUEUE_LENGTH": "1"})
    fake.script(partial("Once ") + wait_for("queue") + finish(), text("Twice."))
    server.create(workspace, "e6")
    server.submit("e6", "Once.", turnId="t1")
    server.wait_event("model.requested", session_id="e6")
    server.submit("e6", "Twice.", turnId="t2")
    book.refused(
        server, "queue_full", "`limits.queueLength` is 1.", "turn/submit", sessionId="e6", input=said("Three times.")
    )
    fake.gate("queue").open()
    server.finish("e6", "t2")
    server.stop()


def owners(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    """A session that another process runs, and one whose process died within a command."""
    owner = start()
    fake.script(calls([("bash", {"command": "touch up; exec sleep 60"})]))
    owner.create(workspace, "e7")
    owner.submit("e7", "Deploy it.", turnId="t1")
    owner.poll_until(lambda: (workspace / "up").exists(), what="the command runs")
    book.known[str(owner.pid)] = "4711"
    other = start()
    book.refused(other, "session_owned", "Another process runs it.", "session/resume", sessionId="e7", own="require")
    owner.kill()
    other.call("session/resume", sessionId="e7")
    other.finish("e7", "t1")
    book.failed(
        other, "lease_lost", "The process was killed while a command ran: whether it did its work is unknown.", "e7"
    )
    other.stop()


def stopping(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    server = start()
    fake.script(partial("Once ") + wait_for("stopping") + finish())
    server.create(workspace, "e8")
    server.submit("e8", "Once.", turnId="t1")
    server.wait_event("model.requested", session_id="e8")
    leaving = server.send("shutdown", mode="drain")
    server.call("ping")
    book.refused(
        server, "shutting_down", "`shutdown` came before it.", "turn/submit", sessionId="e8", input=said("Twice.")
    )
    fake.gate("stopping").open()
    server.answer(leaving)


def full(book: Book, start: Start, home: Path, workspace: Path) -> None:
    """A database that may not grow says what a full disk says."""
    store = home / "small" / "store"
    store.parent.mkdir()
    book.known[str(store)] = "/home/ada/.local/state/hames"
    server = start(env={"HAMES_HOME": str(store)}, via=[sys.executable, str(Path(__file__).with_name("small.py"))])
    server.call("session/create", workspace=str(workspace), sessionId="f1")
    text = "one line of the log\n" * 3_200
    book.refused(server, "store_full", "The disk is full.", "turn/submit", sessionId="f1", input=said(text))
    server.stop()


def damage(book: Book, start: Start, fake: FakeProvider, home: Path, workspace: Path) -> None:
    """A store that was edited, and one that is none."""
    store = home / "other" / "store"
    store.parent.mkdir()
    env = {"HAMES_HOME": str(store)}
    book.known[str(store)] = "/home/ada/.local/state/hames"
    server = start(env=env)
    for session_id in ("d1", "d2", "d3"):
        server.create(workspace, session_id)
    fake.script(text("Read."))
    server.finish("d3", server.submit("d3", "one line of the log\n" * 5_000, turnId="t1"))
    [artifact] = server.call("artifact/list", sessionId="d3")["artifacts"]
    server.stop()
    with closing(sqlite3.connect(store / "store.db")) as connection:
        connection.execute("update session set min_reader = 99 where id = 'd1'")
        connection.execute("update event set line = replace(line, 'default', 'strict') where id >> 40 = 2")
        connection.commit()
    [blob] = [path for path in (store / "blobs").glob("*/*") if path.is_file()]
    blob.write_bytes(b"!" + blob.read_bytes()[1:])
    server = start(env=env)
    book.refused(
        server,
        "session_incompatible",
        "A newer build wrote to it.",
        "turn/submit",
        sessionId="d1",
        input=said("Hello."),
    )
    book.refused(server, "session_corrupt", "An event was edited.", "events/read", sessionId="d2")
    book.refused(
        server,
        "artifact_corrupt",
        "The file of the artifact was edited.",
        "artifact/read",
        sessionId="d3",
        artifact=artifact["artifact"],
    )
    server.stop()
    none = home / "none"
    none.mkdir()
    (none / "store.db").write_text("no database")
    (none / "key").write_bytes(bytes(32))
    book.known[str(none)] = "/home/ada/.local/state/hames"
    server = start(env={"HAMES_HOME": str(none)})
    book.refused(server, "store_unavailable", "`store.db` is no database.", "session/list")
