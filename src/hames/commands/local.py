"""A client of this process's own server: the same dispatcher and admission as on stdio, without a pipe."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio

from hames import __version__
from hames.app import make_host
from hames.config import Config
from hames.protocol.errors import HAMES_ERROR, HamesError
from hames.protocol.jsontext import dumps, loads
from hames.server.connection import Connection


class CallFailed(Exception):
    """A request was answered with an error: `code`, `message`, and `kind` where there is one."""

    def __init__(self, error: Mapping[str, Any]) -> None:
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Mapping[str, Any] = error.get("data") or {}
        self.kind: str = str(self.data.get("kind", "")) if self.code == HAMES_ERROR else ""
        super().__init__(self.message)


class LocalClient:
    """Sends requests to a connection in this process and takes what it sends. Implements `Outlet`."""

    def __init__(self, on_notification: Callable[[str, dict[str, Any]], None]) -> None:
        self.connection: Connection | None = None
        self._on_notification = on_notification
        self._answers: dict[int, tuple[anyio.Event, list[Any]]] = {}
        self._last_id = 0

    pending_bytes = 0
    """What is sent here is taken at once."""

    def send(self, payload: bytes) -> None:
        """Take one payload of the server."""
        message = loads(payload)
        if "id" in message:
            done, result = self._answers[message["id"]]
            result.append(message)
            done.set()
        else:
            self._on_notification(message["method"], message["params"])

    def send_lines(self, head: bytes, lines: bytes) -> None:
        """Take a page of events."""
        for line in lines.splitlines():
            self.send(head + line + b"}}")

    async def room(self, limit_bytes: int) -> None:
        """There is always room."""

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """The result of a request.

        Raises:
            CallFailed: it was answered with an error.
        """
        assert self.connection is not None
        self._last_id += 1
        done, result = self._answers[self._last_id] = (anyio.Event(), [])
        message = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params or {}}
        self.connection.accept(dumps(message))
        await done.wait()
        del self._answers[self._last_id]
        answer = result[0]
        if "error" in answer:
            raise CallFailed(answer["error"])
        return answer["result"]


@asynccontextmanager
async def local_client(
    config: Config,
    environ: Mapping[str, str],
    *,
    on_notification: Callable[[str, dict[str, Any]], None] = lambda method, params: None,
    name: str = "hames-cli",
) -> AsyncIterator[LocalClient]:
    """A client of a server that lives as long as this block; what still runs at its end is cancelled."""
    async with anyio.create_task_group() as tasks:
        host = make_host(config, environ, tasks)
        client = LocalClient(on_notification)
        client.connection = Connection(host, client, tasks, name)
        host.connections.add(client.connection)
        info = {"name": name, "version": __version__}
        await client.request("initialize", {"protocolVersions": ["1"], "clientInfo": info})
        try:
            yield client
        finally:
            with anyio.CancelScope(shield=True):
                with anyio.move_on_after(1.0):
                    await host.shut_down("cancel", cause="disconnect")
                client.connection.close_subscriptions()
                with anyio.move_on_after(1.0):
                    await host.aclose()
            tasks.cancel_scope.cancel()


def message_of(error: BaseException) -> str:
    """What to tell a person of an expected failure."""
    if isinstance(error, CallFailed):
        return f"{error.message}" + (f" [{error.kind}]" if error.kind else "")
    return error.message if isinstance(error, HamesError) else str(error)
