"""Workspace and working directory as a client names them: real directories whose names JSON can hold."""

from __future__ import annotations

import os

from hames.protocol.errors import Refused


def real_directory(path: str, member: str) -> str:
    """The directory that a client names in `member`, without links.

    Raises:
        Refused: `invalid_config`, naming the member.
    """
    if not os.path.isabs(path):
        raise Refused("invalid_config", f"{member} must be an absolute path, not {path[:200]!r}.", member=member)
    if "\0" in path:
        raise Refused("invalid_config", f"{member} holds a NUL character.", member=member)
    if _shown(path) != path:
        raise Refused("invalid_config", f"{member} {path[:200]!r} is not valid Unicode.", member=member)
    real = os.path.realpath(path)
    if _shown(real) != real:
        raise Refused(
            "invalid_config",
            f"The real name of {member} {path[:200]!r} is {real[:200]!r}, which is not UTF-8: rename it.",
            member=member,
        )
    if not os.path.isdir(real):
        raise Refused("invalid_config", f"{member} {path[:200]!r} is not a directory here.", member=member)
    return real


def real_cwd(workspace: str, wish: str | None) -> str:
    """The working directory below `workspace`, which it is by default.

    Raises:
        Refused: `invalid_config`, or `path_outside_mounts`.
    """
    if wish is None:
        return workspace
    real = real_directory(os.path.join(workspace, wish), "cwd")
    if os.path.commonpath([workspace, real]) != workspace:
        raise Refused("path_outside_mounts", f"cwd {wish[:200]!r} is not within the workspace.", member="cwd")
    return real


def _shown(path: str) -> str:
    """`path` as JSON can hold it: what is not UTF-8 on disk stands escaped."""
    return path.encode("utf-8", "backslashreplace").decode()


def identity(path: str) -> tuple[str | None, int | None]:
    """What is at `path` now: its real path, as JSON can hold it, and its inode; None where there is nothing."""
    real = os.path.realpath(path)
    try:
        return _shown(real), os.stat(real).st_ino
    except OSError:
        return None, None
