"""Server-sent events, without I/O: bytes in as they came, the data of whole events out.

Rule 1: where the bytes were split makes no difference to the events, only to when they come out.
Rule 2: bytes stay bytes. Nothing is decoded here, so a character that two reads share stays whole.
Rule 3: the common event, one `data:` line, takes no loop over lines: an answer may hold 100,000 of them.

Of the format (https://html.spec.whatwg.org/multipage/server-sent-events.html) only `data` matters to a model's
answer. Unlike a browser, `flush` gives out a last event that no empty line ends: some servers omit it.
"""

from __future__ import annotations

from hames.ports import ProviderFailed

MAX_EVENT_BYTES = 10 * 2**20
"""Largest single event. A whole file written by a tool call in one event fits; an endless line does not."""

_BOM = b"\xef\xbb\xbf"


class SseParser:
    """One event stream. `feed` it what was read, and `flush` it at the end."""

    def __init__(self) -> None:
        self._at_start = True
        self._after_cr = False
        self._held: list[bytes] = []
        self._held_bytes = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The data of each event that `data` completes, in order.

        Raises:
            ProviderFailed: an event is larger than `MAX_EVENT_BYTES`.
        """
        if self._after_cr or b"\r" in data:
            data = self._with_line_feeds(data)
        if b"\n" not in data:
            self._hold(data)
            return []
        if self._held or self._at_start:
            data = self._skip_bom(self._release() + data)
        blocks = data.split(b"\n\n")
        tail = blocks.pop()
        self._hold(tail)
        if len(data) > MAX_EVENT_BYTES and any(len(block) > MAX_EVENT_BYTES for block in blocks):
            raise _too_large()
        # No line feed but those between blocks, and a `data:` line in each.
        if data.count(b"\n") == 2 * len(blocks) + tail.count(b"\n"):
            payloads = [block[6:] for block in blocks if block.startswith(b"data: ")]
            if len(payloads) == len(blocks) and b"" not in payloads:
                return payloads
        return [payload for block in blocks if (payload := _data_of(block))]

    def flush(self) -> list[bytes]:
        """The event that the end of the stream completes, if there is one."""
        payload = _data_of(self._skip_bom(self._release()))
        return [payload] if payload else []

    def _with_line_feeds(self, data: bytes) -> bytes:
        if self._after_cr and data:
            # The CR before was taken for the end of a line; this LF belongs to it.
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data:
            self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _hold(self, data: bytes) -> None:
        if data:
            self._held.append(data)
            self._held_bytes += len(data)
            if self._held_bytes > MAX_EVENT_BYTES:
                raise _too_large()

    def _release(self) -> bytes:
        data = b"".join(self._held)
        self._held = []
        self._held_bytes = 0
        return data

    def _skip_bom(self, data: bytes) -> bytes:
        if self._at_start:
            self._at_start = False
            return data.removeprefix(_BOM)
        return data


def _data_of(block: bytes) -> bytes:
    lines: list[bytes] = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" "))
    return b"\n".join(lines)


def _too_large() -> ProviderFailed:
    return ProviderFailed(
        "model_gateway",
        f"The provider sent an event of more than {MAX_EVENT_BYTES} bytes.",
        boundary="model_gateway",
        retryable=False,
        phase="stream",
    )
