"""Who goes before whom: receipts before events, terminals before waits, and no session behind another."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from e2e.driver import Server, line, said
from fake.provider import FakeProvider, calls, finish, last_user_text, partial, text, wait_for


def test_500_submits_and_cancels_in_one_write_are_answered_before_their_events(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.answer = lambda _: text("ok")
    sessions = [server.create(workspace, f"s{n}") for n in range(10)]
    for session_id in sessions[:3]:
        server.call("events/subscribe", sessionId=session_id)
    data, wanted = b"", []
    for n in range(500):
        session_id = sessions[n % 10]
        params: dict[str, Any] = {"sessionId": session_id, "turnId": f"t{n}"}
        data += server.request("turn/submit", input=said(str(n)), **params)
        data += server.request("turn/cancel", queue="continue", **params)
        wanted.append((session_id, f"t{n}"))
    last = max(identifier for identifier in server.sent if isinstance(identifier, int))

    server.write(data)

    turns = [server.finish(session_id, turn_id) for session_id, turn_id in wanted]
    responses = [server.answer(identifier) for identifier in range(last - 999, last + 1)]
    assert all("result" in response for response in responses[::2]), "every submit is admitted"
    kinds = {response["error"]["data"]["kind"] for response in responses[1::2] if "error" in response}
    assert kinds <= {"no_active_turn"}
    assert {turn["status"] for turn in turns} <= {"cancelled", "completed"}
    # Each is cancelled right behind its admission; only what the model answered in between may have completed.
    for session_id in sessions:
        queued = [event["turnId"] for event in _once(server.events(session_id)) if event["type"] == "turn.queued"]
        assert queued == [turn_id for owner, turn_id in wanted if owner == session_id]
    # That each receipt precedes the events of its turn, on every subscription, is checked of all frames.


def _once(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return list({event["seq"]: event for event in events}.values())


def test_wait_answers_after_the_terminal_was_sent_to_every_subscription(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.answer = lambda _: text("ok " * 50, chunks=50)
    session_id = server.create(workspace)
    subscriptions = [server.call("events/subscribe", sessionId=session_id)["subscriptionId"] for _ in range(5)]

    for n in range(10):
        turn_id = f"t{n}"
        submit = server.request("turn/submit", sessionId=session_id, turnId=turn_id, input=said("x"))
        server.write(submit)
        server.answer(_last(server))
        server.send("turn/wait", sessionId=session_id, turnId=turn_id)
        waited = server.answer_frame(_last(server))
        before = [
            params["subscriptionId"]
            for frame in list(server.frames)[: waited.index]
            if frame.event is not None
            and frame.event["type"] == "turn.completed"
            and frame.event["turnId"] == turn_id
            and (params := frame.value["params"])
        ]
        assert set(before) >= set(subscriptions)
        assert len(before) == 6


def _last(server: Server) -> int:
    return max(identifier for identifier in server.sent if isinstance(identifier, int))


def test_wait_and_read_come_after_what_was_sent_before_them(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text("ok"))
    data = server.request("session/create", workspace=str(workspace), sessionId="s1", subscribe={})
    data += server.request("turn/submit", sessionId="s1", turnId="t1", input=said("x"))
    data += server.request("turn/wait", sessionId="s1", turnId="t1")
    data += server.request("events/read", sessionId="s1", types=["turn.queued"])
    last = _last(server)

    server.write(data)

    assert server.answer(last - 1).get("result", {}).get("why") == "ended", server.answer(last - 1)
    assert len(server.answer(last).get("result", {}).get("events", [])) == 1, server.answer(last)


def test_50_sessions_on_one_connection_submit_at_once_and_all_end_ordered_inside(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    names = [f"s{n:02}" for n in range(50)]
    gates = {name: fake.gate(name) for name in names}
    for name in names:
        fake.on(name, partial(f"{name} ", chunks=3) + wait_for(name) + partial("end") + finish())
    creates = b"".join(
        server.request("session/create", workspace=str(workspace), sessionId=name, subscribe={}) for name in names
    )
    submits = b"".join(server.request("turn/submit", sessionId=name, turnId="t", input=said(name)) for name in names)

    server.write(creates + submits)
    fake.wait_for_requests(50)
    random.Random(7).shuffle(names)
    for name in names:
        gates[name].open()

    for name in names:
        assert server.finish(name, "t")["outcome"] == {"status": "completed", "text": f"{name} end"}
        events = server.events(name)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


def test_stalled_session_holds_up_neither_others_nor_control(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.on("stall", partial("half") + wait_for("never"))
    fake.answer = lambda body: text(f"said {last_user_text(body)}")
    stalled = server.create(workspace, "stalled")
    turn_id = server.submit(stalled, "stall")
    server.wait_for(lambda frame: b'"method":"delta"' in frame.raw)
    waiting = server.send("turn/wait", sessionId=stalled, turnId=turn_id)

    for n in range(4):
        other = server.create(workspace)
        turn = server.finish(other, server.submit(other, f"hello {n}"))
        assert turn["outcome"]["text"] == f"said hello {n}"
    for method, params in _control(stalled, turn_id):
        server.call(method, **params)

    assert not server.answered(waiting)
    server.call("turn/cancel", sessionId=stalled, turnId=turn_id)
    assert server.answer(waiting)["result"]["turn"]["status"] == "cancelled"


def _control(session_id: str, turn_id: str) -> list[tuple[str, dict[str, Any]]]:
    """Everything that must answer at once during a turn."""
    turn = {"sessionId": session_id, "turnId": turn_id}
    return [
        ("ping", {}),
        ("turn/get", turn),
        ("turn/list", {"sessionId": session_id}),
        ("session/get", {"sessionId": session_id, "view": True}),
        ("session/list", {}),
        ("session/update", {"sessionId": session_id, "title": "still here"}),
        ("session/resume", {"sessionId": session_id}),
        ("events/read", {"sessionId": session_id}),
        ("events/subscribe", {"sessionId": session_id}),
        ("usage/get", {"sessionId": session_id}),
        ("usage/get", turn),
        ("turn/wait", {**turn, "timeoutMs": 0}),
        ("turn/steer", {"sessionId": session_id, "input": said("and this")}),
        ("turn/submit", {"sessionId": session_id, "input": said("next")}),
        ("health/check", {"sessionId": session_id}),
        ("models/list", {}),
        ("tools/list", {}),
        ("capabilities/describe", {}),
        ("rpc.discover", {}),
    ]


def test_wait_is_cancelled_by_its_id_and_the_turn_goes_on(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish())
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    waits = [server.send("turn/wait", sessionId=session_id, turnId=turn_id) for _ in range(2)]
    server.call("ping")

    server.notify("$/cancelRequest", id=waits[0])

    assert server.answer(waits[0])["error"]["code"] == -32800
    server.notify("$/cancelRequest", id=waits[0])
    fake.gate("rest").open()
    assert server.answer(waits[1])["result"]["turn"]["outcome"]["text"] == "half whole"


def test_cancel_of_a_wait_needs_its_very_id(server: Server, workspace: Path, fake: FakeProvider) -> None:
    """`1`, `"1"`, `1.0` and `true` are four things."""
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish())
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    number, text_ = 1_000, "1000"
    for identifier in (number, text_):
        server.expect(identifier, "turn/wait")
        server.write(line(identifier, "turn/wait", sessionId=session_id, turnId=turn_id))

    for other in (b"1000.0", b"true", b"null", b"[1000]"):
        server.write(b'{"jsonrpc":"2.0","method":"$/cancelRequest","params":{"id":%b}}\n' % other)
    server.notify("$/cancelRequest", id=text_)

    assert server.answer(text_)["error"]["code"] == -32800
    server.call("ping")
    assert not server.answered(number)
    fake.gate("rest").open()
    assert server.answer(number)["result"]["why"] == "ended"


def test_longest_timeouts_are_no_reason_to_fail(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish())
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    fake.wait_for_requests(1)
    longest = 2**53 - 1
    wait = server.send("turn/wait", sessionId=session_id, turnId=turn_id, timeoutMs=longest)
    head = server.call("session/get", sessionId=session_id)["cursor"]
    read = server.send("events/read", sessionId=session_id, after=head, waitMs=longest)

    fake.gate("rest").open()

    assert server.answer(wait)["result"]["why"] == "ended"
    assert server.answer(read)["result"]["events"]


def test_close_of_a_session_whose_tool_runs_lets_the_others_go_on(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.on("tool", calls([("bash", {"command": "echo started; exec sleep 100"})]))
    fake.answer = lambda _: text("ok")
    busy, other = server.create(workspace, "busy"), server.create(workspace, "other")
    turn_id = server.submit(busy, "tool")
    server.wait_event("tool.started", session_id=busy)

    closing = server.send("session/close", sessionId=busy)
    turn = server.finish(other, server.submit(other))

    assert turn["status"] == "completed"
    assert server.answer(closing)["result"]["session"]["status"] == "closed"
    ended = server.events(busy, "turn.cancelled")
    assert [(event["turnId"], event["data"]["cause"]) for event in ended] == [(turn_id, "session_closed")]
