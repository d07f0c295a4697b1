"""What a contained command must not see, and what it must not change within the workspace.

Rule 1: what is protected is settled when the session is opened, before any of its commands runs. A mount keeps what it
covers from being renamed or replaced, and each directory that leads to it is pinned by one. So no command of the
session can put a link in the place of something that is mounted for the next.
Rule 2: nothing is mounted through a link.
Rule 3: what does not exist when the session is opened is not protected, save `PLANTED`: `git init` must work.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hames.protocol.errors import HarnessFault
from hames.sandbox.bubblewrap import View

PRIVATE = ("/tmp", "/var/tmp", "/run")
"""Scratch space, and where daemons put their sockets."""

RESOLVER = "/etc/resolv.conf"
"""Often a link into `/run`: without it no name is found."""

SYSTEM = "/run/current-system"
"""The programs of NixOS."""

CREDENTIALS = (
    ".anthropic",
    ".aws",
    ".azure",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude",
    ".codex",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".config/op",
    ".docker",
    ".gem/credentials",
    ".git-credentials",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pypirc",
    ".ssh",
    ".terraform.d",
)
"""Where programs keep what opens doors, in the home directory."""

SYSTEM_SECRETS = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssl/private")
"""What only root may read, which Hames may be."""

PROTECTED = (
    ".git/hooks",
    ".git/config",
    ".git/config.worktree",
    ".git/modules",
    ".gitmodules",
    ".vscode",
    ".idea",
    ".mcp.json",
)
"""What programs outside of the sandbox obey, and people rarely look at: hooks, `core.fsmonitor`, tasks, servers."""

SHELL_FILES = (
    ".bashrc",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".profile",
    ".zshenv",
    ".zshrc",
    ".zprofile",
    ".zlogin",
    ".gitconfig",
    ".config",
)
"""The same in the home directory, where that is in the workspace."""

PLANTED = ".git/commondir"
"""Makes git take hooks and settings from another place. Git itself makes it in a linked worktree only, never here, so
what a command has put there is taken away."""


class Shield:
    """What is protected from the commands of one session.

    `workspace` is a real path. `secret` are files and directories that are hidden besides credentials, wherever they
    are; `trusted` are files by their real paths that must stay as they are, where they lie in the workspace.
    """

    def __init__(self, workspace: Path, *, secret: Sequence[Path] = (), trusted: Sequence[Path] = ()) -> None:
        self._workspace = workspace
        self._inode = _inode(workspace)
        home = Path(os.path.realpath(os.path.expanduser("~")))
        found = [*secret, *(home / name for name in CREDENTIALS), *map(Path, SYSTEM_SECRETS)]
        # A link may not be mounted over; what it leads to can.
        self._secret = tuple(dict.fromkeys(os.path.realpath(path) for path in found))
        repository = workspace / ".git"
        if _is_directory(repository):
            # Something to protect: an empty one says nothing to git.
            with suppress(OSError):
                (repository / "hooks").mkdir()
        kept = [workspace / name for name in (PROTECTED if _is_directory(repository) else (".git", *PROTECTED))]
        kept += [path for path in trusted if path.is_relative_to(workspace)]
        if home.is_relative_to(workspace):
            kept += [home / name for name in SHELL_FILES]
        self._kept = tuple(path for path in map(str, kept) if _is_plain(path))
        self._pinned = tuple(self._leading_to([*self._kept, *self._secret]))
        self._planted = workspace / PLANTED if not os.path.lexists(workspace / PLANTED) else None

    def _leading_to(self, paths: Iterable[str]) -> list[str]:
        """The directories in the workspace that something within them pins."""
        root = str(self._workspace).rstrip("/") + "/"
        found: dict[str, None] = {}
        for path in paths:
            parent = os.path.dirname(path)
            while parent.startswith(root) and len(parent) > len(root):
                found[parent] = None
                parent = os.path.dirname(parent)
        return [path for path in found if _is_directory(path)]

    def keeps(self, key: str) -> bool:
        """Whether the file of this name, relative to the workspace and without links, is not to be changed."""
        path = os.path.normpath(self._workspace / key)
        return key == PLANTED or any(f"{path}/".startswith(f"{kept}/") for kept in self._kept)

    def view(self, cwd: str, *, network: bool) -> View:
        """What a command sees that starts now in `cwd`, an absolute path.

        Raises:
            HarnessFault: the workspace is not the directory it was.
        """
        if _inode(self._workspace) != self._inode:
            raise HarnessFault(
                "containment_unavailable",
                f"{self._workspace} is not the directory that the session was opened in: resume it.",
                boundary="sandbox",
            )
        private = tuple(dict.fromkeys(path for path in map(os.path.realpath, PRIVATE) if _is_directory(path)))
        inside = (str(self._workspace),)
        # What lies in a private directory is hidden already, unless the workspace is there and it is in that.
        secret = [path for path in self._secret if not _within(path, private) or _within(path, inside)]
        directories = tuple(path for path in secret if _is_directory(path))
        covers = (*private, *directories, *inside, "/dev")
        shown = tuple(path for path in (os.path.realpath(RESOLVER), SYSTEM) if _within(path, private))
        return View(
            workspace=str(self._workspace),
            cwd=cwd,
            network=network,
            private=private,
            shown=shown,
            hidden_directories=directories,
            hidden_files=(
                *(path for path in secret if os.path.isfile(path)),
                *(path for path in sockets() if not _within(path, covers)),
            ),
            pinned=tuple(path for path in self._pinned if _is_directory(path)),
            kept=tuple(path for path in self._kept if _is_plain(path)),
        )

    def take_away(self) -> None:
        """Remove what must not be planted."""
        if self._planted is not None:
            with suppress(OSError):
                self._planted.unlink()


def sockets() -> Iterator[str]:
    """The socket files of this host that somebody has open: a read-only mount does not keep from connecting to them.

    Those of other network namespaces, of containers that is, are not told.
    """
    rows: list[list[bytes]] = []
    with suppress(OSError), open("/proc/net/unix", "rb") as file:
        # Seven columns and, where there is one, the name (net/unix/af_unix.c of Linux).
        rows = [line.rstrip(b"\n").split(None, 7) for line in file]
    names = {os.fsdecode(row[7]) for row in rows if len(row) == 8 and row[7].startswith(b"/")}
    # Where its own descriptors led a process, is not for us to follow.
    paths = {os.path.realpath(name) for name in names if not name.startswith("/proc/")}
    yield from sorted(path for path in paths if stat.S_ISSOCK(_mode(path)))


def _within(path: str, directories: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{directory.rstrip('/')}/") for directory in directories)


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _mode(path: str | Path) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _is_directory(path: str | Path) -> bool:
    return stat.S_ISDIR(_mode(path))


def _is_plain(path: str) -> bool:
    """A file or directory that exists, and no link, by itself or by the way."""
    return (stat.S_ISDIR(_mode(path)) or stat.S_ISREG(_mode(path))) and os.path.realpath(path) == path
