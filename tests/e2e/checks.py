"""What must hold of everything a server sends, whatever a test is about.

A frame is strict JSON-RPC; its shape is that of the published schemas; events are dense, chained and ended once; a
receipt goes before the events of its turn; deltas agree with the item they preview.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

from hames.protocol.chain import cursor, first_digest, next_digest

SCHEMAS = Path(__file__).resolve().parents[2] / "schemas"
TERMINALS = ("turn.completed", "turn.failed", "turn.cancelled")
HAMES_ERROR = -32000
FRAME_BYTES = 2**20
"""The default of `limits.frameOutBytes`."""

_SEPARATORS = ("\x85".encode(), "\u2028".encode(), "\u2029".encode())
_BEFORE_EVENT = re.compile(rb'"cursor":"[^"]*","event":')


def begins(text: str | Mapping[str, Any], have: bytes) -> bool:
    """Whether a text, or what a reference stands for, begins with `have`, as far as the reference tells."""
    if isinstance(text, str):
        return text.encode().startswith(have)
    if len(have) >= text["sizeBytes"]:
        return bool(sha256(have).hexdigest() == text["sha256"])
    head: bytes = text["head"].encode()
    return head.startswith(have) or have.startswith(head)


@dataclass(slots=True)
class Frame:
    """A line of stdout and what it says; `index` is its place among the frames."""

    raw: bytes
    value: Any
    index: int = -1

    @property
    def event(self) -> dict[str, Any] | None:
        """The event, where this notifies of one."""
        if isinstance(self.value, dict) and self.value.get("method") == "event":
            event: dict[str, Any] = self.value["params"]["event"]
            return event
        return None

    @property
    def event_bytes(self) -> bytes:
        """The bytes of the event as they stand in the frame."""
        found = _BEFORE_EVENT.search(self.raw)
        assert found is not None, self.raw[:300]
        return self.raw[found.end() : -2]

    @property
    def responses(self) -> list[dict[str, Any]]:
        """The responses in it: one, those of a batch, or none."""
        values = self.value if isinstance(self.value, list) else [self.value]
        return [value for value in values if "id" in value]


def strict_frame(line: bytes) -> Frame:
    """The frame in a line.

    Raises:
        ValueError: it is no strict JSON-RPC 2.0 frame.
    """
    if b"\r" in line or any(separator in line for separator in _SEPARATORS):
        raise ValueError("a byte that some readers take for a line end")
    value = json.loads(line.decode("utf-8"), object_pairs_hook=_distinct, parse_constant=_no_constant)
    entries = value if isinstance(value, list) else [value]
    if not entries:
        raise ValueError("an empty batch")
    for entry in entries:
        _strict_message(entry, alone=entries is not value)
    return Frame(line, value)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a member stands twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _strict_message(message: Any, *, alone: bool) -> None:
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise ValueError("no JSON-RPC 2.0 message")
    members = set(message)
    if members == {"jsonrpc", "method", "params"} and alone and isinstance(message["params"], dict):
        return
    if members not in ({"jsonrpc", "id", "result"}, {"jsonrpc", "id", "error"}):
        raise ValueError(f"members {sorted(members)}")
    if isinstance(message["id"], bool | float | list | dict):
        raise ValueError(f"id {message['id']!r}")
    if "error" in message:
        error = message["error"]
        if not {"code", "message"} <= set(error) <= {"code", "message", "data"}:
            raise ValueError(f"error {error!r}")
        if not isinstance(error["code"], int) or not isinstance(error["message"], str) or not error["message"]:
            raise ValueError(f"error {error!r}")


def check_frames(frames: Sequence[Frame], sent: Mapping[str | int, tuple[str, int]], *, receipts: bool = True) -> None:
    """Every rule on the frames of one connection; `sent` by id: the method, and how many frames had come before."""
    for frame in frames:
        assert len(frame.raw) <= FRAME_BYTES, f"a frame of {len(frame.raw)} bytes"
        alike = outline(frame.value), *(sent.get(response["id"], ("",))[0] for response in frame.responses)
        _seen[alike] += 1
        if _seen[alike] <= ALIKE_FIRST or _seen[alike] % ALIKE_EACH == 0:
            check_shape(frame, sent)
    _check_streams(frames)
    if receipts:
        _check_receipts(frames, sent)


ALIKE_FIRST = 3
ALIKE_EACH = 50
"""Of frames with the same outline the first ones are held against the schemas, and then every fiftieth: a schema says
little more of them, and to look at each one was most of what a run of the whole suite cost beside its servers."""

_seen: Counter[tuple[object, ...]] = Counter()
_WORD = re.compile("[a-z][a-z_./-]{0,31}")


def outline(value: Any) -> object:
    """What tells shapes apart: members, types, and words that a schema may list; equal entries of an array count once.

    Texts, identifiers and numbers are left out.
    """
    if isinstance(value, dict):
        return tuple((name, outline(member)) for name, member in value.items())
    if isinstance(value, list):
        return tuple(dict.fromkeys(map(outline, value)))
    if isinstance(value, str) and _WORD.fullmatch(value):
        return value
    return type(value)


# --- shapes -------------------------------------------------------------------------------------------------------


def check_shape(frame: Frame, sent: Mapping[str | int, tuple[str, int]]) -> None:
    """The frame against the published schemas."""
    for response in frame.responses:
        if "error" in response:
            error = response["error"]
            assert isinstance(error["message"], str)
            if error["code"] == HAMES_ERROR:
                _validate("error.json", error["data"], frame.raw)
            assert b"Traceback" not in frame.raw[:100_000] or "Traceback" not in error["message"], frame.raw[:500]
        elif response["id"] in sent:
            method = sent[response["id"]][0]
            _validate(f"methods/{_stem(method)}.result.json", response["result"], frame.raw)
            if method == "events/read":
                for entry in response["result"]["events"]:
                    _validate(f"events/{entry['event']['type']}.json", entry["event"], frame.raw)
    if isinstance(frame.value, dict) and "method" in frame.value:
        _validate(f"notifications/{_stem(frame.value['method'])}.json", frame.value["params"], frame.raw)
        if frame.event is not None:
            _validate(f"events/{frame.event['type']}.json", frame.event, frame.raw)


@cache
def _validator(path: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / path).read_text(encoding="utf-8")))


def _stem(name: str) -> str:
    return name.replace("/", ".")


def _validate(path: str, value: Any, raw: bytes) -> None:
    for error in _validator(path).iter_errors(value):
        raise AssertionError(f"{path} at {error.json_path}: {error.message[:300]}; in {raw[:400]!r}")


# --- streams ------------------------------------------------------------------------------------------------------


def _check_streams(frames: Sequence[Frame]) -> None:
    streams: dict[str, Stream] = {}
    for frame in frames:
        if not isinstance(frame.value, dict) or "method" not in frame.value:
            continue
        name = frame.value["params"].get("subscriptionId")
        if name is not None:
            streams.setdefault(name, Stream()).take(frame)


class Stream:
    """What one subscription brought. `take` raises AssertionError where a rule is broken."""

    def __init__(self) -> None:
        self.seq = 0
        self.ended: dict[str, str] = {}
        self._digest: bytes | None = None
        self._previews: dict[str, bytearray] = {}
        self._whole: set[str] = set()

    def take(self, frame: Frame) -> None:
        """Check the next frame."""
        params = frame.value["params"]
        if frame.event is not None:
            self._event(frame, params["cursor"], frame.event)
        elif frame.value["method"] == "delta":
            self._delta(params)

    def _event(self, frame: Frame, at: str, event: Mapping[str, Any]) -> None:
        seq = event["seq"]
        if self.seq:
            assert seq == self.seq + 1, f"after event {self.seq} came {seq}"
        elif seq == 1:
            self._digest = first_digest(event["sessionId"])
        self.seq = seq
        if self._digest is not None:
            self._digest = next_digest(self._digest, frame.event_bytes)
            assert cursor(seq, self._digest) == at, "the cursor proves the bytes"
        turn_id = event.get("turnId")
        if turn_id is not None:
            assert turn_id not in self.ended, f"{event['type']} after the terminal of {turn_id}"
            if event["type"] in TERMINALS:
                self.ended[turn_id] = event["type"]
        if event["type"] in ("message.completed", "reasoning.completed"):
            self._completed(event["data"])

    def _delta(self, params: Mapping[str, Any]) -> None:
        item = params["itemId"]
        assert item not in self._whole, "no delta comes behind the whole item"
        text, offset = params["text"].encode(), params["offset"]
        have = self._previews.setdefault(item, bytearray())
        assert text, "a delta says something"
        if offset <= len(have):
            known = have[offset : offset + len(text)]
            assert known == text[: len(known)], "deltas agree"
            have += text[len(known) :]

    def _completed(self, data: Mapping[str, Any]) -> None:
        item = data["itemId"]
        assert item not in self._whole, f"{item} is completed twice"
        self._whole.add(item)
        have = bytes(self._previews.pop(item, b""))
        if data["inContext"]:
            assert begins(data["text"], have), "deltas are a part of the whole"


def _check_receipts(frames: Sequence[Frame], sent: Mapping[str | int, tuple[str, int]]) -> None:
    """A receipt of a turn goes out before any event of that turn, on its connection."""
    first_event: dict[str, int] = {}
    first_receipt: dict[str, tuple[int, int]] = {}
    for frame in frames:
        if frame.event is not None and "turnId" in frame.event:
            first_event.setdefault(_turn(frame.event["sessionId"], frame.event["turnId"]), frame.index)
        for response in frame.responses:
            method, before = sent.get(response["id"], ("", 0))
            if method in ("turn/submit", "session/create") and "turn" in response.get("result", {}):
                turn = response["result"]["turn"]
                first_receipt.setdefault(_turn(turn["sessionId"], turn["turnId"]), (frame.index, before))
    for turn_id, (receipt, before) in first_receipt.items():
        event = first_event.get(turn_id, receipt + 1)
        assert receipt < event or event < before, f"an event of {turn_id} came before its receipt"


def _turn(session_id: str, turn_id: str) -> str:
    return f"{session_id}/{turn_id}"


def rebuilt(entries: Iterator[dict[str, Any]], session_id: str) -> str:
    """The last cursor of a log from its start, computed from its events alone."""
    from hames.protocol.jsontext import dumps

    digest, seq = first_digest(session_id), 0
    for entry in entries:
        seq = entry["event"]["seq"]
        digest = next_digest(digest, dumps(entry["event"]))
        assert cursor(seq, digest) == entry["cursor"]
    return cursor(seq, digest)
