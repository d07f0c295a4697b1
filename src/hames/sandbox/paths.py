"""Files beneath a workspace, opened and replaced without ever trusting a path as text.

Rule 1: a path is walked one component at a time from a descriptor of the workspace. A link is read from the
descriptor it was opened by and spliced in; `..` goes back to the directory the walk came through. So whoever swaps
a directory for a link meanwhile gains nothing, and no path look-up happens after a check.
Rule 2: each component is compared with the reserved directories, and with what stands in them, by device and inode.
That is why the walk is not one `openat2(RESOLVE_BENEATH)`: the kernel would not say what it came through.
Rule 3: a file is opened through the descriptor whose type was checked: a FIFO, device or socket is never opened.
Rule 4: a file is replaced by a rename within the parent's descriptor: a reader sees the old content or the new.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from hames.ports import Entry
from hames.protocol.errors import HarnessFault, ToolFailed
from hames.sandbox.entries import check_writable, identity, in_order, put, take_away

MAX_LINKS = 40
"""Symbolic links followed in one path, as in Linux (path_resolution(7))."""

MAX_DEPTH = 128
"""Directories held open in one walk: many times what a tree has, and far from the limit on descriptors."""

BLOCK_BYTES = 2**20
"""Read at once: as much memory is taken, whatever the file turns out to hold."""

RESERVED_S = 0.02
"""What is reserved is read once for files that are opened together, such as the documents of a project."""

MAX_PATH_BYTES = 4_096
"""PATH_MAX of Linux."""

_KINDS = {
    errno.ENOENT: ("not_found", "does not exist"),
    errno.ENOTDIR: ("not_a_directory", "leads through something that is not a directory"),
    errno.EACCES: ("permission_denied", "may not be used: permission denied"),
    errno.EPERM: ("permission_denied", "may not be changed: operation not permitted"),
    errno.EROFS: ("permission_denied", "is on a read-only file system"),
    errno.ENAMETOOLONG: ("invalid_path", "has too long a name"),
    errno.ELOOP: ("invalid_path", "has too many symbolic links"),
    errno.ENOSPC: ("no_space", "was not written: no space is left"),
    errno.EDQUOT: ("no_space", "was not written: the quota is exceeded"),
    errno.EFBIG: ("no_space", "was not written: it is too large for the file system"),
    errno.EWOULDBLOCK: ("permission_denied", "is held by another process"),
}


def visible(path: str) -> str:
    """`path` as it may stand in a message: valid Unicode on one line."""
    text = path.encode("utf-8", "surrogateescape" if _encodable(path) else "replace").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in text)


def _encodable(path: str) -> bool:
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def _failures(path: str) -> Iterator[None]:
    """Turn an `OSError` about `path` into what the model can act on."""
    try:
        yield
    except OSError as error:
        kind, text = _KINDS.get(error.errno or 0, ("io_error", f"failed: {error.strerror}"))
        raise ToolFailed(kind, f"{visible(path)} {text}.") from error


class WorkspaceFile:
    """A regular file that is open for reading; see `ports.OpenFile`."""

    def __init__(self, fd: int, *, path: str, status: os.stat_result) -> None:
        self._fd = fd
        self.path = path
        self.size = status.st_size
        self.mode = stat.S_IMODE(status.st_mode)

    def read(self, offset: int, length: int) -> bytes:
        """At most `length` bytes from `offset` on; fewer only at the end of the file.

        Raises:
            ToolFailed: the file cannot be read.
        """
        chunks: list[bytes] = []
        with _failures(self.path):
            while length > 0 and (chunk := os.pread(self._fd, min(length, BLOCK_BYTES), offset)):
                chunks.append(chunk)
                offset += len(chunk)
                length -= len(chunk)
        return b"".join(chunks)

    def close(self) -> None:
        """Close it; again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Workspace:
    """The tree that file tools may use. Relative paths start at `cwd`, absolute ones must lie within. `keeps` says of a
    name, as in `OpenFile.path`, whether that file must stay as it is.

    Raises:
        HarnessFault: `workspace` cannot be opened, or `cwd` is not in it.
    """

    def __init__(
        self,
        workspace: Path,
        cwd: Path,
        *,
        reserved: Sequence[Path] = (),
        keeps: Callable[[str], bool] = lambda key: False,
    ) -> None:
        if not hasattr(os, "O_PATH"):
            raise HarnessFault("capability_unavailable", "File tools need Linux.", boundary="sandbox")
        self._root = str(workspace)
        self._reserved = tuple(reserved)
        self._reserved_known: set[tuple[int, int]] = set()
        self._reserved_until = 0.0
        self._keeps = keeps
        if not cwd.is_relative_to(workspace):
            raise HarnessFault("path_outside_mounts", "The working directory is not in the workspace.")
        self._cwd = cwd.relative_to(workspace).parts
        try:
            self._fd = os.open(workspace, os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            raise HarnessFault(
                "invalid_config", f"The workspace cannot be opened: {error.strerror}.", boundary="sandbox"
            ) from error

    def close(self) -> None:
        """Close the workspace; again does nothing."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def open(self, path: str) -> WorkspaceFile:
        """See `ports.Sandbox.open`."""
        with self._walk(path) as walk:
            walk.file()
            # O_NONBLOCK: somebody may hold a lease on it.
            fd = os.open(f"/proc/self/fd/{walk.fd}", os.O_RDONLY | os.O_NONBLOCK)
            return WorkspaceFile(fd, path=walk.key, status=os.fstat(fd))

    def resolve(self, path: str) -> str:
        """See `ports.Sandbox.resolve`."""
        with self._walk(path) as walk:
            return walk.key

    def directory(self, path: str | None) -> str:
        """See `ports.Sandbox.directory`."""
        with self._walk(path or ".") as walk:
            walk.directory()
            return os.path.normpath(os.path.join(self._root, walk.key))

    @contextmanager
    def enter(self, path: str | None) -> Iterator[int]:
        """A descriptor of the directory `path`, of the session's own for None.

        Raises:
            ToolFailed: not a directory in the workspace.
        """
        with self._walk(path or ".") as walk:
            fd = os.dup(walk.directory())
        try:
            yield fd
        finally:
            os.close(fd)

    def replace(self, path: str, content: bytes, *, mode: int | None = None) -> bool:
        """See `ports.Sandbox.replace`. The owner is kept where that is permitted; a hard link is broken."""
        with self._walk(path) as walk:
            if path.endswith("/"):
                raise ToolFailed("not_a_file", f"{visible(path)} names a directory.")
            self._leave(walk.key)
            if walk.missing:
                parent, name, old = walk.make_parents(), walk.missing[-1], None
            else:
                old = walk.file()
                check_writable(walk.fd)
                parent, name = walk.parent, walk.names[-1]
            put(parent, name, content, old, mode=mode)
            return old is None

    def remove(self, path: str) -> None:
        """See `ports.Sandbox.remove`. One that may not be written is kept, as by `replace`."""
        with self._walk(path) as walk:
            walk.file()
            self._leave(walk.key)
            check_writable(walk.fd)
            take_away(walk.parent, walk.names[-1])

    def entries(self, path: str, *, most: int) -> tuple[list[Entry], int]:
        """See `ports.Sandbox.entries`."""
        with self.enter(path) as directory, _failures(path):
            return in_order(directory, most=most, hidden=self._reserved_ids())

    def _leave(self, key: str) -> None:
        if self._keeps(key):
            message = f"{visible(key)} is protected: programs outside of the sandbox obey it. Ask the user to do it."
            raise ToolFailed("permission_denied", message)

    @contextmanager
    def _walk(self, path: str) -> Iterator[_Walk]:
        if not path or "\0" in path or not _encodable(path):
            raise ToolFailed("invalid_path", f"{visible(path)!r} is not a path.")
        if len(os.fsencode(path)) > MAX_PATH_BYTES:
            raise ToolFailed("invalid_path", f"The path is longer than {MAX_PATH_BYTES} bytes.")
        reserved = self._reserved_ids()
        if identity(os.fstat(self._fd)) in reserved:
            raise ToolFailed("outside_workspace", "The workspace itself is reserved and closed to tools.")
        with _failures(path), _Walk(self._fd, self._root, reserved, path) as walk:
            walk.go([] if path.startswith("/") else self._cwd)
            yield walk

    def _reserved_ids(self) -> set[tuple[int, int]]:
        # Read anew each time: a reserved directory may be made, or made again, while the session is open. What stands
        # in it is reserved by itself, since a hard link or a bind mount gives it another place.
        now = time.monotonic()
        if now < self._reserved_until:
            return self._reserved_known
        found: set[tuple[int, int]] = set()
        for directory in self._reserved:
            with suppress(OSError):
                found.add(identity(directory.stat()))
                with os.scandir(directory) as entries:
                    for entry in entries:
                        with suppress(OSError):
                            found.add(identity(entry.stat(follow_symlinks=False)))
        self._reserved_known, self._reserved_until = found, now + RESERVED_S
        return found


class _Walk:
    """One walk down the workspace; leaving it closes what it opened.

    `names` and the descriptors lead from the workspace to the last component that exists; `missing` are the
    names after it.
    """

    def __init__(self, root_fd: int, root: str, reserved: set[tuple[int, int]], path: str) -> None:
        self._root = root
        self._reserved = reserved
        self._path = path
        self._fds = [root_fd]
        self._links = 0
        self.names: list[str] = []
        self.missing: list[str] = []

    def __enter__(self) -> _Walk:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restart()

    @property
    def fd(self) -> int:
        """The last component that exists."""
        return self._fds[-1]

    @property
    def parent(self) -> int:
        """The directory of the last component."""
        return self._fds[-2]

    @property
    def key(self) -> str:
        """The canonical name: relative to the workspace, without links."""
        return "/".join([*self.names, *self.missing]) or "."

    def go(self, start: Sequence[str]) -> None:
        """Walk from the directory `start`."""
        todo = deque(start)
        todo.extend(self._inside(self._path) if self._path.startswith("/") else self._path.split("/"))
        while todo:
            name = todo.popleft()
            if name == "..":
                self._up()
            elif name not in ("", "."):
                self._down(name, todo)

    def file(self) -> os.stat_result:
        """The status of what the path names, which must be a regular file."""
        status = self._status()
        if not stat.S_ISREG(status.st_mode):
            what = "a directory" if stat.S_ISDIR(status.st_mode) else "a special file"
            raise ToolFailed("not_a_file", f"{visible(self._path)} is {what}; only regular files can be used.")
        return status

    def directory(self) -> int:
        """The descriptor of what the path names, which must be a directory."""
        if not stat.S_ISDIR(self._status().st_mode):
            raise ToolFailed("not_a_directory", f"{visible(self._path)} is not a directory.")
        return self.fd

    def _status(self) -> os.stat_result:
        if self.missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return os.fstat(self.fd)

    def make_parents(self) -> int:
        """Make the missing directories; the descriptor of the last."""
        for name in self.missing[:-1]:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self.fd)
            self._push(name, os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY, dir_fd=self.fd))
        return self.fd

    def _up(self) -> None:
        if self.missing:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not self.names:
            raise self._outside()
        if not stat.S_ISDIR(os.fstat(self.fd).st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        os.close(self._fds.pop())
        self.names.pop()

    def _down(self, name: str, todo: deque[str]) -> None:
        if self.missing:
            self.missing.append(name)
            return
        try:
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=self.fd)
        except FileNotFoundError:
            self.missing.append(name)
            return
        if stat.S_ISLNK(os.fstat(fd).st_mode):
            todo.extendleft(reversed(self._follow(fd)))
        else:
            self._push(name, fd)

    def _push(self, name: str, fd: int) -> None:
        self._fds.append(fd)
        self.names.append(name)
        if identity(os.fstat(fd)) in self._reserved:
            raise ToolFailed("outside_workspace", f"{visible(self._path)} is reserved and closed to tools.")
        if len(self._fds) > MAX_DEPTH:
            raise ToolFailed("invalid_path", f"The path is deeper than {MAX_DEPTH} directories.")

    def _follow(self, fd: int) -> list[str]:
        """The components that the link `fd` stands for."""
        try:
            target = os.readlink("", dir_fd=fd)
        finally:
            os.close(fd)
        self._links += 1
        if self._links > MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not target.startswith("/"):
            return target.split("/")
        parts = self._inside(target)
        self._restart()
        return parts

    def _inside(self, path: str) -> list[str]:
        """The components of an absolute path below the workspace, which may be spelled through links."""
        prefix = self._root.rstrip("/") + "/"
        for spelled in (path, os.path.realpath(path)):
            if f"{spelled}/".startswith(prefix):
                return spelled[len(prefix) :].split("/")
        raise self._outside()

    def _restart(self) -> None:
        while len(self._fds) > 1:
            os.close(self._fds.pop())
        self.names.clear()

    def _outside(self) -> ToolFailed:
        return ToolFailed(
            "outside_workspace", f"{visible(self._path)} leads out of the workspace; use a path within it."
        )
