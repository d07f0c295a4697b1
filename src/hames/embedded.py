"""Hames within a program: the Python client on a server in the same process, and the same without `async`.

Rule 1: no way around the server: what is asked here goes as frames through the same dispatcher, admission, limits and
log as on stdio.
Rule 2: the process is the caller's: no signal handler, environment variable, working directory, standard stream or
allocator of it is touched.
Rule 3: each `connect` is a server of its own, as if it were a process of its own: any number of them, in any threads
and event loops, share a store as processes do, and each may end before the others.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hames import __version__
from hames_client import ConnectionLost, Events, HamesClient, HamesError, LogBroken, Session
from hames_client.client import MAX_RESTARTS, Ending, OnNotification
from hames_client.sync import SyncClient, SyncEvents, SyncSession, without_async

if TYPE_CHECKING:
    from hames.config import Config
    from hames.server.memory import MemoryServer

__all__ = [
    "ConnectionLost",
    "Events",
    "HamesClient",
    "HamesError",
    "LogBroken",
    "Session",
    "SyncClient",
    "SyncEvents",
    "SyncSession",
    "connect",
    "connect_sync",
]

CALLER: Final = "caller"
"""The source of settings that are given to `connect`, where others have `file` or `environment`."""


@asynccontextmanager
async def connect(
    *,
    home: str | os.PathLike[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    on_close: Ending = "cancel",
    name: str = "hames-library",
    version: str = __version__,
    on_notification: OnNotification | None = None,
) -> AsyncIterator[HamesClient]:
    """A client of a server that lives in this event loop (asyncio or trio) as long as the block.

    `home` is the store's directory, `settings` are those of `hames config`, by name; what is not given is taken from
    `environ`, by default the environment of this process, and from the configuration file. `on_close` says what turns
    that run at the end do: `cancel` settles them within about a second, `drain` waits for them; after an exception or
    a cancellation they are cancelled. The rest is as in `HamesClient.over`.

    The event loop must not be blocked for long: a server that does not get to run for `leaseMs` loses its sessions.

    Raises:
        HamesError: `invalid_config`, naming the setting.
    """
    open_server = partial(_open, home=home, settings=settings, environ=environ)
    async with HamesClient.over(
        open_server,
        max_restarts=MAX_RESTARTS,
        on_close=on_close,
        name=name,
        version=version,
        on_notification=on_notification,
    ) as client:
        yield client


connect_sync = without_async(connect)
"""`connect` for code without an event loop: a thread has it. What it gives may be used from any thread; callbacks are
called in that thread. Ctrl-C ends the call that waits, and with it the block, as any exception does."""


async def _open(
    *,
    home: str | os.PathLike[str] | None,
    settings: Mapping[str, Any] | None,
    environ: Mapping[str, str] | None,
) -> MemoryServer:
    from hames.app import make_host
    from hames.protocol.errors import HAMES_ERROR, Refused
    from hames.server.memory import MemoryServer

    variables = dict(os.environ if environ is None else environ)
    if home is not None:
        variables["HAMES_HOME"] = os.fspath(home)
    try:
        config = _config(variables, settings or {})
    except Refused as refused:
        raise HamesError(refused.kind, HAMES_ERROR, refused.message, refused.data()) from refused
    return MemoryServer(
        lambda tasks: make_host(config, variables, tasks, transport="memory", framing="line", guest=True)
    )


def _config(environ: Mapping[str, str], settings: Mapping[str, Any]) -> Config:
    """What is configured, and above it what the caller gives.

    Raises:
        Refused: `invalid_config`.
    """
    from hames.config import Config, check_setting, load_config

    found = load_config(environ)
    given = {name: check_setting(name, value) for name, value in settings.items()}
    return Config({**found.values, **given}, {**found.sources, **dict.fromkeys(given, CALLER)})
