"""Check a Hames export with nothing but Python 3.8 or newer: `python3 verify.py EXPORT.tar`.

Every archive holds this file as `verify.py`, and `hames verify --export` runs the same code.
Rule 1: the standard library only, no import of Hames, no file but the one that is named.
Rule 2: memory does not grow with the log: members are read in pieces, events one line at a time (`lines`).
Rule 3: every byte of the file has one right value, given the members; the first part that differs is named. Where two
parts in a row differ, bytes were added or are missing: what follows is shifted, so it is not judged.
Rule 4: the manifest is one witness of many. What rests on it alone is dropped when `digest.txt` says it was changed.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple, NoReturn

from hames.archive.lines import EVENTS, LogCheck

FORMAT = "hames-export-1"
BLOCK = 512
PIECE = 64 * 1024
MANIFEST = "manifest.json"
DIGEST = "digest.txt"
ARTIFACTS = "artifacts/"
CLOSING = re.compile(rb"[0-9a-f]{64}  hames-export-1\n[0-9a-f]{64}  manifest\.json\n")
MOST_FINDINGS = 100
"""Told one by one; the rest is counted."""
MOST_MANIFEST = 256 * 2**20
"""Bytes; some two million artifacts. More is not read into memory."""
NEAR = 8
"""Bytes by which a first header may differ and still be taken for one that was changed."""

EXITS = {
    "good": 0,
    "torn": 10,
    "duplicated": 11,
    "gapped": 12,
    "edited": 13,
    "swapped": 14,
    "missing": 15,
    "foreign": 16,
}


class Finding(NamedTuple):
    """One break, as `hames.archive.findings.Finding`."""

    kind: str
    where: str
    message: str


class Report(NamedTuple):
    """What came of it, as `hames.archive.findings.Report`; `manifest` is the manifest as far as it could be read."""

    verdict: str
    findings: list[Finding]
    more: int
    session_id: str | None
    events: int
    cursor: str | None
    manifest: dict[str, Any]


class _Stop(Exception):
    """Nothing more can be judged."""


def header(name: str, size: int) -> bytes:
    """The one right header of a member (POSIX ustar): mode 0644, no owner, no time."""
    fields = (
        (name.encode(), 100),
        (b"0000644", 8),
        (b"0000000", 8),
        (b"0000000", 8),
        (b"%011o" % size, 12),
        (b"00000000000", 12),
        (b" " * 8, 8),
        (b"0", 1),
        (b"", 100),
        (b"ustar\x0000", 8),
        (b"", 32),
        (b"", 32),
        (b"0000000", 8),
        (b"0000000", 8),
        (b"", 155),
        (b"", 12),
    )
    block = b"".join(value.ljust(width, b"\0") for value, width in fields)
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def padding(size: int) -> int:
    """Zero bytes that stand behind a member of `size` bytes."""
    return -size % BLOCK


def closing(total: str, manifest: str) -> bytes:
    """The content of `digest.txt`: of every byte before its header, and of the manifest alone."""
    return f"{total}  {FORMAT}\n{manifest}  {MANIFEST}\n".encode()


def check(stream: BinaryIO) -> Report:
    """Read an archive to its end and tell what it is worth."""
    checking = _Check(stream)
    with suppress(_Stop):
        checking.walk()
    return checking.report()


class _Check:
    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream
        self.sums = hashlib.sha256()
        self.findings: list[tuple[Finding, bool]] = []
        self.more = 0
        self.foreign = ""
        self.manifest: dict[str, Any] = {}
        self.manifest_sum = ""
        self.expected: list[tuple[str, int, str]] = []
        self.late: list[str] = []
        self.seen: set[str] = set()
        self.log = LogCheck(self.find)
        self.bad_since: int | None = None

    # --- telling ----------------------------------------------------------------------------------------------

    def find(self, kind: str, where: str, message: str, by_manifest: bool = False) -> None:
        if len(self.findings) < MOST_FINDINGS:
            self.findings.append((Finding(kind, where, message), by_manifest))
        else:
            self.more += 1

    def part(self, before: int, where: str) -> None:
        """A part ended; findings from `before` on are its own. Two parts in a row that differ are a shift."""
        if len(self.findings) == before:
            self.bad_since = None
            return
        if self.bad_since is None:
            self.bad_since = before
            return
        first, by_manifest = self.findings[self.bad_since]
        message = "bytes were added, or are missing: all that follows is shifted, and was not judged"
        del self.findings[self.bad_since :]
        self.findings.append((Finding(first.kind, first.where, message), by_manifest))
        raise _Stop

    def torn(self, where: str, got: int, wanted: int) -> NoReturn:
        self.find("torn", where, f"the file ends {wanted - got} bytes short of the end of this part")
        raise _Stop

    def not_ours(self, why: str) -> NoReturn:
        self.foreign = why
        raise _Stop

    # --- reading ----------------------------------------------------------------------------------------------

    def take(self, size: int) -> bytes:
        """Up to `size` bytes, fewer only at the end of the file."""
        pieces: list[bytes] = []
        while size:
            piece = self.stream.read(min(size, 16 * PIECE))
            if not piece:
                break
            pieces.append(piece)
            size -= len(piece)
        taken = b"".join(pieces)
        self.sums.update(taken)
        return taken

    def need(self, size: int, where: str) -> bytes:
        taken = self.take(size)
        if len(taken) < size:
            self.torn(where, len(taken), size)
        return taken

    # --- walking ----------------------------------------------------------------------------------------------

    def walk(self) -> None:
        self.read_manifest()
        while True:
            total = self.sums.hexdigest()
            name, size = self.read_header()
            if name == DIGEST:
                self.read_digest(size, total)
                return
            self.place(name, size)
            self.read_member(name, size)
            self.read_padding(name, size)

    def read_manifest(self) -> None:
        first = self.take(BLOCK)
        where = f"the header of {MANIFEST}"
        if len(first) < BLOCK:
            if first and header(MANIFEST, 0).startswith(first[:124]):
                self.torn(where, len(first), BLOCK)
            self.not_ours("it is too short, and does not begin as an export does" if first else "it is empty")
        size = _octal(first[124:135])
        whole = size is not None and size <= MOST_MANIFEST and header(MANIFEST, size) == first
        if whole and size is not None:
            text, gap = self.need(size, MANIFEST), None
        else:
            text, gap = self.seek_manifest(first)
            self.find("edited", where, "it is not the header that belongs here")
        self.part(0, where)
        before = len(self.findings)
        self.parse_manifest(text)
        self.part(before, MANIFEST)
        self.read_padding(MANIFEST, len(text), gap)

    def seek_manifest(self, first: bytes) -> tuple[bytes, bytes]:
        """The manifest whose header was changed, by its end: it is one line. And what follows it in its last block."""
        model = header(MANIFEST, 0)
        fixed = [at for at in range(BLOCK) if not (124 <= at < 136 or 148 <= at < 156)]
        near = sum(first[at] != model[at] for at in fixed) <= NEAR
        blocks: list[bytes] = []
        while not blocks or (b"\n" not in blocks[-1] and len(blocks) * BLOCK < MOST_MANIFEST):
            blocks.append(self.take(BLOCK))
            if not near and len(blocks) >= 3 and FORMAT.encode() not in first + b"".join(blocks[:3]):
                break
            if len(blocks[-1]) < BLOCK:
                break
        text = b"".join(blocks)
        if not near and FORMAT.encode() not in first + text:
            self.not_ours("it does not begin as an export does")
        if len(blocks[-1]) < BLOCK:
            self.torn(MANIFEST, len(text), len(blocks) * BLOCK)
        end = text.index(b"\n") + 1 if b"\n" in text else len(text)
        return text[:end], text[end:]

    def parse_manifest(self, text: bytes) -> None:
        self.manifest_sum = hashlib.sha256(text).hexdigest()
        if FORMAT.encode() not in text and EVENTS.encode() not in text:
            self.not_ours("its manifest is not that of an export")
        try:
            manifest = json.loads(text)
            self.expected = [(m["name"], int(m["size"]), m["sha256"]) for m in manifest["members"]]
            sane = all(isinstance(n, str) and isinstance(s, str) and z >= 0 for n, z, s in self.expected)
        except (ValueError, KeyError, TypeError, RecursionError):
            sane = False
        if not sane or not text.endswith(b"}\n") or text.count(b"\n") != 1:
            self.expected = []
            self.find("edited", MANIFEST, "it is not a manifest any more")
            return
        self.manifest = manifest

    def read_header(self) -> tuple[str, int]:
        """The name and size of the next member."""
        awaited = self.expected[0][:2] if self.expected else (DIGEST, len(closing("0" * 64, "0" * 64)))
        where = f"the header of {awaited[0]}"
        block = self.need(BLOCK, where)
        before = len(self.findings)
        name, size = block[:100].rstrip(b"\0").decode("latin-1"), _octal(block[124:135])
        if size is not None and name.isascii() and header(name, size) == block:
            self.part(before, where)
            return name, size
        if not any(block):
            for gone in [*self.late, *(e[0] for e in self.expected), DIGEST]:
                self.find("missing", gone, "the archive ends without it")
            raise _Stop
        self.find("edited", where, "it is not the header that belongs here")
        self.part(before, where)
        if not self.manifest:
            raise _Stop
        return awaited

    def place(self, name: str, size: int) -> None:
        """Hold a member against the order of the manifest."""
        if not self.manifest:
            return
        next_one = bool(self.expected) and self.expected[0][0] == name
        names = [name] if next_one else [entry[0] for entry in self.expected]
        if name in self.late:
            self.late.remove(name)
            self.find("swapped", name, "it stands behind members that belong after it", True)
        elif name in self.seen:
            self.find("duplicated", name, "it stands in the archive twice", True)
        elif name not in names:
            self.find("edited", name, "the manifest does not name it", True)
        else:
            at = names.index(name)
            self.late += names[:at]
            if self.expected[at][1] != size:
                self.find("edited", name, f"it has {size} bytes, in the manifest {self.expected[at][1]}", True)
            del self.expected[:at]
        self.seen.add(name)

    def read_member(self, name: str, size: int) -> None:
        before = len(self.findings)
        sums, left = hashlib.sha256(), size
        while left:
            piece = self.take(min(left, PIECE))
            sums.update(piece)
            if name == EVENTS:
                self.log.feed(piece)
            if len(piece) < min(left, PIECE):
                self.torn(self.log.where() if name == EVENTS else name, size - left + len(piece), size)
            left -= len(piece)
        if name == EVENTS:
            self.log.end(self.manifest)
        found = sums.hexdigest()
        named = self.expected.pop(0)[2] if self.expected and self.expected[0][0] == name else None
        if len(self.findings) == before:
            if name.startswith(ARTIFACTS) and name != ARTIFACTS + found:
                self.find("edited", name, f"its SHA-256 is {found}")
            elif named is not None and named != found:
                self.find("edited", name, f"its SHA-256 is {found}, in the manifest {named}", True)
        self.part(before, name)

    def read_padding(self, name: str, size: int, gap: bytes | None = None) -> None:
        where = f"the padding behind {name}"
        if not padding(size):
            return
        before = len(self.findings)
        if any(self.need(padding(size), where) if gap is None else gap):
            self.find("edited", where, "it is not zero")
        self.part(before, where)

    # --- the end ----------------------------------------------------------------------------------------------

    def read_digest(self, size: int, total: str) -> None:
        for gone in [*self.late, *(entry[0] for entry in self.expected)]:
            self.find("missing", gone, "the manifest names it; it is not there", True)
        right = closing(total, self.manifest_sum)
        before = len(self.findings)
        text = self.need(min(size, 16 * BLOCK), DIGEST)
        if text != right:
            self.judge_digest(text, right)
        self.part(before, DIGEST)
        self.read_padding(DIGEST, size)
        before = len(self.findings)
        if any(self.need(2 * BLOCK, "the end of the archive")):
            self.find("edited", "the end of the archive", "it is not two blocks of zeros")
        elif self.stream.read(1):
            self.find("edited", "the end of the archive", "something stands behind it")
        self.part(before, "the end of the archive")

    def judge_digest(self, text: bytes, right: bytes) -> None:
        """Who is wrong: what was read, or `digest.txt`."""
        lines, right_lines = text.split(b"\n"), right.split(b"\n")
        if CLOSING.fullmatch(text) is None:
            self.find("edited", DIGEST, "it is not what belongs here")
        elif lines[0] == right_lines[0]:
            self.find("edited", DIGEST, "its line of the manifest is not right, that of the whole is")
        elif lines[1] == right_lines[1] and not self.findings:
            self.find("edited", DIGEST, "its line of the whole is not right, and every part is")
        elif lines[1] != right_lines[1]:
            self.findings = [(finding, False) for finding, by_manifest in self.findings if not by_manifest]
            if not any(finding.where == MANIFEST for finding, _ in self.findings):
                self.findings.insert(0, (Finding("edited", MANIFEST, f"{DIGEST} tells of another one"), False))
            # The finding stands at the front: it is not one of the part that was just read.
            self.bad_since = None
            raise _Stop

    def report(self) -> Report:
        if self.foreign:
            return Report("foreign", [], 0, None, 0, None, {})
        found = [finding for finding, _ in self.findings]
        stated = self.manifest.get("format")
        if stated is not None and stated != FORMAT and all(finding.where != MANIFEST for finding in found):
            return Report("foreign", [], 0, None, 0, None, self.manifest)
        verdict = found[0].kind if found else "good"
        log = self.log
        return Report(verdict, found, self.more, log.session_id or None, log.proved, log.cursor, self.manifest)


def _octal(field: bytes) -> int | None:
    try:
        return int(field, 8) if field.isdigit() else None
    except ValueError:
        return None


def main(arguments: list[str]) -> int:
    """Check the file that is named; the exit code tells what it is."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python3 verify.py EXPORT.tar\n")
        return 64
    try:
        with open(arguments[0], "rb") as stream:
            report = check(stream)
    except OSError as error:
        sys.stderr.write(f"{arguments[0]} cannot be read: {error.strerror}\n")
        return 64
    for finding in report.findings:
        print(f"{finding.kind}: {finding.where}: {finding.message}")
    if report.more:
        print(f"and {report.more} more")
    if report.verdict == "good":
        print(f"good: session {report.session_id}, {report.events} events, cursor {report.cursor}")
    elif report.verdict == "foreign":
        print("foreign: not an export of this format")
    return EXITS[report.verdict]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
