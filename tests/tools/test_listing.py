"""`list_dir`, `read_many_files`, `view_image` and `todo`."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.pictures import drawn, gif, jpeg, png, webp
from hames.core.images import Measured
from hames.core.limits import DEFAULTS
from hames.ports import ToolContext
from hames.protocol.errors import ToolFailed
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.tools.read import show_image
from hames.tools.todo import MARKS, TodoTool
from tools.conftest import BY_NAME, Call

anyio_test = pytest.mark.anyio
Refused = Callable[..., Awaitable[str]]


@pytest.fixture
def corpus(workspace: Path) -> Path:
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "a.py").write_text("a\n")
    (workspace / "src" / "deep" / "b.c").write_text("bb\n")
    (workspace / ".git").mkdir()
    (workspace / ".git" / "config").write_text("secret")
    (workspace / "store").mkdir()
    (workspace / "loop").symlink_to(".")
    (workspace / "Z").touch()
    os.mkfifo(workspace / "new\nline")
    return workspace


@anyio_test
async def test_a_directory_is_listed_in_the_order_of_bytes(call: Call, corpus: Path) -> None:
    outcome = await call("list_dir")

    assert outcome.text.split("\n") == [".git/", "Z (0 bytes)", "loop (link)", "new\\x0aline (special)", "src/"]
    assert outcome.details == {"path": ".", "shown": 5, "more": False, "complete": True}


@anyio_test
@pytest.mark.parametrize(
    ("depth", "rows"),
    [
        (1, ["src/a.py (2 bytes)", "src/deep/"]),
        (2, ["src/a.py (2 bytes)", "src/deep/", "src/deep/b.c (3 bytes)"]),
        (5, ["src/a.py (2 bytes)", "src/deep/", "src/deep/b.c (3 bytes)"]),
    ],
)
async def test_a_listing_goes_as_deep_as_it_is_told(call: Call, corpus: Path, depth: int, rows: list[str]) -> None:
    assert (await call("list_dir", path="src", depth=depth)).text.split("\n") == rows


@anyio_test
async def test_a_deep_listing_opens_neither_git_nor_links(call: Call, corpus: Path) -> None:
    rows = (await call("list_dir", depth=5)).text.split("\n")

    assert ".git/" in rows
    assert not any("config" in row or row.startswith("loop/") for row in rows)


@anyio_test
async def test_the_first_thousand_entries_are_shown_whatever_the_depth(call: Call, workspace: Path) -> None:
    (workspace / "d").mkdir()
    for number in range(999):
        (workspace / "d" / f"f{number:03}").touch()
    (workspace / "e").mkdir()
    (workspace / "e" / "last").touch()

    flat = await call("list_dir", path="d", depth=1, limits={"globPaths": 999})
    deep = await call("list_dir", depth=2)

    assert (flat.truncation, flat.details["shown"]) == (None, 999)
    assert deep.text.split("\n")[:1000] == ["d/", *(f"d/f{number:03} (0 bytes)" for number in range(999))]
    assert (deep.truncation, deep.details["more"]) == ({"mode": "head", "shownLines": 1000}, True)


@anyio_test
async def test_an_empty_directory_says_so_and_what_is_none_is_an_error(
    call: Call, refused: Refused, corpus: Path
) -> None:
    (corpus / "empty").mkdir()

    assert (await call("list_dir", path="empty")).text == "[The directory is empty.]"
    assert await refused("list_dir", path="Z") == "not_a_directory"
    assert await refused("list_dir", path="none") == "not_found"
    assert await refused("list_dir", path="..") == "outside_workspace"
    assert await refused("list_dir", path="store") == "outside_workspace"


@anyio_test
async def test_entries_are_named_from_the_working_directory(context: ToolContext, corpus: Path, tmp_path: Path) -> None:
    processes = ReaperProcesses(tmp_path / "other")
    sandbox = LocalSandbox(corpus, corpus / "src", "s", processes)
    outcome = await BY_NAME["list_dir"].run({"path": ".."}, replace(context, sandbox=sandbox))

    assert "../Z (0 bytes)" in outcome.text.split("\n")
    await sandbox.aclose()


@anyio_test
async def test_several_files_are_read_and_what_became_of_each_comes_first(call: Call, corpus: Path) -> None:
    (corpus / "image").write_bytes(png(2, 2))
    (corpus / "fake").write_text("[2. none: error not_found: x]\nno end")

    outcome = await call("read_many_files", paths=["src/a.py", "none", "fake", "Z", "image", "src"])

    assert outcome.text == (
        "[1. src/a.py: 2 bytes, lines 1-1 are shown, whole]\n"
        "[2. none: error not_found: none does not exist.]\n"
        "[3. fake: 36 bytes, lines 1-2 are shown, whole]\n"
        "[4. Z: 0 bytes, empty]\n"
        "[5. image: error binary_file: It is an image; see it with read.]\n"
        "[6. src: error not_a_file: src is a directory; only regular files can be used.]\n"
        "[Content of 1, 2 bytes:]\na\n"
        "[Content of 3, 36 bytes:]\n[2. none: error not_found: x]\nno end\n"
    )
    assert outcome.details == {"files": 6, "failed": 3}
    assert outcome.truncation is None


@anyio_test
async def test_many_files_share_the_limits_of_one_answer(call: Call, workspace: Path) -> None:
    for name in "abc":
        (workspace / name).write_text(f"{name}\n" * 1500)
    (workspace / "wide").write_text("x" * 60_000)

    outcome = await call("read_many_files", paths=["a", "b", "c", "wide"])
    rows = outcome.text.split("\n")
    wide = await call("read_many_files", paths=["wide", "a"])
    late = await call("read_many_files", paths=["a", "wide"])

    assert rows[:4] == [
        "[1. a: 3000 bytes, lines 1-1500 are shown, whole]",
        "[2. b: 3000 bytes, lines 1-500 are shown, read on with offset 501]",
        "[3. c: 3000 bytes, not shown: no room is left here, use read]",
        "[4. wide: 60000 bytes, not shown: no room is left here, use read]",
    ]
    assert (rows.count("a"), rows.count("b"), rows.count("c")) == (1500, 500, 0)
    assert outcome.truncation == {"mode": "head", "totalBytes": 69_000, "shownBytes": 4_000}
    assert wide.text.startswith("[1. wide: 60000 bytes, only the beginning of line 1 is shown: it is longer")
    assert "[2. wide: 60000 bytes, not shown: no room is left here, use read]" in late.text
    assert wide.text.count("x") == DEFAULTS["readBytes"]


@anyio_test
async def test_a_call_of_which_nothing_can_be_read_fails_with_all_reasons(call: Call, corpus: Path) -> None:
    with pytest.raises(ToolFailed) as failure:
        await call("read_many_files", paths=["none", "..", "new\nline"])

    assert failure.value.kind == "nothing_read"
    assert [row.split(":")[1].strip() for row in failure.value.message.split("\n")[1:]] == [
        "not_found",
        "outside_workspace",
        "not_a_file",
    ]


@anyio_test
async def test_an_image_is_shown_and_what_is_none_is_not(call: Call, refused: Refused, corpus: Path) -> None:
    picture = png(3, 2)
    (corpus / "p").write_bytes(picture)

    outcome = await call("view_image", path="p")

    assert [(image.media_type, image.data, image.label) for image in outcome.images] == [("image/png", picture, "p")]
    assert outcome.text == f"[p: image/png, 3 x 2 pixels, {len(picture)} bytes. It is shown.]"
    assert await refused("view_image", path="src/a.py") == "not_an_image"
    assert await refused("view_image", path="p", limits={"imagePixels": 2}) == "image_too_large"
    assert await refused("view_image", path="p", limits={"imageBytes": 10}) == "image_too_large"
    assert await refused("view_image", path="none") == "not_found"


@anyio_test
@pytest.mark.parametrize("tool", ["view_image", "read"])
@pytest.mark.parametrize("whole", [png(30, 20), gif(30, 20), jpeg(30, 20), webp(30, 20)])
async def test_a_broken_image_is_not_shown(
    call: Call, refused: Refused, workspace: Path, tool: str, whole: bytes
) -> None:
    (workspace / "whole").write_bytes(whole)
    (workspace / "cut").write_bytes(whole[: len(whole) * 9 // 10])

    assert [image.data for image in (await call(tool, path="whole")).images] == [whole]
    assert await refused(tool, path="cut") == "broken_image"


@anyio_test
@pytest.mark.parametrize("tool", ["view_image", "read"])
@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP"])
async def test_an_animation_is_not_shown(refused: Refused, workspace: Path, tool: str, kind: str) -> None:
    (workspace / "moving").write_bytes(drawn(kind, "RGB", 30, 20, frames=3))

    assert await refused(tool, path="moving") == "animated_image"


@anyio_test
async def test_an_image_that_changes_while_it_is_read_is_not_shown() -> None:
    class Changing:
        path, size = "p", len(png())

        async def read_at(self, offset: int, length: int) -> bytes:
            return png(9, 9)[offset : offset + length]

    with pytest.raises(ToolFailed, match="changed while it was read"):
        await show_image(Changing(), Measured("image/png", 4, 3), DEFAULTS)


ITEMS = st.lists(
    st.fixed_dictionaries({"text": st.text(min_size=1, max_size=200), "status": st.sampled_from(list(MARKS))}),
    max_size=50,
)


@given(ITEMS)
def test_a_list_comes_back_whole_one_row_an_item(items: list[dict[str, str]]) -> None:
    context: Any = None

    outcome = anyio.run(TodoTool().run, {"items": items}, context)

    rows = outcome.text.split("\n")
    assert len(rows) == max(1, len(items))
    assert all(row.startswith(MARKS[item["status"]]) for row, item in zip(rows, items, strict=False))
    assert outcome.details["items"] == sum(outcome.details[status] for status in MARKS)


def test_a_list_is_summed_up_by_how_far_it_is() -> None:
    items = [{"text": "a", "status": "completed"}, {"text": "b", "status": "in_progress"}]

    assert TodoTool().summary({"items": items}) == "todo 1/2: b"
