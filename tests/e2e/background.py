"""Background processes as a client sees them: started by the model, found in the log, read by cursor."""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

from e2e.driver import Server
from fake.provider import FakeProvider, calls, text

STOPS_WELL = "exec 2> /dev/null; trap 'echo bye; exit 7' TERM; echo hello; touch began; while :; do sleep 0.05; done"
"""Says so when it is asked to end; bash would say that its `sleep` was terminated."""


def run(
    fake: FakeProvider, server: Server, session_id: str, *items: tuple[str, dict[str, Any]]
) -> list[dict[str, Any]]:
    """Have the model make these calls in one answer; the data of their results."""
    fake.script(calls(list(items)), text("ok"))
    turn = server.finish(session_id, server.submit(session_id))
    assert turn["status"] == "completed", turn
    log = [entry["event"] for entry in server.log(session_id, types=["tool.completed"])]
    return [event["data"] for event in log if event["turnId"] == turn["turnId"]]


def begin(fake: FakeProvider, server: Server, session_id: str, command: str, **arguments: Any) -> str:
    """Have the model start a command in the background; its process id."""
    (result,) = run(fake, server, session_id, ("bash", {"command": command, "background": True, **arguments}))
    assert result["outcome"] == "ok", result
    process_id: str = result["details"]["processId"]
    return process_id


def events_of(server: Server, session_id: str, process_id: str) -> list[dict[str, Any]]:
    """What the log has of a process."""
    types = ["process.started", "process.stop_requested", "process.exited"]
    events = [entry["event"] for entry in server.log(session_id, types=types)]
    return [event for event in events if event["data"]["processId"] == process_id]


def exit_of(server: Server, session_id: str, process_id: str) -> dict[str, Any]:
    """The data of its end, waited for."""

    def found() -> bool:
        return str(events_of(server, session_id, process_id)[-1]["type"]) == "process.exited"

    server.poll_until(found, what=f"the end of {process_id}")
    data: dict[str, Any] = events_of(server, session_id, process_id)[-1]["data"]
    return data


def stands(server: Server, session_id: str, process_id: str) -> dict[str, Any]:
    """A process as `process/list` has it."""
    listed = server.call("process/list", sessionId=session_id)["processes"]
    (process,) = [each for each in listed if each["processId"] == process_id]
    shown: dict[str, Any] = process
    return shown


def output(server: Server, session_id: str, process_id: str, *, offset: int = 0, length: int = 4096) -> bytes:
    """All bytes from `offset` on that can be had now, page by page."""
    got = b""
    while True:
        asked = {"offset": offset + len(got), "length": length, "encoding": "base64"}
        page = server.call("process/read", sessionId=session_id, processId=process_id, **asked)
        assert page["offset"] == offset + len(got)
        got += b64decode(page["data"])
        assert page["nextOffset"] == offset + len(got)
        if not page["hasMore"]:
            return got


def until_said(server: Server, session_id: str, process_id: str, said: bytes) -> None:
    """Until its output begins so."""
    server.poll_until(lambda: output(server, session_id, process_id).startswith(said), what=f"{said!r} of {process_id}")


def files_left(home: Path) -> list[Path]:
    """What lies where background processes write."""
    return [path for path in (home / "store" / "output").rglob("*") if path.is_file()]
