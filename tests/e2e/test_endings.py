"""How a server ends: at the end of input, at SIGTERM, without its client or its output; and how oddly it may begin."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.checks import TERMINALS
from e2e.driver import Server, alive, compatible, environment, line, said
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, finish, partial, stall, status, text, wait_for

IN_BOUNDS_S = 5.0
"""Wall time for the exit on a busy machine; the published bound of the server itself is 1 s."""

Phase = Callable[[Server, Path, FakeProvider], str]


def idle(server: Server, workspace: Path, fake: FakeProvider) -> str:
    fake.script(text("ok"))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    return session_id


def streaming(server: Server, workspace: Path, fake: FakeProvider) -> str:
    fake.script(partial("half a text") + stall())
    session_id = server.create(workspace)
    server.submit(session_id)
    server.wait_for(lambda frame: b'"method":"delta"' in frame.raw)
    return session_id


def waiting_for_the_first_byte(server: Server, workspace: Path, fake: FakeProvider) -> str:
    fake.script(stall())
    session_id = server.create(workspace)
    server.submit(session_id)
    fake.wait_for_requests(1)
    return session_id


def tool_running(server: Server, workspace: Path, fake: FakeProvider) -> str:
    command = "trap '' TERM; setsid sleep 1000 & echo up > up; sleep 1000"
    fake.script(calls([("bash", {"command": command})]))
    session_id = server.create(workspace)
    server.submit(session_id)
    server.wait_event("tool.started")
    server.poll_until(lambda: (workspace / "up").exists(), what="the tool is up")
    return session_id


def reaper_stopped(server: Server, workspace: Path, fake: FakeProvider) -> str:
    command = "kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat) $PPID; echo up > up; sleep 1000"
    fake.script(calls([("bash", {"command": command})]))
    session_id = server.create(workspace)
    server.submit(session_id)
    server.poll_until(lambda: (workspace / "up").exists(), what="the tool is up")
    return session_id


def retry_wait(server: Server, workspace: Path, fake: FakeProvider) -> str:
    fake.script(status(503, "busy", {"retry-after": "60"}))
    session_id = server.create(workspace)
    server.submit(session_id)
    server.wait_event("model.retried")
    return session_id


def queued_behind(server: Server, workspace: Path, fake: FakeProvider) -> str:
    session_id = streaming(server, workspace, fake)
    server.submit(session_id, "second")
    return session_id


PHASES = [idle, streaming, waiting_for_the_first_byte, tool_running, reaper_stopped, retry_wait, queued_behind]
ENDINGS: dict[str, Callable[[Server], None]] = {
    "EOF": Server.close_stdin,
    "SIGTERM": Server.terminate,
    "SIGHUP": lambda server: server.signal(signal.SIGHUP),
}


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__)
@pytest.mark.parametrize("ending", ["EOF", pytest.param("SIGTERM", marks=pytest.mark.slow)])
def test_server_ends_well_in_each_phase_and_the_log_is_settled(
    start: Start, server: Server, workspace: Path, fake: FakeProvider, phase: Phase, ending: str
) -> None:
    session_id = phase(server, workspace, fake)
    below = server.descendants()

    ENDINGS[ending](server)

    assert server.wait(IN_BOUNDS_S) == 0, server.stderr
    server.poll_until(lambda: not any(alive(pid) for pid in below), what="no child is left")
    observer = start()
    events = [entry["event"] for entry in observer.log(session_id)]
    ends = [event for event in events if event["type"] in TERMINALS]
    if phase is idle:
        assert [event["type"] for event in ends] == ["turn.completed"]
    else:
        assert [event["type"] for event in ends] == ["turn.cancelled"]
        assert ends[0]["data"]["cause"] == "disconnect"
    view = observer.call("session/get", sessionId=session_id)["session"]
    assert "runningTurnId" not in view
    assert not view.get("owner", {}).get("alive", False)


def test_process_goes_on_from_a_settled_log(start: Start, server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = tool_running(server, workspace, fake)
    assert server.stop(IN_BOUNDS_S) == 0
    fake.script(text("went on"))

    other = start()
    turn = other.finish(session_id, other.submit(session_id, "go on"))

    assert turn["outcome"]["text"] == "went on"


def test_sighup_is_the_end_too(start: Start, server: Server, workspace: Path, fake: FakeProvider) -> None:
    session_id = streaming(server, workspace, fake)

    ENDINGS["SIGHUP"](server)

    assert server.wait(IN_BOUNDS_S) == 0
    assert start().call("turn/list", sessionId=session_id)["turns"][0]["status"] == "cancelled"


def test_drain_lets_the_running_turn_end(start: Start, workspace: Path, fake: FakeProvider) -> None:
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish())
    server = start(args=["--on-disconnect", "drain"])
    session_id = server.create(workspace)
    server.submit(session_id)
    server.wait_for(lambda frame: b'"method":"delta"' in frame.raw)

    server.close_stdin()
    fake.gate("rest").open()

    assert server.wait() == 0
    turn = start().call("turn/list", sessionId=session_id)["turns"][0]
    assert turn["outcome"] == {"status": "completed", "text": "half whole"}


@pytest.mark.parametrize("mode", ["cancel", "drain"])
def test_shutdown_is_answered_once_nothing_runs_and_then_the_process_ends(
    start: Start, server: Server, workspace: Path, fake: FakeProvider, mode: str
) -> None:
    fake.script(partial("half ") + wait_for("rest") + partial("whole") + finish())
    session_id = server.create(workspace)
    turn_id = server.submit(session_id)
    server.wait_for(lambda frame: b'"method":"delta"' in frame.raw)

    asked = server.send("shutdown", mode=mode)
    if mode == "drain":
        refused = server.refused("turn/submit", sessionId=session_id, input=said("x"))
        assert refused["data"]["kind"] == "shutting_down"
        fake.gate("rest").open()

    answered = server.answer_frame(asked)
    assert server.wait(IN_BOUNDS_S) == 0
    end = server.wait_event("turn.completed" if mode == "drain" else "turn.cancelled")
    assert end["turnId"] == turn_id
    assert server.wait_for(lambda frame: frame.event == end).index < answered.index


# --- odd beginnings -----------------------------------------------------------------------------------------------


@contextmanager
def bare(home: Path, fake: FakeProvider, *args: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A server on descriptors of the test's choice."""
    command = [sys.executable, "-m", "hames", "serve", *args]
    env = environment(home, {**compatible(fake.url)})
    process = subprocess.Popen(command, env=env, cwd=home, **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def opening(workspace: Path) -> bytes:
    """A session `s1` and a turn `t1` in it."""
    return (
        line(1, "initialize", protocolVersions=["1"], clientInfo={"name": "file", "version": "1"})
        + line(2, "session/create", workspace=str(workspace), sessionId="s1", subscribe={})
        + line(3, "turn/submit", sessionId="s1", turnId="t1", input=said("x"))
    )


def test_dev_null_as_input_ends_at_once_and_says_nothing(home: Path, fake: FakeProvider) -> None:
    with bare(home, fake, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=IN_BOUNDS_S)

        assert (process.returncode, out) == (0, b"")
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("policy", ["cancel", "drain"])
def test_regular_file_as_input_is_answered_whole(
    home: Path, workspace: Path, fake: FakeProvider, tmp_path: Path, policy: str, start: Start
) -> None:
    """Also where the end comes before the store is open. A turn that was not started yet stays queued; a drain waits
    for it too."""
    requests, answers = tmp_path / "requests", tmp_path / "answers"
    requests.write_bytes(opening(workspace) + line(4, "ping").removesuffix(b"\n"))
    fake.answer = lambda _: text("ok")

    with (
        requests.open("rb") as stdin,
        answers.open("wb") as stdout,
        bare(home, fake, "--on-disconnect", policy, stdin=stdin, stdout=stdout) as process,
    ):
        assert process.wait(IN_BOUNDS_S * 2) == 0

    frames = [json.loads(each) for each in answers.read_bytes().splitlines()]
    responses = {frame["id"]: frame for frame in frames if "id" in frame}
    assert sorted(frame["id"] for frame in frames if "id" in frame) == [1, 2, 3, 4]
    if policy == "drain":
        assert all("result" in response for response in responses.values())
    if "result" in responses[3]:
        turn = start().call("turn/get", sessionId="s1", turnId="t1")["turn"]
        # Where a second did not do, the log holds the intent, and who comes next settles it.
        ends = ("completed",) if policy == "drain" else ("queued", "completed", "cancelled")
        assert turn["status"] in ends or (policy == "cancel" and "cancelRequested" in turn)
    else:
        assert responses[3]["error"]["data"]["kind"] in ("shutting_down", "session_not_found")


def test_output_that_is_closed_ends_the_server(home: Path, workspace: Path, fake: FakeProvider, start: Start) -> None:
    fake.script(partial("some ", chunks=2) + wait_for("more") + partial("more " * 2_000, chunks=2_000) + stall())
    with bare(home, fake, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(opening(workspace))
        process.stdin.flush()
        line_out = b""
        while b'"method":"delta"' not in line_out:
            line_out = process.stdout.readline()
            assert line_out, "the server ended"
            assert b'"type":"turn.failed"' not in line_out, line_out

        process.stdout.close()
        fake.gate("more").open()

        assert process.wait(IN_BOUNDS_S) == 0
    assert start().call("turn/get", sessionId="s1", turnId="t1")["turn"]["status"] == "cancelled"


CLOSED = {"stdin": "<&-", "stdout": ">&-", "stderr": "2>&-", "all": "<&- >&- 2>&-"}


@pytest.mark.parametrize("which", CLOSED)
def test_closed_descriptors_are_no_reason_to_fail(home: Path, fake: FakeProvider, which: str) -> None:
    script = f'exec "$@" {CLOSED[which]}'
    command = ["sh", "-c", script, "sh", sys.executable, "-m", "hames", "serve"]
    data = line(1, "initialize", protocolVersions=["1"], clientInfo={"name": "c", "version": "1"}) + line(2, "ping")

    done = subprocess.run(command, input=data, capture_output=True, env=environment(home), cwd=home, timeout=30)

    assert done.returncode == 0, done.stderr
    answers = {json.loads(each)["id"] for each in done.stdout.splitlines()}
    assert answers == ({1, 2} if which == "stderr" else set())


def test_deleted_working_directory_does_not_matter(
    start: Start, workspace: Path, fake: FakeProvider, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    fake.script(calls([("bash", {"command": "pwd"})]), text("ok"))

    server = start(via=["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", str(gone)])
    session_id = server.create(workspace)
    turn = server.finish(session_id, server.submit(session_id))

    assert turn["status"] == "completed"
    (call,) = server.events(session_id, "tool.completed")
    assert str(workspace.resolve()) in call["data"]["text"]


def test_bare_environment_does_not_matter(start: Start, workspace: Path, fake: FakeProvider) -> None:
    fake.script(calls([("bash", {"command": "echo up"})]), text("ok"))

    server = start(env=dict.fromkeys(("HOME", "TERM", "PATH", "LANG", "LC_ALL", "USER", "TMPDIR")))
    session_id = server.create(workspace)
    turn = server.finish(session_id, server.submit(session_id))

    assert turn["status"] == "completed"
    assert server.events(session_id, "tool.completed")[0]["data"]["outcome"] == "ok"


# --- the client dies ----------------------------------------------------------------------------------------------

CLIENT = """
import os, subprocess, sys
read, write = os.pipe()
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
server = subprocess.Popen([sys.executable, "-m", "hames", "serve"], stdin=read, stdout=out)
holder = subprocess.Popen(["sleep", "1000"], pass_fds=[write])
os.write(write, sys.stdin.buffer.read())
print(server.pid, holder.pid, flush=True)
server.wait()
"""
"""A client that starts the server and another process, which keeps the pipe open when the client is killed."""


def test_killed_client_ends_the_server_though_another_process_holds_the_pipe(
    home: Path, workspace: Path, fake: FakeProvider, tmp_path: Path, start: Start
) -> None:
    fake.script(calls([("bash", {"command": "echo up > up; sleep 1000"})]))
    env = environment(home, {**compatible(fake.url)})
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(tmp_path / "out")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=env,
        cwd=home,
    )
    assert client.stdin is not None
    assert client.stdout is not None
    client.stdin.write(opening(workspace))
    client.stdin.close()
    server_pid, holder_pid = map(int, client.stdout.readline().split())
    watcher = start()
    try:
        watcher.poll_until(lambda: (workspace / "up").exists(), what="the tool is up")
        os.kill(client.pid, signal.SIGKILL)
        client.wait()

        watcher.poll_until(lambda: not alive(server_pid), what="the server has ended")
        assert alive(holder_pid)
    finally:
        client.stdout.close()
        os.kill(holder_pid, signal.SIGKILL)
    turn = watcher.call("turn/get", sessionId="s1", turnId="t1")["turn"]
    assert (turn["status"], turn["outcome"]["cause"]) == ("cancelled", "disconnect")
