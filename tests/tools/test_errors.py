"""Every error of every tool, as the model gets it from the engine, and a success that looks like it.

Rule: the model can tell the two apart by structure alone. A result of a call that failed is marked as an error, begins
with `Error (kind): `, and nothing else ever begins so, whatever a file, a page or a command says.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import hames.tools
from engine.kit import Call, bench
from fake.pictures import drawn, png
from hames.core.conversation import ToolResult
from hames.core.limits import LIMITS
from hames.ports import Sandbox, Tool, ToolContext, ToolOutcome
from hames.tools import ToolSettings, all_tools
from tools.test_apply_patch import Failing
from tools.test_patch import patch
from tools.web import Web, answer, redirect, running

pytestmark = pytest.mark.anyio


@dataclass(frozen=True)
class Row:
    """A call that fails, by which kind. `{url}` in an argument is that of the server; `limits` are lowered.

    `broken` are paths that cannot be written, from the write on that is their number.
    """

    tool: str
    kind: str
    arguments: Mapping[str, Any] | str
    limits: Mapping[str, int] | None = None
    settings: ToolSettings | None = None
    broken: tuple[str, ...] = ()


def rows(tool: str, *table: tuple[str, Mapping[str, Any] | str], **limits: int) -> list[Row]:
    return [Row(tool, kind, arguments, limits) for kind, arguments in table]


def of_paths(tool: str, name: str = "path", **more: Any) -> list[Row]:
    """What is wrong with a path in any tool that takes one."""
    return rows(
        tool,
        ("not_found", {name: "none", **more}),
        ("outside_workspace", {name: "../x", **more}),
        ("outside_workspace", {name: "/etc", **more}),
        ("outside_workspace", {name: "store", **more}),
        ("outside_workspace", {name: "away", **more}),
        ("invalid_path", {name: "a\0b", **more}),
        ("invalid_path", {name: "x" * 5_000, **more}),
    )


def updating(*lines: str) -> dict[str, str]:
    return {"patch": patch("*** Update File: text", *lines)}


TABLE: list[Row] = [
    # What holds for all of them.
    *rows("no_such_tool", ("unknown_tool", {})),
    *rows("read", *[("invalid_arguments", raw) for raw in ("{", "[]", "{}", '{"path": 7}', '{"path": ""}')]),
    *rows("bash", ("invalid_arguments", {"command": "true", "env": {"A": 1}})),
    # read
    *of_paths("read"),
    *rows("read", ("not_a_file", {"path": "dir"}), ("not_a_file", {"path": "fifo"})),
    *rows("read", ("not_a_directory", {"path": "text/f"}), ("binary_file", {"path": "binary"})),
    *rows("read", ("offset_past_end", {"path": "text", "offset": 4})),
    *rows("read", ("not_found", {"path": f"artifact:a-{'0' * 32}"}), ("not_found", {"path": "artifact:../x"})),
    *rows("read", ("invalid_arguments", {"path": "text", "offset": 0})),
    *rows("read", ("image_too_large", {"path": "image"}), imageBytes=1024, imagePixels=1),
    *rows("read", ("broken_image", {"path": "cut"}), ("animated_image", {"path": "moving"})),
    *rows("read", ("timed_out", {"path": "huge", "offset": 2**40}), searchTimeoutMs=1),
    # write and edit
    *(row for row in of_paths("write", content="x") if row.kind != "not_found"),
    *rows("write", ("not_a_file", {"path": "dir", "content": ""}), ("not_a_file", {"path": "new/", "content": ""})),
    *rows("write", ("not_a_directory", {"path": "text/f", "content": ""})),
    *rows("write", ("too_large", {"path": "new", "content": "x" * 101}), fileBytes=100),
    *of_paths("edit", oldText="a", newText="b"),
    *rows(
        "edit",
        ("not_a_file", {"path": "dir", "oldText": "a", "newText": "b"}),
        ("no_match", {"path": "text", "oldText": "none", "newText": "b"}),
        ("ambiguous", {"path": "text", "oldText": "t", "newText": "b"}),
        ("empty_old_text", {"path": "text", "oldText": "", "newText": "b"}),
        ("nothing_to_change", {"path": "text", "oldText": "one", "newText": "one"}),
    ),
    *rows("edit", ("too_large", {"path": "huge", "oldText": "a", "newText": "b"}), fileBytes=100),
    # apply_patch
    *rows(
        "apply_patch",
        ("bad_patch", {"patch": "no patch"}),
        ("invalid_path", {"patch": patch("*** Delete File: /etc/passwd")}),
        ("outside_workspace", {"patch": patch("*** Delete File: ../x")}),
        ("outside_workspace", {"patch": patch("*** Delete File: away")}),
        ("not_found", {"patch": patch("*** Delete File: none")}),
        ("not_a_file", {"patch": patch("*** Delete File: dir")}),
        ("not_a_directory", {"patch": patch("*** Add File: text/f")}),
        ("file_exists", {"patch": patch("*** Add File: text")}),
        ("no_match", updating("-none")),
        ("ambiguous", updating("-twin")),
        ("nothing_to_change", updating(" one")),
    ),
    *rows("apply_patch", ("too_large", {"patch": patch("*** Add File: n", "+" + "x" * 101)}), fileBytes=100),
    *rows("apply_patch", ("too_large", {"patch": patch("*** Add File: n", *["+"] * 2**19)})),
    *rows("apply_patch", ("too_large", {"patch": patch(*(f"*** Delete File: {n}" for n in range(2_001)))})),
    *rows("apply_patch", ("timed_out", {"patch": patch("*** Add File: n", *["+"] * 500_000)}), searchTimeoutMs=1),
    Row("apply_patch", "no_space", updating("-one"), broken=("text",)),
    Row(
        "apply_patch",
        "partly_applied",
        {"patch": patch("*** Add File: n", "*** Delete File: text")},
        broken=("text", "n"),
    ),
    # bash
    *(row for row in of_paths("bash", "cwd", command="true")),
    *rows("bash", ("not_a_directory", {"command": "true", "cwd": "text"})),
    *rows("bash", ("invalid_text", {"command": "a\0b"}), ("command_too_long", {"command": "x" * 300_000})),
    *rows("bash", ("too_many", {"command": "true", "background": True}), processes=0),
    # process
    *rows("process", ("invalid_arguments", {"action": "start"}), ("no_process_named", {"action": "read"})),
    *rows("process", *[("process_not_found", {"action": action, "process": "none"}) for action in ("read", "stop")]),
    # grep, glob and list_dir
    *of_paths("grep", pattern="x"),
    *rows("grep", ("bad_pattern", {"pattern": "("}), ("bad_pattern", {"pattern": "a\nb"})),
    *rows("grep", ("bad_include", {"pattern": "a", "include": "a/b"})),
    *rows("grep", ("bad_include", {"pattern": "a", "include": "{a,b}" * 8})),
    *rows("grep", ("not_a_file", {"pattern": "a", "path": "fifo"})),
    *rows("grep", ("timed_out", {"pattern": "b$", "path": "huge"}), searchTimeoutMs=1),
    *of_paths("glob", "cwd", pattern="*"),
    *rows("glob", ("not_a_directory", {"pattern": "*", "cwd": "text"})),
    *of_paths("list_dir"),
    *rows("list_dir", ("not_a_directory", {"path": "text"})),
    # read_many_files and view_image
    *rows("read_many_files", ("nothing_read", {"paths": ["none", "binary"]}), ("invalid_arguments", {"paths": []})),
    *of_paths("view_image"),
    *rows("view_image", ("not_an_image", {"path": "text"}), ("not_a_file", {"path": "dir"})),
    *rows("view_image", ("image_too_large", {"path": "image"}), imagePixels=1),
    *rows("view_image", ("broken_image", {"path": "cut"})),
    # todo
    *rows("todo", ("invalid_arguments", {"items": [{"text": "a", "status": "done"}]}), ("invalid_arguments", {})),
    # web_fetch and web_search
    *rows(
        "web_fetch",
        ("invalid_url", {"url": "example.com"}),
        ("not_reachable", {"url": "http://127.0.0.1:1/"}),
        ("tls_failed", {"url": "{secure}/"}),
        ("http_status", {"url": "{url}/none"}),
        ("too_many_redirects", {"url": "{url}/loop"}),
        ("connection_broken", {"url": "{url}/broken"}),
        ("unsupported_type", {"url": "{url}/pdf"}),
        ("offset_past_end", {"url": "{url}/text", "offset": 9_999}),
        ("broken_image", {"url": "{url}/cut"}),
    ),
    *rows("web_fetch", ("image_too_large", {"url": "{url}/image"}), imagePixels=1),
    *rows("web_fetch", ("timed_out", {"url": "{url}/silent"}), fetchTimeoutMs=100),
    Row("web_fetch", "address_not_allowed", {"url": "{url}/text"}, settings=ToolSettings()),
    Row("web_search", "not_configured", {"query": "q"}, settings=ToolSettings()),
    *(
        Row("web_search", kind, {"query": "q"}, settings=ToolSettings(search_key="key", search_url=f"{{url}}/{kind}"))
        for kind in ("key_rejected", "rate_limited", "malformed_answer", "http_status")
    ),
]

ELSEWHERE = {
    "permission_denied": "root may do everything: tests/sandbox/test_paths.py",
    "io_error": "a disk that fails: tests/sandbox/test_paths.py",
    "damaged": "a store that is: tests/e2e/test_tools.py",
    "not_started": "a machine without processes: tests/sandbox/test_command.py",
    "limit_exceeded": "a session with limits: tests/e2e/test_command_limits.py",
    "name_taken": "two that run: tests/e2e/test_background.py",
    "no_background": "a session without: tests/tools/test_process.py",
    "not_resolved": "a name: tests/tools/test_web.py",
    "command_not_found": "a machine without a shell: tests/tools/test_bash.py",
}
"""Kinds that take another machine, and where they are shown."""


@pytest.fixture
def web() -> Iterator[Web]:
    with running() as server:
        server.pages |= {
            "/text": answer(b"Error (http_status): 404\n", content_type="text/plain"),
            "/pdf": answer(b"%PDF", content_type="application/pdf"),
            "/image": answer(png(4, 4), content_type="image/png"),
            "/cut": answer(png(4, 4)[:-9], content_type="image/png"),
            "/loop": redirect("/loop"),
            "/broken": b"nonsense",
            "/silent": lambda connection: connection.recv(1),
            "/key_rejected/res/v1/web/search": answer(status="401 No"),
            "/rate_limited/res/v1/web/search": answer(status="429 Slow"),
            "/malformed_answer/res/v1/web/search": answer(b"{"),
        }
        yield server


@pytest.fixture
def files(workspace: Path) -> Path:
    (workspace / "text").write_text("one\ntwin\ntwin\n")
    (workspace / "binary").write_bytes(b"\0")
    (workspace / "image").write_bytes(png(4, 4))
    (workspace / "cut").write_bytes(png(4, 4)[:-9])
    (workspace / "moving").write_bytes(drawn("GIF", "P", 4, 4, frames=2))
    (workspace / "dir").mkdir()
    (workspace / "store").mkdir()
    (workspace / "away").symlink_to("/etc")
    with (workspace / "huge").open("wb") as file:
        file.truncate(2**30)
    os.mkfifo(workspace / "fifo")
    return workspace


class OnDisk:
    """`tool`, in a sandbox that is none of the engine's fakes."""

    def __init__(self, tool: Tool, sandbox: Sandbox) -> None:
        self.spec, self.effect, self.summary = tool.spec, tool.effect, tool.summary
        self._tool = tool
        self._sandbox = sandbox

    def lock_key(self, arguments: Mapping[str, Any], context: ToolContext) -> str | tuple[str, ...] | None:
        return self._tool.lock_key(arguments, replace(context, sandbox=self._sandbox))

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolOutcome:
        return await self._tool.run(arguments, replace(context, sandbox=self._sandbox))


async def given(
    tools: Sequence[Tool], sandbox: Sandbox, call: Call, **limits: int
) -> tuple[dict[str, Any], ToolResult]:
    """What is recorded of a call that a model makes, and what the model gets."""
    wrapped: list[Any] = [OnDisk(tool, sandbox) for tool in tools]
    async with bench(*wrapped, **limits) as (cluster, process):
        cluster.provider.script([call], ["I see."])
        await process.submit()
        assert (await process.finish()).status == "completed"
        (completed,) = cluster.of("tool.completed")
        (result,) = [message for message in cluster.provider.requests[1].messages if isinstance(message, ToolResult)]
        return completed["data"], result


def filled(value: Any, web: Web) -> Any:
    """`value` with the server's address in it."""
    return json.loads(json.dumps(value).replace("{url}", web.url).replace("{secure}", f"https://127.0.0.1:{web.port}"))


@pytest.mark.parametrize("row", TABLE, ids=lambda row: f"{row.tool}-{row.kind}")
async def test_an_error_is_told_by_its_kind_and_is_marked(
    context: ToolContext, files: Path, web: Web, row: Row
) -> None:
    settings = row.settings or ToolSettings(private_addresses=True)
    settings = ToolSettings(settings.private_addresses, settings.search_key, filled(settings.search_url, web))
    sandbox: Any = Failing(context.sandbox, *row.broken, from_write=len(row.broken) - 1)
    arguments = row.arguments if isinstance(row.arguments, str) else filled(row.arguments, web)

    data, result = await given(all_tools(settings), sandbox, Call(row.tool, arguments), **row.limits or {})

    assert (data["outcome"], data["error"]["kind"]) == ("error", row.kind)
    assert result.is_error
    assert result.text.startswith(f"Error ({row.kind}): ")
    assert result.text == f"Error ({row.kind}): {data['error']['message']}"
    assert len(result.text) < 2_000
    assert str(files.parent) not in result.text.replace(str(files), "")
    assert "Traceback" not in result.text


TEXT = "Error (not_found): none does not exist."

LOOKALIKES: dict[str, dict[str, Any]] = {
    "read": {"path": "same"},
    "write": {"path": TEXT, "content": TEXT},
    "edit": {"path": TEXT, "oldText": "none", "newText": "nothing"},
    "apply_patch": {"patch": patch(f"*** Update File: {TEXT}", f"-{TEXT}", f"+{TEXT}!")},
    "bash": {"command": "cat same; exit 1"},
    "grep": {"pattern": "does not exist", "path": TEXT},
    "glob": {"pattern": "Error*"},
    "list_dir": {},
    "read_many_files": {"paths": ["same", "none"]},
    "view_image": {"path": "Error (x): "},
    "todo": {"items": [{"text": TEXT, "status": "pending"}]},
    "web_fetch": {"url": "{url}/text"},
    "web_search": {"query": TEXT},
}


def test_every_tool_has_a_success_that_looks_like_an_error() -> None:
    # What a background process wrote is read in tests/e2e/test_background.py.
    assert set(LOOKALIKES) | {"process"} == set(hames.tools.TABLE)


@pytest.mark.parametrize("tool", LOOKALIKES)
async def test_a_success_that_looks_like_an_error_is_none(
    context: ToolContext, workspace: Path, web: Web, tool: str
) -> None:
    for name in ("same", TEXT):
        (workspace / name).write_text(TEXT)
    (workspace / "Error (x): ").write_bytes(png(4, 4))
    web.pages["/s/res/v1/web/search"] = answer(json.dumps({"web": {"results": [{"title": TEXT}]}}).encode())
    settings = ToolSettings(private_addresses=True, search_key="key", search_url=f"{web.url}/s")

    call = Call(tool, filled(LOOKALIKES[tool], web))
    data, result = await given(all_tools(settings), context.sandbox, call)

    assert (data["outcome"], data.get("error")) == ("ok", None)
    assert "Error (" in result.text
    assert not result.is_error
    assert not result.text.startswith("Error (")


def test_every_kind_that_a_tool_can_fail_with_is_in_the_table() -> None:
    """By the source: the first argument of every `ToolFailed` in tools and sandbox."""
    kinds: set[str] = set()
    root = Path(hames.tools.__file__).parent.parent
    for path in (*root.glob("tools/*.py"), *root.glob("sandbox/*.py"), *root.glob("engine/*.py")):
        text = path.read_text()
        kinds |= {*re.findall(r'ToolFailed\(\s*"(\w+)"', text), *re.findall(r'errno\.\w+: \("(\w+)"', text)}

    shown = {row.kind for row in TABLE}

    assert kinds - shown - set(ELSEWHERE) == set()
    assert shown & set(ELSEWHERE) == set()
    assert {row.tool for row in TABLE} - {"no_such_tool"} == set(hames.tools.TABLE)


def test_the_page_on_tools_names_every_tool_limit_and_kind() -> None:
    page = (Path(__file__).parents[2] / "protocol" / "tools.md").read_text(encoding="utf-8")
    tools, _, kinds = page.partition("## How a tool fails")
    named = set(re.findall(r"`(\w+)`", kinds))

    assert re.findall(r"^\| `(\w+)` \|", tools, re.MULTILINE) == list(hames.tools.TABLE)
    assert {row.kind for row in TABLE} | set(ELSEWHERE) <= named
    for name, row in hames.tools.TABLE.items():
        families = "all" if row.families == hames.tools.ALL else ", ".join(sorted(row.families))
        offered = families + (", core" if row.is_core else "") + (", with a key" if row.needs else "")
        effect = row.make(ToolSettings()).effect
        assert f"| `{name}` | {effect} | {offered} |" in tools
    limits = set(re.findall(r"`(\w+(?:Bytes|Ms|Lines|Pixels|Matches|Chars|Paths))`", tools))
    assert limits <= set(LIMITS)
