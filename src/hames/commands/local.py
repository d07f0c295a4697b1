"""A client of this process's own server: the same dispatcher and admission as on stdio, without a pipe.

Rule 1: an expected failure leaves `local_client` as it was raised, not in an `ExceptionGroup`.
Rule 2: what is sent here is taken at once; who passes it on to a slow reader gives `streams`, and is waited for.
Rule 3: SIGINT is received by the loop. The handler that `asyncio.run` installs runs in the main thread alone and does
not wake it: a signal that comes just before the loop sleeps, or that another thread takes, would wait for ever.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
from anyio.abc import TaskStatus

from hames import __version__
from hames.app import make_host
from hames.commands.exits import FAILED, INTERRUPTED
from hames.commands.record import exit_code_of
from hames.commands.refusals import told_refusal
from hames.commands.sparing import spare_imports
from hames.commands.stores import require_store
from hames.commands.streams import Streams
from hames.commands.unfolding import Unfolding, is_text_reference
from hames.config import Config, load_config
from hames.protocol.errors import HAMES_ERROR, HamesError
from hames.protocol.jsontext import dumps, reread
from hames.server.connection import Connection

LEAVE_S = 1.0
"""For what still runs to be cancelled and settled at the end, and again for the store and the reaper to close."""


class CallFailed(Exception):
    """A request was answered with an error: `code`, `message`, and `kind` where there is one."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Mapping[str, Any] = error.get("data") or {}
        self.kind: str = str(self.data.get("kind", "")) if self.code == HAMES_ERROR else ""
        super().__init__(self.message)


class LocalClient:
    """Sends requests to a connection in this process and takes what it sends. Implements `Outlet`.

    Events go to `on_event` as the bytes of `{cursor, event}`, as they are stored, or with `whole_texts` in the place of
    references to texts; the other notifications go to `on_notification`.
    """

    def __init__(
        self,
        *,
        on_event: Callable[[bytes], None] | None = None,
        on_notification: Callable[[str, dict[str, Any]], None] | None = None,
        streams: Streams | None = None,
        whole_texts: bool = False,
    ) -> None:
        self.connection: Connection | None = None
        self._on_event = on_event
        self._unfolding = Unfolding(on_event, self.text_of) if whole_texts and on_event is not None else None
        self._on_notification = on_notification
        self._streams = streams
        self._answers: dict[int, tuple[anyio.Event, list[Any]]] = {}
        self._last_id = 0

    @property
    def pending_bytes(self) -> int:
        """What was passed on and is not taken yet."""
        waiting_bytes = 0 if self._unfolding is None else self._unfolding.waiting_bytes
        return waiting_bytes + (0 if self._streams is None else self._streams.pending_bytes)

    def send(self, payload: bytes) -> None:
        """Take one payload of the server."""
        message = reread(payload)
        if "id" not in message:
            if self._on_notification is not None:
                pass_on = partial(self._on_notification, message["method"], message["params"])
                (pass_on if self._unfolding is None else partial(self._unfolding.other, pass_on))()
        elif message["id"] in self._answers:
            done, result = self._answers[message["id"]]
            result.append(message)
            done.set()

    def send_lines(self, head: bytes, lines: bytes) -> None:
        """Take a page of events."""
        if self._on_event is None:
            return
        for line in lines.splitlines():
            if self._unfolding is None or self.connection is None:
                self._on_event(b"{" + line + b"}")
            else:
                self._unfolding.event(b"{" + line + b"}", self.connection.tasks)

    async def room(self, limit_bytes: int) -> None:
        """Wait for who reads what is passed on."""
        if self._unfolding is not None:
            await self._unfolding.taken(limit_bytes)
        if self._streams is not None:
            await self._streams.room(limit_bytes)

    async def taken(self) -> None:
        """Until every event that came is passed on."""
        if self._unfolding is not None:
            await self._unfolding.taken()

    async def text_of(self, session_id: str, value: Any) -> str:
        """A text, read in pieces where `value` is a reference to it; its beginning and why where it cannot be read."""
        if not is_text_reference(value):
            return str(value)
        pieces: list[str] = []
        offset = 0
        try:
            while offset < value["sizeBytes"]:
                names = {"sessionId": session_id, "artifact": value["artifact"]}
                piece = await self.request("artifact/read", {**names, "offset": offset})
                pieces.append(piece["text"])
                offset = piece["nextOffset"]
        except CallFailed as error:
            return f"{''.join(pieces) or value['head']}\n[the rest cannot be read: {error.message}]"
        return "".join(pieces)

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result of a request.

        Raises:
            CallFailed: it was answered with an error.
        """
        assert self.connection is not None
        self._last_id += 1
        number = self._last_id
        done, result = self._answers[number] = (anyio.Event(), [])
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}
        self.connection.accept(dumps(message))
        try:
            await done.wait()
        finally:
            del self._answers[number]
        answer = result[0]
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]


@asynccontextmanager
async def local_client(
    config: Config, environ: Mapping[str, str], client: LocalClient | None = None, *, name: str = "hames-cli"
) -> AsyncIterator[LocalClient]:
    """A client of a server that lives as long as this block; what still runs at its end is cancelled.

    Raises:
        CallFailed, HamesError: as the block does.
    """
    client = client or LocalClient()
    failed: Exception | None = None
    async with anyio.create_task_group() as tasks:
        host = make_host(config, environ, tasks, guest=True)
        client.connection = Connection(host, client, tasks, name)
        host.connections.add(client.connection)
        info = {"name": name, "version": __version__}
        try:
            await client.request("initialize", {"protocolVersions": ["1"], "clientInfo": info})
            yield client
        except (CallFailed, HamesError) as error:
            failed = error
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(LEAVE_S):
                    await host.shut_down("cancel", cause="disconnect")
                client.connection.close_subscriptions()
                await host.flush()
                with anyio.move_on_after(LEAVE_S):
                    await host.aclose()
            tasks.cancel_scope.cancel()
    if failed is not None:
        raise failed


def run_with_client(
    body: Callable[[LocalClient, Streams], Awaitable[int]],
    environ: Mapping[str, str],
    *,
    make_client: Callable[[Streams], LocalClient] = lambda streams: LocalClient(streams=streams),
    needs_store: bool = True,
) -> int:
    """Run `body` in an event loop with a client and the standard streams; its exit code.

    An expected failure is told on standard error and gives its exit code, output that is lost `FAILED`, SIGINT
    `INTERRUPTED`. A reader that went away ends it quietly.

    Raises:
        Refused: `invalid_config`; with `needs_store` also that there is no store.
    """
    config = load_config(environ)
    if needs_store:
        require_store(environ)
    spare_imports()

    async def main() -> int:
        scope = anyio.CancelScope()
        interrupted = anyio.Event()
        streams = Streams(on_broken=scope.cancel)
        code = 0
        async with anyio.create_task_group() as tasks:
            await tasks.start(_watch_interrupt, interrupted, tasks.cancel_scope)
            with scope:
                try:
                    async with local_client(config, environ, make_client(streams)) as client:
                        code = await body(client, streams)
                except (CallFailed, HamesError) as error:
                    streams.note(f"hames: {message_of(error)}")
                    code = exit_code_of(error.kind, code=error.code if isinstance(error, CallFailed) else None)
            await streams.finish()
            tasks.cancel_scope.cancel()
        if interrupted.is_set():
            return INTERRUPTED
        return code if streams.lost is None else FAILED

    return anyio.run(main)


async def _watch_interrupt(
    interrupted: anyio.Event,
    everything: anyio.CancelScope,
    *,
    task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
) -> None:
    """Cancel everything at the first SIGINT; the next one ends the process as Python does, in the midst of it."""
    with anyio.open_signal_receiver(signal.SIGINT) as received:
        task_status.started()
        await anext(aiter(received))
        interrupted.set()
        everything.cancel()


def message_of(error: CallFailed | HamesError) -> str:
    """What to tell a person of an expected failure."""
    details = error.details if isinstance(error, HamesError) else error.data.get("details", {})
    return told_refusal(error.kind, error.message, details)
