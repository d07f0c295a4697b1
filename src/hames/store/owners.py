"""Which processes live on a store: each holds an `flock` on its file in `live/` to its end, and beats in it.

Rule 1: whose lock can be taken is dead, at once and for sure; only who lives can be stale.
Rule 2: silence is measured by CLOCK_BOOTTIME, which counts suspend and no clock step, and compares between processes.
Rule 3: what a dead process left (`live/`, `bell/`) is removed by whoever finds it.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from hames.core.times import rfc3339
from hames.ports import Owner, ReaperRecord
from hames.store.guards import lock_until

_SIZE: Final = 1024
"""Of a live file: written whole with one `pwrite`, so a reader never sees parts of two."""

_BEAT_AT: Final = 8
_BEAT_FORM: Final = b'{"beat":%20d,'
"""The beat stands first and has a fixed width: a beat is one `pwrite` of 20 bytes."""

HOLD_S: Final = 1.0
"""For the lock of this process's own new file."""

_SETTLE_NS: Final = 20_000_000
"""A directory that changed later than this before it was listed may change again without a new time stamp."""


def boot_clock_ns() -> int:
    """Nanoseconds since the machine started, suspend included."""
    return time.clock_gettime_ns(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def boot_id() -> str:
    """Which boot of the machine this is; empty where it cannot be told."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def start_time(pid: int) -> int:
    """Clock ticks from boot to the start of `pid` (/proc/<pid>/stat, field 22); 0 where it cannot be told."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except OSError:
        return 0
    return int(stat[stat.rindex(")") + 2 :].split()[19])


class Owners:
    """This process's live file, and sight of the others'."""

    def __init__(
        self, directory: Path, owner_id: str, *, lease_ms: int, reaper: Callable[[], ReaperRecord | None]
    ) -> None:
        self.owner_id = owner_id
        self._directory = directory
        self._live = directory / "live"
        self._bells = directory / "bell"
        self._heirs = directory / "heirs"
        self._lease_ms = lease_ms
        self._reaper = reaper
        self._told: ReaperRecord | None = None
        self._fd: int | None = None
        self._since = ""
        self._boot_id = boot_id()
        self._host = socket.gethostname()
        self._listed: tuple[int, list[str]] | None = None
        self._alone_since: int | None = None
        self._alone_surely = False

    def arrive(self) -> None:
        """Make the live file and hold its lock until `leave`."""
        self._since = rfc3339(time.time_ns() // 1_000_000)
        self._fd = self._hold()
        arrived_ns = os.stat(self._live).st_mtime_ns
        if not self._list():
            self._alone_since = arrived_ns

    def _hold(self) -> int:
        self._live.mkdir(mode=0o700, exist_ok=True)
        self._bells.mkdir(mode=0o700, exist_ok=True)
        self.sweep()
        while True:
            fd = os.open(self._live / self.owner_id, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Who looks whether this process is dead holds the lock for a moment; who is stopped at it keeps that file.
            if not lock_until(fd, time.monotonic() + HOLD_S):
                with suppress(FileNotFoundError):
                    os.unlink(self._live / self.owner_id)
            # Between open and flock another process may have taken the file for a dead one's.
            elif os.fstat(fd).st_nlink > 0:
                break
            os.close(fd)
        os.pwrite(fd, self._record_of_this(), 0)
        return fd

    def stand_by(self, session_id: str, waiting: bool) -> None:
        """Leave word that this process takes a session when its lease is free, or take the word away."""
        word = self._heirs / f"{session_id}.{self.owner_id}"
        # Word and no more: a store that cannot be written to has nothing to hand over.
        with suppress(OSError):
            if waiting:
                self._heirs.mkdir(mode=0o700, exist_ok=True)
                word.touch(mode=0o600)
            else:
                word.unlink(missing_ok=True)

    def heir(self, session_id: str) -> Owner | None:
        """Another live process that left word; the words of dead ones are removed."""
        with suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._heirs)):
                session, _, owner_id = name.rpartition(".")
                if session != session_id or owner_id == self.owner_id:
                    continue
                owner = self.look(owner_id)
                if owner.alive and not owner.stale:
                    return owner
                if not owner.alive:
                    with suppress(OSError):
                        os.unlink(self._heirs / name)
        return None

    def leave(self) -> None:
        """Be gone in good order."""
        if self._fd is not None:
            with suppress(FileNotFoundError):
                os.unlink(self._live / self.owner_id)
            os.close(self._fd)
            self._fd = None

    def beat(self) -> None:
        """Say that this process lives; and where its reaper is, once it has one. A file that was removed is made anew:
        until then this process counts as dead, and may have lost its leases."""
        if self._fd is None:
            return
        if not os.fstat(self._fd).st_nlink:
            self._come_back()
        elif self._reaper() != self._told:
            os.pwrite(self._fd, self._record_of_this(), 0)
        else:
            os.pwrite(self._fd, b"%20d" % boot_clock_ns(), _BEAT_AT)

    def _come_back(self) -> None:
        # Others may have come, written and gone meanwhile.
        self._alone_since = None
        with suppress(OSError):
            gone, self._fd = self._fd, self._hold()
            assert gone is not None
            os.close(gone)

    def _record_of_this(self) -> bytes:
        reaper = self._told = self._reaper()
        record: dict[str, Any] = {
            "pid": os.getpid(),
            "startTime": start_time(os.getpid()),
            "bootId": self._boot_id,
            "host": self._host,
            "since": self._since,
        }
        if reaper is not None:
            record["reaper"] = {"pid": reaper.pid, "startTime": reaper.start_time, "socket": reaper.socket}
        text = _BEAT_FORM % boot_clock_ns() + orjson.dumps(record)[1:]
        return text.ljust(_SIZE)

    def others(self) -> list[str]:
        """Owner ids of other processes that have a live file, dead ones perhaps among them. Cheap when none came or
        went: one `stat`."""
        try:
            changed_ns = os.stat(self._live).st_mtime_ns
        except OSError:
            return []
        if self._listed is not None and self._listed[0] == changed_ns:
            return self._listed[1]
        found = self._list()
        self._listed = (changed_ns, found) if time.time_ns() - changed_ns > _SETTLE_NS else None
        return found

    def _list(self) -> list[str]:
        try:
            return [name for name in os.listdir(self._live) if name != self.owner_id]
        except OSError:
            return []

    def alone(self) -> bool:
        """No other process has come to the store since this one did: nobody else can have written. One `stat`."""
        if self._alone_since is None:
            return False
        try:
            changed_ns = os.stat(self._live).st_mtime_ns
        except OSError:
            changed_ns = 0
        if changed_ns != self._alone_since:
            self._alone_since = None
        elif not self._alone_surely:
            if time.time_ns() - changed_ns < _SETTLE_NS:
                return False
            self._alone_surely = not self._list()
            if not self._alone_surely:
                self._alone_since = None
        return self._alone_since is not None

    def look(self, owner_id: str) -> Owner:
        """A process as it stands; a dead one's files are removed."""
        mine = owner_id == self.owner_id
        record = self._record(owner_id)
        if record is None:
            now = rfc3339(time.time_ns() // 1_000_000)
            return Owner(owner_id, self._host, 0, now, now, alive=False, stale=False, mine=mine)
        silent_ms = (boot_clock_ns() - record["beat"]) // 1_000_000
        alive = mine or (self._same_boot(record) and self._locked(owner_id))
        if not alive:
            self.bury(owner_id)
        return Owner(
            owner_id,
            record["host"],
            record["pid"],
            record["since"],
            rfc3339(time.time_ns() // 1_000_000 - silent_ms + self._lease_ms),
            alive=alive,
            stale=alive and silent_ms > self._lease_ms,
            mine=mine,
            reaper=_reaper_of(record),
        )

    def bury(self, owner_id: str) -> None:
        """Remove what a dead process left."""
        for path in (self._live / owner_id, self._bells / f"{owner_id}.sock"):
            with suppress(OSError):
                os.unlink(path)

    def sweep(self) -> None:
        """Bury everybody who is dead."""
        for owner_id in self.others():
            self.look(owner_id)

    def _record(self, owner_id: str) -> Mapping[str, Any] | None:
        try:
            text = (self._live / owner_id).read_bytes()
        except OSError:
            return None
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            record = {}
        # A file that was made and not written yet: its maker's lock tells whether it lives.
        blank = {"beat": boot_clock_ns(), "pid": 0, "bootId": self._boot_id, "host": self._host, "since": self._since}
        return {**blank, **record}

    def _same_boot(self, record: Mapping[str, Any]) -> bool:
        return bool(record["host"] != self._host or record["bootId"] == self._boot_id)

    def _locked(self, owner_id: str) -> bool:
        try:
            fd = os.open(self._live / owner_id, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False


def _reaper_of(record: Mapping[str, Any]) -> ReaperRecord | None:
    told = record.get("reaper")
    return None if told is None else ReaperRecord(told["pid"], told["startTime"], told["socket"])


def new_owner_id() -> str:
    """An id that no other process has."""
    return secrets.token_hex(8)
