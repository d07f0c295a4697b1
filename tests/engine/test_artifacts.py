"""What is kept apart is whole again where it counts: in what the model is sent, by whichever process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import anyio
import pytest

from engine.kit import Call, FakeTool, Gate, bench, cluster
from fake.pictures import png
from hames.core.conversation import AssistantMessage, ToolResult, UserMessage
from hames.core.session import Event
from hames.core.state import state_to_json
from hames.engine.attempt import Log
from hames.ports import ToolContext, ToolImage, ToolOutcome
from hames.protocol.errors import HarnessFault

pytestmark = pytest.mark.anyio

LARGE = "large äöü " * 5_000
PICTURE = png(size_bytes=50_000)


async def show(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    return ToolOutcome(text=LARGE, images=(ToolImage("image/png", PICTURE, "a.png"),))


async def keep(arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
    assert context.spool is not None
    spool = context.spool()
    spool.write(LARGE.encode())
    return ToolOutcome(text="the end of it", truncation={"mode": "tail"}, kept=spool)


async def test_the_next_attempt_asks_with_the_same_messages() -> None:
    async with cluster(FakeTool("look", body=show)) as c:
        gate = Gate()
        c.provider.script([LARGE, Call("look", {"path": LARGE})], [gate], ["done"])
        first = await c.start()
        await first.create()
        await first.submit("t-1", LARGE, instructions=LARGE)
        await gate.come()
        await first.die()
        second = await c.start()
        await second.resume()
        await second.finish()

        before, after = c.provider.requests[1:3]
        assert after == before
        asked, answered, result = after.messages
        assert isinstance(asked, UserMessage)
        assert isinstance(answered, AssistantMessage)
        assert isinstance(result, ToolResult)
        assert (asked.text, answered.text) == (LARGE, LARGE)
        assert json.loads(answered.calls[0].arguments) == {"path": LARGE}
        assert result.text == f"{LARGE}\n[image a.png]"
        assert [picture.data for picture in result.images] == [PICTURE]
        assert LARGE in after.system


async def test_state_and_outcome_hold_references() -> None:
    async with bench() as (c, process):
        c.provider.script([LARGE])
        await process.submit("t-1", LARGE)
        turn = await process.finish()

        assert turn.outcome is not None
        assert turn.outcome["text"] == c.terminal()["data"]["text"] == c.of("message.completed")[0]["data"]["text"]
        assert turn.outcome["text"]["sizeBytes"] == len(LARGE.encode())
        assert len(state_to_json(await process.service.state("s-1"))) < 4_096
        assert [len(event["data"]["text"]) for event in c.of("message.chunk")] == [16_384, 16_384, 16_384, 848]


async def test_a_long_output_is_kept_and_named_by_its_result() -> None:
    async with bench(FakeTool("look", body=keep)) as (c, process):
        c.provider.script([Call("look")], ["done"])
        await process.submit()
        await process.finish()

        (result,) = c.of("tool.completed")
        artifact = await process.store.artifact("s-1", result["data"]["artifact"]["artifact"])
        assert (artifact.seq, artifact.size_bytes) == (result["seq"], len(LARGE.encode()))
        assert await process.store.read_artifact("s-1", artifact.artifact, offset=0, length=10) == LARGE.encode()[:10]


async def test_a_damaged_artifact_ends_the_worker_typed_and_others_go_on() -> None:
    async with cluster() as c:
        c.provider.script([LARGE], ["fine"])
        first = await c.start()
        await first.create()
        await first.submit()
        await first.finish()
        await first.die()
        c.disk.blobs.contents.update({digest: b"!" for digest in c.disk.blobs.contents})
        second = await c.start()
        await second.submit("t-2")

        with pytest.raises(HarnessFault, match="artifact_corrupt"):
            await second.finish("t-2")
        await second.create(session_id="s-2")
        await second.submit("t-1", session_id="s-2")
        assert (await second.finish(session_id="s-2")).status == "completed"


async def test_a_wait_that_is_cancelled_leaves_the_conversation_where_it_was() -> None:
    async with bench() as (c, process):
        c.provider.script([LARGE])
        await process.submit("t-1", "hello")
        await process.finish()
        log = Log(process.store, "s-1", c.limits)

        with anyio.CancelScope() as scope:
            scope.cancel()
            await log.catch_up(await process.service.state("s-1"))

        assert log.conversation.seq == 0
        await log.catch_up(await process.service.state("s-1"))
        assert log.conversation.messages() == (UserMessage("hello"), AssistantMessage(LARGE))
        assert Event.of(c.log()[-1]).seq == log.conversation.seq
