"""A credential that a tool comes across is not shown, and stays where it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hames.core.redaction import MARK
from hames.ports import ToolContext
from hames.protocol.errors import ToolFailed
from hames.store.memory_blobs import MemorySpool
from hames.tools.redacted import RedactedTool
from tools.conftest import BY_NAME

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"


def tool(name: str) -> RedactedTool:
    return RedactedTool(BY_NAME[name], KEY)


async def test_output_is_redacted_live_and_in_the_end(context: ToolContext) -> None:
    live: list[bytes] = []
    command = f"printf {KEY[:9]}; sleep 0.05; printf %s {KEY[9:]}; printf s"

    outcome = await tool("bash").run({"command": command}, replace(context, emit=live.append))

    assert outcome.text == f"{MARK}s"
    assert b"".join(live) == f"{MARK}s".encode()


@pytest.mark.parametrize("name", ["read", "grep"])
async def test_content_is_shown_without_it(context: ToolContext, workspace: Path, name: str) -> None:
    (workspace / "env").write_text(f"KEY={KEY}\n")
    arguments = {"path": "env"} if name == "read" else {"path": "env", "pattern": "KEY"}

    outcome = await tool(name).run(arguments, context)

    assert f"KEY={MARK}" in outcome.text
    assert KEY not in repr(outcome)


async def test_an_edit_beside_it_keeps_it_in_the_file(context: ToolContext, workspace: Path) -> None:
    (workspace / "env").write_text(f"KEY={KEY}\nA=1\n")

    outcome = await tool("edit").run({"path": "env", "oldText": "A=1", "newText": "A=2"}, context)

    assert (workspace / "env").read_text() == f"KEY={KEY}\nA=2\n"
    assert KEY not in repr(outcome)


async def test_summaries_and_failures_are_shown_without_it(context: ToolContext) -> None:
    with pytest.raises(ToolFailed) as failure:
        await tool("read").run({"path": f"no-{KEY}"}, context)

    assert failure.value.message.startswith(f"no-{MARK} ")
    assert tool("bash").summary({"command": f"echo {KEY}"}) == f"echo {MARK}"


async def test_what_is_kept_of_a_long_output_is_redacted(context: ToolContext) -> None:
    kept = MemorySpool()
    command = f"seq 20000; printf {KEY[:9]}; sleep 0.05; printf %s {KEY[9:]}; printf %s {KEY}"

    outcome = await tool("bash").run({"command": command}, replace(context, spool=lambda: kept))

    assert outcome.kept is kept
    assert bytes(kept.data).endswith(f"\n20000\n{MARK}{MARK}".encode())
    assert KEY.encode() not in kept.data
