"""The published transcripts, played by the Python client: what it is answered, and each event once, in order."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from e2e.driver import environment
from hames_client import HamesClient, HamesError
from transcripts.player import Player, read, steps
from transcripts.scripts import SCRIPTS

TRANSCRIPTS = Path(__file__).resolve().parents[2] / "protocol" / "transcripts"


@pytest.fixture
def anyio_backend() -> str:
    """One loop: that the client runs on both is proved with its stub, and a spawned server knows of neither."""
    return "trio"


async def _answer(client: HamesClient, frame: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"jsonrpc": "2.0", "id": frame["id"]}
    try:
        answer["result"] = await client.request(frame["method"], frame["params"])
    except HamesError as error:
        answer["error"] = {"code": error.code, "message": error.message}
        if error.data:
            answer["error"]["data"] = dict(error.data)
    return answer


async def _act(client: HamesClient, player: Player, line: dict[str, Any], expected: list[Any]) -> None:
    match line:
        case {"do": "kill -9"}:
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
        case {"do": str(touch)} if touch.startswith("touch "):
            await anyio.Path(player.workspace, touch.removeprefix("touch ")).touch()
        case {"until": str(type_)}:
            async with client.session("s1").events() as events:
                async for event in events:
                    if event["type"] == type_:
                        player.learn(expected[-1]["params"]["cursor"], events.cursor)
                        break
        case {"client": {"method": str(method)} as frame} if method != "initialize":
            answers = [other for other in expected if "id" in other]
            player.compare(answers, [await _answer(client, player.put_in(frame))])


@pytest.mark.anyio
@pytest.mark.parametrize("name", SCRIPTS)
async def test_the_client_is_answered_as_the_transcript_says(name: str, tmp_path: Path) -> None:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    workspace.mkdir()
    home.mkdir()
    player = Player(None, workspace)
    lines = read(TRANSCRIPTS / f"{name}.jsonl")
    shaken = next(n for n, line in enumerate(lines) if "protocolVersion" in line.get("server", {}).get("result", {}))
    recorded = [frame["params"]["event"] for frame in (line.get("server", {}) for line in lines) if _is_event(frame)]

    with anyio.fail_after(60):
        command = [sys.executable, "-m", "hames", "serve"]
        env = environment(home, {"HAMES_MODEL": "offline"})
        async with HamesClient.spawn(command, env=env, name="editor", version="1.0") as client:
            for line, expected in steps(lines[shaken + 1 :]):
                await _act(client, player, line, expected)
            got = []
            if recorded:
                async with client.session("s1").events() as events:
                    async for event in events:
                        got.append(event)
                        if len(got) == len(recorded):
                            break

    assert player.differences == []
    assert [(event["seq"], event["type"]) for event in got] == [(event["seq"], event["type"]) for event in recorded]


def _is_event(frame: dict[str, Any]) -> bool:
    return frame.get("method") == "event"
