"""The client without `async`: the same names, for programs that have no event loop. A thread has one for them.

    with spawn_sync() as client:
        session = client.create_session("/path/to/project")
        turn = session.submit("What does this project do?")
        for event in session.events():
            print(event["seq"], event["type"])

Rule 1: everything may be used from any thread at any time; callbacks are called in the thread of the loop.
Rule 2: a call that is interrupted (Ctrl-C) is cancelled as a task is; after the block every call is `ConnectionLost`.
Rule 3: a method is a row that names the method it stands for: signatures and types are those.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload

import anyio
from anyio.abc import TaskStatus
from anyio.from_thread import BlockingPortal, start_blocking_portal

from hames_client import messages as m
from hames_client.client import HamesClient
from hames_client.errors import ConnectionLost
from hames_client.events import Events, OnDelta
from hames_client.session import Session

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_CLOSED: Final = "the client is closed"


class Loop:
    """The event loop of a client, seen from other threads."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal
        self._thread_id = portal.call(threading.get_ident)

    def call(self, function: Callable[[], Awaitable[R]]) -> R:
        """What `function` returns or raises, run in the loop. An interrupt of the wait cancels it.

        Raises:
            ConnectionLost: the client is closed.
            RuntimeError: called in the loop's own thread, from a callback: nothing could run meanwhile.
        """
        if threading.get_ident() == self._thread_id:
            raise RuntimeError("a callback must not wait for the client; note what came and act in another thread")
        try:
            future = self._portal.start_task_soon(function)
        except RuntimeError as error:
            raise ConnectionLost(_CLOSED) from error
        try:
            return future.result()
        except CancelledError as error:
            raise ConnectionLost(_CLOSED) from error
        except BaseException:
            future.cancel()
            raise


class Facade(Generic[T]):
    """Something of the client, and the loop in which alone it may be touched."""

    def __init__(self, loop: Loop, of: T) -> None:
        self._loop = loop
        self._of = of


class Blocking(Generic[T, P, R]):
    """A method that waits for the one it stands for."""

    def __init__(self, method: Callable[Concatenate[T, P], Awaitable[R]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, facade: None, owner: type) -> Blocking[T, P, R]: ...

    @overload
    def __get__(self, facade: Facade[T], owner: type) -> Callable[P, R]: ...

    def __get__(self, facade: Facade[T] | None, owner: type) -> Blocking[T, P, R] | Callable[P, R]:
        if facade is None:
            return self
        bound: Callable[P, Awaitable[R]] = partial(self.method, facade._of)

        @wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return facade._loop.call(partial(bound, *args, **kwargs))

        return call


class Opening(Generic[P]):
    """A method of the client that gives a session."""

    def __init__(self, method: Callable[Concatenate[HamesClient, P], Awaitable[Session]]) -> None:
        self.method = method
        self.__doc__ = method.__doc__

    @overload
    def __get__(self, facade: None, owner: type) -> Opening[P]: ...

    @overload
    def __get__(self, facade: Facade[HamesClient], owner: type) -> Callable[P, SyncSession]: ...

    def __get__(self, facade: Facade[HamesClient] | None, owner: type) -> Opening[P] | Callable[P, SyncSession]:
        if facade is None:
            return self
        bound = partial(self.method, facade._of)

        @wraps(self.method)
        def call(*args: P.args, **kwargs: P.kwargs) -> SyncSession:
            return SyncSession(facade._loop, facade._loop.call(partial(bound, *args, **kwargs)))

        return call


class SyncEvents(Facade[Events]):
    """`Events`, to be iterated over with `for`. One consumer at a time."""

    def __iter__(self) -> SyncEvents:
        return self

    def __next__(self) -> dict[str, Any]:
        event = self._loop.call(partial(_next, self._of))
        if event is None:
            raise StopIteration
        return event

    @property
    def session_id(self) -> str:
        """Whose events they are."""
        return self._of.session_id

    @property
    def cursor(self) -> str | None:
        """That of the last event that was handed out; go on `after` it."""
        return self._of.cursor

    def close(self) -> None:
        """Stop; an iteration that waits in another thread ends."""
        self._loop.call(partial(_close, self._of))

    def __enter__(self) -> SyncEvents:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()


class SyncSession(Facade[Session]):
    """`Session` without `async`."""

    @property
    def id(self) -> str:
        """Its id."""
        return self._of.id

    @property
    def answer(self) -> m.SessionResult | m.SessionCreateResult | None:
        """The result that it was made from; None from `session`."""
        return self._of.answer

    def events(self, *, after: str | None = None, on_delta: OnDelta | None = None) -> SyncEvents:
        """See `Session.events`."""
        return SyncEvents(self._loop, self._loop.call(partial(_events, self._of, after=after, on_delta=on_delta)))

    read_events = Blocking(Session.read_events)
    submit = Blocking(Session.submit)
    steer = Blocking(Session.steer)
    cancel = Blocking(Session.cancel)
    wait = Blocking(Session.wait)
    update_turn = Blocking(Session.update_turn)
    get_turn = Blocking(Session.get_turn)
    list_turns = Blocking(Session.list_turns)
    compact = Blocking(Session.compact)
    resume_queue = Blocking(Session.resume_queue)
    get = Blocking(Session.get)
    rename = Blocking(Session.rename)
    use_model = Blocking(Session.use_model)
    usage = Blocking(Session.usage)
    list_artifacts = Blocking(Session.list_artifacts)
    read_artifact = Blocking(Session.read_artifact)
    list_processes = Blocking(Session.list_processes)
    read_process = Blocking(Session.read_process)
    stop_process = Blocking(Session.stop_process)
    text = Blocking(Session.text)
    content = Blocking(Session.content)
    close = Blocking(Session.close)
    export = Blocking(Session.export)
    export_to = Blocking(Session.export_to)
    delete = Blocking(Session.delete)


class SyncClient(Facade[HamesClient]):
    """`HamesClient` without `async`; made by `spawn_sync` and `without_async`."""

    @property
    def server(self) -> dict[str, Any]:
        """The newest answer to `initialize`."""
        return self._of.server

    @property
    def pid(self) -> int | None:
        """The server's process, where it is one of its own."""
        return self._of.pid

    def session(self, session_id: str) -> SyncSession:
        """See `HamesClient.session`."""
        return SyncSession(self._loop, self._of.session(session_id))

    create_session = Opening(HamesClient.create_session)
    resume_session = Opening(HamesClient.resume_session)
    request = Blocking(HamesClient.request)
    list_sessions = Blocking(HamesClient.list_sessions)
    ping = Blocking(HamesClient.ping)
    describe = Blocking(HamesClient.describe)
    discover = Blocking(HamesClient.discover)
    health = Blocking(HamesClient.health)
    list_models = Blocking(HamesClient.list_models)
    list_tools = Blocking(HamesClient.list_tools)


def without_async(
    connect: Callable[P, AbstractAsyncContextManager[HamesClient]],
) -> Callable[P, AbstractContextManager[SyncClient]]:
    """`connect` with the same parameters, for `with`: its event loop runs in a thread of its own as long as the
    block."""

    name = f"{connect.__name__}_sync"
    signature = inspect.signature(connect)

    @contextmanager
    def opened(*args: P.args, **kwargs: P.kwargs) -> Iterator[SyncClient]:
        with start_blocking_portal(name="hames-client") as portal:
            # An exception in the block ends the portal, which cancels `_hold` and waits until it is done.
            ended, (closing, client) = portal.start_task(partial(_hold, partial(connect, *args, **kwargs)))
            yield SyncClient(Loop(portal), client)
            portal.call(closing.set)
            ended.result()

    @wraps(connect)
    def checked(*args: P.args, **kwargs: P.kwargs) -> AbstractContextManager[SyncClient]:
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            # Its caller typed another name than that of what would complain of it.
            raise TypeError(f"{name}() {error}") from None
        return opened(*args, **kwargs)

    checked.__name__ = checked.__qualname__ = name
    return checked


spawn_sync = without_async(HamesClient.spawn)
"""`HamesClient.spawn` without `async`."""


async def _hold(
    connect: Callable[[], AbstractAsyncContextManager[HamesClient]],
    *,
    task_status: TaskStatus[tuple[anyio.Event, HamesClient]],
) -> None:
    """Keep a client open until it is to be closed."""
    closing = anyio.Event()
    async with connect() as client:
        task_status.started((closing, client))
        await closing.wait()


async def _next(events: Events) -> dict[str, Any] | None:
    return await anext(events, None)


async def _close(events: Events) -> None:
    events.close()


async def _events(session: Session, *, after: str | None, on_delta: OnDelta | None) -> Events:
    return session.events(after=after, on_delta=on_delta)
