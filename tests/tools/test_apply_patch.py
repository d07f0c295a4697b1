"""`apply_patch` in a workspace: all of a patch, or nothing."""

from __future__ import annotations

import os
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from hames.ports import Sandbox, ToolContext
from hames.protocol.errors import ToolFailed
from hames.tools.apply_patch import ApplyPatchTool
from tools.conftest import Call
from tools.test_patch import patch

pytestmark = pytest.mark.anyio
Refused = Callable[..., Awaitable[str]]


def tree(workspace: Path) -> dict[str, bytes]:
    """Every file but `out`, by its name."""
    return {str(path.relative_to(workspace)): path.read_bytes() for path in workspace.rglob("[!o]*") if path.is_file()}


@pytest.fixture
def files(workspace: Path) -> Path:
    """`a`, an executable `b`, `d/c`, links to the first, out of the workspace and to nowhere."""
    (workspace / "a").write_text("one\ntwo\nthree\n")
    (workspace / "b").write_text("x\ny\n")
    (workspace / "b").chmod(0o755)
    (workspace / "d").mkdir()
    (workspace / "d" / "c").write_bytes(b"caf\xe9\r\nend")
    (workspace / "link").symlink_to("a")
    (workspace / "out").symlink_to("/etc/passwd")
    return workspace


async def test_a_patch_adds_changes_moves_and_deletes(call: Call, files: Path) -> None:
    outcome = await call(
        "apply_patch",
        patch=patch(
            *("*** Add File: new/deep/f", "+1", "+2"),
            *("*** Update File: a", "@@ one", "-two", "+2", "@@", "-three", "+3"),
            *("*** Update File: b", "*** Move to: bin/b", " x", "-y", "+z"),
            *("*** Delete File: d/c",),
        ),
    )

    after = {"a": b"one\n2\n3\n", "link": b"one\n2\n3\n", "new/deep/f": b"1\n2\n", "bin/b": b"x\nz\n"}
    assert tree(files) == after
    assert (files / "bin" / "b").stat().st_mode & 0o777 == 0o755
    assert outcome.text == "Applied:\nA new/deep/f\nM a\nR b -> bin/b\nD d/c"
    assert {change.path: change.kind for change in outcome.changes} == {
        "new/deep/f": "created",
        "a": "modified",
        "b": "deleted",
        "bin/b": "created",
        "d/c": "deleted",
    }
    by_path = {change.path: change for change in outcome.changes}
    assert by_path["a"].diff == "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n one\n-two\n-three\n+2\n+3\n"
    assert by_path["d/c"].after is None
    assert by_path["b"].before is not None


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (["*** Add File: a", "+x"], "file_exists"),
        (["*** Add File: link", "+x"], "file_exists"),
        (["*** Update File: a", "*** Move to: b", "-two"], "file_exists"),
        (["*** Update File: none", "-x"], "not_found"),
        (["*** Delete File: none"], "not_found"),
        (["*** Delete File: d"], "not_a_file"),
        (["*** Update File: d", "-x"], "not_a_file"),
        (["*** Add File: a/f", "+x"], "not_a_directory"),
        (["*** Add File: d", "+x"], "not_a_file"),
        (["*** Update File: a", "-none"], "no_match"),
        (["*** Update File: a", " one"], "nothing_to_change"),
        (["*** Update File: a", "-one", "+one"], "nothing_to_change"),
        (["*** Add File: ../f", "+x"], "outside_workspace"),
        (["*** Update File: out", "-root"], "outside_workspace"),
        (["*** Delete File: out"], "outside_workspace"),
        (["*** Update File: a", "*** Move to: ../a", "-two"], "outside_workspace"),
        (["*** Add File: /etc/f", "+x"], "invalid_path"),
        (["*** Add File: n\0", "+x"], "invalid_path"),
        (["*** Add File: f", "+\ud800"], "invalid_text"),
        (["*** Add File: big", "+" + "x" * 200], "too_large"),
        (["*** Frobnicate: a"], "bad_patch"),
    ],
)
async def test_one_section_that_cannot_be_applied_keeps_all_of_them_back(
    refused: Refused, files: Path, lines: list[str], kind: str
) -> None:
    before = tree(files)
    good = ["*** Add File: good", "+x", "*** Update File: b", "-y", "+z"]

    for text in (patch(*good, *lines), patch(*lines, *good)):
        assert await refused("apply_patch", patch=text, limits={"fileBytes": 100}) == kind
        assert tree(files) == before


async def test_sections_of_one_file_follow_one_another(call: Call, files: Path) -> None:
    text = patch(
        *("*** Add File: n", "+1"),
        *("*** Update File: ./d/../n", "-1", "+2"),
        *("*** Delete File: link",),
        *("*** Add File: a", "+fresh"),
        *("*** Update File: b", "*** Move to: b2"),
        *("*** Update File: b2", "*** Move to: b"),
    )

    outcome = await call("apply_patch", patch=text)

    assert ((files / "n").read_text(), (files / "a").read_text()) == ("2\n", "fresh\n")
    assert (files / "b").stat().st_mode & 0o777 == 0o755
    assert {change.path: change.kind for change in outcome.changes} == {"n": "created", "a": "modified"}


async def test_a_file_keeps_its_line_ends_and_its_other_bytes(call: Call, files: Path) -> None:
    await call("apply_patch", patch=patch("*** Update File: d/c", "-end", "+more", "+fin"))

    assert (files / "d" / "c").read_bytes() == b"caf\xe9\r\nmore\r\nfin\r\n"


async def test_the_call_that_fails_says_which_file_and_hunk(call: Call, files: Path) -> None:
    with pytest.raises(ToolFailed) as failure:
        await call("apply_patch", patch=patch("*** Update File: b", "-x", "*** Update File: a", "-one", "@@", "-four"))

    assert failure.value.details == {"path": "a", "hunk": 2}
    assert failure.value.message.startswith("a: Hunk 2 does not fit")
    assert failure.value.message.endswith("Nothing was changed.")


async def test_all_names_of_all_files_are_locked(context: ToolContext, files: Path) -> None:
    text = patch("*** Update File: link", "*** Move to: ./d/../n", "-x", "*** Delete File: b", "*** Delete File: a")

    assert ApplyPatchTool().lock_key({"patch": text}, context) == ("a", "b", "n")


class Failing:
    """`sandbox`, which fails to write the `bad` paths, the second time too when they are to be put back."""

    def __init__(self, sandbox: Sandbox, *bad: str, from_write: int = 0) -> None:
        self._sandbox = sandbox
        self._bad = bad
        self._left = from_write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def replace(self, path: str, content: bytes, *, mode: int | None = None) -> bool:
        self._check(path)
        return self._sandbox.replace(path, content, mode=mode)

    def remove(self, path: str) -> None:
        self._check(path)
        self._sandbox.remove(path)

    def _check(self, path: str) -> None:
        self._left -= 1
        if path in self._bad and self._left < 0:
            raise ToolFailed("no_space", f"{path} was not written: no space is left.")


EVERYTHING = patch(
    *("*** Add File: n", "+1"),
    *("*** Update File: b", "-x", "+X"),
    *("*** Delete File: d/c",),
    *("*** Update File: a", "-two"),
)


@pytest.mark.parametrize("bad", ["n", "b", "a", "d/c"])
async def test_a_failure_midway_puts_back_what_was_written(context: ToolContext, files: Path, bad: str) -> None:
    before = tree(files)
    sandbox: Any = Failing(context.sandbox, bad)

    with pytest.raises(ToolFailed) as failure:
        await ApplyPatchTool().run({"patch": EVERYTHING}, replace(context, sandbox=sandbox))

    assert failure.value.kind == "no_space"
    assert "put back" in failure.value.message
    assert tree(files) == before
    assert os.stat(files / "b").st_mode & 0o777 == 0o755


async def test_what_cannot_be_put_back_is_named(context: ToolContext, files: Path) -> None:
    # The three writes go well, removing `d/c` fails, and so does whatever is tried after it.
    sandbox: Any = Failing(context.sandbox, "n", "b", "d/c", from_write=3)

    with pytest.raises(ToolFailed) as failure:
        await ApplyPatchTool().run({"patch": EVERYTHING}, replace(context, sandbox=sandbox))

    assert failure.value.kind == "partly_applied"
    assert failure.value.details == {"cause": "no_space", "files": 2}
    assert failure.value.message.endswith("could not be put back: b, n.")
    assert (files / "b").read_text() == "X\ny\n"
    assert (files / "a").read_text() == "one\ntwo\nthree\n"


class Halting:
    """`sandbox`, of which every path that is looked up waits in its thread until it is `released` by the event loop."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self.asked = threading.Event()
        self.released = threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sandbox, name)

    def resolve(self, path: str) -> str:
        self.asked.set()
        assert self.released.wait(30), "the event loop does not go on while a patch is worked out"
        return self._sandbox.resolve(path)


async def test_the_event_loop_goes_on_while_a_patch_is_worked_out(context: ToolContext, files: Path) -> None:
    sandbox: Any = Halting(context.sandbox)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ApplyPatchTool().run, {"patch": EVERYTHING}, replace(context, sandbox=sandbox))
        await anyio.to_thread.run_sync(sandbox.asked.wait, 30)
        sandbox.released.set()

    assert tree(files)["n"] == b"1\n"


async def test_the_event_loop_goes_on_while_a_patch_is_taken_apart(call: Call) -> None:
    """What is wrong stands at its end: to find that is all that the call does."""
    order: list[str] = []

    async def apply() -> None:
        with pytest.raises(ToolFailed, match="bad_patch"):
            await call("apply_patch", patch=patch("*** Update File: a", *["@@", "+"] * 200_000, "end"))
        order.append("patch")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(apply)
        for _ in range(4):
            await anyio.lowlevel.checkpoint()
        order.append("loop")

    assert order == ["loop", "patch"]


async def test_a_patch_that_is_cancelled_while_it_is_worked_out_changes_nothing(
    context: ToolContext, files: Path
) -> None:
    before = tree(files)
    sandbox: Any = Halting(context.sandbox)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ApplyPatchTool().run, {"patch": EVERYTHING}, replace(context, sandbox=sandbox))
        await anyio.to_thread.run_sync(sandbox.asked.wait, 30)
        tasks.cancel_scope.cancel()
        sandbox.released.set()

    assert tree(files) == before
