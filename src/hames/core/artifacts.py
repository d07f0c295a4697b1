"""What is kept apart from the log: large texts and images of events, and the references that stand in their places.

Rule 1: which members are taken out follows from the event alone, so every store makes the same bytes of it.
Rule 2: a reference names its content by the whole SHA-256; equal contents are one artifact.
Rule 3: what the engine folds is whole again (`whole`): a reference changes nothing that a model is sent.
Rule 4: of what is lost for good the model is told, in its place: no session ends with a content.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

from hames.core.records import record
from hames.protocol.jsontext import clean_text, dumps, reread

LARGE_BYTES: Final = 16 * 1024
"""Of UTF-8: a larger text is taken out of its event."""

SMALL_BYTES: Final = 1024
"""A text of this size or less always stays: a reference to it would be larger."""

ROOM_BYTES: Final = 128 * 1024
"""Of JSON, for all texts of one input that stay: beyond, all but the small ones are taken out, so that an event fits a
frame whatever the number of its slots."""

HEAD_BYTES: Final = 1024
"""Of a text's beginning that its reference shows."""

LOST: Final = " lost"
"""Marks, as a member that no log has, data of which something is lost."""

HEAD_JSON_BYTES: Final = 2 * HEAD_BYTES
"""As JSON: less is shown of what is mostly escapes."""

TEXT: Final = "text/plain; charset=utf-8"
"""The media type of texts."""

_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "turn.queued": ("instructions",),
    "context.replaced": ("summary",),
    "resources.changed": ("text",),
    "message.completed": ("text",),
    "reasoning.completed": ("text",),
    "tool.requested": ("arguments",),
    "tool.completed": ("text",),
    "file.changed": ("diff",),
    "turn.completed": ("text",),
    "turn.failed": ("text",),
}
"""Members that may be references, by event type."""

_DOCUMENTS: Final[Mapping[str, str]] = {"step.completed": "parts"}
"""Members that are objects and may be references, by event type."""

JSON: Final = "application/json"

_LISTS: Final[Mapping[str, str]] = {
    "turn.queued": "input",
    "turn.updated": "input",
    "turn.steered": "input",
    "tool.completed": "images",
    "context.composed": "parts",
}
"""Members that are lists of slots, or of parts that are like them, whose `text` and `data` may be references."""

KEEPING: Final = frozenset({"tool.completed", "process.exited"})
"""Types whose member `artifact` refers to what was kept before them."""

_TYPES: Final = _MEMBERS.keys() | _LISTS.keys() | _DOCUMENTS.keys()

_FOLDED: Final = frozenset(
    {
        *("turn.queued", "turn.updated", "turn.steered", "tool.requested", "tool.completed"),
        *("step.completed", "context.replaced", "context.composed", "resources.changed"),
    }
)
"""Types whose references the conversation needs whole, besides messages that count."""


@record
class Content:
    """What was taken out of an event. `name` is what people may call it, like a file's."""

    digest: bytes
    data: bytes
    media_type: str
    name: str | None = None

    @property
    def artifact(self) -> str:
        """Its id."""
        return artifact_id(self.digest)


def content_of(data: bytes, media_type: str, name: str | None = None) -> Content:
    """`data` with its digest."""
    return Content(sha256(data).digest(), data, media_type, name)


HANDLE: Final = "artifact:"
"""How the name begins by which a model reads an artifact. A file that is called so is `./artifact:…`."""


def artifact_id(digest: bytes) -> str:
    """The id of the artifact whose content has this SHA-256: half of it, which is enough within a session."""
    return f"a-{digest.hex()[:32]}"


def id_prefix(artifact: str) -> bytes | None:
    """The beginning of the digest that an id names; None where it is not of the form."""
    if len(artifact) != 34 or not artifact.startswith("a-") or artifact != artifact.lower():
        return None
    try:
        return bytes.fromhex(artifact[2:])
    except ValueError:
        return None


def reference(content: Content) -> dict[str, Any]:
    """What stands in the place of `content`: `{artifact, sizeBytes, sha256, head?}`, `head` of a text only."""
    made: dict[str, Any] = {
        "artifact": content.artifact,
        "sizeBytes": len(content.data),
        "sha256": content.digest.hex(),
    }
    if content.media_type == TEXT:
        made["head"] = _head(content.data)
    return made


def _head(data: bytes) -> str:
    most_bytes = HEAD_BYTES
    while True:
        head = data[:most_bytes].decode("utf-8", "ignore")
        if len(dumps(head)) <= HEAD_JSON_BYTES:
            return head
        most_bytes //= 2


def separate(type_: str, data: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[Content, ...]]:
    """`data` of an event with references in the place of what is large, and that. `data` itself is not changed."""
    if type_ not in _TYPES:
        return data, ()
    apart: list[Content] = []
    changed: dict[str, Any] = {}
    for member in _MEMBERS.get(type_, ()):
        value = data.get(member)
        if isinstance(value, str) and is_large(value):
            changed[member] = _take(value, apart)
    document = data.get(_DOCUMENTS.get(type_, ""))
    if document is not None and len(encoded := dumps(document)) > LARGE_BYTES:
        content = content_of(encoded, JSON)
        apart.append(content)
        changed[_DOCUMENTS[type_]] = reference(content)
    listed = _LISTS.get(type_)
    if listed is not None and data.get(listed):
        slots = _separate_slots(data[listed], apart)
        if slots is not data[listed]:
            changed[listed] = slots
    return ({**data, **changed}, tuple(apart)) if changed else (data, ())


def is_large(text: str, most_bytes: int = LARGE_BYTES) -> bool:
    """Whether `text` has more bytes than that: by its length alone where that tells."""
    if len(text) * 4 <= most_bytes:
        return False
    if len(text) > most_bytes:
        return True
    return not text.isascii() and len(text.encode("utf-8", "replace")) > most_bytes


def _take(text: str, apart: list[Content], name: str | None = None) -> dict[str, Any]:
    content = content_of(clean_text(text).encode(), TEXT, name)
    apart.append(content)
    return reference(content)


def _separate_slots(slots: Sequence[Mapping[str, Any]], apart: list[Content]) -> Sequence[Mapping[str, Any]]:
    kept = [_separate_slot(slot, LARGE_BYTES, apart) for slot in slots]
    room_bytes = ROOM_BYTES
    if sum(len(slot["text"]) for slot in kept if isinstance(slot.get("text"), str)) * 6 > room_bytes:
        room_bytes -= sum(len(dumps(slot["text"])) for slot in kept if isinstance(slot.get("text"), str))
    if room_bytes < 0:
        kept = [_separate_slot(slot, SMALL_BYTES, apart) for slot in kept]
    return kept if apart else slots


def _separate_slot(slot: Mapping[str, Any], most_bytes: int, apart: list[Content]) -> Mapping[str, Any]:
    text, data = slot.get("text"), slot.get("data")
    if isinstance(text, str) and is_large(text, most_bytes):
        return {**slot, "text": _take(text, apart, slot.get("label"))}
    if isinstance(data, bytes):
        content = content_of(data, slot["mediaType"], slot.get("label"))
        apart.append(content)
        return {**slot, "data": reference(content)}
    return slot


def references(type_: str, data: Mapping[str, Any]) -> set[str]:
    """The artifacts that the conversation needs of an event."""
    if type_ not in _FOLDED and not (type_ == "message.completed" and data["inContext"]):
        return set()
    return {value["artifact"] for value in all_references(type_, data)}


def all_references(type_: str, data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Every reference in an event, as it stands there."""
    named = [data.get(member) for member in _MEMBERS.get(type_, ())]
    for slot in data.get(_LISTS.get(type_, ""), ()):
        named += [slot.get("text"), slot.get("data")]
    document = data.get(_DOCUMENTS.get(type_, ""))
    if document is not None and "artifact" in document:
        named.append(document)
    return [value for value in named if isinstance(value, Mapping)]


def whole(type_: str, data: Mapping[str, Any], contents: Mapping[str, bytes]) -> Mapping[str, Any]:
    """`data` with what `references` named in its place again: texts as they were, images as bytes.

    What is not in `contents` is lost: of a text its head is left and a word of the loss, arguments are `{"lost"}`, an
    image is None, and a document, which only counts whole, is empty; `data` is then marked by `LOST`.
    """
    changed: dict[str, Any] = {
        member: _whole_text(data[member], contents, is_json=member == "arguments")
        for member in _MEMBERS.get(type_, ())
        if isinstance(data.get(member), Mapping)
    }
    member = _DOCUMENTS.get(type_, "")
    if "artifact" in data.get(member, ()):
        document = contents.get(data[member]["artifact"])
        changed[member] = {} if document is None else reread(document)
    member = _LISTS.get(type_, "")
    if member in data:
        changed[member] = [_whole_slot(slot, contents) for slot in data[member]]
    if not changed:
        return data
    named = (each["artifact"] for each in all_references(type_, data))
    return {**data, **changed, **({} if contents.keys() >= set(named) else {LOST: True})}


def _whole_slot(slot: Mapping[str, Any], contents: Mapping[str, bytes]) -> Mapping[str, Any]:
    text, data = slot.get("text"), slot.get("data")
    if isinstance(text, Mapping):
        return {**slot, "text": _whole_text(text, contents)}
    if isinstance(data, Mapping):
        return {**slot, "data": contents.get(data["artifact"])}
    return slot


def _whole_text(text: Mapping[str, Any], contents: Mapping[str, bytes], *, is_json: bool = False) -> str:
    found = contents.get(text["artifact"])
    if found is not None:
        return found.decode()
    head = text.get("head", "")
    lost = f"[Of {text['sizeBytes']} bytes that stood here, only the first {len(head.encode())} are left.]"
    return dumps({"lost": lost}).decode() if is_json else "\n".join(filter(None, [head, lost]))


def size_bytes(text: str | Mapping[str, Any]) -> int:
    """Bytes of UTF-8 of a text, or of what a reference stands for."""
    if not isinstance(text, str):
        return int(text["sizeBytes"])
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def data_url(media_type: str, data: bytes) -> str:
    """`data` as a `data:` URL (RFC 2397)."""
    return f"data:{media_type};base64,{b64encode(data).decode()}"
