"""The server in memory, driven by frames: what stands between it and a client that is slow, rude or gone."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from hames.app import make_host
from hames.config import load_config
from hames.server.memory import MemoryServer

pytestmark = pytest.mark.anyio


class Peer:
    """A client that takes frames only when it is told to."""

    def __init__(self, server: MemoryServer) -> None:
        self.server = server
        self._answers: dict[Any, Any] = {}
        self._last_id = 0
        self._rest = b""

    async def send(self, method: str, **params: Any) -> int:
        self._last_id += 1
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        await self.server.send(json.dumps(message).encode() + b"\n")
        return self._last_id

    async def answer(self, identifier: int | None) -> Any:
        """Take frames until this answer is among them."""
        while identifier not in self._answers:
            *lines, self._rest = (self._rest + await self.server.receive()).split(b"\n")
            for message in map(json.loads, lines):
                if "id" in message:
                    self._answers[message["id"]] = message
        return self._answers[identifier]

    async def call(self, method: str, **params: Any) -> Any:
        return (await self.answer(await self.send(method, **params)))["result"]

    async def create(self, workspace: Path) -> str:
        await self.call("initialize", protocolVersions=["1"], clientInfo={"name": "peer", "version": "1"})
        made = await self.call("session/create", workspace=str(workspace), model="offline", subscribe={})
        session_id: str = made["session"]["sessionId"]
        return session_id


@asynccontextmanager
async def serving(environ: Mapping[str, str]) -> AsyncIterator[Peer]:
    """A server that runs in the block, and a peer."""
    config = load_config(environ)
    server = MemoryServer(lambda tasks: make_host(config, environ, tasks, transport="memory", framing="line"))
    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.run)
            yield Peer(server)
            await server.close()
            await server.end(30)


def said(text: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text}]


async def test_a_client_that_takes_nothing_holds_up_no_turn_and_costs_bounded_memory(
    environ: Mapping[str, str], workspace: Path
) -> None:
    (workspace / "large.txt").write_text(f"{'x' * 100}\n" * 400)
    script = "\n".join(f'call read {{"path": "large.txt", "limit": {n + 300}}}' for n in range(60))
    async with serving(environ) as slow, serving(environ) as other:
        session_id = await slow.create(workspace)
        turn_id = "t-1"
        await slow.send("turn/submit", sessionId=session_id, turnId=turn_id, input=said(script))
        await other.call("initialize", protocolVersions=["1"], clientInfo={"name": "other", "version": "1"})
        while True:
            turns = await other.call("turn/list", sessionId=session_id)
            if turns["turns"] and turns["turns"][0]["status"] == "completed":
                break
            await other.call("events/read", sessionId=session_id, after=turns["cursor"], waitMs=1000)
        pending_bytes = slow.server._outlet.pending_bytes
        head = await other.call("events/read", sessionId=session_id, limit=1)
        later = await slow.call("ping")

    assert pending_bytes < 3 * 2**20
    assert head["headSeq"] > 60 * 2
    assert later == {}


async def test_requests_of_a_client_that_takes_no_answers_are_not_taken_for_ever(
    environ: Mapping[str, str], workspace: Path
) -> None:
    sent = 0
    async with serving(environ) as peer:
        await peer.create(workspace)
        with anyio.move_on_after(1) as limit:
            for _ in range(20_000):
                await peer.send("capabilities/describe")
                sent += 1
        assert limit.cancelled_caught
        assert peer.server._outlet.pending_bytes < 32 * 2**20
        assert "result" in await peer.answer(sent)


async def test_frames_that_are_none_and_frames_that_are_too_large_are_answered_as_on_stdio(
    environ: Mapping[str, str],
) -> None:
    async with serving({**environ, "HAMES_LIMIT_FRAME_IN_BYTES": "1024"}) as peer:
        await peer.server.send(b"nonsense\n")
        parse_error = await peer.answer(None)
        peer._answers.clear()
        await peer.server.send(b" " * 2000 + b"\n")
        too_large = await peer.answer(None)

    assert parse_error["error"]["code"] == -32700
    assert too_large["error"]["data"]["kind"] == "frame_too_large"


async def test_behind_its_end_nothing_is_taken_and_what_was_sent_can_be_read(environ: Mapping[str, str]) -> None:
    async with serving(environ) as peer:
        number = await peer.send("initialize", protocolVersions=["1"], clientInfo={"name": "peer", "version": "1"})
        await peer.server.close()
        await peer.server.last_words()
        with pytest.raises(anyio.BrokenResourceError):
            await peer.send("ping")

        assert "result" in await peer.answer(number)
        with pytest.raises(anyio.EndOfStream):
            await peer.answer(number + 1)


async def test_a_server_that_never_ran_ends_at_once(environ: Mapping[str, str]) -> None:
    config = load_config(environ)
    server = MemoryServer(lambda tasks: make_host(config, environ, tasks, transport="memory"))

    await server.close()
    await server.end(30)
    await server.run()

    with pytest.raises(anyio.EndOfStream):
        await server.receive()


async def test_an_end_by_force_settles_nothing_and_leaves_nothing(environ: Mapping[str, str], workspace: Path) -> None:
    async with serving(environ) as peer:
        session_id = await peer.create(workspace)
        await peer.call("turn/submit", sessionId=session_id, input=said("wait 600000\nsay never"))
        await peer.server.end(0)

    async with serving(environ) as peer:
        await peer.call("initialize", protocolVersions=["1"], clientInfo={"name": "peer", "version": "1"})
        turns = (await peer.call("turn/list", sessionId=session_id))["turns"]

    assert len(turns) == 1
