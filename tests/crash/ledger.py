"""What a client was told by servers that were killed, and the proof that a later server stands by all of it.

Rule: nothing of ours computes the proof: the chain is recomputed here from the bytes on the wire.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from crash.whole import whole_events
from e2e.checks import Frame
from e2e.driver import TIMEOUT_S, Server, said
from engine.rules import TERMINALS, check_log


@dataclass
class Ledger:
    """Everything that was acknowledged. Keys are the client's own, by session."""

    sent: dict[tuple[str, str], str] = field(default_factory=dict)
    """(session, key) -> text, of every submit that was sent."""
    answered: dict[tuple[str, str], str] = field(default_factory=dict)
    """(session, key) -> turn id, of those that were answered."""
    events: dict[str, dict[int, tuple[str, bytes]]] = field(default_factory=dict)
    """session -> seq -> (cursor, bytes), of every event that was received."""
    sessions: set[str] = field(default_factory=set)

    def submit(self, server: Server, session_id: str, text: str, key: str, **params: Any) -> int:
        """Send a submit and wait for nothing."""
        self.sent[session_id, key] = text
        return server.send(
            "turn/submit", sessionId=session_id, input=said(text), idempotencyKey=key, _meta={"key": key}, **params
        )

    def take(self, server: Server, asked: Mapping[int, tuple[str, str]]) -> None:
        """Note all that `server` has said; `asked` has the submits that were sent to it, by request id."""
        for frame in list(server.frames):
            if frame.event is not None:
                self._event(frame.event, frame.value["params"]["cursor"], frame.event_bytes)
            for response in frame.responses:
                if response["id"] in asked and "result" in response:
                    self._answer(asked[response["id"]], response["result"]["turn"]["turnId"])

    def _answer(self, place: tuple[str, str], turn_id: str) -> None:
        assert self.answered.setdefault(place, turn_id) == turn_id, "a repeat is answered with the same turn"

    def _event(self, event: Mapping[str, Any], at: str, raw: bytes) -> None:
        known = self.events.setdefault(event["sessionId"], {})
        assert known.setdefault(event["seq"], (at, raw)) == (at, raw), "an event never changes"

    def last_cursor(self, session_id: str) -> str | None:
        """That of the newest event that was received."""
        known = self.events.get(session_id)
        return None if not known else known[max(known)][0]

    def prove(self, server: Server) -> int:
        """Hold everything against what `server` replays, once all of it has come to its end; how many events."""
        total = 0
        for session_id in sorted(self.sessions):
            head = settle(server, session_id)
            log = self._replayed(server, session_id, head)
            total += len(log)
            whole = whole_events(server, session_id, log)
            check_log(whole)
            self._prove_turns(session_id, whole)
        return total

    def _replayed(self, server: Server, session_id: str, head: int) -> list[dict[str, Any]]:
        start = len(server.frames)
        server.call("events/subscribe", sessionId=session_id, deltas=False)

        def is_head(frame: Frame) -> bool:
            # Of this session: others may still go on, and are told too.
            event = frame.event
            return event is not None and event["sessionId"] == session_id and event["seq"] >= head

        server.wait_for(is_head, start=start, what=f"event {head} of {session_id}")
        digest = blake2b(b"hames-log-1\0" + session_id.encode(), digest_size=32).digest()
        log: list[dict[str, Any]] = []
        known = self.events.get(session_id, {})
        for frame in server.frames[start:]:
            event = frame.event
            if event is None or event["sessionId"] != session_id:
                continue
            digest = blake2b(digest + frame.event_bytes, digest_size=32).digest()
            at = f"{len(log) + 1}.{digest.hex()[:12]}"
            assert frame.value["params"]["cursor"] == at, "the chain proves the bytes"
            seen = known.get(event["seq"], (at, frame.event_bytes))
            assert seen == (at, frame.event_bytes), "what was received is what stands"
            log.append(event)
        assert not known or max(known) <= len(log), "what was received is there"
        return log

    def _prove_turns(self, session_id: str, log: list[dict[str, Any]]) -> None:
        queued = [event for event in log if event["type"] == "turn.queued"]
        by_key = {event["data"]["idempotencyKey"]: event for event in queued if "idempotencyKey" in event["data"]}
        assert len(by_key) == sum("idempotencyKey" in event["data"] for event in queued), "a key admits one turn"
        ended = {event["turnId"] for event in log if event["type"] in TERMINALS}
        for (place, key), turn_id in self.answered.items():
            if place == session_id:
                assert key in by_key, f"the answered submit {key} is lost"
                assert by_key[key]["turnId"] == turn_id
                assert by_key[key]["data"]["input"][0]["text"] == self.sent[place, key]
        for event in queued:
            assert event["turnId"] in ended, f"{event['turnId']} has no terminal"


def settle(server: Server, session_id: str) -> int:
    """Attach, and wait until nothing of the session runs or waits; the head."""
    server.call("session/resume", sessionId=session_id)
    until = time.monotonic() + TIMEOUT_S
    while True:
        session = server.call("session/get", sessionId=session_id)["session"]
        waiting = session["queue"]["turnIds"] + [t for t in (session.get("runningTurnId"),) if t]
        if not waiting:
            return int(session["headSeq"])
        assert time.monotonic() < until, f"{session_id} does not come to an end: {session}"
        if "held" in session["queue"]:
            server.call("queue/resume", sessionId=session_id)
        server.call("turn/wait", sessionId=session_id, turnId=waiting[-1], timeoutMs=2_000)


def still_usable(server: Server, session_id: str) -> None:
    """The session takes a turn and ends it."""
    turn = server.finish(session_id, server.submit(session_id, "still there?"))
    assert turn["status"] == "completed", json.dumps(turn)[:500]
