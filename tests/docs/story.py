"""The run that gives an example of every method, notification and event type. Each session has one purpose, so that its
events are numbered alike in every run.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

from docs.book import Book
from e2e.driver import Server, said
from fake.pictures import png
from fake.provider import FakeProvider, calls, cut, partial, status, text, thinking, wait_for

Start = Callable[..., Server]

CLIENT = {"name": "editor", "version": "1.0"}

STEADY = {"HAMES_LIMIT_CHUNK_MS": "60000", "HAMES_LIMIT_TERM_GRACE_MS": "30000"}
"""No chunks, and no command ends before it is told to, however slow the machine is: events are numbered alike."""

SLOW = "until [ -e go ]; do sleep 0.02; done"
"""A command that ends when the run makes the file `go`."""


def tell(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    """Play everything."""
    server = start(initialize=False, env={**STEADY, "HAMES_LIMIT_RETRY_BASE_MS": "10"})
    hello(book, server)
    one_turn(book, server, fake, workspace)
    queue(book, server, fake, workspace)
    retries(book, server, fake, workspace)
    large_texts(book, server, fake, workspace)
    waits_and_pieces(book, start, fake, workspace)
    loop(book, server, fake, workspace)
    shorter(book, start, fake, workspace)
    background(book, server, fake, workspace)
    lost_owner(book, start, fake, workspace)
    ends(book, server, workspace)


def hello(book: Book, server: Server) -> None:
    """What answers without a session."""
    for early in ("ping", "capabilities/describe", "rpc.discover"):
        book.call(server, early)
    book.call(server, "initialize", protocolVersions=["1"], clientInfo=CLIENT)
    book.call(server, "health/check", dependencies=["store", "provider"])
    book.call(server, "models/list")
    book.call(server, "tools/list")


def one_turn(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """A session whose one turn mends a file."""
    (workspace / "answer.txt").write_text("the answer is 41\n")
    (workspace / "AGENTS.md").write_text("Run the tests with `make test`.\n")
    edit = {"path": "answer.txt", "oldText": "41", "newText": "42"}
    fake.script(
        thinking("The file first.") + calls([("edit", edit)]),
        calls([("bash", {"command": "cat answer.txt"})]),
        text("answer.txt says 42 now.", chunks=["answer.txt ", "says 42 ", "now."]),
    )
    book.call(
        server,
        "session/create",
        workspace=str(workspace),
        sessionId="s1",
        title="Mend the answer",
        idempotencyKey="9f1c",
        subscribe={"deltas": True},
    )
    book.call(server, "turn/submit", sessionId="s1", turnId="t1", input=said("The answer in answer.txt should be 42."))
    book.call(server, "turn/wait", sessionId="s1", turnId="t1", timeoutMs=60_000)
    book.events(server, "s1")
    book.notification(server, "event", lambda params: params["event"]["type"] == "turn.queued")
    book.notification(server, "ownership")
    one = {"sessionId": "s1", "turnId": "t1"}
    book.call(server, "session/get", sessionId="s1", view=True, limit=2)
    book.call(server, "session/list", limit=1)
    book.call(server, "turn/get", **one)
    book.call(server, "turn/list", sessionId="s1", limit=1)
    book.call(server, "usage/get", **one)
    first = book.call(server, "events/read", sessionId="s1", types=["turn.queued", "turn.completed"], limit=1)
    followed = book.call(server, "events/subscribe", sessionId="s1", after=first["nextCursor"], deltas=False)
    book.call(server, "events/unsubscribe", subscriptionId=followed["subscriptionId"])
    book.call(server, "session/update", sessionId="s1", title="The answer is 42")


def queue(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """A turn that others wait for, join, steer and cancel."""
    fake.script(calls([("bash", {"command": SLOW})]), text("Both were heard."))
    server.create(workspace, "s2")
    server.submit("s2", "Run the tests.", turnId="t1")
    server.wait_event("tool.started", session_id="s2")
    server.submit("s2", "And the linter.", turnId="t2", delivery="join")
    book.call(
        server,
        "turn/steer",
        sessionId="s2",
        expectedTurnId="t1",
        idempotencyKey="c07a",
        input=said("Only those of the parser."),
    )
    (workspace / "go").touch()
    server.finish("s2", "t1")
    (workspace / "go").unlink()
    fake.script(calls([("bash", {"command": f"trap '' TERM; {SLOW}"})]), text("Fixed."))
    server.submit("s2", "Run them all.", turnId="t3")
    server.wait_for(
        lambda frame: bool(frame.event and frame.event["type"] == "tool.started" and frame.event.get("turnId") == "t3")
    )
    server.submit("s2", "Fix what fails.", turnId="t4")
    book.call(server, "turn/update", sessionId="s2", turnId="t4", input=said("Fix what fails in the parser."))
    book.call(server, "turn/cancel", sessionId="s2", turnId="t3", queue="hold", reason="takes too long")
    (workspace / "go").touch()
    server.finish("s2", "t3")
    (workspace / "go").unlink()
    book.call(server, "queue/resume", sessionId="s2")
    server.finish("s2", "t4")
    book.events(server, "s2")


def retries(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """A provider that is busy, cuts an answer and then refuses; an input that is no Unicode text; a document that
    changes."""
    fake.script(status(503, "busy"), partial("Half an ans") + cut(), text("The whole answer."))
    server.create(workspace, "s3")
    server.finish("s3", server.submit("s3", "Say it again: \ud83d", turnId="t1"))
    (workspace / "AGENTS.md").write_text("Run the tests with `make check`.\n")
    fake.script(status(401, {"error": {"message": "Incorrect API key provided.", "code": "invalid_api_key"}}))
    server.finish("s3", server.submit("s3", "Once more.", turnId="t2"))
    book.events(server, "s3")


def large_texts(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """An input that the log keeps apart."""
    fake.script(text("It has 2,000 lines."))
    server.create(workspace, "s4")
    server.finish("s4", server.submit("s4", "one line of the log\n" * 2_000, turnId="t1"))
    listed = book.call(server, "artifact/list", sessionId="s4")
    [artifact] = listed["artifacts"]
    book.call(server, "artifact/read", sessionId="s4", artifact=artifact["artifact"], offset=0, length=60)


def waits_and_pieces(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    """Answers and output that take long enough to be kept in chunks."""
    server = start(env={"HAMES_LIMIT_CHUNK_MS": "20", "HAMES_LIMIT_HEARTBEAT_MS": "50"})
    command = f"echo 1 passed; until [ -e more ]; do sleep 0.02; done; echo 2 passed; {SLOW}"
    fake.script(
        thinking("Let me think. ")
        + wait_for("thought")
        + partial("I will run it. ")
        + wait_for("said")
        + calls([("bash", {"command": command})]),
        text("All pass."),
    )
    server.create(workspace, "s5")
    server.submit("s5", "Run the tests.", turnId="t1")
    server.wait_event("reasoning.chunk")
    book.notification(server, "heartbeat", lambda params: params["phase"] == "model_streaming")
    fake.gate("thought").open()
    server.wait_event("message.chunk")
    book.notification(server, "delta", lambda params: params["kind"] == "message")
    fake.gate("said").open()
    first = server.wait_for(lambda frame: frame.value.get("params", {}).get("kind") == "toolOutput").index
    for _ in range(2):  # two heartbeats later it is time for a chunk
        first = server.wait_for(lambda frame: frame.value.get("method") == "heartbeat", start=first + 1).index
    (workspace / "more").touch()
    server.wait_event("tool.chunk")
    (workspace / "go").touch()
    server.finish("s5", "t1")
    (workspace / "go").unlink()
    book.events(server, "s5", "reasoning.chunk", "message.chunk", "tool.chunk")
    fake.script(partial("Half an ans") + wait_for("half") + cut(), text("The whole answer."))
    server.create(workspace, "s7")
    server.submit("s7", "Once more.", turnId="t1")
    server.wait_event("message.chunk", session_id="s7")
    fake.gate("half").open()
    server.finish("s7", "t1")
    book.events(server, "s7", "model.discarded")


def loop(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """A model that makes the same call again and again, until it is told."""
    fake.script(*[calls([("glob", {"pattern": "*.lock"})]) for _ in range(3)], text("There is no lock file."))
    server.create(workspace, "s10")
    server.finish("s10", server.submit("s10", "Which lock files are there?", turnId="t1"))
    book.events(server, "s10")


def shorter(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    """A conversation that grows beyond what a small model takes; an image, of which it takes none."""
    server = start(env={**STEADY, "HAMES_LIMIT_CONTEXT_TOKENS": "2200", "HAMES_LIMIT_REQUEST_IMAGES": "0"})
    server.create(workspace, "s9")
    book.call(server, "session/compact", sessionId="s9")
    fake.on("is to be replaced by a summary", text("Goal: read the log. Progress: most of it is read."))
    fake.on(lambda body: body["messages"][-1]["content"].endswith("log."), *[text("Noted.")] * 5)
    for n in range(1, 6):
        part = "\none more line of the log." * 80
        server.finish("s9", server.submit("s9", f"Part {n}:{part}", turnId=f"t{n}"))
    book.events(server, "s9")
    fake.script(text("I cannot see it."))
    server.create(workspace, "s11")
    image = {"type": "image", "mediaType": "image/png", "data": b64encode(png()).decode(), "label": "screen.png"}
    server.call("turn/submit", sessionId="s11", turnId="t1", input=[*said("What is on it?"), image])
    server.finish("s11", "t1")
    book.events(server, "s11", "context.repaired")


def background(book: Book, server: Server, fake: FakeProvider, workspace: Path) -> None:
    """A server that a turn leaves running, until somebody stops it."""
    command = "echo listening on 8080; trap 'echo bye; exit 0' TERM; while :; do read -t 600 <> <(:); done"
    fake.script(calls([("bash", {"command": command, "background": True, "name": "web"})]), text("It listens."))
    server.create(workspace, "s12")
    server.finish("s12", server.submit("s12", "Start the server.", turnId="t1"))
    (process,) = server.call("process/list", sessionId="s12")["processes"]
    one = {"sessionId": "s12", "processId": process["processId"]}
    server.call("process/read", **one, waitMs=30_000)
    book.call(server, "process/list", sessionId="s12")
    book.call(server, "process/read", **one, offset=0, waitMs=1_000)
    book.call(server, "process/stop", **one)
    book.events(server, "s12", "process.started", "process.stop_requested", "process.exited")


def lost_owner(book: Book, start: Start, fake: FakeProvider, workspace: Path) -> None:
    """A server that is killed while the model answers; another goes on."""
    dying = start(env=STEADY)
    fake.script(partial("I was about to") + wait_for("never"), text("It went on."))
    asked = len(fake.requests)
    dying.create(workspace, "s6")
    dying.submit("s6", "Go on whatever happens.", turnId="t1")
    fake.wait_for_requests(asked + 1)
    dying.kill()
    other = start()
    head = other.log("s6")[-1]["cursor"]
    book.call(
        other,
        "session/resume",
        sessionId="s6",
        expect={"workspace": str(workspace)},
        own="require",
        subscribe={"after": head, "deltas": False},
    )
    other.finish("s6", "t1")
    book.events(other, "s6", "log.recovered")


def ends(book: Book, server: Server, workspace: Path) -> None:
    """Sessions that are closed, opened again, deleted; the end of the server."""
    book.call(server, "session/close", sessionId="s1")
    server.call("session/resume", sessionId="s1")
    book.events(server, "s1")
    book.call(server, "session/export", sessionId="s3")
    # How long the numbers of processes are, is a matter of chance.
    book.records["methods"]["session/export"]["answer"]["result"]["sizeBytes"] = 145_408
    book.call(server, "session/delete", sessionId="s4")
    book.notification(server, "subscription/closed")
    book.refused(server, "session_deleted", "It was deleted.", "session/get", sessionId="s4")
    book.call(server, "shutdown", mode="drain", timeoutMs=5_000)


def standing(home: Path, workspace: Path, url: str) -> dict[str, str]:
    """What stands in the documentation for the places of a run."""
    port = url.rpartition(":")[2].partition("/")[0]
    return {
        str(workspace): "/home/ada/project",
        str(home / "store"): "/home/ada/.local/state/hames",
        str(home): "/home/ada",
        f"127.0.0.1:{port}": "127.0.0.1:8080",
        "fake-model": "qwen3-coder",
        "driver/1": "editor/1.0",
    }
