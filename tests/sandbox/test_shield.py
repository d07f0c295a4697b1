"""What commands of a session must not see or change, as it is found on the disk."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from hames.sandbox.shield import Shield, sockets


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path.resolve() / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    return made


def test_a_repository_without_hooks_gets_an_empty_folder_of_them_to_protect(workspace: Path) -> None:
    (workspace / ".git").mkdir()

    shield = Shield(workspace)

    assert os.listdir(workspace / ".git" / "hooks") == []
    assert shield.view(str(workspace), network=True).kept == (f"{workspace}/.git/hooks",)
    assert shield.view(str(workspace), network=True).pinned == (f"{workspace}/.git",)


def test_the_file_that_points_to_a_repository_is_kept(workspace: Path) -> None:
    (workspace / ".git").write_text("gitdir: elsewhere")

    shield = Shield(workspace)

    assert shield.keeps(".git")
    assert not shield.keeps(".gitignore")
    assert shield.view(str(workspace), network=True).kept == (f"{workspace}/.git",)


def test_nothing_is_mounted_through_a_link(workspace: Path) -> None:
    (workspace / ".git").symlink_to("/etc")
    (workspace / ".vscode").symlink_to("/etc")

    view = Shield(workspace).view(str(workspace), network=True)

    assert (view.kept, view.pinned) == ((), ())


def test_what_has_become_a_link_or_is_gone_is_not_mounted(workspace: Path) -> None:
    for name in (".git/hooks", ".vscode", ".idea"):
        (workspace / name).mkdir(parents=True)
    shield = Shield(workspace)
    (workspace / ".idea").rmdir()
    (workspace / ".git").rename(workspace / "other")
    (workspace / ".git").symlink_to("other")

    view = shield.view(str(workspace), network=True)

    assert (view.kept, view.pinned) == ((f"{workspace}/.vscode",), ())


def test_the_files_of_the_shell_are_kept_where_the_home_is_in_the_workspace(home: Path) -> None:
    (home / ".bashrc").touch()
    (home / ".ssh").mkdir()

    shield = Shield(home.parent)
    view = shield.view(str(home), network=True)

    assert f"{home}/.bashrc" in view.kept
    assert shield.keeps("home/.bashrc")
    assert f"{home}/.ssh" in view.hidden_directories
    assert str(home) in view.pinned


def test_a_secret_is_hidden_by_its_real_name(workspace: Path, home: Path, tmp_path: Path) -> None:
    vault = workspace / "vault"
    vault.mkdir()
    (vault / "config.json").touch()
    (home / ".ssh").symlink_to(vault)
    link = tmp_path / "config.json"
    link.symlink_to(vault / "config.json")

    view = Shield(workspace, secret=[link]).view(str(workspace), network=True)

    assert str(vault) in view.hidden_directories
    assert str(vault / "config.json") in view.hidden_files
    assert str(vault) in view.pinned


def test_what_was_planted_is_taken_away_and_what_was_there_is_not(workspace: Path) -> None:
    planted = workspace / ".git" / "commondir"
    planted.parent.mkdir()
    shield = Shield(workspace)
    planted.write_text("../evil")
    shield.take_away()
    shield.take_away()
    assert not planted.exists()

    planted.write_text(".")
    Shield(workspace).take_away()
    assert planted.exists()


def test_socket_files_that_are_open_are_found_and_others_are_not(workspace: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hames socket ") as folder, socket.socket(socket.AF_UNIX) as opened:
        place = os.path.realpath(folder) + "/s"
        opened.bind(place)
        assert place in list(sockets())
        os.unlink(place)
        Path(place).touch()
        assert place not in list(sockets())


def test_sockets_of_the_workspace_and_of_private_directories_need_not_be_hidden(workspace: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        folder = os.open(workspace, os.O_PATH)
        opened.bind(f"/proc/self/fd/{folder}/s")
        os.close(folder)
        assert not [
            path for path in Shield(workspace).view(str(workspace), network=True).hidden_files if "/s" in path[-2:]
        ]
