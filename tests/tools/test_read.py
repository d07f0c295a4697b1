from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake.pictures import png
from hames.core.limits import DEFAULTS
from hames.ports import Sandbox, ToolContext, ToolOutcome
from hames.protocol.errors import ToolFailed
from hames.sandbox.local import LocalSandbox
from hames.sandbox.process import ReaperProcesses
from hames.tools.page import after_lines
from hames.tools.read import ReadTool
from tools.conftest import Call

anyio_test = pytest.mark.anyio
Refused = Callable[..., Awaitable[str]]


def payload(outcome: ToolOutcome) -> str:
    """The text without notices."""
    if outcome.truncation is None:
        return outcome.text
    return outcome.text.encode()[: outcome.truncation["shownBytes"]].decode()


@anyio_test
@pytest.mark.parametrize(("lines", "cut"), [(1999, False), (2000, False), (2001, True)])
async def test_two_thousand_lines_are_one_answer(call: Call, workspace: Path, lines: int, cut: bool) -> None:
    (workspace / "f").write_text("x\n" * lines)

    outcome = await call("read", path="f", limit=5000)

    assert payload(outcome) == "x\n" * min(lines, 2000)
    assert (outcome.truncation is not None) == cut
    if cut:
        assert outcome.text.endswith("[Lines 1-2000 are shown. Read on with offset 2001.]")


@anyio_test
async def test_fifty_kibibytes_are_one_answer(call: Call, workspace: Path) -> None:
    (workspace / "f").write_text(("x" * 99 + "\n") * 1000)

    outcome = await call("read", path="f")

    assert payload(outcome) == ("x" * 99 + "\n") * 512


@anyio_test
async def test_an_offset_counts_from_one(call: Call, workspace: Path) -> None:
    (workspace / "f").write_text("one\ntwo\nthree\n")

    outcome = await call("read", path="f", offset=2, limit=1)

    assert payload(outcome) == "two\n"
    assert outcome.truncation is not None
    assert outcome.truncation["nextOffset"] == 3


@anyio_test
@pytest.mark.parametrize("ending", ["", "\n"])
async def test_an_offset_past_the_end_tells_the_number_of_lines(call: Call, workspace: Path, ending: str) -> None:
    (workspace / "f").write_text("\n".join("1234567") + ending)

    with pytest.raises(Exception, match="has 7 lines"):
        await call("read", path="f", offset=8)
    assert payload(await call("read", path="f", offset=7)) == "7" + ending


@anyio_test
async def test_an_empty_file_has_no_lines(call: Call, refused: Refused, workspace: Path) -> None:
    (workspace / "f").touch()

    assert "0 lines" in (await call("read", path="f")).text
    assert await refused("read", path="f", offset=2) == "offset_past_end"


@anyio_test
async def test_a_line_longer_than_a_page_is_cut_between_characters_and_passed_over(call: Call, workspace: Path) -> None:
    (workspace / "f").write_text("€" * 40_000 + "\nnext\n")

    outcome = await call("read", path="f")

    assert payload(outcome) == "€" * 17_066
    assert "cannot be reached" in outcome.text
    assert outcome.truncation is not None
    assert payload(await call("read", path="f", offset=outcome.truncation["nextOffset"])) == "next\n"


@anyio_test
async def test_a_last_line_longer_than_a_page_has_no_next_offset(call: Call, workspace: Path) -> None:
    (workspace / "f").write_text("x" * 60_000)

    outcome = await call("read", path="f")

    assert outcome.truncation is not None
    assert "nextOffset" not in outcome.truncation


@anyio_test
async def test_a_sparse_tebibyte_is_answered_at_once(call: Call, refused: Refused, workspace: Path) -> None:
    with (workspace / "f").open("wb") as file:
        file.write(b"x\n" * 30_000)
        file.truncate(2**40)

    with anyio.fail_after(10):
        assert payload(await call("read", path="f", limit=2)) == "x\nx\n"
        assert await refused("read", path="f", offset=30_001) == "binary_file"
        assert await refused("read", path="f", offset=10**9, limits={"searchTimeoutMs": 200}) == "timed_out"


@anyio_test
async def test_bytes_that_are_no_text_are_replaced_and_still_bounded(call: Call, workspace: Path) -> None:
    (workspace / "f").write_bytes(b"caf\xe9\r\n")
    (workspace / "g").write_bytes(b"\xff" * 40_000)

    assert (await call("read", path="f")).text == "caf\ufffd\r\n"
    assert len(payload(await call("read", path="g")).encode()) <= 51_200


@anyio_test
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("none", "not_found"),
        (".", "not_a_file"),
        ("../x", "outside_workspace"),
        ("store/x", "outside_workspace"),
        ("binary", "binary_file"),
        ("\udcff", "not_found"),
        ("\ud800", "invalid_path"),
    ],
)
async def test_what_cannot_be_read_is_refused_by_kind(refused: Refused, workspace: Path, path: str, kind: str) -> None:
    (workspace / "store").mkdir()
    (workspace / "binary").write_bytes(b"MZ\0\1")

    assert await refused("read", path=path) == kind


@anyio_test
async def test_a_name_that_is_no_unicode_gives_valid_text(call: Call, workspace: Path) -> None:
    (workspace / os.fsdecode(b"\xff")).write_text("")

    outcome = await call("read", path="\udcff")

    str(outcome.details).encode()


LINE = st.one_of(st.text(alphabet="aé€😀\r", max_size=30), st.just("x" * 200))


@given(st.lists(LINE, max_size=60), st.booleans(), st.integers(1, 12), st.integers(20, 120))
def test_following_the_offsets_gives_every_byte_once(lines: list[str], ended: bool, count: int, size: int) -> None:
    whole = "\n".join(lines) + ("\n" if ended and lines else "")
    limits = {**DEFAULTS, "readLines": count, "readBytes": size}

    async def walk(sandbox: Sandbox) -> None:
        context = ToolContext("s", "t", "c", sandbox, limits, lambda _: None)
        rows = whole.split("\n")
        offset: int | None = 1
        while offset is not None:
            outcome = await ReadTool().run({"path": "f", "offset": offset}, context)
            truncation: dict[str, Any] = dict(outcome.truncation or {})
            following = truncation.get("nextOffset")
            shown = payload(outcome) if whole else ""
            page = "\n".join(rows[offset - 1 : None if following is None else following - 1])
            page += "\n" if following is not None else ""
            assert shown == page or (page.startswith(shown) and "cannot be reached" in outcome.text)
            assert len(shown.encode()) <= size
            assert shown.count("\n") <= count
            assert following is None or following > offset
            offset = following

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "f").write_text(whole, newline="")
        sandbox = LocalSandbox(folder, folder, "s", ReaperProcesses(folder / "run"))
        anyio.run(walk, sandbox)
        anyio.run(sandbox.aclose)


@anyio_test
async def test_an_image_is_shown_as_it_is(call: Call, workspace: Path) -> None:
    picture = png(40, 30, size_bytes=200_000)
    (workspace / "a.png").write_bytes(picture)

    outcome = await call("read", path="a.png", offset=3)

    (image,) = outcome.images
    assert (image.media_type, image.data, image.label) == ("image/png", picture, "a.png")
    assert outcome.text == f"[a.png: image/png, 40 x 30 pixels, {len(picture)} bytes. It is shown.]"
    assert outcome.details["width"] == 40


@anyio_test
@pytest.mark.parametrize("limit", ["imageBytes", "imagePixels"])
async def test_an_image_that_no_model_takes_is_not_shown(call: Call, workspace: Path, limit: str) -> None:
    (workspace / "a.png").write_bytes(png(40, 30))

    with pytest.raises(ToolFailed, match="image_too_large"):
        await call("read", path="a.png", limits={limit: 39})


@given(st.lists(st.sampled_from([b"\n", b"a"])).map(b"".join), st.data())
def test_a_line_is_found_by_halves_where_it_begins(block: bytes, data: st.DataObject) -> None:
    lines = data.draw(st.integers(0, block.count(b"\n")))

    assert block[: after_lines(block, lines)] == b"".join(block.splitlines(keepends=True)[:lines])
