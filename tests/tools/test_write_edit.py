from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.ports import ToolContext
from hames.protocol.errors import ToolFailed
from hames.tools.edit import EditTool, replaced
from hames.tools.write import WriteTool
from tools.conftest import BY_NAME, Call

anyio_test = pytest.mark.anyio
Refused = Callable[..., Awaitable[str]]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@anyio_test
async def test_write_makes_a_file_with_its_directories_and_reports_it(call: Call, workspace: Path) -> None:
    outcome = await call("write", path="a/b", content="é\n")

    assert (workspace / "a" / "b").read_bytes() == "é\n".encode()
    (change,) = outcome.changes
    assert (change.path, change.kind, change.before) == ("a/b", "created", None)
    assert change.after == digest("é\n".encode())
    assert change.diff == "--- a/a/b\n+++ b/a/b\n@@ -0,0 +1,1 @@\n+é\n"


@anyio_test
async def test_write_replaces_a_larger_file_and_keeps_its_mode(call: Call, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"x" * 1_000_000)
    (workspace / "f").chmod(0o755)

    outcome = await call("write", path="f", content="a\0b")

    assert (workspace / "f").read_bytes() == b"a\0b"
    assert (workspace / "f").stat().st_mode & 0o777 == 0o755
    (change,) = outcome.changes
    assert (change.kind, change.before) == ("modified", digest(b"x" * 1_000_000))
    assert change.diff is None


@anyio_test
async def test_write_names_the_file_behind_a_link(call: Call, workspace: Path) -> None:
    (workspace / "real").write_text("old")
    (workspace / "link").symlink_to("real")

    outcome = await call("write", path="link", content="new")

    assert outcome.changes[0].path == "real"
    assert (workspace / "link").is_symlink()


@anyio_test
@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        (".", "", "not_a_file"),
        ("../x", "", "outside_workspace"),
        ("store/x", "", "outside_workspace"),
        ("f/x", "", "not_a_directory"),
        ("new", "\ud800", "invalid_text"),
        ("new", "x" * 101, "too_large"),
    ],
)
async def test_write_refuses_by_kind_and_changes_nothing(
    refused: Refused, workspace: Path, path: str, content: str, kind: str
) -> None:
    (workspace / "store").mkdir()
    (workspace / "f").write_text("kept")

    assert await refused("write", path=path, content=content, limits={"fileBytes": 100}) == kind
    assert sorted(os.listdir(workspace)) == ["f", "store"]
    assert (workspace / "f").read_text() == "kept"


@anyio_test
async def test_a_file_too_large_to_handle_is_left_alone(refused: Refused, workspace: Path) -> None:
    with (workspace / "f").open("wb") as file:
        file.truncate(2**40)

    assert await refused("write", path="f", content="x") == "too_large"
    assert await refused("edit", path="f", oldText="x", newText="y") == "too_large"
    assert (workspace / "f").stat().st_size == 2**40


@anyio_test
async def test_edit_replaces_the_only_occurrence(call: Call, workspace: Path) -> None:
    (workspace / "f").write_text("one\ntwo\nthree\n")

    outcome = await call("edit", path="f", oldText="two", newText="2")

    assert (workspace / "f").read_text() == "one\n2\nthree\n"
    assert outcome.details["replacements"] == 1
    (change,) = outcome.changes
    assert (change.before, change.after) == (digest(b"one\ntwo\nthree\n"), digest(b"one\n2\nthree\n"))
    assert change.diff is not None
    assert "-two\n+2\n" in change.diff


@anyio_test
async def test_edit_replaces_every_occurrence_once_on_request(call: Call, workspace: Path) -> None:
    (workspace / "f").write_text("aaa")

    outcome = await call("edit", path="f", oldText="a", newText="aa", replaceAll=True)

    assert (workspace / "f").read_text() == "aaaaaa"
    assert outcome.details["replacements"] == 3


@anyio_test
@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("none", "x", "no_match"),
        ("a", "x", "ambiguous"),
        ("bb", "x", "ambiguous"),
        ("", "x", "empty_old_text"),
        ("c", "c", "nothing_to_change"),
        ("\udc80", "x", "invalid_text"),
    ],
)
async def test_edit_refuses_by_kind_and_changes_nothing(
    refused: Refused, workspace: Path, old: str, new: str, kind: str
) -> None:
    (workspace / "f").write_text("a a bbb c")

    assert await refused("edit", path="f", oldText=old, newText=new) == kind
    assert (workspace / "f").read_text() == "a a bbb c"


@anyio_test
@pytest.mark.parametrize(
    "around",
    [(b"\xef\xbb\xbfone\r\n", b"\r\nthree"), (b"caf\xe9\n", b" | \xff\n"), (b"\0\n", b""), (b"", b"\n\n")],
)
async def test_edit_leaves_every_other_byte_alone(call: Call, workspace: Path, around: tuple[bytes, bytes]) -> None:
    (workspace / "f").write_bytes(around[0] + b"MATCH" + around[1])

    await call("edit", path="f", oldText="MATCH", newText="é")

    assert (workspace / "f").read_bytes() == around[0] + "é".encode() + around[1]


@anyio_test
async def test_edit_changes_the_file_behind_a_link(call: Call, workspace: Path) -> None:
    (workspace / "real").write_text("old")
    (workspace / "link").symlink_to("real")

    outcome = await call("edit", path="link", oldText="old", newText="new")

    assert (workspace / "link").is_symlink()
    assert ((workspace / "real").read_text(), outcome.changes[0].path) == ("new", "real")


@anyio_test
async def test_a_command_waits_for_no_change_of_a_file_and_the_model_is_told(context: ToolContext) -> None:
    assert BY_NAME["bash"].lock_key({"command": "echo x >> a"}, context) is None
    for name in ("write", "edit", "apply_patch"):
        assert "running shell command" in BY_NAME[name].spec.description


@anyio_test
async def test_edit_tells_of_other_line_ends(call: Call, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"a\r\nb\r\n")

    with pytest.raises(ToolFailed, match="CR LF"):
        await call("edit", path="f", oldText="a\nb", newText="x")


@anyio_test
async def test_all_names_of_a_file_share_one_lock(context: ToolContext, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "link").symlink_to("a")
    names = ["a", "./a", "sub/../a", "link", str(workspace / "a")]

    keys = {tool.lock_key({"path": name}, context) for name in names for tool in (WriteTool(), EditTool())}

    assert keys == {"a"}


@given(st.binary(max_size=60), st.binary(min_size=1, max_size=3), st.binary(max_size=4), st.booleans())
def test_a_replacement_touches_nothing_else(content: bytes, old: bytes, new: bytes, everywhere: bool) -> None:
    count = sum(content.startswith(old, place) for place in range(len(content)))
    try:
        after, times = replaced(content, old, new, everywhere=everywhere)
    except ToolFailed as failure:
        kind = failure.kind
        expected = "nothing_to_change" if old == new else "no_match" if count == 0 else "ambiguous"
        assert (kind, expected != "ambiguous" or (count > 1 and not everywhere)) == (expected, True)
        return
    if everywhere:
        assert (after, times) == (new.join(content.split(old)), content.count(old))
    else:
        assert count == times == 1
        head, _, foot = content.partition(old)
        assert after == head + new + foot
