"""What a workspace lists, makes with a mode, and takes away."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hames.ports import Entry
from hames.protocol.errors import ToolFailed
from hames.sandbox.paths import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    root = tmp_path.resolve() / "work"
    (root / "store").mkdir(parents=True)
    (root / "store" / "key").write_text("k")
    (root / "d").mkdir()
    (root / "f").write_text("abc")
    (root / "link").symlink_to("f")
    (root / "away").symlink_to("/etc/passwd")
    os.mkfifo(root / "fifo")
    os.link(root / "store" / "key", root / "hard")
    return Workspace(root, root, reserved=[root / "store"])


def test_entries_are_sorted_by_bytes_typed_and_without_what_is_reserved(workspace: Workspace) -> None:
    entries, count = workspace.entries(".", most=10)

    assert entries == [
        Entry("away", "link", 0),
        Entry("d", "directory", 0),
        Entry("f", "file", 3),
        Entry("fifo", "special", 0),
        Entry("link", "link", 0),
    ]
    assert count == 5
    assert workspace.entries("d", most=10) == ([], 0)


def test_only_the_first_entries_are_kept_and_all_are_counted(workspace: Workspace) -> None:
    entries, count = workspace.entries(".", most=2)

    assert ([entry.name for entry in entries], count) == (["away", "d"], 5)


@pytest.mark.parametrize(
    ("path", "kind"),
    [("f", "not_a_directory"), ("none", "not_found"), ("..", "outside_workspace"), ("store", "outside_workspace")],
)
def test_what_is_no_directory_of_the_workspace_has_no_entries(workspace: Workspace, path: str, kind: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        workspace.entries(path, most=1)

    assert failure.value.kind == kind


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("d", "not_a_file"),
        ("fifo", "not_a_file"),
        ("none", "not_found"),
        ("d/none", "not_found"),
        ("away", "outside_workspace"),
        ("../x", "outside_workspace"),
        ("hard", "outside_workspace"),
        ("store/key", "outside_workspace"),
        ("", "invalid_path"),
    ],
)
def test_only_files_of_the_workspace_are_taken_away(workspace: Workspace, tmp_path: Path, path: str, kind: str) -> None:
    with pytest.raises(ToolFailed) as failure:
        workspace.remove(path)

    assert failure.value.kind == kind
    assert len(os.listdir(tmp_path / "work")) == 7


def test_a_file_is_taken_away_also_by_a_link_to_it(workspace: Workspace, tmp_path: Path) -> None:
    workspace.remove("link")

    assert not (tmp_path / "work" / "f").exists()
    assert (tmp_path / "work" / "link").is_symlink()


def test_a_new_file_gets_the_mode_it_is_given_and_an_old_one_keeps_its_own(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.replace("new", b"x", mode=0o755)
    workspace.replace("new", b"y", mode=0o600)

    with_mode = workspace.open("new")
    assert (with_mode.mode, with_mode.read(0, 9)) == (0o755, b"y")
    with_mode.close()
