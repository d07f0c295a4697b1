"""The one place where errors of SQLite and of the file system become ours."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any, Final

import apsw

from hames.protocol.errors import HamesError, HarnessFault

FOREIGN = (apsw.Error, OSError)
"""What this package translates; anything else is a bug in it."""

LEAST_BYTES: Final = 64 * 1024
"""With less than that free, SQLite cannot make the index of its WAL (32 KiB, twice where it grows)."""

_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT})

_REASONS: dict[type[BaseException], str] = {
    apsw.BusyError: "another program holds the database locked; end it, or wait",
    apsw.LockedError: "another program holds the database locked; end it, or wait",
    apsw.ReadOnlyError: "it may only be read; check the permissions of the directory and its files",
    apsw.CantOpenError: "it cannot be opened; check that the directory exists and may be written to",
    apsw.PermissionsError: "permission is denied; check the permissions of the directory and its files",
    apsw.AuthError: "permission is denied; check the permissions of the directory and its files",
    apsw.IOError: "reading or writing it failed; check the disk",
    apsw.CorruptError: "the database file is damaged; restore a backup of the directory, or run `hames repair`",
    apsw.NotADBError: "store.db is not a database; restore a backup of the directory, or run `hames repair`",
}


_LASTING = (apsw.CorruptError, apsw.NotADBError)
"""What no waiting cures."""


def unavailable(directory: Path, why: str, *, retryable: bool = True, **details: Any) -> HarnessFault:
    """`store_unavailable`, naming the store and the reason. `retryable`: waiting alone may cure it."""
    return HarnessFault(
        "store_unavailable",
        f"The store {directory} cannot be used: {why}.",
        boundary="artifact_store",
        retryable=retryable,
        path=str(directory),
        why=why,
        **details,
    )


def full(directory: Path, *, reserve_used: bool = False) -> HarnessFault:
    """`store_full`, naming the store. `reserve_used`: what was kept for this day is being used to end what runs."""
    used = " Its reserve is used to end what runs; nothing new is admitted." if reserve_used else ""
    return HarnessFault(
        "store_full",
        f"The store {directory} has no room left.{used} Free space on its file system; nothing acknowledged is lost.",
        boundary="artifact_store",
        path=str(directory),
        reserveUsed=reserve_used,
    )


def translate(error: BaseException, directory: Path) -> HarnessFault:
    """What a foreign error means for the store in `directory`; `error` is its cause."""
    fault = _translated(error, directory)
    fault.__cause__ = error
    return fault


def _translated(error: BaseException, directory: Path) -> HarnessFault:
    if isinstance(error, apsw.FullError):
        return full(directory)
    if isinstance(error, OSError):
        if error.errno in _FULL_ERRNOS:
            return full(directory)
        return unavailable(directory, error.strerror or type(error).__name__, errno=error.errno)
    if isinstance(error, apsw.IOError) and _has_no_room(directory):
        # What it writes beside the database, SQLite does not call full.
        return full(directory)
    if isinstance(error, apsw.Error):
        for kind, why in _REASONS.items():
            if isinstance(error, kind):
                passing = not issubclass(kind, _LASTING)
                return unavailable(directory, why, retryable=passing, sqlite=type(error).__name__)
        return unavailable(directory, f"SQLite failed: {error}", sqlite=type(error).__name__)
    return HarnessFault("internal", f"The store failed at {type(error).__name__}.", boundary="artifact_store")


def _has_no_room(directory: Path) -> bool:
    try:
        found = os.statvfs(directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < LEAST_BYTES


class Damage:
    """What a process has found damaged, until it opens the store again: nothing more is acknowledged to it.

    Noted by the thread that reads, asked by the one that writes, which would not look at old rows again by itself.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, HarnessFault] = {}
        self._store: HarnessFault | None = None
        self.lost: HarnessFault | None = None
        """Why what the files hold is not to be read either: the writer found it lost."""

    def note(self, error: HamesError) -> None:
        """Remember it if it tells of damage: to one session, or to a part of the database that is nobody's alone."""
        if not isinstance(error, HarnessFault):
            return
        if error.kind == "session_corrupt":
            self._sessions.setdefault(error.details["sessionId"], error)
        elif isinstance(error.__cause__, _LASTING) and self._store is None:
            self._store = error

    def refuse(self, session_id: str) -> None:
        """Let nothing be committed to what is damaged.

        Raises:
            HarnessFault: the one that was noted.
        """
        fault = self._store or self._sessions.get(session_id)
        if fault is not None:
            raise fault
