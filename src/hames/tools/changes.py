"""What a tool did to a file, as evidence: digests before and after, and a small diff.

Rule 1: linear in the size of the file. The diff is one hunk from the first line that differs to the last: valid
for `patch`, and never the hours that a minimal one can take on a hostile file.
"""

from __future__ import annotations

import hashlib
from contextlib import closing

from hames.core.records import record
from hames.ports import FileChange, Sandbox
from hames.protocol.errors import ToolFailed
from hames.tools.clip import split_lines, valid

DIFF_BYTES = 8 * 1024
"""Most bytes of a diff in an event (`ports.FileChange`)."""

DIFF_FILE_BYTES = 2**20
"""Most bytes of a file that is compared; of a larger one the digests must do."""

CONTEXT_LINES = 3
CUT = "\\ Diff cut\n"
BLOCK_BYTES = 2**20


@record
class Before:
    """A file before the change: its digest, and its content unless it was too large to compare."""

    digest: str
    content: bytes | None


def check_size(size: int, limit: int) -> None:
    """Refuse what is larger than `fileBytes`.

    Raises:
        ToolFailed: it is.
    """
    if size > limit:
        raise ToolFailed("too_large", f"The file has {size} bytes; at most {limit} can be handled whole.")


def look(sandbox: Sandbox, path: str, *, limit: int) -> Before | None:
    """The file as it is; None when there is none.

    Raises:
        ToolFailed: it cannot be read, or is larger than `limit`.
    """
    try:
        file = sandbox.open(path)
    except ToolFailed as failure:
        if failure.kind == "not_found":
            return None
        raise
    with closing(file):
        check_size(file.size, limit)
        digest = hashlib.sha256()
        kept: list[bytes] = []
        place = 0
        while block := file.read(place, BLOCK_BYTES):
            digest.update(block)
            place += len(block)
            # It may grow while it is read.
            check_size(place, limit)
            if place <= DIFF_FILE_BYTES:
                kept.append(block)
    return Before(digest.hexdigest(), b"".join(kept) if place <= DIFF_FILE_BYTES else None)


def describe(path: str, before: Before | None, after: bytes) -> FileChange:
    """The change of the file `path` to `after`."""
    old = b"" if before is None else before.content
    return FileChange(
        path=valid(path),
        kind="created" if before is None else "modified",
        before=None if before is None else before.digest,
        after=hashlib.sha256(after).hexdigest(),
        diff=None if old is None or len(after) > DIFF_FILE_BYTES else diff(valid(path), old, after),
    )


def removed(path: str, before: Before) -> FileChange:
    """The change of the file `path` to none."""
    old = before.content
    text = None if old is None or len(old) > DIFF_FILE_BYTES else diff(valid(path), old, b"")
    return FileChange(path=valid(path), kind="deleted", before=before.digest, after=None, diff=text)


def diff(path: str, old: bytes, new: bytes) -> str | None:
    """A unified diff of at most `DIFF_BYTES`; None for binary content, empty when nothing differs."""
    if b"\0" in old or b"\0" in new:
        return None
    if old == new:
        return ""
    before, after = split_lines(old), split_lines(new)
    shortest = min(len(before), len(after))
    head = next((i for i in range(shortest) if before[i] != after[i]), shortest)
    rest = shortest - head
    foot = next((i for i in range(rest) if before[-1 - i] != after[-1 - i]), rest)
    first = max(0, head - CONTEXT_LINES)
    last = max(0, foot - CONTEXT_LINES)
    rows = [(" ", line) for line in before[first:head]]
    rows += [("-", line) for line in before[head : len(before) - foot]]
    rows += [("+", line) for line in after[head : len(after) - foot]]
    rows += [(" ", line) for line in before[len(before) - foot : len(before) - last]]
    title = f"--- a/{path}\n+++ b/{path}\n"
    ranges = f"@@ -{_range(first, len(before) - last)} +{_range(first, len(after) - last)} @@\n"
    return _bounded(title + ranges, rows)


def _range(first: int, end: int) -> str:
    count = end - first
    # An empty range names the line before it.
    return f"{first + 1 if count else first},{count}"


def _bounded(head: str, rows: list[tuple[str, bytes]]) -> str:
    parts = [head]
    size = len(head.encode())
    for mark, line in rows:
        text = mark + line.decode("utf-8", "replace")
        if not text.endswith("\n"):
            text += "\n\\ No newline at end of file\n"
        size += len(text.encode())
        if size > DIFF_BYTES - len(CUT):
            parts.append(CUT)
            break
        parts.append(text)
    return "".join(parts)
