"""The model that answers a benchmark: Chat Completions on 127.0.0.1, every answer prepared, in a process of its own.

The name of the model is the script: `text` one chunk; `tool` a call of `true` and then one chunk; `sleep` a command
that stays; `stall` one chunk and no end; `never` nothing at all; `busy` an error that asks to come again in a minute;
`compact` one chunk, and nothing at all to who wants a summary; `long` a chunk of 400 characters, and a count of what it
was asked; `deltas-<n>` n deltas of 20 bytes.

Rule 1: an answer's length is announced, so that the parser of HTTP chunks, which is not ours, is not measured.
Rule 2: how long each answer took here is kept, and given out at `/spent`: it is taken off the figures. So is how large
each request was, at `/sizes`.
Rule 3: it ends when its stdin does.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from functools import lru_cache
from time import perf_counter

import orjson

from hames.core.compaction import CHARS_PER_TOKEN

SLEEPER = "setsid sleep 600 & echo $$ $! > .pids; mv .pids pids; sleep 600; true"
"""A command with a daemon that left its process group; it tells who they are when both run."""

_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_MODEL = re.compile(rb'"model": ?"([a-z]+)(?:-(\d+))?"')


def _event(delta: object, finish: str | None = None, usage: object = None) -> bytes:
    document: dict[str, object] = {
        "id": "bench",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    if usage is not None:
        document["usage"] = usage
    return b"data: " + orjson.dumps(document) + b"\n\n"


def _whole(*events: bytes, finish: str = "stop", asked_tokens: int = 1) -> bytes:
    usage = {"prompt_tokens": asked_tokens, "completion_tokens": 1, "total_tokens": asked_tokens + 1}
    body = b"".join(events) + _event({}, finish, usage) + b"data: [DONE]\n\n"
    return b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def _call(command: str) -> bytes:
    function = {"name": "bash", "arguments": orjson.dumps({"command": command}).decode()}
    call = {"index": 0, "id": "call-1", "type": "function", "function": function}
    return _whole(_event({"role": "assistant", "tool_calls": [call]}), finish="tool_calls")


@lru_cache
def _deltas(count: int) -> bytes:
    return _whole(*(_event({"content": f"delta {number:013d} "}) for number in range(count)))


PARAGRAPH = _event({"role": "assistant", "content": "word " * 80})
TEXT = _whole(_event({"role": "assistant", "content": "ok"}))
STALL = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 100000\r\n\r\n" + _event(
    {"content": "ok"}
)
TRUE = _call("true")
SLEEP = _call(SLEEPER)
BUSY = b"HTTP/1.1 503 Busy\r\nretry-after: 60\r\ncontent-length: 0\r\n\r\n"
NOTHING = b""
SUMMARY = b"is to be replaced by a summary"
"""In a request for one."""

SCRIPTS = {b"stall": STALL, b"never": NOTHING, b"busy": BUSY}


def answer_to(body: bytes) -> bytes:
    """The answer to a request, headers and all."""
    found = _MODEL.search(body)
    script, count = (found[1], found[2]) if found is not None else (b"text", None)
    if script == b"deltas":
        return _deltas(int(count or 1))
    if script in SCRIPTS:
        return SCRIPTS[script]
    if script == b"long":
        return _whole(PARAGRAPH, asked_tokens=len(body) // CHARS_PER_TOKEN)
    if script == b"compact" and SUMMARY in body:
        return NOTHING
    if script in (b"tool", b"sleep") and body.rfind(b'"role":"user"') > body.rfind(b'"role":"tool"'):
        return TRUE if script == b"tool" else SLEEP
    return TEXT


class _Connection(asyncio.Protocol):
    """One client's connection, kept alive. `kept` is shared by all: lists by the path that gives each out."""

    def __init__(self, kept: dict[bytes, list[float]]) -> None:
        self._kept = kept
        self._data = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        started = perf_counter()
        self._data += data
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            found = _LENGTH.search(self._data, 0, end)
            whole = end + 4 + (int(found[1]) if found is not None else 0)
            if len(self._data) < whole:
                return
            request, self._data = self._data[:whole], self._data[whole:]
            assert self._transport is not None
            if request.startswith(b"GET "):
                figures = self._kept[request.split(b" ", 2)[1]]
                body = orjson.dumps(figures)
                figures.clear()
                self._transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                continue
            self._transport.write(answer_to(request[end + 4 :]))
            self._kept[b"/spent"].append(perf_counter() - started)
            self._kept[b"/sizes"].append(whole - end - 4)


async def _serve() -> None:
    loop = asyncio.get_running_loop()
    kept: dict[bytes, list[float]] = {b"/spent": [], b"/sizes": []}
    server = await loop.create_server(lambda: _Connection(kept), "127.0.0.1", 0)
    ended = asyncio.Event()

    def on_input() -> None:
        if not os.read(0, 1024):
            ended.set()

    loop.add_reader(0, on_input)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await ended.wait()
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_serve())
