"""What a model is told beside the conversation: the parts of the system text, and what becomes of them. Pure.

Rule 1: the parts are composed once, with a session's first step, and stand in the log (`context.composed`). They stay
as they are, whatever happens to the files: a prefix that was sent stays a prefix.
Rule 2: they are composed anew where nothing of a prefix can be kept: with a compaction, and for another model.
Rule 3: what changes in between is told at the next step boundary, behind what was said (`resources.changed`):
documents at every step, the environment (the day, the branch) with the first step of a turn. Parts that are composed
anew take the place of what was told so before.
Rule 4: all of it is folded from the log, so who goes on after a restart sends the same bytes and reads no file for it.
Rule 5: instructions of the call are of one turn and stand in its `turn.queued`: they are no part here.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from typing import Any, Final, Literal

from hames.core.framing import framed
from hames.core.records import record
from hames.core.session import Event
from hames.protocol.jsontext import clean_text, dumps

DOCUMENT_BYTES: Final = 32 * 1024
"""For the text of all project documents together, marks of cuts with it."""

BRANCH_CHARS: Final = 200
"""Of the name of a branch; a longer one is not shown."""

Source = Literal["agent", "environment", "document", "session"]

_PROBLEMS: Final[Mapping[str, str]] = {
    "outside_workspace": "it leads out of the workspace",
    "not_a_file": "it is not a regular file",
    "permission_denied": "permission is denied",
    "not_text": "it is not text in UTF-8",
    "no_room": f"the {DOCUMENT_BYTES} bytes for project documents are used up",
}
"""Why a document is not shown, by kind."""


@record
class Part:
    """A part of the system text. `path` is a document's, relative to the workspace; `file_bytes` the size of one that
    is cut; `problem` says why one is not shown."""

    source: Source
    text: str
    path: str | None = None
    file_bytes: int | None = None
    problem: str | None = None

    @property
    def key(self) -> tuple[str, str | None]:
        """What it is of: parts of one composition differ in it."""
        return self.source, self.path

    def data(self) -> dict[str, Any]:
        """As it stands in an event."""
        encoded = self.text.encode("utf-8", "replace")
        data: dict[str, Any] = {"source": self.source, "sizeBytes": len(encoded), "sha256": sha256(encoded).hexdigest()}
        optional = {"path": self.path, "fileBytes": self.file_bytes, "problem": self.problem}
        return {**data, **{name: value for name, value in optional.items() if value is not None}, "text": self.text}

    @staticmethod
    def of(data: Mapping[str, Any]) -> Part:
        """What `data` gave, whole."""
        return Part(data["source"], data["text"], data.get("path"), data.get("fileBytes"), data.get("problem"))


@record
class Composition:
    """The parts in force, of event `seq`, for `model` of `provider`; and what was told since, by key."""

    seq: int
    provider: str
    model: str
    parts: tuple[Part, ...]
    _told: Mapping[tuple[str, str | None], Part | None] = field(default_factory=dict)

    @staticmethod
    def of(event: Event) -> Composition:
        """From `context.composed`, whole."""
        data = event.data
        return Composition(event.seq, data["provider"], data["model"], tuple(map(Part.of, data["parts"])))

    def after(self, data: Mapping[str, Any]) -> Composition:
        """When `resources.changed` was told."""
        part = Part.of(data)
        told = {**self._told, part.key: None if data["kind"] == "removed" else part}
        return Composition(self.seq, self.provider, self.model, self.parts, told)

    def changes(self, now: Iterable[Part], sources: Iterable[Source]) -> list[dict[str, Any]]:
        """What differs in `now` from what the model knows of these sources: data of `resources.changed`, in order."""
        looked_at = frozenset(sources)
        latest: dict[tuple[str, str | None], Part | None] = {part.key: part for part in self.parts}
        latest.update(self._told)
        known = {key: part for key, part in latest.items() if part is not None and key[0] in looked_at}
        changed = []
        for part in now:
            before = known.pop(part.key, None)
            if part.source in looked_at and part != before:
                changed.append({"kind": "added" if before is None else "changed", **part.data()})
        gone = [{"kind": "removed", **Part(part.source, "", part.path).data()} for part in known.values()]
        return changed + gone


def compose_data(provider: str, model: str, reason: str, family: str, parts: Iterable[Part]) -> dict[str, Any]:
    """The data of `context.composed`."""
    composed = [part.data() for part in parts]
    return {"reason": reason, "provider": provider, "model": model, "profile": family, "parts": composed}


def shown_document(part: Part) -> str:
    """A document in the system text: between delimiters, or why it is not shown."""
    if part.problem is not None:
        return f"[The document {_quoted(part.path)} is not shown: {_why(part)}.]"
    return framed("document", part.text, path=part.path or "")


def shown_change(data: Mapping[str, Any]) -> str:
    """What the model is told of a change: of the data of `resources.changed`, whole."""
    part = Part.of(data)
    if part.source == "environment":
        return f"[The environment has changed. What follows takes the place of what was said of it.]\n{part.text}"
    name = f"The project document {_quoted(part.path)}"
    if data["kind"] == "removed":
        return f"[{name} is gone: what was shown of it holds no longer.]"
    if part.problem is not None:
        before = " What was shown of it holds no longer." if data["kind"] == "changed" else ""
        return f"[{name} is not shown: {_why(part)}.{before}]"
    if data["kind"] == "added":
        return f"[{name} is new and counts as the others do.]\n{shown_document(part)}"
    return f"[{name} has changed: what follows takes the place of what was shown of it.]\n{shown_document(part)}"


def _quoted(path: str | None) -> str:
    return dumps(path or "").decode()


def _why(part: Part) -> str:
    return _PROBLEMS.get(part.problem or "", "it cannot be read")


# --- documents ----------------------------------------------------------------------------------------------


@record
class Found:
    """A file of the name of a project document. `data` is its beginning, of more than `DOCUMENT_BYTES` where the file
    has more; `size` is the file's. With a `problem` there is neither."""

    path: str
    data: bytes = b""
    size: int = 0
    problem: str | None = None


def documents(found: Sequence[Found]) -> tuple[Part, ...]:
    """The parts that `found`, from the outermost directory to the innermost, give, in that order.

    Room is given from the innermost on, which counts most: what is too long is cut at a character, and says so. One
    that is blank, or says what a later one says, is left out.
    """
    room_bytes = DOCUMENT_BYTES
    seen: set[str] = set()
    parts: list[Part] = []
    for file in reversed(found):
        path, text = clean_text(file.path), _decoded(file)
        if text is None:
            parts.append(Part("document", "", path, problem=file.problem or "not_text"))
        elif text.strip() and text not in seen:
            seen.add(text)
            part = _fitted(path, text, file.size, room_bytes)
            room_bytes -= len(part.text.encode())
            parts.append(part)
    return tuple(reversed(parts))


def _decoded(file: Found) -> str | None:
    if file.problem is not None or b"\0" in file.data:
        return None
    try:
        # A beginning may end within a character.
        return getincrementaldecoder("utf-8")().decode(file.data, final=len(file.data) >= file.size)
    except UnicodeDecodeError:
        return None


def _fitted(path: str, text: str, size: int, room_bytes: int) -> Part:
    if size <= room_bytes:
        return Part("document", text, path)
    note = f"\n[Cut here: the file has {size} bytes.]"
    head = text.encode()[: max(0, room_bytes - len(note))].decode("utf-8", "ignore")
    if not head.strip():
        return Part("document", "", path, problem="no_room")
    return Part("document", f"{head}{note}", path, size)


# --- the environment ----------------------------------------------------------------------------------------

_BRANCH: Final = re.compile(rf"ref: refs/heads/([^\s~^:?*\[\\]{{1,{BRANCH_CHARS}}})\n?")
"""Characters that git-check-ref-format(1) refuses end a name, so that the file of a checkout puts in no sentence."""


@record
class Checkout:
    """A git checkout. `head` is the beginning of its HEAD, None where that is not to be had."""

    head: bytes | None


def branch_of(head: bytes) -> str | None:
    """The branch that a HEAD names; None where it names none, or nothing that git would take."""
    try:
        found = _BRANCH.fullmatch(head.decode())
    except UnicodeDecodeError:
        return None
    return found[1] if found is not None and found[1].isprintable() else None


def environment(*, cwd: str, system: str, date: str, checkout: Checkout | None, cutoff: str | None = None) -> Part:
    """Where the model works: `date` is of the day (UTC), `cutoff` when its knowledge ends, where that is known."""
    shown = clean_text(cwd) if cwd.isprintable() else _quoted(clean_text(cwd))
    lines = [f"The working directory is {shown}.", f"The operating system is {system}.", f"Today is {date} (UTC)."]
    if checkout is None:
        lines.append("The working directory is in no git checkout.")
    else:
        branch = None if checkout.head is None else branch_of(checkout.head)
        on = "." if branch is None else f", on branch {branch}."
        lines.append(f"The working directory is in a git checkout{on}")
    if cutoff is not None:
        lines.append(f"Your knowledge ends at about {cutoff}.")
    return Part("environment", "\n".join(lines))
