"""What the client does in each transcript. `HAMES_REWRITE=1 pytest tests/transcripts` plays these and keeps answers.

A value that only the server knows is named by where it stood last: `@cursor`, `@subscriptionId`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from transcripts.player import WORKSPACE, Line


def _frames() -> Any:
    number = 0

    def send(method: str, **params: Any) -> Line:
        nonlocal number
        number += 1
        return {"client": {"jsonrpc": "2.0", "id": number, "method": method, "params": params}}

    return send


def _say(*lines: str, role: str | None = None) -> list[dict[str, Any]]:
    slot = {"type": "text", "text": "\n".join(lines)}
    return [slot | ({} if role is None else {"role": role})]


def _hello(send: Any) -> list[Line]:
    info = {"name": "editor", "version": "1.0"}
    return [{"do": "start"}, send("initialize", protocolVersions=["1"], clientInfo=info)]


def _call(tool: str, **arguments: Any) -> str:
    return f"call {tool} {json.dumps(arguments)}"


def first_session() -> list[Line]:
    send = _frames()
    return [
        {"note": "A client starts the server, makes a session, follows it, and runs one turn."},
        *_hello(send),
        {"note": "The session is durable when it is answered. Its first event comes behind the answer."},
        send(
            "session/create", workspace=WORKSPACE, sessionId="s1", title="A first session", subscribe={"deltas": True}
        ),
        {"until": "session.created"},
        {"note": "The answer to a submit is its receipt: the text is on disk. The wait ends after the terminal event."},
        send("turn/submit", sessionId="s1", turnId="t1", input=_say("say Hello from the offline model.")),
        send("turn/wait", sessionId="s1", turnId="t1"),
        send("session/get", sessionId="s1", view=True),
        send("session/close", sessionId="s1"),
        {"note": "The end of input ends the server."},
        {"do": "end of input"},
    ]


def tools() -> list[Line]:
    send = _frames()
    script = (
        "say Let me write it.",
        _call("write", path="hello.txt", content="one\ntwo\n"),
        _call("read", path="hello.txt"),
        _call("edit", path="hello.txt", oldText="two", newText="three"),
        _call("bash", command="cat hello.txt"),
        "say The file says three.",
    )
    return [
        {"note": "A turn that writes, reads, edits and runs. Each call is in the log before it has an effect."},
        *_hello(send),
        send("session/create", workspace=WORKSPACE, sessionId="s1", subscribe={"deltas": False}),
        {"until": "session.created"},
        send("turn/submit", sessionId="s1", turnId="t1", input=_say(*script)),
        send("turn/wait", sessionId="s1", turnId="t1"),
        {"do": "end of input"},
    ]


def cancel() -> list[Line]:
    send = _frames()
    return [
        {"note": "A running turn is cancelled while another waits: the queue is held until it is resumed."},
        *_hello(send),
        send("session/create", workspace=WORKSPACE, sessionId="s1", subscribe={"deltas": False}),
        send("turn/submit", sessionId="s1", turnId="t1", input=_say(_call("bash", command="sleep 60"))),
        {"until": "tool.started"},
        send("turn/submit", sessionId="s1", turnId="t2", input=_say("say The second turn.")),
        {"note": "Answered when the intent is durable; the turn ends when nothing of it runs."},
        send("turn/cancel", sessionId="s1", turnId="t1", reason="changed my mind"),
        send("turn/wait", sessionId="s1", turnId="t1"),
        send("turn/wait", sessionId="s1", turnId="t2"),
        send("queue/resume", sessionId="s1"),
        send("turn/wait", sessionId="s1", turnId="t2"),
        {"note": "A cancel of a turn that ended is no error: it answers the outcome."},
        send("turn/cancel", sessionId="s1", turnId="t1"),
        {"do": "end of input"},
    ]


def reconnect() -> list[Line]:
    send = _frames()
    info = {"name": "editor", "version": "1.0"}
    return [
        {"note": "The server is killed while the model answers. The next one goes on from the log."},
        *_hello(send),
        send("session/create", workspace=WORKSPACE, sessionId="s1", subscribe={"deltas": False}),
        send("turn/submit", sessionId="s1", turnId="t1", input=_say("wait 400", "say It went on.")),
        {"until": "model.requested"},
        {"do": "kill -9"},
        {"do": "start"},
        send("initialize", protocolVersions=["1"], clientInfo=info),
        {"note": "Reading is no consent to run anything: the log stands where it stood."},
        send("events/read", sessionId="s1", after="@cursor"),
        {"note": "Resuming is: the turn continues as a second attempt, and the events come after the cursor."},
        send(
            "session/resume",
            sessionId="s1",
            expect={"workspace": WORKSPACE},
            subscribe={"after": "@cursor", "deltas": False},
        ),
        send("turn/wait", sessionId="s1", turnId="t1"),
        {"do": "end of input"},
    ]


def join_and_steer() -> list[Line]:
    send = _frames()
    script = (_call("bash", command="until [ -e go ]; do sleep 0.05; done"), "say Both were heard.")
    return [
        {"note": "While a turn runs, another joins it and a third message steers it; both enter at its next step."},
        *_hello(send),
        send("session/create", workspace=WORKSPACE, sessionId="s1", subscribe={"deltas": False}),
        send("turn/submit", sessionId="s1", turnId="t1", input=_say(*script)),
        {"until": "tool.started"},
        send("turn/submit", sessionId="s1", turnId="t2", delivery="join", input=_say("say I joined.")),
        send("turn/steer", sessionId="s1", expectedTurnId="t1", input=_say("say I was steered.")),
        {"do": "touch go"},
        send("turn/wait", sessionId="s1", turnId="t1"),
        {"note": "The joined turn took its host's outcome."},
        send("turn/get", sessionId="s1", turnId="t2"),
        {"do": "end of input"},
    ]


def errors() -> list[Line]:
    send = _frames()
    said = _say("say Once.")
    return [
        {"note": "What is wrong is told, typed, and harms nothing else."},
        {"do": "start"},
        send("session/list"),
        send("initialize", protocolVersions=["99"], clientInfo={"name": "editor", "version": "1.0"}),
        send("initialize", protocolVersions=["1"], clientInfo={"name": "editor", "version": "1.0"}),
        {"client": "{nonsense"},
        send("session/fly"),
        send("session/create", workspace="not/absolute"),
        send("session/create", workspace=WORKSPACE, sessionId="s1", colour="blue"),
        send("session/create", workspace=WORKSPACE, sessionId="s1"),
        send("session/create", workspace=WORKSPACE, sessionId="s1"),
        send("turn/submit", sessionId="s2", input=said),
        send("turn/submit", sessionId="s1", input=[{"type": "text", "text": 5}]),
        {"note": "The same key with the same content is the same turn, for ever; with other content it is refused."},
        send("turn/submit", sessionId="s1", turnId="t1", idempotencyKey="k1", input=said),
        send("turn/wait", sessionId="s1", turnId="t1"),
        send("turn/submit", sessionId="s1", turnId="t1", idempotencyKey="k1", input=said),
        send("turn/submit", sessionId="s1", turnId="t1", idempotencyKey="k1", input=_say("say Twice.")),
        send("turn/cancel", sessionId="s1"),
        send("turn/steer", sessionId="s1", input=said),
        send("events/read", sessionId="s1", after="99.000000000000"),
        send("events/read", sessionId="s1", after="1.000000000000"),
        send("events/read", sessionId="s1", after="the end"),
        send("ping"),
        {"do": "end of input"},
    ]


SCRIPTS: Mapping[str, list[Line]] = {
    "1-first-session": first_session(),
    "2-tools": tools(),
    "3-cancel-and-held-queue": cancel(),
    "4-reconnect": reconnect(),
    "5-join-and-steer": join_and_steer(),
    "6-errors": errors(),
}
