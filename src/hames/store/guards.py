"""What keeps one SQLite store safe in several processes, beyond SQLite's own locks.

Rule 1: whoever writes holds the gate, an `flock`: it is fair, and it is not lost when some code of the process opens
and closes a file of the store, as SQLite's POSIX locks are (sqlite.org/howtocorrupt.html, 2.2).
Rule 2: no wait at the gate is without bound; who is stopped within it costs others errors, never loss.
Rule 3: a store that went back is refused, not served as whole.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time
from pathlib import Path
from typing import Final
from zlib import crc32

from hames.store.faults import unavailable

GATE_POLL_FIRST_S: Final = 0.00005
GATE_POLL_MOST_S: Final = 0.002
"""Between two tries at a taken gate; a group commit holds it for some 0.3 ms."""

_SHARED_RANGE: Final = (0x40000002, 510)
"""SQLite's SHARED bytes of the database file (os.h: `SHARED_FIRST`, `SHARED_SIZE`)."""

_DMS_BYTE: Final = (128, 1)
"""SQLite's deadman switch in the -shm file (os_unix.c: `UNIX_SHM_DMS`)."""

_NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "afpfs", "webdav", "ceph", "lustre", "glusterfs", "gfs2", "ocfs2"}
    | {"9p", "drvfs", "virtiofs", "vboxsf", "prl_fs", "vmhgfs"}
)
"""WAL needs memory that all users of a file share: "does not work over a network filesystem" (sqlite.org/wal.html).
With those of the second row the others are on another kernel: the host of a virtual machine (9p is that of WSL too)."""

_LOCAL_FUSE: Final = frozenset({"fuse.fuse-overlayfs", "fuseblk"})
"""All other FUSE is taken for a network: what is behind it cannot be told. The first is what containers without root
have for their root, over a local directory; the second is a local disk."""


NOBODY = b" " * 20
"""What stands in the gate's file where the holder's process id would."""


class Gate:
    """The right to write, for one process at a time.

    A process that waits holds the turnstile (an `flock` on the directory), which everybody passes to reach the
    gate: so one that commits without pause cannot slip in again before it.
    """

    def __init__(self, directory: Path, *, limit_ms: int) -> None:
        self._directory = directory
        self._limit_ms = limit_ms
        self._gate_fd = os.open(directory / "gate.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._turnstile_fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._name = f"{os.getpid():<20}".encode()

    def enter(self, *, patient: bool = True) -> bool:
        """Wait until this process may write; False at once when it may not and is not `patient`.

        Raises:
            HarnessFault: `store_unavailable {pid, state}` of who holds it, after the limit.
        """
        deadline = time.monotonic() + (self._limit_ms / 1000 if patient else 0)
        if not lock_until(self._turnstile_fd, deadline):
            return self._refuse(patient)
        try:
            if not lock_until(self._gate_fd, deadline):
                return self._refuse(patient)
        finally:
            fcntl.flock(self._turnstile_fd, fcntl.LOCK_UN)
        os.pwrite(self._gate_fd, self._name, 0)
        return True

    def leave(self) -> None:
        """Let others in. The name goes first: who is stopped before it writes its own is not taken for this one."""
        os.pwrite(self._gate_fd, NOBODY, 0)
        fcntl.flock(self._gate_fd, fcntl.LOCK_UN)

    def fileno(self) -> int:
        """The descriptor of its file, to tell whether others would pass the same gate."""
        return self._gate_fd

    def close(self) -> None:
        """Close it; a gate that is held is left."""
        os.close(self._gate_fd)
        os.close(self._turnstile_fd)

    def _refuse(self, patient: bool) -> bool:
        if not patient:
            return False
        holder = os.pread(self._gate_fd, 20, 0).split()
        pid = int(holder[0]) if holder and holder[0].isdigit() else None
        state = "unknown" if pid is None else process_state(pid)
        who = "a process" if pid is None else f"process {pid} ({state})"
        why = f"{who} holds its gate for longer than {self._limit_ms} ms"
        raise unavailable(self._directory, why, pid=pid, state=state)


def lock_until(fd: int, deadline: float) -> bool:
    """Take an `flock` by `deadline`, of `time.monotonic`; False when somebody else held it for so long."""
    pause_s = GATE_POLL_FIRST_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.5, GATE_POLL_MOST_S)
        else:
            return True


def process_state(pid: int) -> str:
    """`running`, `stopped`, `gone` or `unknown`, by /proc."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="latin-1")
    except FileNotFoundError:
        return "gone" if Path("/proc/self/stat").exists() else "unknown"
    except OSError:
        return "unknown"
    return {"T": "stopped", "t": "stopped", "Z": "gone", "X": "gone"}.get(stat[stat.rindex(")") + 2], "running")


def own_descriptors(directory: Path) -> dict[int, str]:
    """Descriptors of this process on the database and its shared memory: number to suffix. Linux only."""
    found: dict[int, str] = {}
    database = os.path.realpath(directory / "store.db")
    try:
        numbers = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return found
    for number in numbers:
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target in (database, f"{database}-shm"):
            found[int(number)] = target[len(database) :]
    return found


def mirror_locks(directory: Path, before: dict[int, str]) -> bool:
    """Hold read locks that no stray `close` drops on what SQLite locks, on the descriptors that are new since `before`.

    They keep a foreign program that closes the database from unlinking the WAL (it must lock exclusively first).
    False where the platform has no open-file-description locks.
    """
    if not hasattr(fcntl, "F_OFD_SETLK"):
        return False
    armed: set[str] = set()
    for descriptor, suffix in own_descriptors(directory).items():
        if descriptor in before:
            continue
        start, length = _DMS_BYTE if suffix else _SHARED_RANGE
        # struct flock of 64-bit Linux: type, whence, start, length, pid (0 as the kernel demands).
        lock = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, start, length, 0)
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, lock)
        armed.add(suffix)
    return armed == {"", "-shm"}


class Witness:
    """The count of commits, kept beside the database: tells that a deleted or zeroed WAL took commits with it.

    Written after each commit and not synced: it outlives the process, and after a power cut it can only be behind.
    """

    _FORM: Final = struct.Struct("<32sQI20x")

    def __init__(self, directory: Path, *, write: bool) -> None:
        self._path = directory / "witness"
        self._flags = os.O_CLOEXEC | (os.O_RDWR | os.O_CREAT if write else os.O_RDONLY)
        self._fd = os.open(self._path, self._flags, 0o600)

    def read(self) -> tuple[str, int] | None:
        """Store id and count; None when it does not prove itself."""
        data = os.pread(self._fd, self._FORM.size, 0)
        if len(data) != self._FORM.size:
            return None
        store_id, commits, crc = self._FORM.unpack(data)
        return (store_id.decode(), commits) if crc == crc32(data[:40]) else None

    def write(self, store_id: str, commits: int) -> None:
        """One `pwrite`; called with the gate held. A file that was removed is made anew."""
        if not os.fstat(self._fd).st_nlink:
            os.close(self._fd)
            self._fd = os.open(self._path, self._flags, 0o600)
        body = struct.pack("<32sQ", store_id.encode(), commits)
        os.pwrite(self._fd, body + struct.pack("<I20x", crc32(body)), 0)

    def close(self) -> None:
        """Close it."""
        os.close(self._fd)


def check_witness(directory: Path, seen: tuple[str, int] | None, store_id: str, commits: int) -> None:
    """Refuse a database that has fewer commits than the witness, `seen` before its count was read.

    Raises:
        HarnessFault: `store_unavailable`, with both counts.
    """
    if seen is None or (seen[1] <= commits and seen[0] == store_id):
        return
    why = (
        f"history was lost: {seen[1]} commits were made, {commits} are there; restore a backup, "
        "or run `hames repair` to go on with what is left"
    )
    if seen[0] != store_id:
        why = "store.db is not the one that `witness` tells of; restore it, or run `hames repair` to keep this one"
    raise unavailable(directory, why, retryable=False, historyLost=True, commitsWitnessed=seen[1], commitsFound=commits)


def refuse_network(directory: Path) -> None:
    """Refuse a store on a network file system.

    Raises:
        HarnessFault: `store_unavailable {fileSystem}`.
    """
    kind = network_file_system(directory)
    if kind is not None:
        why = (
            f"{kind} is a network file system, or one shared with another machine, where SQLite's WAL does not work; "
            f"set HAMES_HOME to a directory on a local disk, as {_local_place()}"
        )
        raise unavailable(directory, why, retryable=False, fileSystem=kind)


def _local_place() -> str:
    """A directory that a store could be in; the user's own, if that is local."""
    home = os.path.expanduser("~")
    if os.path.isdir(home) and network_file_system(Path(home)) is None:
        return os.path.join(home, ".local", "state", "hames")
    return f"/var/tmp/hames-{os.getuid()}"


def is_network(kind: str) -> bool:
    """Whether a file system of this type, as in /proc/self/mountinfo, may have users on other machines."""
    return kind in _NETWORK_FILE_SYSTEMS or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def network_file_system(directory: Path) -> str | None:
    """The type of a network file system that `directory` lies on, None for a local one or where it cannot be told."""
    device = os.stat(directory).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
            for line in mounts:
                fields = line.split()
                if fields[2] == number:
                    kind = fields[fields.index("-") + 1]
                    return kind if is_network(kind) else None
    except FileNotFoundError:
        return None
    return None
