"""Following a log: from any cursor, again and again, by page or by push, the bytes are the same and each comes once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.checks import Frame, rebuilt
from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, finish, partial, text, wait_for

STEPS = 10


def in_steps(fake: FakeProvider) -> None:
    """A turn of `STEPS` tool calls; each request to the model waits at the gate of its number."""
    for n in range(STEPS):
        fake.script(partial(f"step {n} ") + wait_for(str(n)) + calls([("bash", {"command": f"echo {n}"})]))
    fake.script(text("done"))


def pushed(server: Server, subscription_id: str) -> list[Frame]:
    """The event frames of one subscription."""
    return [
        frame
        for frame in list(server.frames)
        if frame.event is not None and frame.value["params"]["subscriptionId"] == subscription_id
    ]


def test_ten_reconnects_during_a_turn_bring_every_event_once_with_the_same_bytes(
    start: Start, server: Server, workspace: Path, fake: FakeProvider
) -> None:
    in_steps(fake)
    session_id = server.create(workspace)
    other = start()
    turn_id = server.submit(session_id)
    collected: list[Frame] = []
    after: dict[str, str] = {}

    for n in range(STEPS):
        fake.wait_for_requests(n + 1)
        made = other.call("events/subscribe", sessionId=session_id, deltas=False, **after)
        fake.gate(str(n)).open()
        wanted = made["headSeq"] + 1
        other.wait_for(lambda frame, wanted=wanted: frame.event is not None and frame.event["seq"] >= wanted)  # type: ignore[misc]
        other.call("events/unsubscribe", subscriptionId=made["subscriptionId"])
        new = pushed(other, made["subscriptionId"])
        collected += new
        after = {"after": new[-1].value["params"]["cursor"]}
    server.finish(session_id, turn_id)
    last = other.call("events/subscribe", sessionId=session_id, **after)
    other.wait_event("turn.completed")
    collected += pushed(other, last["subscriptionId"])

    live = [frame for frame in server.frames if frame.event is not None]
    assert [frame.event_bytes for frame in collected] == [frame.event_bytes for frame in live]
    assert [frame.value["params"]["cursor"] for frame in collected] == [
        frame.value["params"]["cursor"] for frame in live
    ]


def test_second_subscription_gets_the_same_bytes_and_unsubscribing_stops_one_only(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(partial("one ") + wait_for("rest") + partial("two") + finish())
    session_id = server.create(workspace, subscribe={"deltas": False})
    turn_id = server.submit(session_id)
    fake.wait_for_requests(1)
    ids = [server.call("events/subscribe", sessionId=session_id)["subscriptionId"] for _ in range(3)]
    assert server.call("events/unsubscribe", subscriptionId=ids[2]) == {}
    stopped = len(pushed(server, ids[2]))

    fake.gate("rest").open()
    server.finish(session_id, turn_id)

    streams = [[frame.event_bytes for frame in pushed(server, identifier)] for identifier in ids]
    assert streams[0] == streams[1]
    assert [json.loads(event)["seq"] for event in streams[0]] == list(range(1, len(streams[0]) + 1))
    assert json.loads(streams[0][-1])["type"] == "turn.completed"
    assert len(streams[2]) == stopped
    assert server.refused("events/unsubscribe", subscriptionId=ids[2])["data"]["kind"] == "subscription_not_found"


def test_late_subscriber_gets_what_was_said_in_one_delta_from_the_start(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    said = "é😀 " * 200
    fake.script(partial(said, chunks=100) + wait_for("rest") + partial("rest", chunks=2) + finish())
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    server.wait_until(lambda: sum(len(d["text"]) for d in server.notifications("delta")) == len(said))

    late = server.call("events/subscribe", sessionId=session_id)["subscriptionId"]
    server.wait_for(
        lambda frame: frame.value.get("method") == "delta" and frame.value["params"]["subscriptionId"] == late
    )
    fake.gate("rest").open()
    server.finish(session_id, turn_id)

    deltas = server.notifications("delta", subscriptionId=late)
    assert (deltas[0]["offset"], deltas[0]["text"]) == (0, said)
    assert deltas[1]["offset"] == len(said.encode())
    assert "".join(delta["text"] for delta in deltas) == said + "rest"


def test_pages_forward_and_back_are_the_bytes_that_were_pushed(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(calls([("bash", {"command": "echo é"})], "first\u2028"), text("done é", usage=None))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id, "ü"))
    live = [frame for frame in server.frames if frame.event is not None]
    entries = [{"cursor": frame.value["params"]["cursor"], "event": frame.event} for frame in live]

    for limit in (1, 3, 7, 1_000):
        assert pages(server, session_id, "after", limit) == entries
        assert pages(server, session_id, "before", limit) == entries

    whole = server.answer_frame(server.send("events/read", sessionId=session_id))
    for frame in live:
        assert b'"event":' + frame.event_bytes + b"}" in whole.raw
    assert rebuilt(iter(entries), session_id) == whole.value["result"]["headCursor"] == entries[-1]["cursor"]


def pages(server: Server, session_id: str, direction: str, limit: int) -> list[dict[str, Any]]:
    """The whole log, page by page, in ascending order."""
    found: list[dict[str, Any]] = []
    place: dict[str, Any] = {}
    if direction == "before":
        place = {"before": server.call("session/get", sessionId=session_id)["cursor"]}
        found = server.log(session_id)[-1:]
    while True:
        page = server.call("events/read", sessionId=session_id, limit=limit, **place)
        if direction == "after":
            found += page["events"]
            place = {"after": page["nextCursor"]}
        else:
            found = page["events"] + found
            place = {"before": page["events"][0]["cursor"]} if page["events"] else {}
        if not page["hasMore"]:
            return found


def test_types_filter_passes_what_it_skips_and_reads_on_to_the_head(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text("done"))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))

    page = server.call("events/read", sessionId=session_id, types=["turn.queued"])
    none = server.call("events/read", sessionId=session_id, types=["no.such.type"])

    assert [entry["event"]["type"] for entry in page["events"]] == ["turn.queued"]
    assert page["nextCursor"] == page["headCursor"]
    assert (none["events"], none["nextCursor"], none["hasMore"]) == ([], none["headCursor"], False)


def test_read_waits_for_the_first_event_behind_its_cursor(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.script(text("done"))
    session_id = server.create(workspace)
    head = server.call("session/get", sessionId=session_id)["cursor"]
    waiting = server.send("events/read", sessionId=session_id, after=head, waitMs=30_000)
    assert server.call("events/read", sessionId=session_id, after=head, waitMs=1)["events"] == []
    assert not server.answered(waiting)

    server.submit(session_id)

    assert server.answer(waiting)["result"]["events"][0]["event"]["type"] == "turn.queued"


def test_cursor_of_the_start_and_of_the_head_are_where_a_subscription_may_begin(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(text("done"), text("more"))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    entries = server.log(session_id)
    digest_of_start = server.call("events/read", sessionId=session_id, before=entries[0]["cursor"])["nextCursor"]
    assert digest_of_start.startswith("0.")

    start = server.call("events/subscribe", sessionId=session_id, after=digest_of_start)["subscriptionId"]
    head = server.call("events/subscribe", sessionId=session_id, after=entries[-1]["cursor"])["subscriptionId"]
    server.finish(session_id, server.submit(session_id))

    now = server.log(session_id)
    assert [frame.event for frame in pushed(server, start)] == [entry["event"] for entry in now]
    assert [frame.event for frame in pushed(server, head)] == [entry["event"] for entry in now[len(entries) :]]


def test_another_process_follows_the_events_of_a_turn_it_does_not_run(
    start: Start, server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish())
    session_id = server.create(workspace)
    observer = start()
    observer.call("session/resume", sessionId=session_id, own="observe")
    observer.call("events/subscribe", sessionId=session_id)
    turn_id = server.submit(session_id)
    observer.wait_event("model.requested")
    waiting = observer.send("turn/wait", sessionId=session_id, turnId=turn_id)
    assert observer.call("turn/get", sessionId=session_id, turnId=turn_id)["turn"]["runner"] == "remote"

    fake.gate("rest").open()

    assert observer.answer(waiting)["result"]["turn"]["outcome"]["text"] == "half whole"
    server.wait_event("turn.completed")
    assert observer.events(session_id) == server.events(session_id)
    assert observer.notifications("delta") == []


def test_client_of_another_process_cancels_and_steers_the_running_turn(
    start: Start, server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish(), wait_for("never"))
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    fake.wait_for_requests(1)
    other = start()

    steered = other.call("turn/steer", sessionId=session_id, input=[{"type": "text", "text": "also this"}])
    fake.gate("rest").open()
    fake.wait_for_requests(2)
    other.call("turn/cancel", sessionId=session_id, turnId=turn_id)

    assert server.finish(session_id, turn_id)["status"] == "cancelled"
    assert fake.requests[1].body["messages"][-1]["content"] == "also this"
    assert server.wait_event("steer.delivered")["data"]["steerIds"] == [steered["steerId"]]


def test_a_view_holds_the_newest_items_and_pages_back(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.answer = lambda body: text(f"answer {len(body['messages']) // 2}")
    session_id = server.create(workspace)
    for number in range(1, 6):
        server.finish(session_id, server.submit(session_id, f"ask {number}"))

    newest = server.call("session/get", sessionId=session_id, view=True, limit=3)["view"]
    older = server.call("session/get", sessionId=session_id, view=True, limit=3, before=newest["items"][0]["cursor"])[
        "view"
    ]
    whole = server.call("session/get", sessionId=session_id, view=True)["view"]

    def kinds(view: dict[str, Any]) -> list[tuple[str, str]]:
        return [(item["kind"], item["data"].get("text") or item["data"]["input"][0]["text"]) for item in view["items"]]

    assert kinds(newest) == [("message", "answer 4"), ("user", "ask 5"), ("message", "answer 5")]
    assert kinds(older) == [("user", "ask 3"), ("message", "answer 3"), ("user", "ask 4")]
    assert (newest["hasMore"], older["hasMore"], whole["hasMore"]) == (True, True, False)
    assert len(whole["items"]) == 10
