"""Background processes: started by a turn, owned by the session, listed, read by a byte cursor and stopped."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from e2e.background import STOPS_WELL, begin, events_of, exit_of, files_left, output, run, stands, until_said
from e2e.driver import Server
from e2e.fixtures import Start
from engine.rules import check_log
from fake.provider import FakeProvider, calls, text

MIB = 2**20


def test_a_process_outlives_its_turn_and_ends_when_a_client_stops_it(
    server: Server, workspace: Path, home: Path, fake: FakeProvider
) -> None:
    session_id = server.create(workspace)
    process_id = begin(fake, server, session_id, STOPS_WELL, name="watch")
    until_said(server, session_id, process_id, b"hello\n")

    process = stands(server, session_id, process_id)
    assert (process["status"], process["runner"], process["name"]) == ("running", "local", "watch")
    assert process["command"] == STOPS_WELL
    stopped = server.call("process/stop", sessionId=session_id, processId=process_id)["process"]

    assert (stopped["status"], stopped["why"], stopped["exitCode"]) == ("exited", "stopped", 7)
    assert output(server, session_id, process_id) == b"hello\nbye\n"
    started, asked, exited = events_of(server, session_id, process_id)
    assert asked["data"]["cause"] == "client"
    assert exited["data"]["originTurnId"] == started["turnId"]
    assert "turnId" not in exited
    kept = server.call("artifact/read", sessionId=session_id, artifact=exited["data"]["artifact"]["artifact"])
    assert kept["text"] == "hello\nbye\n"
    again = server.call("process/stop", sessionId=session_id, processId=process_id)["process"]
    assert again == stopped
    assert files_left(home) == []
    check_log([entry["event"] for entry in server.log(session_id)])


def test_its_start_is_durable_between_the_start_and_the_result_of_the_call(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    session_id = server.create(workspace)
    process_id = begin(fake, server, session_id, "sleep 600")

    types = [event["type"] for event in server.events(session_id)]

    at = types.index("process.started")
    assert types[at - 1] == "tool.started"
    assert types[at + 1] == "tool.completed"
    assert (
        events_of(server, session_id, process_id)[0]["data"]["callId"]
        == server.events(session_id, "tool.started")[0]["data"]["callId"]
    )


def test_a_command_that_ends_at_once_is_told_with_the_answer(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    session_id = server.create(workspace)

    (result,) = run(
        fake, server, session_id, ("bash", {"command": "echo no such port >&2; exit 3", "background": True})
    )

    assert "no such port" in result["text"]
    assert "ended with exit code 3." in result["text"]
    assert (result["details"]["why"], result["details"]["exitCode"]) == ("exited", 3)


def test_a_command_that_cannot_be_started_is_an_error_of_the_call(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    session_id = server.create(workspace)

    (result,) = run(fake, server, session_id, ("bash", {"command": "true", "background": True, "cwd": "gone"}))

    assert (result["outcome"], result["error"]["kind"]) == ("error", "not_found")
    (process,) = server.call("process/list", sessionId=session_id)["processes"]
    assert (process["why"], process["error"]["kind"]) == ("not_started", "not_found")


def test_the_model_finds_reads_and_stops_it_by_its_name(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    process_id = begin(fake, server, session_id, STOPS_WELL, name="web")
    until_said(server, session_id, process_id, b"hello\n")

    (listed,) = run(fake, server, session_id, ("process", {"action": "list"}))
    (read,) = run(fake, server, session_id, ("process", {"action": "read", "process": "web", "offset": 2}))
    (tail,) = run(fake, server, session_id, ("process", {"action": "read", "process": process_id}))
    (stopped,) = run(fake, server, session_id, ("process", {"action": "stop", "process": "web"}))
    (late,) = run(fake, server, session_id, ("process", {"action": "read", "process": "web", "offset": 6}))

    assert process_id in listed["text"]
    assert read["text"].startswith("llo\n[")
    assert read["details"]["nextOffset"] == 6
    assert tail["text"].startswith("hello\n[")
    assert stopped["details"]["why"] == "stopped"
    assert late["text"].startswith("bye\n[")


def test_the_model_can_wait_for_output_and_for_the_end(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    begin(fake, server, session_id, "until [ -e go ]; do sleep 0.01; done; echo done", name="job")
    wait = {"action": "read", "process": "job", "offset": 0, "wait": 20_000}
    fake.script(calls([("process", wait)]), text("ok"))

    turn_id = server.submit(session_id)
    server.wait_event("tool.started", start=len(server.frames) - 1, tool="process")
    (workspace / "go").touch()
    server.finish(session_id, turn_id)

    assert server.events(session_id, "tool.completed")[-1]["data"]["text"].startswith("done\n[")


def test_output_that_looks_like_an_error_is_none(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    process_id = begin(fake, server, session_id, "echo 'Error (not_found): gone.'; sleep 600")

    (read,) = run(fake, server, session_id, ("process", {"action": "read", "process": process_id, "wait": 20_000}))

    assert read["outcome"] == "ok"
    assert "Error (not_found): gone." in read["text"]
    assert not read["text"].startswith("Error (")


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"action": "read"}, "no_process_named"),
        ({"action": "read", "process": "p-none"}, "process_not_found"),
        ({"action": "stop", "process": "p-none"}, "process_not_found"),
    ],
)
def test_the_model_is_told_what_it_named_wrong(
    server: Server, workspace: Path, fake: FakeProvider, arguments: dict[str, str], kind: str
) -> None:
    session_id = server.create(workspace)

    (result,) = run(fake, server, session_id, ("process", arguments))

    assert result["error"]["kind"] == kind


def test_two_that_run_cannot_have_one_name_and_no_more_run_than_may(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    server = start(env={"HAMES_LIMIT_PROCESSES": "2"})
    session_id = server.create(workspace)
    sleep = {"command": "sleep 600", "background": True}

    twins = run(fake, server, session_id, *[("bash", {**sleep, "name": "a"})] * 2)
    more = run(fake, server, session_id, *[("bash", sleep)] * 2)

    assert sorted(result.get("error", {}).get("kind", "ok") for result in twins) == ["name_taken", "ok"]
    assert sorted(result.get("error", {}).get("kind", "ok") for result in more) == ["ok", "too_many"]
    for process in server.call("process/list", sessionId=session_id)["processes"]:
        server.call("process/stop", sessionId=session_id, processId=process["processId"])
    assert begin(fake, server, session_id, "sleep 600", name="a")


def test_a_cursor_means_the_same_while_it_runs_after_its_end_and_in_another_server(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    wrote = "".join(f"{n} é𝄞\n" for n in range(3000)).encode()
    (workspace / "wrote").write_bytes(wrote)
    server = start()
    session_id = server.create(workspace)
    process_id = begin(fake, server, session_id, "cat wrote; until [ -e go ]; do sleep 0.01; done; echo end")
    server.poll_until(lambda: stands(server, session_id, process_id)["outputBytes"] == len(wrote), what="all of it")

    while_it_runs = output(server, session_id, process_id, offset=1001, length=777)
    (workspace / "go").touch()
    assert exit_of(server, session_id, process_id)["why"] == "exited"
    after = output(server, session_id, process_id, offset=1001, length=777)
    server.stop()
    second = start()

    assert while_it_runs == wrote[1001:]
    assert after == wrote[1001:] + b"end\n"
    assert output(second, session_id, process_id, offset=1001, length=999) == after
    assert stands(second, session_id, process_id)["status"] == "exited"
    pages, offset = "", 0
    while offset < len(wrote):
        asked = {"sessionId": session_id, "processId": process_id, "offset": offset, "length": 1001}
        page = second.call("process/read", **asked)
        pages, offset = pages + page["text"], page["nextOffset"]
    assert pages.encode() == wrote + b"end\n"


def test_a_read_waits_for_output_and_ends_with_the_process(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    process_id = begin(fake, server, session_id, "until [ -e go ]; do sleep 0.01; done; echo now")
    asked = {"sessionId": session_id, "processId": process_id, "waitMs": 60_000}

    waiting = server.send("process/read", **asked)
    server.call("ping")
    assert not server.answered(waiting)
    (workspace / "go").touch()

    assert server.answer(waiting)["result"]["text"] == "now\n"
    exit_of(server, session_id, process_id)
    at_the_end = server.call("process/read", **asked, offset=4)
    assert (at_the_end["text"], at_the_end["hasMore"]) == ("", False)


@pytest.mark.slow
def test_a_flood_costs_no_memory_and_leaves_the_newest_bytes(
    start: Start, workspace: Path, home: Path, fake: FakeProvider
) -> None:
    server = start(env={"HAMES_LIMIT_PROCESS_OUTPUT_BYTES": str(4 * MIB)})
    session_id = server.create(workspace)
    run(fake, server, session_id, ("bash", {"command": "true"}))
    before = server.reset_peak()

    flood = "until [ -e go ]; do sleep 0.01; done; yes | head -c 200000000; touch done; sleep 600"
    process_id = begin(fake, server, session_id, flood)
    (workspace / "go").touch()
    server.poll_until((workspace / "done").exists, 120, "200 MB")
    server.poll_until(lambda: stands(server, session_id, process_id)["outputBytes"] == 200_000_000, what="all of it")
    on_disk = sum(path.stat().st_size for path in files_left(home))
    page = server.call("process/read", sessionId=session_id, processId=process_id, offset=0)
    server.call("process/stop", sessionId=session_id, processId=process_id)

    assert server.peak_bytes() - before < 24 * MIB
    assert 4 * MIB <= on_disk <= 5 * MIB
    assert page["offset"] == page["skippedBytes"] == 200_000_000 - on_disk
    size = exit_of(server, session_id, process_id)["artifact"]["sizeBytes"]
    assert 4 * MIB <= size <= 5 * MIB
    assert output(server, session_id, process_id, offset=200_000_000 - 4) == b"y\ny\n"


def test_what_it_leaves_behind_ends_with_it_and_holds_up_nobody(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    session_id = server.create(workspace)

    process_id = begin(fake, server, session_id, "(setsid sleep 600 &); sleep 600 & echo said")

    exited = exit_of(server, session_id, process_id)
    assert (exited["why"], exited["exitCode"], exited["killed"]) == ("exited", 0, 2)
    assert output(server, session_id, process_id) == b"said\n"


def test_its_lifetime_ends_it(start: Start, workspace: Path, fake: FakeProvider) -> None:
    server = start(env={"HAMES_LIMIT_PROCESS_LIFETIME_MS": "700", "HAMES_LIMIT_PROCESS_START_MS": "0"})
    session_id = server.create(workspace)

    process_id = begin(fake, server, session_id, "sleep 600")

    assert exit_of(server, session_id, process_id)["why"] == "limit"


def test_a_stop_that_is_not_waited_for_stands(start: Start, workspace: Path, fake: FakeProvider) -> None:
    server = start(env={"HAMES_LIMIT_TIMEOUT_GRACE_MS": "30000"})
    session_id = server.create(workspace)
    command = "trap '' TERM; echo on; until [ -e go ]; do sleep 0.02; done; exit 5"
    process_id = begin(fake, server, session_id, command)
    until_said(server, session_id, process_id, b"on\n")

    asked = server.call("process/stop", sessionId=session_id, processId=process_id, timeoutMs=0)["process"]
    (workspace / "go").touch()

    assert asked["status"] == "stopping"
    assert asked["stopRequested"]["cause"] == "client"
    exited = exit_of(server, session_id, process_id)
    assert (exited["why"], exited["exitCode"]) == ("stopped", 5)


def test_a_process_that_is_not_there_is_refused_by_its_own_kind(server: Server, workspace: Path) -> None:
    session_id = server.create(workspace)

    for method in ("process/read", "process/stop"):
        error = server.refused(method, sessionId=session_id, processId="p-none")
        assert error["data"]["kind"] == "process_not_found"
    assert server.call("process/list", sessionId=session_id)["processes"] == []


def test_a_turn_that_is_cancelled_ends_only_what_its_model_was_not_told_of(
    start: Start, workspace: Path, fake: FakeProvider
) -> None:
    server = start(env={"HAMES_LIMIT_PROCESS_START_MS": "10000"})
    session_id = server.create(workspace)
    fake.script(calls([("bash", {"command": STOPS_WELL, "background": True})]))
    turn_id = server.submit(session_id)
    process_id = server.wait_event("process.started")["data"]["processId"]
    until_said(server, session_id, process_id, b"hello\n")

    server.call("turn/cancel", sessionId=session_id, turnId=turn_id)
    assert server.finish(session_id, turn_id)["status"] == "cancelled"

    log = [entry["event"] for entry in server.log(session_id)]
    types = [event["type"] for event in log]
    assert types.index("process.exited") < types.index("turn.cancelled")
    assert exit_of(server, session_id, process_id)["why"] == "cancelled"


def test_a_cancel_after_the_answer_leaves_it_running(server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = server.create(workspace)
    sleep = calls([("bash", {"command": "touch busy; sleep 600"})])
    fake.script(calls([("bash", {"command": "sleep 600", "background": True})]), sleep)
    turn_id = server.submit(session_id)
    process_id = server.wait_event("process.started")["data"]["processId"]
    server.poll_until((workspace / "busy").exists, what="the second call")

    server.call("turn/cancel", sessionId=session_id, turnId=turn_id)
    assert server.finish(session_id, turn_id)["status"] == "cancelled"

    assert stands(server, session_id, process_id)["status"] == "running"


def test_a_strict_session_has_it_where_it_is_named_and_not_else(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    strict = {"mode": "strict", "model": "compatible/fake-model"}
    plain = server.create(workspace, **strict)
    named = server.create(workspace, **strict, tools=["bash", "process"])

    (refused,) = run(fake, server, plain, ("bash", {"command": "true", "background": True}))
    process_id = begin(fake, server, named, "sleep 600")

    assert refused["error"]["kind"] == "invalid_arguments"
    assert stands(server, named, process_id)["status"] == "running"


@pytest.mark.parametrize("sandbox", ["contained", "landlock"])
def test_a_confined_session_has_them_confined(
    start: Start, workspace: Path, home: Path, fake: FakeProvider, sandbox: str
) -> None:
    server = start(env={"HAMES_BUBBLEWRAP": os.environ.get("HAMES_BUBBLEWRAP")})
    answer = server.ask("session/create", workspace=str(workspace), sandbox=sandbox, subscribe={})
    if "error" in answer:
        assert answer["error"]["data"]["kind"] == "containment_unavailable"
        return
    session_id = answer["result"]["session"]["sessionId"]
    command = f"trap 'exit 7' TERM; ls {home}/store/output; touch here; echo hello; while :; do sleep 0.05; done"

    process_id = begin(fake, server, session_id, command)
    server.poll_until(lambda: b"hello\n" in output(server, session_id, process_id), what="its output")
    stopped = server.call("process/stop", sessionId=session_id, processId=process_id)["process"]

    assert (stopped["why"], stopped["exitCode"]) == ("stopped", 7)
    assert session_id.encode() not in output(server, session_id, process_id)
    assert (workspace / "here").exists()


def test_a_key_of_ours_is_not_kept_of_what_it_writes(start: Start, workspace: Path, fake: FakeProvider) -> None:
    key = "sk-very-secret-key-0001"
    server = start(env={"HAMES_COMPATIBLE_API_KEY": key})
    session_id = server.create(workspace)
    (workspace / "a").write_text(f"<{key[:9]}")
    (workspace / "b").write_text(f"{key[9:]}>")

    process_id = begin(fake, server, session_id, f"cat a; sleep 0.2; cat b; : {key}")
    exit_of(server, session_id, process_id)

    assert output(server, session_id, process_id) == b"<[redacted]>"
    assert key not in str([event for event in server.events(session_id) if event["type"].startswith("process.")])
