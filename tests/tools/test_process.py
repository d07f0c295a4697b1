"""`process`, and `bash` with `background`, without an engine behind them and with the least of one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from hames.core.state import Process
from hames.ports import OutputPage, ToolContext, ToolOutcome, Wish
from hames.tools.bash import BashTool
from hames.tools.process import ProcessTool
from hames.tools.redacted import HidingTool
from tools.conftest import BY_NAME

pytestmark = pytest.mark.anyio

KEY = "sk-0123456789abcdef"


class OneProcess:
    """A background with one process, which ends by `exit`."""

    def __init__(self, **exit: Any) -> None:
        self.wishes: list[Wish] = []
        self.data = b"said \xff\n"
        self.process = Process("p-1", "t-1", "c-1", "sleep 1", "time", name="web", exit=exit or None)

    async def start(self, wish: Wish) -> Process:
        self.wishes.append(wish)
        return self.process

    async def all(self) -> Sequence[tuple[Process, int]]:
        return [(self.process, 7)]

    async def read(self, which: str, offset: int | None, *, length: int, wait_ms: int) -> OutputPage:
        return OutputPage(self.process, max(offset or 0, 4), self.data, 4 + len(self.data))

    async def stop(self, which: str) -> Process:
        return self.process


async def told(context: ToolContext, background: OneProcess, **arguments: Any) -> ToolOutcome:
    return await ProcessTool().run(arguments, replace(context, background=background))


@pytest.mark.parametrize(
    ("tool", "arguments"), [("bash", {"command": "true", "background": True}), ("process", {"action": "list"})]
)
async def test_nothing_runs_in_the_background_of_a_session_without_the_tool(
    refused: Callable[..., Awaitable[str]], tool: str, arguments: dict[str, Any]
) -> None:
    assert await refused(tool, **arguments) == "no_background"


def test_bash_knows_of_the_background_only_beside_the_tool_that_looks_after_it() -> None:
    assert "background" in BY_NAME["bash"].spec.parameters["properties"]
    assert "background" not in BashTool().spec.parameters["properties"]
    assert "background" not in BashTool().spec.description.replace("running in the background", "")


async def test_what_is_shown_says_which_bytes_it_is_and_what_is_gone(context: ToolContext) -> None:
    outcome = await told(context, OneProcess(), action="read", process="web", offset=1)

    assert outcome.text.startswith("said \N{REPLACEMENT CHARACTER}\n[p-1 (web) runs. Bytes 4 to 11 of 11;")
    assert "The 3 bytes before are not kept any more." in outcome.text
    assert outcome.details["nextOffset"] == 11


@pytest.mark.parametrize(
    ("exit", "said"),
    [
        ({"why": "exited", "exitCode": 3}, "ended with exit code 3."),
        ({"why": "exited", "signal": 9}, "was killed by signal 9."),
        ({"why": "exited"}, "ended."),
        ({"why": "stopped", "signal": 15}, "was stopped."),
        ({"why": "owner_died"}, "ended with the server that ran it."),
    ],
)
async def test_how_one_ended_is_told(context: ToolContext, exit: dict[str, Any], said: str) -> None:
    for action in ("list", "read", "stop"):
        outcome = await told(context, OneProcess(**exit), action=action, process="web")
        assert f"p-1 (web) {said}" in outcome.text
    assert outcome.details["why"] == exit["why"]


async def test_a_start_passes_on_what_was_asked_for_and_screens_what_it_writes(context: ToolContext) -> None:
    background = OneProcess()
    tool = HidingTool(BashTool(background=True), lambda: [KEY])
    arguments = {"command": f"echo {KEY}", "background": True, "name": "web", "cwd": "sub", "env": {"A": "b"}}

    outcome = await tool.run(arguments, replace(context, background=background))

    (wish,) = background.wishes
    assert wish.argvs == (("bash", "-c", f"echo {KEY}"), ("sh", "-c", f"echo {KEY}"))
    assert KEY not in wish.command
    assert (wish.name, wish.cwd, wish.env) == ("web", "sub", {"A": "b"})
    (screen,) = wish.screens
    assert KEY.encode() not in screen.feed(KEY.encode()[:9]) + screen.feed(KEY.encode()[9:]) + screen.rest()
    assert "Runs in the background as p-1 (web)" in outcome.text
