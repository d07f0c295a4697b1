"""A key answers what it was used for, for ever."""

from __future__ import annotations

import shutil
from pathlib import Path

from e2e.driver import said
from e2e.fixtures import Start


def test_a_key_answers_also_when_the_workspace_is_gone(start: Start, workspace: Path) -> None:
    first = start()
    made = {"workspace": str(workspace), "model": "offline", "idempotencyKey": "make"}
    asked = {"input": said("say hello"), "idempotencyKey": "ask"}
    session = first.call("session/create", **made)
    session_id = session["session"]["sessionId"]
    turn_id = first.call("turn/submit", sessionId=session_id, **asked)["turn"]["turnId"]
    first.call("turn/wait", sessionId=session_id, turnId=turn_id)
    assert first.stop() == 0
    shutil.rmtree(workspace)

    second = start()

    again = second.call("session/create", **made)
    assert again["session"]["sessionId"] == session_id
    repeated = second.call("turn/submit", sessionId=session_id, **asked)
    assert repeated["turn"]["turnId"] == turn_id
    other = second.refused("turn/submit", sessionId=session_id, input=said("say no"), idempotencyKey="other")
    assert other["data"]["kind"] == "authority_mismatch"
    changed = second.refused("turn/submit", sessionId=session_id, input=said("say no"), idempotencyKey="ask")
    assert changed["data"]["kind"] == "idempotency_conflict"
    new = second.refused("session/create", **made | {"idempotencyKey": "new"})
    assert new["data"]["kind"] == "invalid_config"


def test_a_turn_that_was_submitted_again_after_its_end_keeps_nobody_from_leaving(start: Start, workspace: Path) -> None:
    with start() as server:
        server.call("session/create", workspace=str(workspace), sessionId="s1", model="offline")
        submission = {"sessionId": "s1", "turnId": "t1", "idempotencyKey": "k1"}
        slots = [{"type": "text", "text": "say Once."}]
        server.call("turn/submit", **submission, input=slots)
        server.call("turn/wait", sessionId="s1", turnId="t1")

        again = server.call("turn/submit", **submission, input=slots)
        refused = server.ask("turn/submit", **submission, input=[{"type": "text", "text": "say Twice."}])

        assert again["turn"]["status"] == "completed"
        assert refused["error"]["data"]["kind"] == "idempotency_conflict"
        assert server.call("shutdown") == {}
