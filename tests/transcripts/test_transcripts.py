"""The published transcripts, held against the schemas, the server and the Python client."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.checks import check_shape, strict_frame
from e2e.driver import Server
from hames.protocol.jsontext import dumps
from transcripts.player import Player, read, write
from transcripts.scripts import SCRIPTS

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "protocol" / "transcripts"


@pytest.fixture
def player(tmp_path: Path) -> Iterator[Player]:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    servers: list[Server] = []

    def start() -> Server:
        server = Server(home, env={"HAMES_MODEL": "offline"}, initialize=False)
        servers.append(server)
        return server

    yield Player(start, workspace)
    for server in servers:
        server.kill()


def test_every_script_has_its_transcript() -> None:
    assert sorted(path.stem for path in TRANSCRIPTS.glob("*.jsonl")) == sorted(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_server_says_what_its_transcript_says(name: str, player: Player) -> None:
    path = TRANSCRIPTS / f"{name}.jsonl"
    if os.environ.get("HAMES_REWRITE"):
        player.play(SCRIPTS[name])
        write(path, player.recorded)
        return

    player.play(read(path))

    assert player.differences == []


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_client_of_a_transcript_does_what_its_script_does(name: str) -> None:
    def without_values(line: dict[str, Any]) -> Any:
        frame = line.get("client")
        return (frame["id"], frame["method"]) if isinstance(frame, dict) else line

    kept = [without_values(line) for line in read(TRANSCRIPTS / f"{name}.jsonl") if "server" not in line]

    assert kept == [without_values(line) for line in SCRIPTS[name]]


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_frame_of_a_transcript_fits_its_schema(name: str) -> None:
    methods: dict[Any, tuple[str, int]] = {}
    for line in read(TRANSCRIPTS / f"{name}.jsonl"):
        if isinstance(line.get("client"), dict):
            methods[line["client"]["id"]] = (line["client"]["method"], 0)
        if "server" in line:
            check_shape(strict_frame(dumps(line["server"])), methods)
