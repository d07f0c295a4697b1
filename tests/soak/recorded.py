"""Run a Python module while all that it does to files below a directory is recorded.

`python -m soak.recorded [options] TRACE ROOT PYTHON -m MODULE [arguments]`

Rule 1: what changes a file is recorded with it, in one order for all threads; a sync when it begins and when it has
ended: so nothing counts as durable before it is.
Rule 2: what goes to stdout is recorded too, in the same order: whoever reads it was told no sooner.
Rule 3: a way to change a file that is not recorded is found by the round: the trace, replayed, must give the files.
"""

from __future__ import annotations

import argparse
import builtins
import fcntl
import importlib
import io
import os
import runpy
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from soak.trace import RecordedVFS, Trace


class Calls:
    """The functions of `os` and `open`, recorded in place of the real ones."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._handles: dict[int, str] = {}
        self._directories: dict[int, str] = {}
        self._real = {name: getattr(os, name) for name in ("open", "close", "write", "fsync")}
        self._stdout = self._identity(1)

    def install(self) -> None:
        """Replace them."""
        for name in ("open", "close", "write", "pwrite", "fsync", "ftruncate", "truncate", "posix_fallocate"):
            self._put(name, getattr(self, name))
        self._put("fdatasync", self.fsync)
        for name in ("rename", "replace", "link"):
            self._put(name, self._of_two("link" if name == "link" else "rename", getattr(os, name)))
        for name, word in (("unlink", "unlink"), ("remove", "unlink"), ("mkdir", "mkdir"), ("rmdir", "unlink")):
            self._put(name, self._of_one(word, getattr(os, name)))
        builtins.open = io.open = self._opened(open)

    def _put(self, name: str, function: Callable[..., Any]) -> None:
        self._real.setdefault(name, getattr(os, name))
        setattr(os, name, function)

    def _identity(self, fd: int) -> tuple[int, int]:
        found = os.fstat(fd)
        return found.st_dev, found.st_ino

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """Record and open."""
        inner = self._trace.within(path, dir_fd)
        if inner is None:
            return int(self._real["open"](path, flags, mode, dir_fd=dir_fd))
        handle = self._trace.name()
        with self._trace.alone():
            fd = int(self._real["open"](path, flags, mode, dir_fd=dir_fd))
            if stat.S_ISDIR(os.fstat(fd).st_mode):
                self._directories[fd] = inner
            else:
                self._trace.note("open", handle, inner, flags)
                self._handles[fd] = handle
        return fd

    def close(self, fd: int) -> None:
        """Forget and close."""
        self._handles.pop(fd, None)
        self._directories.pop(fd, None)
        self._real["close"](fd)

    def write(self, fd: int, data: Any) -> int:
        """Record and write; what goes to stdout may be taken in part."""
        handle = self._handles.get(fd)
        if handle is not None:
            offset = os.fstat(fd).st_size if self._appends(fd) else os.lseek(fd, 0, os.SEEK_CUR)
            with self._trace.noted("write", handle, offset, bytes(data)):
                return int(self._real["write"](fd, data))
        if self._identity(fd) != self._stdout:
            return int(self._real["write"](fd, data))
        self._trace.note("tell", bytes(data))
        count = int(self._real["write"](fd, data))
        self._trace.note("told", count)
        return count

    def _appends(self, fd: int) -> bool:
        return bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        """Record and write."""
        handle = self._handles.get(fd)
        if handle is None:
            return int(self._real["pwrite"](fd, data, offset))
        with self._trace.noted("write", handle, offset, bytes(data)):
            return int(self._real["pwrite"](fd, data, offset))

    def ftruncate(self, fd: int, length: int) -> None:
        """Record and truncate."""
        handle = self._handles.get(fd)
        if handle is None:
            self._real["ftruncate"](fd, length)
            return
        with self._trace.noted("truncate", handle, length):
            self._real["ftruncate"](fd, length)

    def truncate(self, path: Any, length: int) -> None:
        """Record and truncate what a path or a descriptor names."""
        if isinstance(path, int):
            self.ftruncate(path, length)
            return
        fd = self.open(path, os.O_WRONLY)
        try:
            self.ftruncate(fd, length)
        finally:
            self.close(fd)

    def posix_fallocate(self, fd: int, offset: int, length: int) -> None:
        """Record that it grows, and have it grow."""
        handle, end = self._handles.get(fd), offset + length
        if handle is None or os.fstat(fd).st_size >= end:
            self._real["posix_fallocate"](fd, offset, length)
            return
        with self._trace.noted("truncate", handle, end):
            self._real["posix_fallocate"](fd, offset, length)

    def fsync(self, fd: int) -> None:
        """Record and sync a file or a directory."""
        if fd in self._directories:
            with self._trace.noted("sync_directory", self._directories[fd]):
                self._real["fsync"](fd)
        elif fd in self._handles:
            with self._trace.synced(self._handles[fd]):
                self._real["fsync"](fd)
        else:
            self._real["fsync"](fd)

    def _of_one(self, word: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **more: Any) -> Any:
            inner = self._trace.within(path, more.get("dir_fd"))
            if inner is None:
                return real(path, *args, **more)
            with self._trace.alone():
                result = real(path, *args, **more)
                self._trace.note(word, inner)
                return result

        return call

    def _of_two(self, word: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(source: Any, target: Any, **more: Any) -> Any:
            inner = [
                self._trace.within(source, more.get("src_dir_fd")),
                self._trace.within(target, more.get("dst_dir_fd")),
            ]
            with self._trace.alone():
                result = real(source, target, **more)
                if None not in inner:
                    self._trace.note(word, *inner)
                return result

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        in_python: Any = importlib.import_module("_pyio")

        def call(file: Any, mode: str = "r", *args: Any, **more: Any) -> Any:
            recorded = file in self._handles if isinstance(file, int) else self._trace.within(file) is not None
            # The one in Python goes through `os`.
            return (in_python.open if recorded and set(mode) & set("wax+") else real)(file, mode, *args, **more)

        return call


def main(arguments: list[str]) -> None:
    """Record, as another program."""
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("root", type=Path)
    parser.add_argument("--synchronous", default="full", help="what SQLite is told in place of full")
    parser.add_argument("--checkpoint-pages", type=int, help="a checkpoint is due after so many pages")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    trace = Trace(options.trace, options.root)
    set_up(options.synchronous, options.checkpoint_pages)
    vfs = RecordedVFS(trace)
    Calls(trace).install()
    _python, _m, module, *rest = options.command
    sys.argv = [module, *rest]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        del vfs


def set_up(synchronous: str, checkpoint_pages: int | None) -> None:
    """A store that syncs less, so that losses must be found, or one that checkpoints often."""
    from hames.store import schema

    writer: Any = importlib.import_module("hames.store.writer")

    told = "synchronous=full"
    assert told in schema._PRAGMAS
    others = tuple(pragma for pragma in schema._PRAGMAS if pragma != told)
    schema._PRAGMAS = (f"synchronous={synchronous}", *others)  # type: ignore[misc]
    if checkpoint_pages is not None:
        writer.CHECKPOINT_PAGES = checkpoint_pages
        writer.BUSY_CHECKPOINT_PAGES = 4 * checkpoint_pages


if __name__ == "__main__":
    main(sys.argv[1:])
