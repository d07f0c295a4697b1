"""The floor of a server: the least that asyncio, httpx and a file need for the same turns, as durably.

It has no schemas, no sessions, no sandbox, no subscriptions and no recovery; it appends each fact to one file and syncs
it where a server must: before the receipt, before a command, after it, and before the terminal event. It is driven by
the same client as the server, so that the client's own time is in the floor too.

Run as `python -m hames.bench.prototype <model url> <log file>`.
"""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import httpx
import orjson

sync = getattr(os, "fdatasync", os.fsync)
"""What makes an append durable; macOS has no `fdatasync`."""

BATCH_BYTES = 64 * 1024


class Prototype:
    """One process, any number of sessions."""

    def __init__(self, model_url: str, log: int) -> None:
        self._url = model_url + "/chat/completions"
        self._log = log
        self._client = httpx.AsyncClient(verify=False, trust_env=False, timeout=None)

    def say(self, **members: Any) -> None:
        """A frame to the client."""
        os.write(1, orjson.dumps({"jsonrpc": "2.0", **members}) + b"\n")

    def keep(self, type_: str, session_id: str, **data: Any) -> dict[str, Any]:
        """Append an event; it is durable after `sync`."""
        event = {"sessionId": session_id, "seq": 1, "time": "", "type": type_, "data": data}
        os.write(self._log, orjson.dumps(event) + b"\n")
        return event

    def event(self, event: dict[str, Any]) -> None:
        """Show an event."""
        self.say(method="event", params={"subscriptionId": "u", "cursor": "1.0", "event": event})

    async def turn(self, request_id: int, session_id: str, script: str) -> None:
        """One turn, with a command in it if the model says so."""
        queued = self.keep("turn.queued", session_id, input="go")
        sync(self._log)
        self.say(id=request_id, result={"turn": {}})
        self.event(queued)
        messages = [{"role": "user", "content": "go"}]
        text, calls = await self.ask(session_id, script, messages)
        if calls:
            started = self.keep("tool.started", session_id, calls=calls)
            sync(self._log)
            self.event(started)
            process = await asyncio.create_subprocess_exec("bash", "-c", "true", stdout=asyncio.subprocess.PIPE)
            await process.communicate()
            completed = self.keep("tool.completed", session_id)
            sync(self._log)
            self.event(completed)
            text, _ = await self.ask(session_id, script, [*messages, {"role": "tool", "content": ""}])
        ended = self.keep("turn.completed", session_id, text=text)
        sync(self._log)
        self.event(ended)

    async def ask(self, session_id: str, script: str, messages: list[dict[str, str]]) -> tuple[str, list[Any]]:
        """A model's answer, each delta shown as it comes."""
        body = orjson.dumps({"model": script, "stream": True, "messages": messages})
        texts: list[str] = []
        calls: list[Any] = []
        rest = b""
        async with self._client.stream("POST", self._url, content=body) as response:
            async for data in response.aiter_raw():
                *blocks, rest = (rest + data).split(b"\n\n")
                for block in blocks:
                    if block == b"data: [DONE]":
                        continue
                    delta = orjson.loads(block[6:])["choices"][0]["delta"]
                    if "content" in delta:
                        texts.append(delta["content"])
                        self.say(method="delta", params={"sessionId": session_id, "text": delta["content"]})
                    calls += delta.get("tool_calls", ())
        return "".join(texts), calls

    def deltas(self, count: int) -> None:
        """`count` previews of 20 bytes and an end: encoded one by one, written in batches."""
        batch: list[bytes] = []
        size = 0
        for number in range(count):
            params = {
                "subscriptionId": "u",
                "sessionId": "s",
                "turnId": "t",
                "itemId": "i",
                "kind": "message",
                "offset": number * 20,
                "text": f"delta {number:013d} ",
            }
            frame = orjson.dumps({"jsonrpc": "2.0", "method": "delta", "params": params}) + b"\n"
            batch.append(frame)
            size += len(frame)
            if size > BATCH_BYTES:
                write_all(b"".join(batch))
                batch, size = [], 0
        write_all(b"".join(batch))
        self.event(self.keep("turn.completed", "s"))


def write_all(data: bytes) -> None:
    """Write to stdout, to the end."""
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


async def _main(model_url: str, path: str) -> None:
    prototype = Prototype(model_url, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    reader = asyncio.StreamReader(limit=1 << 24)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    running: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        request = orjson.loads(line)
        params = request["params"]
        if request["method"] == "deltas":
            prototype.deltas(params["count"])
            continue
        task = asyncio.create_task(prototype.turn(request["id"], params["sessionId"], params["script"]))
        running.add(task)
        task.add_done_callback(running.discard)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1], sys.argv[2]))
