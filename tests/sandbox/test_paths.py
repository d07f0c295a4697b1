"""File tools stay beneath the workspace, whatever path they are given and whoever changes it meanwhile."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox.paths import MAX_DEPTH, Workspace, visible


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "outside"
    folder.mkdir()
    (folder / "secret").write_text("secret")
    return folder


@pytest.fixture
def files(workspace: Path) -> Iterator[Workspace]:
    (workspace / "sub").mkdir()
    (workspace / "file").write_text("content")
    made = Workspace(workspace, workspace)
    yield made
    made.close()


def content(files: Workspace, path: str) -> bytes:
    with closing(files.open(path)) as file:
        return file.read(0, 1_000_000)


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(ToolFailed) as failure:
        action()
    return failure.value.kind


@pytest.mark.parametrize("path", ["file", "./file", "sub/../file", "sub/..//./file", "new/../file"])
def test_one_file_has_one_key_whatever_it_is_called(files: Workspace, path: str) -> None:
    if path.startswith("new"):
        assert refusal(lambda: files.resolve(path)) == "not_found"
    else:
        assert files.resolve(path) == "file"
        assert content(files, path) == b"content"


def test_links_within_the_workspace_work_relative_and_absolute(files: Workspace, workspace: Path) -> None:
    (workspace / "sub" / "relative").symlink_to("../file")
    (workspace / "sub" / "absolute").symlink_to(workspace / "file")
    (workspace / "folder").symlink_to("sub")

    for path in ("sub/relative", "sub/absolute", "folder/relative", str(workspace / "folder" / "absolute")):
        assert files.resolve(path) == "file"
        assert content(files, path) == b"content"
    assert files.resolve("folder/new") == "sub/new"
    assert files.resolve("folder/..") == "."
    assert files.directory("folder") == str(workspace / "sub")


def test_an_absolute_path_spelled_through_a_link_above_the_workspace_works(
    files: Workspace, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "alias").symlink_to(workspace)

    assert files.resolve(str(tmp_path / "alias" / "file")) == "file"


@pytest.mark.parametrize(
    "path", ["../outside/secret", "sub/../../outside/secret", "/etc/passwd", "..", "/", "link/secret"]
)
def test_what_leads_out_is_refused_for_reading_and_writing(
    files: Workspace, workspace: Path, outside: Path, path: str
) -> None:
    (workspace / "link").symlink_to(outside)

    for action in (files.open, files.resolve, files.directory, lambda path: files.replace(path, b"x")):
        assert refusal(lambda action=action: action(path)) == "outside_workspace"  # type: ignore[misc]
    assert (outside / "secret").read_text() == "secret"


def test_a_dangling_link_to_the_outside_creates_nothing(files: Workspace, workspace: Path, outside: Path) -> None:
    (workspace / "dangling").symlink_to(outside / "new")
    (workspace / "up").symlink_to("../outside/new")

    assert refusal(lambda: files.replace("dangling", b"x")) == "outside_workspace"
    assert refusal(lambda: files.replace("up", b"x")) == "outside_workspace"
    assert [entry.name for entry in outside.iterdir()] == ["secret"]


def test_special_files_are_refused_unopened(files: Workspace, workspace: Path) -> None:
    os.mkfifo(workspace / "fifo")
    (workspace / "zero").symlink_to("/dev/zero")
    (workspace / "magic").symlink_to("/proc/self/root/etc/passwd")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(workspace / "socket"))
    if os.geteuid() == 0:
        os.mknod(workspace / "device", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        assert refusal(lambda: files.open("device")) == "not_a_file"

    for path in ("fifo", "socket", "sub", "."):
        assert refusal(lambda path=path: files.open(path)) == "not_a_file"  # type: ignore[misc]
        assert refusal(lambda path=path: files.replace(path, b"x")) == "not_a_file"  # type: ignore[misc]
    for path in ("zero", "magic"):
        assert refusal(lambda path=path: files.open(path)) == "outside_workspace"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("", "invalid_path"),
        ("a\0b", "invalid_path"),
        ("\ud800", "invalid_path"),
        ("x" * 5_000, "invalid_path"),
        ("x" * 300, "invalid_path"),
        ("file/x", "not_a_directory"),
        ("file/..", "not_a_directory"),
        ("nothing/x", "not_found"),
        ("loop", "invalid_path"),
        ("~/x", "not_found"),
        ("$HOME", "not_found"),
    ],
)
def test_an_odd_path_is_refused_by_kind(files: Workspace, workspace: Path, path: str, kind: str) -> None:
    (workspace / "loop").symlink_to("loop")

    assert refusal(lambda: files.open(path)) == kind


def test_a_path_that_is_too_deep_is_refused_before_descriptors_run_out(files: Workspace, workspace: Path) -> None:
    folder = os.open(workspace, os.O_RDONLY)
    for _ in range(MAX_DEPTH + 1):
        os.mkdir("d", dir_fd=folder)
        deeper = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = deeper
    os.close(folder)

    assert refusal(lambda: files.resolve("d/" * (MAX_DEPTH + 1))) == "invalid_path"


def test_names_that_are_no_unicode_are_found_and_shown_safely(files: Workspace, workspace: Path) -> None:
    name = os.fsdecode(b"\xff\xfe new\nline ")
    (workspace / name).write_text("odd")

    assert content(files, name) == b"odd"
    assert visible(name) == "\ufffd\ufffd new\\x0aline "
    assert visible("\ud800").encode()


def test_reserved_directories_are_closed_by_whatever_way_they_are_reached(workspace: Path) -> None:
    store = workspace / "sub" / "store"
    store.mkdir(parents=True)
    (store / "log").write_text("log")
    (workspace / "link").symlink_to("sub/store/log")
    files = Workspace(workspace, workspace, reserved=[store, workspace / "later"])
    (workspace / "later").mkdir()

    for path in ("sub/store", "sub/store/log", "sub/store/new", "link", str(store / "log"), "later/x"):
        assert refusal(lambda path=path: files.open(path)) == "outside_workspace"  # type: ignore[misc]
        assert refusal(lambda path=path: files.replace(path, b"x")) == "outside_workspace"  # type: ignore[misc]
    store.rename(workspace / "moved")
    assert (workspace / "moved" / "log").read_text() == "log"
    files.close()


def test_another_name_of_a_reserved_file_is_closed_too(workspace: Path) -> None:
    store = workspace.parent / "store"
    store.mkdir()
    (store / "store.db").write_text("locked by its name")
    (workspace / "innocent").hardlink_to(store / "store.db")
    (workspace / "mine").write_text("mine")
    (workspace / "mine too").hardlink_to(workspace / "mine")
    files = Workspace(workspace, workspace, reserved=[store])

    for use in (files.open, files.resolve, lambda path: files.replace(path, b"x")):
        assert refusal(lambda use=use: use("innocent")) == "outside_workspace"  # type: ignore[misc]
    assert content(files, "mine too") == b"mine"
    files.close()


def test_a_workspace_that_is_reserved_is_closed_as_a_whole(workspace: Path) -> None:
    (workspace / "file").write_text("x")
    (workspace / "sub").mkdir(exist_ok=True)
    (workspace / "sub" / "file").write_text("x")
    for root in (workspace, workspace / "sub"):
        files = Workspace(root, root, reserved=[workspace])
        assert refusal(lambda files=files: files.open("file")) == "outside_workspace"  # type: ignore[misc]
        files.close()


def test_a_file_is_replaced_with_its_mode_through_its_link(files: Workspace, workspace: Path) -> None:
    (workspace / "file").chmod(0o755)
    (workspace / "link").symlink_to("file")

    assert files.replace("link", b"new") is False

    assert (workspace / "link").is_symlink()
    assert (workspace / "file").read_bytes() == b"new"
    assert stat.S_IMODE((workspace / "file").stat().st_mode) == 0o755


def test_a_new_file_is_made_with_its_directories_and_the_umask(files: Workspace, workspace: Path) -> None:
    before = os.umask(0o027)
    try:
        assert files.replace("a/b/c", b"new") is True
    finally:
        os.umask(before)

    assert (workspace / "a" / "b" / "c").read_bytes() == b"new"
    assert stat.S_IMODE((workspace / "a" / "b" / "c").stat().st_mode) == 0o640


def test_a_dangling_link_within_the_workspace_makes_its_target(files: Workspace, workspace: Path) -> None:
    (workspace / "link").symlink_to("sub/target")

    assert files.replace("link", b"new") is True
    assert (workspace / "sub" / "target").read_bytes() == b"new"


def test_a_failed_write_leaves_the_old_file_and_no_other(
    files: Workspace, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    assert refusal(lambda: files.replace("file", b"new")) == "no_space"
    assert (workspace / "file").read_bytes() == b"content"
    assert sorted(entry.name for entry in workspace.iterdir()) == ["file", "sub"]


def test_a_running_program_can_be_replaced(files: Workspace, workspace: Path) -> None:
    program = workspace / "program"
    program.write_bytes(Path("/bin/sleep").read_bytes())
    program.chmod(0o755)
    pid = os.posix_spawn(program, ["program", "60"], {})
    try:
        assert files.replace("program", b"#!/bin/sh\n") is False
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_readers_never_see_a_partial_file(files: Workspace, workspace: Path) -> None:
    versions = {b"a" * 300_000, b"b" * 100_000}
    done = threading.Event()
    seen: set[bytes] = set()

    def read() -> None:
        while not done.is_set():
            seen.add((workspace / "file").read_bytes())

    files.replace("file", b"a" * 300_000)
    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        for version in versions:
            files.replace("file", version)
    done.set()
    reader.join()

    assert seen <= versions


@pytest.mark.slow
def test_swapping_a_directory_for_a_link_never_leads_out(files: Workspace, workspace: Path, outside: Path) -> None:
    inner = workspace / "sub" / "d"
    inner.mkdir()
    (inner / "secret").write_text("mine")
    (workspace / "sub" / "evil").symlink_to(outside)
    done = threading.Event()
    exchange = ctypes.CDLL(None, use_errno=True).renameat2
    names = (os.fsencode(inner), os.fsencode(workspace / "sub" / "evil"))

    def swap() -> None:
        while not done.is_set():
            assert exchange(-100, names[0], -100, names[1], 2) == 0

    attacker = threading.Thread(target=swap)
    attacker.start()
    reads: list[bytes] = []
    refusals: set[str] = set()
    try:
        for round_number in range(6_000):
            try:
                reads.append(content(files, "sub/d/secret"))
                if round_number % 10 == 0:
                    files.replace("sub/d/new", b"x")
            except ToolFailed as failure:
                refusals.add(failure.kind)
    finally:
        done.set()
        attacker.join()

    assert set(reads) == {b"mine"}
    assert refusals <= {"outside_workspace", "not_found", "not_a_directory"}
    assert [entry.name for entry in outside.iterdir()] == ["secret"]


def test_no_descriptor_is_left_open(files: Workspace, workspace: Path, outside: Path) -> None:
    (workspace / "link").symlink_to(outside)
    before = len(os.listdir("/proc/self/fd"))
    for path in ("file", "link/x", "sub/../file", "nothing", "file/x", "sub"):
        for action in (files.resolve, files.directory, lambda path: content(files, path)):
            try:
                action(path)
            except ToolFailed:
                continue

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_can_be_read_in_any_part(files: Workspace) -> None:
    with closing(files.open("file")) as file:
        assert (file.size, file.path) == (7, "file")
        assert file.read(3, 2) == b"te"
        assert file.read(5, 10) == b"nt"
        assert file.read(100, 10) == b""


def test_relative_paths_start_at_the_working_directory(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "top").write_text("top")
    files = Workspace(workspace, workspace / "sub")

    assert files.resolve("x") == "sub/x"
    assert files.resolve("../top") == "top"
    assert files.resolve(str(workspace / "top")) == "top"
    assert files.directory(None) == str(workspace / "sub")
    assert refusal(lambda: files.resolve("../../top")) == "outside_workspace"
    files.close()


def test_a_workspace_that_cannot_be_used_is_a_fault(workspace: Path, tmp_path: Path) -> None:
    for root, cwd in ((workspace, tmp_path), (tmp_path / "none", tmp_path / "none")):
        with pytest.raises(HarnessFault):
            Workspace(root, cwd)


@given(st.lists(st.sampled_from(["..", ".", "", "a", "b", "link", "up", "abs", "loop"]), max_size=8))
def test_a_resolved_path_is_what_the_system_finds_or_is_refused(parts: list[str]) -> None:
    path = "/".join(parts) or "."
    expected = os.path.realpath(os.path.join(TREE, path))
    try:
        key = SHARED.resolve(path)
    except ToolFailed:
        # `..` past the top, a loop, or `..` after what does not exist: refused though it might lead back.
        return
    assert os.path.normpath(os.path.join(TREE, key)) == expected


TREE = ""
SHARED: Workspace


@pytest.fixture(autouse=True, scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    global TREE, SHARED
    root = tmp_path_factory.mktemp("tree").resolve()
    (root / "a" / "b").mkdir(parents=True)
    (root / "a" / "link").symlink_to("b")
    (root / "link").symlink_to("a/b")
    (root / "a" / "b" / "up").symlink_to("../..")
    (root / "up").symlink_to("..")
    (root / "a" / "abs").symlink_to(root / "a")
    (root / "loop").symlink_to("loop")
    TREE = str(root)
    SHARED = Workspace(root, root)
    yield
    SHARED.close()
