"""A disk that loses its power: from a trace of what was done to files, what may be found on it afterwards.

Rule 1: what a file's or a directory's last sync covered is there. Of later writes to a file any subset is, each perhaps
torn at sectors; of later changes to a directory the first few, as a journal keeps them, whatever became of the content.
Rule 2: a directory that was made is there only once the directory it stands in was synced.
"""

from __future__ import annotations

import os
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCENERY = ("live", "bell", "heirs", "reaper")
"""Directories that tell of processes, and mean nothing once the power is gone: not recorded."""

SECTOR_BYTES = 512
"""The smallest unit that a drive writes whole."""

Record = tuple[Any, ...]


def read_trace(path: Path) -> Iterator[Record]:
    """The records of a trace, in order; a last one that was cut is none."""
    with open(path, "rb") as file:
        while True:
            try:
                yield pickle.load(file)
            except (EOFError, pickle.UnpicklingError):
                return


@dataclass(eq=False)
class File:
    """Durable content, and what was done since: `(number, offset, data)`, or `(number, length, None)` where that became
    its length."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, int, bytes | None]] = field(default_factory=list)

    def settle(self, until: int) -> None:
        """All up to this number is durable."""
        for number, offset, data in self.pending:
            if number <= until:
                _do(self.durable, offset, data)
        self.pending = [change for change in self.pending if change[0] > until]

    def after(self, chance: random.Random) -> bytes:
        """Content that a power cut may leave."""
        content = bytearray(self.durable)
        kept = chance.choice((0.0, 0.2, 0.5, 0.9, 1.0))
        torn = chance.choice((0.0, 0.0, 0.3, 1.0))
        for _, offset, data in self.pending:
            if chance.random() >= kept:
                continue
            if data is None or chance.random() >= torn:
                _do(content, offset, data)
                continue
            for start, end in _sectors(offset, len(data)):
                if chance.random() < 0.5:
                    _do(content, start, data[start - offset : end - offset])
        return bytes(content)


def _do(content: bytearray, offset: int, data: bytes | None) -> None:
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    if data is None:
        del content[offset:]
    else:
        content[offset : offset + len(data)] = data


def _sectors(offset: int, length: int) -> Iterator[tuple[int, int]]:
    end = offset + length
    while offset < end:
        stop = min(end, (offset // SECTOR_BYTES + 1) * SECTOR_BYTES)
        yield offset, stop
        offset = stop


@dataclass(eq=False)
class Directory:
    """Durable entries, those that programs see, and the changes between the two, in order."""

    durable: dict[str, Node] = field(default_factory=dict)
    seen: dict[str, Node] = field(default_factory=dict)
    pending: list[Callable[[Entries], None]] = field(default_factory=list)

    def settle(self) -> None:
        """All is durable."""
        for change in self.pending:
            change(lambda directory: directory.durable)
        self.pending = []


Node = File | Directory
Entries = Callable[[Directory], dict[str, Node]]
"""Which entries of a directory a change is made to."""


class Disk:
    """A root directory, as a program sees it and as a power cut leaves it."""

    def __init__(self, base: Path) -> None:
        self.root = _copy(base)
        self._handles: dict[str, File] = {}
        self._syncs: dict[str, list[int]] = {}
        self._number = 0

    def play(self, record: Record) -> None:
        """Do what was recorded; what was told to others changes nothing here."""
        self._number += 1
        kind, *rest = record
        match kind:
            case "open":
                self._open(*rest)
            case "write":
                handle, offset, data = rest
                self._handles[handle].pending.append((self._number, offset, data))
            case "truncate":
                handle, size = rest
                self._handles[handle].pending.append((self._number, size, None))
            case "sync":
                self._syncs.setdefault(rest[0], []).append(self._number)
            case "synced":
                self._handles[rest[0]].settle(self._syncs[rest[0]].pop(0))
            case "sync_directory":
                directory = self._find(rest[0])
                assert isinstance(directory, Directory), rest
                directory.settle()
            case "mkdir":
                self._set(rest[0], Directory())
            case "unlink":
                self._remove(rest[0])
            case "link":
                self._set(rest[1], self._find(rest[0]))
            case "rename":
                self._rename(*rest)
            case "tell" | "told":
                pass
            case _:
                raise AssertionError(f"no such record: {record!r:.200}")

    def _open(self, handle: str, path: str, flags: int) -> None:
        parent, name = self._parent(path)
        node = parent.seen.get(name)
        if node is None:
            assert flags & os.O_CREAT, f"{path} was opened and is not there"
            node = File()
            self._set(path, node)
        assert isinstance(node, File), path
        self._handles[handle] = node
        if flags & os.O_TRUNC:
            node.pending.append((self._number, 0, None))

    def _find(self, path: str) -> Node:
        node: Node = self.root
        for part in Path(path).parts:
            assert isinstance(node, Directory), path
            node = node.seen[part]
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent = self._find(os.path.dirname(path))
        assert isinstance(parent, Directory)
        return parent, os.path.basename(path)

    def _set(self, path: str, node: Node) -> None:
        parent, name = self._parent(path)

        def change(entries: Entries) -> None:
            entries(parent)[name] = node

        self._change(parent, change)

    def _remove(self, path: str) -> None:
        parent, name = self._parent(path)

        def change(entries: Entries) -> None:
            entries(parent).pop(name, None)

        self._change(parent, change)

    def _rename(self, source: str, target: str) -> None:
        """One change within a directory, two between two: a name that is durable in none is nowhere."""
        node = self._find(source)
        (old, old_name), (new, new_name) = self._parent(source), self._parent(target)

        def change(entries: Entries) -> None:
            if old is new:
                entries(old).pop(old_name, None)
            entries(new)[new_name] = node

        self._change(new, change)
        if old is not new:
            self._remove(source)

    def _change(self, directory: Directory, change: Callable[[Entries], None]) -> None:
        change(lambda of: of.seen)
        directory.pending.append(change)

    # --- what is found afterwards -------------------------------------------------------------------------------

    def write_after_cut(self, target: Path, chance: random.Random) -> None:
        """Write what a power cut now may leave."""
        found: dict[Directory, dict[str, Node]] = {}

        def entries(directory: Directory) -> dict[str, Node]:
            return found.setdefault(directory, dict(directory.durable))

        for directory in _directories(self.root):
            for change in directory.pending[: _some(chance, len(directory.pending))]:
                change(entries)
        _write(target, self.root, entries, lambda file: file.after(chance))

    def write_whole(self, target: Path) -> None:
        """Write what programs see."""

        def whole(file: File) -> bytes:
            content = bytearray(file.durable)
            for _, offset, data in file.pending:
                _do(content, offset, data)
            return bytes(content)

        _write(target, self.root, lambda directory: directory.seen, whole)


def _some(chance: random.Random, count: int) -> int:
    return chance.choice((0, count, chance.randrange(count + 1)))


def _directories(root: Directory) -> Iterator[Directory]:
    yield root
    for node in {**root.durable, **root.seen}.values():
        if isinstance(node, Directory):
            yield from _directories(node)


def _copy(path: Path) -> Directory:
    """A directory whose content is durable."""
    entries: dict[str, Node] = {}
    for entry in sorted(path.iterdir()):
        if entry.name.startswith(SCENERY):
            continue
        if entry.is_dir():
            entries[entry.name] = _copy(entry)
        elif entry.is_file():
            entries[entry.name] = File(bytearray(entry.read_bytes()))
    return Directory(dict(entries), entries)


def _write(target: Path, directory: Directory, entries: Entries, content: Callable[[File], bytes]) -> None:
    target.mkdir(mode=0o700, exist_ok=True)
    for name, node in entries(directory).items():
        if isinstance(node, Directory):
            _write(target / name, node, entries, content)
        else:
            (target / name).write_bytes(content(node))
