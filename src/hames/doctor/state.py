"""Where sessions are kept: the directory, what it lies on, the store in it, and what others left there."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from hames.doctor.case import Case, Finding, Problem
from hames.protocol.errors import HamesError

FAIL_BYTES: Final = 32 * 2**20
"""Free space below which turns fail soon: a WAL of 16 MiB (`journal_size_limit`), and as much for what it holds."""

WARN_BYTES: Final = 512 * 2**20
"""Free space below which a day of work may end in `store_full`."""

WARN_INODES: Final = 1_000

GATE_MS: Final = 1_000
"""To pass the store's gate: a group commit holds it for less than a millisecond."""

LARGE_WAL_BYTES: Final = 64 * 2**20
"""A checkpoint comes every 4 MiB; four times the size at which the file is cut says that none gets through."""

LARGE_BACKUPS_BYTES: Final = 2**30
"""Of what repairs and migrations put aside: worth a word, since nobody looks there."""

REAPER_FOLDER: Final = "reaper"


def check_directory(case: Case) -> Finding:
    """The state directory: there, ours, writable, and nobody else's business."""
    home = case.home
    if not os.path.lexists(home):
        return _not_made(home)
    if not home.is_dir():
        return Finding(
            f"{home} is not a directory", (Problem("fail", "No store can be made there.", "Set HAMES_HOME."),)
        )
    found = home.stat()
    mode = stat.S_IMODE(found.st_mode)
    problems = []
    if found.st_uid != os.geteuid():
        problems.append(
            Problem("warn", f"It belongs to user {found.st_uid}, not to {os.geteuid()}.", "Set HAMES_HOME to your own.")
        )
    if not os.access(home, os.W_OK | os.X_OK):
        problems.append(
            Problem("fail", "It cannot be written to: sessions can be read, none can run.", f"Run: chmod u+rwx {home}")
        )
    open_to_others = [path for path in (home, *_files(home)) if _is_open_to_others(path)]
    if open_to_others:
        names = ", ".join(str(path) for path in open_to_others[:3])
        more = f" and {len(open_to_others) - 3} more" if len(open_to_others) > 3 else ""
        problems.append(Problem("warn", f"Others may read {names}{more}.", f"Run: chmod -R go-rwx {home}"))
    details = {"path": str(home), "exists": True, "mode": f"{mode:04o}"}
    return Finding(f"{home}, mode {mode:04o}", tuple(problems), details)


def _not_made(home: Path) -> Finding:
    parent = existing(home)
    problems: tuple[Problem, ...] = ()
    if not os.access(parent, os.W_OK | os.X_OK):
        what = f"It cannot be made: {parent} may not be written to."
        problems = (Problem("fail", what, "Set HAMES_HOME to a directory of yours."),)
    details = {"path": str(home), "exists": False}
    return Finding(f"{home}, which the first session makes", problems, details)


def _files(home: Path) -> list[Path]:
    """What Hames put there itself; the directory may hold other things."""
    names = ("store.db", "store.db-wal", "store.db-shm", "key", "witness", "live", "blobs", "backups", REAPER_FOLDER)
    return [home / name for name in names if os.path.lexists(home / name)]


def _is_open_to_others(path: Path) -> bool:
    mode = path.lstat().st_mode
    return bool(not stat.S_ISLNK(mode) and not mode & stat.S_ISVTX and mode & 0o077)


def existing(path: Path) -> Path:
    """`path`, or what is there of the way to it."""
    return next((folder for folder in (path, *path.absolute().parents) if folder.exists()), Path("/"))


def check_filesystem(case: Case) -> Finding:
    """What the store lies on: local, or a network where SQLite's WAL does not work; and not read-only."""
    from hames.store.guards import network_file_system

    place = existing(case.home)
    kind = file_system(place)
    problems = []
    network = network_file_system(place)
    if network is not None:
        what = f"{network} is a network file system, where SQLite's WAL does not work."
        problems.append(Problem("fail", what, "Set HAMES_HOME to a directory on a local disk."))
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        problems.append(
            Problem("fail", "It is mounted read-only.", "Mount it for writing, or set HAMES_HOME to another.")
        )
    return Finding(f"{kind or 'of unknown type'}, at {place}", tuple(problems), {"type": kind, "path": str(place)})


def file_system(place: Path) -> str | None:
    """The type of the file system that `place` lies on, as in /proc/self/mountinfo; None where it cannot be told."""
    device = os.stat(place).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    with suppress(OSError), open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        for line in mounts:
            fields = line.split()
            if fields[2] == number:
                return fields[fields.index("-") + 1]
    return None


def check_space(case: Case) -> Finding:
    """Room for more: bytes and inodes."""
    place = existing(case.home)
    found = os.statvfs(place)
    free_bytes = found.f_bavail * found.f_frsize
    counted = found.f_files > 0
    problems = []
    if free_bytes < WARN_BYTES:
        status, what = ("fail", "No turn gets far on this.") if free_bytes < FAIL_BYTES else ("warn", "That is little.")
        problems.append(_scarce(status, what, place))
    if counted and found.f_favail < WARN_INODES:
        status = "warn" if found.f_favail else "fail"
        problems.append(_scarce(status, f"{found.f_favail} files can be made.", place))
    inodes = f"{found.f_favail} inodes free" if counted else "inodes not counted"
    details = {"path": str(place), "freeBytes": free_bytes, "freeInodes": found.f_favail if counted else None}
    return Finding(f"{size(free_bytes)} and {inodes}, at {place}", tuple(problems), details)


def _scarce(status: str, what: str, place: Path) -> Problem:
    advice = f"Free space on the file system of {place}; nothing that was acknowledged is lost."
    return Problem("fail" if status == "fail" else "warn", what, advice)


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "bytes" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def check_store(case: Case) -> Finding:
    """The store: whether it opens and may be written to, whether it is whole at first sight, and what is in it."""
    from hames.store.survey import survey

    try:
        found = survey(case.home, {**case.config.limits, "gateMs": GATE_MS})
    except HamesError as failure:
        advice = f"See what is lost: hames verify. Keep a copy of {case.home} before anything else."
        return Finding("it cannot be used", (Problem("fail", failure.message, advice),), {"kind": failure.kind})
    if found is None:
        return Finding("none yet; the first session makes it", details={"exists": False})
    problems = []
    if found.read_only is not None:
        what = f"It can be read only: {found.read_only}."
        problems.append(Problem("fail", what, "Mend the rights, or use a build at least that new."))
    elif found.version < found.supported:
        what = (
            f"Its tables are of version {found.version}; this build brings them to {found.supported} when it opens it."
        )
        problems.append(Problem("warn", what, "End processes of older builds, then start this one."))
    if found.witnessed is None:
        what = "Its file `witness` is missing or damaged: lost history would not be noticed."
        problems.append(Problem("warn", what, "The next commit makes it again."))
    if found.wal_bytes > LARGE_WAL_BYTES:
        what = f"store.db-wal has {size(found.wal_bytes)}: something reads the database for very long."
        problems.append(Problem("warn", what, "End other programs that have store.db open."))
    backup = "no backup"
    if found.newest_backup is not None:
        path, seconds = found.newest_backup
        made = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%SZ}"
        backup = f"last backup {path.name}, {made}, of {found.backups} with {size(found.backups_bytes)}"
        if found.backups_bytes > LARGE_BACKUPS_BYTES:
            what = f"{found.backups} backups that Hames made itself take {size(found.backups_bytes)}; none is removed."
            advice = f"Once nothing of them is missed, remove the older ones: rm -r {path.parent}/<name>"
            problems.append(Problem("warn", what, advice))
    ballast = "no ballast" if found.ballast_bytes is None else f"ballast {size(found.ballast_bytes)}"
    seen = (
        f"version {found.version}, epoch {found.epoch}, {found.sessions} sessions, {found.events} events, "
        f"{size(found.database_bytes)} and {size(found.wal_bytes)} of WAL, {found.commits} commits, {ballast}, {backup}"
    )
    details = {
        "exists": True,
        "storeId": found.store_id,
        "version": found.version,
        "supported": found.supported,
        "epoch": found.epoch,
        "sessions": found.sessions,
        "events": found.events,
        "databaseBytes": found.database_bytes,
        "walBytes": found.wal_bytes,
        "commits": found.commits,
        "witnessed": found.witnessed,
        "ballastBytes": found.ballast_bytes,
        "backups": found.backups,
        "backupsBytes": found.backups_bytes,
        "lastBackup": None if found.newest_backup is None else str(found.newest_backup[0]),
        "lastBackupAgeS": None if found.newest_backup is None else int(time.time() - found.newest_backup[1]),
    }
    return Finding(seen, tuple(problems), details)


def check_leftovers(case: Case) -> Finding:
    """Who lives on the store, and what those left who were killed: files, sockets, processes."""
    from hames.store.survey import attendances

    present = attendances(case.home)
    living = [one for one in present if one.alive]
    dead = [one for one in present if not one.alive]
    orphans = list(orphaned_reapers(case.home))
    sockets = list(_stale_sockets(case.home))
    problems = []
    if dead:
        what = f"{len(dead)} processes ended without leaving ({', '.join(str(one.pid) for one in dead[:5])})."
        problems.append(Problem("warn", what, "Their sessions go on when they are resumed; any server tidies up."))
    if orphans:
        pids = " ".join(map(str, orphans))
        what = f"Reapers outlived the process they were started by: {pids}."
        problems.append(Problem("warn", what, f"They end when their commands have; if they stay, run: kill -9 {pids}"))
    if sockets:
        what = f"{len(sockets)} sockets of reapers that are gone, such as {sockets[0]}."
        problems.append(Problem("warn", what, f"Run: rm {' '.join(map(str, sockets[:5]))}"))
    pids = ", ".join(str(one.pid) for one in living) or "nobody"
    details = {
        "living": [{"pid": one.pid, "host": one.host} for one in living],
        "dead": [one.owner_id for one in dead],
        "orphanedReapers": orphans,
        "staleSockets": [str(path) for path in sockets],
    }
    return Finding(f"on the store now: {pids}", tuple(problems), details)


def orphaned_reapers(home: Path) -> Iterator[int]:
    """Reapers that were started on this store by a process that is gone. Linux only.

    The last argument of a reaper is its socket, in whose name the pid of its starter stands; what it forks has the same
    arguments, and is told by its parent.
    """
    from hames.sandbox.hunt import stat_fields

    folder = os.fsencode(f"{home.absolute() / REAPER_FOLDER}/reaper-")
    parents: dict[int, int] = {}
    starters: dict[int, int] = {}
    with suppress(FileNotFoundError):
        for pid in [int(name) for name in os.listdir("/proc") if name.isdigit()]:
            with suppress(OSError, ValueError):
                socket = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").rpartition(b"\0")[2]
                fields = stat_fields(pid)
                if socket.startswith(folder) and fields is not None:
                    starters[pid] = starter_of(os.fsdecode(socket))
                    parents[pid] = int(fields[1])
    for pid, parent in parents.items():
        if parent not in parents and parent != starters[pid]:
            yield pid


def starter_of(socket: str) -> int:
    """The process that started the reaper of this socket, by its name `reaper-<pid>-<random>.socket`.

    Raises:
        ValueError: it has another name.
    """
    return int(os.path.basename(socket).split("-")[1])


def _stale_sockets(home: Path) -> Iterator[Path]:
    for path in sorted((home / REAPER_FOLDER).glob("reaper-*.socket")):
        with suppress(ValueError, ProcessLookupError, PermissionError):
            try:
                os.kill(starter_of(path.name), 0)
            except ProcessLookupError:
                yield path
