"""What the tools do together, in a server as it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from e2e.driver import Server
from e2e.fixtures import Start
from fake.provider import FakeProvider, calls, text
from tools.test_patch import patch


def completed(server: Server, session_id: str) -> list[dict[str, Any]]:
    return [each["data"] for each in server.events(session_id, "tool.completed")]


def test_changes_of_one_file_are_made_in_the_order_of_the_calls_whatever_it_is_called(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    """Each call wants what the one before it wrote; every fifth is a patch that has a second file besides."""
    (workspace / "sub").mkdir()
    (workspace / "a").write_text("0\n")
    (workspace / "other").write_text("0\n")
    (workspace / "link").symlink_to("a")
    names = ["a", "./a", "sub/../a", "link"]
    batch: list[tuple[str, dict[str, Any]]] = []
    for number in range(20):
        name = names[number % 4]
        edit = {"path": name, "oldText": f"{number}\n", "newText": f"{number}\n{number + 1}\n"}
        lines = [f"*** Update File: {name}", f" {number}", f"+{number + 1}", "*** Update File: other", "-0", "+0", "+x"]
        batch.append(("apply_patch", {"patch": patch(*lines)}) if number % 5 == 4 else ("edit", edit))
    fake.script(calls(batch), text("ok"))
    session_id = server.create(workspace, tools=["edit", "apply_patch"])

    server.finish(session_id, server.submit(session_id))

    assert [data["outcome"] for data in completed(server, session_id)] == ["ok"] * 20
    assert (workspace / "a").read_text().split() == [str(number) for number in range(21)]
    assert (workspace / "other").read_text().split() == ["0", *"xxxx"]


def test_others_are_answered_while_a_large_patch_is_applied(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    (workspace / "a").write_text("".join(f"{number}\n" for number in range(40_000)))
    rows = [row for number in range(40_000) for row in ("@@", f"-{number}", f"+{number}!")]
    fake.script(calls([("apply_patch", {"patch": patch("*** Update File: a", *rows)})]), text("ok"))
    session_id = server.create(workspace, tools=["apply_patch"])

    def place_of(type_: str) -> int:
        return server.wait_for(lambda frame: frame.event is not None and frame.event["type"] == type_).index

    turn_id = server.submit(session_id)
    started = place_of("tool.started")
    answered = server.answer_frame(server.send("ping")).index
    server.finish(session_id, turn_id)

    assert started < answered < place_of("tool.completed")
    assert (workspace / "a").read_text().startswith("0!\n1!\n")


def kept(server: Server, session_id: str) -> str:
    """The handle that the model was told."""
    (data,) = [data for data in completed(server, session_id) if "artifact" in data]
    return f"artifact:{data['artifact']['artifact']}"


def told(fake: FakeProvider) -> str:
    """The result that the model was sent last."""
    text_of_it: str = fake.requests[-1].body["messages"][-1]["content"]
    return text_of_it


def test_output_that_was_cut_is_paged_through_by_the_handle_that_is_told(
    server: Server, workspace: Path, fake: FakeProvider
) -> None:
    fake.script(calls([("bash", {"command": "seq 30000; printf '\\0end'"})]), text("ok"))
    session_id, other = server.create(workspace), server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    handle = kept(server, session_id)
    first = told(fake)

    lines: list[str] = []
    offset: int | None = 1
    while offset is not None:
        fake.script(calls([("read", {"path": handle, "offset": offset})]), text("ok"))
        server.finish(session_id, server.submit(session_id))
        data = completed(server, session_id)[-1]
        lines += told(fake).split("\n")[: data["details"]["endLine"] - data["details"]["startLine"] + 1]
        offset = data.get("truncation", {}).get("nextOffset")
    fake.script(calls([("read", {"path": handle})]), text("ok"))
    server.finish(other, server.submit(other))

    assert first.endswith(f"[168898 bytes of the output are kept: page through them with read, path `{handle}`.]")
    assert lines == [*(str(number) for number in range(1, 30_001)), "\ufffdend"]
    assert completed(server, other)[0]["error"]["kind"] == "not_found"


def test_kept_output_that_is_damaged_is_not_shown(
    start: Start, home: Path, workspace: Path, fake: FakeProvider
) -> None:
    server = start()
    fake.script(calls([("bash", {"command": "seq 30000"})]), text("ok"))
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    handle = kept(server, session_id)
    (blob,) = [path for path in home.rglob("blobs/*/*") if path.is_file()]
    blob.write_bytes(b"x" + blob.read_bytes()[1:])

    fake.script(calls([("read", {"path": handle})]), text("ok"))
    server.finish(session_id, server.submit(session_id))

    assert completed(server, session_id)[-1]["error"]["kind"] == "damaged"


def test_who_has_no_read_is_told_of_no_handle(server: Server, workspace: Path, fake: FakeProvider) -> None:
    fake.script(calls([("bash", {"command": "seq 30000"})]), text("ok"))
    session_id = server.create(workspace, tools=["bash"])

    server.finish(session_id, server.submit(session_id))

    assert told(fake).endswith("\n30000\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["head -c 100000000 /dev/zero", "yes | head -c 100000000", "head -c 100000000 /dev/zero | tr '\\0' '\\377'"],
)
def test_memory_is_bounded_whatever_a_command_prints(
    server: Server, workspace: Path, fake: FakeProvider, command: str
) -> None:
    """It prints more than is kept of it, and five times the memory that it may cost."""
    fake.script(
        calls([("bash", {"command": "true"})]), text("warm"), calls([("bash", {"command": command})]), text("ok")
    )
    session_id = server.create(workspace)
    server.finish(session_id, server.submit(session_id))
    before = server.reset_peak()

    server.finish(session_id, server.submit(session_id))

    data = completed(server, session_id)[1]
    assert (data["outcome"], data["details"]["totalBytes"]) == ("ok", 100_000_000)
    assert len(fake.requests[3].body["messages"][-1]["content"].encode()) < 52_000
    assert data["artifact"]["sizeBytes"] == data["truncation"]["keptBytes"] == 64 * 2**20
    assert server.peak_bytes() - before < 20_000_000
