"""The pages of the documentation: what they show is played, what they link to is there."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from docs import pages
from e2e.driver import Server, descendants, environment
from hames import cli
from hames.core.limits import LIMITS
from hames.protocol.events import EVENTS, TERMINAL_TYPES
from hames.protocol.methods import METHODS, NOTIFICATIONS
from hames.sandbox.local import GUARANTEES

FIRST_SESSION = "protocol/first-session.md"


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_link_leads_to_a_place_that_is_there(page: str) -> None:
    lost = []
    for target in pages.links(page):
        if target.startswith(("http://", "https://")):
            continue
        path, _, fragment = target.partition("#")
        found = (pages.ROOT / page).parent / path if path else pages.ROOT / page
        if not found.exists() or (fragment and fragment not in pages.anchors(found)):
            lost.append(target)

    assert lost == []


def test_the_index_names_every_page() -> None:
    named = {target.partition("#")[0] for target in pages.links("protocol/README.md")}
    there = {path.name for path in (pages.ROOT / "protocol").glob("*.md")} - {"README.md"}

    assert there <= named


def test_the_first_session_goes_as_it_is_told(home: Path) -> None:
    servers = [Server(home, initialize=False)]
    try:
        _play(servers, home)
        assert servers[-1].stop() == 0
    finally:
        for server in servers:
            server.kill()


def _play(servers: list[Server], home: Path) -> None:
    """Send what is sent, and find what comes in the order in which it is told."""
    at = 0
    for name, body in pages.blocks(FIRST_SESSION):
        server = servers[-1]
        lines = body.splitlines()
        match name:
            case "restart":
                assert server.stop() == 0
                server.check()
                servers.append(Server(home, initialize=False))
                at = 0
            case "send":
                for line in lines:
                    request = json.loads(line)
                    server.expect(request["id"], request["method"])
                    server.write(line.encode() + b"\n")
            case "comes":
                for line in lines:
                    at = _after(server, line, at)
            case _:
                pytest.fail(f"nobody plays {name}")


def _after(server: Server, line: str, at: int) -> int:
    """Wait for a frame like `line`; where to look for the next one. An answer may come an event earlier or later."""
    shown = pages.pattern(line)
    is_answer = '"id":' in line[:40]
    frame = server.wait_for(
        lambda one: bool(shown.fullmatch(one.raw.decode().rstrip("\n"))), start=0 if is_answer else at, what=line
    )
    return at if is_answer else frame.index + 1


SCRIPT = "\n".join(["say one", "wait 600", "say two", 'call bash {"command": "echo three"}', "wait 600", "say four"])


@pytest.mark.slow
def test_the_client_that_is_shown_loses_and_repeats_nothing_when_its_servers_are_killed(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    [source] = [body for name, body in pages.blocks("protocol/cursors.md") if name == "follow"]
    client: dict[str, Any] = {}
    exec(source, client)
    set_up(monkeypatch, home, tmp_path / "bin")
    server = Server(home, env={"HAMES_MODEL": "offline"})
    server.create(workspace, "s1", subscribe={"deltas": False})
    server.submit("s1", SCRIPT)
    server.kill()
    shown: list[str] = []
    got: list[dict[str, Any]] = []
    deadly = ["model.requested", "tool.completed", "model.requested"]
    with closing(client["follow"]("s1", show=lambda _item, text: shown.append(text))) as following:
        for cursor, event in following:
            got.append({"cursor": cursor, "event": event})
            if deadly and event["type"] == deadly[0]:
                deadly.pop(0)
                kill_servers()
            if event["type"] in TERMINAL_TYPES:
                break

    with Server(home) as server:
        assert got == server.log("s1")
    assert (got[-1]["event"]["type"], deadly) == ("turn.completed", [])
    assert shown[-1] == "four"


def set_up(monkeypatch: pytest.MonkeyPatch, home: Path, shims: Path) -> None:
    """Let `hames` be the one under test, on the store of this test."""
    shims.mkdir()
    (shims / "hames").write_text(f'#!/bin/sh\nexec {sys.executable} -m hames "$@"\n')
    (shims / "hames").chmod(0o755)
    for name, value in environment(home, {"HAMES_MODEL": "offline"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{shims}{os.pathsep}{os.environ['PATH']}")


def kill_servers() -> None:
    """SIGKILL for each server that this process started."""
    for pid in descendants(os.getpid()):
        with suppress(OSError):  # one that just ended by itself
            if b"serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


PROTOCOL = [page for page in pages.PAGES if page.startswith("protocol/")]


@pytest.mark.parametrize("page", PROTOCOL)
def test_every_limit_method_event_and_command_that_is_named_exists(page: str) -> None:
    text = pages.text(page)
    words = set(re.findall(r"`([a-z]+[/.][a-z_]+)`", text))
    families = {name.partition(sign)[0] for sign, table in (("/", METHODS), (".", EVENTS)) for name in table}
    known = {*METHODS, *NOTIFICATIONS, *EVENTS, "rpc.discover"}

    assert set(re.findall(r"limits\.(\w+)", text)) - {"limits", "fallback", *KEPT, *LIMITS} == set()
    assert {word for word in words if re.split(r"[/.]", word)[0] in families} - known - OTHER == set()
    assert set(re.findall(r"`hames ([a-z]+)", text)) - set(cli.COMMANDS) == set()


KEPT = {name.removeprefix("limits.") for name in GUARANTEES if name.startswith("limits.")}
"""Guarantees on limits, which have the like names."""

OTHER = {"store.db", "events.jsonl", "events.keyed", "initialize.limits", "session.tools"}
"""Look like event types or methods, and are not."""
