"""A session from its first event to after a crash, with the offline model: no key, no network, nothing left behind.

With `HAMES_MODEL` in the environment, like `anthropic/<model>`, and what that provider needs, that model does the work.

First a turn mends a project until its test passes. Then the server is killed in the middle of a turn; the client
starts another on the same store, and the turn goes on. At the end the log is read again and compared with what was
streamed. Exit code 0 if all of that held.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anyio

from hames_client import HamesClient, Session

Event = dict[str, Any]

LIMIT_S = 55
"""The whole demonstration; it takes a few seconds."""

MODEL_LIMIT_S = 600
"""With a model that thinks."""

OURS = ("HAMES_HOME", "HAMES_CONFIG", "HAMES_SESSION", "HAMES_CALL")
"""Variables that say where things are: the demonstration has its own."""

TERMINALS = ("turn.completed", "turn.failed", "turn.cancelled")

CODE = 'def greet(name):\n    return "Hello " + nme + "!"\n'
TEST = """import unittest

from greeting import greet


class GreetTest(unittest.TestCase):
    def test_greets_by_name(self):
        self.assertEqual(greet("Ada"), "Hello, Ada!")
"""

MEND = r"""
say The test is red. Let me look at the code.
call read {"path": "greeting.py"}
expect def greet
call bash {"command": "python3 -B -m unittest"}
expect FAILED
say A name is misspelt.
call edit {"path": "greeting.py", "oldText": "nme", "newText": "name"}
call bash {"command": "python3 -B -m unittest"}
expect FAILED
say It runs now, but the comma is missing.
call edit {"path": "greeting.py", "oldText": "\"Hello \"", "newText": "\"Hello, \""}
call bash {"command": "python3 -B -m unittest"}
expect OK
say Mended: the test passes.
"""
"""What the offline model plays: a model would find these steps itself. `expect` fails if a tool did not say so."""

RELEASE = """
call bash {"command": "echo released >> releases.txt; cat releases.txt"}
say Announcing the release ...
wait 1500
say Done: released once.
"""
"""The server is killed in the `wait`, when the command has run already."""


ASKED = {
    MEND: "The test of this project fails: `python3 -B -m unittest`. Mend greeting.py; run it until it passes.",
    RELEASE: "Run `echo released >> releases.txt; cat releases.txt` once. Then announce it in three paragraphs.",
}
"""The same for a model."""


def main() -> int:
    """Run it; the exit code."""
    with tempfile.TemporaryDirectory(prefix="hames-demo-") as directory:
        try:
            faults = anyio.run(demonstrate, Path(directory))
        except Exception as error:  # the top of the program: whatever went wrong is the verdict
            faults = [f"{type(error).__name__}: {error}"]
    print(
        "\nVERDICT:",
        "; ".join(faults) if faults else "all of it held: mended, killed, resumed, nothing lost or doubled",
    )
    return 1 if faults else 0


async def demonstrate(directory: Path) -> list[str]:
    """Run both turns; what did not hold."""
    workspace = directory / "project"
    workspace.mkdir()
    (workspace / "greeting.py").write_text(CODE)
    (workspace / "test_greeting.py").write_text(TEST)
    model = os.environ.get("HAMES_MODEL", "offline")
    with anyio.fail_after(LIMIT_S if model == "offline" else MODEL_LIMIT_S):
        async with HamesClient.spawn(env=environment(directory, model), name="demo") as client:
            session = await client.create_session(workspace, model=model, title="demonstration")
            print(f"session {session.id}, server process {client.pid}, project {workspace}")
            return await play(client, session, workspace, {} if model == "offline" else ASKED)


async def play(client: HamesClient, session: Session, workspace: Path, asked: Mapping[str, str]) -> list[str]:
    """The two turns and the comparison; `asked` says what a model is asked in the place of a script."""
    first_pid = client.pid
    streamed: list[Event] = []
    async with session.events() as events:
        print("\n-- a turn mends the project ------------------------------------------")
        await session.submit(asked.get(MEND, MEND))
        mended = await follow(events, streamed)

        print("\n-- a turn is killed in the middle, and goes on -------------------------")
        await session.submit(asked.get(RELEASE, RELEASE))
        await follow(events, streamed, until="message.chunk")
        assert first_pid is not None
        print(f"       SIGKILL to server process {first_pid}; the last cursor is {events.cursor}")
        os.kill(first_pid, signal.SIGKILL)
        released = await follow(events, streamed)
    print(f"       finished by server process {client.pid}")

    stored = await read_all(session)
    tests = await anyio.run_process([sys.executable, "-B", "-m", "unittest", "-q"], cwd=workspace, check=False)
    numbers = [event["seq"] for event in streamed]
    print(f"\n{len(streamed)} events streamed, numbers {numbers[0]} to {numbers[-1]}; {len(stored)} in the log")
    checks = {
        "the first turn did not complete": mended["type"] == "turn.completed",
        "the project's test fails": tests.returncode == 0,
        "the second turn did not complete": released["type"] == "turn.completed",
        "the killed turn did not go on in a second attempt": released.get("attempt") == 2,
        "the command that had run was run again": (workspace / "releases.txt").read_text() == "released\n",
        "the server that was killed still answers": client.pid != first_pid,
        "the numbers have holes": numbers == list(range(1, len(numbers) + 1)),
        "what was streamed is not what is in the log": streamed == stored,
    }
    return [fault for fault, held in checks.items() if not held]


async def follow(events: Any, streamed: list[Event], *, until: str | None = None) -> Event:
    """Show events as they come, up to one of type `until` or the end of a turn."""
    async for event in events:
        streamed.append(event)
        line = told(event)
        if line is not None:
            print(f"{event['seq']:>5}  {event['type']:<18} {line}", flush=True)
        if event["type"] == until or event["type"] in TERMINALS:
            found: Event = event
            return found
    raise RuntimeError("the events ended before the turn did")


async def read_all(session: Session) -> list[Event]:
    """The log from its start, page by page."""
    found: list[Event] = []
    page: Mapping[str, Any] = {"nextCursor": None, "hasMore": True}
    while page["hasMore"]:
        page = await session.read_events(after=page["nextCursor"])
        found += [entry["event"] for entry in page["events"]]
    return found


def told(event: Event) -> str | None:
    """One short line about an event; None for bookkeeping."""
    data = event["data"]
    match event["type"]:
        case "turn.queued":
            return "the text is on disk"
        case "turn.started":
            return f"attempt {event['attempt']}"
        case "message.chunk":
            return str(data["text"].strip())
        case "message.completed":
            text = data["text"] if data["inContext"] else f"does not count: {data.get('cause')}"
            return str(text).replace("\n", f"\n{'':26}")
        case "tool.started":
            return str(data["summary"])
        case "tool.completed":
            return _result(data)
        case "file.changed":
            return f"{data['kind']} {data['path']}"
        case "log.recovered":
            return f"{data['action']}: {data['reason']}"
        case "turn.completed":
            return "the terminal"
        case "turn.failed" | "turn.cancelled":
            return str(data.get("error", data))
        case _:
            return None


def _result(data: Mapping[str, Any]) -> str:
    """The last line of a tool's result that is the tool's own, and its exit code."""
    lines = [line for line in data["text"].splitlines() if line.strip() and not line.startswith("[")]
    exit_code = data["details"].get("exitCode")
    code = "" if exit_code is None else f"exit code {exit_code}: "
    return code + (lines[-1].strip()[:80] if lines else "")


def environment(directory: Path, model: str) -> dict[str, str]:
    """For the server: everything of its own below `directory`, and this Python first in the path of its commands."""
    hidden = OURS if model != "offline" else [name for name in os.environ if name.startswith("HAMES_")]
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}
    path = os.pathsep.join([str(Path(sys.executable).parent), inherited.get("PATH", os.defpath)])
    own = {"HAMES_HOME": str(directory / "store"), "HAMES_CONFIG": str(directory / "config.json")}
    return {**inherited, **own, "PATH": path, "HAMES_LIMIT_CHUNK_MS": "100"}


if __name__ == "__main__":
    sys.exit(main())
